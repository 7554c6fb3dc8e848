//! What parties had acknowledged, record by record, with the time at which it was recorded.
//!
//! Owns: which delivery states of a range of the log are told, and where the next call goes on. Never adds one to
//! another: a row says what its record says. Carried segments have none: what is carried is a checkpoint's.

use super::archive::Archive;
use super::header::SegmentKind;
use super::index::Class;
use super::record::Kind;
use crate::error::Result;
use crate::flow::state::State;
use crate::ids::{Offset, Party, Timestamp, TopicId};
use std::collections::HashSet;

/// A range that a record says is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acknowledged {
    /// Whose record it is.
    pub party: Party,
    /// The next message behind the record.
    pub before: Offset,
    /// When it was appended.
    pub at: Timestamp,
    /// The first offset; 0 where everything below the end is done.
    pub begin: Offset,
    /// The offset after the last one.
    pub end: Offset,
}

/// Which records are wanted.
#[derive(Debug, Clone, Copy)]
pub struct Stretch {
    /// Those that lie before this message or a later one, ...
    pub from: Offset,
    /// ... with this control number or a greater one, ...
    pub from_number: u64,
    /// ... and before a message that is before this one.
    pub to: Offset,
    /// Rows after which no further record is begun.
    pub rows: usize,
}

/// What the records of a stretch say of these parties, in their order, and the control number at which to go on where
/// that is not all.
pub(super) fn read(
    archive: &mut Archive,
    parties: &HashSet<Party>,
    wanted: Stretch,
) -> Result<(Vec<Acknowledged>, Option<u64>)> {
    let mut rows = Vec::new();
    for place in 0..archive.segments.len() {
        let Some(segment) = archive.segments.get(place) else { break };
        let (end, last) = (segment.end, segment.end_offset());
        if segment.header.kind == SegmentKind::Carry || last < wanted.from {
            continue;
        }
        if segment.base_offset() >= wanted.to {
            break;
        }
        let mut positions = Vec::new();
        archive.positions(place, TopicId(0), Class::Plain, 0, end, &mut positions)?;
        let first = first_of(archive, place, &positions, wanted)?;
        for position in positions.into_iter().skip(first) {
            let Some(record) = archive.record(place, position)? else { continue };
            if record.offset >= wanted.to {
                break;
            }
            let party = record.key.and_then(|key| key.try_into().ok()).map(|key| Party(u32::from_le_bytes(key)));
            let is_wanted = record.kind == Kind::Control && record.publisher == Party(0);
            let is_wanted = is_wanted && record.entry >= wanted.from_number;
            let Some(party) = party.filter(|party| is_wanted && parties.contains(party)) else { continue };
            if rows.len() >= wanted.rows {
                return Ok((rows, Some(record.entry)));
            }
            let (mut state, before, at) = (State::default(), record.offset, record.appended_at);
            state.apply(record.payload)?;
            let below = (state.mark > Offset(0)).then_some((Offset(0), state.mark));
            let above = state.acknowledged.iter().map(|(begin, end)| (Offset(begin), Offset(end)));
            rows.extend(below.into_iter().chain(above).map(|(begin, end)| Acknowledged {
                party,
                before,
                at,
                begin,
                end,
            }));
        }
    }
    Ok((rows, None))
}

/// At which place the stretch begins. Offsets and numbers of control records only grow.
fn first_of(archive: &mut Archive, place: usize, positions: &[u32], wanted: Stretch) -> Result<usize> {
    let (mut low, mut high) = (0, positions.len());
    while low < high {
        let middle = low.midpoint(high);
        let Some(position) = positions.get(middle) else { break };
        let record = archive.record(place, *position)?;
        // One that cannot be read is looked for no further: all before it are passed over one by one.
        let Some(record) = record else { return Ok(low) };
        if record.offset < wanted.from || record.kind == Kind::Control && record.entry < wanted.from_number {
            low = middle.saturating_add(1);
        } else {
            high = middle;
        }
    }
    Ok(low)
}
