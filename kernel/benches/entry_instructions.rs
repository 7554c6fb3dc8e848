//! One turn after another of fifty producers and consumers of entries, up to a given stage: for counting instructions.
//!
//! Usage: `entry_instructions STAGES TURNS BYTES`. `python -m bench.micro` runs it under a counter.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::cast_possible_truncation
)]

#[path = "../tests/entry_support/mod.rs"]
mod entry_support;
#[path = "../tests/pulsar_corpus/mod.rs"]
mod pulsar_corpus;

use entry_support::{saying, tail};
use holdfast_kernel::delivery::members::GroupAttachment;
use holdfast_kernel::delivery::Deliveries;
use holdfast_kernel::disk::fake::FakeDisk;
use holdfast_kernel::flow::entry::{Permits, Says, Settlement};
use holdfast_kernel::flow::state::State;
use holdfast_kernel::flow::{Arrivals, Departure, Outgoing};
use holdfast_kernel::ids::{Connection, KeySlot, LogPosition, Offset, Party, Receiver, Timestamp};
use holdfast_kernel::mqtt::exchange;
use holdfast_kernel::pulsar::inbox::Inbox;
use holdfast_kernel::pulsar::outbox::Outboxes;
use holdfast_kernel::pulsar::peer::Producer;
use holdfast_kernel::route::{Routes, Subscription};
use holdfast_kernel::store::{Durability, Log, Options};
use pulsar_corpus::send;
use std::hint::black_box;
use std::sync::Arc;

const PAIRS: u32 = 50;
const ENTRIES_EACH: u64 = 20;
const NUMBER: u64 = 3;
const FRAME_MAXIMUM: usize = 8 << 20;
const NOW: Timestamp = Timestamp(1_000_000);

struct Stages {
    inbox: Inbox,
    routes: Routes,
    log: Log,
    deliveries: Deliveries,
    outboxes: Outboxes,
    arrivals: Arrivals,
    outgoing: Outgoing,
    frames: Vec<u8>,
    receivers: Vec<Receiver>,
    /// Entries of each topic that were given out.
    given: u64,
}

fn topic(pair: u32) -> Vec<u8> {
    format!("zebra/fx/{pair}/reads").into_bytes()
}

impl Stages {
    fn new(payload_bytes: usize) -> Stages {
        let options = Options {
            segment_bytes: 256 << 20,
            cache_bytes: 64 << 20,
            reserve_bytes: 0,
            durability: Durability::Memory,
            seed: 1,
        };
        let (log, _) = Log::open(Arc::new(FakeDisk::new(1, 4 << 30)), options, NOW).unwrap();
        let one = tail(&saying(&[]), &vec![7; payload_bytes]);
        let frames = (0..ENTRIES_EACH).flat_map(|sequence| send(&[(1, NUMBER), (2, sequence)], &one)).collect();
        let mut stages = Stages {
            inbox: Inbox::default(),
            routes: Routes::new(7),
            log,
            deliveries: Deliveries::default(),
            outboxes: Outboxes::default(),
            arrivals: Arrivals::default(),
            outgoing: Outgoing::default(),
            frames,
            receivers: Vec::new(),
            given: 0,
        };
        for pair in 0..PAIRS {
            stages.join(pair);
        }
        stages
    }

    fn join(&mut self, pair: u32) {
        let (producer, consumer) = (Connection(1 + pair), Connection(1 + PAIRS + pair));
        for connection in [producer, consumer] {
            self.inbox.open(connection).unwrap();
            self.inbox.accept(connection, FRAME_MAXIMUM, 0).unwrap();
            self.outboxes.open(connection, FRAME_MAXIMUM).unwrap();
            self.deliveries.open(connection);
        }
        let party = Party(1 + pair);
        let made = Producer { topic_name: topic(pair).into(), party, key_slot: KeySlot(0) };
        self.inbox.add_producer(producer, NUMBER, made).unwrap();
        let (end, sent_before) = (Offset(0), Offset(0));
        let (owner, party) = (Party(1_000 + pair), Party(1_000 + pair));
        let subscriptions = Arc::from([]);
        let state = State::default();
        let attachment = GroupAttachment { party, owner, state, subscriptions, end, sent_before, whole: true };
        let queue = self.deliveries.open_group(attachment);
        let (no_local, retain_as_published, identifier) = (false, true, None);
        let connection = Connection::GROUP;
        let subscription = Subscription { queue, connection, owner, qos: 2, no_local, retain_as_published, identifier };
        self.routes.subscribe(&topic(pair), subscription).unwrap();
        let receiver = self.deliveries.attach_consumer(consumer).unwrap();
        self.deliveries.join_consumer(queue, receiver, false).unwrap();
        self.outboxes.add_consumer(consumer, 4, receiver);
        self.receivers.push(receiver);
        self.permit(pair, ENTRIES_EACH as u32);
    }

    fn permit(&mut self, pair: u32, messages: u32) {
        let receiver = self.receivers[pair as usize];
        let permits = vec![Permits { receiver, messages }];
        self.deliveries.admit(&Arrivals { permits, ..Arrivals::default() }, LogPosition(0), exchange::next);
    }

    /// One turn, of which only the first `count` stages are done.
    fn turn(&mut self, count: u32) {
        for pair in 0..PAIRS {
            self.inbox.feed(Connection(1 + pair), &self.frames, NOW).unwrap();
        }
        self.arrivals.clear();
        assert!(self.inbox.decode(&mut self.arrivals, NOW).is_empty());
        if count >= 2 {
            self.routes.route(&mut self.arrivals);
        }
        if count >= 3 {
            self.log.append(&mut self.arrivals, &[""; 0], NOW).unwrap();
        }
        if count >= 4 {
            self.deliveries.admit(&self.arrivals, self.log.end_position(), exchange::next);
        }
        if count >= 5 {
            self.log.commit().unwrap();
        }
        if count >= 6 {
            self.deliveries.settle(self.log.durable_offset(), self.log.durable_position(), &mut self.outgoing);
        }
        if count >= 7 {
            self.deliveries.allot(&mut self.outgoing, NOW);
            self.settle();
        }
        if count >= 8 {
            self.outboxes.encode(&mut self.outgoing, &mut self.log).unwrap();
            self.outboxes.take(|_, bytes| assert!(!black_box(bytes).is_empty()));
        }
        self.outgoing.departures.clear();
    }

    /// Every consumer acknowledges what it has just been given, each entry by itself, and permits as many more.
    fn settle(&mut self) {
        let given = self.outgoing.departures.iter().filter(|it| matches!(it, Departure::Sending(_))).count();
        assert_eq!(given as u64, u64::from(PAIRS) * ENTRIES_EACH, "everything is given out in its turn");
        let mut said = Arrivals::default();
        for pair in 0..PAIRS {
            let (connection, receiver) = (Connection(1 + PAIRS + pair), self.receivers[pair as usize]);
            for number in self.given..self.given + ENTRIES_EACH {
                let numbers = said.numbers.len()..said.numbers.len() + 1;
                said.numbers.push(number);
                said.settlements.push(Settlement { connection, receiver, says: Says::Done, numbers, request: None });
            }
            said.permits.push(Permits { receiver, messages: ENTRIES_EACH as u32 });
        }
        self.given += ENTRIES_EACH;
        self.deliveries.admit(&said, LogPosition(0), exchange::next);
        black_box(self.deliveries.take_progress());
    }
}

fn main() {
    let numbers: Vec<u32> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let [count, turns, payload_bytes] = numbers[..] else { panic!("usage: entry_instructions STAGES TURNS BYTES") };
    let mut stages = Stages::new(payload_bytes as usize);
    for _ in 0..turns {
        stages.turn(count);
    }
    assert_eq!(count < 7 || turns == 0, stages.deliveries.counters().deliveries == 0);
}
