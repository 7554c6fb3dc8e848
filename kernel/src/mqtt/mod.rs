//! The MQTT codec, versions 3.1, 3.1.1 and 5.0, for both roles; what has arrived, and what waits to be sent.
//!
//! Owns: turning bytes into packets and back ([`decode`], [`encode`]), what may come next on a connection and the
//! receiving half of QoS 1 and 2 ([`peer`]), writing what is sent ([`outbox`]).
//! Never: decides what a packet means. Sessions, subscriptions and deliveries belong to the stages between.
//!
//! Invariants:
//! 1. No input panics, and none makes the codec allocate more than the limits of its connection.
//! 2. What is decoded depends on the bytes only, never on how they were split.
//! 3. After a fault nothing more is decoded from its connection.
//!
//! Flow: sockets -> [`inbox`] -> route ... delivery -> [`outbox`] -> sockets.

pub mod alias;
pub mod columns;
pub mod counters;
pub mod decode;
pub mod encode;
pub mod exchange;
pub mod fault;
pub mod frame;
pub mod identity;
pub mod inbox;
pub mod kind;
pub mod outbox;
pub mod packet;
mod passing;
pub mod peer;
pub mod property;
pub mod publish;
pub mod publishing;
pub mod reader;
pub mod reason_code;
pub mod recurrence;
pub mod rewriting;
pub mod sharing;
pub mod shelf;

/// A version of the protocol, as CONNECT carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// MQTT 3.1, protocol name `MQIsdp`.
    V31,
    /// MQTT 3.1.1.
    V311,
    /// MQTT 5.0.
    V5,
}

impl Version {
    /// The version with this protocol level, if there is one.
    pub fn from_level(level: u8) -> Option<Version> {
        match level {
            3 => Some(Version::V31),
            4 => Some(Version::V311),
            5 => Some(Version::V5),
            _ => None,
        }
    }

    /// The protocol level: 3, 4 or 5.
    pub fn level(self) -> u8 {
        match self {
            Version::V31 => 3,
            Version::V311 => 4,
            Version::V5 => 5,
        }
    }

    /// The protocol name that goes with it [MQTT-3.1.2-1].
    pub fn protocol_name(self) -> &'static str {
        match self {
            Version::V31 => "MQIsdp",
            Version::V311 | Version::V5 => "MQTT",
        }
    }
}

/// Who decodes. The two roles accept different packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Receives what clients send.
    Server,
    /// Receives what servers send.
    Client,
}
