//! Which message a delivery is, told to those who ask for it: a user property, the same each time that the message goes
//! out, to whomever.
//!
//! Owns: that property. Never: knows who asks.
//!
//! Invariants:
//! 1. Nobody but us tells it: what a publisher has put under its name is left out.
//! 2. Two messages never have the same, and a message never has two: it is told of what is on the disk alone.

use super::kind::Kind;
use super::property::{put_binary, Place, Value, Walk, USER_PROPERTY};
use super::Role;
use crate::error::{Error, Result};
use crate::ids::Offset;

/// The longest decimal number of 64 bits.
const DIGITS_MAXIMUM: usize = 20;

/// The user property, up to the offset that its value ends in.
#[derive(Debug)]
pub struct Identity {
    name: Box<str>,
    /// The property's identifier and name, in their encoding.
    head: Vec<u8>,
    prefix: Box<[u8]>,
}

impl Identity {
    /// A property of this name, whose value is the prefix and the offset in decimal.
    pub fn new(name: &str, prefix: &str) -> Result<Identity> {
        let mut head = vec![USER_PROPERTY];
        put_binary(&mut head, name.as_bytes())?;
        if u16::try_from(prefix.len() + DIGITS_MAXIMUM).is_err() {
            return Err(Error::Invalid(format!("a prefix of {} bytes", prefix.len())));
        }
        Ok(Identity { name: name.into(), head, prefix: prefix.as_bytes().into() })
    }

    /// Makes of a message's properties those that are sent: without any of this name, and with ours where it has an
    /// offset.
    pub fn tell(&self, properties: &[u8], offset: Option<Offset>, into: &mut Vec<u8>) {
        into.clear();
        let mut walk = Walk::new(properties, Place::Packet(Kind::Publish), Role::Client);
        while let Ok(Some(item)) = walk.step() {
            if !matches!(item.value, Value::Pair(name, _) if *name == *self.name) {
                into.extend_from_slice(item.bytes);
            }
        }
        let Some(Offset(mut rest)) = offset else { return };
        let (mut digits, mut count) = ([0; DIGITS_MAXIMUM], 0);
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + u8::try_from(rest % 10).unwrap_or_default();
            (rest, count) = (rest / 10, count + 1);
            if rest == 0 {
                break;
            }
        }
        let digits = digits.get(DIGITS_MAXIMUM - count..).unwrap_or_default();
        let size = u16::try_from(self.prefix.len() + digits.len()).unwrap_or_default();
        into.reserve(self.head.len() + self.prefix.len() + 2 + DIGITS_MAXIMUM);
        for part in [&*self.head, &size.to_be_bytes(), &*self.prefix, digits] {
            into.extend_from_slice(part);
        }
    }
}
