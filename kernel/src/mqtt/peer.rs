//! The other end of one connection, as decode knows it: what may come next, and what it has sent.
//!
//! Owns: how far the connection has come, and the receiving half of QoS 1 and 2 with its topic aliases.
//! Never: keeps a byte; those that wait are kept for every protocol alike.

use super::decode::decode;
use super::fault::Fault;
use super::frame::Frame;
use super::kind::Kind;
use super::packet::Packet;
use super::publish::{gathered, Layout};
use super::publishing::Publishing;
use super::reader::NOT_MINIMAL;
use super::{reason_code, Role, Version};
use crate::flow::{Acknowledgement, Arrivals, Publish, Span};
use crate::ids::{Connection, KeySlot, Party};
use crate::limits::CONNECT_BYTES_MAXIMUM;
use crate::wire::decoder::{Breach, Decoder};
use crate::wire::rate::Rate;
use std::ops::Range;

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing came: CONNECT must.
    Opening,
    /// CONNECT came and is not accepted: only AUTH and DISCONNECT may follow [MQTT-3.1.4-6].
    Connecting,
    /// CONNECT was accepted.
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

/// Who sends on one connection.
#[derive(Debug)]
pub struct Peer {
    connection: Connection,
    stage: Stage,
    version: Version,
    party: Party,
    key_slot: KeySlot,
    /// One and a half times Keep Alive [MQTT-3.1.2-22]; 0 if it is off.
    silence_us: u64,
    packet_bytes_maximum: usize,
    /// Messages and aliases.
    pub publishing: Publishing,
}

impl Peer {
    /// CONNECT was accepted.
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
        let layout = Layout::read(frame.flags(), bytes, self.version, Role::Server)?;
        let within = |range: &Range<usize>| span(body.start + range.start, range.len());
        let mut topic = within(&layout.topic);
        let mut properties =
            span(body.start + layout.properties.start + layout.meaning.forwarded.start, layout.meaning.forwarded.len());
        if layout.meaning.scattered {
            let kept = gathered(bytes.get(layout.properties.clone()).unwrap_or_default(), Role::Server);
            properties = span(arrivals.bytes.len(), kept.len());
            arrivals.bytes.extend_from_slice(&kept);
        }
        if let Some(alias) = layout.meaning.topic_alias {
            if layout.topic.is_empty() {
                let name = self.publishing.named(alias)?;
                topic = span(arrivals.bytes.len(), name.len());
                arrivals.bytes.extend_from_slice(name);
            } else {
                self.publishing.name(alias, arrivals.span(topic))?;
            }
        }
        let fate = self.publishing.admit(layout.qos, layout.packet_identifier)?;
        arrivals.totals.note(layout.qos, body.len() - layout.payload);
        arrivals.publishes.push(Publish {
            connection: self.connection,
            publisher: self.party,
            key_slot: self.key_slot,
            packet_identifier: layout.packet_identifier,
            qos: layout.qos,
            retain: layout.retain,
            topic,
            properties,
            payload: within(&(layout.payload..body.len())),
            expiry_interval_s: layout.meaning.expiry_interval_s,
            fate,
            row: None,
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

    fn new(connection: Connection) -> Peer {
        Peer {
            connection,
            stage: Stage::Opening,
            version: Version::V311,
            party: Party(0),
            key_slot: KeySlot(0),
            silence_us: 0,
            packet_bytes_maximum: CONNECT_BYTES_MAXIMUM,
            publishing: Publishing::default(),
        }
    }

    #[inline]
    fn header(&self, bytes: &[u8]) -> Result<Option<Frame>, Fault> {
        if self.stage == Stage::Opening && bytes.first().is_some_and(|first| first >> 4 != 1) {
            return Err(Fault::protocol("a first packet that is not CONNECT [MQTT-3.1.0-1]"));
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
            (Stage::Connecting, kind) if kind != Kind::Auth && kind != Kind::Disconnect => {
                return Err(Fault::protocol("a packet before CONNECT was accepted [MQTT-3.1.4-6]"));
            }
            _ => {}
        }
        let bytes = arrivals.bytes.get(body).unwrap_or_default();
        match decode(frame, bytes, self.version, Role::Server)? {
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

/// The arena stays below 4 GiB: a turn brings [`TURN_BYTES_MAXIMUM`], and one packet at most passes it.
#[inline]
fn span(start: usize, size: usize) -> Span {
    Span { start: u32::try_from(start).unwrap_or(u32::MAX), size_bytes: u32::try_from(size).unwrap_or_default() }
}
