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

/// Messages as columns, in Arrow's layout.
#[derive(Debug)]
pub struct Columns {
    /// How many messages.
    pub rows: usize,
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
    /// How many properties come before those of each message, 32 bit.
    pub property_offsets: Vec<u8>,
    /// Names of properties.
    pub property_keys: Bytes,
    /// Values of properties.
    pub property_values: Bytes,
    properties: u32,
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
        match String::from_utf8_lossy(value) {
            std::borrow::Cow::Borrowed(text) => self.push(text.as_bytes()),
            std::borrow::Cow::Owned(text) => self.push(text.as_bytes()),
        }
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

impl Default for Columns {
    fn default() -> Columns {
        Columns {
            rows: 0,
            topic: Bytes::default(),
            has_key: Bits::default(),
            key: Bytes::default(),
            value: Bytes::default(),
            shard: Vec::new(),
            offset: Vec::new(),
            entry: Vec::new(),
            timestamp: Vec::new(),
            has_event_time: Bits::default(),
            event_time: Vec::new(),
            qos: Vec::new(),
            retain: Bits::default(),
            has_publisher: Bits::default(),
            publisher: Vec::new(),
            has_expires_at: Bits::default(),
            expires_at: Vec::new(),
            property_offsets: 0_u32.to_le_bytes().to_vec(),
            property_keys: Bytes::default(),
            property_values: Bytes::default(),
            properties: 0,
        }
    }
}

impl Columns {
    /// Appends a message.
    pub fn push(&mut self, topic: &[u8], record: &Record<'_>) {
        self.rows = self.rows.saturating_add(1);
        self.topic.push_text(topic);
        self.has_key.push(record.key.is_some());
        self.key.push(record.key.unwrap_or_default());
        self.value.push(record.payload);
        self.shard.extend_from_slice(&[0; 4]);
        self.offset.extend_from_slice(&record.offset.0.to_le_bytes());
        self.entry.extend_from_slice(&record.entry.to_le_bytes());
        self.timestamp.extend_from_slice(&record.appended_at.0.to_le_bytes());
        push_time(&mut self.has_event_time, &mut self.event_time, record.event_time);
        self.qos.extend_from_slice(&u32::from(record.qos).to_le_bytes());
        self.retain.push(record.retain);
        self.has_publisher.push(record.publisher != Party(0));
        self.publisher.extend_from_slice(&u64::from(record.publisher.0).to_le_bytes());
        push_time(&mut self.has_expires_at, &mut self.expires_at, record.expires_at);
        self.push_properties(record.properties);
        self.property_offsets.extend_from_slice(&self.properties.to_le_bytes());
    }

    /// MQTT 5 properties (section 2.2.2.2) by name; those of the publisher's own under the names that it gave.
    /// Correlation data may be any bytes and is shown in hexadecimal.
    fn push_properties(&mut self, properties: &[u8]) {
        let mut source = Decoder::new(properties);
        while let Some(identifier) = source.u8() {
            let pushed = match identifier {
                0x01 => source
                    .u8()
                    .map(|value| self.push_property(b"payload_format_indicator", value.to_string().as_bytes())),
                0x03 => field(&mut source).map(|value| self.push_property(b"content_type", value)),
                0x08 => field(&mut source).map(|value| self.push_property(b"response_topic", value)),
                0x09 => field(&mut source)
                    .map(|value| self.push_property(b"correlation_data", hexadecimal(value).as_bytes())),
                0x26 => field(&mut source).zip(field(&mut source)).map(|(name, value)| self.push_property(name, value)),
                _ => None,
            };
            if pushed.is_none() {
                break;
            }
        }
    }

    fn push_property(&mut self, name: &[u8], value: &[u8]) {
        self.property_keys.push_text(name);
        self.property_values.push_text(value);
        self.properties = self.properties.saturating_add(1);
    }
}

fn push_time(has: &mut Bits, times: &mut Vec<u8>, time: Option<Timestamp>) {
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
        let mut columns = Columns::default();
        let bytes =
            b"\x01\x01\x03\x00\x01c\x09\x00\x02\xff\x0a\x26\x00\x01k\x00\x01v\x26\x00\x01k\x00\x01w\x08\x00\x09";
        columns.push(b"t", &Record { properties: bytes, ..Record::plain(Kind::Message, b"x") });
        columns.push(b"u", &Record::plain(Kind::Message, b""));
        assert_eq!(columns.property_keys.data, b"payload_format_indicatorcontent_typecorrelation_datakk");
        assert_eq!(columns.property_values.data, b"1cff0avw");
        assert_eq!(columns.property_offsets, [0, 0, 0, 0, 5, 0, 0, 0, 5, 0, 0, 0]);
        assert_eq!((columns.rows, columns.topic.data.as_slice()), (2, b"tu".as_slice()));
    }

    #[test]
    fn bits_lie_least_significant_first() {
        let mut bits = Bits::default();
        [true, false, true, false, false, false, false, true, true].into_iter().for_each(|bit| bits.push(bit));
        assert_eq!(bits.bytes, [0b1000_0101, 1]);
    }
}
