//! Properties (MQTT 5 section 2.2.2): which there are, what they hold, where they may stand.

use super::fault::{Decoded, Fault};
use super::kind::Kind;
use super::reader::Reader;
use super::{reason_code, Role};
use crate::error::{Error, Result};
use crate::limits::{
    FIELD_BYTES_MAXIMUM, REMAINING_LENGTH_MAXIMUM, USER_PROPERTIES_ADDED_MAXIMUM, USER_PROPERTIES_MAXIMUM,
};

/// How a property's value is written.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A byte that is 0 or 1.
    Flag,
    TwoBytes,
    FourBytes,
    Variable,
    Text,
    Binary,
    /// Two strings; the one property that may come more than once in any packet.
    Pair,
}

/// Which packets a property may stand in: one bit for each packet type; bit 0 stands for the Will.
type Places = u16;

const WILL: Places = 1;
const CONNECT: Places = 1 << 1;
const CONNACK: Places = 1 << 2;
const PUBLISH: Places = 1 << 3;
const ACKNOWLEDGEMENTS: Places = 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7;
const SUBSCRIBE: Places = 1 << 8;
const ANSWERS: Places = 1 << 9 | 1 << 11;
const UNSUBSCRIBE: Places = 1 << 10;
const DISCONNECT: Places = 1 << 14;
const AUTH: Places = 1 << 15;
const MESSAGE: Places = PUBLISH | WILL;
const ALL: Places =
    MESSAGE | CONNECT | CONNACK | ACKNOWLEDGEMENTS | SUBSCRIBE | ANSWERS | UNSUBSCRIBE | DISCONNECT | AUTH;

/// A property that the specification defines.
#[derive(Debug, PartialEq, Eq)]
pub struct Property {
    /// Its identifier.
    pub identifier: u8,
    /// Its name in the specification, in snake case.
    pub name: &'static str,
    /// How its value is written.
    pub form: Form,
    places: Places,
    /// The smallest value of a number. A value of 0 is a protocol error where it is 1.
    minimum: u32,
}

const fn property(identifier: u8, name: &'static str, form: Form, places: Places) -> Property {
    Property { identifier, name, form, places, minimum: 0 }
}

const fn not_zero(identifier: u8, name: &'static str, form: Form, places: Places) -> Property {
    Property { identifier, name, form, places, minimum: 1 }
}

/// Message Expiry Interval.
pub const MESSAGE_EXPIRY_INTERVAL: u8 = 0x02;
/// Subscription Identifier.
pub const SUBSCRIPTION_IDENTIFIER: u8 = 0x0B;
/// Topic Alias.
pub const TOPIC_ALIAS: u8 = 0x23;
/// User Property.
pub const USER_PROPERTY: u8 = 0x26;
const RESPONSE_TOPIC: u8 = 0x08;
const SESSION_EXPIRY_INTERVAL: u8 = 0x11;
const AUTHENTICATION_METHOD: u8 = 0x15;
const AUTHENTICATION_DATA: u8 = 0x16;

/// Table 2-4 of the specification.
pub static PROPERTIES: [Property; 27] = [
    property(0x01, "payload_format_indicator", Form::Flag, MESSAGE),
    property(MESSAGE_EXPIRY_INTERVAL, "message_expiry_interval", Form::FourBytes, MESSAGE),
    property(0x03, "content_type", Form::Text, MESSAGE),
    property(RESPONSE_TOPIC, "response_topic", Form::Text, MESSAGE),
    property(0x09, "correlation_data", Form::Binary, MESSAGE),
    not_zero(SUBSCRIPTION_IDENTIFIER, "subscription_identifier", Form::Variable, PUBLISH | SUBSCRIBE),
    property(SESSION_EXPIRY_INTERVAL, "session_expiry_interval", Form::FourBytes, CONNECT | CONNACK | DISCONNECT),
    property(0x12, "assigned_client_identifier", Form::Text, CONNACK),
    property(0x13, "server_keep_alive", Form::TwoBytes, CONNACK),
    property(AUTHENTICATION_METHOD, "authentication_method", Form::Text, CONNECT | CONNACK | AUTH),
    property(AUTHENTICATION_DATA, "authentication_data", Form::Binary, CONNECT | CONNACK | AUTH),
    property(0x17, "request_problem_information", Form::Flag, CONNECT),
    property(0x18, "will_delay_interval", Form::FourBytes, WILL),
    property(0x19, "request_response_information", Form::Flag, CONNECT),
    property(0x1A, "response_information", Form::Text, CONNACK),
    property(0x1C, "server_reference", Form::Text, CONNACK | DISCONNECT),
    property(0x1F, "reason_string", Form::Text, CONNACK | ACKNOWLEDGEMENTS | ANSWERS | DISCONNECT | AUTH),
    not_zero(0x21, "receive_maximum", Form::TwoBytes, CONNECT | CONNACK),
    property(0x22, "topic_alias_maximum", Form::TwoBytes, CONNECT | CONNACK),
    property(TOPIC_ALIAS, "topic_alias", Form::TwoBytes, PUBLISH),
    property(0x24, "maximum_qos", Form::Flag, CONNACK),
    property(0x25, "retain_available", Form::Flag, CONNACK),
    property(USER_PROPERTY, "user_property", Form::Pair, ALL),
    not_zero(0x27, "maximum_packet_size", Form::FourBytes, CONNECT | CONNACK),
    property(0x28, "wildcard_subscription_available", Form::Flag, CONNACK),
    property(0x29, "subscription_identifier_available", Form::Flag, CONNACK),
    property(0x2A, "shared_subscription_available", Form::Flag, CONNACK),
];

impl Property {
    /// The property with this identifier.
    pub fn from_identifier(identifier: u8) -> Option<&'static Property> {
        PROPERTIES.iter().find(|property| property.identifier == identifier)
    }

    /// The property of this name.
    pub fn from_name(name: &str) -> Option<&'static Property> {
        PROPERTIES.iter().find(|property| property.name == name)
    }

    /// True if it travels with a message from publisher to subscriber (section 3.3.2.3).
    pub fn is_forwarded(&self) -> bool {
        self.places & MESSAGE == MESSAGE && self.identifier != MESSAGE_EXPIRY_INTERVAL
    }

    fn read<'a>(&self, reader: &mut Reader<'a>) -> Decoded<Value<'a>> {
        let value = match self.form {
            Form::Flag => Value::Number(u32::from(reader.byte()?)),
            Form::TwoBytes => Value::Number(u32::from(reader.two_bytes()?)),
            Form::FourBytes => Value::Number(reader.four_bytes()?),
            Form::Variable => Value::Number(reader.variable()?),
            Form::Text => Value::Text(reader.text()?),
            Form::Binary => Value::Binary(reader.binary()?),
            Form::Pair => Value::Pair(reader.text()?, reader.text()?),
        };
        match value {
            Value::Number(0) if self.identifier == TOPIC_ALIAS => {
                Err(Fault::new(reason_code::TOPIC_ALIAS_INVALID, "Topic Alias 0 [MQTT-3.3.2-8]"))
            }
            Value::Number(number) if number < self.minimum => {
                Err(Fault::protocol("a property with the value 0 that must not be 0"))
            }
            Value::Number(number) if self.form == Form::Flag && number > 1 => {
                Err(Fault::protocol("a property that is neither 0 nor 1"))
            }
            Value::Text(text) if self.identifier == RESPONSE_TOPIC && !crate::topic::is_valid_name(text.as_bytes()) => {
                Err(Fault::protocol("a Response Topic that is no topic name [MQTT-3.3.2-14]"))
            }
            value => Ok(value),
        }
    }
}

/// A property's value, borrowed from its packet.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    Number(u32),
    Text(&'a str),
    Binary(&'a [u8]),
    Pair(&'a str, &'a str),
}

/// Where properties stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the variable header of a packet.
    Packet(Kind),
    /// In the payload of CONNECT, for its Will.
    Will,
}

impl Place {
    fn bit(self) -> Places {
        match self {
            Place::Packet(kind) => 1 << kind.bits(),
            Place::Will => WILL,
        }
    }
}

/// One property as it stands in its packet.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// Which property.
    pub property: &'static Property,
    /// Its value.
    pub value: Value<'a>,
    /// Its bytes, identifier included.
    pub bytes: &'a [u8],
}

/// Walks over properties and refuses what the specification refuses.
#[derive(Debug)]
pub struct Walk<'a> {
    reader: Reader<'a>,
    place: Place,
    role: Role,
    seen: u64,
    user_properties: usize,
}

impl<'a> Walk<'a> {
    /// Walks over `bytes` (without their length prefix), which stand at `place` and are read by `role`.
    pub fn new(bytes: &'a [u8], place: Place, role: Role) -> Walk<'a> {
        Walk { reader: Reader::new(bytes), place, role, seen: 0, user_properties: 0 }
    }

    /// The next property; `None` at the end.
    pub fn step(&mut self) -> Decoded<Option<Item<'a>>> {
        if self.reader.is_empty() {
            return self.ended();
        }
        let before = self.reader.rest();
        let identifier = self.reader.variable()?;
        let property = u8::try_from(identifier)
            .ok()
            .and_then(Property::from_identifier)
            .filter(|property| property.places & self.place.bit() != 0)
            .ok_or_else(|| Fault::malformed("a property that is not valid here (MQTT 5 section 2.2.2.2)"))?;
        self.refuse_repeated(property)?;
        let value = property.read(&mut self.reader)?;
        let size = before.len() - self.reader.rest().len();
        Ok(Some(Item { property, value, bytes: before.get(..size).unwrap_or_default() }))
    }

    fn refuse_repeated(&mut self, property: &Property) -> Decoded<()> {
        let in_publish = self.place == Place::Packet(Kind::Publish);
        if property.form == Form::Pair {
            self.user_properties += 1;
            let added = if self.role == Role::Client { USER_PROPERTIES_ADDED_MAXIMUM } else { 0 };
            if self.user_properties > USER_PROPERTIES_MAXIMUM + added {
                return Err(Fault::new(reason_code::QUOTA_EXCEEDED, "more user properties than are taken"));
            }
            return Ok(());
        }
        if property.identifier == SUBSCRIPTION_IDENTIFIER && in_publish {
            return match self.role {
                Role::Server => {
                    Err(Fault::protocol("a PUBLISH to a server with a Subscription Identifier [MQTT-3.3.4-6]"))
                }
                Role::Client => Ok(()),
            };
        }
        let bit = 1_u64 << (property.identifier & 0x3F);
        if self.seen & bit != 0 {
            return Err(Fault::protocol("a property that is there twice (MQTT 5 section 2.2.2.2)"));
        }
        self.seen |= bit;
        Ok(())
    }

    fn ended(&self) -> Decoded<Option<Item<'a>>> {
        let has = |identifier: u8| self.seen & (1_u64 << identifier) != 0;
        if has(AUTHENTICATION_DATA) && !has(AUTHENTICATION_METHOD) {
            return Err(Fault::protocol(
                "Authentication Data without Authentication Method (MQTT 5 section 3.1.2.11.10)",
            ));
        }
        if self.place == Place::Packet(Kind::Disconnect) && self.role == Role::Client && has(SESSION_EXPIRY_INTERVAL) {
            return Err(Fault::protocol("a DISCONNECT of a server with Session Expiry Interval [MQTT-3.14.2-2]"));
        }
        Ok(None)
    }
}

/// Properties in order, in their encoding, without the length prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    bytes: Vec<u8>,
}

impl Properties {
    /// Takes over properties that a [`Walk`] has gone through.
    pub fn checked(bytes: &[u8], place: Place, role: Role) -> Decoded<Properties> {
        let mut walk = Walk::new(bytes, place, role);
        while walk.step()?.is_some() {}
        Ok(Properties { bytes: bytes.to_vec() })
    }

    /// Their encoding, without the length prefix.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The properties and their values, in order.
    pub fn items(&self) -> impl Iterator<Item = (&'static Property, Value<'_>)> {
        let mut reader = Reader::new(&self.bytes);
        std::iter::from_fn(move || {
            let identifier = reader.byte().ok()?;
            let property = Property::from_identifier(identifier)?;
            property.read(&mut reader).ok().map(|value| (property, value))
        })
    }

    /// Adds a property at the end.
    pub fn push(&mut self, property: &'static Property, value: Value<'_>) -> Result<()> {
        let refused = || Error::Invalid(format!("{} does not take this value", property.name));
        let mut bytes = vec![property.identifier];
        match (property.form, value) {
            (Form::Flag, Value::Number(number)) => bytes.push(u8::try_from(number).map_err(|_| refused())?),
            (Form::TwoBytes, Value::Number(number)) => {
                bytes.extend(u16::try_from(number).map_err(|_| refused())?.to_be_bytes());
            }
            (Form::FourBytes, Value::Number(number)) => bytes.extend(number.to_be_bytes()),
            (Form::Variable, Value::Number(number)) => {
                put_variable(&mut bytes, usize::try_from(number).unwrap_or(usize::MAX))?
            }
            (Form::Text, Value::Text(text)) => put_binary(&mut bytes, text.as_bytes())?,
            (Form::Binary, Value::Binary(binary)) => put_binary(&mut bytes, binary)?,
            (Form::Pair, Value::Pair(key, value)) => {
                put_binary(&mut bytes, key.as_bytes())?;
                put_binary(&mut bytes, value.as_bytes())?;
            }
            _ => return Err(refused()),
        }
        self.bytes.extend(bytes);
        Ok(())
    }
}

/// Writes a Variable Byte Integer (section 1.5.5).
pub fn put_variable(bytes: &mut Vec<u8>, value: usize) -> Result<()> {
    if value > REMAINING_LENGTH_MAXIMUM {
        return Err(Error::Invalid(format!("{value} is more than a Variable Byte Integer holds")));
    }
    let mut rest = value;
    loop {
        let low = u8::try_from(rest & 0x7F).unwrap_or_default();
        rest >>= 7;
        if rest == 0 {
            bytes.push(low);
            return Ok(());
        }
        bytes.push(low | 0x80);
    }
}

/// How many bytes a Variable Byte Integer takes.
pub fn variable_bytes(value: usize) -> usize {
    match value {
        0..=0x7F => 1,
        0x80..=0x3FFF => 2,
        0x4000..=0x1F_FFFF => 3,
        _ => 4,
    }
}

/// Writes two length bytes and the bytes themselves (sections 1.5.4 and 1.5.6).
pub fn put_binary(bytes: &mut Vec<u8>, binary: &[u8]) -> Result<()> {
    let size = u16::try_from(binary.len()).map_err(|_| {
        Error::Invalid(format!("{} bytes do not fit into a field of {FIELD_BYTES_MAXIMUM}", binary.len()))
    })?;
    bytes.extend_from_slice(&size.to_be_bytes());
    bytes.extend_from_slice(binary);
    Ok(())
}

/// Writes a user property.
pub fn put_pair(into: &mut Vec<u8>, name: &str, value: &str) -> Result<()> {
    into.push(USER_PROPERTY);
    put_binary(into, name.as_bytes())?;
    put_binary(into, value.as_bytes())
}
