//! A message that passes through at QoS 0, and the few ways in which it is written for all who get it.
//!
//! Owns: which ways there are, each of which is written once. Never: knows who gets it.

use super::publish::{Writing, WritingProperties};
use super::Version;
use crate::entry::InnerMessage;
use crate::flow::{Arrivals, Publish};

/// The fields of a message that passes through.
pub(super) struct Passing<'a> {
    pub topic: &'a [u8],
    pub properties: &'a [u8],
    pub payload: &'a [u8],
    pub retain: bool,
    expiry_interval_s: Option<u32>,
}

impl<'a> Passing<'a> {
    pub fn new(arrivals: &'a Arrivals, publish: &Publish) -> Passing<'a> {
        Passing {
            topic: arrivals.span(publish.topic),
            payload: arrivals.span(publish.payload),
            properties: arrivals.span(publish.properties),
            retain: publish.retain,
            expiry_interval_s: publish.expiry_interval_s,
        }
    }

    /// One of the messages of an entry.
    pub fn of_entry(arrivals: &'a Arrivals, publish: &Publish, message: &InnerMessage<'a>) -> Passing<'a> {
        Passing {
            topic: arrivals.span(publish.topic),
            payload: message.payload,
            properties: message.properties,
            retain: message.retain,
            expiry_interval_s: publish.expiry_interval_s,
        }
    }

    #[inline]
    pub fn writing(&self, version: Version, retain: bool, identifiers: &'a [u32]) -> Writing<'a> {
        let expiry_interval_s = self.expiry_interval_s;
        let encoded = self.properties;
        let properties = WritingProperties { topic_alias: None, expiry_interval_s, encoded, identifiers };
        Writing {
            dup: false,
            qos: 0,
            retain,
            packet_identifier: 0,
            topic: self.topic,
            payload: self.payload,
            properties: (version == Version::V5).then_some(properties),
        }
    }
}

/// The ways in which one message has been written so far, each a range of the scratch buffer.
#[derive(Default)]
pub(super) struct Variants {
    /// Without subscription identifiers: for older versions and MQTT 5, each without and with RETAIN.
    plain: [Option<(usize, usize)>; 4],
}

impl Variants {
    /// The packet as bytes; empty if it cannot be written.
    #[inline]
    pub fn encoded<'a>(&mut self, scratch: &'a mut Vec<u8>, writing: &Writing<'_>) -> &'a [u8] {
        let is_plain = writing.properties.is_none_or(|properties| properties.identifiers.is_empty());
        let index = usize::from(writing.properties.is_some()) * 2 + usize::from(writing.retain);
        let known = if is_plain { self.plain.get(index).copied().flatten() } else { None };
        let (start, end) = known.unwrap_or_else(|| {
            // Those with identifiers are written behind the plain ones, one over the other.
            let start = self.plain.iter().flatten().map(|(_, end)| *end).max().unwrap_or_default();
            scratch.truncate(start);
            let end = if writing.write(scratch).is_ok() { scratch.len() } else { start };
            if let (true, Some(slot)) = (is_plain, self.plain.get_mut(index)) {
                *slot = Some((start, end));
            }
            (start, end)
        });
        scratch.get(start..end).unwrap_or_default()
    }
}
