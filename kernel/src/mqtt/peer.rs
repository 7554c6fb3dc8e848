//! The other end of one connection, as decode knows it: what may come next, and what it has sent.
//!
//! Owns: how far the connection has come, and the receiving half of QoS 1 and 2 with its topic aliases.
//! Never: keeps a byte; those that wait are kept for every protocol alike.

use super::decode::decode;
use super::fault::Fault;
use super::frame::Frame;
use super::kind::Kind;
use super::packet::Packet;
use super::publish::{gathered, Familiar, Layout};
use super::publishing::Publishing;
use super::reader::NOT_MINIMAL;
use super::rewriting::{Outcome, Rewriting, Rewritten};
use super::{reason_code, Role, Version};
use crate::flow::{Acknowledgement, Arrivals, Fate, NoticeKind, Publish, Span};
use crate::ids::{Connection, KeySlot, Party};
use crate::limits::CONNECT_BYTES_MAXIMUM;
use crate::topic::is_reserved;
use crate::wire::decoder::{Breach, Decoder};
use crate::wire::rate::Rate;
use std::ops::Range;
use std::sync::Arc;

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing came: CONNECT must, or from a server CONNACK [MQTT-3.2.0-1].
    Opening,
    /// That came and is not decided on: only AUTH and DISCONNECT may follow [MQTT-3.1.4-6].
    Connecting,
    /// The connection was accepted.
    Accepted,
}

/// Within which limits an accepted connection may send.
#[allow(missing_docs)]
#[derive(Debug)]
pub struct Acceptance {
    pub party: Party,
    pub key_slot: KeySlot,
    pub version: Version,
    pub keep_alive_s: u16,
    pub maximum_packet_size_bytes: u32,
    pub publishing: Publishing,
}

/// What a client knows of the server that it has sent CONNECT to.
#[derive(Debug)]
pub struct Expectation {
    /// The version that CONNECT named.
    pub version: Version,
    /// What CONNECT said of packets.
    pub maximum_packet_size_bytes: u32,
    /// What becomes of messages that come.
    pub rewriting: Arc<Rewriting>,
}

/// How messages of a server are taken over.
#[derive(Debug)]
struct Takeover {
    rewriting: Arc<Rewriting>,
    rewritten: Rewritten,
    taken: u64,
    lost: u64,
}

/// Who sends on one connection.
#[derive(Debug)]
pub struct Peer {
    connection: Connection,
    /// Who decodes: a client is told by a server.
    role: Role,
    takeover: Option<Box<Takeover>>,
    stage: Stage,
    version: Version,
    party: Party,
    key_slot: KeySlot,
    /// One and a half times Keep Alive [MQTT-3.1.2-22]; 0 if it is off.
    silence_us: u64,
    packet_bytes_maximum: usize,
    familiar: Familiar,
    /// Messages and aliases.
    pub publishing: Publishing,
}

impl Peer {
    /// A server is at the other end, and has been sent CONNECT.
    pub fn expect(&mut self, expectation: Expectation) {
        let Expectation { version, maximum_packet_size_bytes, rewriting } = expectation;
        (self.role, self.version) = (Role::Client, version);
        self.packet_bytes_maximum = usize::try_from(maximum_packet_size_bytes).unwrap_or(usize::MAX);
        let rewritten = Rewritten::default();
        self.takeover = Some(Box::new(Takeover { rewriting, rewritten, taken: 0, lost: 0 }));
    }

    /// Messages that were taken over.
    pub fn taken(&self) -> u64 {
        self.takeover.as_ref().map_or(0, |takeover| takeover.taken)
    }

    /// Messages that were not taken over: carried too often, or with a topic that could not be or that is reserved.
    pub fn lost(&self) -> u64 {
        self.takeover.as_ref().map_or(0, |takeover| takeover.lost)
    }

    /// The connection was accepted.
    pub fn accept(&mut self, acceptance: Acceptance) {
        self.stage = Stage::Accepted;
        self.party = acceptance.party;
        self.key_slot = acceptance.key_slot;
        self.version = acceptance.version;
        self.silence_us = u64::from(acceptance.keep_alive_s) * 1_500_000;
        self.packet_bytes_maximum = usize::try_from(acceptance.maximum_packet_size_bytes).unwrap_or(usize::MAX);
        self.publishing = acceptance.publishing;
    }

    #[inline]
    fn publish(
        &mut self,
        frame: &Frame,
        body: Range<usize>,
        arrivals: &mut Arrivals,
        rate: Option<&mut Rate>,
    ) -> Result<(), Fault> {
        if !frame.minimal && self.version == Version::V5 {
            return Err(NOT_MINIMAL);
        }
        if rate.is_some_and(|rate| !rate.spend(1, 0)) {
            return Err(self.fault(Breach::TooFast));
        }
        let bytes = arrivals.bytes.get(body.clone()).unwrap_or_default();
        let layout = Layout::read(frame.flags(), bytes, self.version, self.role, &mut self.familiar)?;
        let within = |range: &Range<usize>| Span::new(body.start + range.start, range.len());
        let mut topic = within(&layout.topic);
        let mut properties = Span::new(
            body.start + layout.properties.start + layout.meaning.forwarded.start,
            layout.meaning.forwarded.len(),
        );
        if layout.meaning.scattered {
            let kept = gathered(bytes.get(layout.properties.clone()).unwrap_or_default(), self.role);
            properties = Span::new(arrivals.bytes.len(), kept.len());
            arrivals.bytes.extend_from_slice(&kept);
        }
        if let Some(alias) = layout.meaning.topic_alias {
            if layout.topic.is_empty() {
                let name = self.publishing.named(alias)?;
                topic = Span::new(arrivals.bytes.len(), name.len());
                arrivals.bytes.extend_from_slice(name);
            } else {
                self.publishing.name(alias, arrivals.span(topic))?;
            }
        }
        let mut retain = layout.retain;
        let mut fate = self.publishing.admit(layout.qos, layout.packet_identifier)?;
        if let Some(takeover) = &mut self.takeover {
            let is_taken = takeover.apply(&mut topic, &mut properties, arrivals);
            retain &= takeover.rewritten.keeps_retain;
            if !is_taken && fate == Fate::Accepted {
                // It is answered like one that is stored, so that nobody sends it again.
                fate = Fate::Duplicate;
            }
        }
        arrivals.totals.note(layout.qos, body.len() - layout.payload);
        arrivals.publishes.push(Publish {
            connection: self.connection,
            publisher: self.party,
            key_slot: self.key_slot,
            packet_identifier: layout.packet_identifier,
            qos: layout.qos,
            retain,
            topic,
            properties,
            payload: within(&(layout.payload..body.len())),
            expiry_interval_s: layout.meaning.expiry_interval_s,
            fate,
            row: None,
            entry: None,
            targets: None,
            stored: None,
        });
        Ok(())
    }
}

impl Decoder for Peer {
    type Header = Frame;
    type Control = Packet;
    type Fault = Fault;
    const HOLDS_WHO_IS_TOO_FAST: bool = false;

    fn new(connection: Connection) -> Peer {
        Peer {
            connection,
            role: Role::Server,
            takeover: None,
            stage: Stage::Opening,
            version: Version::V311,
            party: Party(0),
            key_slot: KeySlot(0),
            silence_us: 0,
            packet_bytes_maximum: CONNECT_BYTES_MAXIMUM,
            familiar: Familiar::default(),
            publishing: Publishing::default(),
        }
    }

    #[inline]
    fn header(&self, bytes: &[u8]) -> Result<Option<Frame>, Fault> {
        if self.stage == Stage::Opening {
            let kind = bytes.first().map(|first| first >> 4);
            match self.role {
                Role::Server if kind.is_some_and(|kind| kind != Kind::Connect.bits()) => {
                    return Err(Fault::protocol("a first packet that is not CONNECT [MQTT-3.1.0-1]"));
                }
                Role::Client if kind.is_some_and(|kind| kind != Kind::Connack.bits() && kind != Kind::Auth.bits()) => {
                    return Err(Fault::protocol("a first packet that is not CONNACK [MQTT-3.2.0-1]"));
                }
                _ => {}
            }
        }
        Frame::read(bytes)
    }

    #[inline]
    fn size_bytes(frame: &Frame) -> usize {
        frame.size_bytes
    }

    #[inline]
    fn frame_bytes_maximum(&self) -> usize {
        self.packet_bytes_maximum
    }

    fn silence_us(&self) -> Option<u64> {
        Some(self.silence_us).filter(|silence_us| self.stage == Stage::Accepted && *silence_us > 0)
    }

    #[inline]
    fn take(
        &mut self,
        frame: &Frame,
        start: usize,
        arrivals: &mut Arrivals,
        rate: Option<&mut Rate>,
    ) -> Result<Option<Packet>, Fault> {
        let body = start + frame.header_bytes..start + frame.size_bytes;
        let kind = frame.kind()?;
        match (self.stage, kind) {
            (Stage::Accepted, Kind::Publish) => {
                self.publish(frame, body, arrivals, rate)?;
                return Ok(None);
            }
            (Stage::Accepted, Kind::Connect) => return Err(Fault::protocol("a second CONNECT [MQTT-3.1.0-2]")),
            (Stage::Accepted, Kind::Pingreq) if self.role == Role::Client => {
                return Err(Fault::protocol("a packet that only a client sends (MQTT 5 table 2-1)"));
            }
            (Stage::Connecting, kind) if kind != Kind::Auth && kind != Kind::Disconnect => {
                return Err(Fault::protocol("a packet before CONNECT was accepted [MQTT-3.1.4-6]"));
            }
            _ => {}
        }
        let bytes = arrivals.bytes.get(body).unwrap_or_default();
        match decode(frame, bytes, self.version, self.role)? {
            Packet::Acknowledgement(packet) => arrivals.acknowledgements.push(Acknowledgement {
                connection: self.connection,
                step: packet.kind.into(),
                packet_identifier: packet.packet_identifier,
                refusal: reason_code::refusal_of(packet.reason_code),
            }),
            Packet::Pingreq => arrivals.pings.push(self.connection),
            Packet::Connect(packet) => {
                self.stage = Stage::Connecting;
                self.version = packet.version;
                return Ok(Some(Packet::Connect(packet)));
            }
            Packet::Connack(packet) => {
                self.stage = Stage::Connecting;
                return Ok(Some(Packet::Connack(packet)));
            }
            packet => return Ok(Some(packet)),
        }
        Ok(None)
    }

    fn fault(&self, breach: Breach) -> Fault {
        let (code, reason) = match breach {
            Breach::FrameTooLarge => {
                (reason_code::PACKET_TOO_LARGE, "a packet above Maximum Packet Size (MQTT 5 section 3.2.2.3.6)")
            }
            Breach::TooMuchWaits => (reason_code::QUOTA_EXCEEDED, "more bytes than may wait undecoded"),
            Breach::TooFast => (reason_code::MESSAGE_RATE_TOO_HIGH, "more in a second than this connection may send"),
        };
        Fault::new(code, reason)
    }

    /// Before CONNECT nobody knows in which version.
    fn addressed(&self, fault: Fault) -> Fault {
        match self.stage {
            Stage::Opening => fault,
            Stage::Connecting | Stage::Accepted => fault.in_version(self.version),
        }
    }
}

impl Takeover {
    /// Makes of a message what it is taken over as; false if it is not.
    fn apply(&mut self, topic: &mut Span, properties: &mut Span, arrivals: &mut Arrivals) -> bool {
        let Takeover { rewriting, rewritten, taken, lost } = self;
        let mut outcome = rewriting.apply(arrivals.span(*topic), arrivals.span(*properties), rewritten);
        // Nobody would get it: on the server's own topics only this one publishes.
        if outcome == Outcome::Carried && is_reserved(&rewritten.topic) {
            outcome = Outcome::Lost(NoticeKind::Unmappable);
        }
        *taken += u64::from(outcome == Outcome::Carried);
        *lost += u64::from(matches!(outcome, Outcome::Lost(_)));
        for (span, bytes) in [(topic, &rewritten.topic), (properties, &rewritten.properties)] {
            *span = Span::new(arrivals.bytes.len(), bytes.len());
            arrivals.bytes.extend_from_slice(bytes);
        }
        outcome == Outcome::Carried
    }
}
