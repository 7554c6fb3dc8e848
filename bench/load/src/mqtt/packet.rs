//! The part of MQTT 3.1.1 that a load generator speaks: frames are made once and stamped, packets are scanned in place.
//!
//! Owns: the bytes of each packet that is sent, and the reading of each that is received.
//! Never: allocates for a packet that it reads, or judges whether a packet may come now.

use crate::shape::{Shape, PAYLOAD_BYTES_MAXIMUM};
use crate::stamp::{Stamp, STAMP_BYTES};
use std::fmt;

/// The largest packet that is read: anything larger was not published by this generator.
pub const PACKET_BYTES_MAXIMUM: usize = 2 * PAYLOAD_BYTES_MAXIMUM;

/// Digits of a topic's number.
const NUMBER_DIGITS: usize = 7;

/// Topics that one publisher takes in turn: their numbers have seven digits.
pub const TOPICS_MAXIMUM: u64 = 10_000_000;

/// The acknowledgement to send for one packet identifier (all four have the same shape).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Ends QoS 1.
    Puback,
    /// The first answer at QoS 2.
    Pubrec,
    /// The publisher's second word at QoS 2.
    Pubrel,
    /// Ends QoS 2.
    Pubcomp,
}

impl Reply {
    const fn first_byte(self) -> u8 {
        match self {
            Self::Puback => 0x40,
            Self::Pubrec => 0x50,
            Self::Pubrel => 0x62, // Its reserved flags are 0010. [MQTT-3.6.1-1]
            Self::Pubcomp => 0x70,
        }
    }

    /// Appends the packet to what will be written.
    pub fn encode(self, packet_identifier: u16, outbox: &mut Vec<u8>) {
        let [high, low] = packet_identifier.to_be_bytes();
        outbox.extend_from_slice(&[self.first_byte(), 2, high, low]);
    }
}

/// What a broker sent, with the payload still where it was read.
#[derive(Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// CONNACK and its return code.
    Connack(u8),
    /// SUBACK and its first return code.
    Suback(u8),
    /// PUBLISH; the identifier is 0 at QoS 0.
    Publish { qos: u8, packet_identifier: u16, payload: &'a [u8] },
    /// PUBACK, PUBREC, PUBREL or PUBCOMP.
    Reply(Reply, u16),
}

/// Why the bytes of a broker cannot be understood.
#[derive(Debug, PartialEq, Eq)]
pub enum PacketError {
    /// A Remaining Length beyond what this generator could have caused.
    Length,
    /// A packet that a broker never sends, or that this generator never asks for.
    Unexpected(u8),
    /// A packet shorter than its own fields.
    Short(u8),
}

impl fmt::Display for PacketError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length => write!(formatter, "a packet larger than any that was published"),
            Self::Unexpected(first) => write!(formatter, "an unexpected packet (first byte {first:#04x})"),
            Self::Short(first) => write!(formatter, "a packet shorter than its fields (first byte {first:#04x})"),
        }
    }
}

/// Reads the Remaining Length behind the first byte: its value and the size of the whole header, or nothing yet.
fn remaining_length(buffer: &[u8]) -> Result<Option<(usize, usize)>, PacketError> {
    let mut value = 0;
    for index in 1..5 {
        let Some(&byte) = buffer.get(index) else { return Ok(None) };
        value |= usize::from(byte & 0x7f) << (7 * (index - 1));
        if value > PACKET_BYTES_MAXIMUM {
            return Err(PacketError::Length);
        }
        if byte < 0x80 {
            return Ok(Some((value, index + 1)));
        }
    }
    Err(PacketError::Length)
}

/// The first packet of `buffer` and how many bytes it takes; nothing if it is not whole yet.
pub fn scan(buffer: &[u8]) -> Result<Option<(Packet<'_>, usize)>, PacketError> {
    let Some(&first) = buffer.first() else { return Ok(None) };
    let Some((length, header)) = remaining_length(buffer)? else { return Ok(None) };
    let Some(body) = buffer.get(header..header + length) else { return Ok(None) };
    let packet = match first >> 4 {
        3 => decode_publish(first, body)?,
        2 => Packet::Connack(byte(first, body, 1)?),
        9 => Packet::Suback(byte(first, body, 2)?),
        4 => Packet::Reply(Reply::Puback, number(first, body, 0)?),
        5 => Packet::Reply(Reply::Pubrec, number(first, body, 0)?),
        6 => Packet::Reply(Reply::Pubrel, number(first, body, 0)?),
        7 => Packet::Reply(Reply::Pubcomp, number(first, body, 0)?),
        _ => return Err(PacketError::Unexpected(first)),
    };
    Ok(Some((packet, header + length)))
}

fn decode_publish(first: u8, body: &[u8]) -> Result<Packet<'_>, PacketError> {
    let qos = (first >> 1) & 3;
    let mut at = 2 + usize::from(number(first, body, 0)?);
    let mut packet_identifier = 0;
    if qos > 0 {
        packet_identifier = number(first, body, at)?;
        at += 2;
    }
    let payload = body.get(at..).ok_or(PacketError::Short(first))?;
    Ok(Packet::Publish { qos, packet_identifier, payload })
}

fn byte(first: u8, body: &[u8], at: usize) -> Result<u8, PacketError> {
    body.get(at).copied().ok_or(PacketError::Short(first))
}

fn number(first: u8, body: &[u8], at: usize) -> Result<u16, PacketError> {
    match body.get(at..at + 2) {
        Some(&[high, low]) => Ok(u16::from_be_bytes([high, low])),
        _ => Err(PacketError::Short(first)),
    }
}

/// Appends a length and the bytes of a string. Names are made here and are always short.
fn encode_string(text: &str, into: &mut Vec<u8>) {
    into.extend_from_slice(&(text.len() as u16).to_be_bytes());
    into.extend_from_slice(text.as_bytes());
}

fn encode_frame(first: u8, body: &[u8], into: &mut Vec<u8>) {
    into.push(first);
    let mut rest = body.len();
    while rest >= 0x80 {
        into.push(0x80 | (rest & 0x7f) as u8);
        rest >>= 7;
    }
    into.push(rest as u8);
    into.extend_from_slice(body);
}

/// Appends CONNECT without keep-alive: a benchmark's silence is not a failure.
pub fn encode_connect(client_identifier: &str, clean_session: bool, outbox: &mut Vec<u8>) {
    let mut body = Vec::new();
    encode_string("MQTT", &mut body);
    body.extend_from_slice(&[4, u8::from(clean_session) << 1, 0, 0]);
    encode_string(client_identifier, &mut body);
    encode_frame(0x10, &body, outbox);
}

/// Appends SUBSCRIBE of some filters.
pub fn encode_subscribe(topic_filters: &[String], qos: u8, outbox: &mut Vec<u8>) {
    let mut body = vec![0, 1];
    for topic_filter in topic_filters {
        encode_string(topic_filter, &mut body);
        body.push(qos);
    }
    encode_frame(0x82, &body, outbox);
}

/// Appends DISCONNECT.
pub fn encode_disconnect(outbox: &mut Vec<u8>) {
    outbox.extend_from_slice(&[0xe0, 0]);
}

/// A PUBLISH that was encoded once; each message is a copy of it with its own identifier and stamp.
pub struct Frame {
    publisher: u32,
    bytes: Vec<u8>,
    identifier_at: Option<usize>,
    stamp_at: usize,
    topics: u64,
    /// Where the topic's last level stands, the number of the topic.
    number_at: Option<usize>,
}

impl Frame {
    /// Encodes PUBLISH as `shape` says, from `publisher`.
    pub fn new(shape: Shape<'_>, publisher: u32) -> Self {
        let Shape { topic, topics, qos, retain, payload_bytes, .. } = shape;
        let payload_bytes = payload_bytes.max(STAMP_BYTES);
        let mut body = Vec::new();
        if topics > 1 {
            encode_string(&format!("{topic}/{:0NUMBER_DIGITS$}", 0), &mut body);
        } else {
            encode_string(topic, &mut body);
        }
        if qos > 0 {
            body.extend_from_slice(&[0, 0]);
        }
        body.resize(body.len() + payload_bytes, b'.');
        let mut bytes = Vec::new();
        encode_frame(0x30 | (qos << 1) | u8::from(retain), &body, &mut bytes);
        let stamp_at = bytes.len() - payload_bytes;
        let topic_end = if qos > 0 { stamp_at - 2 } else { stamp_at };
        Self {
            publisher,
            bytes,
            identifier_at: (qos > 0).then_some(topic_end),
            stamp_at,
            topics,
            number_at: (topics > 1).then(|| topic_end - NUMBER_DIGITS),
        }
    }

    /// The size of one message on the wire.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Appends one message. The identifier is ignored at QoS 0.
    pub fn encode(&mut self, packet_identifier: u16, number: u64, sent_ns: u64, outbox: &mut Vec<u8>) {
        if let Some(at) = self.identifier_at {
            self.bytes[at..at + 2].copy_from_slice(&packet_identifier.to_be_bytes());
        }
        if let Some(at) = self.number_at {
            let mut rest = number % self.topics;
            for digit in self.bytes[at..at + NUMBER_DIGITS].iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
        }
        let stamp = Stamp { publisher: self.publisher, number, sent_ns };
        self.bytes[self.stamp_at..self.stamp_at + STAMP_BYTES].copy_from_slice(&stamp.encode());
        outbox.extend_from_slice(&self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(qos: u8) -> Shape<'static> {
        Shape { topic: "bench/7", topics: 1, qos, retain: false, payload_bytes: 64, batch: 0 }
    }

    #[test]
    fn a_message_reads_back_at_each_qos_and_size() {
        for qos in 0..3 {
            for size in [STAMP_BYTES, 64, 127, 128, 1_024, PAYLOAD_BYTES_MAXIMUM] {
                let mut frame = Frame::new(Shape { payload_bytes: size, ..shape(qos) }, 7);
                let mut outbox = Vec::new();
                frame.encode(513, 1 << 40, 99, &mut outbox);
                let (packet, used) = scan(&outbox).unwrap().unwrap();
                assert_eq!((used, frame.size_bytes()), (outbox.len(), outbox.len()));
                let Packet::Publish { qos: read, packet_identifier, payload } = packet else { panic!("{packet:?}") };
                assert_eq!((read, packet_identifier), (qos, if qos > 0 { 513 } else { 0 }));
                assert_eq!(payload.len(), size);
                let stamp = Stamp { publisher: 7, number: 1 << 40, sent_ns: 99 };
                assert_eq!(Stamp::decode(payload), Some(stamp));
            }
        }
    }

    #[test]
    fn topics_are_taken_in_turn_and_retained_where_asked() {
        let mut frame = Frame::new(Shape { topics: 12, retain: true, ..shape(1) }, 7);
        for (number, topic) in [(0, "bench/7/0000000"), (11, "bench/7/0000011"), (25, "bench/7/0000001")] {
            let mut outbox = Vec::new();
            frame.encode(1, number, 0, &mut outbox);
            assert_eq!((outbox[0], outbox[3]), (0x33, 15));
            assert_eq!(&outbox[4..19], topic.as_bytes());
        }
    }

    #[test]
    fn replies_read_back() {
        for reply in [Reply::Puback, Reply::Pubrec, Reply::Pubrel, Reply::Pubcomp] {
            let mut outbox = Vec::new();
            reply.encode(258, &mut outbox);
            assert_eq!(scan(&outbox), Ok(Some((Packet::Reply(reply, 258), 4))));
        }
    }

    #[test]
    fn a_packet_that_is_not_whole_is_not_yet_a_packet() {
        let mut outbox = Vec::new();
        Frame::new(Shape { payload_bytes: 300, ..shape(1) }, 0).encode(1, 0, 0, &mut outbox);
        for end in 0..outbox.len() {
            assert_eq!(scan(&outbox[..end]), Ok(None), "cut at {end}");
        }
    }

    #[test]
    fn answers_to_connect_and_subscribe_carry_their_codes() {
        assert_eq!(scan(&[0x20, 2, 1, 5]), Ok(Some((Packet::Connack(5), 4))));
        assert_eq!(scan(&[0x90, 3, 0, 1, 0x80]), Ok(Some((Packet::Suback(0x80), 5))));
    }

    #[test]
    fn nonsense_is_an_error() {
        assert_eq!(scan(&[0x30, 0xff, 0xff, 0xff, 0xff, 1]), Err(PacketError::Length));
        assert_eq!(scan(&[0x10, 0]), Err(PacketError::Unexpected(0x10)));
        assert_eq!(scan(&[0x40, 1, 0]), Err(PacketError::Short(0x40)));
        assert_eq!(scan(&[0x32, 3, 0, 1, b'a']), Err(PacketError::Short(0x32)));
    }

    #[test]
    fn connect_and_subscribe_are_as_the_specification_draws_them() {
        let mut outbox = Vec::new();
        encode_connect("a", true, &mut outbox);
        assert_eq!(outbox, b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01a");
        outbox.clear();
        encode_subscribe(&["b/#".into()], 2, &mut outbox);
        assert_eq!(outbox, b"\x82\x08\x00\x01\x00\x03b/#\x02");
    }
}
