//! Appending: messages, topic records and control records go into the chunk that gathers for the next commit.
//!
//! Invariants:
//! 1. A message's topic record lies before it.
//! 2. The first record of a commit group is a marker that vouches for everything before the group.
//! 3. A record lies in one segment; a segment that is full is sealed by the commit that holds its last records.

use super::archive::{Indexed, Segment};
use super::commit::{Work, PREPARED};
use super::dictionary::Topic;
use super::encoding::{narrow, wide};
use super::header::{self, Header, SegmentKind, SEGMENT_HEADER_BYTES};
use super::index::SegmentIndex;
use super::log::Log;
use super::record::{self, Kind, Record, MARKER_BYTES};
use super::retained::Retained;
use crate::disk::DiskFile;
use crate::error::{Error, Result};
use crate::flow::state::REMOVED;
use crate::flow::{Arrivals, Fate, Publish, Refusal, Stored};
use crate::ids::{Connection, Location, LogPosition, Offset, Party, Timestamp, TopicId};
use crate::limits::{
    CHUNK_BYTES, CONTROL_BYTES_MAXIMUM, FIELD_BYTES_MAXIMUM, SEGMENT_TOPICS_MAXIMUM, UNCOMMITTED_BYTES_MAXIMUM,
};
use std::sync::Arc;

/// How long a full disk is not asked again whether it still is.
const SPACE_RECHECK_US: u64 = 1_000_000;

impl Log {
    /// Stores what has to be stored of this turn: QoS 1 and 2, retained messages, and QoS 0 on topics that match a
    /// filter of `store_all`. Where there is no room the message is refused.
    pub fn append<Filter: AsRef<[u8]>>(
        &mut self,
        arrivals: &mut Arrivals,
        store_all: &[Filter],
        now: Timestamp,
    ) -> Result<()> {
        if self.poisoned {
            return Err(Error::Poisoned);
        }
        self.dictionary.set_rules(store_all);
        let now = self.advance(now);
        let mut publishes = std::mem::take(&mut arrivals.publishes);
        let mut result = Ok(());
        for publish in publishes.iter_mut().filter(|publish| publish.fate == Fate::Accepted) {
            match self.append_publish(publish, arrivals, now) {
                Err(Error::Disk { full: true, .. } | Error::Invalid(_)) => {
                    publish.fate = Fate::Refused(Refusal::NoRoom)
                }
                other => result = result.and(other),
            }
        }
        arrivals.publishes = publishes;
        result
    }

    fn append_publish(&mut self, publish: &mut Publish, arrivals: &Arrivals, now: Timestamp) -> Result<()> {
        let name = arrivals.span(publish.topic);
        let wanted = publish.qos > 0 || publish.retain || self.dictionary.is_stored_always(name);
        if !wanted {
            return Ok(());
        }
        if !self.has_room(now) {
            publish.fate = Fate::Refused(Refusal::NoRoom);
            return Ok(());
        }
        let topic = match self.dictionary.find(name) {
            Some(topic) => topic,
            None => self.declare(name, now)?,
        };
        let expires_at = publish
            .expiry_interval_s
            .map(|interval| Timestamp(now.0.saturating_add(u64::from(interval).saturating_mul(1_000_000))));
        let mut record = Record {
            qos: publish.qos,
            retain: publish.retain,
            key_slot: publish.key_slot,
            topic,
            offset: Offset(self.head.offset),
            appended_at: now,
            publisher: publish.publisher,
            count: 1,
            properties: arrivals.span(publish.properties),
            expires_at,
            packet_identifier: identifier_of(publish),
            ..Record::plain(Kind::Message, arrivals.span(publish.payload))
        };
        self.make_room(record.size_bytes())?;
        record.entry = self.dictionary.take_entry(topic);
        let location = self.put(&record)?;
        if record.retain {
            if let Some(name) = self.dictionary.shared_name(topic) {
                let durable = (LogPosition(self.head.position), self.durable_position());
                self.retained.change_at(name, Retained::of(&record), durable);
            }
        }
        self.parties.note_message(&record);
        publish.stored = Some(Stored {
            offset: record.offset,
            location,
            size_bytes: narrow(record.size_bytes()),
            expires_at,
            durable_at: LogPosition(self.head.position),
        });
        Ok(())
    }

    /// Appends a control record. In table 0 the key is a party (four bytes, little endian) and the value what
    /// `flow::state` encodes. An empty value removes the key. Returns the log position at which it is durable.
    pub fn append_control(&mut self, table: u32, key: &[u8], value: &[u8], now: Timestamp) -> Result<LogPosition> {
        let value = if table == 0 && value.is_empty() { &[REMOVED] } else { value };
        if self.poisoned {
            return Err(Error::Poisoned);
        }
        if key.len() > FIELD_BYTES_MAXIMUM || key.len().saturating_add(value.len()) > CONTROL_BYTES_MAXIMUM {
            return Err(Error::Invalid(format!("a control record of {} bytes is too large", value.len())));
        }
        let party = if table == 0 { Some(party_of(key)?) } else { None };
        let now = self.advance(now);
        let record = Record {
            offset: Offset(self.head.offset),
            entry: self.head.control,
            appended_at: now,
            publisher: Party(table),
            key: Some(key),
            ..Record::plain(Kind::Control, value)
        };
        self.make_room(record.size_bytes())?;
        if let Some(party) = party {
            self.parties.apply(party, record.entry, value, |_| false)?;
        } else {
            self.in_force.apply(table, key, value, record.entry);
        }
        self.put(&record)?;
        Ok(self.end_position())
    }

    /// Gives a new topic its number and says so in the log.
    fn declare(&mut self, name: &[u8], now: Timestamp) -> Result<TopicId> {
        let id = self.dictionary.next_id()?;
        self.put_topic(id, name, 0, now)?;
        Ok(id)
    }

    /// Appends a topic record.
    pub(super) fn put_topic(&mut self, id: TopicId, name: &[u8], next_entry: u64, now: Timestamp) -> Result<()> {
        let offset = Offset(self.head.offset);
        let record =
            Record { topic: id, offset, entry: next_entry, appended_at: now, ..Record::plain(Kind::Topic, name) };
        self.make_room(record.size_bytes())?;
        let declared_at = self.end_position();
        self.put(&record)?;
        self.dictionary.declare(id, name, next_entry, declared_at);
        Ok(())
    }

    /// True if messages may be stored: the disk keeps up and its reserve is untouched.
    fn has_room(&mut self, now: Timestamp) -> bool {
        if self.uncommitted_bytes() > UNCOMMITTED_BYTES_MAXIMUM {
            return false;
        }
        if !self.space_is_low {
            return true;
        }
        if now.0.saturating_sub(self.space_checked_at) >= SPACE_RECHECK_US {
            self.space_checked_at = now.0;
            if let Ok(free_bytes) = self.disk.free_bytes() {
                self.space_is_low = free_bytes < self.options.reserve_bytes;
            }
        }
        !self.space_is_low
    }

    /// Ends the segment if the record does not fit, and begins the commit group with its marker.
    fn make_room(&mut self, size_bytes: usize) -> Result<()> {
        let marker = if self.group_started { 0 } else { MARKER_BYTES };
        let needed = narrow(size_bytes.saturating_add(marker));
        let end = self.archive.segments.last().map_or(0, |segment| segment.end);
        let empty = end <= SEGMENT_HEADER_BYTES.saturating_add(narrow(MARKER_BYTES));
        let is_full = end.saturating_add(needed) > self.options.segment_bytes || self.has_many_topics();
        if is_full && !empty {
            self.roll()?;
        }
        if !self.group_started {
            self.group_started = true;
            let marker = self.next_marker;
            self.put(&marker)?;
        }
        Ok(())
    }

    fn has_many_topics(&self) -> bool {
        match self.archive.segments.last().map(|segment| &segment.index) {
            Some(Indexed::Open(index)) => index.topics.len() >= SEGMENT_TOPICS_MAXIMUM,
            _ => false,
        }
    }

    /// Appends the record to the filling chunk, for which there is room.
    fn put(&mut self, record: &Record<'_>) -> Result<Location> {
        let Some(segment) = self.archive.segments.last_mut() else { return Err(Error::Poisoned) };
        let location = Location { segment: segment.header.number, position: segment.end };
        let filling = &mut self.archive.tail.filling.bytes;
        let before = filling.len();
        record::encode(record, self.archive.salt, filling);
        let size = filling.len().saturating_sub(before);
        if let Indexed::Open(index) = &mut segment.index {
            index.add(record, location.position, size);
        }
        segment.end = segment.end.saturating_add(narrow(size));
        self.head.position = self.head.position.saturating_add(wide(size));
        match record.kind {
            Kind::Message => self.head.offset = self.head.offset.saturating_add(1),
            Kind::Control => self.head.control = self.head.control.saturating_add(1),
            Kind::Topic | Kind::Marker => {}
        }
        self.totals.records_appended = self.totals.records_appended.wrapping_add(1);
        if filling.len() >= CHUNK_BYTES {
            self.freeze();
        }
        Ok(location)
    }

    /// Hands the filling chunk to the next commit.
    pub(super) fn freeze(&mut self) {
        let Some(segment) = self.archive.segments.last() else { return };
        let file = Arc::clone(&segment.file);
        if let Some(chunk) = self.archive.tail.freeze() {
            self.work.push(Work::Write { file, chunk });
        }
    }

    /// Ends the open segment and begins the next one.
    pub(super) fn roll(&mut self) -> Result<()> {
        let (number, file) = self.next_file()?;
        self.freeze();
        self.close_segment();
        self.begin_segment(number, file);
        Ok(())
    }

    /// The file of the next segment: the one that was prepared, or one made here and now. On a disk that is full it
    /// grows as it is written, because acknowledgements and control records still have to go on. Either has its number
    /// only from here on, so that numbers grow with the offsets, whichever file was made first.
    fn next_file(&mut self) -> Result<(u32, Arc<dyn DiskFile>)> {
        let number = self.next_number;
        let name = header::segment_name(SegmentKind::Log, number);
        let file = match &self.prepared {
            Some(prepared) => {
                self.disk.rename(PREPARED, &name)?;
                Arc::clone(prepared)
            }
            None => match self.disk.create(&name, u64::from(self.options.segment_bytes)) {
                Err(Error::Disk { full: true, .. }) => {
                    self.space_is_low = true;
                    self.disk.create(&name, 0)?
                }
                other => other?,
            },
        };
        self.prepared = None;
        self.next_number = number.saturating_add(1);
        self.sync_directory = true;
        Ok((number, file))
    }

    /// The open segment takes no more records; its footer is written by the next commit.
    fn close_segment(&mut self) {
        let end_position = self.end_position();
        let Some(segment) = self.archive.segments.last_mut() else { return };
        let Indexed::Open(index) = &mut segment.index else { return };
        let empty = SegmentIndex::new(Offset(0), 0, 0);
        let index = Arc::new(std::mem::replace(index.as_mut(), empty));
        let names = names_of(&index, |id| self.dictionary.get(id));
        let (number, file, records_end) = (segment.header.number, Arc::clone(&segment.file), segment.end);
        segment.index = Indexed::Closed(Arc::clone(&index));
        self.work.push(Work::Seal { number, file, records_end, end_position, index, names });
    }

    /// The next record goes to a new segment.
    pub(super) fn begin_segment(&mut self, number: u32, file: Arc<dyn DiskFile>) {
        let header = Header {
            epoch: self.epoch,
            kind: SegmentKind::Log,
            number,
            base_offset: Offset(self.head.offset),
            base_position: LogPosition(self.head.position),
            base_control: self.head.control,
            created_at: Timestamp(self.head.time),
            end_offset: Offset(0),
            end_position: LogPosition(0),
        };
        self.work.push(Work::Header { file: Arc::clone(&file), bytes: header::encode(&header) });
        let index = SegmentIndex::new(header.base_offset, header.base_control, self.options.seed);
        let name = header::segment_name(SegmentKind::Log, number);
        let segment = Segment::new(header, name, file, Indexed::Open(Box::new(index)), SEGMENT_HEADER_BYTES);
        self.archive.segments.push(segment);
        self.archive.tail.begin(number, SEGMENT_HEADER_BYTES);
    }

    /// The first segment of an empty log, or the one after a sealed one.
    pub(super) fn begin_log(&mut self) -> Result<()> {
        let (number, file) = self.next_file()?;
        self.begin_segment(number, file);
        Ok(())
    }
}

/// The names of all topics in an index; topic 0 has none.
pub(super) fn names_of<'a>(
    index: &SegmentIndex,
    topic: impl Fn(TopicId) -> Option<&'a Topic>,
) -> Vec<(TopicId, Arc<[u8]>)> {
    let mut names: Vec<(TopicId, Arc<[u8]>)> = Vec::with_capacity(index.topics.len());
    for id in index.topics.keys().copied().map(TopicId) {
        names.push((id, topic(id).and_then(|topic| topic.name.clone()).unwrap_or_default()));
    }
    names
}

/// The party that a key of table 0 stands for.
pub(super) fn party_of(key: &[u8]) -> Result<Party> {
    let bytes: [u8; 4] = key.try_into().map_err(|_| Error::Invalid("a key of table 0 has four bytes".to_owned()))?;
    Ok(Party(u32::from_le_bytes(bytes)))
}

/// Under which packet identifier the publisher may send a message again. The loopback never does, and those for whom
/// it publishes give out identifiers of their own.
fn identifier_of(publish: &Publish) -> Option<u16> {
    (publish.qos == 2 && publish.connection != Connection::LOOPBACK).then_some(publish.packet_identifier)
}
