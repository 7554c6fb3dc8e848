//! What is asked about the messages of a queue at rest: how many, how many bytes, where the first of them is, and from
//! where on only so many are left. Answered from the index, in pieces, without reading records where that can be
//! avoided.
//!
//! Invariants:
//! 1. An answer is exact, as of the moment at which the question was first put, whatever is appended until it is there.
//! 2. A piece ends soon after its effort is used up, however many topics, segments and messages there are; the next one
//!    goes on where it stopped.

use super::archive::{Archive, TopicCounts, MANY_TOPICS};
use super::dictionary::Dictionary;
use super::encoding::{index64, wide};
use super::filters::{union, FilterMemory, Learning, Tally, Topics};
use super::index::Class;
use super::records::Records;
use super::stretch::{Part, Stretch};
use crate::error::Result;
use crate::flow::{terms, Subscription};
use crate::ids::{Offset, Party, Timestamp, TopicId};
use roaring::RoaringBitmap;
use std::sync::Arc;

/// So many sets are added up one by one; more are one set.
const SETS_MAXIMUM: usize = 16;

/// Filters are remembered as one set where their names together are no longer than this.
const JOINED_BYTES_MAXIMUM: usize = 4_096;

/// Topics that are looked up together where all are wanted for the same offsets: some 0.2 ms.
const TOPICS_TOGETHER: usize = 1_024;

/// What looking for one topic by itself takes beside the looks that are counted anyway.
const TOPIC_EFFORT: u64 = 8;

/// Positions that are gathered with the effort of one look.
const POSITIONS_PER_EFFORT: u64 = 16;

/// What is to be found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// How many messages.
    Count,
    /// How many bytes, each message counted as what the messages of its topic and segment have on average.
    Bytes,
    /// The offset from which on exactly so many remain; the first one asked about if there are no more than that.
    Newest(u64),
    /// The offset of the first of them; the end of the range if there is none.
    First,
}

/// A question about the stored messages that some subscriptions match in a range of offsets: those of QoS 1 and 2, and
/// what is kept of QoS 0 if they want it.
pub struct Question {
    subscriptions: Arc<[Subscription]>,
    /// Whose they are (for No Local).
    owner: Party,
    /// What has expired by then does not count; 0: everything does.
    unexpired_at: Timestamp,
    wanted: Wanted,
    keeps_all: bool,
    /// What is still to be looked at.
    from: Offset,
    to: Offset,
    begun: bool,
    /// Where the effort of this piece ends.
    until: u64,
    learning: Learning,
    interest: Option<Interest>,
    part: Part,
    total: u64,
}

/// The topics of the subscriptions.
struct Interest {
    sets: Vec<Topics>,
    all: Topics,
    /// No topic is in two of the sets, so what segments have of each can be added up.
    are_apart: bool,
}

impl Question {
    /// A question about what `subscriptions` of `owner` match from `from` up to `to`.
    pub fn new(
        subscriptions: Arc<[Subscription]>,
        owner: Party,
        (from, to): (Offset, Offset),
        unexpired_at: Timestamp,
        wanted: Wanted,
    ) -> Question {
        let keeps_all = subscriptions.iter().any(|subscription| subscription.keeps_all);
        Question {
            subscriptions,
            owner,
            unexpired_at,
            wanted,
            keeps_all,
            from,
            to,
            begun: false,
            until: 0,
            learning: Learning::default(),
            interest: None,
            part: Part::default(),
            total: 0,
        }
    }

    /// What is known before the answer is there: at least so many messages or bytes, or for an offset where the search
    /// has come to.
    pub fn so_far(&self) -> u64 {
        match self.wanted {
            Wanted::Count | Wanted::Bytes => self.total,
            Wanted::Newest(_) | Wanted::First => self.from.0,
        }
    }

    /// The subscriptions that hold somewhere in the stretch.
    fn active(&self, stretch: &Stretch) -> impl Iterator<Item = (usize, &Subscription)> {
        let (first, end) = (stretch.first, stretch.end);
        let holds = move |it: &Subscription| it.from.max(first) < it.until.min(end);
        self.subscriptions.iter().enumerate().filter(move |(_, subscription)| holds(subscription))
    }

    /// True if every message of the stretch is wanted by all of them that match it, or by none.
    fn is_plain(&self, stretch: &Stretch) -> bool {
        let is_plain =
            |it: &Subscription| it.from <= stretch.first && stretch.end <= it.until && !self.minds_publisher(it);
        stretch.is_whole && self.active(stretch).all(|(_, subscription)| is_plain(subscription))
    }

    fn minds_publisher(&self, subscription: &Subscription) -> bool {
        subscription.no_local && self.owner != Party(0)
    }

    /// The ranges of offsets for which the topic is wanted, apart from one another; `None` if that depends on who
    /// published (No Local).
    fn ranges(&self, interest: &Interest, topic: u32, stretch: &Stretch) -> Option<Vec<(Offset, Offset)>> {
        let mut ranges: Vec<(Offset, Offset)> = Vec::new();
        for (place, subscription) in self.active(stretch) {
            if !interest.sets.get(place).is_some_and(|set| set.contains(topic)) {
                continue;
            }
            if self.minds_publisher(subscription) {
                return None;
            }
            ranges.push((subscription.from.max(stretch.first), subscription.until.min(stretch.end)));
        }
        ranges.sort_unstable();
        let mut merged: Vec<(Offset, Offset)> = Vec::new();
        for (first, end) in ranges {
            match merged.last_mut().filter(|last| last.1 >= first) {
                Some(last) => last.1 = last.1.max(end),
                None => merged.push((first, end)),
            }
        }
        Some(merged)
    }

    /// The offsets of the stretch for which all subscriptions hold, if these are the same for all and nothing else
    /// matters: neither who published, nor when a message expires, nor of which topic it is.
    fn common_range(&self, stretch: &Stretch) -> Option<(Offset, Offset)> {
        if self.wanted == Wanted::Bytes || self.unexpired_at > Timestamp(0) {
            return None;
        }
        let mut common = None;
        for (_, item) in self.active(stretch) {
            let range = (item.from.max(stretch.first), item.until.min(stretch.end));
            if self.minds_publisher(item) || common.is_some_and(|known| known != range) {
                return None;
            }
            common = Some(range);
        }
        // Of a set that is not active nothing is wanted.
        common.filter(|_| self.active(stretch).count() == self.subscriptions.len())
    }

    fn may_have_expired(&self, expires_s: u32) -> bool {
        expires_s > 0 && u64::from(expires_s) <= self.unexpired_at.0 / 1_000_000
    }
}

/// What is looked into for answers.
pub(super) struct Looking<'a> {
    archive: &'a mut Archive,
    dictionary: &'a Dictionary,
    filters: &'a mut FilterMemory,
    durable: Offset,
}

impl<'a> Looking<'a> {
    /// The records, as far as they are durable by now.
    pub(super) fn into(records: &'a mut Records, filters: &'a mut FilterMemory) -> Looking<'a> {
        let durable = records.durable_offset();
        Looking { archive: &mut records.archive, dictionary: &records.derived.dictionary, filters, durable }
    }

    /// Works on the question with about this effort, and always gets on. Returns the answer once it is there.
    pub(super) fn answer(&mut self, question: &mut Question, effort: u64) -> Result<Option<u64>> {
        question.until = self.archive.effort.saturating_add(effort);
        if !std::mem::replace(&mut question.begun, true) {
            question.to = question.to.min(self.durable);
            if question.wanted == Wanted::Newest(0) {
                return Ok(Some(question.to.max(question.from).0));
            }
        }
        let Some(interest) = self.interest_of(question) else { return Ok(None) };
        let answer = self.walk_segments(question, &interest);
        question.interest = Some(interest);
        answer
    }

    fn interest_of(&mut self, question: &mut Question) -> Option<Interest> {
        if let Some(interest) = question.interest.take() {
            return Some(interest);
        }
        let subscriptions = Arc::clone(&question.subscriptions);
        let filters = subscriptions.iter().map(|subscription| subscription.filter.as_slice());
        let effort = (&mut self.archive.effort, question.until);
        let sets = question.learning.learn(filters, self.filters, self.dictionary, effort)?.to_vec();
        let all = union(sets.iter());
        let are_apart = sets.iter().map(|set| set.len()).sum::<u64>() == all.len();
        Some(Interest { sets, all, are_apart })
    }

    fn walk_segments(&mut self, question: &mut Question, interest: &Interest) -> Result<Option<u64>> {
        let is_backward = matches!(question.wanted, Wanted::Newest(_));
        while question.from < question.to && !interest.all.is_empty() {
            let Some(stretch) = self.next_stretch(question, is_backward) else { break };
            self.archive.effort = self.archive.effort.saturating_add(1);
            if question.part.segment != Some(stretch.number) {
                question.part = Part { segment: Some(stretch.number), ..Part::default() };
            }
            if !self.look_into(question, interest, &stretch)? {
                return Ok(None);
            }
            if let Some(answer) = self.conclude_stretch(question, &stretch)? {
                return Ok(Some(answer));
            }
            question.part = Part::default();
            match is_backward {
                true => question.to = stretch.first,
                false => question.from = stretch.end,
            }
            if self.archive.effort >= question.until {
                return Ok(None);
            }
        }
        Ok(Some(match question.wanted {
            Wanted::Count | Wanted::Bytes => question.total,
            Wanted::Newest(_) => question.from.0,
            Wanted::First => question.to.0,
        }))
    }

    /// The next segment in the question's range.
    fn next_stretch(&self, question: &Question, is_backward: bool) -> Option<Stretch> {
        let segments = &self.archive.segments;
        let place = match is_backward {
            true => segments.partition_point(|segment| segment.base_offset() < question.to).checked_sub(1)?,
            false => self.archive.first_from(question.from),
        };
        let segment = segments.get(place).filter(|segment| segment.base_offset() < question.to)?;
        let (base, end) = (segment.base_offset(), segment.end_offset());
        let (first, last) = (base.max(question.from), end.min(question.to));
        let is_whole = segment.is_sealed() && first == base && last == end;
        let number = segment.header.number;
        // Backward a gap between segments leaves nothing to look at.
        Some(Stretch { place, number, first, end: last.max(first), is_whole })
    }

    /// Finds out what the stretch has; false if the effort is used up before.
    fn look_into(&mut self, question: &mut Question, interest: &Interest, stretch: &Stretch) -> Result<bool> {
        let present = self.archive.queued_topics(stretch.place)?;
        if present.is_disjoint(&interest.all) {
            return Ok(true);
        }
        if !question.part.is_walk {
            let Some(tally) = self.tally(question, interest, stretch, &present)? else { return Ok(false) };
            let is_enough = match question.wanted {
                Wanted::Newest(messages) => tally.messages < messages.saturating_sub(question.total),
                Wanted::First => tally.messages == 0,
                Wanted::Count | Wanted::Bytes => true,
            };
            if question.is_plain(stretch) && is_enough && !question.may_have_expired(tally.expires_s) {
                let is_bytes = question.wanted == Wanted::Bytes;
                question.part.total = if is_bytes { tally.bytes } else { tally.messages };
                return Ok(true);
            }
            question.part = Part { segment: Some(stretch.number), is_walk: true, ..Part::default() };
        }
        self.walk_topics(question, interest, stretch, &present)
    }

    /// What a whole sealed segment has, mostly from what is remembered; an empty tally where the stretch is none.
    /// `None` if the effort is used up before.
    fn tally(
        &mut self,
        question: &mut Question,
        interest: &Interest,
        stretch: &Stretch,
        present: &Topics,
    ) -> Result<Option<Tally>> {
        if !question.is_plain(stretch) {
            return Ok(Some(Tally::default()));
        }
        let sets = sets_of(question, interest, stretch);
        let count = sets.len();
        for (name, topics) in sets.into_iter().skip(question.part.set) {
            self.archive.effort = self.archive.effort.saturating_add(1);
            let part = &mut question.part;
            let tally = match self.filters.tally(&name, stretch.number) {
                Some(tally) => tally,
                None => {
                    let wanted = topics.as_ref() & present.as_ref();
                    if !add_up(self.archive, part, stretch.place, (&wanted, question.keeps_all), question.until)? {
                        return Ok(None);
                    }
                    if wanted.len() > MANY_TOPICS && name.len() <= JOINED_BYTES_MAXIMUM {
                        let segments = self.archive.segments.len();
                        self.filters.put_tally(&name, &topics, stretch.number, part.tally, segments);
                    }
                    part.tally
                }
            };
            part.sum = part.sum.and(tally);
            part.set = part.set.saturating_add(1);
            (part.tally, part.topic) = (Tally::default(), 0);
            if self.archive.effort >= question.until && part.set < count {
                return Ok(None);
            }
        }
        Ok(Some(question.part.sum))
    }

    /// Looks at the topics of the stretch one by one; false if the effort is used up before.
    fn walk_topics(
        &mut self,
        question: &mut Question,
        interest: &Interest,
        stretch: &Stretch,
        present: &Topics,
    ) -> Result<bool> {
        let wanted = interest.all.as_ref() & present.as_ref();
        if wanted.len() > MANY_TOPICS {
            self.archive.load_postings(stretch.place)?;
        }
        let range = question.common_range(stretch).filter(|_| !self.archive.is_uneven(stretch.place));
        if let Some((first, end)) = range {
            return self.walk_together(question, stretch, &wanted, (first, end));
        }
        for (place, topic) in wanted.range(question.part.topic..).enumerate() {
            // Every piece gets on, whatever finding its place has cost.
            if place > 0 && self.archive.effort >= question.until {
                question.part.topic = topic;
                return Ok(false);
            }
            self.archive.effort = self.archive.effort.saturating_add(TOPIC_EFFORT);
            let Some(counts) = self.archive.topic(stretch.place, TopicId(topic))? else { continue };
            let ranges = question.ranges(interest, topic, stretch);
            let is_told = !question.may_have_expired(counts.expires_s) && !counts.is_uneven();
            match ranges.filter(|_| is_told) {
                Some(ranges) => {
                    let mut found = Vec::new();
                    for (first, end) in ranges {
                        let low = self.place_of(&mut question.part, stretch, first)?;
                        let high = self.place_of(&mut question.part, stretch, end)?;
                        self.archive.positions(stretch.place, TopicId(topic), Class::Queued, low, high, &mut found)?;
                    }
                    self.take(question, &counts, &found);
                }
                None => {
                    if !self.walk_records(question, stretch, topic, &counts)? {
                        question.part.topic = topic;
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    /// The same where all topics are wanted for the same offsets, some at a time.
    fn walk_together(
        &mut self,
        question: &mut Question,
        stretch: &Stretch,
        wanted: &RoaringBitmap,
        (first, end): (Offset, Offset),
    ) -> Result<bool> {
        let low = self.place_of(&mut question.part, stretch, first)?;
        let high = self.place_of(&mut question.part, stretch, end)?;
        let mut left = wanted.range(question.part.topic..).peekable();
        while left.peek().is_some() {
            let some: RoaringBitmap = left.by_ref().take(TOPICS_TOGETHER).collect();
            let mut found = Vec::new();
            self.archive.queued_positions(stretch.place, &some, low, high, &mut found)?;
            let effort = wide(found.len()) / POSITIONS_PER_EFFORT;
            self.archive.effort = self.archive.effort.saturating_add(effort);
            let part = &mut question.part;
            match question.wanted {
                Wanted::Newest(_) => part.positions.append(&mut found),
                Wanted::First => part.positions.extend(found.iter().min()),
                Wanted::Count | Wanted::Bytes => part.total = part.total.saturating_add(wide(found.len())),
            }
            if let Some(topic) = left.peek().filter(|_| self.archive.effort >= question.until) {
                question.part.topic = *topic;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads the records of one topic, because the index does not tell which are wanted; false if the effort is used
    /// up before.
    fn walk_records(
        &mut self,
        question: &mut Question,
        stretch: &Stretch,
        topic: u32,
        counts: &TopicCounts,
    ) -> Result<bool> {
        let low = self.place_of(&mut question.part, stretch, stretch.first)?.max(question.part.position);
        let high = self.place_of(&mut question.part, stretch, stretch.end)?;
        // The end may lie within the record that has it.
        let last = self.archive.record(stretch.place, high)?.filter(|record| record.offset < stretch.end);
        let high = high.saturating_add(u32::from(last.is_some()));
        let mut positions = Vec::new();
        self.archive.positions(stretch.place, TopicId(topic), Class::Queued, low, high, &mut positions)?;
        let name = self.dictionary.name(TopicId(topic));
        let (mut found, mut entries) = (Vec::new(), Vec::new());
        let mut is_done = true;
        for (place, position) in positions.into_iter().enumerate() {
            if place > 0 && self.archive.effort >= question.until {
                (question.part.position, is_done) = (position, false);
                break;
            }
            let Some(record) = self.archive.record(stretch.place, position)? else { continue };
            let is_wanted = question.keeps_all || record.qos > 0;
            let counts = is_wanted && record.expires_at.is_none_or(|at| at > question.unexpired_at);
            let (offset, publisher) = (record.offset, record.publisher);
            if counts && terms(&question.subscriptions, name, offset, publisher, question.owner).is_some() {
                match record.count {
                    1 => found.push(position),
                    _ => entries.push((position, stretch.messages_of(&record))),
                }
            }
        }
        self.take(question, counts, &found);
        take_entries(question, counts, entries);
        if is_done {
            question.part.position = 0;
        }
        Ok(is_done)
    }

    /// These positions of a topic belong to the answer.
    fn take(&mut self, question: &mut Question, counts: &TopicCounts, found: &[u32]) {
        let messages = wide(found.len());
        self.archive.effort = self.archive.effort.saturating_add(messages / POSITIONS_PER_EFFORT);
        let part = &mut question.part;
        match question.wanted {
            Wanted::Count => part.total = part.total.saturating_add(messages),
            Wanted::Bytes => part.total = part.total.saturating_add(counts.queued_bytes(messages)),
            Wanted::Newest(_) => part.positions.extend_from_slice(found),
            Wanted::First => part.positions.extend(found.iter().min()),
        }
    }

    /// Where the stretch's first message with this offset or a later one starts. Topics mostly ask for the same.
    fn place_of(&mut self, part: &mut Part, stretch: &Stretch, offset: Offset) -> Result<u32> {
        if let Some((_, position)) = part.places.iter().find(|(known, _)| *known == offset) {
            return Ok(*position);
        }
        let position = self.archive.position_of(stretch.place, offset)?;
        if part.places.len() < SETS_MAXIMUM {
            part.places.push((offset, position));
        }
        Ok(position)
    }

    /// Adds what the stretch has to the answer, which it may complete.
    fn conclude_stretch(&mut self, question: &mut Question, stretch: &Stretch) -> Result<Option<u64>> {
        let part = &mut question.part;
        let Wanted::Newest(messages) = question.wanted else {
            question.total = question.total.saturating_add(part.total);
            let entries = part.entries.iter().map(|(position, _)| position);
            let first = part.positions.iter().chain(entries).min().copied();
            return first.map_or(Ok(None), |first| self.offset_of(stretch, first));
        };
        let left = messages.saturating_sub(question.total);
        let in_entries = messages_of(&part.entries);
        let found = wide(part.positions.len()).saturating_add(in_entries);
        let Some(behind) = found.checked_sub(left).filter(|_| part.is_walk) else {
            question.total = question.total.saturating_add(part.total).saturating_add(found);
            return Ok(None);
        };
        if part.entries.is_empty() {
            let (_, first, _) = part.positions.select_nth_unstable(index64(behind));
            let first = *first;
            return self.offset_of(stretch, first);
        }
        let mut all = std::mem::take(&mut part.entries);
        all.extend(part.positions.drain(..).map(|position| (position, 1)));
        all.sort_unstable();
        let mut before = behind;
        for (position, messages) in all {
            if before < messages {
                let first = self.offset_of(stretch, position)?;
                return Ok(first.map(|first| first.saturating_add(before)));
            }
            before = before.saturating_sub(messages);
        }
        Ok(None)
    }

    fn offset_of(&mut self, stretch: &Stretch, position: u32) -> Result<Option<u64>> {
        // A record that was whole when it was looked at and is no more tells nothing better than the stretch does.
        let record = self.archive.record(stretch.place, position)?;
        Ok(Some(record.map_or(stretch.first.0, |record| record.offset.max(stretch.first).0)))
    }
}

fn messages_of(entries: &[(u32, u64)]) -> u64 {
    entries.iter().fold(0, |sum, (_, messages)| sum.saturating_add(*messages))
}

/// These records with several messages belong to the answer.
fn take_entries(question: &mut Question, counts: &TopicCounts, mut entries: Vec<(u32, u64)>) {
    let (messages, part) = (messages_of(&entries), &mut question.part);
    match question.wanted {
        Wanted::Count => part.total = part.total.saturating_add(messages),
        Wanted::Bytes => part.total = part.total.saturating_add(counts.queued_bytes(messages)),
        Wanted::Newest(_) | Wanted::First => part.entries.append(&mut entries),
    }
}

/// Adds what a segment has of some topics to the part's tally; false if the effort is used up before.
fn add_up(
    archive: &mut Archive,
    part: &mut Part,
    place: usize,
    (topics, keeps_all): (&RoaringBitmap, bool),
    until: u64,
) -> Result<bool> {
    for (count, topic) in topics.range(part.topic..).enumerate() {
        if count > 0 && archive.effort >= until {
            part.topic = topic;
            return Ok(false);
        }
        let Some(counts) = archive.topic(place, TopicId(topic))? else { continue };
        let messages = counts.wanted(keeps_all);
        let (bytes, expires_s) = (counts.queued_bytes(messages), counts.expires_s);
        part.tally = part.tally.and(Tally { messages, bytes, expires_s });
    }
    Ok(true)
}

/// The sets that are added up for a stretch, each with the name under which it is remembered: one for each filter, or
/// one for all where a topic could be in two or there are many.
fn sets_of(question: &Question, interest: &Interest, stretch: &Stretch) -> Vec<(Vec<u8>, Topics)> {
    let active =
        question.active(stretch).filter_map(|(place, it)| Some((it.filter.clone(), interest.sets.get(place)?)));
    let active: Vec<(Vec<u8>, &Topics)> = active.collect();
    // No filter has this byte [MQTT-4.7.3-2].
    let told = |mut name: Vec<u8>| {
        name.extend(question.keeps_all.then_some(0));
        name
    };
    if interest.are_apart && active.len() <= SETS_MAXIMUM {
        return active.into_iter().map(|(filter, set)| (told(filter), Arc::clone(set))).collect();
    }
    let topics = match active.len() == interest.sets.len() {
        true => Arc::clone(&interest.all),
        false => union(active.iter().map(|(_, set)| *set)),
    };
    let name = active.into_iter().map(|(filter, _)| filter).collect::<Vec<_>>().join(&0);
    vec![(told(name), topics)]
}
