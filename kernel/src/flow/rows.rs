//! Rows: messages of one publisher that are handed in many at once, as bytes in their order.
//!
//! Owns: how a row is written as bytes, and how far the rows of a batch have come. Never: where the bytes are kept.
//!
//! A row is [`HEAD_BYTES`] of numbers (little endian): the sizes of topic, properties and payload (32 bit each) and of
//! the key (16 bit), flags, an unused byte, the event time in microseconds (64 bit), and after how many seconds the
//! message expires (32 bit). The topic, the key, the properties and the payload follow.
//!
//! Invariant: what becomes of rows is a prefix: the log has all of them up to some one, and none behind it.

use super::{Arrivals, Fate, Publish, RowParts};
use crate::error::{Error, Result};
use crate::ids::{Connection, KeySlot, LogPosition, Party, Timestamp};
use crate::selection::key_slot;

const HEAD_BYTES: usize = 28;
const QOS: u8 = 0b0000_0011;
const RETAIN: u8 = 0b0000_0100;
const KEY: u8 = 0b0000_1000;
const EVENT_TIME: u8 = 0b0001_0000;
const EXPIRES: u8 = 0b0010_0000;

/// One message of a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Row<'a> {
    /// Its topic.
    pub topic: &'a [u8],
    /// Its key, if it has one.
    pub key: Option<&'a [u8]>,
    /// What travels with it, as in [`Publish::properties`].
    pub properties: &'a [u8],
    /// What it says.
    pub payload: &'a [u8],
    /// 0, 1 or 2.
    pub qos: u8,
    /// It becomes the retained message of its topic.
    pub retain: bool,
    /// When it happened, if its publisher said so.
    pub event_time: Option<Timestamp>,
    /// After how many seconds it expires, if ever.
    pub expiry_interval_s: Option<u32>,
}

impl<'a> Row<'a> {
    /// Appends the row's bytes. Keys have at most 65 535 bytes and other parts less than 4 GiB; the caller has checked.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let narrow = |part: &[u8]| u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes();
        let key = self.key.unwrap_or_default();
        let mut flags = self.qos & QOS;
        let mut set = |flag: u8, condition: bool| flags |= if condition { flag } else { 0 };
        set(RETAIN, self.retain);
        set(KEY, self.key.is_some());
        set(EVENT_TIME, self.event_time.is_some());
        set(EXPIRES, self.expiry_interval_s.is_some());
        for part in [self.topic, self.properties, self.payload] {
            out.extend_from_slice(&narrow(part));
        }
        out.extend_from_slice(&u16::try_from(key.len()).unwrap_or(u16::MAX).to_le_bytes());
        out.extend_from_slice(&[flags, 0]);
        out.extend_from_slice(&self.event_time.unwrap_or_default().0.to_le_bytes());
        out.extend_from_slice(&self.expiry_interval_s.unwrap_or_default().to_le_bytes());
        for part in [self.topic, key, self.properties, self.payload] {
            out.extend_from_slice(part);
        }
    }

    /// The row at the start of some bytes, and what follows it; `None` where no whole row is.
    pub fn decode(bytes: &'a [u8]) -> Option<(Row<'a>, &'a [u8])> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let [topic, properties, payload] = [0, 4, 8].map(|start| size_at(head, start));
        let key = usize::from(u16::from_le_bytes([*head.get(12)?, *head.get(13)?]));
        let flags = *head.get(14)?;
        let event_time = u64::from_le_bytes(head.get(16..24)?.try_into().ok()?);
        let expiry_interval_s = u32::from_le_bytes(head.get(24..28)?.try_into().ok()?);
        let has = |flag: u8| flags & flag != 0;
        let (topic, rest) = rest.split_at_checked(topic)?;
        let (key, rest) = rest.split_at_checked(key)?;
        let (properties, rest) = rest.split_at_checked(properties)?;
        let (payload, rest) = rest.split_at_checked(payload)?;
        let row = Row {
            topic,
            key: has(KEY).then_some(key),
            properties,
            payload,
            qos: flags & QOS,
            retain: has(RETAIN),
            event_time: has(EVENT_TIME).then_some(Timestamp(event_time)),
            expiry_interval_s: has(EXPIRES).then_some(expiry_interval_s),
        };
        Some((row, rest))
    }
}

fn size_at(head: &[u8; HEAD_BYTES], start: usize) -> usize {
    let bytes = head.get(start..).and_then(|rest| rest.first_chunk::<4>()).copied().unwrap_or_default();
    usize::try_from(u32::from_le_bytes(bytes)).unwrap_or(usize::MAX)
}

/// The rows of a part of a batch, and which of them comes next.
#[derive(Debug, Default)]
pub struct Rows {
    bytes: Vec<u8>,
    next: usize,
}

impl Rows {
    /// All rows in these bytes.
    pub fn new(bytes: Vec<u8>) -> Rows {
        Rows { bytes, next: 0 }
    }

    /// True if no row is left.
    pub fn is_done(&self) -> bool {
        self.next >= self.bytes.len()
    }

    /// Passes over the next rows; returns over how many of `count`: fewer where there are no more.
    pub fn pass(&mut self, count: usize) -> Result<usize> {
        for passed in 0..count {
            let rest = self.rest();
            if rest.is_empty() {
                return Ok(passed);
            }
            let (_, behind) = Row::decode(rest).ok_or_else(broken)?;
            self.next = self.bytes.len().saturating_sub(behind.len());
        }
        Ok(count)
    }

    fn rest(&self) -> &[u8] {
        self.bytes.get(self.next..).unwrap_or_default()
    }
}

fn broken() -> Error {
    Error::Invalid("the rows of a batch are not what was written".to_owned())
}

impl Arrivals {
    /// Takes in the next rows, behind everything else and before route: so many messages at most, and no more once
    /// they come to so many bytes. They stay in `rows` until [`Rows::pass`]. The slot is that of rows without a key.
    pub fn put_rows(
        &mut self,
        rows: &Rows,
        (publisher, slot): (Party, KeySlot),
        messages_maximum: usize,
        bytes_maximum: usize,
    ) -> Result<usize> {
        let mut rest = rows.rest();
        let end = self.bytes.len().saturating_add(bytes_maximum);
        let mut count = 0_usize;
        while count < messages_maximum && self.bytes.len() < end && !rest.is_empty() {
            let (row, behind) = Row::decode(rest).ok_or_else(broken)?;
            self.put_row(&row, publisher, slot);
            rest = behind;
            count = count.saturating_add(1);
        }
        self.rows = self.rows.saturating_add(count);
        Ok(count)
    }

    /// How many of the rows that were put in this turn the log has taken, and where the last of them is durable.
    pub fn rows_taken(&self) -> (usize, Option<LogPosition>) {
        let first = self.publishes.len().saturating_sub(self.rows);
        let taken = self.publishes.iter().skip(first).map_while(|publish| publish.stored);
        taken.fold((0, None), |(count, _), stored| (count + 1, Some(stored.durable_at)))
    }

    fn put_row(&mut self, row: &Row<'_>, publisher: Party, slot: KeySlot) {
        let publish = Publish {
            connection: Connection::NONE,
            publisher,
            key_slot: row.key.map_or(slot, key_slot),
            packet_identifier: 0,
            qos: row.qos,
            retain: row.retain,
            topic: self.hold(row.topic),
            properties: self.hold(row.properties),
            payload: self.hold(row.payload),
            expiry_interval_s: row.expiry_interval_s,
            fate: Fate::Accepted,
            row: Some(RowParts { key: row.key.map(|key| self.hold(key)), event_time: row.event_time }),
            entry: None,
            targets: None,
            stored: None,
        };
        self.publishes.push(publish);
    }
}
