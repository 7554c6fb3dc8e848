//! Delivery state of a party at rest: what its queue has acknowledged, what is in flight to it and from it.
//!
//! Owns: the value, its encoding, and how a delta changes it. Never: decides when to write one.
//!
//! Stored as a control record of table 0. The first byte says what follows: [`FULL`] a whole state, [`DELTA`] changes
//! to the one before, [`REMOVED`] nothing: the party is gone. `docs/formats/log.md` draws the bytes.

use crate::error::{Error, Result};
use crate::ids::{Offset, Party};
use crate::ranges::RangeSet;
use crate::varint::{put, Reader};
use std::collections::{BTreeMap, BTreeSet};

/// The value holds a whole state.
pub const FULL: u8 = 0;
/// The value holds changes.
pub const DELTA: u8 = 1;
/// The party is gone.
pub const REMOVED: u8 = 2;

/// How far the exchange about one message in flight is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It was sent; whether it came is not known.
    Sent,
    /// The receiver has it and keeps its identifier in mind, which is or will be released.
    Received,
}

/// One message in flight to the party.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flight {
    /// The message.
    pub offset: Offset,
    /// 1 or 2.
    pub qos: u8,
    /// How far it is.
    pub phase: Phase,
    /// Where it came from.
    pub source: Source,
}

/// Where a message in flight came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The party's own queue.
    Queue,
    /// It is a retained message, beside the queue's order.
    Retained,
    /// The queue of a group, by its party. At QoS 1 the message is still the group's, which gives it to another
    /// member if this one leaves; at QoS 2 sending has made it this party's alone (docs/adr/0009-groups.md).
    Group(Party),
}

/// A retained message that the party still has to get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owed {
    /// The message.
    pub offset: Offset,
    /// The maximum QoS of the subscription that asked for it.
    pub qos: u8,
    /// The subscription's identifier.
    pub identifier: Option<u32>,
}

/// Retained messages that the party still has to get and nobody has looked up yet: those that a filter matches
/// between two offsets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwedFilter {
    /// The maximum QoS of the subscription that asked for them.
    pub qos: u8,
    /// Without those that the party has published itself [MQTT-3.8.3-3].
    pub no_local: bool,
    /// The subscription's identifier.
    pub identifier: Option<u32>,
    /// The first offset that has not been looked at.
    pub from: Offset,
    /// The first offset that is too new: when it came, the subscription was there.
    pub until: Offset,
}

/// Everything about a party's deliveries that outlives its connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// Everything below is acknowledged or was never wanted.
    pub mark: Offset,
    /// What is acknowledged above the mark.
    pub acknowledged: RangeSet,
    /// By packet identifier, what is in flight to the party.
    pub flights: BTreeMap<u16, Flight>,
    /// Retained messages still to be sent, in order.
    pub owed: Vec<Owed>,
    /// Further ones, by the filter that they are looked up with.
    pub owed_filters: BTreeMap<Vec<u8>, OwedFilter>,
    /// Packet identifiers of QoS 2 messages received from the party and not released.
    pub unreleased: BTreeSet<u16>,
    /// The last packet identifier that was given out.
    pub last_packet_identifier: u16,
}

/// What one turn changes, in the order in which it is applied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// The mark, where it may have moved.
    pub mark: Option<Offset>,
    /// Ranges of offsets above the mark that are acknowledged: first and end.
    pub acknowledged: Vec<(Offset, Offset)>,
    /// QoS 2 messages that were given a packet identifier: identifier, offset, where from.
    pub sent: Vec<(u16, Offset, Source)>,
    /// Packet identifiers of QoS 2 messages that the party has received.
    pub received: Vec<u16>,
    /// Packet identifiers of QoS 2 that are free again.
    pub completed: Vec<u16>,
    /// Packet identifiers of QoS 2 messages from the party that it has released.
    pub released: Vec<u16>,
    /// Retained messages that have been acknowledged or given up.
    pub owed_done: Vec<Offset>,
    /// Retained messages that the party is owed from now on.
    pub owed: Vec<Owed>,
    /// Filters with the retained messages that are still to be looked up; none are once `from` has reached `until`.
    pub owed_filters: Vec<(Vec<u8>, OwedFilter)>,
}

const TAG_ACKNOWLEDGED: u64 = 1;
const TAG_SENT: u64 = 2;
const TAG_RECEIVED: u64 = 3;
const TAG_COMPLETED: u64 = 4;
const TAG_RELEASED: u64 = 5;
const TAG_OWED_DONE: u64 = 6;
const TAG_OWED: u64 = 7;
const TAG_MARK: u64 = 8;
const TAG_SENT_BY_GROUP: u64 = 9;
const TAG_OWED_FILTER: u64 = 10;

impl Changes {
    /// True if there is nothing to remember.
    pub fn is_empty(&self) -> bool {
        self.mark.is_none()
            && self.acknowledged.is_empty()
            && self.sent.is_empty()
            && self.received.is_empty()
            && self.completed.is_empty()
            && self.released.is_empty()
            && self.owed_done.is_empty()
            && self.owed.is_empty()
            && self.owed_filters.is_empty()
    }

    /// Appends the control record's value, [`DELTA`] first.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(DELTA);
        if let Some(mark) = self.mark {
            put(out, TAG_MARK);
            put(out, mark.0);
        }
        for (first, end) in &self.acknowledged {
            put(out, TAG_ACKNOWLEDGED);
            put(out, first.0);
            put(out, end.0.saturating_sub(first.0));
        }
        for (packet_identifier, offset, source) in &self.sent {
            let (tag, number) = match source {
                Source::Queue => (TAG_SENT, 0),
                Source::Retained => (TAG_SENT, 1),
                Source::Group(party) => (TAG_SENT_BY_GROUP, u64::from(party.0)),
            };
            for value in [tag, u64::from(*packet_identifier), offset.0, number] {
                put(out, value);
            }
        }
        for (tag, identifiers) in
            [(TAG_RECEIVED, &self.received), (TAG_COMPLETED, &self.completed), (TAG_RELEASED, &self.released)]
        {
            for packet_identifier in identifiers {
                put(out, tag);
                put(out, u64::from(*packet_identifier));
            }
        }
        for offset in &self.owed_done {
            put(out, TAG_OWED_DONE);
            put(out, offset.0);
        }
        for owed in &self.owed {
            put(out, TAG_OWED);
            put_owed(out, owed);
        }
        for (filter, owed) in &self.owed_filters {
            put(out, TAG_OWED_FILTER);
            put_owed_filter(out, filter, owed);
        }
    }
}

impl State {
    /// A state that wants nothing below `mark`.
    pub fn new(mark: Offset) -> State {
        State { mark, ..State::default() }
    }

    /// Reads a whole state as [`State::encode`] wrote it. Fails on anything else, without allocating more than the
    /// bytes given justify.
    pub fn decode(bytes: &[u8]) -> Result<State> {
        let mut reader = Reader::new(bytes);
        if reader.byte()? != FULL {
            return Err(Error::Invalid("a whole delivery state starts with 0".into()));
        }
        let mut state = State::new(Offset(reader.next()?));
        let mut from = state.mark.0;
        for _ in 0..reader.count()? {
            let first = from.checked_add(reader.next()?).ok_or_else(out_of_range)?;
            let end = first.checked_add(reader.next()?).ok_or_else(out_of_range)?;
            state.acknowledged.insert(first, end);
            from = end;
        }
        for _ in 0..reader.count()? {
            let packet_identifier = reader.small()?;
            let offset = Offset(reader.next()?);
            let bits = reader.next()?;
            let phase = if bits & 4 == 0 { Phase::Sent } else { Phase::Received };
            let qos = if bits & 3 == 2 { 2 } else { 1 };
            let source = match bits & 24 {
                0 => Source::Queue,
                8 => Source::Retained,
                _ => Source::Group(read_party(&mut reader)?),
            };
            state.flights.insert(packet_identifier, Flight { offset, qos, phase, source });
        }
        for _ in 0..reader.count()? {
            state.owed.push(read_owed(&mut reader)?);
        }
        for _ in 0..reader.count()? {
            state.unreleased.insert(reader.small()?);
        }
        state.last_packet_identifier = reader.small()?;
        for _ in 0..reader.count()? {
            let (filter, owed) = read_owed_filter(&mut reader)?;
            state.owed_filters.insert(filter, owed);
        }
        Ok(state)
    }

    /// Appends the control record's value, [`FULL`] first.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(FULL);
        put(out, self.mark.0);
        put_length(out, self.acknowledged.len());
        let mut from = self.mark.0;
        for (first, end) in self.acknowledged.iter() {
            put(out, first.saturating_sub(from));
            put(out, end.saturating_sub(first));
            from = end;
        }
        put_length(out, self.flights.len());
        for (packet_identifier, flight) in &self.flights {
            put(out, u64::from(*packet_identifier));
            put(out, flight.offset.0);
            let phase = if flight.phase == Phase::Received { 4 } else { 0 };
            match flight.source {
                Source::Queue => put(out, u64::from(flight.qos) | phase),
                Source::Retained => put(out, u64::from(flight.qos) | phase | 8),
                Source::Group(party) => {
                    put(out, u64::from(flight.qos) | phase | 16);
                    put(out, u64::from(party.0));
                }
            }
        }
        put_length(out, self.owed.len());
        for owed in &self.owed {
            put_owed(out, owed);
        }
        put_length(out, self.unreleased.len());
        for packet_identifier in &self.unreleased {
            put(out, u64::from(*packet_identifier));
        }
        put(out, u64::from(self.last_packet_identifier));
        put_length(out, self.owed_filters.len());
        for (filter, owed) in &self.owed_filters {
            put_owed_filter(out, filter, owed);
        }
    }

    /// Applies a control record's value of either kind; [`REMOVED`] leaves the empty state. Returns what groups have
    /// handed over with it: message and group.
    pub fn apply(&mut self, value: &[u8]) -> Result<Vec<(Offset, Party)>> {
        match value.first() {
            Some(&FULL) => {
                *self = State::decode(value)?;
                Ok(self.handed_over().collect())
            }
            Some(&DELTA) => self.apply_delta(value.get(1..).unwrap_or_default()),
            Some(&REMOVED) => {
                *self = State::default();
                Ok(Vec::new())
            }
            _ => Err(Error::Invalid("a delivery state starts with 0, 1 or 2".into())),
        }
    }

    /// What groups have handed over and the party has not received yet: message and group.
    pub fn handed_over(&self) -> impl Iterator<Item = (Offset, Party)> + '_ {
        let open = self.flights.values().filter(|flight| flight.phase == Phase::Sent);
        open.filter_map(|flight| match flight.source {
            Source::Group(party) => Some((flight.offset, party)),
            _ => None,
        })
    }

    /// A QoS 2 message with this packet identifier was stored.
    pub fn note_unreleased(&mut self, packet_identifier: u16) {
        self.unreleased.insert(packet_identifier);
    }

    /// Everything in `first..end` is acknowledged; the mark moves if that closes the gap to it. What was in flight at
    /// QoS 1 in that range is in flight no longer.
    pub fn acknowledge(&mut self, first: Offset, end: Offset) {
        let is_done = |flight: &Flight| first <= flight.offset && flight.offset < end;
        self.flights.retain(|_, flight| flight.qos == 2 || flight.source != Source::Queue || !is_done(flight));
        if first <= self.mark {
            self.mark = self.mark.max(end);
        } else {
            self.acknowledged.insert(first.0, end.0);
        }
        while let Some((first, end)) = self.acknowledged.first() {
            if first > self.mark.0 {
                break;
            }
            self.mark = self.mark.max(Offset(end));
            self.acknowledged.remove_below(self.mark.0);
        }
    }

    /// Gives up everything below `to` but what is in flight: that is sent again when the party is back [MQTT-4.4.0-1].
    pub fn skip(&mut self, to: Offset) {
        let flights = self.flights.values().filter(|flight| flight.source == Source::Queue);
        let open = flights.filter(|flight| flight.phase == Phase::Sent && flight.offset < to);
        let kept: BTreeSet<Offset> = open.map(|flight| flight.offset).collect();
        let mut from = Offset(0);
        for end in kept.into_iter().chain([to]) {
            if from < end {
                self.acknowledge(from, end);
            }
            from = Offset(end.0.saturating_add(1));
        }
    }

    /// Wants nothing below `to`, and of what is in flight only the ends of exchanges at QoS 2, so that the party takes
    /// no later message for one of these.
    pub fn abandon(&mut self, to: Offset) {
        self.flights.retain(|_, flight| flight.qos == 2);
        self.flights.values_mut().for_each(|flight| flight.phase = Phase::Received);
        self.skip(to);
    }

    fn note_sent(&mut self, packet_identifier: u16, offset: Offset, source: Source) {
        self.last_packet_identifier = packet_identifier;
        self.flights.insert(packet_identifier, Flight { offset, qos: 2, phase: Phase::Sent, source });
    }

    fn apply_delta(&mut self, bytes: &[u8]) -> Result<Vec<(Offset, Party)>> {
        let (mut reader, mut handed) = (Reader::new(bytes), Vec::new());
        while !reader.is_empty() {
            match reader.next()? {
                TAG_MARK => {
                    let mark = Offset(reader.next()?);
                    self.acknowledge(Offset(0), mark);
                }
                TAG_ACKNOWLEDGED => {
                    let first = reader.next()?;
                    let end = first.checked_add(reader.next()?).ok_or_else(out_of_range)?;
                    self.acknowledge(Offset(first), Offset(end));
                }
                TAG_SENT => {
                    let (packet_identifier, offset) = (reader.small()?, Offset(reader.next()?));
                    let source = if reader.next()? == 0 { Source::Queue } else { Source::Retained };
                    self.note_sent(packet_identifier, offset, source);
                }
                TAG_SENT_BY_GROUP => {
                    let (packet_identifier, offset) = (reader.small()?, Offset(reader.next()?));
                    let party = read_party(&mut reader)?;
                    self.note_sent(packet_identifier, offset, Source::Group(party));
                    handed.push((offset, party));
                }
                TAG_RECEIVED => {
                    if let Some(flight) = self.flights.get_mut(&reader.small()?) {
                        flight.phase = Phase::Received;
                    }
                }
                TAG_COMPLETED => {
                    self.flights.remove(&reader.small()?);
                }
                TAG_RELEASED => {
                    self.unreleased.remove(&reader.small()?);
                }
                TAG_OWED_DONE => {
                    let offset = Offset(reader.next()?);
                    self.owed.retain(|owed| owed.offset != offset);
                    self.flights.retain(|_, flight| {
                        flight.qos == 2 || flight.source != Source::Retained || flight.offset != offset
                    });
                }
                TAG_OWED => self.owed.push(read_owed(&mut reader)?),
                TAG_OWED_FILTER => {
                    let (filter, owed) = read_owed_filter(&mut reader)?;
                    self.owed_filters.remove(&filter);
                    if owed.from < owed.until {
                        self.owed_filters.insert(filter, owed);
                    }
                }
                tag => return Err(Error::Invalid(format!("a delivery state has no change of kind {tag}"))),
            }
        }
        Ok(handed)
    }
}

fn read_party(reader: &mut Reader<'_>) -> Result<Party> {
    u32::try_from(reader.next()?).map(Party).map_err(|_| out_of_range())
}

fn put_owed(out: &mut Vec<u8>, owed: &Owed) {
    put(out, owed.offset.0);
    put(out, u64::from(owed.qos));
    put(out, owed.identifier.map_or(0, u64::from));
}

fn read_owed(reader: &mut Reader<'_>) -> Result<Owed> {
    let offset = Offset(reader.next()?);
    let qos = u8::try_from(reader.next()?).map_err(|_| out_of_range())?.min(2);
    Ok(Owed { offset, qos, identifier: read_identifier(reader)? })
}

fn put_owed_filter(out: &mut Vec<u8>, filter: &[u8], owed: &OwedFilter) {
    put_length(out, filter.len());
    out.extend_from_slice(filter);
    put(out, u64::from(owed.qos) | if owed.no_local { 4 } else { 0 });
    put(out, owed.identifier.map_or(0, u64::from));
    put(out, owed.from.0);
    put(out, owed.until.0);
}

fn read_owed_filter(reader: &mut Reader<'_>) -> Result<(Vec<u8>, OwedFilter)> {
    let filter = reader.bytes()?.to_vec();
    let bits = reader.next()?;
    let (qos, no_local) = (if bits & 2 == 0 { u8::from(bits & 1 == 1) } else { 2 }, bits & 4 != 0);
    let identifier = read_identifier(reader)?;
    let (from, until) = (Offset(reader.next()?), Offset(reader.next()?));
    Ok((filter, OwedFilter { qos, no_local, identifier, from, until }))
}

fn read_identifier(reader: &mut Reader<'_>) -> Result<Option<u32>> {
    let identifier = u32::try_from(reader.next()?).map_err(|_| out_of_range())?;
    Ok((identifier != 0).then_some(identifier))
}

fn put_length(out: &mut Vec<u8>, length: usize) {
    put(out, u64::try_from(length).unwrap_or(u64::MAX));
}

fn out_of_range() -> Error {
    Error::Invalid("a number in a delivery state is out of range".into())
}
