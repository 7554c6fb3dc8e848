//! Messages as Arrow buffers: what the read interface hands out, filled record by record without a Python object.

use super::encoding::Decoder;
use super::record::Record;
use crate::ids::{Party, Timestamp};

/// Offsets and data of a column of texts or bytes.
#[derive(Debug)]
pub struct Bytes {
    /// Where each value starts, and where the last one ends: 32-bit little endian.
    pub offsets: Vec<u8>,
    /// The values, one behind the other.
    pub data: Vec<u8>,
}

/// Which values of a column are there, one bit each, least significant first.
#[derive(Debug, Default)]
pub struct Bits {
    /// The bits.
    pub bytes: Vec<u8>,
    count: usize,
}

/// Columns that are filled; the others stay empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ColumnSet(u32);

/// What a message takes beside its texts and its value, about.
const ROW_BYTES: usize = 64;

/// The columns, each with its bit in a set.
const NAMES: [&str; 14] = [
    "topic",
    "key",
    "value",
    "shard",
    "offset",
    "entry",
    "timestamp",
    "event_time",
    "qos",
    "retain",
    "publisher",
    "expires_at",
    "properties",
    "headers",
];

impl ColumnSet {
    /// Every column.
    pub const ALL: ColumnSet = ColumnSet((1 << NAMES.len()) - 1);
    const TOPIC: ColumnSet = ColumnSet(1);
    const KEY: ColumnSet = ColumnSet(1 << 1);
    const VALUE: ColumnSet = ColumnSet(1 << 2);
    const SHARD: ColumnSet = ColumnSet(1 << 3);
    const OFFSET: ColumnSet = ColumnSet(1 << 4);
    const ENTRY: ColumnSet = ColumnSet(1 << 5);
    const TIMESTAMP: ColumnSet = ColumnSet(1 << 6);
    const EVENT_TIME: ColumnSet = ColumnSet(1 << 7);
    const QOS: ColumnSet = ColumnSet(1 << 8);
    const RETAIN: ColumnSet = ColumnSet(1 << 9);
    const PUBLISHER: ColumnSet = ColumnSet(1 << 10);
    const EXPIRES_AT: ColumnSet = ColumnSet(1 << 11);
    const PROPERTIES: ColumnSet = ColumnSet(1 << 12);
    const HEADERS: ColumnSet = ColumnSet(1 << 13);

    /// The columns of these names; `None` if there is none of one of them.
    pub fn of<Name: AsRef<str>>(names: &[Name]) -> Option<ColumnSet> {
        names.iter().try_fold(ColumnSet(0), |set, name| {
            let bit = NAMES.iter().position(|known| *known == name.as_ref())?;
            Some(ColumnSet(set.0 | 1 << bit))
        })
    }

    /// The names of the columns in the set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        NAMES.into_iter().enumerate().filter(move |(bit, _)| self.0 & 1 << bit != 0).map(|(_, name)| name)
    }

    fn has(self, column: ColumnSet) -> bool {
        self.0 & column.0 != 0
    }
}

/// Properties of messages: a list for each of them.
#[derive(Debug)]
pub struct Properties {
    /// How many come before those of each message, 32 bit.
    pub offsets: Vec<u8>,
    /// Their names.
    pub keys: Bytes,
    /// Their values.
    pub values: Bytes,
    count: u32,
}

/// Messages as columns, in Arrow's layout.
#[derive(Debug, Default)]
pub struct Columns {
    /// How many messages.
    pub rows: usize,
    /// Messages of the range that the disk has damaged, as far as was found: which topics they had, nobody can say.
    pub missing: u64,
    /// Topic name.
    pub topic: Bytes,
    /// Which have a key.
    pub has_key: Bits,
    /// Key.
    pub key: Bytes,
    /// Application message.
    pub value: Bytes,
    /// Shard, 32 bit: 0.
    pub shard: Vec<u8>,
    /// Offset, 64 bit.
    pub offset: Vec<u8>,
    /// Entry number in the topic, 64 bit.
    pub entry: Vec<u8>,
    /// Append time in microseconds, 64 bit.
    pub timestamp: Vec<u8>,
    /// Which have an event time.
    pub has_event_time: Bits,
    /// Event time in microseconds, 64 bit.
    pub event_time: Vec<u8>,
    /// QoS as published, 32 bit.
    pub qos: Vec<u8>,
    /// RETAIN flag as published, one bit each.
    pub retain: Bits,
    /// Which have a known publisher.
    pub has_publisher: Bits,
    /// Publisher, 64 bit.
    pub publisher: Vec<u8>,
    /// Which expire.
    pub has_expires_at: Bits,
    /// When they expire, in microseconds, 64 bit.
    pub expires_at: Vec<u8>,
    /// Properties as texts.
    pub properties: Properties,
    /// The same with their values as they came.
    pub headers: Properties,
    wanted: ColumnSet,
}

impl Default for Properties {
    fn default() -> Properties {
        let offsets = 0_u32.to_le_bytes().to_vec();
        Properties { offsets, keys: Bytes::default(), values: Bytes::default(), count: 0 }
    }
}

impl Properties {
    fn push_text(&mut self, name: &[u8], value: &[u8]) {
        self.push_bytes(name, String::from_utf8_lossy(value).as_bytes());
    }

    fn push_bytes(&mut self, name: &[u8], value: &[u8]) {
        self.keys.push_text(name);
        self.values.push(value);
        self.count = self.count.saturating_add(1);
    }

    fn end_message(&mut self) {
        self.offsets.extend_from_slice(&self.count.to_le_bytes());
    }
}

impl Default for Bytes {
    fn default() -> Bytes {
        Bytes { offsets: 0_u32.to_le_bytes().to_vec(), data: Vec::new() }
    }
}

impl Bytes {
    fn push(&mut self, value: &[u8]) {
        self.data.extend_from_slice(value);
        self.offsets.extend_from_slice(&super::encoding::narrow(self.data.len()).to_le_bytes());
    }

    /// Arrow takes only UTF-8 as text.
    fn push_text(&mut self, value: &[u8]) {
        self.push(String::from_utf8_lossy(value).as_bytes());
    }
}

impl Bits {
    fn push(&mut self, bit: bool) {
        if self.count % 8 == 0 {
            self.bytes.push(0);
        }
        if let Some(last) = self.bytes.last_mut() {
            *last |= u8::from(bit) << (self.count % 8);
        }
        self.count = self.count.saturating_add(1);
    }
}

impl Columns {
    /// No message yet, and room for these columns.
    pub fn of(wanted: ColumnSet) -> Columns {
        Columns { wanted, ..Columns::default() }
    }

    /// What all of it takes, about. A message of a few bytes may have a topic of tens of thousands.
    pub fn bytes(&self) -> usize {
        let Columns { topic, key, value, properties, headers, .. } = self;
        let texts = [topic, key, value, &properties.keys, &properties.values, &headers.keys, &headers.values];
        self.rows.saturating_mul(ROW_BYTES) + texts.map(|text| text.data.len()).iter().sum::<usize>()
    }

    /// The columns that are filled.
    pub fn wanted(&self) -> ColumnSet {
        self.wanted
    }

    /// Appends a message.
    pub fn push(&mut self, topic: &[u8], record: &Record<'_>) {
        self.rows = self.rows.saturating_add(1);
        let wanted = self.wanted;
        if wanted.has(ColumnSet::TOPIC) {
            self.topic.push_text(topic);
        }
        if wanted.has(ColumnSet::KEY) {
            self.has_key.push(record.key.is_some());
            self.key.push(record.key.unwrap_or_default());
        }
        if wanted.has(ColumnSet::VALUE) {
            self.value.push(record.payload);
        }
        self.push_numbers(record);
        if wanted.has(ColumnSet::EVENT_TIME) {
            push_time(&mut self.has_event_time, &mut self.event_time, record.event_time);
        }
        if wanted.has(ColumnSet::RETAIN) {
            self.retain.push(record.retain);
        }
        if wanted.has(ColumnSet::EXPIRES_AT) {
            push_time(&mut self.has_expires_at, &mut self.expires_at, record.expires_at);
        }
        if wanted.has(ColumnSet::PROPERTIES) {
            each_property(record.properties, |name, value| match name {
                Name::CorrelationData => self.properties.push_text(name.bytes(), hexadecimal(value).as_bytes()),
                _ => self.properties.push_text(name.bytes(), value),
            });
            self.properties.end_message();
        }
        if wanted.has(ColumnSet::HEADERS) {
            each_property(record.properties, |name, value| self.headers.push_bytes(name.bytes(), value));
            self.headers.end_message();
        }
    }

    fn push_numbers(&mut self, record: &Record<'_>) {
        let wanted = self.wanted;
        if wanted.has(ColumnSet::SHARD) {
            self.shard.extend_from_slice(&[0; 4]);
        }
        if wanted.has(ColumnSet::OFFSET) {
            self.offset.extend_from_slice(&record.offset.0.to_le_bytes());
        }
        if wanted.has(ColumnSet::ENTRY) {
            self.entry.extend_from_slice(&record.entry.to_le_bytes());
        }
        if wanted.has(ColumnSet::TIMESTAMP) {
            self.timestamp.extend_from_slice(&record.appended_at.0.to_le_bytes());
        }
        if wanted.has(ColumnSet::QOS) {
            self.qos.extend_from_slice(&u32::from(record.qos).to_le_bytes());
        }
        if wanted.has(ColumnSet::PUBLISHER) {
            self.has_publisher.push(record.publisher != Party(0));
            self.publisher.extend_from_slice(&u64::from(record.publisher.0).to_le_bytes());
        }
    }
}

/// What a property is called.
enum Name<'a> {
    PayloadFormatIndicator,
    ContentType,
    ResponseTopic,
    CorrelationData,
    /// As its publisher says.
    Own(&'a [u8]),
}

impl<'a> Name<'a> {
    fn bytes(&self) -> &'a [u8] {
        match self {
            Name::PayloadFormatIndicator => b"payload_format_indicator",
            Name::ContentType => b"content_type",
            Name::ResponseTopic => b"response_topic",
            Name::CorrelationData => b"correlation_data",
            Name::Own(name) => name,
        }
    }
}

/// MQTT 5 properties (section 2.2.2.2) in the order in which they came; those of the publisher's own under the names
/// that it gave. What is broken ends the list. As text, correlation data is hexadecimal: it may be any bytes.
fn each_property(properties: &[u8], mut push: impl FnMut(&Name<'_>, &[u8])) {
    let mut source = Decoder::new(properties);
    while let Some(identifier) = source.u8() {
        let found = match identifier {
            0x01 => match source.u8() {
                Some(value) => {
                    push(&Name::PayloadFormatIndicator, value.to_string().as_bytes());
                    continue;
                }
                None => None,
            },
            0x03 => field(&mut source).map(|value| (Name::ContentType, value)),
            0x08 => field(&mut source).map(|value| (Name::ResponseTopic, value)),
            0x09 => field(&mut source).map(|value| (Name::CorrelationData, value)),
            0x26 => field(&mut source).zip(field(&mut source)).map(|(name, value)| (Name::Own(name), value)),
            _ => None,
        };
        let Some((name, value)) = found else { return };
        push(&name, value);
    }
}

/// One behind the year 9999, which no calendar shows, is none: a client said it, and readers would fail over it.
fn push_time(has: &mut Bits, times: &mut Vec<u8>, time: Option<Timestamp>) {
    let time = time.filter(|time| time.0 < 253_402_300_800_000_000);
    has.push(time.is_some());
    times.extend_from_slice(&time.unwrap_or_default().0.to_le_bytes());
}

/// A string or binary field: two length bytes, most significant first (MQTT 5 section 1.5.4).
fn field<'a>(source: &mut Decoder<'a>) -> Option<&'a [u8]> {
    let size = u16::from_be_bytes([source.u8()?, source.u8()?]);
    source.take(usize::from(size))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::record::Kind;

    #[test]
    fn properties_are_read_by_name_and_broken_ones_end_the_list() {
        let mut columns = Columns::of(ColumnSet::ALL);
        let bytes =
            b"\x01\x01\x03\x00\x01c\x09\x00\x02\xff\x0a\x26\x00\x01k\x00\x01v\x26\x00\x01k\x00\x01w\x08\x00\x09";
        columns.push(b"t", &Record { properties: bytes, ..Record::plain(Kind::Message, b"x") });
        columns.push(b"u", &Record::plain(Kind::Message, b""));
        assert_eq!(columns.properties.keys.data, b"payload_format_indicatorcontent_typecorrelation_datakk");
        assert_eq!(columns.properties.values.data, b"1cff0avw");
        assert_eq!(columns.properties.offsets, [0, 0, 0, 0, 5, 0, 0, 0, 5, 0, 0, 0]);
        assert_eq!(columns.headers.keys.data, columns.properties.keys.data);
        assert_eq!(columns.headers.values.data, b"1c\xff\x0avw");
        assert_eq!((columns.rows, columns.topic.data.as_slice()), (2, b"tu".as_slice()));
    }

    #[test]
    fn what_is_not_wanted_is_not_filled() {
        let set = ColumnSet::of(&["offset", "value"]).unwrap();
        assert_eq!(set.names().collect::<Vec<_>>(), ["value", "offset"]);
        assert_eq!(ColumnSet::of(&["offset", "colour"]), None);
        let mut columns = Columns::of(set);
        columns.push(b"t", &Record { properties: b"\x03\x00\x01c", ..Record::plain(Kind::Message, b"x") });
        assert_eq!((columns.rows, columns.offset.len(), columns.value.data.len()), (1, 8, 1));
        let others = [&columns.topic.data, &columns.key.offsets, &columns.qos, &columns.timestamp];
        assert!(others.into_iter().all(|column| column.len() <= 4));
        assert!(columns.properties.keys.data.is_empty() && columns.headers.keys.data.is_empty());
    }

    #[test]
    fn bits_lie_least_significant_first() {
        let mut bits = Bits::default();
        [true, false, true, false, false, false, false, true, true].into_iter().for_each(|bit| bits.push(bit));
        assert_eq!(bits.bytes, [0b1000_0101, 1]);
    }
}
