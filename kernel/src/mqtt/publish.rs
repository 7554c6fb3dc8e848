//! PUBLISH (MQTT 5 section 3.3) without copying: where its fields are, and writing one from borrowed fields.
//!
//! This is the hot path of both directions; the other packets are in `decode` and `encode`.

use super::fault::{Decoded, Fault};
use super::kind::Kind;
use super::property::{self, put_variable, variable_bytes, Place, Value, Walk};
use super::reader::Reader;
use super::{reason_code, Role, Version};
use crate::error::{Error, Result};
use crate::limits::FAMILIAR_BYTES_MAXIMUM;
use std::ops::Range;

/// Where the fields of a PUBLISH are, counted from the byte after the fixed header.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The DUP flag.
    pub dup: bool,
    /// 0, 1 or 2.
    pub qos: u8,
    /// The RETAIN flag.
    pub retain: bool,
    /// 0 at QoS 0.
    pub packet_identifier: u16,
    /// The topic name; empty if there is a topic alias instead.
    pub topic: Range<usize>,
    /// All properties, without their length prefix.
    pub properties: Range<usize>,
    /// Where the application message begins; it goes to the end.
    pub payload: usize,
    /// What the properties say.
    pub meaning: Meaning,
}

/// What matters to the receiver among the properties of a PUBLISH.
#[derive(Clone, Debug, Default)]
pub struct Meaning {
    /// Topic Alias.
    pub topic_alias: Option<u16>,
    /// Message Expiry Interval.
    pub expiry_interval_s: Option<u32>,
    /// The properties that travel with the message, where they stand side by side: counted from the properties' start.
    pub forwarded: Range<usize>,
    /// True if others stand between them, so that they have to be gathered one by one.
    pub scattered: bool,
}

/// The last properties of a connection that have been read, with what they mean: the next ones often are the same.
#[derive(Debug, Default)]
pub struct Familiar {
    bytes: Vec<u8>,
    meaning: Meaning,
}

impl Familiar {
    /// What properties mean, of which there are some.
    fn read(&mut self, bytes: &[u8], role: Role) -> Decoded<Meaning> {
        if self.bytes != bytes {
            self.meaning = Meaning::read(bytes, role)?;
            let kept = if bytes.len() > FAMILIAR_BYTES_MAXIMUM { &[] } else { bytes };
            kept.clone_into(&mut self.bytes);
        }
        Ok(self.meaning.clone())
    }
}

impl Layout {
    /// Reads the header of the PUBLISH whose fixed header had these `flags`.
    #[inline]
    pub fn read(flags: u8, body: &[u8], version: Version, role: Role, familiar: &mut Familiar) -> Decoded<Layout> {
        let dup = flags & 0b1000 != 0;
        let qos = (flags >> 1) & 0b11;
        if qos == 3 {
            return Err(Fault::malformed("a PUBLISH with QoS 3 [MQTT-3.3.1-4]"));
        }
        if dup && qos == 0 {
            return Err(Fault::malformed("a PUBLISH with DUP at QoS 0 [MQTT-3.3.1-2]"));
        }
        let mut reader = Reader::new(body);
        let name = reader.binary()?;
        if !is_plain_name(name) {
            refuse_name(name)?;
        }
        let packet_identifier = if qos == 0 { 0 } else { reader.two_bytes()? };
        if qos != 0 && packet_identifier == 0 {
            return Err(Fault::protocol("a PUBLISH with packet identifier 0 [MQTT-2.2.1-3]"));
        }
        let (properties, meaning) = if version == Version::V5 {
            let size = usize::try_from(reader.variable()?).unwrap_or(usize::MAX);
            let start = body.len() - reader.rest().len();
            let bytes = reader.take(size)?;
            let meaning = if size == 0 { Meaning::default() } else { familiar.read(bytes, role)? };
            (start..start + size, meaning)
        } else {
            (0..0, Meaning::default())
        };
        if name.is_empty() && meaning.topic_alias.is_none() {
            return Err(Fault::protocol("a PUBLISH without topic name and topic alias [MQTT-4.7.3-1]"));
        }
        let payload = body.len() - reader.rest().len();
        let retain = flags & 1 != 0;
        Ok(Layout { dup, qos, retain, packet_identifier, topic: 2..2 + name.len(), properties, payload, meaning })
    }
}

impl Meaning {
    fn read(bytes: &[u8], role: Role) -> Decoded<Meaning> {
        let mut meaning = Meaning::default();
        let mut at = 0;
        let mut walk = Walk::new(bytes, Place::Packet(Kind::Publish), role);
        while let Some(item) = walk.step()? {
            let end = at + item.bytes.len();
            match item.value {
                Value::Number(number) if item.property.identifier == property::MESSAGE_EXPIRY_INTERVAL => {
                    meaning.expiry_interval_s = Some(number);
                }
                Value::Number(number) if item.property.identifier == property::TOPIC_ALIAS => {
                    meaning.topic_alias = u16::try_from(number).ok();
                }
                _ if !item.property.is_forwarded() => {}
                _ if meaning.forwarded.is_empty() => meaning.forwarded = at..end,
                _ if meaning.forwarded.end == at => meaning.forwarded.end = end,
                _ => meaning.scattered = true,
            }
            at = end;
        }
        Ok(meaning)
    }
}

/// The properties among `bytes` that travel with the message, side by side.
pub fn gathered(bytes: &[u8], role: Role) -> Vec<u8> {
    let mut kept = Vec::with_capacity(bytes.len());
    let mut walk = Walk::new(bytes, Place::Packet(Kind::Publish), role);
    while let Ok(Some(item)) = walk.step() {
        if item.property.is_forwarded() {
            kept.extend_from_slice(item.bytes);
        }
    }
    kept
}

/// True if every byte is ASCII and none needs a second look. Without branches, so that it runs on many bytes at once.
#[inline]
fn is_plain_name(name: &[u8]) -> bool {
    !name.iter().fold(false, |odd, &byte| odd | (byte == 0) | (byte >= 0x80) | (byte == b'+') | (byte == b'#'))
}

#[cold]
fn refuse_name(name: &[u8]) -> Decoded<()> {
    if name.contains(&0) {
        return Err(Fault::malformed("a topic name with U+0000 [MQTT-1.5.4-2]"));
    }
    if std::str::from_utf8(name).is_err() {
        return Err(Fault::malformed("a topic name that is not UTF-8 [MQTT-1.5.4-1]"));
    }
    if name.iter().any(|byte| matches!(byte, b'+' | b'#')) {
        return Err(Fault::new(reason_code::TOPIC_NAME_INVALID, "a topic name with a wildcard [MQTT-3.3.2-2]"));
    }
    Ok(())
}

/// A PUBLISH to write.
#[derive(Clone, Copy, Debug)]
pub struct Writing<'a> {
    /// The DUP flag.
    pub dup: bool,
    /// 0, 1 or 2.
    pub qos: u8,
    /// The RETAIN flag.
    pub retain: bool,
    /// Left out at QoS 0.
    pub packet_identifier: u16,
    /// The topic name.
    pub topic: &'a [u8],
    /// The application message.
    pub payload: &'a [u8],
    /// What MQTT 5 adds; `None` for older versions.
    pub properties: Option<WritingProperties<'a>>,
}

/// The properties of a PUBLISH to write.
#[derive(Clone, Copy, Debug, Default)]
pub struct WritingProperties<'a> {
    /// Topic Alias.
    pub topic_alias: Option<u16>,
    /// Message Expiry Interval.
    pub expiry_interval_s: Option<u32>,
    /// Further properties in their encoding.
    pub encoded: &'a [u8],
    /// Subscription Identifiers.
    pub identifiers: &'a [u32],
}

impl WritingProperties<'_> {
    fn size_bytes(&self) -> usize {
        let expiry = if self.expiry_interval_s.is_some() { 5 } else { 0 };
        let identifiers: usize = self.identifiers.iter().map(|identifier| 1 + variable_bytes(wide(*identifier))).sum();
        let alias = if self.topic_alias.is_some() { 3 } else { 0 };
        alias + expiry + self.encoded.len() + identifiers
    }

    fn write(&self, bytes: &mut Vec<u8>) -> Result<()> {
        put_variable(bytes, self.size_bytes())?;
        if let Some(alias) = self.topic_alias {
            bytes.push(property::TOPIC_ALIAS);
            bytes.extend_from_slice(&alias.to_be_bytes());
        }
        if let Some(interval) = self.expiry_interval_s {
            bytes.push(property::MESSAGE_EXPIRY_INTERVAL);
            bytes.extend_from_slice(&interval.to_be_bytes());
        }
        bytes.extend_from_slice(self.encoded);
        for identifier in self.identifiers {
            bytes.push(property::SUBSCRIPTION_IDENTIFIER);
            put_variable(bytes, wide(*identifier))?;
        }
        Ok(())
    }
}

impl<'a> Writing<'a> {
    /// The same packet with a topic alias, and `topic` as its name. MQTT 5 only.
    pub fn with_alias(&self, alias: u16, topic: &'a [u8]) -> Writing<'a> {
        let properties = self.properties.map(|rest| WritingProperties { topic_alias: Some(alias), ..rest });
        Writing { topic, properties, ..*self }
    }

    /// The same packet with these properties in place of its own.
    pub fn with_encoded(&self, encoded: &'a [u8]) -> Writing<'a> {
        let properties = self.properties.map(|rest| WritingProperties { encoded, ..rest });
        Writing { properties, ..*self }
    }

    /// Its Remaining Length.
    #[inline]
    fn remaining_bytes(&self) -> usize {
        let identifier = if self.qos == 0 { 0 } else { 2 };
        let properties = self.properties.map_or(0, |properties| {
            let size = properties.size_bytes();
            variable_bytes(size) + size
        });
        2 + self.topic.len() + identifier + properties + self.payload.len()
    }

    /// The size of the whole packet, which the receiver's Maximum Packet Size limits.
    #[inline]
    pub fn size_bytes(&self) -> usize {
        let remaining = self.remaining_bytes();
        1 + variable_bytes(remaining) + remaining
    }

    /// Appends the packet to `bytes`; leaves them alone if it cannot be written.
    #[inline]
    pub fn write(&self, bytes: &mut Vec<u8>) -> Result<()> {
        let before = bytes.len();
        let written = self.write_fields(bytes);
        if written.is_err() {
            bytes.truncate(before);
        }
        written
    }

    #[inline]
    fn write_fields(&self, bytes: &mut Vec<u8>) -> Result<()> {
        let topic_bytes = u16::try_from(self.topic.len())
            .map_err(|_| Error::Invalid(format!("a topic name of {} bytes", self.topic.len())))?;
        bytes.push(0x30 | u8::from(self.dup) << 3 | (self.qos & 0b11) << 1 | u8::from(self.retain));
        put_variable(bytes, self.remaining_bytes())?;
        bytes.extend_from_slice(&topic_bytes.to_be_bytes());
        bytes.extend_from_slice(self.topic);
        if self.qos != 0 {
            bytes.extend_from_slice(&self.packet_identifier.to_be_bytes());
        }
        if let Some(properties) = &self.properties {
            properties.write(bytes)?;
        }
        bytes.extend_from_slice(self.payload);
        Ok(())
    }
}

fn wide(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
