//! What queues have not yet seen: the records that their subscriptions match, from an offset on.
//!
//! Per segment the postings of the matching topics are merged, so that only records that match are read; where most of
//! the segment matches, it is read in order instead. A segment without matching topics costs no read at all.
//!
//! Invariants:
//! 1. Nothing at or past the durable offset is found.
//! 2. What is found lies in offset order, each record once, and `reached` never exceeds what was looked at.

use super::archive::Archive;
use super::cache::Cache;
use super::course::{Course, Courses, Wanted, Windows};
use super::dictionary::Dictionary;
use super::encoding::{narrow, wide};
use super::filters::{union, FilterMemory, Learning, Topics};
use super::index::between;
use super::record::{Kind, Record};
use super::records::Records;
use crate::entry::metadata;
use crate::error::Result;
use crate::flow::{terms, Found, Scan, Subscription, Terms};
use crate::ids::{Location, Offset, Queue};
use crate::limits::{
    FILTER_CATCH_UP_MAXIMUM, OWED_PAGE_MAXIMUM, SCAN_EFFORT_MAXIMUM, SCAN_EFFORT_MINIMUM, SCAN_MEMORY_ENTRIES_MAXIMUM,
    SCAN_MEMORY_OVERHEAD_ENTRIES, SCAN_MEMORY_TOPICS_MAXIMUM,
};
use crate::selection::Key;
use crate::topic;
use crate::topic::grant::Grant;
use ahash::RandomState;
use std::collections::HashMap;
use std::sync::Arc;

/// What finding the terms of a topic takes, besides a look for each subscription.
const TERMS_EFFORT: u64 = 4;

/// What noting a record that was found takes.
const FOUND_EFFORT: u64 = 2;

/// What looking for a page of retained messages may cost.
const RETAINED_PAGE_EFFORT: u64 = 1_000;

/// Bytes of a position, or of a topic's terms, on average.
const ENTRY_BYTES: usize = 8;

/// What scans need besides what is asked of them.
pub(super) struct Scanning {
    /// What is remembered of queues between scans. Only saves work: any of it can be forgotten at any time.
    queues: Cache<Queue, QueueMemory>,
    windows: Windows,
    /// The end of the log when it was opened: numbers of transient parties in records before it mean somebody else.
    opened_at: Offset,
    /// What the log had been asked when it was here last.
    effort_before: u64,
}

/// What one queue's subscriptions come to.
struct QueueMemory {
    subscriptions: Arc<[Subscription]>,
    receive: Option<Grant>,
    /// The topics that the subscriptions match, once all are known; so many of the dictionary's names were looked at.
    topics: Option<(Topics, usize)>,
    learning: (Learning, usize),
    /// Of topics with messages that were found.
    terms: HashMap<u32, TopicTerms, RandomState>,
    /// Where the last scan stopped.
    resume: Option<(Offset, Location)>,
    courses: Courses,
}

/// The terms of a topic.
#[derive(Clone)]
struct TopicTerms {
    /// The queue may not have the topic.
    is_denied: bool,
    /// From an offset on, where they do not depend on the record any more.
    constant: Option<(Terms, Offset)>,
}

/// What is left of a scan's allowance.
struct Allowance {
    records: u32,
    bytes: u64,
    /// The effort at which it gives way.
    until: u64,
    /// Effort for what was found, which comes to that of reading.
    spent: u64,
}

impl Allowance {
    fn of(scan: &Scan, until: u64) -> Allowance {
        Allowance { records: scan.records_maximum, bytes: scan.bytes_maximum, until, spent: 0 }
    }

    fn is_used_up(&self, archive: &Archive) -> bool {
        self.records == 0 || self.bytes == 0 || self.is_out_of_effort(archive)
    }

    fn is_out_of_effort(&self, archive: &Archive) -> bool {
        archive.effort.saturating_add(self.spent) >= self.until
    }
}

impl Scanning {
    /// Bytes of what is remembered, by what it is.
    pub(super) fn remembered(&self) -> [(&'static str, usize); 2] {
        [("queues", self.queues.bytes().saturating_mul(ENTRY_BYTES)), ("windows", self.windows.bytes())]
    }

    /// Of a log that ended at `opened_at` when it was opened.
    pub(super) fn new(opened_at: Offset) -> Scanning {
        let queues = Cache::new(SCAN_MEMORY_ENTRIES_MAXIMUM, 51);
        Scanning { queues, windows: Windows::default(), opened_at, effort_before: 0 }
    }

    /// Answers the scans, with SCAN_EFFORT_MAXIMUM for all of them and for what the log was asked since it was here
    /// last, but not less than SCAN_EFFORT_MINIMUM: who comes later may not be looked at, and then has reached what it
    /// had. The first one always gets on.
    pub(super) fn scan(&mut self, records: &mut Records, filters: &mut FilterMemory, scans: &mut [Scan]) -> Result<()> {
        let limit = records.durable_offset();
        let least = records.archive.effort.saturating_add(SCAN_EFFORT_MINIMUM);
        let until = self.effort_before.saturating_add(SCAN_EFFORT_MAXIMUM).max(least);
        for scan in scans {
            scan.found.clear();
            (scan.reached, scan.missing) = (scan.from, None);
            self.look_up_owed(records, scan, until)?;
            let Records { archive, derived, .. } = &mut *records;
            if scan.subscriptions.is_empty() && scan.records_maximum == 0 || archive.effort >= until {
                continue;
            }
            let (mut memory, mut result) = (self.take(scan), Ok(()));
            if memory.learn(filters, &derived.dictionary, (&mut archive.effort, until)) {
                let mut allowance = Allowance::of(scan, until);
                let parts = (&mut *archive, &derived.dictionary, &mut self.windows);
                result = scan_queue(parts, &mut memory, scan, (limit, &mut allowance));
                archive.effort = archive.effort.saturating_add(allowance.spent);
            }
            self.give_back(scan.queue, memory);
            result?;
        }
        self.effort_before = records.archive.effort;
        Ok(())
    }

    /// Single records that a queue is owed, retained messages, wherever they are by now; the rest of them another time
    /// where the effort is used up.
    fn look_up_owed(&self, records: &mut Records, scan: &mut Scan, until: u64) -> Result<()> {
        scan.found_owed.clear();
        let durable = records.durable_offset();
        let Records { archive, derived, .. } = records;
        if let Some((filter, owed)) = &mut scan.retained {
            if archive.effort >= until {
                scan.owed.clear();
                return Ok(());
            }
            let page = derived.retained.page(filter, owed.from, owed.until.min(durable), OWED_PAGE_MAXIMUM);
            archive.effort = archive.effort.saturating_add(RETAINED_PAGE_EFFORT);
            (scan.owed, owed.from) = page;
        }
        let mut last: Option<(Offset, Location)> = None;
        for (place, offset) in scan.owed.clone().into_iter().enumerate() {
            if archive.effort >= until {
                scan.owed.truncate(place);
                if let Some((_, owed)) = &mut scan.retained {
                    owed.from = offset;
                }
                break;
            }
            let near = last.filter(|(before, _)| *before < offset).map(|(_, location)| location);
            let location = if offset < durable { archive.find_message(offset, near)? } else { None };
            let found = match location {
                Some(location) => {
                    last = Some((offset, location));
                    let record = archive.record_at(location)?;
                    let record = record.filter(|record| gets(scan, record, &derived.dictionary, self.opened_at));
                    let dictionary = &derived.dictionary;
                    let found = record.map(|record| found(&record, location, Terms::default(), scan, dictionary));
                    let one = |found| if scan.whole { found } else { Found { offset, count: 1, ..found } };
                    found.map(one)
                }
                None => None,
            };
            scan.found_owed.push(found);
        }
        Ok(())
    }

    fn take(&mut self, scan: &Scan) -> QueueMemory {
        if let Some(memory) = self.queues.remove(&scan.queue) {
            let same = Arc::ptr_eq(&memory.subscriptions, &scan.subscriptions);
            if memory.receive == scan.receive && (same || memory.subscriptions == scan.subscriptions) {
                return memory;
            }
        }
        QueueMemory::new(Arc::clone(&scan.subscriptions), scan.receive.clone())
    }

    fn give_back(&mut self, queue: Queue, memory: QueueMemory) {
        let entries = memory.entries();
        self.queues.put(queue, memory, entries);
    }
}

/// True if the queue gets a single record: its grant allows it, and it is no retained message of its own that is to
/// be left out [MQTT-3.8.3-3]. In what the log was opened with, a transient party means somebody else.
fn gets(scan: &Scan, record: &Record<'_>, dictionary: &Dictionary, opened_at: Offset) -> bool {
    let is_own = record.publisher == scan.owner && (scan.owner.is_durable() || record.offset >= opened_at);
    let left_out = is_own && scan.retained.as_ref().is_some_and(|(_, owed)| owed.no_local);
    !left_out && scan.receive.as_ref().is_none_or(|grant| grant.allows(dictionary.name(record.topic)))
}

impl QueueMemory {
    fn new(subscriptions: Arc<[Subscription]>, receive: Option<Grant>) -> QueueMemory {
        QueueMemory {
            subscriptions,
            receive,
            topics: None,
            learning: (Learning::default(), 0),
            terms: HashMap::with_hasher(RandomState::with_seeds(51, 52, 53, 54)),
            resume: None,
            courses: Courses::default(),
        }
    }

    fn entries(&self) -> usize {
        let known = self.terms.len().saturating_add(SCAN_MEMORY_OVERHEAD_ENTRIES);
        known.saturating_add(self.courses.positions())
    }

    /// Looks at the topics that are new since the last time; false if the effort is used up before.
    fn learn(&mut self, filters: &mut FilterMemory, dictionary: &Dictionary, effort: (&mut u64, u64)) -> bool {
        let names = dictionary.names_known();
        let few = |seen: usize| wide(names.saturating_sub(seen)) <= FILTER_CATCH_UP_MAXIMUM;
        match &mut self.topics {
            Some((topics, seen)) if few(*seen) => {
                while let Some(id) = dictionary.named(*seen) {
                    *seen = seen.saturating_add(1);
                    *effort.0 = effort.0.saturating_add(1);
                    let name = dictionary.name(id);
                    if self.subscriptions.iter().any(|subscription| topic::matches(&subscription.filter, name)) {
                        Arc::make_mut(topics).insert(id.0);
                        self.courses = Courses::default();
                    }
                }
                true
            }
            _ => {
                let (learning, seen) = &mut self.learning;
                if learning.is_new() {
                    *seen = names;
                }
                let asked = self.subscriptions.iter().map(|subscription| subscription.filter.as_slice());
                let Some(sets) = learning.learn(asked, filters, dictionary, effort) else { return false };
                self.topics = Some((union(sets.iter()), *seen));
                self.learning = (Learning::default(), 0);
                self.courses = Courses::default();
                true
            }
        }
    }

    /// The terms on which the queue gets the record, if it does; `spent` grows by what finding them took.
    fn terms(&mut self, record: &Record<'_>, dictionary: &Dictionary, scan: &Scan, spent: &mut u64) -> Option<Terms> {
        let (topics, _) = self.topics.as_ref()?;
        if !topics.contains(record.topic.0) {
            return None;
        }
        let name = dictionary.name(record.topic);
        if !self.terms.contains_key(&record.topic.0) {
            *spent = spent.saturating_add(TERMS_EFFORT).saturating_add(wide(self.subscriptions.len()));
            if self.terms.len() >= SCAN_MEMORY_TOPICS_MAXIMUM {
                self.terms.clear();
            }
        }
        let known = self.terms.entry(record.topic.0).or_insert_with(|| TopicTerms {
            is_denied: self.receive.as_ref().is_some_and(|grant| !grant.allows(name)),
            constant: constant_terms(&self.subscriptions, name),
        });
        match &known.constant {
            _ if known.is_denied => None,
            Some((constant, from)) if record.offset >= *from => Some(constant.clone()),
            _ => terms(&self.subscriptions, name, record.offset, record.publisher, scan.owner),
        }
    }
}

/// The terms of a topic from the offset on from which they are the same for every record, if there is one.
fn constant_terms(subscriptions: &[Subscription], name: &[u8]) -> Option<(Terms, Offset)> {
    let matching = subscriptions.iter().filter(|subscription| topic::matches(&subscription.filter, name));
    let is_constant = |it: &Subscription| !it.no_local && it.until == Offset(u64::MAX);
    if !matching.clone().all(is_constant) {
        return None;
    }
    let from = matching.map(|subscription| subscription.from).max().unwrap_or_default();
    let nobody = crate::ids::Party(0);
    terms(subscriptions, name, from, nobody, nobody).map(|terms| (terms, from))
}

fn scan_queue(
    (archive, dictionary, windows): (&mut Archive, &Dictionary, &mut Windows),
    memory: &mut QueueMemory,
    scan: &mut Scan,
    (limit, allowance): (Offset, &mut Allowance),
) -> Result<()> {
    let mut from = scan.from;
    let mut place = archive.first_from(from);
    while from < limit {
        if allowance.is_out_of_effort(archive) {
            scan.reached = from;
            return Ok(());
        }
        let Some(segment) = archive.segments.get(place) else { break };
        if segment.base_offset() > from {
            if !scan.found.is_empty() {
                break;
            }
            // Before its first subscription the queue wanted nothing, so it has lost nothing by what is gone.
            let wanted = scan.subscriptions.iter().map(|subscription| subscription.from).min().unwrap_or(limit);
            let first = scan.missing.map_or(from, |(first, _)| first).max(wanted);
            if first < segment.base_offset() {
                scan.missing = Some((first, segment.base_offset()));
            }
            from = segment.base_offset();
            continue;
        }
        let end_offset = segment.end_offset().min(limit);
        let start = match &memory.resume {
            Some((offset, at)) if *offset == from && at.segment == segment.header.number => at.position,
            _ => archive.position_of(place, from)?,
        };
        let wanted =
            Wanted { topics: memory.topics.as_ref().map(|(topics, _)| topics), filters: &memory.subscriptions };
        let effort_until = allowance.until.saturating_sub(allowance.spent);
        let reached = match memory.courses.course(archive, windows, &wanted, (place, start), effort_until)? {
            Course::Skip => None,
            Course::Unknown => Some(from),
            Course::InOrder(high) => {
                let window = (place, start, high, end_offset);
                read_in_order(archive, dictionary, memory, scan, window, allowance)?
            }
            Course::Positions(positions, high) => {
                let window = (place, start, high, end_offset);
                read_positions(archive, dictionary, memory, scan, window, &positions, allowance)?
            }
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

/// Reads all records of a window from a position on. Returns where it stopped before the segment's end, if it did.
fn read_in_order(
    archive: &mut Archive,
    dictionary: &Dictionary,
    memory: &mut QueueMemory,
    scan: &mut Scan,
    (place, start, high, end_offset): (usize, u32, u32, Offset),
    allowance: &mut Allowance,
) -> Result<Option<Offset>> {
    let Some((segment, end)) = archive.segments.get(place).map(|segment| (segment.header.number, segment.end)) else {
        return Ok(None);
    };
    let mut position = start;
    while position < high.min(end) {
        let location = Location { segment, position };
        let is_used_up = allowance.is_used_up(archive);
        let Some(record) = archive.record(place, position)? else {
            position = archive.next_whole(place, position)?;
            continue;
        };
        if record.kind.has_messages() {
            if record.offset >= end_offset {
                memory.resume = Some((record.offset, location));
                return Ok(None);
            }
            let offset = record.offset.max(scan.from);
            let stopped = match is_used_up {
                true => Some(offset),
                false => take(&record, location, memory, dictionary, scan, allowance),
            };
            if let Some(offset) = stopped {
                memory.resume = Some((offset, location));
                return Ok(Some(offset));
            }
        }
        let size = record.size_bytes();
        allowance.bytes = allowance.bytes.saturating_sub(wide(size));
        position = position.saturating_add(narrow(size));
    }
    if position >= end {
        memory.resume = Some((end_offset, Location { segment, position }));
        return Ok(None);
    }
    next_window(archive, memory, (place, position), end_offset)
}

/// Reads the records at the given positions. Returns where it stopped before the end, if it did.
fn read_positions(
    archive: &mut Archive,
    dictionary: &Dictionary,
    memory: &mut QueueMemory,
    scan: &mut Scan,
    (place, start, high, end_offset): (usize, u32, u32, Offset),
    positions: &[u32],
    allowance: &mut Allowance,
) -> Result<Option<Offset>> {
    let Some((segment, end)) = archive.segments.get(place).map(|segment| (segment.header.number, segment.end)) else {
        return Ok(None);
    };
    for position in between(positions, start, high).iter().copied() {
        let location = Location { segment, position };
        let is_used_up = allowance.is_used_up(archive);
        let Some(record) = archive.record(place, position)? else { continue };
        if record.offset >= end_offset {
            return Ok(None);
        }
        let stopped = match is_used_up {
            true => Some(record.offset.max(scan.from)),
            false => {
                allowance.bytes = allowance.bytes.saturating_sub(wide(record.size_bytes()));
                take(&record, location, memory, dictionary, scan, allowance)
            }
        };
        if let Some(offset) = stopped {
            memory.resume = Some((offset, location));
            return Ok(Some(offset));
        }
    }
    if high >= end {
        return Ok(None);
    }
    next_window(archive, memory, (place, high), end_offset)
}

/// A window ends at a position, and the segment goes on with the message whose offset is returned.
fn next_window(
    archive: &mut Archive,
    memory: &mut QueueMemory,
    (place, position): (usize, u32),
    end_offset: Offset,
) -> Result<Option<Offset>> {
    let position = archive.walk_to(place, position, |record| record.kind.has_messages())?;
    let Some(segment) = archive.segments.get(place).map(|segment| segment.header.number) else { return Ok(None) };
    let Some(offset) = archive.record(place, position)?.map(|record| record.offset) else { return Ok(None) };
    memory.resume = Some((offset, Location { segment, position }));
    Ok((offset < end_offset).then_some(offset))
}

/// Takes a record that the queue gets. Returns at which of its messages it stopped, if no more may be found.
fn take(
    record: &Record<'_>,
    location: Location,
    memory: &mut QueueMemory,
    dictionary: &Dictionary,
    scan: &mut Scan,
    allowance: &mut Allowance,
) -> Option<Offset> {
    if record.qos == 0 && !(record.is_kept && scan.whole) {
        return None;
    }
    let terms = memory.terms(record, dictionary, scan, &mut allowance.spent)?;
    let found = found(record, location, terms, scan, dictionary);
    if scan.whole || record.count == 1 {
        allowance.spent = allowance.spent.saturating_add(FOUND_EFFORT);
        allowance.records = allowance.records.saturating_sub(1);
        scan.found.push(found);
        return None;
    }
    for offset in record.offset.max(scan.from).0..record.end().0 {
        if allowance.records == 0 {
            return Some(Offset(offset));
        }
        allowance.spent = allowance.spent.saturating_add(FOUND_EFFORT);
        allowance.records = allowance.records.saturating_sub(1);
        scan.found.push(Found { offset: Offset(offset), count: 1, ..found.clone() });
    }
    None
}

/// What one message of a record takes where it is given out by itself, about.
fn each_bytes(record: &Record<'_>, topic: &[u8]) -> u32 {
    let said = if record.kind == Kind::Entry { metadata(record.payload) } else { None };
    let all_bytes = said.map_or(0, |(said, _)| said.uncompressed_size).max(narrow(record.size_bytes()));
    all_bytes.checked_div(record.count).unwrap_or_default().saturating_add(narrow(topic.len()))
}

fn found(record: &Record<'_>, location: Location, terms: Terms, scan: &Scan, dictionary: &Dictionary) -> Found {
    let slot = |key: &Key| key.slot(dictionary.name(record.topic), record.properties, record.key_slot);
    Found {
        offset: record.offset,
        entry: record.entry,
        count: record.count,
        location,
        size_bytes: match scan.whole {
            true => narrow(record.size_bytes()),
            false => each_bytes(record, dictionary.name(record.topic)),
        },
        // To whom entries are given whole, that says nothing.
        qos: record.qos.max(u8::from(scan.whole)),
        retain: record.retain,
        expires_at: record.expires_at,
        key_slot: scan.key.as_ref().map_or(record.key_slot, slot),
        terms,
    }
}
