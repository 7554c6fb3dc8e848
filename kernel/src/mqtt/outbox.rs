//! The encoder of the hot path, which writes into what waits for each connection's socket.
//!
//! Owns: how each connection is written to, and what was dropped because it could not be sent; where messages are
//! carried on, what they become, and those of QoS 0 that wait.
//! Never: decides who gets a message; targets and deliveries come from route and delivery.
//!
//! Invariants:
//! 1. Messages of QoS 0 never make a buffer longer than [`OUTBOX_BYTES_MAXIMUM`]: they are dropped and counted. A
//!    message of any size goes into one that is half empty, or who keeps up would never get it.
//! 2. Where messages are carried on, those of QoS 0 wait on a shelf instead, and what waits there goes first.
//! 3. No packet exceeds the Maximum Packet Size of its receiver [MQTT-3.1.2-24].
//!
//! Flow: route and delivery -> outbox -> sockets. The last stage of a turn.

mod carrying;

use super::alias::{Alias, Aliases};
use super::counters::{drop_messages, Counters, Dropped};
use super::encode::put_acknowledgement;
use super::identity::Identity;
use super::passing::{Passing, Variants};
use super::property::put_pair;
use super::publish::{Writing, WritingProperties};
use super::sharing::{Member, Sharing};
use super::shelf::Carrying;
use super::Version;
use crate::entry::{self, Opened};
use crate::error::Result;
use crate::flow::{
    Acknowledgement, Arrivals, Departure, Fate, Message, Messages, Notice, NoticeKind, Outgoing, Publish, Refusal,
    Sending, Step, Target, Terms,
};
use crate::ids::{Connection, Offset, Party, Queue, Timestamp};
use crate::limits::OUTBOX_BYTES_MAXIMUM;
use crate::selection::{Key, Selection};
use crate::wire::buffers::{Buffer, Buffers};
use std::mem;
use std::sync::Arc;

const PINGRESP: [u8; 2] = [0xD0, 0];

/// How one connection is written to.
#[derive(Debug)]
struct Writer {
    version: Version,
    maximum_packet_size_bytes: usize,
    /// How many topic aliases the client takes.
    topic_alias_maximum: u16,
    /// Those that it was sent, from the first message on.
    aliases: Option<Box<Aliases>>,
    party: Party,
    /// Messages are carried on to another broker.
    carrying: Option<Box<Carrying>>,
    /// It is told which message each delivery is.
    identity: Option<Arc<Identity>>,
}

type Outbox = Buffer<Writer>;

/// Whether a message was written, or why not.
type Written = std::result::Result<(), NoticeKind>;

/// The sending side of all connections.
#[derive(Debug, Default)]
pub struct Outboxes {
    outboxes: Buffers<Writer>,
    /// The encodings of the message that is being passed through, or the properties of one that is told which it is.
    scratch: Vec<u8>,
    refused: Vec<(Connection, u16, NoticeKind)>,
    sharing: Sharing,
    dropped: Dropped,
    counters: Counters,
    /// Connections whose shelf may hold something.
    shelved: Vec<Connection>,
    /// The user property of what somebody else may have already; empty if nobody is told.
    again: Vec<u8>,
    /// The entry that is being passed through message by message.
    opened: Opened,
}

impl Outboxes {
    /// A connection may be sent to, within its Maximum Packet Size and its Topic Alias Maximum.
    pub fn open(
        &mut self,
        connection: Connection,
        version: Version,
        maximum_packet_size_bytes: u32,
        topic_alias_maximum: u16,
        party: Party,
    ) -> Result<()> {
        let writer = Writer {
            version,
            maximum_packet_size_bytes: usize::try_from(maximum_packet_size_bytes).unwrap_or(usize::MAX),
            topic_alias_maximum: if version == Version::V5 { topic_alias_maximum } else { 0 },
            aliases: None,
            party,
            carrying: None,
            identity: None,
        };
        self.outboxes.open(connection, writer)
    }

    /// Deliveries to an open connection tell from now on which message each is, or do no more. Those that pass through
    /// do not: what is not on the disk has an offset that may become another's.
    pub fn identify(&mut self, connection: Connection, identity: Option<Arc<Identity>>) {
        if let Some(outbox) = self.outboxes.get_mut(connection).filter(|outbox| outbox.writer.version == Version::V5) {
            outbox.writer.identity = identity;
        }
    }

    /// What has come back to a group has this user property from now on, or none: somebody else may have it already.
    pub fn mark_again(&mut self, mark: Option<(&str, &str)>) -> Result<()> {
        self.again.clear();
        mark.map_or(Ok(()), |(name, value)| put_pair(&mut self.again, name, value))
    }

    /// Forgets the connection and what waits for it.
    pub fn close(&mut self, connection: Connection) {
        self.outboxes.close(connection);
    }

    /// Appends encoded bytes; nothing happens if the connection is closed.
    pub fn write(&mut self, connection: Connection, bytes: &[u8]) {
        if let Some(outbox) = self.outboxes.get_mut(connection) {
            outbox.bytes.extend_from_slice(bytes);
            self.counters.bytes_encoded += count(bytes.len());
        }
    }

    /// While a connection is not writable its bytes stay here.
    pub fn set_writable(&mut self, connection: Connection, writable: bool) {
        self.outboxes.set_writable(connection, writable);
    }

    /// From now on at most so many messages to the connection are one piece for `take`; 0 for no limit.
    pub fn limit_writes(&mut self, connection: Connection, messages_maximum: usize) {
        self.outboxes.limit_writes(connection, messages_maximum);
    }

    /// Bytes that wait for the connection's socket.
    pub fn waiting_bytes(&self, connection: Connection) -> usize {
        self.outboxes.get(connection).map_or(0, |outbox| outbox.bytes.len())
    }

    /// Messages of QoS 0 for this queue, a group's, go to these members, chosen so.
    pub fn share(&mut self, queue: Queue, party: Party, selection: Selection<Connection>, members: Vec<Member>) {
        self.sharing.set(queue, party, selection, members);
    }

    /// The members of a group's queue, with what each has been given at QoS 0.
    pub fn members(&self, queue: Queue) -> &[Member] {
        self.sharing.members(queue)
    }

    /// Encodes the messages of this turn for targets that get them at QoS 0, and answers PINGREQ.
    pub fn pass_through(&mut self, arrivals: &Arrivals, now: Timestamp) {
        for publish in &arrivals.publishes {
            let (Fate::Accepted, Some(targets)) = (publish.fate, &publish.targets) else { continue };
            match arrivals.entry_of(publish) {
                None => self.pass(&Passing::new(arrivals, publish), publish, targets, now),
                Some(parts) => self.pass_entry(arrivals, publish, targets, parts.count, now),
            }
        }
        for connection in &arrivals.pings {
            let speaks_this = self.outboxes.get(*connection).is_some(); // Others ask in another protocol.
            self.write(*connection, &PINGRESP);
            self.counters.pings_answered += u64::from(speaks_this);
        }
    }

    /// Each message of an entry to those who get it at QoS 0; the entry is opened only if somebody does.
    fn pass_entry(&mut self, arrivals: &Arrivals, publish: &Publish, targets: &[Target], size: u32, now: Timestamp) {
        let gets = |target: &&Target| passing_terms(target, publish).is_some();
        if !targets.iter().any(|target| gets(&target)) {
            return;
        }
        let mut opened = mem::take(&mut self.opened);
        if entry::open(arrivals.span(publish.payload), &mut opened).is_ok() {
            for message in (0..opened.len()).filter_map(|index| opened.message(index)) {
                self.pass(&Passing::of_entry(arrivals, publish, &message), publish, targets, now);
            }
        } else {
            for target in targets.iter().filter(gets) {
                let connected = self.outboxes.get(target.connection).map(|outbox| outbox.writer.party);
                if let Some(party) = connected.or_else(|| self.sharing.party(target.queue)) {
                    drop_messages(&mut self.dropped, &mut self.counters, party, NoticeKind::Closed, u64::from(size));
                }
            }
        }
        self.opened = opened;
    }

    /// One message to many targets: each of the few ways to write it is written once and then copied.
    fn pass(&mut self, source: &Passing<'_>, publish: &Publish, targets: &[Target], now: Timestamp) {
        let Outboxes { outboxes, scratch, dropped, counters, sharing, shelved, .. } = self;
        let mut variants = Variants::default();
        scratch.clear();
        for target in targets {
            let Some(mut terms) = passing_terms(target, publish) else { continue };
            let mut connection = target.connection;
            if connection == Connection::GROUP {
                let slot = |key: &Key| key.slot(source.topic, source.properties, publish.key_slot);
                let Some(member) = sharing.next(target.queue, slot, |member| load(outboxes, member)) else {
                    if let Some(party) = sharing.party(target.queue) {
                        drop_messages(dropped, counters, party, NoticeKind::SlowReader, 1);
                    }
                    continue;
                };
                (connection, terms) = (member.connection, &member.terms);
            }
            let Some(outbox) = outboxes.get_mut(connection) else { continue };
            let retain = source.retain && terms.retain_as_published;
            let identifiers = terms.identifiers.as_deref().unwrap_or_default();
            let writing = source.writing(outbox.writer.version, retain, identifiers);
            if outbox.must_shelve() {
                let gone = outbox.shelve(&source.writing(Version::V5, retain, &[]), now);
                if shelved.last() != Some(&connection) {
                    shelved.push(connection);
                }
                drop_messages(dropped, counters, outbox.writer.party, NoticeKind::Overflow, gone);
                continue;
            }
            let before = outbox.bytes.len();
            let written = match outbox.writer.topic_alias_maximum {
                _ if outbox.writer.carrying.is_some() => outbox.carry(&source.writing(Version::V5, retain, &[])),
                _ if !source.properties.is_empty() && outbox.writer.identity.is_some() => outbox.disown(&writing),
                0 => outbox.copy(variants.encoded(scratch, &writing)),
                _ => outbox.publish(&writing),
            };
            match written {
                Ok(()) => {
                    counters.publishes_sent += 1;
                    counters.payload_bytes_sent += count(source.payload.len());
                    counters.bytes_encoded += count(outbox.bytes.len() - before);
                }
                Err(kind) => drop_messages(dropped, counters, outbox.writer.party, kind, 1),
            }
        }
    }

    /// Encodes stored messages, acknowledgements and bytes that waited; leaves in `outgoing` what goes to connections
    /// that are not open here.
    pub fn encode(&mut self, outgoing: &mut Outgoing, messages: &mut dyn Messages, now: Timestamp) -> Result<()> {
        self.clear_shelves(now);
        // Where nothing leaves to a connection that is open here, nothing is moved.
        if !outgoing.departures.iter().any(|departure| self.outboxes.get(departure.connection()).is_some()) {
            return Ok(());
        }
        let mut departures = mem::take(&mut outgoing.departures);
        for departure in departures.drain(..) {
            if self.outboxes.get(departure.connection()).is_none() {
                outgoing.departures.push(departure);
                continue;
            }
            match departure {
                Departure::Receipt(_) | Departure::Reply(_) => {}
                Departure::Sending(sending) => self.deliver(&sending, messages, now)?,
                Departure::Encoded(connection, bytes) => self.write(connection, &bytes),
                Departure::Acknowledgement(acknowledgement) => {
                    let Some(outbox) = self.outboxes.get_mut(acknowledgement.connection) else { continue };
                    if is_kept_by_peer(&acknowledgement, &outbox.writer) {
                        continue;
                    }
                    let before = outbox.bytes.len();
                    put_acknowledgement(&acknowledgement, outbox.writer.version, &mut outbox.bytes);
                    self.counters.bytes_encoded += count(outbox.bytes.len() - before);
                    self.counters.acknowledgements_sent += 1;
                }
            }
        }
        if outgoing.departures.is_empty() {
            outgoing.departures = departures;
        }
        Ok(())
    }

    fn deliver(&mut self, sending: &Sending, messages: &mut dyn Messages, now: Timestamp) -> Result<()> {
        let Outboxes { outboxes, scratch, refused, dropped, counters, again, .. } = self;
        let again = if sending.again { &**again } else { &[] };
        let Some(outbox) = outboxes.get_mut(sending.connection) else { return Ok(()) };
        let message = messages.message(sending.location, sending.offset)?;
        let payload_bytes = message.as_ref().map_or(0, |message| message.payload.len());
        let before = outbox.bytes.len();
        let refusal = match &message {
            Some(message) => outbox.put(sending, message, again, scratch, now).err(),
            // What is there and cannot be told apart is closed.
            None => match messages.entry(sending.location, sending.offset)? {
                Some(_) => Some(NoticeKind::Closed),
                None => Some(NoticeKind::Retention),
            },
        };
        match refusal {
            None => {
                counters.publishes_sent += 1;
                counters.payload_bytes_sent += count(payload_bytes);
                counters.bytes_encoded += count(outbox.bytes.len() - before);
            }
            Some(kind) => {
                if sending.qos == 0 {
                    drop_messages(dropped, counters, outbox.writer.party, kind, 1);
                } else {
                    counters.count_dropped(kind, 1);
                    refused.push((sending.connection, sending.packet_identifier, kind));
                }
            }
        }
        Ok(())
    }

    /// Deliveries at QoS 1 and 2 that were not sent since the last call, because the packet is too large for its
    /// receiver or the message is gone: their packet identifiers are free again [MQTT-3.1.2-25].
    pub fn refused(&mut self) -> Vec<(Connection, u16, NoticeKind)> {
        mem::take(&mut self.refused)
    }

    /// Hands all bytes of each writable connection to `send`, in one call, or in pieces where those are limited.
    pub fn take(&mut self, send: impl FnMut(Connection, &[u8])) {
        self.outboxes.take(send);
    }

    /// True if there is something in what the next calls of `refused` and `notices` return.
    pub fn has_exceptions(&self) -> bool {
        !(self.refused.is_empty() && self.dropped.is_empty())
    }

    /// What was dropped since the last call: messages of QoS 0, which have no offset here.
    pub fn notices(&mut self) -> Vec<Notice> {
        let notice = |((party, kind), count)| Notice { party, kind, first: Offset(0), end: Offset(0), count };
        mem::take(&mut self.dropped).into_iter().map(notice).collect()
    }

    /// Totals since the start.
    pub fn counters(&self) -> Counters {
        self.counters
    }
}

impl Outbox {
    fn put(
        &mut self,
        sending: &Sending,
        message: &Message<'_>,
        again: &[u8],
        scratch: &mut Vec<u8>,
        now: Timestamp,
    ) -> Written {
        let expired = message.expires_at.is_some_and(|at| at <= now);
        if expired && sending.qos == 0 {
            return Err(NoticeKind::Expired);
        }
        // At QoS 1 and 2 expiry was decided when the packet identifier was allotted; the interval is never 0.
        // A clock that was set back while the broker was down does not give a message more than it came with.
        let since = now.0.max(message.appended_at.0);
        let expiry_interval_s = message.expires_at.map(|at| {
            let remaining_s = at.0.saturating_sub(since).div_ceil(1_000_000).max(1);
            u32::try_from(remaining_s).unwrap_or(u32::MAX)
        });
        let (identifiers, encoded) = (sending.identifiers.as_deref().unwrap_or_default(), message.properties);
        let properties = WritingProperties { topic_alias: None, expiry_interval_s, encoded, identifiers };
        let writing = Writing {
            dup: sending.dup,
            qos: sending.qos,
            retain: sending.retain,
            packet_identifier: sending.packet_identifier,
            topic: message.topic,
            payload: message.payload,
            properties: (self.writer.version == Version::V5).then_some(properties),
        };
        if self.writer.carrying.is_some() {
            return self.carry(&Writing { properties: Some(properties), ..writing });
        }
        if self.writer.identity.is_some() || !again.is_empty() {
            return self.publish_told(&writing, sending.offset, again, scratch);
        }
        self.publish(&writing)
    }

    /// Writes a message with what we tell of it: which it is, that it came back.
    #[inline(never)]
    fn publish_told(&mut self, writing: &Writing<'_>, offset: Offset, again: &[u8], scratch: &mut Vec<u8>) -> Written {
        let encoded = writing.properties.unwrap_or_default().encoded;
        scratch.clear();
        match &self.writer.identity {
            Some(identity) => identity.tell(encoded, Some(offset), scratch),
            None => scratch.extend_from_slice(encoded),
        }
        scratch.extend_from_slice(again);
        match self.publish(&writing.with_encoded(scratch)) {
            // What we add may not keep the message back.
            Err(NoticeKind::TooLarge) => self.disown(writing),
            written => written,
        }
    }

    /// Writes a message of which we tell nothing: it has no identity, not even with one that its publisher claims.
    fn disown(&mut self, writing: &Writing<'_>) -> Written {
        let Some(identity) = &self.writer.identity else { return self.publish(writing) };
        let mut kept = Vec::new();
        identity.tell(writing.properties.unwrap_or_default().encoded, None, &mut kept);
        self.publish(&writing.with_encoded(&kept))
    }

    /// Writes a PUBLISH, with a topic alias in place of its topic where the client takes one.
    #[inline]
    fn publish(&mut self, writing: &Writing<'_>) -> Written {
        if self.writer.topic_alias_maximum == 0 {
            return self.append(writing);
        }
        self.publish_by_alias(writing)
    }

    fn publish_by_alias(&mut self, writing: &Writing<'_>) -> Written {
        let topic = writing.topic;
        match self.writer.aliases.get_or_insert_default().choose(topic, self.writer.topic_alias_maximum) {
            Alias::None => self.append(writing),
            Alias::Known(alias) => self.append(&writing.with_alias(alias, &[])),
            Alias::New(alias, hash) => match self.append(&writing.with_alias(alias, topic)) {
                // The alias makes it longer, once: that alone may not keep the message back.
                Err(NoticeKind::TooLarge) => self.append(writing),
                Ok(()) => {
                    self.writer.aliases.get_or_insert_default().bind(alias, topic, hash);
                    Ok(())
                }
                refused => refused,
            },
        }
    }

    #[inline]
    fn append(&mut self, writing: &Writing<'_>) -> Written {
        self.refuse(writing.size_bytes(), writing.qos)?;
        writing.write(&mut self.bytes).map_err(|_| NoticeKind::TooLarge)?;
        self.end_message();
        Ok(())
    }

    /// Takes a packet of QoS 0 that is written already; an empty one could not be.
    #[inline]
    fn copy(&mut self, encoded: &[u8]) -> Written {
        if encoded.is_empty() {
            return Err(NoticeKind::TooLarge);
        }
        self.refuse(encoded.len(), 0)?;
        self.bytes.extend_from_slice(encoded);
        self.end_message();
        Ok(())
    }

    #[inline]
    fn refuse(&self, size_bytes: usize, qos: u8) -> Written {
        let waiting = self.bytes.len();
        if size_bytes > self.writer.maximum_packet_size_bytes {
            Err(NoticeKind::TooLarge)
        } else if qos == 0 && waiting >= OUTBOX_BYTES_MAXIMUM / 2 && waiting + size_bytes > OUTBOX_BYTES_MAXIMUM {
            Err(NoticeKind::SlowReader)
        } else {
            Ok(())
        }
    }
}

/// True for what is not told, so that the peer keeps its message and sends it again. Older versions cannot be told
/// that the log has no room: without its reason code that would read as "taken". Another server is not told either,
/// since nobody there would send again what was refused. What older versions may not publish is acknowledged all the
/// same ([MQTT-3.3.5-2] of 3.1.1), since they would send it for ever. PUBCOMP ends its exchange whatever its reason
/// code.
fn is_kept_by_peer(told: &Acknowledgement, writer: &Writer) -> bool {
    let answers_publish = matches!(told.step, Step::Acknowledged | Step::Received);
    let is_old = writer.version < Version::V5 && told.refusal.is_some_and(|refusal| refusal != Refusal::NotAuthorized);
    answers_publish && (is_old || writer.carrying.is_some() && told.refusal == Some(Refusal::NoRoom))
}

/// The terms on which a target gets what passes through; `None` if it does not.
#[inline]
fn passing_terms<'a>(target: &'a Target, publish: &Publish) -> Option<&'a Terms> {
    target.terms_for(publish.publisher).filter(|terms| terms.qos.min(publish.qos) == 0)
}

/// True if a member of a group may be chosen: it keeps up.
fn load(outboxes: &Buffers<Writer>, connection: Connection) -> Option<usize> {
    outboxes.get(connection).filter(|outbox| outbox.has_room()).map(|outbox| outbox.bytes.len())
}

fn count(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}
