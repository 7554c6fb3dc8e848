//! Damage in the segment that is not sealed, as a reader passes over it.
//!
//! Owns: telling a hole from bytes that are still being written. Changes nothing on the disk.

use super::reader::LogReader;
use super::recovery::damage;
use super::replay::{Pages, Place};
use crate::error::Result;
use crate::ids::Offset;
use crate::limits::DAMAGE_REPORTS_MAXIMUM;

impl LogReader {
    /// Moves the segment's end to the next whole record if what lies there is damaged; true if it did. Damaged is what
    /// a later marker vouches for; what nothing vouches for is torn, or on its way.
    pub(super) fn pass_over(&mut self, place: usize) -> Result<bool> {
        // A writer may have been in the middle of it when it was read: what was vouched for then is whole in a second
        // reading, or is damaged.
        Ok(self.find_hole(place)?.is_some() && self.pass_over_now(place)?)
    }

    fn pass_over_now(&mut self, place: usize) -> Result<bool> {
        let Some((next, offset)) = self.find_hole(place)? else { return Ok(false) };
        let Some(segment) = self.archive.segments.get_mut(place) else { return Ok(false) };
        let (first, end) = (segment.end, segment.end_offset());
        if self.passed_over.len() < DAMAGE_REPORTS_MAXIMUM {
            self.passed_over.push(damage(&segment.name, first, next, "records are damaged", end, offset));
        }
        segment.end = next;
        Ok(true)
    }

    /// Where the records go on behind damage at the segment's end, and with which offset.
    fn find_hole(&self, place: usize) -> Result<Option<(u32, Offset)>> {
        let Some(segment) = self.archive.segments.get(place) else { return Ok(None) };
        let (end, next_offset) = (segment.end, segment.end_offset().0);
        let pages = Pages::read(segment.file.as_ref(), None, self.archive.salt)?;
        let Place::Hole(Some(next)) = pages.at(end, next_offset) else { return Ok(None) };
        let is_vouched = pages.vouched(next, next_offset) > Some(segment.log_position(end));
        Ok(pages.record(next).filter(|_| is_vouched).map(|record| (next, record.offset)))
    }
}
