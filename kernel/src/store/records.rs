//! The records of the log, and what they come to: its segments, what is derived from them, where it ends, and up to
//! where it is durable. A record that is appended changes all of these; the rest of the log looks at them.
//!
//! Invariants:
//! 1. An offset is given to one message and never to another, across crashes too: nothing past `durable` is shown to
//!    anybody outside.
//! 2. After a failed sync nothing is appended or committed any more (docs/adr/0004-torn-tail-or-damage.md).
//! 3. Append times never run backwards.
//! 4. A message's topic record lies before it.

use super::append::Appending;
use super::archive::Archive;
use super::commit::{Commit, Commits, Ended};
use super::controls::Following;
use super::derived::Derived;
use super::dictionary::Dictionary;
use super::encoding::narrow;
use super::header::SegmentKind;
use super::parties::party_of;
use super::record::{Envelope, Kind, Record, ENVELOPE_BYTES_MAXIMUM};
use super::space::Space;
use super::unpacked::Unpacked;
use crate::error::{Error, Result};
use crate::flow::entry::{Body, Entry, EntryParts};
use crate::flow::state::REMOVED;
use crate::flow::{Arrivals, Fate, Message, Publish, Refusal, Stored};
use crate::ids::{Connection, Location, LogPosition, Offset, Party, Timestamp, TopicId};
use crate::limits::{CONTROL_BYTES_MAXIMUM, FIELD_BYTES_MAXIMUM, UNCOMMITTED_BYTES_MAXIMUM};

/// All records.
pub(super) struct Records {
    pub(super) archive: Archive,
    pub(super) derived: Derived,
    pub(super) appending: Appending,
    pub(super) commits: Commits,
    pub(super) space: Space,
    pub(super) following: Following,
    pub(super) unpacked: Unpacked,
}

/// What entries are given out with at most: they have none of their own.
const ENTRY_QOS: u8 = 1;

impl Records {
    /// The offset of the next message.
    pub(super) fn end_offset(&self) -> Offset {
        Offset(self.appending.head.offset)
    }

    /// The log position after everything appended.
    pub(super) fn end_position(&self) -> LogPosition {
        LogPosition(self.appending.head.position)
    }

    /// The oldest offset from which on the log is whole; what was carried lies below.
    pub(super) fn begin_offset(&self) -> Offset {
        let own = self.archive.segments.iter().find(|segment| segment.header.kind == SegmentKind::Log);
        own.map_or(self.end_offset(), |segment| segment.base_offset())
    }

    /// The number of the oldest control record from which on all are there; of those before it copies are left.
    pub(super) fn begin_control(&self) -> u64 {
        let own = self.archive.segments.iter().find(|segment| segment.header.kind == SegmentKind::Log);
        own.map_or(self.appending.head.control, |segment| segment.header.base_control)
    }

    /// The offset below which everything is durable.
    pub(super) fn durable_offset(&self) -> Offset {
        self.commits.durable(&self.appending.head).offset
    }

    /// The log position below which everything is durable.
    pub(super) fn durable_position(&self) -> LogPosition {
        self.commits.durable(&self.appending.head).position
    }

    /// Bytes that are appended and not yet on the disk.
    pub(super) fn uncommitted_bytes(&self) -> u64 {
        self.appending.head.position.saturating_sub(self.commits.written().0)
    }

    /// The message with an offset, which was found at a location; `None` too if it cannot be taken out of its entry.
    pub(super) fn message(&mut self, location: Location, offset: Offset) -> Result<Option<Message<'_>>> {
        let Records { archive, derived, unpacked, .. } = self;
        let Some((place, position)) = find_place(archive, location, offset)? else { return Ok(None) };
        let record = match archive.record(place, position)? {
            Some(record) if record.kind == Kind::Message => {
                return Ok(Some(message_of(&record, &derived.dictionary)));
            }
            Some(record) if record.kind == Kind::Entry => record,
            _ => return Ok(None),
        };
        let place = offset.0.saturating_sub(record.offset.0);
        Ok(unpacked.message(record.offset, record.payload, place).map(|inner| Message {
            properties: inner.properties,
            payload: inner.payload,
            qos: ENTRY_QOS,
            retain: inner.retain,
            ..message_of(&record, &derived.dictionary)
        }))
    }

    /// The whole record with a first offset, which was found at a location.
    pub(super) fn entry(&mut self, location: Location, offset: Offset) -> Result<Option<Entry<'_>>> {
        let Records { archive, derived, .. } = self;
        let Some((place, position)) = find_place(archive, location, offset)? else { return Ok(None) };
        let Some(record) = archive.record(place, position)? else { return Ok(None) };
        Ok(record.kind.has_messages().then(|| Entry {
            topic: record.topic,
            number: record.entry,
            offset: record.offset,
            count: record.count,
            appended_at: record.appended_at,
            publisher: record.publisher,
            body: match record.kind {
                Kind::Entry => Body::AsSent(record.payload),
                _ => Body::Message(message_of(&record, &derived.dictionary)),
            },
        }))
    }

    /// Stores what has to be stored of this turn: QoS 1 and 2, retained messages, and QoS 0 on topics that keep all or
    /// match a filter of `store_all`. Where there is no room the message is refused.
    pub(super) fn append<Filter: AsRef<[u8]>>(
        &mut self,
        arrivals: &mut Arrivals,
        store_all: &[Filter],
        now: Timestamp,
    ) -> Result<()> {
        self.commits.check()?;
        self.derived.dictionary.set_rules(store_all);
        let now = self.appending.head.advance(now);
        let mut publishes = std::mem::take(&mut arrivals.publishes);
        let mut result = Ok(());
        let mut rows_end = false;
        for publish in publishes.iter_mut().filter(|publish| publish.fate == Fate::Accepted) {
            let is_behind = rows_end && publish.row.is_some();
            match if is_behind { Ok(false) } else { self.append_publish(publish, arrivals, now) } {
                Ok(true) => {}
                Ok(false) | Err(Error::Disk { full: true, .. }) => publish.fate = Fate::Refused(Refusal::NoRoom),
                Err(Error::Invalid(_)) => publish.fate = Fate::Refused(Refusal::TooManyTopics),
                Err(error) => result = result.and(Err(error)),
            }
            rows_end |= publish.row.is_some() && publish.fate != Fate::Accepted;
        }
        arrivals.publishes = publishes;
        result
    }

    /// False where there is no room for it.
    fn append_publish(&mut self, publish: &mut Publish, arrivals: &Arrivals, now: Timestamp) -> Result<bool> {
        let name = arrivals.span(publish.topic);
        let wanted = publish.qos > 0 || publish.retain || publish.row.is_some();
        let is_kept = publish.qos == 0 && self.derived.dictionary.keeps_all(name);
        if !wanted && !is_kept && !self.derived.dictionary.is_stored_always(name) {
            return Ok(true);
        }
        if !self.has_room(now) {
            return Ok(false);
        }
        let topic = match self.derived.dictionary.find_for_next(name) {
            Some(topic) => topic,
            None => self.declare(name, now)?,
        };
        let expires_at = publish
            .expiry_interval_s
            .map(|interval| Timestamp(now.0.saturating_add(u64::from(interval).saturating_mul(1_000_000))));
        let row = publish.row.unwrap_or_default();
        let entry = arrivals.entry_of(publish);
        let mut envelope = [0; ENVELOPE_BYTES_MAXIMUM];
        let kind = if entry.is_some() { Kind::Entry } else { Kind::Message };
        let mut record = Record {
            qos: publish.qos,
            is_kept,
            retain: publish.retain,
            key_slot: publish.key_slot,
            topic,
            offset: self.end_offset(),
            appended_at: now,
            publisher: publish.publisher,
            count: entry.map_or(1, |entry| entry.count),
            properties: arrivals.span(publish.properties),
            expires_at,
            packet_identifier: identifier_of(publish),
            key: row.key.map(|key| arrivals.span(key)),
            event_time: row.event_time,
            envelope: entry.map(|entry| envelope_of(entry).write(&mut envelope)).unwrap_or_default(),
            ..Record::plain(kind, arrivals.span(publish.payload))
        };
        let size_bytes = record.size_bytes();
        self.make_room(size_bytes)?;
        record.entry = self.derived.dictionary.take_entry(topic);
        let checked = entry.map(|entry| entry.checksum);
        let location = self.appending.put_checked(&mut self.archive, &record, checked)?;
        let durable_at = self.end_position();
        if record.retain {
            let durable = self.durable_position();
            self.derived.take_retained(&record, (durable_at, durable));
        }
        self.derived.parties.note_message(&record);
        publish.stored = Some(Stored {
            offset: record.offset,
            topic,
            entry: record.entry,
            location,
            size_bytes: narrow(size_bytes),
            is_kept,
            expires_at,
            durable_at,
        });
        Ok(true)
    }

    /// Appends a control record. In table 0 the key is a party (four bytes, little endian) and the value what
    /// `flow::state` encodes. An empty value removes the key. Returns the log position at which it is durable.
    pub(super) fn append_control(
        &mut self,
        table: u32,
        key: &[u8],
        value: &[u8],
        now: Timestamp,
    ) -> Result<LogPosition> {
        let value = if table == 0 && value.is_empty() { &[REMOVED] } else { value };
        self.commits.check()?;
        if key.len() > FIELD_BYTES_MAXIMUM || key.len().saturating_add(value.len()) > CONTROL_BYTES_MAXIMUM {
            return Err(Error::Invalid(format!("a control record of {} bytes is too large", value.len())));
        }
        if table == 0 {
            party_of(key)?;
        }
        let now = self.appending.head.advance(now);
        let record = Record {
            offset: self.end_offset(),
            entry: self.appending.head.control,
            appended_at: now,
            publisher: Party(table),
            key: Some(key),
            ..Record::plain(Kind::Control, value)
        };
        self.make_room(record.size_bytes())?;
        self.derived.take_control(&record, |_| false)?;
        self.appending.put(&mut self.archive, &record)?;
        if table == 0 {
            self.following.note_silent(0, record.entry);
        }
        Ok(self.end_position())
    }

    /// Appends a topic record.
    pub(super) fn put_topic(&mut self, id: TopicId, name: &[u8], next_entry: u64, now: Timestamp) -> Result<()> {
        let offset = self.end_offset();
        let record =
            Record { topic: id, offset, entry: next_entry, appended_at: now, ..Record::plain(Kind::Topic, name) };
        self.make_room(record.size_bytes())?;
        let declared_at = self.end_position();
        self.appending.put(&mut self.archive, &record)?;
        self.derived.dictionary.declare(id, name, next_entry, declared_at);
        Ok(())
    }

    /// Freezes what has gathered; `None` if there is nothing or a commit is on its way already.
    pub(super) fn begin_commit(&mut self) -> Result<Option<Commit>> {
        self.commits.begin(&mut self.appending, &mut self.archive)
    }

    /// Takes over an ended commit. An error means that its group is not durable.
    pub(super) fn finish_commit(&mut self, commit: Commit, ended: Ended) -> Result<()> {
        self.commits.finish((commit, ended), &mut self.appending, &mut self.archive, &mut self.space)
    }

    /// Writes and syncs what has been appended, here and now. True if there was something.
    pub(super) fn commit(&mut self) -> Result<bool> {
        let mut any = false;
        while let Some(commit) = self.begin_commit()? {
            let ended = commit.run();
            self.finish_commit(commit, ended)?;
            any = true;
        }
        Ok(any)
    }

    /// Gives a new topic its number and says so in the log.
    /// The number of a topic, which it gets if it has none; durable with what is appended next.
    pub(super) fn topic_number(&mut self, name: &[u8], now: Timestamp) -> Result<TopicId> {
        self.commits.check()?;
        let now = self.appending.head.advance(now);
        match self.derived.dictionary.find(name) {
            Some(topic) => Ok(topic),
            None => self.declare(name, now),
        }
    }

    /// How many entries a topic has had; `None` if there is no such topic.
    pub(super) fn entries_end(&self, name: &[u8]) -> Option<u64> {
        let topic = self.derived.dictionary.find(name)?;
        self.derived.dictionary.get(topic).map(|topic| topic.next_entry)
    }

    fn declare(&mut self, name: &[u8], now: Timestamp) -> Result<TopicId> {
        let id = self.derived.dictionary.next_id()?;
        self.put_topic(id, name, 0, now)?;
        Ok(id)
    }

    /// True if messages may be stored: the disk keeps up and its reserve is untouched.
    fn has_room(&mut self, now: Timestamp) -> bool {
        self.uncommitted_bytes() <= UNCOMMITTED_BYTES_MAXIMUM && self.space.has_room(self.archive.disk.as_ref(), now)
    }

    fn make_room(&mut self, size_bytes: usize) -> Result<()> {
        self.appending.make_room(&mut self.archive, &self.derived.dictionary, &mut self.space, size_bytes)
    }
}

/// Where a record is that was found at a location, and may have been carried since.
fn find_place(archive: &mut Archive, location: Location, offset: Offset) -> Result<Option<(usize, u32)>> {
    if let Some(place) = archive.find(location.segment) {
        return Ok(Some((place, location.position)));
    }
    let carried = archive.find_message(offset, None)?;
    Ok(carried.and_then(|location| Some((archive.find(location.segment)?, location.position))))
}

#[inline]
fn message_of<'a>(record: &Record<'a>, dictionary: &'a Dictionary) -> Message<'a> {
    Message {
        topic: dictionary.name(record.topic),
        properties: record.properties,
        payload: record.payload,
        qos: record.qos,
        retain: record.retain,
        appended_at: record.appended_at,
        expires_at: record.expires_at,
    }
}

fn envelope_of(entry: &EntryParts) -> Envelope {
    let EntryParts { sequence_first, sequence_last, key_hash, not_before, .. } = *entry;
    Envelope { sequence_first, sequence_last, key_hash, not_before }
}

/// Under which packet identifier the publisher may send a message again. What was handed in has none, and whoever
/// publishes it may use any for messages of its own.
fn identifier_of(publish: &Publish) -> Option<u16> {
    (publish.qos == 2 && publish.connection != Connection::NONE).then_some(publish.packet_identifier)
}
