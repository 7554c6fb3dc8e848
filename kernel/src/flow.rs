//! The values that pass from stage to stage; the stages themselves do not know one another.
//!
//! They name no protocol's packets and no protocol's codes: each protocol translates what it has to say into these
//! words, and what it is told out of them.
//!
//! What is published is a message, or an *entry*: several that a producer has put together, which are stored, and given
//! to who wants them so, as they came ([`entry`]).
//!
//! Flow: [`Arrivals`] is made by decode, completed by route (targets) and append (where each message is stored), and
//! read by admit and pass. [`Scan`] asks the log for what a queue has not yet seen. [`Outgoing`] goes to encode.

pub mod entry;
pub mod exchange;
pub mod moment;
pub mod rows;
pub mod state;
pub mod submission;

use crate::error::Result;
use crate::flow::entry::{Entry, EntryParts, Permits, Receipt, Reply, Settlement};
use crate::ids::{Connection, KeySlot, Location, LogPosition, Offset, Party, Queue, Receiver, Timestamp, TopicId};
use crate::selection::Key;
use crate::topic::grant::Grant;
use std::sync::Arc;

/// A range of bytes in an [`Arrivals`] arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// Number of bytes.
    pub size_bytes: u32,
}

impl Span {
    /// The arena stays below 4 GiB: a turn has `TURN_DECODED_BYTES_MAXIMUM` of [`crate::limits`], and little passes it.
    pub fn new(start: usize, size: usize) -> Span {
        Span { start: u32::try_from(start).unwrap_or(u32::MAX), size_bytes: u32::try_from(size).unwrap_or_default() }
    }
}

/// Everything that one turn of the loop brought, over all connections. Cleared and reused from turn to turn.
#[derive(Debug, Default)]
pub struct Arrivals {
    /// The arena that all spans point into.
    pub bytes: Vec<u8>,
    /// Messages that are published, in order per connection.
    pub publishes: Vec<Publish>,
    /// What peers say of messages on their way, in order per connection.
    pub acknowledgements: Vec<Acknowledgement>,
    /// Connections that ask whether anybody is there, to be answered.
    pub pings: Vec<Connection>,
    /// What those of `publishes` that are entries have besides.
    pub entries: Vec<EntryParts>,
    /// How many more messages receivers take, in order per connection.
    pub permits: Vec<Permits>,
    /// What receivers say of entries that were given to them, in order per connection.
    pub settlements: Vec<Settlement>,
    /// The entry numbers that `settlements` are about.
    pub numbers: Vec<u64>,
    /// What peers have sent in all turns.
    pub totals: Totals,
    /// So many of `publishes`, the last ones but for `rows`, were handed in.
    pub submissions: usize,
    /// So many of `publishes`, the last ones, are rows of a batch.
    pub rows: usize,
}

/// Messages that peers have published, and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// At QoS 0, 1 and 2.
    pub publishes: [u64; 3],
    /// Bytes of what they say.
    pub payload_bytes: u64,
}

impl Totals {
    /// One message more.
    #[inline]
    pub fn note(&mut self, qos: u8, payload_bytes: usize) {
        if let Some(count) = self.publishes.get_mut(usize::from(qos)) {
            *count = count.wrapping_add(1);
        }
        self.payload_bytes = self.payload_bytes.wrapping_add(u64::try_from(payload_bytes).unwrap_or_default());
    }

    /// One entry more: its messages are as durable as those at QoS 1.
    #[inline]
    pub fn note_entry(&mut self, messages: u32, bytes: usize) {
        self.note(1, bytes);
        let [_, count, _] = &mut self.publishes;
        *count = count.wrapping_add(u64::from(messages.saturating_sub(1)));
    }

    /// Messages at whatever QoS.
    #[inline]
    pub fn messages(&self) -> u64 {
        self.publishes.iter().fold(0, |sum, count| sum.wrapping_add(*count))
    }
}

impl Arrivals {
    /// The bytes of a span; empty if it lies outside the arena.
    pub fn span(&self, span: Span) -> &[u8] {
        let start = usize::try_from(span.start).unwrap_or(usize::MAX);
        let size = usize::try_from(span.size_bytes).unwrap_or(usize::MAX);
        start.checked_add(size).and_then(|end| self.bytes.get(start..end)).unwrap_or_default()
    }

    /// True if the turn brought nothing.
    pub fn is_empty(&self) -> bool {
        self.publishes.is_empty()
            && self.acknowledgements.is_empty()
            && self.pings.is_empty()
            && self.permits.is_empty()
            && self.settlements.is_empty()
    }

    /// Forgets this turn's arrivals and keeps the allocations, and the totals.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.publishes.clear();
        self.acknowledgements.clear();
        self.pings.clear();
        self.entries.clear();
        self.permits.clear();
        self.settlements.clear();
        self.numbers.clear();
        self.submissions = 0;
        self.rows = 0;
    }
}

/// One message on its way through the stages.
#[derive(Debug, Clone)]
pub struct Publish {
    /// Where it came from, and who is told what becomes of it.
    pub connection: Connection,
    /// Who published it.
    pub publisher: Party,
    /// The slot of its publisher, the same on every connection: the log keeps it.
    pub key_slot: KeySlot,
    /// 0 at QoS 0.
    pub packet_identifier: u16,
    /// 0, 1 or 2.
    pub qos: u8,
    /// The RETAIN flag as sent.
    pub retain: bool,
    /// The topic name; topic aliases are resolved by decode.
    pub topic: Span,
    /// Properties that travel with the message, in MQTT 5 encoding without their length prefix: payload format
    /// indicator, content type, response topic, correlation data, user properties in order. Never an alias, an
    /// expiry interval or a subscription identifier.
    pub properties: Span,
    /// The application message.
    pub payload: Span,
    /// The Message Expiry Interval as sent, in seconds.
    pub expiry_interval_s: Option<u32>,
    /// What becomes of it. Set by decode, and by append where the log refuses.
    pub fate: Fate,
    /// What it has besides as a row of a batch; `None` of all others.
    pub row: Option<RowParts>,
    /// Which of [`Arrivals::entries`] says what it has besides as an entry; `None` of a message.
    pub entry: Option<u32>,
    /// Filled by route: the attached queues that get it. `None` where nobody does.
    pub targets: Option<Arc<[Target]>>,
    /// Filled by append, for messages that are stored.
    pub stored: Option<Stored>,
}

/// What a row of a batch has besides. Rows are stored whatever their QoS, and none without the one before it.
#[derive(Debug, Clone, Copy, Default)]
pub struct RowParts {
    /// Its key, if it has one.
    pub key: Option<Span>,
    /// When it happened, if its publisher said so.
    pub event_time: Option<Timestamp>,
}

/// What becomes of a message that is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Route it, store it, acknowledge it when durable.
    Accepted,
    /// QoS 2 and received before: acknowledge again, do nothing else.
    Duplicate,
    /// Not taken; its publisher is told why.
    Refused(Refusal),
    /// Its publisher may not publish to this topic. Set by route.
    Denied,
}

/// Where and when a message was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// Its offset.
    pub offset: Offset,
    /// The number of its topic.
    pub topic: TopicId,
    /// Its number among the entries of its topic.
    pub entry: u64,
    /// Its bytes.
    pub location: Location,
    /// The number of its bytes in the log.
    pub size_bytes: u32,
    /// True if it is of QoS 0 and is there for queues that are given entries whole.
    pub is_kept: bool,
    /// When it expires, if ever.
    pub expires_at: Option<Timestamp>,
    /// It is durable once the log is durable up to here.
    pub durable_at: LogPosition,
}

/// One attached queue that gets a message, and on what terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The queue.
    pub queue: Queue,
    /// The connection that holds the queue: messages of QoS 0 pass straight to it. [`Connection::GROUP`] for a group.
    pub connection: Connection,
    /// On which terms.
    pub terms: Terms,
    /// Where a matching subscription has No Local: whose own messages go by the others alone, and on which terms;
    /// `None` there if there is no other.
    pub own: Option<Arc<(Party, Option<Terms>)>>,
}

impl Target {
    /// The terms for a message of `publisher`; `None` if the queue does not get it.
    #[inline]
    pub fn terms_for(&self, publisher: Party) -> Option<&Terms> {
        match self.own.as_deref() {
            Some((owner, terms)) if *owner == publisher => terms.as_ref(),
            _ => Some(&self.terms),
        }
    }
}

/// The terms on which a queue gets a message: the best of its matching subscriptions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Terms {
    /// The highest maximum QoS of the matching subscriptions; a delivery has the lower of this and the message's.
    pub qos: u8,
    /// Keep the RETAIN flag as published.
    pub retain_as_published: bool,
    /// The subscription identifiers of all matching subscriptions.
    pub identifiers: Option<Arc<[u32]>>,
}

/// One subscription of a queue, with the offsets for which it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// The topic filter (without `$share/...`).
    pub filter: Vec<u8>,
    /// Maximum QoS.
    pub qos: u8,
    /// MQTT 5 No Local.
    pub no_local: bool,
    /// True if it wants what is kept of QoS 0.
    pub keeps_all: bool,
    /// MQTT 5 Retain As Published.
    pub retain_as_published: bool,
    /// MQTT 5 Subscription Identifier.
    pub identifier: Option<u32>,
    /// The first offset it holds for.
    pub from: Offset,
    /// The first offset it no longer holds for; `Offset(u64::MAX)` while it is in force.
    pub until: Offset,
}

/// The terms on which `subscriptions` of the queue of `owner` get a message of `topic` at `offset` by `publisher`, or
/// `None` if none of them wants it. Where several match, the message is delivered once: highest QoS, all identifiers.
pub fn terms(
    subscriptions: &[Subscription],
    topic: &[u8],
    offset: Offset,
    publisher: Party,
    owner: Party,
) -> Option<Terms> {
    let mut found: Option<Terms> = None;
    let mut identifiers: Vec<u32> = Vec::new();
    for subscription in subscriptions {
        let holds = subscription.from <= offset && offset < subscription.until;
        let own = subscription.no_local && publisher == owner && publisher != Party(0);
        if !holds || own || !crate::topic::matches(&subscription.filter, topic) {
            continue;
        }
        let terms = found.get_or_insert_with(Terms::default);
        terms.qos = terms.qos.max(subscription.qos);
        terms.retain_as_published |= subscription.retain_as_published;
        identifiers.extend(subscription.identifier);
    }
    if let Some(terms) = &mut found {
        if !identifiers.is_empty() {
            terms.identifiers = Some(identifiers.into());
        }
    }
    found
}

/// What one end of a connection tells the other about a message on its way between them. At QoS 1 there is one step,
/// at QoS 2 there are three.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// By the receiver: it has the message, and that is all.
    Acknowledged,
    /// By the receiver: it has the message, and keeps its identifier in mind.
    Received,
    /// By the sender: it knows that, and will not send the message again.
    Released,
    /// By the receiver: it keeps the identifier in mind no more.
    Completed,
}

/// Why a message, or what was said of one, was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// Its publisher may not publish there.
    NotAuthorized,
    /// The log has no room for it.
    NoRoom,
    /// Its topic is new, and the log has as many as it may have.
    TooManyTopics,
    /// It does not have the checksum that it came with.
    Damaged,
    /// Nothing is in flight under this packet identifier.
    NotInFlight,
    /// The peer does not take it, for reasons of its own.
    ByPeer,
}

/// One step, taken by the peer or to be told to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acknowledgement {
    /// From or to which connection.
    pub connection: Connection,
    /// Which step.
    pub step: Step,
    /// About the message with this packet identifier.
    pub packet_identifier: u16,
    /// Why the message was not taken, if it was not.
    pub refusal: Option<Refusal>,
}

/// A request to the log: which records after `from` does this queue want? Filled by the log.
#[derive(Debug, Clone)]
pub struct Scan {
    /// Whose queue.
    pub queue: Queue,
    /// The queue's owner (for No Local).
    pub owner: Party,
    /// The queue's subscriptions, past ones included while their range is not yet read.
    pub subscriptions: Arc<[Subscription]>,
    /// What the queue may get of that; `None` for everything.
    pub receive: Option<Grant>,
    /// It gets entries as they are; else each of their messages is a record of its own, with its own offset.
    pub whole: bool,
    /// What the keys of its records are taken from; `None` for the slots that they carry.
    pub key: Option<Key>,
    /// The first offset to look at.
    pub from: Offset,
    /// Besides, these single records are looked up: what the queue is owed, or has to give out again.
    pub owed: Vec<Offset>,
    /// In place of those, retained messages that a filter matches, in offset order. Result: the first of them stand in
    /// `owed`, and its `from` says up to where was looked.
    pub retained: Option<(Vec<u8>, state::OwedFilter)>,
    /// At most this many records are found, ...
    pub records_maximum: u32,
    /// ... and at most about this many stored bytes are looked at.
    pub bytes_maximum: u64,
    /// Result: what the queue wants, in offset order. Only durable records.
    pub found: Vec<Found>,
    /// Result: for each of `owed`, in that order, the record, or `None` if retention has taken it or the queue does not
    /// get it. Terms are empty.
    pub found_owed: Vec<Option<Found>>,
    /// Result: everything below this offset has been looked at.
    pub reached: Offset,
    /// Result: offsets from `from` on that retention has taken before they could be read, if any: first and end.
    pub missing: Option<(Offset, Offset)>,
}

/// A stored record that a queue wants.
#[derive(Debug, Clone)]
pub struct Found {
    /// Its first offset.
    pub offset: Offset,
    /// Its number among the entries of its topic.
    pub entry: u64,
    /// How many messages it holds (1, except for entries that are given out whole).
    pub count: u32,
    /// Its bytes.
    pub location: Location,
    /// What it takes where it is given out, about.
    pub size_bytes: u32,
    /// The QoS it was published with.
    pub qos: u8,
    /// The RETAIN flag it was published with.
    pub retain: bool,
    /// When it expires, if ever.
    pub expires_at: Option<Timestamp>,
    /// The slot of its key.
    pub key_slot: KeySlot,
    /// On which terms the queue gets it.
    pub terms: Terms,
}

impl Found {
    /// True if its Message Expiry Interval has passed: it is not sent.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

/// A stored message as encode needs it; borrowed from the log's memory.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    /// Topic name.
    pub topic: &'a [u8],
    /// Properties as in [`Publish::properties`].
    pub properties: &'a [u8],
    /// Application message.
    pub payload: &'a [u8],
    /// QoS as published.
    pub qos: u8,
    /// The RETAIN flag as published.
    pub retain: bool,
    /// When it was stored.
    pub appended_at: Timestamp,
    /// When it expires, if ever.
    pub expires_at: Option<Timestamp>,
}

/// Where encode finds stored messages.
pub trait Messages {
    /// The message with an offset, which was at `location` when it was found; `None` if retention has taken it. One of
    /// an entry is taken out of it; `None` too where it cannot be (it is encrypted, or part of a larger one).
    fn message(&mut self, location: Location, offset: Offset) -> Result<Option<Message<'_>>>;

    /// The whole record with this first offset, which was at `location` when it was found; `None` if retention has
    /// taken it.
    fn entry(&mut self, location: Location, offset: Offset) -> Result<Option<Entry<'_>>>;
}

/// What one turn sends, in order per connection.
#[derive(Debug, Default)]
pub struct Outgoing {
    /// What leaves.
    pub departures: Vec<Departure>,
}

/// One thing that leaves.
#[derive(Debug, Clone)]
pub enum Departure {
    /// A stored message.
    Sending(Sending),
    /// A step about a message.
    Acknowledgement(Acknowledgement),
    /// What becomes of an entry.
    Receipt(Receipt),
    /// What a receiver said is durable.
    Reply(Reply),
    /// Bytes that the caller encoded and that waited for the disk.
    Encoded(Connection, Vec<u8>),
}

impl Departure {
    /// Where it goes.
    #[inline]
    pub fn connection(&self) -> Connection {
        match self {
            Departure::Sending(sending) => sending.connection,
            Departure::Acknowledgement(told) => told.connection,
            Departure::Receipt(receipt) => receipt.connection,
            Departure::Reply(reply) => reply.connection,
            Departure::Encoded(connection, _) => *connection,
        }
    }
}

/// One stored message on its way to one subscriber.
#[derive(Debug, Clone)]
pub struct Sending {
    /// To whom.
    pub connection: Connection,
    /// To whom of those on that connection.
    pub receiver: Receiver,
    /// How often it has come back and is given out again; counted where the receiver asked for that.
    pub redeliveries: u16,
    /// 0 at QoS 0.
    pub packet_identifier: u16,
    /// The QoS of this delivery.
    pub qos: u8,
    /// Sent before on an earlier connection.
    pub dup: bool,
    /// Somebody else may have it already: it has come back to its group.
    pub again: bool,
    /// The RETAIN flag to send.
    pub retain: bool,
    /// Subscription identifiers to send.
    pub identifiers: Option<Arc<[u32]>>,
    /// The message.
    pub offset: Offset,
    /// Where it was when it was found.
    pub location: Location,
}

/// Something that the caller has to know, range-coded: at most a handful a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Whose queue or session.
    pub party: Party,
    /// What happened.
    pub kind: NoticeKind,
    /// The first offset it is about.
    pub first: Offset,
    /// The offset after the last one.
    pub end: Offset,
    /// How many messages.
    pub count: u64,
}

/// Why messages will not be delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NoticeKind {
    /// Message Expiry Interval has passed.
    Expired,
    /// QoS 0, and the connection's outbox was full.
    SlowReader,
    /// Larger than what its receiver takes.
    TooLarge,
    /// Retention took it before the queue read it.
    Retention,
    /// The receiver did not take it.
    Refused,
    /// It was in flight, and the queue may not have it any more.
    Denied,
    /// A group's message of QoS 2 was sent to a member whose session has ended: nobody else may get it [MQTT-4.8.2-5].
    SessionEnded,
    /// QoS 0, and more waited for the connection than may.
    Overflow,
    /// It has been carried from broker to broker as often as it may.
    Looped,
    /// Its topic cannot become what the receiver's rules make of it.
    Unmappable,
    /// It is in an entry that cannot be opened: encrypted, or part of a larger message.
    Closed,
}
