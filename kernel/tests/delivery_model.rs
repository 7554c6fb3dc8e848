//! One durable session against a log in memory: whatever is published, acknowledged, cut and crashed in whatever order,
//! every message arrives, or is said to be given up; at QoS 2 once; in order; and neither the window nor a pack is ever
//! exceeded.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::as_conversions)]

mod delivery_support;

use delivery_support::{found, publish, reads, stored};
use holdfast_kernel::delivery::{Attachment, Deliveries};
use holdfast_kernel::flow::state::{Phase, State};
use holdfast_kernel::flow::{terms, Acknowledgement, Arrivals, Departure, Outgoing, Sending, Step};
use holdfast_kernel::ids::{Connection, LogPosition, Offset, Party, Timestamp};
use holdfast_kernel::mqtt::exchange;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const SUBSCRIBER: Connection = Connection(1);
const PARTY: Party = Party(7);

#[derive(Debug, Clone)]
enum Act {
    Publish { qos: u8, count: u8 },
    Commit,
    Turn,
    Acknowledge { newest: bool, count: u8 },
    Disconnect,
    Connect { receive_maximum: u8 },
    Crash,
    Retry,
    GiveUp { keeps_identifiers: bool },
}

fn steps() -> impl Strategy<Value = Vec<Act>> {
    let step = prop_oneof![
        4 => (1..=2_u8, 1..20_u8).prop_map(|(qos, count)| Act::Publish { qos, count }),
        4 => Just(Act::Commit),
        6 => Just(Act::Turn),
        6 => (any::<bool>(), 1..10_u8).prop_map(|(newest, count)| Act::Acknowledge { newest, count }),
        1 => Just(Act::Disconnect),
        2 => (1..12_u8).prop_map(|receive_maximum| Act::Connect { receive_maximum }),
        1 => Just(Act::Crash),
        1 => Just(Act::Retry),
        1 => any::<bool>().prop_map(|keeps_identifiers| Act::GiveUp { keeps_identifiers }),
    ];
    proptest::collection::vec(step, 1..120)
}

/// What is appended, in log order; its index + 1 is its position.
enum Record {
    Message { qos: u8 },
    Delta(Vec<u8>),
    Full(State),
}

struct World {
    deliveries: Deliveries,
    log: Vec<Record>,
    durable: usize,
    attached: bool,
    receive_maximum: usize,
    client: Client,
    publish_total: u64,
    pack: Pack,
    given_up: BTreeSet<u64>,
}

/// What the queue has given since its last commit.
#[derive(Default)]
struct Pack {
    maximum: usize,
    taken: usize,
    pending: BTreeMap<u16, u64>,
    received: BTreeSet<u16>,
    /// The last message that was in flight when a connection ended: what lies before it goes with it.
    resumed: Option<u64>,
}

/// The subscriber: it keeps its session over reconnects, as a persistent client does.
#[derive(Default)]
struct Client {
    got: BTreeMap<u64, u32>,
    last_new: Option<u64>,
    unanswered: Vec<(u16, Step)>,
    received: BTreeMap<u16, u64>,
    open: BTreeSet<u16>,
    /// What must come again before anything new.
    again: BTreeSet<u16>,
}

impl World {
    fn new(pack_maximum: u8) -> World {
        let mut world = World {
            deliveries: Deliveries::default(),
            log: vec![Record::Full(State::new(Offset(0)))],
            durable: 1,
            attached: false,
            receive_maximum: 5,
            client: Client::default(),
            publish_total: 0,
            pack: Pack { maximum: usize::from(pack_maximum), ..Pack::default() },
            given_up: BTreeSet::new(),
        };
        world.connect(5);
        world
    }

    fn messages(&self) -> impl Iterator<Item = (u64, usize, u8)> + '_ {
        let messages = self.log.iter().enumerate().filter_map(|(index, record)| match record {
            Record::Message { qos } => Some((index, *qos)),
            _ => None,
        });
        messages.enumerate().map(|(offset, (index, qos))| (offset as u64, index, qos))
    }

    fn durable_offset(&self) -> Offset {
        Offset(self.messages().filter(|(_, index, _)| *index < self.durable).count() as u64)
    }

    fn publish(&mut self, qos: u8, count: u8) {
        let mut arrivals = Arrivals::default();
        for _ in 0..count {
            self.log.push(Record::Message { qos });
            let queue = self.deliveries.queues().first().map(|(_, queue, _)| *queue).unwrap_or_default();
            let target = self.attached.then_some((queue, SUBSCRIBER));
            arrivals.publishes.push(publish(qos, target, stored(self.publish_total, self.log.len() as u64)));
            self.publish_total += 1;
        }
        self.deliveries.admit(&arrivals, LogPosition(self.log.len() as u64), exchange::next);
    }

    /// A session is attached when the state that its last connection left is durable (CONNACK waits for that).
    fn connect(&mut self, receive_maximum: u8) {
        self.disconnect();
        self.durable = self.log.len();
        let mut state = State::default();
        for record in &self.log {
            match record {
                Record::Full(full) => state = full.clone(),
                Record::Delta(delta) => drop(state.apply(delta).unwrap()),
                Record::Message { .. } => {}
            }
        }
        self.receive_maximum = usize::from(receive_maximum);
        self.pack.resume(&state);
        let attachment = Attachment {
            party: PARTY,
            state,
            subscriptions: reads(),
            receive_maximum: u16::from(receive_maximum),
            end: Offset(self.publish_total),
            entries_maximum: 0,
            pack_maximum: self.pack.maximum,
        };
        self.deliveries.attach(SUBSCRIBER, attachment).unwrap();
        self.attached = true;
    }

    fn disconnect(&mut self) {
        if !self.attached {
            return;
        }
        let state =
            self.deliveries.detach(self.deliveries.receiver_on(SUBSCRIBER).unwrap(), std::iter::empty()).unwrap();
        let mut bytes = Vec::new();
        state.encode(&mut bytes);
        self.log.push(Record::Full(State::decode(&bytes).unwrap()));
        self.attached = false;
        self.client.cut();
    }

    fn crash(&mut self) {
        self.log.truncate(self.durable);
        self.publish_total = self.messages().count() as u64;
        self.deliveries = Deliveries::default();
        self.attached = false;
        self.client.cut();
    }

    fn turn(&mut self) {
        let mut outgoing = Outgoing::default();
        let durable = self.durable_offset();
        self.deliveries.settle(durable, LogPosition(self.durable as u64), &mut outgoing);
        let mut scans = self.deliveries.hungry(durable);
        for scan in &mut scans {
            for (offset, _, qos) in self.messages().filter(|(offset, ..)| *offset >= scan.from.0 && *offset < durable.0)
            {
                if scan.found.len() == 3.min(scan.records_maximum as usize) {
                    break;
                }
                let terms = terms(&scan.subscriptions, b"a", Offset(offset), Party(1), PARTY).unwrap();
                scan.found.push(found(offset, qos, 0, terms));
                scan.reached = Offset(offset + 1);
            }
        }
        self.deliveries.feed(&mut scans);
        self.deliveries.allot(&mut outgoing, Timestamp(1));
        let progress = self.deliveries.take_progress();
        for (party, value) in progress {
            assert_eq!(party, PARTY);
            self.log.push(Record::Delta(value));
        }
        if self.deliveries.needs_progress() {
            self.deliveries.progressed(LogPosition(self.log.len() as u64));
        }
        for packet in outgoing.departures {
            if let Departure::Sending(sending) = &packet {
                self.pack.take(sending);
            }
            self.client.take(packet);
        }
        assert!(self.client.open.len() <= self.receive_maximum, "more outstanding than Receive Maximum");
    }

    fn acknowledge(&mut self, newest: bool, count: u8) {
        let mut arrivals = Arrivals::default();
        for _ in 0..count {
            let next = if newest { self.client.unanswered.pop() } else { self.client.oldest() };
            let Some((packet_identifier, step)) = next else { break };
            self.client.again.remove(&packet_identifier);
            if matches!(step, Step::Acknowledged | Step::Completed) {
                self.client.open.remove(&packet_identifier);
                self.client.received.remove(&packet_identifier);
                self.pack.finish(packet_identifier);
            }
            if step == Step::Received && self.pack.pending.contains_key(&packet_identifier) {
                self.pack.received.insert(packet_identifier);
            }
            let connection = SUBSCRIBER;
            arrivals.acknowledgements.push(Acknowledgement { connection, step, packet_identifier, refusal: None });
        }
        self.deliveries.admit(&arrivals, LogPosition(self.log.len() as u64), exchange::next);
    }

    /// What is pending comes again in the turns that follow, and nothing new before it. What is known of a connection
    /// before, and was not sent on this one yet, comes at its place: there may be messages before it whose sending a
    /// crash has forgotten.
    fn retry(&mut self) {
        if !self.is_overdue() {
            return;
        }
        self.deliveries
            .retry_pack(self.deliveries.receiver_on(SUBSCRIBER).unwrap(), Party(0), true, Timestamp(1))
            .unwrap();
        let sent = self.pack.pending.keys().filter(|identifier| self.client.open.contains(identifier));
        self.client.again = sent.filter(|identifier| !self.pack.received.contains(identifier)).copied().collect();
    }

    fn give_up(&mut self, keeps_identifiers: bool) {
        if !self.is_overdue() {
            return;
        }
        let given_up = self
            .deliveries
            .give_up_pack(self.deliveries.receiver_on(SUBSCRIBER).unwrap(), Party(0), keeps_identifiers)
            .unwrap();
        let offsets: BTreeSet<u64> = given_up.iter().flat_map(|(first, end)| first..end).collect();
        assert_eq!(offsets, self.pack.published(), "what is given up is what nobody has said to have");
        self.given_up.extend(offsets);
        self.client.again.clear();
        if !keeps_identifiers {
            // The receiver is taken to have forgotten them.
            let Pack { pending, received, .. } = &self.pack;
            self.client.open.retain(|identifier| !pending.contains_key(identifier) || received.contains(identifier));
        }
        self.pack.commit();
        assert_eq!(
            self.deliveries.pack(self.deliveries.receiver_on(SUBSCRIBER).unwrap(), Party(0)).unwrap().content(),
            None
        );
    }

    /// True if something is pending, and none of it waits for the disk.
    fn is_overdue(&mut self) -> bool {
        let overdue = self.deliveries.packs_overdue(Timestamp(1), 0);
        for found in &overdue {
            assert_eq!((found.connection, found.group), (SUBSCRIBER, Party(0)));
            assert_eq!(found.pending, self.pack.pending.len());
            assert!(found.first.0 <= *self.pack.pending.values().min().unwrap());
            let (first, taken) = self
                .deliveries
                .pack(self.deliveries.receiver_on(SUBSCRIBER).unwrap(), Party(0))
                .unwrap()
                .content()
                .unwrap();
            assert!(first == found.first && taken >= found.pending);
        }
        !overdue.is_empty()
    }

    fn run(&mut self, step: &Act) {
        match step {
            Act::Publish { qos, count } => self.publish(*qos, *count),
            Act::Commit => self.durable = self.log.len(),
            Act::Turn => self.turn(),
            Act::Acknowledge { newest, count } => self.acknowledge(*newest, *count),
            Act::Disconnect => self.disconnect(),
            Act::Connect { receive_maximum } => self.connect(*receive_maximum),
            Act::Crash => self.crash(),
            Act::Retry => self.retry(),
            Act::GiveUp { keeps_identifiers } => self.give_up(*keeps_identifiers),
        }
    }

    fn drain(&mut self) {
        self.connect(8);
        for _ in 0..self.publish_total * 4 + 40 {
            self.durable = self.log.len();
            self.turn();
            self.acknowledge(false, 100);
        }
    }
}

impl Client {
    fn cut(&mut self) {
        self.unanswered.clear();
        self.open.clear();
        self.again.clear();
        self.last_new = None;
    }

    fn oldest(&mut self) -> Option<(u16, Step)> {
        (!self.unanswered.is_empty()).then(|| self.unanswered.remove(0))
    }

    fn take(&mut self, packet: Departure) {
        if let Departure::Sending(sending) = &packet {
            assert!(sending.dup || self.again.is_empty(), "something new came before {:?}", self.again);
            self.again.remove(&sending.packet_identifier);
        }
        match packet {
            Departure::Sending(sending) if sending.qos == 2 => {
                self.open.insert(sending.packet_identifier);
                let offset = u64::from(sending.location.position);
                if let Some(known) = self.received.insert(sending.packet_identifier, offset) {
                    assert_eq!(known, offset, "a packet identifier that is not released names another message");
                    assert!(sending.dup);
                } else {
                    *self.got.entry(offset).or_default() += 1;
                }
                self.unanswered.push((sending.packet_identifier, Step::Received));
            }
            Departure::Sending(sending) => {
                assert_eq!(sending.qos, 1);
                let offset = u64::from(sending.location.position);
                if self.last_new.is_some_and(|last| last > offset) && !sending.dup {
                    panic!("{offset} was sent after {:?} on one connection", self.last_new);
                }
                self.last_new = Some(offset);
                self.open.insert(sending.packet_identifier);
                *self.got.entry(offset).or_default() += 1;
                self.unanswered.push((sending.packet_identifier, Step::Acknowledged));
            }
            Departure::Acknowledgement(acknowledgement) => {
                if acknowledgement.connection == SUBSCRIBER {
                    assert_eq!(acknowledgement.step, Step::Released);
                    self.unanswered.push((acknowledgement.packet_identifier, Step::Completed));
                }
            }
            Departure::Encoded(..) | Departure::Receipt(_) | Departure::Reply(_) => {}
        }
    }
}

impl Pack {
    fn resume(&mut self, state: &State) {
        self.pending = state.flights.iter().map(|(identifier, flight)| (*identifier, flight.offset.0)).collect();
        let received = state.flights.iter().filter(|(_, flight)| flight.phase == Phase::Received);
        self.received = received.map(|(identifier, _)| *identifier).collect();
        self.taken = self.pending.len();
        self.resumed = self.pending.values().max().copied();
    }

    fn take(&mut self, sending: &Sending) {
        let offset = u64::from(sending.location.position);
        if sending.dup || self.maximum == 0 {
            assert!(!sending.dup || self.maximum == 0 || self.pending[&sending.packet_identifier] == offset);
            return;
        }
        self.taken += 1;
        match self.resumed {
            // A crash has forgotten that it was sent before.
            Some(last) => assert!(offset < last, "{offset} was given before what was in flight was acknowledged"),
            None => assert!(self.taken <= self.maximum, "{offset} was given beyond an open pack"),
        }
        self.pending.insert(sending.packet_identifier, offset);
    }

    fn finish(&mut self, packet_identifier: u16) {
        if self.pending.remove(&packet_identifier).is_some() && self.pending.is_empty() {
            self.commit();
        }
    }

    fn commit(&mut self) {
        *self = Pack { maximum: self.maximum, ..Pack::default() };
    }

    fn published(&self) -> BTreeSet<u64> {
        let published = self.pending.iter().filter(|(identifier, _)| !self.received.contains(identifier));
        published.map(|(_, offset)| *offset).collect()
    }
}

/// After a crash, messages whose sending was forgotten come before the one that is known to be in flight, also if the
/// application asks for its pack again in between.
#[test]
fn a_retry_after_a_crash_keeps_the_order_of_the_log() {
    let mut world = World::new(4);
    let steps = [
        Act::Publish { qos: 1, count: 3 },
        Act::Publish { qos: 2, count: 1 },
        Act::Commit,
        Act::Turn,
        Act::Commit,
        Act::Crash,
        Act::Connect { receive_maximum: 1 },
        Act::Turn,
        Act::Retry,
        Act::Acknowledge { newest: false, count: 1 },
        Act::Turn,
    ];
    for step in &steps {
        world.run(step);
    }
    assert_eq!(world.client.last_new, Some(1), "the second message follows the first one's acknowledgement");
    world.drain();
    assert_eq!(world.client.got.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    // accepts: S0.53 S0.58
    #[test]
    fn every_durable_message_arrives_and_qos_2_once(steps in steps(), pack_maximum in prop_oneof![Just(0), 1..30_u8]) {
        let mut world = World::new(pack_maximum);
        for step in &steps {
            world.run(step);
        }
        world.drain();
        for (offset, _, qos) in world.messages() {
            let times = world.client.got.get(&offset).copied().unwrap_or(0);
            let is_known_to_be_lost = world.given_up.contains(&offset);
            prop_assert!(times >= 1 || is_known_to_be_lost, "message {} was lost", offset);
            prop_assert!(qos < 2 || times <= 1, "message {} of QoS 2 came {} times", offset, times);
        }
        let (party, queue, connection) = world.deliveries.queues()[0];
        prop_assert_eq!((party, connection), (PARTY, SUBSCRIBER));
        prop_assert_eq!(world.deliveries.mark(queue).unwrap(), Offset(world.publish_total));
        prop_assert_eq!(world.deliveries.in_flight(queue).unwrap(), 0);
    }

    #[test]
    fn any_bytes_are_a_state_or_an_error(bytes: Vec<u8>) {
        let mut state = State::default();
        if state.apply(&bytes).is_ok() {
            let mut again = Vec::new();
            state.encode(&mut again);
            prop_assert_eq!(State::decode(&again).unwrap(), state);
        }
    }
}
