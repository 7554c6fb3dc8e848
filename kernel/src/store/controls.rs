//! Control records as they are read again: those of a table that is not the kernel's own.
//!
//! Invariant: whoever asks from a number on, and then from where that ended, comes to know what all records say. A copy
//! that retention has made of a record that it has is passed over: it says nothing new. So is one of the kernel's own
//! table that was appended since the start, of which each commit may have one: to look at it would read as much of the
//! log as lies between them. There is one who asks: to ask from a lower number than before is to begin anew.

use super::archive::Archive;
use super::encoding::{index64, wide};
use super::index::Class;
use super::record::Kind;
use crate::error::Result;
use crate::ids::{Party, TopicId};
use crate::ranges::RangeSet;

/// What a control record holds: its number, table, key and value.
pub type ControlRow = (u64, u32, Vec<u8>, Vec<u8>);

/// Control records from a number on.
pub struct Controls {
    /// Those of tables that are not the kernel's own.
    pub rows: Vec<ControlRow>,
    /// All up to this number have been looked at.
    pub reached: u64,
    /// There are no more that are durable.
    pub is_all: bool,
}

/// How far somebody has followed the control records as they are written, and what need not be told them.
#[derive(Default)]
pub(super) struct Following {
    /// All below has been taken over.
    until: u64,
    /// What tells nothing from there on: the kernel's own records, and copies of records below. Both come in long
    /// rows, so these are few ranges.
    silent: RangeSet,
}

impl Following {
    /// All records below this number have been taken over. What has been passed over is forgotten.
    fn ask_from(&mut self, number: u64) {
        if number < self.until {
            // Who asks from a lower number than before begins anew, and does not have what was copied.
            self.silent = RangeSet::new();
        }
        self.until = number;
        self.silent.remove_below(number);
    }

    /// Record `number` tells nothing to whoever has taken over record `known`; where that is 0, to anybody.
    pub(super) fn note_silent(&mut self, known: u64, number: u64) {
        if known < self.until {
            self.silent.insert(number, number.saturating_add(1));
        }
    }
}

impl Controls {
    /// Those from a number on and before `end`, table 0 left out; fewer than `limit` only where there are no more.
    pub(super) fn read(
        archive: &mut Archive,
        following: &mut Following,
        (from_number, end): (u64, u64),
        limit: usize,
        effort: u64,
    ) -> Result<Controls> {
        following.ask_from(from_number);
        let silent = &following.silent;
        let until = archive.effort.saturating_add(effort);
        let mut found = Controls { rows: Vec::new(), reached: from_number.saturating_sub(1), is_all: false };
        let first = archive.segments.partition_point(|segment| segment.summary().end_control <= from_number);
        for place in first..archive.segments.len() {
            let Some(segment_end) = archive.segments.get(place).map(|segment| segment.end) else { break };
            let mut positions = Vec::new();
            archive.positions(place, TopicId(0), Class::Plain, 0, segment_end, &mut positions)?;
            let (mut next, dense) = later(archive, place, &positions, from_number);
            while let Some(position) = positions.get(next) {
                let number = dense.map(|base| base.saturating_add(wide(next)));
                if let Some(first) = number.filter(|number| silent.contains(*number)) {
                    let told = silent.first_gap(first).min(end);
                    found.reached = found.reached.max(told.saturating_sub(1));
                    found.is_all = first >= end;
                    if found.is_all {
                        return Ok(found);
                    }
                    next = next.saturating_add(index64(told.saturating_sub(first)));
                    archive.effort = archive.effort.wrapping_add(1);
                    continue;
                }
                next = next.saturating_add(1);
                let is_used_up = archive.effort >= until && found.reached >= from_number;
                let Some(record) = archive.record(place, *position)? else { continue };
                if record.kind != Kind::Control || record.entry < from_number {
                    continue;
                }
                found.is_all = record.entry >= end;
                if found.is_all || found.rows.len() >= limit || is_used_up {
                    return Ok(found);
                }
                found.reached = record.entry;
                if record.publisher != Party(0) {
                    let key = record.key.unwrap_or_default().to_vec();
                    found.rows.push((record.entry, record.publisher.0, key, record.payload.to_vec()));
                }
            }
        }
        found.is_all = true;
        Ok(found)
    }
}

/// Control records are numbered densely, so the wanted one is found by counting where none is damaged: at which place
/// it stands, and the number at the first one. Where some are, all are looked at.
fn later(archive: &Archive, place: usize, positions: &[u32], from_number: u64) -> (usize, Option<u64>) {
    let Some(segment) = archive.segments.get(place) else { return (0, None) };
    let base = segment.header.base_control;
    let numbers = segment.summary().end_control.saturating_sub(base);
    let whole = numbers == wide(positions.len());
    if whole {
        (index64(from_number.saturating_sub(base)), Some(base))
    } else {
        (0, None)
    }
}
