//! Placeholder of the stage.
