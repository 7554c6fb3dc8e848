//! Placeholder of the stage.

pub mod cursor;
pub mod selection;
