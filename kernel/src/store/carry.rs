//! Copying what outlives its segment, beside the loop: on files that nobody changes any more.
//!
//! Owns: the carry segment until it is whole, synced and has its name. Never: decides what is needed.
//!
//! Invariants:
//! 1. It copies all that is needed, and may copy more: a topic whose name is not known is needed as far as anything is.
//! 2. A carry segment gets its name when it is whole and synced, and only when it is told to: from then on the range is
//!    gone, whatever happens.
//! 3. It syncs each megabyte, so that its bytes do not hold up the sync of a commit.

use super::archive::Archive;
use super::encoding::{index, narrow, wide};
use super::footer::{self, Trailer};
use super::header::{self, Header, SegmentKind, SEGMENT_HEADER_BYTES};
use super::index::{Class, SegmentIndex};
use super::record;
use super::segment::{Indexed, Segment};
use crate::disk::{Disk, DiskFile};
use crate::error::Result;
use crate::ids::{LogPosition, Offset, TopicId};
use crate::limits::{CARRY_CACHE_BYTES, CHUNK_BYTES, RETENTION_FILTERS_MAXIMUM};
use crate::topic;
use ahash::RandomState;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The offsets of a topic that somebody needs: from the first to before the last.
pub(super) type Hull = (Offset, Offset);

/// What outlives the range, as the loop has found it out.
pub(super) struct Needs {
    /// Of single topics.
    pub topics: HashMap<u32, Hull, RandomState>,
    /// Of all topics that a filter matches.
    filters: BTreeMap<Box<[u8]>, Hull>,
    /// Single messages, whatever their topic.
    pub offsets: Vec<Offset>,
    /// There are queues: they read on from the range, even if nothing of it is left.
    pub queues: bool,
}

impl Needs {
    pub(super) fn new(seed: u64) -> Needs {
        Needs {
            topics: HashMap::with_hasher(RandomState::with_seeds(seed, 61, 62, 63)),
            filters: BTreeMap::new(),
            offsets: Vec::new(),
            queues: false,
        }
    }

    pub(super) fn add_topic(&mut self, topic: TopicId, first: Offset, end: Offset) {
        if first < end {
            widen(self.topics.entry(topic.0).or_insert((first, end)), (first, end));
        }
    }

    /// Beyond the maximum any topic is needed that far.
    pub(super) fn add_filter(&mut self, filter: &[u8], first: Offset, end: Offset) {
        if first >= end {
            return;
        }
        let known = self.filters.len() < RETENTION_FILTERS_MAXIMUM || self.filters.contains_key(filter);
        let filter = if known { filter } else { b"#" };
        match self.filters.get_mut(filter) {
            Some(hull) => widen(hull, (first, end)),
            None => {
                self.filters.insert(filter.into(), (first, end));
            }
        }
    }
}

fn widen(hull: &mut Hull, other: Hull) {
    *hull = (hull.0.min(other.0), hull.1.max(other.1));
}

/// Finds out which topics have records in a range.
pub(super) struct Survey {
    pub(super) files: Box<Archive>,
    pub(super) present: Present,
    place: usize,
}

/// A set of topics, one bit each.
#[derive(Default)]
pub(super) struct Present {
    words: Vec<u64>,
}

impl Present {
    pub(super) fn contains(&self, topic: TopicId) -> bool {
        let (word, bit) = place_of(topic);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    /// All of them, in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = TopicId> + '_ {
        let bits = |(place, word): (usize, &u64)| {
            let (first, word) = (narrow(place).saturating_mul(64), *word);
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| TopicId(first.saturating_add(bit)))
        };
        self.words.iter().enumerate().flat_map(bits)
    }

    fn insert(&mut self, topic: TopicId) {
        let (word, bit) = place_of(topic);
        if word >= self.words.len() {
            self.words.resize(word.saturating_add(1), 0);
        }
        if let Some(word) = self.words.get_mut(word) {
            *word |= bit;
        }
    }
}

fn place_of(topic: TopicId) -> (usize, u64) {
    (index(topic.0 / 64), 1 << (topic.0 % 64))
}

impl Survey {
    /// Of segments that are sealed.
    pub(super) fn new<'a>(disk: Arc<dyn Disk>, salt: u32, segments: impl Iterator<Item = &'a Segment>) -> Survey {
        let mut files = Box::new(Archive::new(disk, salt, CARRY_CACHE_BYTES));
        for segment in segments {
            if let Indexed::Sealed(trailer) = &segment.index {
                let (name, file) = (segment.name.clone(), Arc::clone(&segment.file));
                files.segments.push(Segment::new(segment.header, name, file, Indexed::Sealed(*trailer), segment.end));
            }
        }
        Survey { files, present: Present::default(), place: 0 }
    }

    /// Looks at one segment.
    pub(super) fn step(&mut self) -> Result<bool> {
        for topic in self.files.topic_ids(self.place)? {
            self.present.insert(topic);
        }
        self.place = self.place.saturating_add(1);
        Ok(self.place < self.files.segments.len())
    }
}

/// A carry segment on its way to the disk.
pub(super) struct CarryWrite {
    files: Box<Archive>,
    needs: Needs,
    header: Header,
    end_control: u64,
    /// Above so many messages the carry segment is not worth to be written.
    messages_maximum: u64,
    /// How many segments have been weighed, and how many messages are needed of them.
    weighed: usize,
    needed: u64,
    place: usize,
    /// What has been found out of the topics of the range so far.
    decided: HashMap<u32, Option<Hull>, RandomState>,
    names: HashMap<u32, Arc<[u8]>, RandomState>,
    positions: std::vec::IntoIter<u32>,
    file: Option<Arc<dyn DiskFile>>,
    bytes: Vec<u8>,
    written: u64,
    end: u32,
    index: SegmentIndex,
    trailer: Option<Trailer>,
    pub(super) segment: Option<Segment>,
    pub(super) is_worthless: bool,
}

/// What a carry segment is made of.
pub(super) struct CarryPlan {
    pub(super) header: Header,
    pub(super) end_control: u64,
    pub(super) messages_maximum: u64,
    pub(super) seed: u64,
}

impl CarryWrite {
    pub(super) fn new(files: Box<Archive>, mut needs: Needs, plan: &CarryPlan) -> CarryWrite {
        let header = plan.header;
        needs.offsets.shrink_to_fit();
        let map = |salt| RandomState::with_seeds(plan.seed, salt, 64, 65);
        CarryWrite {
            files,
            needs,
            header,
            end_control: plan.end_control,
            messages_maximum: plan.messages_maximum,
            weighed: 0,
            needed: 0,
            place: 0,
            decided: HashMap::with_hasher(map(66)),
            names: HashMap::with_hasher(map(67)),
            positions: Vec::new().into_iter(),
            file: None,
            bytes: header::encode(&header),
            written: 0,
            end: SEGMENT_HEADER_BYTES,
            index: SegmentIndex::new(header.base_offset, plan.end_control, plan.seed),
            trailer: None,
            segment: None,
            is_worthless: false,
        }
    }

    /// How many messages it holds.
    pub(super) fn messages(&self) -> u64 {
        self.index.summary.messages
    }

    /// Weighs or plans one segment, or copies until there is a megabyte to be written; false when all is done.
    pub(super) fn step(&mut self) -> Result<bool> {
        if self.messages_maximum < u64::MAX && self.weighed < self.files.segments.len() {
            return self.weigh();
        }
        while let Some(position) = self.positions.next() {
            self.copy(position)?;
            if self.bytes.len() >= CHUNK_BYTES {
                self.write()?;
                return Ok(true);
            }
        }
        if self.place < self.files.segments.len() {
            self.positions = self.plan(self.place)?.into_iter();
            self.place = self.place.saturating_add(1);
            return Ok(true);
        }
        // Behind a range of which nothing is left queues would find a hole.
        if self.messages() > 0 || self.needs.queues {
            self.close()?;
        }
        Ok(false)
    }

    /// Nothing is copied before it is known of all segments together that it is worth it.
    fn weigh(&mut self) -> Result<bool> {
        self.needed = self.needed.saturating_add(wide(self.plan(self.weighed)?.len()));
        self.weighed = self.weighed.saturating_add(1);
        self.is_worthless = self.needed > self.messages_maximum;
        if self.is_worthless {
            self.forget();
        }
        Ok(!self.is_worthless)
    }

    /// Nothing is left of it.
    pub(super) fn undo(&self) {
        if self.file.is_some() {
            drop(self.files.disk.remove(&self.partial()));
        }
    }

    /// What was found out is forgotten here and not where this is taken over: it may be much.
    fn forget(&mut self) {
        self.needs = Needs::new(0);
        self.decided.clear();
        self.names.clear();
    }

    fn name(&self) -> String {
        header::segment_name(SegmentKind::Carry, self.header.number)
    }

    fn partial(&self) -> String {
        format!("{}.partial", self.name())
    }

    /// Where a segment has what is needed of it.
    fn plan(&mut self, place: usize) -> Result<Vec<u32>> {
        if place == 0 {
            self.needs.offsets.sort_unstable();
            self.needs.offsets.dedup();
        }
        let topics = self.files.topic_ids(place)?;
        self.decide(place, &topics)?;
        let Some(segment) = self.files.segments.get(place) else { return Ok(Vec::new()) };
        let (base, end) = (segment.base_offset(), segment.end_offset());
        let mut positions = Vec::new();
        let mut bounds: Option<(Hull, (u32, u32))> = None;
        for topic in topics {
            let Some(hull) = self.decided.get(&topic.0).copied().flatten() else { continue };
            if hull.0 >= end || hull.1 <= base {
                continue;
            }
            let (low, high) = match bounds.filter(|(of, _)| *of == hull) {
                Some((_, places)) => places,
                None => (self.files.position_of(place, hull.0)?, self.files.position_of(place, hull.1)?),
            };
            bounds = Some((hull, (low, high)));
            self.files.positions(place, topic, Class::Queued, low, high, &mut positions)?;
        }
        let first = self.needs.offsets.partition_point(|offset| *offset < base);
        let last = self.needs.offsets.partition_point(|offset| *offset < end);
        let mut near = None;
        for offset in self.needs.offsets.get(first..last).unwrap_or_default() {
            if let Some(found) = self.files.find_message(*offset, near)? {
                near = Some(found);
                positions.push(found.position);
            }
        }
        positions.sort_unstable();
        positions.dedup();
        Ok(positions)
    }

    /// Finds out of the topics of a segment how far they are needed, and what they are called.
    fn decide(&mut self, place: usize, topics: &[TopicId]) -> Result<()> {
        let directory = self.files.directory(place)?;
        let mut new: Vec<(&[u8], TopicId)> = Vec::new();
        let all = self.needs.filters.values().chain(self.needs.topics.values()).copied();
        let widest = all.reduce(|mut hull, other| {
            widen(&mut hull, other);
            hull
        });
        for id in topics.iter().copied().filter(|id| id.0 > 0) {
            if self.decided.contains_key(&id.0) {
                continue;
            }
            let entry = directory.as_ref().and_then(|directory| directory.entry(id));
            let name = entry.and_then(|entry| directory.as_ref().map(|directory| directory.name(&entry)));
            match name.filter(|name| !name.is_empty()) {
                Some(name) => {
                    self.names.insert(id.0, name.into());
                    self.decided.insert(id.0, self.needs.topics.get(&id.0).copied());
                    new.push((name, id));
                }
                None => {
                    self.decided.insert(id.0, widest);
                }
            }
        }
        new.sort_unstable();
        for (filter, hull) in &self.needs.filters {
            for (_, id) in matching(&new, filter) {
                match self.decided.entry(id.0).or_default() {
                    Some(known) => widen(known, *hull),
                    unknown => *unknown = Some(*hull),
                }
            }
        }
        Ok(())
    }

    fn copy(&mut self, position: u32) -> Result<()> {
        let (place, salt) = (self.place.saturating_sub(1), self.files.salt);
        let record = self.files.record(place, position)?.filter(|record| record.kind.has_messages());
        if let Some(record) = record {
            self.index.add(&record, self.end, record.size_bytes());
            self.end = self.end.saturating_add(narrow(record.size_bytes()));
            record::encode(&record, salt, &mut self.bytes);
        }
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => {
                let file = self.files.disk.create(&self.partial(), 0)?;
                self.file = Some(Arc::clone(&file));
                file
            }
        };
        file.write_at(self.written, &self.bytes)?;
        self.written = self.written.saturating_add(wide(self.bytes.len()));
        self.bytes.clear();
        file.sync()
    }

    fn close(&mut self) -> Result<()> {
        self.index.summary.end_control = self.end_control;
        let mut names: Vec<(TopicId, Arc<[u8]>)> = Vec::with_capacity(self.index.topics.len());
        for id in self.index.topics.keys().copied() {
            names.push((TopicId(id), self.names.get(&id).cloned().unwrap_or_default()));
        }
        names.sort_unstable_by_key(|(id, _)| *id);
        let end_position: LogPosition = self.header.end_position;
        let (footer, trailer) = footer::encode(self.header.number, self.end, end_position, &self.index, &names);
        self.bytes.extend_from_slice(&footer);
        self.trailer = Some(trailer);
        self.write()
    }

    /// It takes the place of the range from now on, whatever happens.
    pub(super) fn give_name(&mut self) -> Result<()> {
        let (Some(file), Some(trailer)) = (self.file.clone(), self.trailer) else { return Ok(()) };
        self.files.disk.rename(&self.partial(), &self.name())?;
        self.files.disk.sync_directory()?;
        self.segment = Some(Segment::new(self.header, self.name(), file, Indexed::Sealed(trailer), self.end));
        Ok(())
    }
}

/// Those of some sorted names that a filter matches.
fn matching<'a>(names: &'a [(&'a [u8], TopicId)], filter: &'a [u8]) -> impl Iterator<Item = &'a (&'a [u8], TopicId)> {
    let wildcard = filter.iter().position(|byte| matches!(byte, b'+' | b'#')).unwrap_or(filter.len());
    // `a/#` matches `a` too.
    let literal = filter.get(..wildcard).unwrap_or_default();
    let literal = literal.strip_suffix(b"/").unwrap_or(literal);
    let first = names.partition_point(|(name, _)| *name < literal);
    let rest = names.get(first..).unwrap_or_default().iter();
    rest.take_while(move |(name, _)| name.starts_with(literal)).filter(move |(name, _)| topic::matches(filter, name))
}
