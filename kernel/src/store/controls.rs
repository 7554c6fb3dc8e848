//! Control records as they are read again: those of a table that is not the kernel's own.

use super::archive::Archive;
use super::encoding::{index64, wide};
use super::index::Class;
use super::record::Kind;
use crate::error::Result;
use crate::ids::{Party, TopicId};

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

impl Controls {
    /// Those from a number on and before `end`, table 0 left out; fewer than `limit` only where there are no more.
    pub(super) fn read(
        archive: &mut Archive,
        (from_number, end): (u64, u64),
        limit: usize,
        effort: u64,
    ) -> Result<Controls> {
        let until = archive.effort.saturating_add(effort);
        let mut found = Controls { rows: Vec::new(), reached: from_number.saturating_sub(1), is_all: false };
        let first = archive.segments.partition_point(|segment| segment.summary().end_control <= from_number);
        for place in first..archive.segments.len() {
            let Some(segment_end) = archive.segments.get(place).map(|segment| segment.end) else { break };
            let mut positions = Vec::new();
            archive.positions(place, TopicId(0), Class::Plain, 0, segment_end, &mut positions)?;
            for position in later(archive, place, &positions, from_number) {
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

/// Control records are numbered densely, so the wanted one is found by counting where none is damaged.
fn later<'a>(archive: &Archive, place: usize, positions: &'a [u32], from_number: u64) -> &'a [u32] {
    let Some(segment) = archive.segments.get(place) else { return &[] };
    let numbers = segment.summary().end_control.saturating_sub(segment.header.base_control);
    let skipped = from_number.saturating_sub(segment.header.base_control);
    let whole = numbers == wide(positions.len());
    positions.get(if whole { index64(skipped) } else { 0 }..).unwrap_or_default()
}
