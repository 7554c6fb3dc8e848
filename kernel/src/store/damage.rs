//! A place that the disk has damaged, as it is reported.

use crate::ids::Offset;

/// A place that the disk has damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: String,
    /// The first byte.
    pub first_position: u64,
    /// The byte after the last one.
    pub end_position: u64,
    /// What is wrong.
    pub reason: String,
    /// The first offset that it may have held.
    pub first_offset: Offset,
    /// The offset after the last one that it may have held.
    pub end_offset: Offset,
}

impl Damage {
    /// Some bytes of a file, and the offsets that they may have held.
    pub(super) fn of(
        file: &str,
        (first, end): (u32, u32),
        reason: &str,
        (first_offset, end_offset): (Offset, Offset),
    ) -> Damage {
        Damage {
            file: file.to_owned(),
            first_position: u64::from(first),
            end_position: u64::from(end),
            reason: reason.to_owned(),
            first_offset,
            end_offset,
        }
    }
}
