//! The other end of one connection, as decode knows it: what may come next, and whose it is.
//!
//! Owns: how far the connection has come, and its producers and consumers by the numbers that it gave them.
//! Never: keeps a byte; those that wait are kept for every protocol alike.

use super::command::{permits, Command, Said, Sent};
use super::fault::Fault;
use super::frame::Frame;
use super::kind;
use super::tail::Tail;
use crate::flow::entry::{Permits, Says, Settlement};
use crate::flow::{Arrivals, Fate, Publish, Refusal, Span};
use crate::ids::{Connection, KeySlot, Party, Receiver, Timestamp};
use crate::limits::{COMMAND_BYTES_MAXIMUM, PRODUCERS_REMEMBERED_MAXIMUM};
use crate::wire::decoder::{Breach, Decoder};
use crate::wire::rate::Rate;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing came: CONNECT must.
    Opening,
    /// That came and is not decided on: nothing may follow.
    Connecting,
    /// The connection was accepted.
    Accepted,
}

/// What the caller decides on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// A command.
    Command {
        /// Its kind.
        kind: u8,
        /// All of it.
        bytes: Vec<u8>,
    },
    /// More came than the connection may send: what follows may be decoded from this time on.
    TooFast(Timestamp),
}

/// Who sends entries.
#[derive(Debug)]
pub struct Producer {
    /// Where its entries are published to.
    pub topic_name: Box<[u8]>,
    /// Who publishes them.
    pub party: Party,
    /// The slot of who publishes them.
    pub key_slot: KeySlot,
}

/// Who is given entries.
#[derive(Clone, Copy, Debug)]
pub struct Consumer {
    /// Who it is to the stages behind decode.
    pub receiver: Receiver,
    /// The ledger of the message ids that it may speak of.
    pub ledger: u64,
    /// It shares its subscription: what comes before an entry may be another's.
    pub is_shared: bool,
}

/// A producer, and where its topic name lies in the arena, if it does.
#[derive(Debug)]
struct Known {
    producer: Producer,
    named: Span,
    /// An entry of it found no room: those behind it find none either, so that its order is kept.
    is_refused: bool,
}

/// Who sends on one connection.
#[derive(Debug)]
pub struct Peer {
    connection: Connection,
    stage: Stage,
    frame_bytes_maximum: usize,
    /// 0 if it may be silent for ever.
    silence_us: u64,
    producers: BTreeMap<u64, Known>,
    /// Producers that have been removed: what they had sent before they knew that is nobody's.
    removed: VecDeque<u64>,
    consumers: BTreeMap<u64, Consumer>,
}

impl Peer {
    /// The connection was accepted.
    pub fn accept(&mut self, frame_bytes_maximum: usize, silence_us: u64) {
        self.stage = Stage::Accepted;
        self.frame_bytes_maximum = frame_bytes_maximum;
        self.silence_us = silence_us;
    }

    /// Entries of a producer with this number are taken from now on.
    pub fn add_producer(&mut self, number: u64, producer: Producer) {
        self.removed.retain(|removed| *removed != number);
        self.producers.insert(number, Known { producer, named: Span::default(), is_refused: false });
    }

    /// Entries of this producer are refused from now on, until one with its number is added anew.
    pub fn refuse_producer(&mut self, number: u64) {
        if let Some(known) = self.producers.get_mut(&number) {
            known.is_refused = true;
        }
    }

    /// Entries of this producer are passed over from now on.
    pub fn remove_producer(&mut self, number: u64) {
        if self.producers.remove(&number).is_some() {
            if self.removed.len() == PRODUCERS_REMEMBERED_MAXIMUM {
                self.removed.pop_front();
            }
            self.removed.push_back(number);
        }
    }

    /// What a consumer with this number says counts from now on.
    pub fn add_consumer(&mut self, number: u64, consumer: Consumer) {
        self.consumers.insert(number, consumer);
    }

    /// What this consumer says is passed over from now on.
    pub fn remove_consumer(&mut self, number: u64) {
        self.consumers.remove(&number);
    }

    #[inline]
    fn publish(&mut self, sent: &Sent, tail: Range<usize>, arrivals: &mut Arrivals) -> Result<usize, Fault> {
        let Some(known) = self.producers.get_mut(&sent.producer) else {
            return match self.removed.contains(&sent.producer) {
                true => Ok(0),
                false => Err(Fault::new("an entry of a producer that there never was")),
            };
        };
        let tail = Tail::check(&mut arrivals.bytes, tail);
        let parts = tail.parts(arrivals.bytes.get(tail.range.clone()).unwrap_or_default(), sent)?;
        let messages = usize::try_from(parts.count).unwrap_or(usize::MAX);
        arrivals.totals.note_entry(parts.count, tail.range.len());
        let entry = u32::try_from(arrivals.entries.len()).ok();
        arrivals.entries.push(parts);
        let topic = known.name(arrivals);
        let fate = match (tail.is_damaged, known.is_refused) {
            (true, _) => Fate::Refused(Refusal::Damaged),
            (false, true) => Fate::Refused(Refusal::NoRoom),
            (false, false) => Fate::Accepted,
        };
        arrivals.publishes.push(Publish {
            connection: self.connection,
            publisher: known.producer.party,
            key_slot: known.producer.key_slot,
            packet_identifier: 0,
            qos: 1,
            retain: false,
            topic,
            properties: Span::default(),
            payload: Span::new(tail.range.start, tail.range.len()),
            expiry_interval_s: None,
            fate,
            row: None,
            entry,
            targets: None,
            stored: None,
        });
        Ok(messages)
    }

    #[inline]
    fn settle(&self, said: Said, body: &[u8], numbers: &mut Vec<u64>) -> Result<Option<Settlement>, Fault> {
        let Some(consumer) = self.consumers.get(&said.consumer) else { return Ok(None) };
        if said.says == Says::DoneUpTo && consumer.is_shared {
            return Err(Fault::new("a cumulative acknowledgement of a Shared subscription"));
        }
        let first = numbers.len();
        said.put_numbers(body, consumer.ledger, numbers)?;
        Ok(Some(Settlement {
            connection: self.connection,
            receiver: consumer.receiver,
            says: said.says,
            numbers: first..numbers.len(),
            request: said.request,
        }))
    }

    fn permit(&self, body: &[u8]) -> Result<Option<Permits>, Fault> {
        let (consumer, messages) = permits(body)?;
        Ok(self.consumers.get(&consumer).map(|consumer| Permits { receiver: consumer.receiver, messages }))
    }

    /// What may not come now.
    fn refuse(&self, kind: u8) -> Result<(), Fault> {
        match (self.stage, kind) {
            (Stage::Opening, kind::CONNECT) => Ok(()),
            (Stage::Opening, _) => Err(Fault::new("a first command that is not CONNECT")),
            (Stage::Connecting, _) => Err(Fault::new("a command before CONNECT was accepted")),
            (Stage::Accepted, kind::CONNECT) => Err(Fault::new("a second CONNECT")),
            (Stage::Accepted, _) => Ok(()),
        }
    }
}

impl Known {
    /// Where its topic name lies in the arena, which has it once for all of its entries.
    #[inline]
    fn name(&mut self, arrivals: &mut Arrivals) -> Span {
        let name = &*self.producer.topic_name;
        if arrivals.span(self.named) != name {
            self.named = arrivals.hold(name);
        }
        self.named
    }
}

impl Decoder for Peer {
    type Header = Frame;
    type Control = Control;
    type Fault = Fault;
    const HOLDS_WHO_IS_TOO_FAST: bool = true;

    fn new(connection: Connection) -> Peer {
        Peer {
            connection,
            stage: Stage::Opening,
            frame_bytes_maximum: COMMAND_BYTES_MAXIMUM,
            silence_us: 0,
            producers: BTreeMap::new(),
            removed: VecDeque::new(),
            consumers: BTreeMap::new(),
        }
    }

    #[inline]
    fn header(&self, bytes: &[u8]) -> Result<Option<Frame>, Fault> {
        Frame::read(bytes)
    }

    #[inline]
    fn size_bytes(frame: &Frame) -> usize {
        frame.size_bytes
    }

    #[inline]
    fn frame_bytes_maximum(&self) -> usize {
        self.frame_bytes_maximum
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
    ) -> Result<Option<Control>, Fault> {
        let Arrivals { bytes, numbers, settlements, permits, pings, .. } = arrivals;
        let bytes = bytes.get(frame.command(start)).unwrap_or_default();
        let Command { kind, body } = Command::read(bytes)?;
        self.refuse(kind)?;
        let tail = frame.tail(start);
        if kind == kind::SEND {
            let sent = Sent::read(body)?;
            let messages = self.publish(&sent, tail, arrivals)?;
            return Ok(rate.and_then(|rate| spend(rate, messages)));
        }
        if !tail.is_empty() {
            return Err(Fault::new("a frame that is larger than its command"));
        }
        match kind {
            kind::ACK => settlements.extend(self.settle(Said::acknowledged(body)?, body, numbers)?),
            kind::REDELIVER_UNACKNOWLEDGED_MESSAGES => {
                settlements.extend(self.settle(Said::wanted_again(body)?, body, numbers)?);
            }
            kind::FLOW => permits.extend(self.permit(body)?),
            kind::PING => pings.push(self.connection),
            kind::PONG => {}
            _ if bytes.len() > COMMAND_BYTES_MAXIMUM => {
                return Err(Fault::new("a command that is larger than one may be"));
            }
            _ => {
                if kind == kind::CONNECT {
                    self.stage = Stage::Connecting;
                }
                return Ok(Some(Control::Command { kind, bytes: bytes.to_vec() }));
            }
        }
        Ok(rate.and_then(|rate| spend(rate, 0)))
    }

    fn fault(&self, breach: Breach) -> Fault {
        match breach {
            Breach::FrameTooLarge => Fault::new("a frame that is larger than one may be"),
            // Who is too fast is held.
            Breach::TooMuchWaits | Breach::TooFast => Fault::new("more bytes than may wait undecoded"),
        }
    }

    fn addressed(&self, fault: Fault) -> Fault {
        fault
    }
}

/// Clients have no word for a limit, and a batch may have more messages than a second allows: it is taken, and what
/// follows waits until it is paid for.
fn spend(rate: &mut Rate, messages: usize) -> Option<Control> {
    (!rate.spend(messages, 0)).then(|| Control::TooFast(rate.next_at()))
}
