//! What is changed of each message that is carried on: its topic by a template, its user properties, and how often it
//! has been carried.
//!
//! Owns: which rule a topic falls under, and what a message becomes by it. Never: knows where messages come from or go.
//!
//! Invariant: what a rule makes of a valid topic is a valid topic, or the message is dropped with its reason.

use super::kind::Kind;
use super::property::{put_pair, Place, Value, Walk};
use super::Role;
use crate::error::{Error, Result};
use crate::flow::NoticeKind;
use crate::limits::FIELD_BYTES_MAXIMUM;
use crate::topic;

/// A part of a new topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// These bytes.
    Literal(Box<[u8]>),
    /// The whole topic.
    Topic,
    /// One of its levels; the first is 1. One that it has not makes the message impossible.
    Level(usize),
}

/// What happens to messages of some topics.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Topics that one of these matches fall under it.
    pub filters: Vec<Box<[u8]>>,
    /// What their topic becomes; `None`: they are left out.
    pub topic: Option<Vec<Part>>,
    /// User properties that are added, as names and values.
    pub properties: Vec<(String, String)>,
    /// Messages keep their RETAIN flag.
    pub keeps_retain: bool,
}

/// A user property that counts how often a message has been carried.
#[derive(Clone, Debug)]
pub struct Hops {
    /// The property's name.
    pub name: String,
    /// A message that has been carried so often is dropped.
    pub maximum: u32,
}

/// All rules of one connection, in one direction: the first that a topic falls under decides, and one that falls under
/// none is left out.
#[derive(Debug)]
pub struct Rewriting {
    rules: Vec<Compiled>,
    hops: Option<Hops>,
}

#[derive(Debug)]
struct Compiled {
    filters: Vec<Box<[u8]>>,
    topic: Option<Vec<Part>>,
    keeps_retain: bool,
    /// What is added, in its encoding.
    properties: Vec<u8>,
    /// The same behind a first hop.
    properties_and_hop: Vec<u8>,
}

/// What a message has become, and of what: one message often is like the one before, and nothing is done for it then.
/// Stays with one [`Rewriting`].
#[derive(Debug, Default)]
pub struct Rewritten {
    of_topic: Vec<u8>,
    of_properties: Vec<u8>,
    outcome: Outcome,
    /// Its topic.
    pub topic: Vec<u8>,
    /// Its properties, those that travel.
    pub properties: Vec<u8>,
    /// It keeps its RETAIN flag.
    pub keeps_retain: bool,
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// It is what [`Rewritten`] says.
    Carried,
    /// A rule leaves it out, or no rule is about it.
    #[default]
    LeftOut,
    /// It is lost, for this reason.
    Lost(NoticeKind),
}

impl Rewriting {
    /// Compiles rules; refuses filters and topics that can never be valid.
    pub fn new(rules: Vec<Rule>, hops: Option<Hops>) -> Result<Rewriting> {
        let mut first_hop = Vec::new();
        hops.iter().try_for_each(|hops| put_pair(&mut first_hop, &hops.name, "1"))?;
        let compile = |rule: Rule| {
            if let Some(filter) = rule.filters.iter().find(|filter| !topic::is_valid_filter(filter)) {
                return Err(Error::Invalid(format!("{:?} is no topic filter", String::from_utf8_lossy(filter))));
            }
            let mut properties = Vec::new();
            rule.properties.iter().try_for_each(|(name, value)| put_pair(&mut properties, name, value))?;
            let properties_and_hop = [&*properties, &*first_hop].concat();
            let Rule { filters, topic, keeps_retain, .. } = rule;
            Ok(Compiled { filters, topic, keeps_retain, properties, properties_and_hop })
        };
        Ok(Rewriting { rules: rules.into_iter().map(compile).collect::<Result<_>>()?, hops })
    }

    /// True if what is carried tells how often it has been.
    pub fn counts_hops(&self) -> bool {
        self.hops.is_some()
    }

    /// Makes of a message what it is carried on as.
    pub fn apply(&self, topic: &[u8], properties: &[u8], into: &mut Rewritten) -> Outcome {
        // To compare nothing with nothing, which lies nowhere, takes a processor that masks its loads 100 ns.
        let has_properties = !(properties.is_empty() && into.of_properties.is_empty());
        if into.of_topic != topic || has_properties && into.of_properties != properties {
            into.outcome = self.rewrite(topic, properties, into);
            topic.clone_into(&mut into.of_topic);
            properties.clone_into(&mut into.of_properties);
        }
        into.outcome
    }

    fn rewrite(&self, topic: &[u8], properties: &[u8], into: &mut Rewritten) -> Outcome {
        into.topic.clear();
        into.properties.clear();
        let rule = self.rules.iter().find(|rule| rule.filters.iter().any(|filter| topic::matches(filter, topic)));
        let found = rule.and_then(|rule| Some((rule, rule.topic.as_deref()?)));
        let Some((rule, parts)) = found else { return Outcome::LeftOut };
        into.keeps_retain = rule.keeps_retain;
        if !self.count(properties, rule, into) {
            return Outcome::Lost(NoticeKind::Looped);
        }
        match write_topic(parts, topic, &mut into.topic) {
            Some(()) => Outcome::Carried,
            None => Outcome::Lost(NoticeKind::Unmappable),
        }
    }

    /// The properties with one hop more, and those that the rule adds; false if that is one hop too many.
    fn count(&self, properties: &[u8], rule: &Compiled, into: &mut Rewritten) -> bool {
        let Some(hops) = &self.hops else {
            into.properties.extend_from_slice(properties);
            into.properties.extend_from_slice(&rule.properties);
            return true;
        };
        if properties.is_empty() {
            into.properties.extend_from_slice(&rule.properties_and_hop);
            return hops.maximum > 0;
        }
        let mut carried: u32 = 0;
        let mut walk = Walk::new(properties, Place::Packet(Kind::Publish), Role::Client);
        while let Ok(Some(item)) = walk.step() {
            match item.value {
                // A number that nobody can read is none: it was not one of us who wrote it.
                Value::Pair(name, value) if name == hops.name => carried = value.parse().unwrap_or(carried),
                _ => into.properties.extend_from_slice(item.bytes),
            }
        }
        into.properties.extend_from_slice(&rule.properties);
        let text = carried.saturating_add(1).to_string();
        carried < hops.maximum && put_pair(&mut into.properties, &hops.name, &text).is_ok()
    }
}

fn write_topic(parts: &[Part], topic: &[u8], into: &mut Vec<u8>) -> Option<()> {
    for part in parts {
        match part {
            Part::Literal(bytes) => into.extend_from_slice(bytes),
            Part::Topic => into.extend_from_slice(topic),
            Part::Level(level) => into.extend_from_slice(topic.split(|byte| *byte == b'/').nth(level.checked_sub(1)?)?),
        }
    }
    // Its parts are valid text without wildcards: those of the rule were checked, and so was the topic.
    (!into.is_empty() && into.len() <= FIELD_BYTES_MAXIMUM).then_some(())
}
