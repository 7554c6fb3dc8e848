//! The durable log: its state, and what can be asked of it.
//!
//! Owns: one data directory, as its only writer. Never: policy, a thread, a clock. What appends is in `append`, what
//! goes to the disk in `commit`, what is read for queues in `scan`, what goes away in `retention`.
//!
//! Invariants:
//! 1. An offset is given to one message and never to another, across crashes too: nothing past `durable` is shown to
//!    anybody outside.
//! 2. After a failed sync nothing is appended or committed any more (docs/adr/0004-torn-tail-or-damage.md).
//! 3. Append times never run backwards.

use super::archive::Archive;
use super::commit::{Ends, Work};
use super::dictionary::Dictionary;
use super::filters::FilterMemory;
use super::in_force::InForce;
use super::index::Class;
use super::parties::Parties;
use super::record::{Kind, Record};
use super::retained::RetainedMessages;
use super::retention::Run;
use super::scan::ScanMemory;
use super::snapshot::Walk;
use crate::disk::{Disk, DiskFile};
use crate::error::{Error, Result};
use crate::flow::{Message, Messages};
use crate::ids::{Location, LogPosition, Offset, Party, Timestamp};
use crate::limits::{SEGMENT_BYTES_MAXIMUM, SEGMENT_BYTES_MINIMUM};
use std::sync::Arc;

/// When something counts as durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When fdatasync has returned.
    Fsync,
    /// When the operating system has it.
    Os,
    /// At once; it is written when there is time.
    Memory,
}

/// What the caller decides about a log.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of a segment.
    pub segment_bytes: u32,
    /// Bytes of the tail and of the block cache, each.
    pub cache_bytes: usize,
    /// While less than this is free on the disk, messages are refused.
    pub reserve_bytes: u64,
    /// When something counts as durable.
    pub durability: Durability,
    /// Drawn by the caller: gives a new log its identity and spreads hash tables.
    pub seed: u64,
}

/// Where the next record goes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Head {
    pub(super) offset: u64,
    pub(super) control: u64,
    pub(super) position: u64,
    pub(super) time: u64,
}

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

/// Totals since the log was opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Groups that reached the disk.
    pub commits: u64,
    /// Their bytes.
    pub committed_bytes: u64,
    /// Records appended.
    pub records_appended: u64,
}

/// The log.
pub struct Log {
    pub(super) options: Options,
    pub(super) epoch: u128,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) archive: Archive,
    pub(super) dictionary: Dictionary,
    pub(super) filters: FilterMemory,
    pub(super) retained: RetainedMessages,
    pub(super) parties: Parties,
    pub(super) in_force: InForce,
    pub(super) memory: ScanMemory,
    pub(super) head: Head,
    /// The end when it was opened: numbers of transient parties in records before it mean somebody else.
    pub(super) opened_at: Offset,
    pub(super) durable: Ends,
    pub(super) written: Ends,
    pub(super) work: Vec<Work>,
    pub(super) group_started: bool,
    pub(super) in_flight: bool,
    pub(super) poisoned: bool,
    pub(super) next_marker: Record<'static>,
    pub(super) sync_directory: bool,
    pub(super) next_number: u32,
    pub(super) prepared: Option<Arc<dyn DiskFile>>,
    pub(super) space_is_low: bool,
    pub(super) space_checked_at: u64,
    /// Everything below is on the medium, whatever counts as durable.
    pub(super) synced: LogPosition,
    /// Commits sync until everything below this is on the medium.
    pub(super) sync_until: LogPosition,
    /// A checkpoint that is taken down, or waits until what it holds is synced.
    pub(super) walk: Option<Walk>,
    pub(super) checkpoint_number: u64,
    /// The log position from which the newest checkpoint that was begun has the log replayed, ...
    pub(super) checkpoint_begun: LogPosition,
    /// ... and the newest durable one.
    pub(super) checkpointed: LogPosition,
    /// What goes away at present.
    pub(super) run: Option<Run>,
    /// What retention must not lose is written anew for everything below the first position; it is durable once the
    /// log is durable up to the second one.
    pub(super) renewed: Option<(LogPosition, LogPosition)>,
    /// Which carry segment is looked at next for what nobody needs any more.
    pub(super) thinned: usize,
    pub(super) totals: Totals,
}

impl Options {
    /// An error where a value is out of its range.
    pub fn check(&self) -> Result<()> {
        if !(SEGMENT_BYTES_MINIMUM..=SEGMENT_BYTES_MAXIMUM).contains(&self.segment_bytes) {
            let reason = format!("segment_bytes must be between {SEGMENT_BYTES_MINIMUM} and {SEGMENT_BYTES_MAXIMUM}");
            return Err(Error::Invalid(reason));
        }
        Ok(())
    }
}

impl Log {
    /// The offset of the next message.
    pub fn end_offset(&self) -> Offset {
        Offset(self.head.offset)
    }

    /// The oldest offset from which on the log is whole; what was carried lies below.
    pub fn begin_offset(&self) -> Offset {
        let own = self.archive.segments.iter().find(|segment| segment.header.kind == super::header::SegmentKind::Log);
        own.map_or(self.end_offset(), |segment| segment.base_offset())
    }

    /// The offset below which everything is durable.
    pub fn durable_offset(&self) -> Offset {
        match self.options.durability {
            Durability::Memory => self.end_offset(),
            _ => self.durable.offset,
        }
    }

    /// The log position after everything appended.
    pub fn end_position(&self) -> LogPosition {
        LogPosition(self.head.position)
    }

    /// The log position below which everything is durable.
    pub fn durable_position(&self) -> LogPosition {
        match self.options.durability {
            Durability::Memory => self.end_position(),
            _ => self.durable.position,
        }
    }

    /// Bytes that are appended and not yet on the disk.
    pub fn uncommitted_bytes(&self) -> u64 {
        self.head.position.saturating_sub(self.written.position.0)
    }

    /// The log's identity.
    pub fn epoch(&self) -> String {
        super::identity::Identity { epoch: self.epoch }.epoch_text()
    }

    /// The number of the next control record.
    pub fn next_control_number(&self) -> u64 {
        self.head.control
    }

    /// Durable control records from a number on, table 0 left out; fewer than `limit` only where there are no more.
    pub fn controls(&mut self, from_number: u64, limit: usize, effort: u64) -> Result<Controls> {
        let until = self.archive.effort.saturating_add(effort);
        let mut found = Controls { rows: Vec::new(), reached: from_number.saturating_sub(1), is_all: false };
        let end = match self.options.durability {
            Durability::Memory => self.head.control,
            _ => self.durable.control,
        };
        let first = self.archive.segments.partition_point(|segment| segment.summary().end_control <= from_number);
        for place in first..self.archive.segments.len() {
            let Some(segment_end) = self.archive.segments.get(place).map(|segment| segment.end) else { break };
            let mut positions = Vec::new();
            self.archive.positions(place, crate::ids::TopicId(0), Class::Plain, 0, segment_end, &mut positions)?;
            for position in self.later_controls(place, &positions, from_number)? {
                let is_used_up = self.archive.effort >= until && found.reached >= from_number;
                let Some(record) = self.archive.record(place, position)? else { continue };
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

    /// Control records are numbered densely, so the wanted one is found by counting where none is damaged.
    fn later_controls(&self, place: usize, positions: &[u32], from_number: u64) -> Result<Vec<u32>> {
        let Some(segment) = self.archive.segments.get(place) else { return Ok(Vec::new()) };
        let numbers = segment.summary().end_control.saturating_sub(segment.header.base_control);
        let skipped = from_number.saturating_sub(segment.header.base_control);
        let whole = numbers == super::encoding::wide(positions.len());
        let skipped = if whole { super::encoding::index64(skipped) } else { 0 };
        Ok(positions.get(skipped..).unwrap_or_default().to_vec())
    }

    /// The delivery state of a durable party, as last written.
    pub fn delivery_state(&self, party: Party) -> Option<Vec<u8>> {
        self.parties.encoded(party)
    }

    /// Below which offset durable parties have acknowledged all; `None` of those without a state.
    pub fn marks(&self, parties: &[Party]) -> Vec<Option<Offset>> {
        parties.iter().map(|party| self.parties.get(*party).map(|known| known.state.mark)).collect()
    }

    /// Offsets of the retained messages that match, from `from` on in their order: `limit` at most, and up to which
    /// offset that is all.
    pub fn retained(&self, filter: &[u8], from: Offset, limit: usize) -> (Vec<Offset>, Offset) {
        self.retained.page(filter, from, self.end_offset(), limit)
    }

    /// How many topics have a retained message.
    pub fn retained_count(&self) -> usize {
        self.retained.len()
    }

    /// Where the message with an offset is; `None` if it is gone, damaged or not yet durable.
    pub fn locate(&mut self, offset: Offset) -> Result<Option<Location>> {
        if offset >= self.durable_offset() {
            return Ok(None);
        }
        self.archive.find_message(offset, None)
    }

    /// When the message with an offset was stored; `None` if it is gone, damaged or not yet durable.
    pub fn stored_at(&mut self, offset: Offset) -> Result<Option<Timestamp>> {
        let Some(location) = self.locate(offset)? else { return Ok(None) };
        Ok(self.archive.record_at(location)?.map(|record| record.appended_at))
    }

    /// Gets ready for filters with wildcards, with about this effort; true once it is. Without it the first one to come
    /// does that.
    pub fn prepare_filters(&mut self, effort: u64) -> bool {
        let until = self.archive.effort.saturating_add(effort);
        self.filters.prepare(&self.dictionary, (&mut self.archive.effort, until))
    }

    /// Named numbers for people.
    pub fn statistics(&self) -> Vec<(&'static str, u64)> {
        let wide = super::encoding::wide;
        vec![
            ("segments", wide(self.archive.segments.len())),
            ("bytes", self.archive.segments.iter().map(|segment| segment.bytes()).sum()),
            ("topics", wide(self.dictionary.len())),
            ("retained", wide(self.retained.len())),
            ("parties", wide(self.parties.len())),
            ("controls_in_force", wide(self.in_force.len())),
            ("commits", self.totals.commits),
            ("committed_bytes", self.totals.committed_bytes),
            ("records_appended", self.totals.records_appended),
            ("cache_hits", self.archive.blocks.hits),
            ("cache_misses", self.archive.blocks.misses),
            ("damaged_reads", self.archive.damaged_reads),
            ("space_is_low", u64::from(self.space_is_low)),
        ]
    }

    /// Records looked at and topics looked up or compared since it was opened: what a piece of work is measured by.
    pub fn effort(&self) -> u64 {
        self.archive.effort
    }

    /// Commits what is left, with a checkpoint, so that the next start reads little.
    pub fn close(&mut self) -> Result<()> {
        self.checkpoint(Timestamp(0))
    }

    /// Append time: never before what was appended last.
    pub(super) fn advance(&mut self, now: Timestamp) -> Timestamp {
        self.head.time = self.head.time.max(now.0);
        Timestamp(self.head.time)
    }
}

impl Messages for Log {
    fn message(&mut self, location: Location, offset: Offset) -> Result<Option<Message<'_>>> {
        let found = match self.archive.find(location.segment) {
            Some(place) => Some((place, location.position)),
            // Its segment has gone since it was found there; it may have been carried.
            None => {
                let carried = self.archive.find_message(offset, None)?;
                carried.and_then(|location| Some((self.archive.find(location.segment)?, location.position)))
            }
        };
        let Some((place, position)) = found else { return Ok(None) };
        let dictionary = &self.dictionary;
        let record = self.archive.record(place, position)?;
        Ok(record.filter(|record| record.kind == Kind::Message).map(|record| Message {
            topic: dictionary.name(record.topic),
            properties: record.properties,
            payload: record.payload,
            qos: record.qos,
            retain: record.retain,
            appended_at: record.appended_at,
            expires_at: record.expires_at,
        }))
    }
}
