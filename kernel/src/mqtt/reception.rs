//! What arrives on one connection: bytes to packets, packets to the batch.
//!
//! Owns: the bytes that are not decoded yet, and what is allowed next on this connection.
//!
//! Invariants:
//! 1. While the connection is neither held nor queued, `backlog` is empty or the beginning of one packet.
//! 2. A byte is copied a bounded number of times, however its packet is split.
//! 3. Nothing is allocated for a Remaining Length before its bytes have come.

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
use crate::ids::{Connection, KeySlot, Party, Timestamp};
use crate::limits::{CONNECT_BYTES_MAXIMUM, TURN_BYTES_MAXIMUM, TURN_CONNECTION_BYTES_MAXIMUM};
use crate::wire::rate::{Allowance, Rate};
use std::ops::Range;

/// Capacity that an emptied backlog may keep: enough for the tail of small packets, little enough for a connection
/// that idles.
const BACKLOG_KEPT_BYTES: usize = 128;

/// What a peer that sends faster than its limit has done.
const TOO_FAST: Fault = Fault {
    reason_code: reason_code::MESSAGE_RATE_TOO_HIGH,
    reason: "more in a second than this connection may send",
    version: None,
};

/// What decode tells the caller about a connection: a control packet, or that the peer broke the protocol.
pub type Event = Result<Packet, Fault>;

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing came: CONNECT must.
    Opening,
    /// CONNECT came and is not accepted: only AUTH and DISCONNECT may follow [MQTT-3.1.4-6].
    Connecting,
    /// CONNECT was accepted.
    Accepted,
    /// The peer broke the protocol: nothing more is decoded.
    Ended,
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

/// One connection's receiving side.
#[derive(Debug)]
pub struct Reception {
    connection: Connection,
    stage: Stage,
    version: Version,
    party: Party,
    key_slot: KeySlot,
    /// One and a half times Keep Alive; 0 if it is off.
    silence_us: u64,
    heard_at: Timestamp,
    packet_bytes_maximum: usize,
    backlog: Vec<u8>,
    /// How much of the backlog has been decoded.
    consumed: usize,
    /// Bytes of this turn that wait in the arena.
    pub fed_bytes: usize,
    /// A control packet of this connection is being worked on.
    pub held: bool,
    /// The backlog may hold whole packets, which the next decode takes.
    pub queued: bool,
    /// It sent more than may wait, or faster than it may: the next decode reports it.
    breach: Option<Fault>,
    /// How fast it may send.
    pub rate: Option<Box<Rate>>,
    /// Messages and aliases.
    pub publishing: Publishing,
}

impl Reception {
    /// A connection of which nothing is known.
    pub fn new(connection: Connection) -> Reception {
        Reception {
            connection,
            stage: Stage::Opening,
            version: Version::V311,
            party: Party(0),
            key_slot: KeySlot(0),
            silence_us: 0,
            heard_at: Timestamp(0),
            packet_bytes_maximum: CONNECT_BYTES_MAXIMUM,
            backlog: Vec::new(),
            consumed: 0,
            fed_bytes: 0,
            held: false,
            queued: false,
            breach: None,
            rate: None,
            publishing: Publishing::default(),
        }
    }

    /// CONNECT was accepted.
    pub fn accept(&mut self, acceptance: Acceptance) {
        if self.stage != Stage::Ended {
            self.stage = Stage::Accepted;
        }
        self.party = acceptance.party;
        self.key_slot = acceptance.key_slot;
        self.version = acceptance.version;
        self.silence_us = u64::from(acceptance.keep_alive_s) * 1_500_000;
        self.packet_bytes_maximum = usize::try_from(acceptance.maximum_packet_size_bytes).unwrap_or(usize::MAX);
        self.publishing = acceptance.publishing;
    }

    /// `count` bytes came at `now`. A fault if they are more than may wait, or came faster than they may.
    pub fn heard(&mut self, count: usize, now: Timestamp) -> Result<(), Fault> {
        self.heard_at = now;
        let unread = self.held || self.queued;
        if let Some(rate) = self.rate.as_mut().filter(|_| count > 0) {
            // Once the connection is decoded again, all that waits is decoded in one go, and its messages count then.
            match unread {
                true => rate.advance_unread(now),
                false => rate.advance(now),
            }
            if !rate.spend(0, count) {
                return Err(TOO_FAST);
            }
        }
        let maximum = self.packet_bytes_maximum.saturating_add(TURN_CONNECTION_BYTES_MAXIMUM);
        if self.waiting_bytes().saturating_add(count) > maximum {
            return Err(Fault::new(reason_code::QUOTA_EXCEEDED, "more bytes than may wait undecoded"));
        }
        Ok(())
    }

    /// True if nothing came for one and a half times Keep Alive [MQTT-3.1.2-22].
    pub fn is_silent(&self, now: Timestamp) -> bool {
        self.stage == Stage::Accepted && self.silence_us > 0 && now.0.saturating_sub(self.heard_at.0) > self.silence_us
    }

    /// True after a fault.
    pub fn is_ended(&self) -> bool {
        self.stage == Stage::Ended
    }

    /// Bytes that wait undecoded.
    pub fn waiting_bytes(&self) -> usize {
        self.backlog.len() - self.consumed + self.fed_bytes
    }

    /// The next decode reports this fault.
    pub fn end(&mut self, breach: Fault) {
        self.breach = Some(breach);
        self.backlog = Vec::new();
        self.consumed = 0;
    }

    /// Where bytes go that cannot be decoded in this turn.
    pub fn backlog(&mut self) -> &mut Vec<u8> {
        &mut self.backlog
    }

    /// Decodes `piece` of the arena, after what came before it.
    pub fn decode_piece(
        &mut self,
        piece: Range<usize>,
        allowance: Allowance,
        arrivals: &mut Arrivals,
        events: &mut Vec<(Connection, Event)>,
    ) {
        self.fed_bytes = self.fed_bytes.saturating_sub(piece.len());
        let mut at = piece.start;
        let mut spent = allowance.is_spent(arrivals.publishes.len(), 0);
        if !self.backlog.is_empty() && !self.held && !self.queued && !spent {
            at = match self.complete(piece.clone(), arrivals) {
                Ok((at, event)) => {
                    self.report(event.map(Ok), events);
                    at
                }
                Err(fault) => return self.report(Some(Err(fault)), events),
            };
        }
        let start = at;
        while !self.held && !self.queued && self.stage != Stage::Ended {
            spent = allowance.is_spent(arrivals.publishes.len(), at - start);
            if spent {
                break;
            }
            match self.step(at, piece.end, arrivals) {
                Ok(None) => break,
                Ok(Some((size, event))) => {
                    at += size;
                    self.report(event.map(Ok), events);
                }
                Err(fault) => return self.report(Some(Err(fault)), events),
            }
        }
        if self.stage != Stage::Ended {
            let rest = arrivals.bytes.get(at..piece.end).unwrap_or_default();
            self.backlog.extend_from_slice(rest);
            self.queued |= spent && !rest.is_empty() && !self.held;
        }
    }

    /// Decodes what waits in the backlog, as far as one turn goes.
    pub fn decode_backlog(
        &mut self,
        allowance: Allowance,
        arrivals: &mut Arrivals,
        events: &mut Vec<(Connection, Event)>,
    ) {
        self.queued = false;
        if let Some(fault) = self.breach.take() {
            return self.report(Some(Err(fault)), events);
        }
        let before = self.consumed;
        while !self.held && self.stage != Stage::Ended {
            let spent = allowance.is_spent(arrivals.publishes.len(), self.consumed - before);
            if spent || arrivals.bytes.len() >= TURN_BYTES_MAXIMUM {
                self.queued = true;
                break;
            }
            let waiting = self.backlog.get(self.consumed..).unwrap_or_default();
            let frame = match self.frame(waiting) {
                Ok(Some(frame)) if frame.size_bytes <= waiting.len() => frame,
                Ok(_) => break,
                Err(fault) => return self.report(Some(Err(fault)), events),
            };
            let start = arrivals.bytes.len();
            arrivals.bytes.extend_from_slice(waiting.get(..frame.size_bytes).unwrap_or_default());
            self.consumed += frame.size_bytes;
            let event = self.take(&frame, start, arrivals);
            self.report(event.transpose(), events);
        }
        self.compact();
    }

    /// Moves what is left of the backlog to its start, rarely enough that each byte is moved a bounded number of times.
    fn compact(&mut self) {
        let resting = !self.held && !self.queued;
        if self.consumed == self.backlog.len() {
            self.backlog.clear();
            self.consumed = 0;
        } else if resting || self.consumed >= self.backlog.len() / 2 {
            self.backlog.drain(..self.consumed);
            self.consumed = 0;
        }
        if self.backlog.is_empty() && self.backlog.capacity() > BACKLOG_KEPT_BYTES {
            self.backlog = Vec::new();
        }
    }

    fn report(&mut self, event: Option<Event>, events: &mut Vec<(Connection, Event)>) {
        let Some(event) = event else { return };
        self.held = true;
        let known = self.stage != Stage::Opening;
        let event = event.map_err(|fault| if known { fault.in_version(self.version) } else { fault });
        if event.is_err() {
            self.stage = Stage::Ended;
            self.backlog = Vec::new();
            self.consumed = 0;
        }
        events.push((self.connection, event));
    }

    /// Completes the packet that began in an earlier turn with the start of `piece`, and takes it; returns where the
    /// next packet starts.
    fn complete(&mut self, piece: Range<usize>, arrivals: &mut Arrivals) -> Result<(usize, Option<Packet>), Fault> {
        let mut at = piece.start;
        loop {
            let frame = self.frame(&self.backlog)?;
            let needed = frame.map_or(1, |frame| frame.size_bytes.saturating_sub(self.backlog.len()));
            if let (0, Some(frame)) = (needed, frame) {
                let start = arrivals.bytes.len();
                arrivals.bytes.extend_from_slice(&self.backlog);
                self.consumed = self.backlog.len();
                self.compact();
                return Ok((at, self.take(&frame, start, arrivals)?));
            }
            let end = at.saturating_add(needed).min(piece.end);
            if at == end {
                return Ok((at, None));
            }
            self.backlog.extend_from_slice(arrivals.bytes.get(at..end).unwrap_or_default());
            at = end;
        }
    }

    /// Takes the packet at `at` of the arena if it is whole; returns its size.
    #[inline]
    fn step(
        &mut self,
        at: usize,
        end: usize,
        arrivals: &mut Arrivals,
    ) -> Result<Option<(usize, Option<Packet>)>, Fault> {
        let waiting = arrivals.bytes.get(at..end).unwrap_or_default();
        match self.frame(waiting)? {
            Some(frame) if frame.size_bytes <= waiting.len() => {
                let event = self.take(&frame, at, arrivals)?;
                Ok(Some((frame.size_bytes, event)))
            }
            _ => Ok(None),
        }
    }

    /// The fixed header at the start of `bytes`, refused as early as it can be.
    #[inline]
    fn frame(&self, bytes: &[u8]) -> Result<Option<Frame>, Fault> {
        if self.stage == Stage::Opening && bytes.first().is_some_and(|first| first >> 4 != 1) {
            return Err(Fault::protocol("a first packet that is not CONNECT [MQTT-3.1.0-1]"));
        }
        let frame = Frame::read(bytes)?;
        if frame.is_some_and(|frame| frame.size_bytes > self.packet_bytes_maximum) {
            return Err(Fault::new(
                reason_code::PACKET_TOO_LARGE,
                "a packet above Maximum Packet Size (MQTT 5 section 3.2.2.3.6)",
            ));
        }
        Ok(frame)
    }

    /// Takes the whole packet at `start` of the arena: into the batch, or returned for the caller to decide on.
    #[inline]
    fn take(&mut self, frame: &Frame, start: usize, arrivals: &mut Arrivals) -> Result<Option<Packet>, Fault> {
        let body = start + frame.header_bytes..start + frame.size_bytes;
        let kind = frame.kind()?;
        match (self.stage, kind) {
            (Stage::Accepted, Kind::Publish) => {
                self.publish(frame, body, arrivals)?;
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

    #[inline]
    fn publish(&mut self, frame: &Frame, body: Range<usize>, arrivals: &mut Arrivals) -> Result<(), Fault> {
        if !frame.minimal && self.version == Version::V5 {
            return Err(NOT_MINIMAL);
        }
        if let Some(rate) = &mut self.rate {
            if !rate.spend(1, 0) {
                return Err(TOO_FAST);
            }
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
        arrivals.received.note(layout.qos, body.len() - layout.payload);
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

/// The arena stays below 4 GiB: a turn brings [`TURN_BYTES_MAXIMUM`], and one packet at most passes it.
#[inline]
fn span(start: usize, size: usize) -> Span {
    Span { start: u32::try_from(start).unwrap_or(u32::MAX), size_bytes: u32::try_from(size).unwrap_or_default() }
}
