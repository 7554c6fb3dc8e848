//! Full verification: every checksum of every file is computed again. A command and a background task, never part of
//! a start.

use super::damage::Damage;
use super::encoding::{index64, narrow};
use super::footer;
use super::header::{self, Header, SegmentKind, SEGMENT_HEADER_BYTES};
use super::identity;
use super::index::SegmentIndex;
use super::replay::{end_before, Pages, Place};
use super::segment::{Indexed, Segment};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::ids::Offset;

/// Reads every checksum of every segment and names what is damaged. One segment is in memory at a time.
pub(super) fn verify(disk: &dyn Disk, salt: u32) -> Result<Vec<Damage>> {
    let mut found = Vec::new();
    let mut names: Vec<(u32, SegmentKind, String)> = Vec::new();
    for name in disk.list()? {
        names.extend(header::parse_segment_name(&name).map(|(kind, number)| (number, kind, name)));
    }
    names.sort_unstable_by_key(|(number, kind, _)| (*kind == SegmentKind::Log, *number));
    for (place, (_, _, name)) in names.iter().enumerate() {
        let next = names.get(place.saturating_add(1)).map(|(_, _, name)| name.as_str());
        verify_segment(disk, salt, (name, next), &mut found)?;
    }
    Ok(found)
}

/// Verifies a segment; `next` is the file of the one behind it.
fn verify_segment(
    disk: &dyn Disk,
    salt: u32,
    (name, next): (&str, Option<&str>),
    found: &mut Vec<Damage>,
) -> Result<()> {
    // A file that goes while it is looked for has nothing to verify.
    let Ok(file) = disk.open(name, false) else { return Ok(()) };
    let trailer = footer::read_trailer(file.as_ref(), name)?;
    let header = read_header(disk, name)?;
    let next_header = next.map_or(Ok(None), |next| read_header(disk, next))?;
    // A footer that is on its way is no record.
    let before_next = header.zip(next_header).and_then(|(header, next)| end_before(&header, &next));
    let pages = Pages::read(file.as_ref(), trailer.map(|trailer| trailer.records_end).or(before_next), salt)?;
    let Some(header) = header else {
        if pages.used_end() > 0 {
            found.push(Damage::of(name, (0, SEGMENT_HEADER_BYTES), "the header is damaged", (Offset(0), Offset(0))));
        }
        return Ok(());
    };
    if let Some(trailer) = &trailer {
        if let Err(Error::Damaged { position, reason, .. }) = footer::verify(file.as_ref(), trailer, name) {
            let first = u32::try_from(position).unwrap_or(u32::MAX);
            let end = narrow(index64(file.size()?));
            found.push(Damage::of(name, (first, end), &reason, (Offset(0), Offset(0))));
        }
    }
    let index = SegmentIndex::new(header.base_offset, header.base_control, 0);
    let segment = Segment::new(header, name.to_owned(), file, Indexed::Open(Box::new(index)), pages.limit);
    verify_records(&segment, &pages, next.is_none() && trailer.is_none(), found);
    Ok(())
}

fn read_header(disk: &dyn Disk, name: &str) -> Result<Option<Header>> {
    header::decode(&identity::read_all(disk, name, u64::from(SEGMENT_HEADER_BYTES))?, name)
}

/// At the end of the log what is not whole is still to be written, or torn; anywhere else it is damage.
fn verify_records(segment: &Segment, pages: &Pages, growing: bool, found: &mut Vec<Damage>) {
    let mut next_offset = segment.base_offset().0;
    let mut position = SEGMENT_HEADER_BYTES;
    loop {
        match pages.at(position, next_offset) {
            Place::Whole(record, end) => {
                next_offset = record.offset.0.saturating_add(u64::from(record.count));
                position = end;
            }
            Place::Hole(whole) => {
                let torn = growing
                    && pages
                        .vouched(position, next_offset)
                        .is_none_or(|vouched| vouched <= segment.log_position(position));
                let unused = whole.is_none() && pages.used_end() <= position;
                if torn || unused {
                    return;
                }
                let end = whole.unwrap_or(pages.limit);
                let end_offset =
                    whole.and_then(|whole| pages.record(whole)).map_or(Offset(next_offset), |record| record.offset);
                found.push(Damage::of(
                    &segment.name,
                    (position, end),
                    "records are damaged",
                    (Offset(next_offset), end_offset),
                ));
                position = end;
            }
            Place::End => return,
        }
    }
}
