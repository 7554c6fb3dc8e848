//! What stands for what: the properties of an entry's message, and those that travel with a message.
//!
//! Owns: the names that are reserved for what only one of the two has. Never: an order other than the one it finds.
//!
//! Invariants:
//! 1. What travels with a message comes back from an entry as it was, in order and with names that repeat.
//! 2. A reserved name whose value cannot be what it stands for is a property like any other. What cannot be written as
//!    a property of the other kind is left out.

use super::base64;
use crate::limits::{FIELD_BYTES_MAXIMUM, USER_PROPERTIES_MAXIMUM};
use crate::protobuf::{put_bytes, put_message};
use crate::topic;

const PAYLOAD_FORMAT_INDICATOR: u8 = 0x01;
const CONTENT_TYPE: u8 = 0x03;
const RESPONSE_TOPIC: u8 = 0x08;
const CORRELATION_DATA: u8 = 0x09;
const USER_PROPERTY: u8 = 0x26;
/// Stands for no property: the RETAIN flag.
const RETAIN: u8 = 0;

/// The names of properties of an entry's message that stand for something else, in the order in which that is written.
const RESERVED: [(&[u8], u8); 5] = [
    (b"mqtt-payload-format-indicator", PAYLOAD_FORMAT_INDICATOR),
    (b"mqtt-content-type", CONTENT_TYPE),
    (b"mqtt-response-topic", RESPONSE_TOPIC),
    (b"mqtt-correlation-data", CORRELATION_DATA),
    (b"mqtt-retain", RETAIN),
];

/// The field of metadata that a property is.
const PROPERTY: u32 = 4;

/// What a message of an entry has besides its properties.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Besides<'a> {
    /// Its key, as a text.
    pub key: Option<&'a [u8]>,
    /// When what it tells happened.
    pub event_time_ms: Option<u64>,
    /// It has no value.
    pub is_null: bool,
}

/// Appends what travels with a message for the properties of one of an entry's; true if it has the RETAIN flag.
pub(super) fn put_travelling<'a>(
    properties: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    besides: &Besides<'_>,
    into: &mut Vec<u8>,
) -> bool {
    let mut retain = false;
    let mut consumed = [None; RESERVED.len()];
    if properties.clone().any(|(name, _)| name.starts_with(b"mqtt-")) {
        for ((name, identifier), consumed) in RESERVED.iter().zip(&mut consumed) {
            let mut of_name = properties.clone().enumerate().filter(|(_, (other, _))| other == name);
            if let Some((index, (_, value))) = of_name.next().filter(|(_, (_, value))| put(*identifier, value, into)) {
                *consumed = Some(index);
                retain |= *identifier == RETAIN && value == b"true";
            }
        }
    }
    let others = properties.enumerate().filter(|(index, _)| !consumed.contains(&Some(*index)));
    let mut left = USER_PROPERTIES_MAXIMUM;
    let mut put_user = |name: &[u8], value: &[u8]| {
        if left > 0 && is_text(name) && is_text(value) {
            left -= 1;
            into.push(USER_PROPERTY);
            put_field(name, into);
            put_field(value, into);
        }
    };
    others.for_each(|(_, (name, value))| put_user(name, value));
    if let Some(key) = besides.key {
        put_user(b"pulsar-key", key);
    }
    if let Some(time) = besides.event_time_ms {
        put_user(b"pulsar-event-time", time.to_string().as_bytes());
    }
    if besides.is_null {
        put_user(b"pulsar-null-value", b"true");
    }
    retain
}

/// Appends what a reserved name stands for; false, and nothing is appended, if its value is none.
fn put(identifier: u8, value: &[u8], into: &mut Vec<u8>) -> bool {
    match identifier {
        RETAIN => return value == b"true",
        PAYLOAD_FORMAT_INDICATOR if value == b"0" || value == b"1" => {
            into.extend_from_slice(&[identifier, u8::from(value == b"1")]);
        }
        CONTENT_TYPE if is_text(value) => {
            into.push(identifier);
            put_field(value, into);
        }
        RESPONSE_TOPIC if topic::is_valid_name(value) => {
            into.push(identifier);
            put_field(value, into);
        }
        CORRELATION_DATA => {
            let Some(data) = base64::decode(value).filter(|data| data.len() <= FIELD_BYTES_MAXIMUM) else {
                return false;
            };
            into.push(identifier);
            put_field(&data, into);
        }
        _ => return false,
    }
    true
}

/// Appends the fields of metadata for what travels with a message.
pub(super) fn put_fields(mut travelling: &[u8], retain: bool, into: &mut Vec<u8>) {
    while let Some((identifier, first, second)) = take(&mut travelling) {
        let reserved = RESERVED.iter().find(|(_, other)| *other == identifier).map(|(name, _)| *name);
        match (identifier, reserved) {
            (USER_PROPERTY, _) => put_property(first, second, into),
            (PAYLOAD_FORMAT_INDICATOR, Some(name)) => {
                put_property(name, if first == [1] { b"1" } else { b"0" }, into);
            }
            (CORRELATION_DATA, Some(name)) => put_property(name, base64::encode(first).as_bytes(), into),
            (_, Some(name)) => put_property(name, first, into),
            _ => {}
        }
    }
    if retain {
        put_property(b"mqtt-retain", b"true", into);
    }
}

/// Takes the first of what travels: its identifier, its value, and for a pair the second value.
fn take<'a>(travelling: &mut &'a [u8]) -> Option<(u8, &'a [u8], &'a [u8])> {
    let (identifier, rest) = travelling.split_first()?;
    let (first, mut rest) = match *identifier {
        PAYLOAD_FORMAT_INDICATOR => rest.split_at_checked(1)?,
        _ => split_field(rest)?,
    };
    let mut second = [].as_slice();
    if *identifier == USER_PROPERTY {
        (second, rest) = split_field(rest)?;
    }
    *travelling = rest;
    Some((*identifier, first, second))
}

/// A value behind its two length bytes, and what follows it.
fn split_field(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (size, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*size)))
}

/// Appends a value of at most 65 535 bytes behind its two length bytes.
fn put_field(value: &[u8], into: &mut Vec<u8>) {
    into.extend_from_slice(&u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes());
    into.extend_from_slice(value);
}

fn put_property(name: &[u8], value: &[u8], into: &mut Vec<u8>) {
    put_message(into, PROPERTY, |into| {
        put_bytes(into, 1, name);
        put_bytes(into, 2, value);
    });
}

/// True if a value may be a text that travels with a message.
pub(super) fn is_text(value: &[u8]) -> bool {
    value.len() <= FIELD_BYTES_MAXIMUM && !value.contains(&0) && std::str::from_utf8(value).is_ok()
}
