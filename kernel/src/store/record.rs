//! One record of the log as bytes (`docs/formats/log.md`, "Record").
//!
//! Owns: the layout of records. Never: where they lie. Invariants:
//! 1. Any bytes decode to a record or to `None`; nothing outside the given bytes is read.
//! 2. `decode(encode(record)) == record`.
//! 3. The checksum is salted with the log's identity, so that bytes that a client put into a payload never pass for
//!    a record when a damaged segment is searched for the next whole one.

use super::encoding::{narrow, Decoder, Encoder};
use crate::checksum;
use crate::flow::entry::CHECKED_FROM;
use crate::ids::{KeySlot, LogPosition, Offset, Party, Timestamp, TopicId};
use crate::limits::ENTRY_MESSAGES_MAXIMUM;

/// Bytes before the optional fields.
pub(super) const HEADER_BYTES: usize = 48;

/// Bytes of a commit marker.
pub(super) const MARKER_BYTES: usize = HEADER_BYTES;

const FLAG_QOS: u8 = 0b0000_0011;
/// In place of a QoS: QoS 0, and kept.
const QOS_KEPT: u8 = 3;
const FLAG_RETAIN: u8 = 0b0000_0100;
const FLAG_KEY: u8 = 0b0000_1000;
const FLAG_PROPERTIES: u8 = 0b0001_0000;
const FLAG_EXPIRES: u8 = 0b0010_0000;
const FLAG_PACKET_IDENTIFIER: u8 = 0b0100_0000;
const FLAG_EXTENSION: u8 = 0b1000_0000;
const EXTENSION_EVENT_TIME: u8 = 0b0000_0001;

/// Bytes before an entry that are always there: flags and two sequence numbers.
const ENVELOPE_BYTES: usize = 17;
pub(super) const ENVELOPE_BYTES_MAXIMUM: usize = 29;
/// To look at so many bytes again takes less than to combine checksums.
const COMBINED_FROM: usize = 2_048;
const ENVELOPE_KEY_HASH: u8 = 0b0000_0001;
const ENVELOPE_NOT_BEFORE: u8 = 0b0000_0010;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A message; takes one offset.
    Message,
    /// Several messages that came together; takes as many offsets as it has messages.
    Entry,
    /// The newest value of a key in a table; takes none.
    Control,
    /// A topic's name and number; takes none.
    Topic,
    /// "Everything before this log position was durable"; takes none.
    Marker,
}

impl Kind {
    fn number(self) -> u8 {
        match self {
            Kind::Message => 1,
            Kind::Control => 2,
            Kind::Topic => 3,
            Kind::Marker => 4,
            Kind::Entry => 5,
        }
    }

    /// True of what holds messages, and so takes offsets.
    pub fn has_messages(self) -> bool {
        matches!(self, Kind::Message | Kind::Entry)
    }

    fn of(number: u8) -> Option<Kind> {
        Some(match number {
            1 => Kind::Message,
            2 => Kind::Control,
            3 => Kind::Topic,
            4 => Kind::Marker,
            5 => Kind::Entry,
            _ => return None,
        })
    }
}

/// One record, its variable parts borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// What it is.
    pub kind: Kind,
    /// QoS as published.
    pub qos: u8,
    /// True if it is stored, although of QoS 0, for queues that are given entries whole.
    pub is_kept: bool,
    /// The RETAIN flag as published.
    pub retain: bool,
    /// The slot of its key.
    pub key_slot: KeySlot,
    /// Its topic; 0 for control records and markers.
    pub topic: TopicId,
    /// Its offset; for what takes none, that of the next message.
    pub offset: Offset,
    /// Entry number in its topic; a control record's number; a topic's next entry number; a marker's log position.
    pub entry: u64,
    /// When it was appended.
    pub appended_at: Timestamp,
    /// Who published it; a control record's table.
    pub publisher: Party,
    /// How many messages it holds.
    pub count: u32,
    /// Its key, if it has one.
    pub key: Option<&'a [u8]>,
    /// MQTT 5 properties as in `Publish::properties`.
    pub properties: &'a [u8],
    /// When it expires, if ever.
    pub expires_at: Option<Timestamp>,
    /// The packet identifier of QoS 2.
    pub packet_identifier: Option<u16>,
    /// When it happened, if its publisher said so.
    pub event_time: Option<Timestamp>,
    /// What stands before it if it is an entry: an [`Envelope`] as it is written.
    pub envelope: &'a [u8],
    /// The application message, an entry as it came, a control record's value or a topic's name.
    pub payload: &'a [u8],
}

/// What stands before an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// The number that its producer gave its first message.
    pub sequence_first: u64,
    /// The number that its producer gave its last message.
    pub sequence_last: u64,
    /// The hash of its key, if it has one.
    pub key_hash: Option<u32>,
    /// Before this time nobody is given it.
    pub not_before: Option<Timestamp>,
}

impl Envelope {
    /// As it is written, into memory of the caller's.
    pub fn write<'a>(&self, into: &'a mut [u8; ENVELOPE_BYTES_MAXIMUM]) -> &'a [u8] {
        let hash = if self.key_hash.is_some() { ENVELOPE_KEY_HASH } else { 0 };
        let time = if self.not_before.is_some() { ENVELOPE_NOT_BEFORE } else { 0 };
        fill(into, 0, &[hash | time]);
        fill(into, 1, &self.sequence_first.to_le_bytes());
        fill(into, 9, &self.sequence_last.to_le_bytes());
        let mut size = ENVELOPE_BYTES;
        if let Some(hash) = self.key_hash {
            fill(into, size, &hash.to_le_bytes());
            size = size.saturating_add(4);
        }
        if let Some(at) = self.not_before {
            fill(into, size, &at.0.to_le_bytes());
            size = size.saturating_add(8);
        }
        into.get(..size).unwrap_or_default()
    }

    /// The bytes of one at the start of `bytes`.
    fn of(bytes: &[u8]) -> Option<&[u8]> {
        let flags = *bytes.first()?;
        let hash = if flags & ENVELOPE_KEY_HASH != 0 { 4 } else { 0 };
        let time = if flags & ENVELOPE_NOT_BEFORE != 0 { 8 } else { 0 };
        let is_known = flags & !(ENVELOPE_KEY_HASH | ENVELOPE_NOT_BEFORE) == 0;
        bytes.get(..ENVELOPE_BYTES.saturating_add(hash).saturating_add(time)).filter(|_| is_known)
    }
}

impl<'a> Record<'a> {
    /// A record of `kind` with nothing optional in it.
    pub fn plain(kind: Kind, payload: &'a [u8]) -> Record<'a> {
        Record {
            kind,
            qos: 0,
            is_kept: false,
            retain: false,
            key_slot: KeySlot(0),
            topic: TopicId(0),
            offset: Offset(0),
            entry: 0,
            appended_at: Timestamp(0),
            publisher: Party(0),
            count: 0,
            key: None,
            properties: &[],
            expires_at: None,
            packet_identifier: None,
            event_time: None,
            envelope: &[],
            payload,
        }
    }

    /// The marker that vouches for everything before `durable`.
    pub fn marker(durable: LogPosition, next: Offset, appended_at: Timestamp) -> Record<'static> {
        Record { offset: next, entry: durable.0, appended_at, ..Record::plain(Kind::Marker, &[]) }
    }

    /// The record's size in bytes.
    pub fn size_bytes(&self) -> usize {
        let mut size = HEADER_BYTES.saturating_add(self.payload.len());
        size = size.saturating_add(self.key.map_or(0, |key| key.len().saturating_add(2)));
        if !self.properties.is_empty() {
            size = size.saturating_add(self.properties.len()).saturating_add(4);
        }
        size = size.saturating_add(if self.expires_at.is_some() { 8 } else { 0 });
        size = size.saturating_add(if self.packet_identifier.is_some() { 2 } else { 0 });
        size = size.saturating_add(if self.event_time.is_some() { 9 } else { 0 });
        size.saturating_add(self.envelope.len())
    }

    /// True if a queue may want it.
    pub fn is_queued(&self) -> bool {
        self.kind.has_messages() && (self.qos > 0 || self.is_kept)
    }

    /// The offset after its last message; its own if it has none.
    pub fn end(&self) -> Offset {
        Offset(self.offset.0.saturating_add(u64::from(self.count)))
    }

    fn flags(&self) -> u8 {
        let mut flags = if self.is_kept { QOS_KEPT } else { self.qos & FLAG_QOS };
        let mut set = |flag: u8, condition: bool| flags |= if condition { flag } else { 0 };
        set(FLAG_RETAIN, self.retain);
        set(FLAG_KEY, self.key.is_some());
        set(FLAG_PROPERTIES, !self.properties.is_empty());
        set(FLAG_EXPIRES, self.expires_at.is_some());
        set(FLAG_PACKET_IDENTIFIER, self.packet_identifier.is_some());
        set(FLAG_EXTENSION, self.event_time.is_some());
        flags
    }
}

/// Appends the record's bytes. Keys are at most 65 535 bytes and whole records at most
/// [`crate::limits::RECORD_BYTES_MAXIMUM`]; the caller has checked that.
pub fn encode(record: &Record<'_>, salt: u32, out: &mut Vec<u8>) {
    put(record, None, salt, out);
}

/// The same; of an entry `checked` may be the checksum of all but its first [`CHECKED_FROM`] bytes, which are then not
/// looked at again.
pub fn put(record: &Record<'_>, checked: Option<u32>, salt: u32, out: &mut Vec<u8>) {
    let start = out.len();
    put_before(record, out);
    let size = narrow(out.len().saturating_sub(start).saturating_add(record.payload.len()));
    fill(out, start, &size.to_le_bytes());
    let behind = |out: &Vec<u8>| checksum::append(salt, out.get(start.saturating_add(8)..).unwrap_or_default());
    let checksum = match checked {
        Some(checked) if record.payload.len() > COMBINED_FROM => {
            let (before, rest) = record.payload.split_at_checked(CHECKED_FROM).unwrap_or((record.payload, &[]));
            out.put(before);
            let first = behind(out);
            out.put(rest);
            checksum::combine(first, checked, rest.len())
        }
        _ => {
            out.put(record.payload);
            behind(out)
        }
    };
    fill(out, start.saturating_add(4), &checksum.to_le_bytes());
}

fn put_before(record: &Record<'_>, out: &mut Vec<u8>) {
    let mut header = [0_u8; HEADER_BYTES];
    fill(&mut header, 8, &[record.kind.number(), record.flags()]);
    fill(&mut header, 10, &record.key_slot.0.to_le_bytes());
    fill(&mut header, 12, &record.topic.0.to_le_bytes());
    fill(&mut header, 16, &record.offset.0.to_le_bytes());
    fill(&mut header, 24, &record.entry.to_le_bytes());
    fill(&mut header, 32, &record.appended_at.0.to_le_bytes());
    fill(&mut header, 40, &record.publisher.0.to_le_bytes());
    fill(&mut header, 44, &record.count.to_le_bytes());
    out.put(&header);
    if let Some(key) = record.key {
        out.put_u16(u16::try_from(key.len()).unwrap_or(u16::MAX));
        out.put(key);
    }
    if !record.properties.is_empty() {
        out.put_u32(narrow(record.properties.len()));
        out.put(record.properties);
    }
    if let Some(expires_at) = record.expires_at {
        out.put_u64(expires_at.0);
    }
    if let Some(packet_identifier) = record.packet_identifier {
        out.put_u16(packet_identifier);
    }
    if let Some(event_time) = record.event_time {
        out.push(EXTENSION_EVENT_TIME);
        out.put_u64(event_time.0);
    }
    if record.kind == Kind::Entry {
        out.put(record.envelope);
    }
}

#[inline]
fn fill(target: &mut [u8], start: usize, bytes: &[u8]) {
    if let Some(place) = target.get_mut(start..start.saturating_add(bytes.len())) {
        place.copy_from_slice(bytes);
    }
}

/// The size that a record starting here says it has, if that is possible at all.
pub fn stated_size(bytes: &[u8]) -> Option<usize> {
    let size = usize::try_from(Decoder::new(bytes).u32()?).ok()?;
    (HEADER_BYTES..=crate::limits::RECORD_BYTES_MAXIMUM).contains(&size).then_some(size)
}

/// The record at the start of `bytes`, if its checksum fits and it is well formed.
pub fn decode(bytes: &[u8], salt: u32) -> Option<Record<'_>> {
    let mut source = Decoder::new(bytes.get(4..stated_size(bytes)?)?);
    let checksum = source.u32()?;
    (checksum::append(salt, source.rest()) == checksum).then(|| read(bytes)).flatten()
}

/// The same where the bytes were nowhere but in memory since they were put there: their checksum is not compared.
#[inline]
pub fn read(bytes: &[u8]) -> Option<Record<'_>> {
    let (header, rest) = bytes.get(..stated_size(bytes)?)?.split_first_chunk::<HEADER_BYTES>()?;
    let (mut source, mut rest) = (Decoder::new(header), Decoder::new(rest));
    source.take(8)?; // The size and the checksum.
    let kind = Kind::of(source.u8()?)?;
    let flags = source.u8()?;
    let mut record = Record::plain(kind, &[]);
    record.is_kept = flags & FLAG_QOS == QOS_KEPT;
    record.qos = if record.is_kept { 0 } else { flags & FLAG_QOS };
    record.retain = flags & FLAG_RETAIN != 0;
    record.key_slot = KeySlot(source.u16()?);
    record.topic = TopicId(source.u32()?);
    record.offset = Offset(source.u64()?);
    record.entry = source.u64()?;
    record.appended_at = Timestamp(source.u64()?);
    record.publisher = Party(source.u32()?);
    record.count = source.u32()?;
    let is_possible = match kind {
        Kind::Message => record.count == 1,
        Kind::Entry => (1..=ENTRY_MESSAGES_MAXIMUM).contains(&record.count),
        Kind::Control | Kind::Topic | Kind::Marker => record.count == 0,
    };
    if record.is_kept && kind != Kind::Message || !is_possible {
        return None;
    }
    if flags & FLAG_KEY != 0 {
        let size = rest.u16()?;
        record.key = Some(rest.take(usize::from(size))?);
    }
    if flags & FLAG_PROPERTIES != 0 {
        let size = rest.u32()?;
        record.properties = rest.take(usize::try_from(size).ok()?)?;
        if record.properties.is_empty() {
            return None;
        }
    }
    if flags & FLAG_EXPIRES != 0 {
        record.expires_at = Some(Timestamp(rest.u64()?));
    }
    if flags & FLAG_PACKET_IDENTIFIER != 0 {
        record.packet_identifier = Some(rest.u16()?);
    }
    if flags & FLAG_EXTENSION != 0 {
        if rest.u8()? != EXTENSION_EVENT_TIME {
            return None;
        }
        record.event_time = Some(Timestamp(rest.u64()?));
    }
    if kind == Kind::Entry {
        let size = Envelope::of(rest.rest())?.len();
        record.envelope = rest.take(size)?;
    }
    record.payload = rest.rest();
    (kind != Kind::Entry || record.payload.len() >= CHECKED_FROM).then_some(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    prop_compose! {
        fn fields()(
            kind in 1_u8..=5, qos in 0_u8..4, retain: bool, topic: u32, offset: u64, entry: u64, time: u64,
            publisher: u32, key in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40)),
            properties in proptest::collection::vec(any::<u8>(), 0..40), expires: Option<u64>,
            packet_identifier: Option<u16>, event_time: Option<u64>, messages in 1..=ENTRY_MESSAGES_MAXIMUM,
            sequences: (u64, u64), key_hash: Option<u32>, not_before: Option<u64>,
            payload in proptest::collection::vec(any::<u8>(), 0..200),
        ) -> (Record<'static>, [Vec<u8>; 4], bool) {
            let kind = Kind::of(kind).unwrap();
            let (sequence_first, sequence_last) = sequences;
            let not_before = not_before.map(Timestamp);
            let (envelope, count, payload) = match kind {
                Kind::Entry => {
                    let envelope = Envelope { sequence_first, sequence_last, key_hash, not_before };
                    let envelope = envelope.write(&mut [0; ENVELOPE_BYTES_MAXIMUM]).to_vec();
                    (envelope, messages, [vec![0; CHECKED_FROM], payload].concat())
                }
                _ => (Vec::new(), u32::from(kind == Kind::Message), payload),
            };
            let record = Record {
                kind, qos: qos % 3, is_kept: qos == 3 && kind == Kind::Message, retain, key_slot: KeySlot(7),
                topic: TopicId(topic), offset: Offset(offset), entry,
                appended_at: Timestamp(time), publisher: Party(publisher), count,
                key: None, properties: &[], expires_at: expires.map(Timestamp), packet_identifier,
                event_time: event_time.map(Timestamp), envelope: &[], payload: &[],
            };
            let has_key = key.is_some();
            (record, [key.unwrap_or_default(), properties, payload, envelope], has_key)
        }
    }

    /// The bytes of an example of the page of the format: the first one is 0.
    fn shown(place: usize) -> Vec<u8> {
        let page = include_str!("../../../docs/formats/log.md");
        let block = page.split("```").nth(2 * place + 1).unwrap();
        let digits: Vec<u32> = block.chars().filter_map(|digit| digit.to_digit(16)).collect();
        digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
    }

    #[test]
    fn the_page_of_the_format_shows_this_entry() {
        let salt = checksum::of(&[0; 16]);
        let sent = b"\x0e\x01\x00\x00\x00\x00\x00\x00\x00\x02hi";
        let envelope = Envelope {
            sequence_first: 10,
            sequence_last: 12,
            key_hash: Some(0x0102_0304),
            not_before: Some(Timestamp(1_700_000_060_000_000)),
        };
        let mut written = [0; ENVELOPE_BYTES_MAXIMUM];
        let expected = Record {
            qos: 1,
            topic: TopicId(5),
            offset: Offset(8),
            entry: 3,
            appended_at: Timestamp(1_700_000_000_000_000),
            publisher: Party(9),
            count: 3,
            envelope: envelope.write(&mut written),
            ..Record::plain(Kind::Entry, sent)
        };
        let mut encoded = Vec::new();
        put(&expected, Some(checksum::of(&sent[CHECKED_FROM..])), salt, &mut encoded);
        assert_eq!(decode(&shown(1), salt), Some(expected), "{encoded:02x?}");
    }

    #[test]
    fn a_large_entry_is_not_looked_at_again() {
        let sent: Vec<u8> = (0..COMBINED_FROM as u32 + 9).map(|at| at.to_le_bytes()[0]).collect();
        let mut envelope = [0; ENVELOPE_BYTES_MAXIMUM];
        let envelope = Envelope::default().write(&mut envelope);
        let record = Record { qos: 1, count: 3, envelope, ..Record::plain(Kind::Entry, &sent) };
        let checked = checksum::of(&sent[CHECKED_FROM..]);
        let (mut combined, mut whole, mut wrong) = (Vec::new(), Vec::new(), Vec::new());
        put(&record, Some(checked), 5, &mut combined);
        put(&record, None, 5, &mut whole);
        put(&record, Some(checked ^ 1), 5, &mut wrong);
        assert_eq!(combined, whole);
        assert_eq!(decode(&combined, 5), Some(record));
        assert_eq!(decode(&wrong, 5), None);
    }

    #[test]
    fn the_page_of_the_format_shows_this_record() {
        let bytes = shown(0);
        let expected = Record {
            qos: 1,
            topic: TopicId(5),
            offset: Offset(7),
            entry: 2,
            appended_at: Timestamp(1_700_000_000_000_000),
            publisher: Party(9),
            count: 1,
            expires_at: Some(Timestamp(1_700_003_600_000_000)),
            ..Record::plain(Kind::Message, b"21.5")
        };
        let salt = checksum::of(&[0; 16]);
        let mut encoded = Vec::new();
        encode(&expected, salt, &mut encoded);
        assert_eq!(decode(&bytes, salt), Some(expected), "{encoded:02x?}");
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded((record, parts, has_key) in fields(), salt: u32, before in 0_usize..9) {
            let [key, properties, payload, envelope] = &parts;
            let record = Record { key: has_key.then_some(key), properties, payload, envelope, ..record };
            let mut out = vec![0xaa; before];
            encode(&record, salt, &mut out);
            prop_assert_eq!(out.len() - before, record.size_bytes());
            prop_assert_eq!(decode(&out[before..], salt), Some(record));
            prop_assert_eq!(decode(&out[before..], salt ^ 1), None);
            prop_assert_eq!(read(&out[before..]), Some(record));
            prop_assert_eq!(decode(&out[before..out.len() - 1], salt), None);
            if record.kind == Kind::Entry {
                let mut combined = Vec::new();
                put(&record, Some(checksum::of(&payload[CHECKED_FROM..])), salt, &mut combined);
                prop_assert_eq!(&combined, &out[before..]);
            }
        }

        #[test]
        fn any_bytes_are_a_record_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..300), size in 40_u32..300) {
            let _ = (decode(&bytes, 0), read(&bytes));
            let mut bytes = bytes;
            if bytes.len() >= 8 {
                bytes[..4].copy_from_slice(&size.to_le_bytes());
                let size = usize::try_from(size).unwrap().clamp(8, bytes.len());
                let checksum = checksum::append(0, &bytes[8..size]);
                bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
                let _ = decode(&bytes, 0);
            }
        }

        #[test]
        fn a_flipped_bit_is_noticed((record, parts, _) in fields(), at in 0_usize..1_000, bit in 0_u8..8) {
            let record = Record { payload: &parts[2], ..record };
            let mut out = Vec::new();
            encode(&record, 5, &mut out);
            let at = at % out.len();
            out[at] ^= 1 << bit;
            prop_assert_eq!(decode(&out, 5), None);
        }
    }
}
