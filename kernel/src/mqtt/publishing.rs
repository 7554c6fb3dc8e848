//! The receiving half of QoS 1 and 2 on one connection (MQTT 5 section 4.3), and its topic aliases.

use super::fault::Fault;
use super::{reason_code, Version};
use crate::flow::Fate;
use std::collections::{BTreeMap, BTreeSet};

/// What has to be remembered of the messages that a client publishes.
#[derive(Debug, Default)]
pub struct Publishing {
    /// QoS 1 and 2 messages that are not answered; `None` where the version knows no such limit.
    receive_maximum: Option<u32>,
    unanswered: u32,
    /// Packet identifiers of QoS 2 messages that are not released (at most 65 535).
    unreleased: BTreeSet<u16>,
    topic_alias_maximum: u16,
    /// At most `topic_alias_maximum` topic names [MQTT-3.3.2-7].
    aliases: BTreeMap<u16, Box<[u8]>>,
}

impl Publishing {
    /// A client publishes within these limits, and has not released `unreleased`, which its session brings along.
    pub fn new(
        version: Version,
        receive_maximum: u16,
        topic_alias_maximum: u16,
        unreleased: BTreeSet<u16>,
    ) -> Publishing {
        let receive_maximum = (version == Version::V5).then_some(u32::from(receive_maximum));
        Publishing { receive_maximum, unanswered: 0, unreleased, topic_alias_maximum, aliases: BTreeMap::new() }
    }

    /// Says what becomes of a PUBLISH, or that there are too many unanswered ones [MQTT-3.3.4-9].
    #[inline]
    pub fn admit(&mut self, qos: u8, packet_identifier: u16) -> Result<Fate, Fault> {
        if qos == 0 {
            return Ok(Fate::Accepted);
        }
        // Sent again after a reconnect, or because an old client lost patience: it was counted, or will be answered
        // without having been [MQTT-4.3.3-10].
        if qos == 2 && self.unreleased.contains(&packet_identifier) {
            return Ok(Fate::Duplicate);
        }
        if self.receive_maximum.is_some_and(|maximum| self.unanswered >= maximum) {
            return Err(Fault::new(
                reason_code::RECEIVE_MAXIMUM_EXCEEDED,
                "more unanswered messages than Receive Maximum [MQTT-3.3.4-9]",
            ));
        }
        self.unanswered = self.unanswered.saturating_add(1);
        if qos == 2 {
            self.unreleased.insert(packet_identifier);
        }
        Ok(Fate::Accepted)
    }

    /// Packet identifiers of QoS 2 messages that are not released, in ascending order.
    pub fn unreleased(&self) -> impl Iterator<Item = u16> + '_ {
        self.unreleased.iter().copied()
    }

    /// `count` messages have been answered.
    pub fn answered(&mut self, count: u32) {
        self.unanswered = self.unanswered.saturating_sub(count);
    }

    /// The packet identifier is free again: released by PUBREL [MQTT-4.3.3-12], or its message was refused.
    pub fn forget(&mut self, packet_identifier: u16) {
        self.unreleased.remove(&packet_identifier);
    }

    /// Gives `alias` the meaning `topic` (MQTT 5 section 3.3.2.3.4).
    pub fn name(&mut self, alias: u16, topic: &[u8]) -> Result<(), Fault> {
        self.refuse_alias(alias)?;
        self.aliases.insert(alias, topic.into());
        Ok(())
    }

    /// The topic name that `alias` stands for.
    pub fn named(&self, alias: u16) -> Result<&[u8], Fault> {
        self.refuse_alias(alias)?;
        let topic = self.aliases.get(&alias);
        topic
            .map(|topic| &**topic)
            .ok_or_else(|| Fault::protocol("a topic alias without a topic (MQTT 5 section 3.3.4)"))
    }

    fn refuse_alias(&self, alias: u16) -> Result<(), Fault> {
        if alias == 0 || alias > self.topic_alias_maximum {
            return Err(Fault::new(reason_code::TOPIC_ALIAS_INVALID, "a topic alias above the maximum [MQTT-3.3.2-9]"));
        }
        Ok(())
    }
}
