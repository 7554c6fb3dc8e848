//! What queues have not yet seen: the records that their subscriptions match, from an offset on.
//!
//! Per segment the postings of the matching topics are merged, so that only records that match are read; where most of
//! the segment matches, it is read in order instead. A segment without matching topics costs no read at all.
//!
//! Invariants:
//! 1. Nothing at or past the durable offset is found.
//! 2. What is found lies in offset order, each record once, and `reached` never exceeds what was looked at.

use super::archive::{Archive, Indexed};
use super::dictionary::Dictionary;
use super::encoding::{index64, narrow, wide};
use super::index::{between, Class};
use super::log::Log;
use super::record::{Kind, Record};
use crate::error::Result;
use crate::flow::{terms, Found, Scan, Subscription, Terms};
use crate::ids::{Location, Offset, Queue, TopicId};
use crate::limits::{OWED_PAGE_MAXIMUM, SCAN_MEMORIES_MAXIMUM, SCAN_MEMORY_ENTRIES_MAXIMUM};
use crate::selection::Key;
use crate::topic;
use crate::topic::table::Table;
use ahash::RandomState;
use std::collections::HashMap;
use std::sync::Arc;

/// What is remembered of each queue between scans. Only saves work: it can be emptied at any time.
#[derive(Default)]
pub(super) struct ScanMemory {
    queues: HashMap<Queue, QueueMemory>,
    entries: usize,
}

/// What one queue's subscriptions come to.
struct QueueMemory {
    subscriptions: Arc<[Subscription]>,
    receive: Option<Table>,
    /// The dictionary's topics up to here have been looked at.
    topics_seen: usize,
    topics: HashMap<u32, TopicTerms, RandomState>,
    /// Where the last scan stopped.
    resume: Option<(Offset, Location)>,
    /// The merged postings of the segment that is being read.
    merged: Option<(u32, Arc<Vec<u32>>)>,
}

/// The terms of a topic, where they do not depend on the record.
struct TopicTerms {
    constant: Option<Terms>,
    constant_from: Offset,
}

/// How a segment is read.
enum Course {
    Skip,
    InOrder,
    Positions(Arc<Vec<u32>>),
}

/// What is left of a scan's allowance.
struct Allowance {
    records: u32,
    bytes: u64,
}

impl Log {
    /// Answers the scans.
    pub fn scan(&mut self, scans: &mut [Scan]) -> Result<()> {
        let limit = self.durable_offset();
        for scan in scans {
            self.look_up_owed(scan)?;
            if scan.subscriptions.is_empty() && scan.records_maximum == 0 {
                (scan.reached, scan.missing) = (scan.from, None);
                scan.found.clear();
                continue;
            }
            let mut memory = self.memory.take(scan);
            memory.learn(&self.dictionary);
            let result = scan_queue(&mut self.archive, &self.dictionary, &mut memory, scan, limit);
            self.memory.give_back(scan.queue, memory);
            result?;
        }
        Ok(())
    }

    /// Single records that a queue is owed, retained messages, wherever they are by now.
    fn look_up_owed(&mut self, scan: &mut Scan) -> Result<()> {
        scan.found_owed.clear();
        let durable = self.durable_offset();
        if let Some((filter, owed)) = &mut scan.retained {
            (scan.owed, owed.from) = self.retained.page(filter, owed.from, owed.until.min(durable), OWED_PAGE_MAXIMUM);
        }
        let mut last: Option<(Offset, Location)> = None;
        for offset in scan.owed.iter().copied() {
            let near = last.filter(|(before, _)| *before < offset).map(|(_, location)| location);
            let location = if offset < durable { self.archive.find_message(offset, near)? } else { None };
            let found = match location {
                Some(location) => {
                    last = Some((offset, location));
                    let record = self.archive.record_at(location)?;
                    let record = record.filter(|record| gets(scan, record, &self.dictionary, self.opened_at));
                    record.map(|record| found(&record, location, Terms::default(), scan, &self.dictionary))
                }
                None => None,
            };
            scan.found_owed.push(found);
        }
        Ok(())
    }
}

/// True if the queue gets a single record: its table allows it, and it is no retained message of its own that is to
/// be left out [MQTT-3.8.3-3]. In what the log was opened with, a transient party means somebody else.
fn gets(scan: &Scan, record: &Record<'_>, dictionary: &Dictionary, opened_at: Offset) -> bool {
    let is_own = record.publisher == scan.owner && (scan.owner.is_durable() || record.offset >= opened_at);
    let left_out = is_own && scan.retained.as_ref().is_some_and(|(_, owed)| owed.no_local);
    !left_out && scan.receive.as_ref().is_none_or(|table| table.allows(dictionary.name(record.topic)))
}

impl ScanMemory {
    fn take(&mut self, scan: &Scan) -> QueueMemory {
        if let Some(memory) = self.queues.remove(&scan.queue) {
            self.entries = self.entries.saturating_sub(memory.entries());
            let same = Arc::ptr_eq(&memory.subscriptions, &scan.subscriptions);
            if memory.receive == scan.receive && (same || memory.subscriptions == scan.subscriptions) {
                return memory;
            }
        }
        QueueMemory {
            subscriptions: Arc::clone(&scan.subscriptions),
            receive: scan.receive.clone(),
            topics_seen: 0,
            topics: HashMap::with_hasher(RandomState::with_seeds(51, 52, 53, 54)),
            resume: None,
            merged: None,
        }
    }

    fn give_back(&mut self, queue: Queue, memory: QueueMemory) {
        self.entries = self.entries.saturating_add(memory.entries());
        if self.entries > SCAN_MEMORY_ENTRIES_MAXIMUM || self.queues.len() >= SCAN_MEMORIES_MAXIMUM {
            self.queues.clear();
            self.entries = 0;
            return;
        }
        self.queues.insert(queue, memory);
    }

    /// Forgets what depends on where segments are.
    pub fn clear(&mut self) {
        self.queues.clear();
        self.entries = 0;
    }
}

impl QueueMemory {
    fn entries(&self) -> usize {
        self.topics.len().saturating_add(self.merged.as_ref().map_or(0, |(_, positions)| positions.len()))
    }

    /// Looks at the topics that are new since the last time.
    fn learn(&mut self, dictionary: &Dictionary) {
        if self.topics_seen == 0 {
            let mut found = Vec::new();
            for subscription in self.subscriptions.iter() {
                dictionary.matching(&subscription.filter, &mut found);
            }
            for id in found {
                self.note(id, dictionary.name(id));
            }
        } else {
            for (id, topic) in dictionary.topics().skip(self.topics_seen) {
                let name = topic.name.as_deref().unwrap_or_default();
                if self.subscriptions.iter().any(|subscription| topic::matches(&subscription.filter, name)) {
                    self.note(id, name);
                }
            }
        }
        self.topics_seen = dictionary.len();
    }

    fn note(&mut self, id: TopicId, name: &[u8]) {
        if self.receive.as_ref().is_some_and(|table| !table.allows(name)) {
            return;
        }
        let matching = self.subscriptions.iter().filter(|subscription| topic::matches(&subscription.filter, name));
        let constant =
            matching.clone().all(|subscription| !subscription.no_local && subscription.until == Offset(u64::MAX));
        let from = matching.map(|subscription| subscription.from).max().unwrap_or_default();
        let constant = if constant {
            terms(&self.subscriptions, name, from, crate::ids::Party(0), crate::ids::Party(0))
        } else {
            None
        };
        self.topics.insert(id.0, TopicTerms { constant, constant_from: from });
        self.merged = None;
    }

    /// The terms on which the queue gets the record, if it does.
    fn terms(&self, record: &Record<'_>, dictionary: &Dictionary, scan: &Scan) -> Option<Terms> {
        let topic = self.topics.get(&record.topic.0)?;
        match &topic.constant {
            Some(constant) if record.offset >= topic.constant_from => Some(constant.clone()),
            _ => terms(&self.subscriptions, dictionary.name(record.topic), record.offset, record.publisher, scan.owner),
        }
    }

    /// Decides how the segment is read from `start` on.
    fn course(&mut self, archive: &mut Archive, place: usize, start: u32) -> Result<Course> {
        let Some(segment) = archive.segments.get(place) else { return Ok(Course::Skip) };
        let (number, end, records) = (segment.header.number, segment.end, segment.summary().records);
        let growing = matches!(segment.index, Indexed::Open(_));
        if let Some((_, merged)) = self.merged.as_ref().filter(|(of, _)| *of == number && !growing) {
            return Ok(Course::Positions(Arc::clone(merged)));
        }
        // In the open segment what is left to read is mostly short; looking up every topic would cost more.
        let left = u64::from(end.saturating_sub(start)) / wide(super::record::HEADER_BYTES);
        if wide(self.topics.len()) > left {
            return Ok(Course::InOrder);
        }
        let mut total = 0_u64;
        let mut present = Vec::new();
        for id in self.topics.keys().copied().map(TopicId) {
            if let Some(counts) = archive.topic(place, id)?.filter(|counts| counts.queued > 0) {
                total = total.saturating_add(u64::from(counts.queued));
                present.push(id);
            }
        }
        if total == 0 {
            return Ok(Course::Skip);
        }
        if total.saturating_mul(4) >= records {
            return Ok(Course::InOrder);
        }
        let low = if growing { start } else { 0 };
        let mut positions = Vec::with_capacity(index64(total));
        for id in present {
            archive.positions(place, id, Class::Queued, low, end, &mut positions)?;
        }
        positions.sort_unstable();
        let positions = Arc::new(positions);
        if !growing {
            self.merged = Some((number, Arc::clone(&positions)));
        }
        Ok(Course::Positions(positions))
    }
}

fn scan_queue(
    archive: &mut Archive,
    dictionary: &Dictionary,
    memory: &mut QueueMemory,
    scan: &mut Scan,
    limit: Offset,
) -> Result<()> {
    scan.found.clear();
    scan.missing = None;
    let mut from = scan.from;
    let mut allowance = Allowance { records: scan.records_maximum, bytes: scan.bytes_maximum };
    let mut place = archive.first_from(from);
    while from < limit {
        let Some(segment) = archive.segments.get(place) else { break };
        if segment.base_offset() > from {
            if !scan.found.is_empty() {
                break;
            }
            let first = scan.missing.map_or(from, |(first, _)| first);
            scan.missing = Some((first, segment.base_offset()));
            from = segment.base_offset();
            continue;
        }
        let end_offset = segment.end_offset().min(limit);
        let start = match &memory.resume {
            Some((offset, at)) if *offset == from && at.segment == segment.header.number => at.position,
            _ => archive.position_of(place, from)?,
        };
        let reached = match memory.course(archive, place, start)? {
            Course::Skip => None,
            Course::InOrder => {
                read_in_order(archive, dictionary, memory, scan, (place, start, end_offset), &mut allowance)?
            }
            Course::Positions(positions) => read_positions(
                archive,
                dictionary,
                memory,
                scan,
                (place, start, end_offset),
                &positions,
                &mut allowance,
            )?,
        };
        if let Some(reached) = reached {
            scan.reached = reached;
            return Ok(());
        }
        from = end_offset.max(from);
        place = place.saturating_add(1);
    }
    // Beyond the last segment there is nothing; up to the limit everything has been looked at.
    scan.reached = if place >= archive.segments.len() { limit.max(scan.from) } else { from };
    Ok(())
}

/// Reads all records from a position on. Returns where it stopped before the end, if it did.
fn read_in_order(
    archive: &mut Archive,
    dictionary: &Dictionary,
    memory: &mut QueueMemory,
    scan: &mut Scan,
    (place, start, end_offset): (usize, u32, Offset),
    allowance: &mut Allowance,
) -> Result<Option<Offset>> {
    let Some((segment, end)) = archive.segments.get(place).map(|segment| (segment.header.number, segment.end)) else {
        return Ok(None);
    };
    let mut position = start;
    while position < end {
        let location = Location { segment, position };
        let Some(record) = archive.record(place, position)? else {
            position = archive.next_whole(place, position)?;
            continue;
        };
        if record.kind == Kind::Message {
            if record.offset >= end_offset {
                memory.resume = Some((record.offset, location));
                return Ok(None);
            }
            if allowance.records == 0 || allowance.bytes == 0 {
                memory.resume = Some((record.offset, location));
                return Ok(Some(record.offset));
            }
            take(&record, location, memory, dictionary, scan, allowance);
        }
        let size = record.size_bytes();
        allowance.bytes = allowance.bytes.saturating_sub(wide(size));
        position = position.saturating_add(narrow(size));
    }
    memory.resume = Some((end_offset, Location { segment, position }));
    Ok(None)
}

/// Reads the records at the given positions. Returns where it stopped before the end, if it did.
fn read_positions(
    archive: &mut Archive,
    dictionary: &Dictionary,
    memory: &mut QueueMemory,
    scan: &mut Scan,
    (place, start, end_offset): (usize, u32, Offset),
    positions: &[u32],
    allowance: &mut Allowance,
) -> Result<Option<Offset>> {
    let Some(segment) = archive.segments.get(place).map(|segment| segment.header.number) else { return Ok(None) };
    for position in between(positions, start, u32::MAX).iter().copied() {
        let location = Location { segment, position };
        let Some(record) = archive.record(place, position)? else { continue };
        if record.offset >= end_offset {
            break;
        }
        if allowance.records == 0 || allowance.bytes == 0 {
            memory.resume = Some((record.offset, location));
            return Ok(Some(record.offset));
        }
        allowance.bytes = allowance.bytes.saturating_sub(wide(record.size_bytes()));
        take(&record, location, memory, dictionary, scan, allowance);
    }
    Ok(None)
}

fn take(
    record: &Record<'_>,
    location: Location,
    memory: &QueueMemory,
    dictionary: &Dictionary,
    scan: &mut Scan,
    allowance: &mut Allowance,
) {
    if record.qos == 0 {
        return;
    }
    if let Some(terms) = memory.terms(record, dictionary, scan) {
        allowance.records = allowance.records.saturating_sub(1);
        let found = found(record, location, terms, scan, dictionary);
        scan.found.push(found);
    }
}

fn found(record: &Record<'_>, location: Location, terms: Terms, scan: &Scan, dictionary: &Dictionary) -> Found {
    let slot = |key: &Key| key.slot(dictionary.name(record.topic), record.properties, record.key_slot);
    Found {
        offset: record.offset,
        count: record.count,
        location,
        size_bytes: narrow(record.size_bytes()),
        qos: record.qos,
        retain: record.retain,
        expires_at: record.expires_at,
        key_slot: scan.key.as_ref().map_or(record.key_slot, slot),
        terms,
    }
}
