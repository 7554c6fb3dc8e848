//! Placeholder of the stage.

pub mod cursor;
pub mod ranges;
pub mod selection;
