//! Messages as columns, in Arrow's layout, to rows as the turn takes them.
//!
//! Owns: what a message of such columns may be, which is what a client may publish; and which properties a name stands
//! for. Never: where columns come from or rows go to.
//!
//! Invariant: a row that is written here is one that a turn can take: nothing about it has to be refused later.

use super::property::{Form, Place, Property, Value, Walk, MESSAGE_EXPIRY_INTERVAL};
use super::{kind::Kind, property, Role};
use crate::error::{Error, Result};
use crate::flow::rows::Row;
use crate::ids::Timestamp;
use crate::limits::FIELD_BYTES_MAXIMUM;
use crate::topic;
use crate::topic::grant::Grant;
use std::collections::HashMap;

/// A column of texts or bytes: where each value starts and the last one ends (32 bit), and the values.
#[derive(Debug, Clone, Copy, Default)]
pub struct Texts<'a> {
    /// Where they start, and where the last one ends.
    pub offsets: &'a [u8],
    /// The values, one behind the other.
    pub data: &'a [u8],
}

/// Numbers of some size, and a byte for each that says whether it is there.
#[derive(Debug, Clone, Copy)]
pub struct Numbers<'a> {
    /// 1 where there is one.
    pub is_there: &'a [u8],
    /// The numbers.
    pub values: &'a [u8],
}

/// Messages as columns. A column that is `None` says the same of all of them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Columns<'a> {
    /// How many messages.
    pub rows: usize,
    /// Topic.
    pub topic: Texts<'a>,
    /// Application message.
    pub value: Texts<'a>,
    /// Key, and a byte for each that says whether it is there.
    pub key: Option<(&'a [u8], Texts<'a>)>,
    /// QoS, 8 bit; without the column 1.
    pub qos: Option<&'a [u8]>,
    /// RETAIN flag, 8 bit.
    pub retain: Option<&'a [u8]>,
    /// Event time in microseconds, 64 bit.
    pub event_time: Option<Numbers<'a>>,
    /// Message Expiry Interval in seconds, 32 bit.
    pub expiry: Option<Numbers<'a>>,
    /// How many pairs come before those of each message, the names, and the values.
    pub properties: Option<(&'a [u8], Texts<'a>, Texts<'a>)>,
    /// Values of properties are texts, and what is binary stands there in hexadecimal digits.
    pub properties_are_texts: bool,
}

/// What the messages of columns may be.
#[derive(Debug)]
pub struct Bounds {
    /// Where they may be published; `None`: anywhere.
    pub publish: Option<Grant>,
    /// The bytes of topic, properties and payload together.
    pub message_bytes_maximum: usize,
}

impl<'a> Texts<'a> {
    fn get(&self, at: usize) -> Option<&'a [u8]> {
        let start = usize::try_from(u32_at(self.offsets, at)?).ok()?;
        let end = usize::try_from(u32_at(self.offsets, at.checked_add(1)?)?).ok()?;
        self.data.get(start..end)
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let start = at.checked_mul(4)?;
    bytes.get(start..start.checked_add(4)?)?.first_chunk().copied().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let start = at.checked_mul(8)?;
    bytes.get(start..start.checked_add(8)?)?.first_chunk().copied().map(u64::from_le_bytes)
}

impl<'a> Columns<'a> {
    /// Appends all messages as rows. An error names the first message that nobody may publish, and why; what was
    /// appended before it is of no use.
    pub fn encode(&self, bounds: &Bounds, out: &mut Vec<u8>) -> Result<()> {
        let mut allowed: HashMap<&'a [u8], bool> = HashMap::new();
        let mut properties = Vec::new();
        for at in 0..self.rows {
            properties.clear();
            self.put_properties(at, &mut properties).map_err(|reason| self.refusal(at, &reason))?;
            let row = self.row(at, &properties).map_err(|reason| self.refusal(at, &reason))?;
            let topic = self.topic.get(at).unwrap_or_default();
            let known = allowed.get(topic).copied();
            let may = known.unwrap_or_else(|| bounds.publish.as_ref().is_none_or(|grant| grant.allows(topic)));
            if known.is_none() {
                check_topic(topic).map_err(|reason| self.refusal(at, reason))?;
                allowed.insert(topic, may);
            }
            let bytes = topic.len() + row.properties.len() + row.payload.len();
            if !may {
                return Err(self.refusal(at, "the rules of access do not allow you to publish there"));
            }
            if bytes > bounds.message_bytes_maximum {
                let most = bounds.message_bytes_maximum;
                return Err(self.refusal(at, &format!("the message has {bytes} bytes, and {most} are allowed")));
            }
            row.encode(out);
        }
        Ok(())
    }

    fn refusal(&self, at: usize, reason: &str) -> Error {
        let topic = self.topic.get(at).map(String::from_utf8_lossy).unwrap_or_default();
        Error::Invalid(format!("row {at}, topic '{topic}': {reason}"))
    }

    fn row<'b>(&self, at: usize, properties: &'b [u8]) -> std::result::Result<Row<'b>, String>
    where
        'a: 'b,
    {
        let short = || "a column ends before it".to_owned();
        let qos = match self.qos {
            Some(column) => *column.get(at).ok_or_else(short)?,
            None => 1,
        };
        if qos > 2 {
            return Err(format!("qos is 0, 1 or 2, not {qos}"));
        }
        let key = match self.key {
            Some((is_there, keys)) if is_there.get(at) == Some(&1) => Some(keys.get(at).ok_or_else(short)?),
            _ => None,
        };
        if key.is_some_and(|key| key.len() > FIELD_BYTES_MAXIMUM) {
            return Err(format!("its key has more than {FIELD_BYTES_MAXIMUM} bytes"));
        }
        let number = |column: Option<Numbers<'_>>| column.is_some_and(|numbers| numbers.is_there.get(at) == Some(&1));
        let event_time = self.event_time.filter(|_| number(self.event_time));
        let expiry = self.expiry.filter(|_| number(self.expiry));
        Ok(Row {
            topic: self.topic.get(at).ok_or_else(short)?,
            key,
            properties,
            payload: self.value.get(at).ok_or_else(short)?,
            qos,
            retain: self.retain.is_some_and(|column| column.get(at) == Some(&1)),
            event_time: event_time.and_then(|numbers| u64_at(numbers.values, at)).map(Timestamp),
            expiry_interval_s: expiry.and_then(|numbers| u32_at(numbers.values, at)),
        })
    }

    /// The pairs of a message as properties: what has the name of a property that travels is that property, and
    /// everything else a user property.
    fn put_properties(&self, at: usize, into: &mut Vec<u8>) -> std::result::Result<(), String> {
        let Some((counts, names, values)) = self.properties else { return Ok(()) };
        let bounds = u32_at(counts, at).zip(u32_at(counts, at + 1)).ok_or("a column ends before it")?;
        for pair in bounds.0..bounds.1 {
            let pair = usize::try_from(pair).unwrap_or(usize::MAX);
            let found = names.get(pair).zip(values.get(pair)).ok_or("a column ends before it")?;
            let name = String::from_utf8_lossy(found.0);
            put_property((&name, found.1), self.properties_are_texts, into)
                .map_err(|_| format!("the property '{name}' does not take this value"))?;
        }
        let mut walk = Walk::new(into, Place::Packet(Kind::Publish), Role::Client);
        while walk.step().map_err(|fault| fault.reason.to_owned())?.is_some() {}
        Ok(())
    }
}

fn check_topic(topic: &[u8]) -> std::result::Result<(), &'static str> {
    if topic.first() == Some(&b'$') {
        return Err("topics that begin with $ are the broker's own");
    }
    if !topic::is_valid_name(topic) {
        return Err("a topic to publish to is not empty and has no +, no #, no U+0000 and at most 65535 bytes");
    }
    Ok(())
}

fn put_property((name, value): (&str, &[u8]), is_text: bool, into: &mut Vec<u8>) -> Result<()> {
    let invalid = || Error::Invalid(String::new());
    let text = || std::str::from_utf8(value).map_err(|_| invalid());
    let named = Property::from_name(name).filter(|each| each.is_forwarded() && each.form != Form::Pair);
    let mut properties = property::Properties::default();
    match named {
        Some(each) => {
            let digits =
                if is_text && each.form == Form::Binary { bytes_of(text()?).ok_or_else(invalid)? } else { Vec::new() };
            let value = match each.form {
                Form::Binary if is_text => Value::Binary(&digits),
                Form::Text => Value::Text(text()?),
                Form::Binary => Value::Binary(value),
                _ => Value::Number(text()?.parse().map_err(|_| invalid())?),
            };
            properties.push(each, value)?;
        }
        None if Property::from_name(name).is_some_and(|each| each.identifier == MESSAGE_EXPIRY_INTERVAL) => {
            return Err(invalid());
        }
        None => {
            let each = Property::from_name("user_property").ok_or_else(invalid)?;
            properties.push(each, Value::Pair(name, text()?))?;
        }
    }
    into.extend_from_slice(properties.as_bytes());
    Ok(())
}

fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let pairs = (0..digits.len()).step_by(2).map(|at| digits.get(at..at.checked_add(2)?));
    pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}
