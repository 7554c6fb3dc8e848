//! Topic aliases towards clients: a client that follows them gets every topic right, and fewer bytes.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "a test may stop at what it did not expect"
)]

use holdfast_kernel::error::Result;
use holdfast_kernel::flow::{
    Arrivals, Departure, Fate, Message, Messages, Outgoing, Publish, Sending, Span, Target, Terms,
};
use holdfast_kernel::ids::{Connection, KeySlot, Location, Offset, Party, Queue, Timestamp};
use holdfast_kernel::limits::{ALIASES_SENT_MAXIMUM, ALIAS_TOPIC_BYTES_MAXIMUM, OUTBOX_BYTES_MAXIMUM};
use holdfast_kernel::mqtt::decode::decode;
use holdfast_kernel::mqtt::frame::Frame;
use holdfast_kernel::mqtt::outbox::Outboxes;
use holdfast_kernel::mqtt::property::Value;
use holdfast_kernel::mqtt::{packet, Role, Version};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const HERE: Connection = Connection(4);
/// Numbered topics long enough to get an alias, and from 900 on ones that are too short or too long.
const ODD_TOPICS: u32 = 900;

fn topic(number: u32) -> String {
    match number {
        ODD_TOPICS => "short".to_owned(),
        901 => "x".repeat(ALIAS_TOPIC_BYTES_MAXIMUM),
        902 => "x".repeat(ALIAS_TOPIC_BYTES_MAXIMUM + 1),
        _ => format!("zebra/fx/{number}/reads"),
    }
}

/// Every record's topic is its position.
struct Log(String);

impl Messages for Log {
    fn entry(
        &mut self,
        _: Location,
        _: Offset,
    ) -> holdfast_kernel::error::Result<Option<holdfast_kernel::flow::entry::Entry<'_>>> {
        Ok(None)
    }

    fn message(&mut self, location: Location, _: Offset) -> Result<Option<Message<'_>>> {
        self.0 = topic(location.position);
        let (topic, properties, qos, retain) = (self.0.as_bytes(), b"\x03\0\x01c".as_slice(), 1, false);
        let appended_at = Timestamp(0);
        Ok(Some(Message { topic, properties, payload: b"payload", qos, retain, appended_at, expires_at: None }))
    }
}

/// A client that remembers aliases as section 3.3.2.3.4 says.
struct Client {
    maximum: u16,
    packet_bytes_maximum: usize,
    aliases: BTreeMap<u32, String>,
    bytes: usize,
}

impl Client {
    fn new(maximum: u16, packet_bytes_maximum: usize) -> Client {
        Client { maximum, packet_bytes_maximum, aliases: BTreeMap::new(), bytes: 0 }
    }

    /// The topics of the messages in `bytes`.
    fn read(&mut self, mut bytes: &[u8]) -> Vec<String> {
        self.bytes += bytes.len();
        let mut topics = Vec::new();
        while let Some(frame) = Frame::read(bytes).unwrap() {
            assert!(frame.size_bytes <= self.packet_bytes_maximum, "[MQTT-3.1.2-24]");
            let body = &bytes[frame.header_bytes..frame.size_bytes];
            let packet::Packet::Publish(publish) = decode(&frame, body, Version::V5, Role::Client).unwrap() else {
                panic!("not a PUBLISH");
            };
            let alias = publish.properties.items().find(|(property, _)| property.name == "topic_alias");
            let named = match alias {
                Some((_, Value::Number(alias))) => {
                    assert!((1..=u32::from(self.maximum)).contains(&alias), "[MQTT-3.3.2-8] [MQTT-3.3.2-10]");
                    if !publish.topic_name.is_empty() {
                        self.aliases.insert(alias, publish.topic_name);
                    }
                    self.aliases.get(&alias).expect("an alias that was bound").clone()
                }
                _ => publish.topic_name,
            };
            topics.push(named);
            bytes = &bytes[frame.size_bytes..];
        }
        topics
    }
}

fn outboxes(maximum: u16, packet_bytes_maximum: u32) -> Outboxes {
    let mut outboxes = Outboxes::default();
    outboxes.open(HERE, Version::V5, packet_bytes_maximum, maximum, Party(1)).unwrap();
    outboxes
}

fn passed(outboxes: &mut Outboxes, number: u32) {
    let name = topic(number);
    let span = |start: usize, size: usize| Span { start: start as u32, size_bytes: size as u32 };
    let target = Target { queue: Queue(1), connection: HERE, terms: Terms::default(), own: None };
    let publish = Publish {
        connection: Connection(9),
        publisher: Party(5),
        key_slot: KeySlot(0),
        packet_identifier: 0,
        qos: 0,
        retain: false,
        topic: span(0, name.len()),
        properties: Span::default(),
        payload: Span::default(),
        expiry_interval_s: None,
        fate: Fate::Accepted,
        row: None,
        entry: None,
        targets: Some(Arc::from([target])),
        stored: None,
    };
    let arrivals = Arrivals { bytes: name.into_bytes(), publishes: vec![publish], ..Arrivals::default() };
    outboxes.pass_through(&arrivals, Timestamp(0));
}

fn delivered(outboxes: &mut Outboxes, number: u32, qos: u8) {
    let sending = Sending {
        receiver: Default::default(),
        redeliveries: 0,
        connection: HERE,
        packet_identifier: u16::from(qos > 0) * 3,
        qos,
        dup: false,
        again: false,
        retain: false,
        identifiers: Some([5].into()),
        offset: Offset(0),
        location: Location { segment: 0, position: number },
    };
    let mut outgoing = Outgoing { departures: vec![Departure::Sending(sending)] };
    outboxes.encode(&mut outgoing, &mut Log(String::new()), Timestamp(1)).unwrap();
}

fn taken(outboxes: &mut Outboxes) -> Vec<u8> {
    let mut taken = Vec::new();
    outboxes.take(|_, bytes| taken.extend_from_slice(bytes));
    taken
}

proptest! {
    /// Whatever is sent, dropped because it is too large, or dropped because the outbox is full, in whatever order.
    #[test]
    fn a_client_that_follows_gets_every_topic_right(
        maximum in prop_oneof![0..5_u16, Just(64), Just(u16::MAX)],
        packet_bytes_maximum in prop_oneof![25..50_u32, Just(1_000)],
        sends in proptest::collection::vec(
            (prop_oneof![0..8_u32, 0..200_u32, 900..903_u32], 0..4_u8, any::<u8>()),
            1..200,
        ),
    ) {
        let mut outboxes = outboxes(maximum, packet_bytes_maximum);
        let mut client = Client::new(maximum, packet_bytes_maximum as usize);
        let mut sent = Vec::new();
        // One packet of 1 048 516 bytes, so that 60 are left.
        let mut filling = vec![0; OUTBOX_BYTES_MAXIMUM - 60];
        filling[..4].copy_from_slice(&[0xD0, 0xC0, 0xFF, 0x3F]);
        for (number, way, chance) in sends {
            let before = outboxes.counters().publishes_sent;
            if chance < 10 {
                // Nearly full: some messages of QoS 0 find no room any more.
                outboxes.set_writable(HERE, false);
                outboxes.write(HERE, &filling);
            }
            match way {
                3 => passed(&mut outboxes, number),
                qos => delivered(&mut outboxes, number, qos),
            }
            if outboxes.counters().publishes_sent > before {
                sent.push(topic(number));
            }
            if chance > 200 {
                outboxes.set_writable(HERE, true);
                let bytes = taken(&mut outboxes);
                let publishes = without_filling(&bytes);
                prop_assert_eq!(client.read(&publishes), std::mem::take(&mut sent));
            }
        }
    }
}

fn without_filling(mut bytes: &[u8]) -> Vec<u8> {
    let mut rest = Vec::new();
    while let Some(frame) = Frame::read(bytes).unwrap() {
        if frame.first != 0xD0 {
            rest.extend_from_slice(&bytes[..frame.size_bytes]);
        }
        bytes = &bytes[frame.size_bytes..];
    }
    rest
}

/// Bytes per message of these topics to a client that takes `maximum` aliases, and the largest alias.
fn measured(maximum: u16, topics: impl Iterator<Item = u32>) -> (usize, u32) {
    let mut outboxes = outboxes(maximum, 1_000);
    let mut client = Client::new(maximum, 1_000);
    let mut messages = 0;
    for number in topics {
        passed(&mut outboxes, number);
        assert_eq!(client.read(&taken(&mut outboxes)), [topic(number)]);
        messages += 1;
    }
    (client.bytes / messages, client.aliases.keys().max().copied().unwrap_or_default())
}

#[test]
fn a_topic_that_comes_again_costs_three_bytes() {
    assert_eq!(measured(0, (0..1_000).map(|index| index % 3)), (21, 0));
    assert_eq!(measured(5, (0..1_000).map(|index| index % 3)), (8, 3));
    assert_eq!(measured(5, (0..100).map(|_| ODD_TOPICS)), (10, 0), "too short to be worth it");
}

#[test]
fn more_topics_than_aliases_cost_nothing_and_a_changing_few_are_followed() {
    let in_turn = measured(10, (0..10_000).map(|index| index % 800));
    assert_eq!(in_turn, (22, 10), "as much as without");
    assert_eq!(measured(0, (0..10_000).map(|index| index % 800)).0, 22);
    let changing = measured(10, (0..10_000).map(|index| index / 100));
    assert!(changing.0 <= 9, "{changing:?}");
    assert_eq!(measured(u16::MAX, (0..2_000).map(|index| index % 500)).1, u32::from(ALIASES_SENT_MAXIMUM));
}
