//! How long decode, pass-through and encode take per message. Run with `--release -- --ignored --nocapture`.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "a test may stop at what it did not expect"
)]

use holdfast_kernel::error::Result;
use holdfast_kernel::flow::{self, Arrivals, Departure, Message, Messages, Outgoing, Sending, Target, Terms};
use holdfast_kernel::ids::{Connection, KeySlot, Location, Offset, Party, Queue, Timestamp};
use holdfast_kernel::mqtt::inbox::Inbox;
use holdfast_kernel::mqtt::outbox::Outboxes;
use holdfast_kernel::mqtt::peer::{Acceptance, Peer};
use holdfast_kernel::mqtt::publish::{Writing, WritingProperties};
use holdfast_kernel::mqtt::publishing::Publishing;
use holdfast_kernel::mqtt::Version;
use holdfast_kernel::wire::reception::Reception;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MESSAGES: usize = 10_000;
const ROUNDS: usize = 200;
const PAYLOAD: [u8; 64] = [b'x'; 64];
const TOPIC: &[u8] = b"zebra/fx/7/reads";

fn publishes(qos: u8, version: Version) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in 0..MESSAGES {
        let properties = (version == Version::V5).then_some(WritingProperties::default());
        let packet_identifier = u16::try_from(number + 1).unwrap();
        let writing =
            Writing { dup: false, qos, retain: false, packet_identifier, topic: TOPIC, payload: &PAYLOAD, properties };
        writing.write(&mut bytes).unwrap();
    }
    bytes
}

fn inbox(version: Version) -> Inbox {
    let mut inbox = Inbox::default();
    inbox.open(Connection(1)).unwrap();
    let publishing = Publishing::new(version, u16::MAX, 0, BTreeSet::new());
    let (party, keep_alive_s, maximum_packet_size_bytes) = (Party(1), 60, 1 << 20);
    let acceptance =
        Acceptance { party, key_slot: KeySlot(0), version, keep_alive_s, maximum_packet_size_bytes, publishing };
    inbox.accept(Connection(1), acceptance).unwrap();
    inbox
}

/// The fastest of many rounds: what else the machine does is not our subject.
fn report(what: &str, messages: usize, mut round: impl FnMut() -> Duration) {
    let fastest = (0..ROUNDS).map(|_| round()).min().unwrap();
    println!("{what}: {:.1} ns a message", fastest.as_nanos() as f64 / messages as f64);
}

fn decode_speed(qos: u8, version: Version) {
    let bytes = publishes(qos, version);
    let mut inbox = inbox(version);
    let mut arrivals = Arrivals::default();
    report(&format!("decode with feed, QoS {qos}, {version:?}"), MESSAGES, || {
        let started = Instant::now();
        for chunk in bytes.chunks(65_536) {
            inbox.feed(Connection(1), chunk, Timestamp(1)).unwrap();
            assert!(inbox.decode(&mut arrivals, Timestamp(1)).is_empty());
            inbox.answered(Connection(1), 65_535);
        }
        started.elapsed()
    });
}

struct OneMessage;

impl Messages for OneMessage {
    fn entry(
        &mut self,
        _: Location,
        _: Offset,
    ) -> holdfast_kernel::error::Result<Option<holdfast_kernel::flow::entry::Entry<'_>>> {
        Ok(None)
    }

    fn message(&mut self, _: Location, _: Offset) -> Result<Option<Message<'_>>> {
        let (properties, qos, retain, expires_at): (&[u8], _, _, _) = (&[], 1, false, None);
        let appended_at = Timestamp(0);
        Ok(Some(Message { topic: TOPIC, properties, payload: &PAYLOAD, qos, retain, appended_at, expires_at }))
    }
}

fn pass_speed(targets: u32, topic_alias_maximum: u16) {
    let mut inbox = inbox(Version::V5);
    let mut outboxes = Outboxes::default();
    for connection in 0..targets {
        let party = Party(connection + 1);
        outboxes.open(Connection(connection), Version::V5, 1 << 20, topic_alias_maximum, party).unwrap();
    }
    let target = |connection| Target {
        queue: Queue(connection),
        connection: Connection(connection),
        terms: Terms::default(),
        own: None,
    };
    let targets: Arc<[Target]> = (0..targets).map(target).collect();
    let mut arrivals = Arrivals::default();
    let bytes = publishes(0, Version::V5);
    let turn = bytes.len() / (if targets.len() == 1 { 16 } else { 256 });
    inbox.feed(Connection(1), bytes.get(..turn).unwrap(), Timestamp(1)).unwrap();
    inbox.decode(&mut arrivals, Timestamp(1));
    for publish in &mut arrivals.publishes {
        publish.targets = Some(targets.clone());
    }
    let messages = arrivals.publishes.len() * targets.len();
    let what = format!("pass_through with take, {} targets, {topic_alias_maximum} aliases, each", targets.len());
    report(&what, messages, || {
        let started = Instant::now();
        outboxes.pass_through(&arrivals, Timestamp(0));
        outboxes.take(|_, bytes| assert!(!bytes.is_empty()));
        started.elapsed()
    });
    assert_eq!(outboxes.counters().dropped_slow_reader, 0);
}

fn encode_speed() {
    let mut outboxes = Outboxes::default();
    outboxes.open(Connection(1), Version::V5, 1 << 20, 0, Party(1)).unwrap();
    let mut outgoing = Outgoing::default();
    report("encode with take, QoS 1", MESSAGES, || {
        for number in 0..MESSAGES {
            outgoing.departures.push(Departure::Sending(Sending {
                receiver: Default::default(),
                redeliveries: 0,
                connection: Connection(1),
                packet_identifier: u16::try_from(number + 1).unwrap(),
                qos: 1,
                dup: false,
                again: false,
                retain: false,
                identifiers: None,
                offset: Offset(0),
                location: Location::default(),
            }));
        }
        let started = Instant::now();
        outboxes.encode(&mut outgoing, &mut OneMessage, Timestamp(1)).unwrap();
        outboxes.take(|_, bytes| assert!(!bytes.is_empty()));
        started.elapsed()
    });
}

#[test]
#[ignore = "it measures; nothing can fail"]
fn speed() {
    println!("bytes of flow::Publish: {}", std::mem::size_of::<flow::Publish>());
    println!("bytes of an idle connection's reception: {}", std::mem::size_of::<Reception<Peer>>());
    for version in [Version::V311, Version::V5] {
        for qos in 0..3 {
            decode_speed(qos, version);
        }
    }
    for topic_alias_maximum in [0, 64] {
        pass_speed(1, topic_alias_maximum);
        pass_speed(500, topic_alias_maximum);
    }
    encode_speed();
}
