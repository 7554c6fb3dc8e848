//! The other end of one connection, as decode knows it: its producers and consumers, and what may come next.
//!
//! Owns: which of its producers publishes where, and which receivers its consumers are. Never: decides who may be one,
//! or keeps a byte.
//!
//! Invariants:
//! 1. Of an entry nothing is taken that its checksum does not vouch for.
//! 2. What a number says that came is never believed before it was compared with the bytes that came.
//! 3. What is said by a producer or a consumer that there was on this connection and is no more changes nothing; the
//!    peer may not know yet.

use super::command::{self, Ack, Command, Send};
use super::frame::{Frame, HEAD_BYTES};
use crate::entry::{key_hash, metadata, Metadata, MAGIC};
use crate::flow::entry::{EntryParts, Permits, Says, Settlement, CHECKED_FROM};
use crate::flow::{Arrivals, Fate, Publish, Refusal, Span};
use crate::ids::{Connection, KeySlot, Party, Receiver, Timestamp};
use crate::limits::{CONNECT_BYTES_MAXIMUM, ENTRY_MESSAGES_MAXIMUM};
use crate::wire::decoder::{Breach, Decoder};
use crate::wire::rate::Rate;
use std::collections::HashMap;

/// In place of a number of an entry where there is none: what is before the first one.
const NO_ENTRY: u64 = u64::MAX;

/// Microseconds in a millisecond.
const MILLISECOND_US: u64 = 1_000;

/// A command that the caller decides on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// Its number.
    pub kind: u8,
    /// All of it.
    pub bytes: Vec<u8>,
}

/// What the peer did wrong, in words for the log: the connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault(pub &'static str);

/// Who publishes where.
#[derive(Debug)]
struct Producer {
    topic: Box<[u8]>,
    party: Party,
    key_slot: KeySlot,
}

/// Who takes, and from which ledger.
#[derive(Debug)]
struct Consumer {
    receiver: Receiver,
    ledger: u64,
}

/// Who sends on one connection.
#[derive(Debug)]
pub struct Peer {
    connection: Connection,
    is_accepted: bool,
    frame_bytes_maximum: usize,
    /// 0: it may say nothing for ever.
    silence_us: u64,
    /// By their ids; `None` of those that there were.
    producers: HashMap<u64, Option<Producer>>,
    consumers: HashMap<u64, Consumer>,
}

impl Peer {
    /// Its first command was taken.
    pub fn accept(&mut self, frame_bytes_maximum: usize, silence_us: u64) {
        (self.is_accepted, self.frame_bytes_maximum, self.silence_us) = (true, frame_bytes_maximum, silence_us);
    }

    /// It has a producer with this id, which publishes to one topic.
    pub fn add_producer(&mut self, producer: u64, topic: &[u8], party: Party, key_slot: KeySlot) {
        self.producers.insert(producer, Some(Producer { topic: topic.into(), party, key_slot }));
    }

    /// It has no such producer any more.
    pub fn remove_producer(&mut self, producer: u64) {
        if let Some(known) = self.producers.get_mut(&producer) {
            *known = None;
        }
    }

    /// It has a consumer with this id, which takes entries of one ledger.
    pub fn add_consumer(&mut self, consumer: u64, receiver: Receiver, ledger: u64) {
        self.consumers.insert(consumer, Consumer { receiver, ledger });
    }

    /// It has no such consumer any more.
    pub fn remove_consumer(&mut self, consumer: u64) {
        self.consumers.remove(&consumer);
    }

    fn send(&self, send: &Send, tail: Span, arrivals: &mut Arrivals, rate: Option<&mut Rate>) -> Result<(), Fault> {
        let Some(known) = self.producers.get(&send.producer) else {
            return Err(Fault("an entry of a producer that there never was on this connection"));
        };
        if rate.is_some_and(|rate| !rate.spend(1, 0)) {
            return Err(self.fault(Breach::TooFast));
        }
        let Some(producer) = known else { return Ok(()) };
        let payload = with_checksum(tail, arrivals);
        let bytes = arrivals.span(payload);
        let stated =
            bytes.get(MAGIC.len()..).and_then(|rest| rest.first_chunk::<4>()).map(|sum| u32::from_be_bytes(*sum));
        let checksum = crc32c::crc32c(bytes.get(CHECKED_FROM..).unwrap_or_default());
        let is_whole = stated == Some(checksum);
        let parts = match metadata(bytes) {
            Some((metadata, _)) if is_whole => parts_of(send, &metadata, checksum)?,
            // It may be anything: only its number is known, by which its producer is told.
            _ if !is_whole => EntryParts { count: 1, checksum, ..numbered(send) },
            _ => return Err(Fault("an entry whose metadata cannot be read")),
        };
        let size_bytes = bytes.len();
        arrivals.totals.note(1, size_bytes);
        let topic = arrivals.hold(&producer.topic);
        let entry = u32::try_from(arrivals.entries.len()).ok();
        arrivals.entries.push(parts);
        arrivals.publishes.push(Publish {
            connection: self.connection,
            publisher: producer.party,
            key_slot: producer.key_slot,
            packet_identifier: 0,
            qos: 1,
            retain: false,
            topic,
            properties: Span::default(),
            payload,
            expiry_interval_s: None,
            fate: if is_whole { Fate::Accepted } else { Fate::Refused(Refusal::Damaged) },
            row: None,
            entry,
            targets: None,
            stored: None,
        });
        Ok(())
    }

    fn settle(&self, consumer: u64, says: Says, ids: &[(u64, u64)], request: Option<u64>, arrivals: &mut Arrivals) {
        let Some(known) = self.consumers.get(&consumer) else { return };
        let first = arrivals.numbers.len();
        let own = ids.iter().filter(|(ledger, entry)| *ledger == known.ledger && *entry != NO_ENTRY);
        arrivals.numbers.extend(own.map(|(_, entry)| *entry));
        arrivals.settlements.push(Settlement {
            connection: self.connection,
            receiver: known.receiver,
            says,
            numbers: first..arrivals.numbers.len(),
            request,
        });
    }
}

impl Decoder for Peer {
    type Header = Frame;
    type Control = Control;
    type Fault = Fault;

    fn new(connection: Connection) -> Peer {
        Peer {
            connection,
            is_accepted: false,
            frame_bytes_maximum: CONNECT_BYTES_MAXIMUM,
            silence_us: 0,
            producers: HashMap::new(),
            consumers: HashMap::new(),
        }
    }

    #[inline]
    fn header(&self, bytes: &[u8]) -> Result<Option<Frame>, Fault> {
        Frame::read(bytes).map_err(Fault)
    }

    fn size_bytes(header: &Frame) -> usize {
        header.size_bytes
    }

    fn frame_bytes_maximum(&self) -> usize {
        self.frame_bytes_maximum
    }

    fn silence_us(&self) -> Option<u64> {
        (self.silence_us > 0).then_some(self.silence_us)
    }

    fn take(
        &mut self,
        header: &Frame,
        start: usize,
        arrivals: &mut Arrivals,
        rate: Option<&mut Rate>,
    ) -> Result<Option<Control>, Fault> {
        let begin = start.saturating_add(HEAD_BYTES);
        let end = begin.saturating_add(header.command_bytes);
        let bytes = arrivals.bytes.get(begin..end).unwrap_or_default();
        let command = command::read(bytes).map_err(|_| Fault("a command that cannot be read"))?;
        if !self.is_accepted && command != Command::Other(CONNECT) {
            return Err(Fault("a command before CONNECT"));
        }
        match command {
            Command::Send(send) => {
                let tail = span(end, start.saturating_add(header.size_bytes).saturating_sub(end));
                self.send(&send, tail, arrivals, rate)?;
            }
            Command::Ack(Ack { consumer, says, ids, request }) => self.settle(consumer, says, &ids, request, arrivals),
            Command::Redeliver { consumer, ids } => {
                let says = if ids.is_empty() { Says::AllAgain } else { Says::Again };
                self.settle(consumer, says, &ids, None, arrivals);
            }
            Command::Flow { consumer, messages } => {
                if let Some(known) = self.consumers.get(&consumer) {
                    arrivals.permits.push(Permits { receiver: known.receiver, messages });
                }
            }
            Command::Ping => arrivals.pings.push(self.connection),
            Command::Pong => {}
            Command::Other(kind) => return Ok(Some(Control { kind, bytes: bytes.to_vec() })),
        }
        Ok(None)
    }

    fn fault(&self, breach: Breach) -> Fault {
        Fault(match breach {
            Breach::FrameTooLarge => "a frame that is larger than it may be",
            Breach::TooMuchWaits => "more than may wait",
            Breach::TooFast => "more in a second than it may send",
        })
    }

    fn addressed(&self, fault: Fault) -> Fault {
        fault
    }
}

/// The number of the first command, as it is handed out.
const CONNECT: u8 = 2;

/// An entry of old clients has no checksum: it gets one, so that all that are stored have.
fn with_checksum(tail: Span, arrivals: &mut Arrivals) -> Span {
    let bytes = arrivals.span(tail);
    if bytes.starts_with(&MAGIC) {
        return tail;
    }
    let checksum = crc32c::crc32c(bytes);
    let whole = [MAGIC.as_slice(), &checksum.to_be_bytes(), bytes].concat();
    arrivals.hold(&whole)
}

fn numbered(send: &Send) -> EntryParts {
    EntryParts {
        producer: send.producer,
        sequence_first: send.sequence_first,
        sequence_last: send.sequence_last.unwrap_or(send.sequence_first),
        count: 0,
        key_hash: None,
        not_before: None,
        checksum: 0,
    }
}

fn parts_of(send: &Send, metadata: &Metadata<'_>, checksum: u32) -> Result<EntryParts, Fault> {
    let count = metadata.messages.unwrap_or(1);
    if !(1..=ENTRY_MESSAGES_MAXIMUM).contains(&count) {
        return Err(Fault("an entry with more messages than one may have, or with none"));
    }
    if send.messages.is_some_and(|stated| stated != u64::from(count)) {
        return Err(Fault("an entry with another number of messages than its command says"));
    }
    let last = send.sequence_last.or(metadata.highest_sequence_id);
    let implied = send.sequence_first.wrapping_add(u64::from(count).saturating_sub(1));
    let not_before = metadata.deliver_at_ms.and_then(|ms| u64::try_from(ms).ok()).filter(|ms| *ms > 0);
    Ok(EntryParts {
        sequence_last: last.unwrap_or(implied),
        count,
        key_hash: key_hash(metadata),
        not_before: not_before.map(|ms| Timestamp(ms.saturating_mul(MILLISECOND_US))),
        checksum,
        ..numbered(send)
    })
}

fn span(start: usize, size: usize) -> Span {
    let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    Span { start: number(start), size_bytes: number(size) }
}
