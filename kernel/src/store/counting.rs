//! How much a queue at rest holds: exact counts from the index, without reading records where that can be avoided.

use super::archive::Archive;
use super::dictionary::Dictionary;
use super::index::Class;
use super::log::Log;
use crate::error::Result;
use crate::flow::{terms, Subscription};
use crate::ids::{Offset, Party, Timestamp, TopicId};
use crate::topic;

/// The matching records of one segment.
struct Query<'a> {
    subscriptions: &'a [Subscription],
    owner: Party,
    topics: Vec<TopicId>,
    /// What has expired by then is not counted.
    unexpired_at: Timestamp,
}

impl Log {
    /// How many stored messages of QoS 1 and 2 the subscriptions of `owner` match in `from..to`, without those that
    /// have expired by a time; 0 counts all of them.
    pub fn count(
        &mut self,
        subscriptions: &[Subscription],
        owner: Party,
        (from, to): (Offset, Offset),
        unexpired_at: Timestamp,
    ) -> Result<u64> {
        let query = Query::new(subscriptions, owner, &self.dictionary, unexpired_at);
        let to = to.min(self.durable_offset());
        let mut count = 0_u64;
        for place in self.archive.first_from(from)..self.archive.segments.len() {
            if self.archive.segments.get(place).is_none_or(|segment| segment.base_offset() >= to) {
                break;
            }
            count = count.saturating_add(query.count(&mut self.archive, &self.dictionary, place, from, to)?);
        }
        Ok(count)
    }

    /// The first offset that was appended at `time` or later, or the end of what is durable.
    pub fn offset_at(&mut self, time: Timestamp) -> Result<Offset> {
        Ok(self.archive.offset_at(time)?.map_or(self.durable_offset(), |offset| offset.min(self.durable_offset())))
    }

    /// The offset from which on exactly the newest `messages` of them remain, or `from` if there are no more than that.
    pub fn offset_of_newest(
        &mut self,
        subscriptions: &[Subscription],
        owner: Party,
        from: Offset,
        messages: u64,
        unexpired_at: Timestamp,
    ) -> Result<Offset> {
        let query = Query::new(subscriptions, owner, &self.dictionary, unexpired_at);
        let to = self.durable_offset();
        if messages == 0 {
            return Ok(to.max(from));
        }
        let mut left = messages;
        for place in (self.archive.first_from(from)..self.archive.segments.len()).rev() {
            let count = query.count(&mut self.archive, &self.dictionary, place, from, to)?;
            if count < left {
                left = left.saturating_sub(count);
                continue;
            }
            let offsets = query.offsets(&mut self.archive, &self.dictionary, place, from, to)?;
            let first = offsets.len().checked_sub(super::encoding::index64(left));
            return Ok(first.and_then(|first| offsets.get(first)).copied().unwrap_or(from));
        }
        Ok(from)
    }

    /// How many bytes the matching messages have: each as many as the messages of its topic and segment have on
    /// average, so that no record has to be read.
    pub fn weigh(&mut self, subscriptions: &[Subscription], owner: Party, from: Offset, to: Offset) -> Result<u64> {
        let mut query = Query::new(subscriptions, owner, &self.dictionary, Timestamp(0));
        let (topics, to) = (std::mem::take(&mut query.topics), to.min(self.durable_offset()));
        let mut bytes = 0_u64;
        for place in self.archive.first_from(from)..self.archive.segments.len() {
            if self.archive.segments.get(place).is_none_or(|segment| segment.base_offset() >= to) {
                break;
            }
            for id in topics.iter().copied() {
                let Some(held) = self.archive.topic(place, id)? else { continue };
                query.topics.clear();
                query.topics.push(id);
                let messages = query.count(&mut self.archive, &self.dictionary, place, from, to)?;
                let all = u64::from(held.plain).saturating_add(u64::from(held.queued)).max(1);
                bytes = bytes.saturating_add(held.bytes.saturating_mul(messages) / all);
            }
        }
        Ok(bytes)
    }
}

impl<'a> Query<'a> {
    fn new(
        subscriptions: &'a [Subscription],
        owner: Party,
        dictionary: &Dictionary,
        unexpired_at: Timestamp,
    ) -> Query<'a> {
        let mut topics = Vec::new();
        for subscription in subscriptions {
            dictionary.matching(&subscription.filter, &mut topics);
        }
        topics.sort_unstable();
        topics.dedup();
        Query { subscriptions, owner, topics, unexpired_at }
    }

    fn count(
        &self,
        archive: &mut Archive,
        dictionary: &Dictionary,
        place: usize,
        from: Offset,
        to: Offset,
    ) -> Result<u64> {
        let mut count = 0_u64;
        for id in self.topics.iter().copied() {
            let Some(counts) = archive.topic(place, id)?.filter(|counts| counts.queued > 0) else { continue };
            let name = dictionary.name(id);
            match self.ranges(name, from, to).filter(|_| !counts.may_have_expired(self.unexpired_at)) {
                Some(ranges) => {
                    for (first, end) in ranges {
                        let (low, high) = (archive.position_of(place, first)?, archive.position_of(place, end)?);
                        count = count.saturating_add(archive.queued_between(place, id, low, high)?);
                    }
                }
                None => {
                    let offsets = self.offsets_of(archive, name, id, place, from, to)?;
                    count = count.saturating_add(super::encoding::wide(offsets.len()));
                }
            }
        }
        Ok(count)
    }

    fn offsets(
        &self,
        archive: &mut Archive,
        dictionary: &Dictionary,
        place: usize,
        from: Offset,
        to: Offset,
    ) -> Result<Vec<Offset>> {
        let mut offsets = Vec::new();
        for id in self.topics.iter().copied() {
            offsets.extend(self.offsets_of(archive, dictionary.name(id), id, place, from, to)?);
        }
        offsets.sort_unstable();
        Ok(offsets)
    }

    fn offsets_of(
        &self,
        archive: &mut Archive,
        name: &[u8],
        id: TopicId,
        place: usize,
        from: Offset,
        to: Offset,
    ) -> Result<Vec<Offset>> {
        let (low, high) = (archive.position_of(place, from)?, archive.position_of(place, to)?);
        let mut positions = Vec::new();
        archive.positions(place, id, Class::Queued, low, high, &mut positions)?;
        let mut offsets = Vec::new();
        for position in positions {
            let Some(record) = archive.record(place, position)? else { continue };
            let is_wanted = record.expires_at.is_none_or(|at| at > self.unexpired_at);
            if is_wanted && terms(self.subscriptions, name, record.offset, record.publisher, self.owner).is_some() {
                offsets.push(record.offset);
            }
        }
        Ok(offsets)
    }

    /// The ranges of offsets for which the topic is wanted, apart from one another; `None` if that depends on who
    /// published (No Local).
    fn ranges(&self, name: &[u8], from: Offset, to: Offset) -> Option<Vec<(Offset, Offset)>> {
        let mut ranges: Vec<(Offset, Offset)> = Vec::new();
        for subscription in self.subscriptions.iter().filter(|subscription| topic::matches(&subscription.filter, name))
        {
            if subscription.no_local && self.owner != Party(0) {
                return None;
            }
            let (first, end) = (subscription.from.max(from), subscription.until.min(to));
            if first < end {
                ranges.push((first, end));
            }
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
}
