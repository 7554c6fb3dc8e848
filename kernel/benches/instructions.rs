//! One turn after another of fifty pairs at QoS 1, up to a given stage: for counting instructions, not time.
//!
//! Usage: `instructions STAGES TURNS`. `python -m bench.micro` runs it under a counter; what a stage costs is the
//! difference between two numbers of stages.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::as_conversions)]

use holdfast_kernel::delivery::{Attachment, Deliveries};
use holdfast_kernel::disk::fake::FakeDisk;
use holdfast_kernel::flow::state::State;
use holdfast_kernel::flow::{Acknowledgement, Arrivals, Departure, Outgoing, Step};
use holdfast_kernel::ids::{Connection, KeySlot, LogPosition, Offset, Party, Timestamp};
use holdfast_kernel::mqtt::exchange;
use holdfast_kernel::mqtt::inbox::Inbox;
use holdfast_kernel::mqtt::outbox::Outboxes;
use holdfast_kernel::mqtt::peer::Acceptance;
use holdfast_kernel::mqtt::publish::{Writing, WritingProperties};
use holdfast_kernel::mqtt::publishing::Publishing;
use holdfast_kernel::mqtt::Version;
use holdfast_kernel::route::{Routes, Subscription};
use holdfast_kernel::store::{Durability, Log, Options};
use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::Arc;

const PAIRS: u32 = 50;
const MESSAGES_EACH: u16 = 20;
const NOW: Timestamp = Timestamp(1_000_000);

struct Stages {
    inbox: Inbox,
    routes: Routes,
    log: Log,
    deliveries: Deliveries,
    outboxes: Outboxes,
    arrivals: Arrivals,
    outgoing: Outgoing,
    packets: Vec<Vec<u8>>,
}

fn topic(pair: u32) -> Vec<u8> {
    format!("zebra/fx/{pair}/reads").into_bytes()
}

fn packets(pair: u32) -> Vec<u8> {
    let (mut bytes, topic) = (Vec::new(), topic(pair));
    for number in 0..MESSAGES_EACH {
        let properties = Some(WritingProperties::default());
        let (packet_identifier, payload) = (number + 1, &[7; 64]);
        Writing { dup: false, qos: 1, retain: false, packet_identifier, topic: &topic, payload, properties }
            .write(&mut bytes)
            .unwrap();
    }
    bytes
}

impl Stages {
    fn new() -> Stages {
        let options = Options {
            segment_bytes: 256 << 20,
            cache_bytes: 64 << 20,
            reserve_bytes: 0,
            durability: Durability::Memory,
            seed: 1,
        };
        let (log, _) = Log::open(Arc::new(FakeDisk::new(1, 4 << 30)), options, NOW).unwrap();
        let mut stages = Stages {
            inbox: Inbox::default(),
            routes: Routes::new(7),
            log,
            deliveries: Deliveries::default(),
            outboxes: Outboxes::default(),
            arrivals: Arrivals::default(),
            outgoing: Outgoing::default(),
            packets: (0..PAIRS).map(packets).collect(),
        };
        for pair in 0..PAIRS {
            stages.join(pair);
        }
        stages
    }

    fn join(&mut self, pair: u32) {
        let (publisher, subscriber) = (Connection(1 + pair), Connection(1 + PAIRS + pair));
        let version = Version::V5;
        for connection in [publisher, subscriber] {
            let publishing = Publishing::new(version, u16::MAX, 0, BTreeSet::new());
            let party = Party(connection.0);
            let acceptance = Acceptance {
                party,
                key_slot: KeySlot(0),
                version,
                keep_alive_s: 0,
                maximum_packet_size_bytes: 1 << 20,
                publishing,
            };
            self.inbox.open(connection).unwrap();
            self.inbox.accept(connection, acceptance).unwrap();
            self.outboxes.open(connection, version, 1 << 20, 0, party).unwrap();
            let attachment = Attachment {
                party,
                state: State::default(),
                subscriptions: Arc::from([]),
                receive_maximum: u16::MAX,
                end: Offset(0),
                entries_maximum: 0,
                pack_maximum: 0,
            };
            let (_, queue) = self.deliveries.attach(connection, attachment).unwrap();
            if connection == subscriber {
                let (qos, no_local, retain_as_published, identifier) = (1, false, false, None);
                let subscription =
                    Subscription { queue, connection, owner: party, qos, no_local, retain_as_published, identifier };
                self.routes.subscribe(&topic(pair), subscription).unwrap();
            }
        }
    }

    /// One turn, of which only the first `count` stages are done.
    fn turn(&mut self, count: u32) {
        for (packets, pair) in self.packets.iter().zip(0..) {
            self.inbox.feed(Connection(1 + pair), packets, NOW).unwrap();
        }
        assert!(self.inbox.decode(&mut self.arrivals, NOW).is_empty());
        if count >= 2 {
            self.routes.route(&mut self.arrivals);
        }
        if count >= 3 {
            self.log.append(&mut self.arrivals, &[""; 0], NOW).unwrap();
        }
        self.inbox.forget(&self.arrivals);
        for pair in 0..PAIRS {
            self.inbox.answered(Connection(1 + pair), MESSAGES_EACH.into());
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
            self.acknowledge();
        }
        if count >= 8 {
            self.outboxes.encode(&mut self.outgoing, &mut self.log, NOW).unwrap();
            self.outboxes.take(|_, bytes| assert!(!black_box(bytes).is_empty()));
        }
        self.outgoing.departures.clear();
    }

    /// Every subscriber answers what it has just been allotted, so that windows stay open.
    fn acknowledge(&mut self) {
        let answer = |packet: &Departure| match packet {
            Departure::Sending(sending) => Some(Acknowledgement {
                connection: sending.connection,
                step: Step::Acknowledged,
                packet_identifier: sending.packet_identifier,
                refusal: None,
            }),
            _ => None,
        };
        let acknowledgements = self.outgoing.departures.iter().filter_map(answer).collect();
        self.deliveries.admit(&Arrivals { acknowledgements, ..Arrivals::default() }, LogPosition(0), exchange::next);
        black_box(self.deliveries.take_progress());
    }
}

fn main() {
    let numbers: Vec<u32> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let [count, turns, ..] = numbers[..] else { panic!("usage: instructions STAGES TURNS") };
    let mut stages = Stages::new();
    for _ in 0..turns {
        stages.turn(count);
    }
    assert_eq!(count < 7 || turns == 0, stages.deliveries.counters().deliveries == 0);
}
