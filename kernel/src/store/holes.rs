//! Damage in the segment that is not sealed, as a reader passes over it.
//!
//! Owns: telling a hole from bytes that are still being written. Changes nothing on the disk.

use super::archive::Archive;
use super::damage::Damage;
use super::replay::{Pages, Place};
use crate::error::Result;
use crate::ids::Offset;

/// Moves the end of a segment to the next whole record if what lies there is damaged; what was, if it did. Damaged is
/// what a later marker vouches for; what nothing vouches for is torn, or on its way.
pub(super) fn pass_over(archive: &mut Archive, place: usize) -> Result<Option<Damage>> {
    // A writer may have been in the middle of it when it was read: what was vouched for then is whole in a second
    // reading, or is damaged.
    if find_hole(archive, place)?.is_none() {
        return Ok(None);
    }
    let Some((next, offset)) = find_hole(archive, place)? else { return Ok(None) };
    let Some(segment) = archive.segments.get_mut(place) else { return Ok(None) };
    let range = (segment.end, next);
    segment.end = next;
    Ok(Some(Damage::of(&segment.name, range, "records are damaged", (segment.end_offset(), offset))))
}

/// Where the records go on behind damage at a segment's end, and with which offset.
fn find_hole(archive: &Archive, place: usize) -> Result<Option<(u32, Offset)>> {
    let Some(segment) = archive.segments.get(place) else { return Ok(None) };
    let (end, next_offset) = (segment.end, segment.end_offset().0);
    let pages = Pages::read(segment.file.as_ref(), None, archive.salt)?;
    let Place::Hole(Some(next)) = pages.at(end, next_offset) else { return Ok(None) };
    let is_vouched = pages.vouched(next, next_offset) > Some(segment.log_position(end));
    Ok(pages.record(next).filter(|_| is_vouched).map(|record| (next, record.offset)))
}
