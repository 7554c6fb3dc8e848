//! The inbox in the cases that decide: who is held, what is bounded, what counts, what is remembered.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "a test may stop at what it did not expect"
)]

mod mqtt_corpus;

use holdfast_kernel::flow::{Arrivals, Fate, Refusal};
use holdfast_kernel::ids::{Connection, KeySlot, Party, Timestamp};
use holdfast_kernel::limits::{
    CONNECT_BYTES_MAXIMUM, TURN_BYTES_MAXIMUM, TURN_CONNECTION_BYTES_MAXIMUM, TURN_DECODED_BYTES_MAXIMUM,
};
use holdfast_kernel::mqtt::encode::encode;
use holdfast_kernel::mqtt::inbox::{Event, Inbox};
use holdfast_kernel::mqtt::kind::Kind;
use holdfast_kernel::mqtt::packet::{Packet, Publish};
use holdfast_kernel::mqtt::peer::Acceptance;
use holdfast_kernel::mqtt::property::{Properties, Property, Value};
use holdfast_kernel::mqtt::publishing::Publishing;
use holdfast_kernel::mqtt::{Role, Version};
use holdfast_kernel::wire::rate::Rate;
use mqtt_corpus::{encoded, Recorder};
use proptest::prelude::*;

const HERE: Connection = Connection(0);
const NOW: Timestamp = Timestamp(1_000_000);

struct Desk {
    inbox: Inbox,
    arrivals: Arrivals,
}

impl Desk {
    fn new() -> Desk {
        let mut inbox = Inbox::default();
        inbox.open(HERE).unwrap();
        Desk { inbox, arrivals: Arrivals::default() }
    }

    fn accepted(version: Version, receive_maximum: u16, maximum_packet_size_bytes: u32, unreleased: &[u16]) -> Desk {
        let mut desk = Desk::new();
        let publishing = Publishing::new(version, receive_maximum, 3, unreleased.iter().copied().collect());
        let (party, keep_alive_s) = (Party(9), 10);
        let acceptance =
            Acceptance { party, key_slot: KeySlot(0), version, keep_alive_s, maximum_packet_size_bytes, publishing };
        desk.inbox.accept(HERE, acceptance).unwrap();
        desk
    }

    fn v5() -> Desk {
        Desk::accepted(Version::V5, 100, 1 << 20, &[])
    }

    fn turn(&mut self, bytes: &[u8]) -> Vec<Event> {
        self.inbox.feed(HERE, bytes, NOW).unwrap();
        self.inbox.decode(&mut self.arrivals, NOW).into_iter().map(|(_, event)| event).collect()
    }

    fn fates(&self) -> Vec<Fate> {
        self.arrivals.publishes.iter().map(|publish| publish.fate).collect()
    }
}

fn publish(qos: u8, packet_identifier: u16) -> Vec<u8> {
    message(qos, packet_identifier, "a", &[])
}

fn message(qos: u8, packet_identifier: u16, topic: &str, properties: &[(&str, Value<'_>)]) -> Vec<u8> {
    let mut encoded = Properties::default();
    for (name, value) in properties {
        encoded.push(Property::from_name(name).unwrap(), *value).unwrap();
    }
    let (topic_name, payload) = (topic.to_owned(), b"payload".to_vec());
    let publish =
        Publish { packet_identifier, qos, retain: false, dup: false, topic_name, payload, properties: encoded };
    encode(&Packet::Publish(publish), Version::V5).unwrap()
}

fn code(events: &[Event]) -> Option<u8> {
    events.iter().find_map(|event| event.as_ref().err().map(|fault| fault.reason_code))
}

fn corpus_packet(kind: Kind) -> Vec<u8> {
    let first = kind.bits();
    encoded(Version::V5, Role::Server).into_iter().find(|bytes| bytes[0] >> 4 == first).unwrap()
}

#[test]
fn connect_comes_first_and_once() {
    assert_eq!(code(&Desk::new().turn(b"GET / HTTP/1.1\r\n")), Some(0x82));
    let connect = corpus_packet(Kind::Connect);
    let mut desk = Desk::new();
    assert!(matches!(desk.turn(&connect).as_slice(), [Ok(Packet::Connect(_))]));
    desk.inbox.release(HERE);
    assert_eq!(code(&desk.turn(&publish(0, 0))), Some(0x82), "only AUTH and DISCONNECT may come before acceptance");
    assert_eq!(code(&Desk::v5().turn(&connect)), Some(0x82));
}

#[test]
fn nothing_is_decoded_while_a_connection_is_held_or_after_a_fault() {
    let mut desk = Desk::v5();
    let both = [corpus_packet(Kind::Subscribe), publish(0, 0)].concat();
    assert_eq!(desk.turn(&both).len(), 1);
    assert!(desk.turn(&publish(0, 0)).is_empty() && desk.arrivals.publishes.is_empty() && !desk.inbox.ready());
    desk.inbox.release(HERE);
    assert!(desk.inbox.ready());
    assert!(desk.turn(&[]).is_empty());
    assert_eq!(desk.arrivals.publishes.len(), 2);
    assert_eq!(code(&desk.turn(&[0x00, 0x00])), Some(0x81));
    desk.inbox.release(HERE);
    assert!(desk.turn(&publish(0, 0)).is_empty() && desk.arrivals.publishes.is_empty() && !desk.inbox.ready());
}

#[test]
fn size_is_refused_as_soon_as_the_header_is_read() {
    let mut desk = Desk::accepted(Version::V5, 100, 1_000, &[]);
    // 1 000 bytes with the header are taken, 1 001 are not.
    assert_eq!(code(&desk.turn(&[0x30, 0xE5])), None);
    assert_eq!(code(&desk.turn(&[0x07])), None);
    let mut desk = Desk::accepted(Version::V5, 100, 1_000, &[]);
    assert_eq!(code(&desk.turn(&[0x30, 0xE6, 0x07])), Some(0x95));
    // 262 141 bytes of Remaining Length make a CONNECT of one byte too many.
    let mut desk = Desk::new();
    assert_eq!(code(&desk.turn(&[0x10, 0xFC, 0xFF, 0x0F])), None);
    let mut desk = Desk::new();
    assert_eq!(code(&desk.turn(&[0x10, 0xFD, 0xFF, 0x0F])), Some(0x95));
    assert_eq!(CONNECT_BYTES_MAXIMUM, 262_144);
}

#[test]
fn what_waits_is_bounded() {
    let mut desk = Desk::accepted(Version::V5, 100, 1_000, &[]);
    desk.turn(&corpus_packet(Kind::Subscribe));
    let most = vec![0; TURN_CONNECTION_BYTES_MAXIMUM + 1_000];
    assert_eq!(desk.inbox.feed(HERE, &most, NOW), Ok(most.len()));
    assert_eq!(desk.inbox.feed(HERE, &[0], NOW), Ok(0));
    assert_eq!(code(&desk.turn(&[])), Some(0x97));
}

#[test]
fn receive_maximum_counts_what_is_not_answered() {
    let mut desk = Desk::accepted(Version::V5, 2, 1_000, &[7]);
    let sent = [publish(2, 7), publish(1, 1), publish(0, 0), publish(2, 2), publish(2, 2)].concat();
    assert_eq!(code(&desk.turn(&sent)), None);
    let (accepted, duplicate) = (Fate::Accepted, Fate::Duplicate);
    assert_eq!(desk.fates(), [duplicate, accepted, accepted, accepted, duplicate]);
    desk.inbox.answered(HERE, 1);
    assert_eq!(code(&desk.turn(&publish(1, 3))), None);
    assert_eq!(code(&desk.turn(&publish(1, 4))), Some(0x93));
}

#[test]
fn receive_maximum_binds_mqtt_5_only() {
    let mut desk = Desk::accepted(Version::V311, 1, 1_000, &[]);
    let old = [0x32, 6, 0, 1, b'a', 0, 1, b'x'];
    assert_eq!(code(&desk.turn(&[old, old, old].concat())), None);
    assert_eq!(desk.arrivals.publishes.len(), 3);
}

#[test]
fn settle_forgets_what_was_released_or_refused() {
    let mut desk = Desk::accepted(Version::V5, 100, 1_000, &[7]);
    desk.turn(&[publish(2, 1), publish(2, 2), vec![0x62, 2, 0, 7], vec![0x62, 2, 0, 8]].concat());
    assert_eq!(desk.arrivals.acknowledgements.len(), 2, "an unknown one is answered too");
    desk.arrivals.publishes[1].fate = Fate::Refused(Refusal::NoRoom);
    assert_eq!(desk.inbox.unreleased(HERE), Ok(vec![1, 2, 7]));
    let Desk { inbox, arrivals } = &mut desk;
    inbox.forget(arrivals);
    assert_eq!(inbox.unreleased(HERE), Ok(vec![1]));
}

#[test]
fn topic_aliases_stand_for_the_topic_they_were_given() {
    let mut desk = Desk::v5();
    let alias = |topic, number| message(0, 0, topic, &[("topic_alias", Value::Number(number))]);
    assert_eq!(code(&desk.turn(&[alias("first", 3), alias("", 3), alias("other", 3), alias("", 3)].concat())), None);
    let topics = desk.arrivals.publishes.iter().map(|publish| desk.arrivals.span(publish.topic));
    assert_eq!(topics.collect::<Vec<_>>(), [&b"first"[..], b"first", b"other", b"other"]);
    assert_eq!(code(&Desk::v5().turn(&alias("a", 4))), Some(0x94));
    assert_eq!(code(&Desk::v5().turn(&alias("", 2))), Some(0x82));
    let zero = [0x30, 7, 0, 1, b'a', 3, 0x23, 0, 0];
    assert_eq!(code(&Desk::v5().turn(&zero)), Some(0x94));
}

/// Decodes until nothing is left; how many messages of a topic came, and what the largest turn had.
fn decoded(desk: &mut Desk, topic: &str) -> (usize, usize) {
    let (mut count, mut largest) = (0, 0);
    while desk.inbox.ready() {
        assert!(desk.inbox.decode(&mut desk.arrivals, NOW).is_empty());
        let mut topics = desk.arrivals.publishes.iter().map(|publish| desk.arrivals.span(publish.topic));
        assert!(topics.all(|named| named == topic.as_bytes()));
        count += desk.arrivals.publishes.len();
        largest = largest.max(desk.arrivals.bytes.len());
    }
    (count, largest)
}

#[test]
fn topics_that_aliases_stand_for_are_bytes_of_the_turn() {
    let mut desk = Desk::v5();
    let topic = "t".repeat(60_000);
    let alias = |topic| message(0, 0, topic, &[("topic_alias", Value::Number(1))]);
    desk.turn(&alias(&topic));
    let many = alias("").repeat(1_000);
    desk.inbox.feed(HERE, &many, NOW).unwrap();
    let (count, largest) = decoded(&mut desk, &topic);
    assert_eq!(count, 1_000);
    assert!(largest < TURN_CONNECTION_BYTES_MAXIMUM + many.len() + 2 * topic.len());
}

#[test]
fn all_that_a_turn_decodes_is_bounded_whoever_sends_it() {
    let mut desk = Desk::v5();
    let topic = "t".repeat(60_000);
    let alias = |topic| message(0, 0, topic, &[("topic_alias", Value::Number(1))]);
    let connections = 2 * TURN_DECODED_BYTES_MAXIMUM / TURN_CONNECTION_BYTES_MAXIMUM;
    let many = [alias(&topic), alias("").repeat(20)].concat();
    for number in 1..=connections as u32 {
        desk.inbox.open(Connection(number)).unwrap();
        let publishing = Publishing::new(Version::V5, 100, 3, std::iter::empty().collect());
        let acceptance = Acceptance {
            party: Party(number),
            key_slot: KeySlot(0),
            version: Version::V5,
            keep_alive_s: 10,
            maximum_packet_size_bytes: 1 << 20,
            publishing,
        };
        desk.inbox.accept(Connection(number), acceptance).unwrap();
        desk.inbox.feed(Connection(number), &many, NOW).unwrap();
    }
    let (count, largest) = decoded(&mut desk, &topic);
    assert_eq!(count, 21 * connections);
    assert!(largest < TURN_DECODED_BYTES_MAXIMUM + 2 * topic.len());
}

#[test]
fn properties_that_travel_are_kept_side_by_side() {
    let mut desk = Desk::v5();
    let properties = [
        ("message_expiry_interval", Value::Number(60)),
        ("content_type", Value::Text("t")),
        ("topic_alias", Value::Number(1)),
        ("user_property", Value::Pair("k", "v")),
        ("user_property", Value::Pair("k", "w")),
    ];
    desk.turn(&message(0, 0, "a", &properties));
    let publish = &desk.arrivals.publishes[0];
    assert_eq!(publish.expiry_interval_s, Some(60));
    assert_eq!(desk.arrivals.span(publish.properties), b"\x03\0\x01t\x26\0\x01k\0\x01v\x26\0\x01k\0\x01w");
    assert_eq!(desk.arrivals.span(publish.payload), b"payload");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_properties_mean_does_not_depend_on_those_before_them(
        turns in prop::collection::vec(0_usize..5, 1..20),
    ) {
        let (pair, long) = (Value::Pair("k", "v"), "v".repeat(300));
        let variants: [&[(&str, Value<'_>)]; 5] = [
            &[],
            &[("message_expiry_interval", Value::Number(8)), ("user_property", pair)],
            &[("message_expiry_interval", Value::Number(9)), ("user_property", pair)],
            &[("user_property", Value::Pair("k", &long)), ("message_expiry_interval", Value::Number(7))],
            &[("content_type", Value::Text("t")), ("topic_alias", Value::Number(1)), ("user_property", pair)],
        ];
        let mut kept = Desk::v5();
        for bytes in turns.into_iter().map(|at| message(0, 0, "a", variants[at])) {
            let [kept, fresh] = [&mut kept, &mut Desk::v5()].map(|desk| {
                assert!(desk.turn(&bytes).is_empty());
                let publish = desk.arrivals.publishes.last().unwrap();
                (desk.arrivals.span(publish.properties).to_vec(), publish.expiry_interval_s)
            });
            prop_assert_eq!(kept, fresh);
        }
    }
}

#[test]
fn silence_is_one_and_a_half_keep_alives() {
    let mut desk = Desk::v5();
    desk.turn(&[0xC0, 0]);
    assert_eq!(desk.arrivals.pings, [HERE]);
    assert!(desk.inbox.silent(Timestamp(NOW.0 + 15_000_000)).is_empty());
    assert_eq!(desk.inbox.silent(Timestamp(NOW.0 + 15_000_001)), [HERE]);
}

#[test]
fn handle_that_is_used_again_inherits_nothing() {
    let mut desk = Desk::v5();
    desk.inbox.feed(HERE, &publish(0, 0), NOW).unwrap();
    desk.inbox.close(HERE);
    assert!(!desk.inbox.ready());
    assert!(desk.inbox.feed(HERE, b"x", NOW).is_err());
    desk.inbox.open(HERE).unwrap();
    assert_eq!(code(&desk.turn(&publish(0, 0))), Some(0x82), "it is a new connection");
    assert!(desk.inbox.open(Connection(u32::MAX)).is_err());
}

#[test]
fn packet_in_a_million_pieces_is_copied_a_bounded_number_of_times() {
    // Were each piece to move what came before it, these would be 500 gigabytes.
    let mut desk = Desk::v5();
    let size = (1 << 20) - 4;
    let mut packet = vec![0x30, 0xFC, 0xFF, 0x3F, 0, 1, b'a', 0];
    packet.resize(size + 4, b'x');
    for byte in &packet {
        assert_eq!(code(&desk.turn(&[*byte])), None);
    }
    assert_eq!(desk.arrivals.span(desk.arrivals.publishes[0].payload).len(), size - 4);
}

#[test]
fn control_packets_in_one_piece_are_copied_a_bounded_number_of_times() {
    // Each holds the connection: were the rest moved for each of them, these would be 25 gigabytes.
    let mut desk = Desk::v5();
    let subscribe = [0x82, 7, 0, 1, 0, 0, 1, b'a', 0];
    let mut found = desk.turn(&subscribe.repeat(50_000)).len();
    while found < 50_000 {
        desk.inbox.release(HERE);
        let events = desk.turn(&[]);
        assert_eq!((events.len(), code(&events)), (1, None));
        found += 1;
    }
    desk.inbox.release(HERE);
    assert!(!desk.inbox.ready());
}

#[test]
fn full_turn_leaves_the_rest_in_order_for_the_next() {
    let mut inbox = Inbox::default();
    let others = u32::try_from(TURN_BYTES_MAXIMUM / TURN_CONNECTION_BYTES_MAXIMUM).unwrap();
    for connection in (0..=others).map(Connection) {
        inbox.open(connection).unwrap();
        let publishing = Publishing::new(Version::V5, 100, 0, [].into());
        let (party, version, keep_alive_s, maximum_packet_size_bytes) = (Party(1), Version::V5, 0, 1 << 21);
        inbox
            .accept(
                connection,
                Acceptance {
                    party,
                    key_slot: KeySlot(0),
                    version,
                    keep_alive_s,
                    maximum_packet_size_bytes,
                    publishing,
                },
            )
            .unwrap();
    }
    inbox.feed(HERE, &publish(1, 1), NOW).unwrap();
    let mut filler = vec![0x30, 0xFC, 0xFF, 0x3F, 0, 1, b'a', 0];
    filler.resize(TURN_CONNECTION_BYTES_MAXIMUM, 0);
    for connection in (1..=others).map(Connection) {
        inbox.feed(connection, &filler, NOW).unwrap();
    }
    inbox.feed(HERE, &publish(1, 2), NOW).unwrap();
    let (mut arrivals, mut seen, mut turns) = (Arrivals::default(), Vec::new(), 0);
    while inbox.ready() {
        assert!(inbox.decode(&mut arrivals, NOW).is_empty());
        assert!(arrivals.bytes.len() <= TURN_BYTES_MAXIMUM + filler.len());
        let here = arrivals.publishes.iter().filter(|publish| publish.connection == HERE);
        seen.extend(here.map(|publish| publish.packet_identifier));
        turns += 1;
    }
    assert_eq!(seen, [1, 2]);
    assert!(turns > 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_split_over_feeds_and_turns_decodes_as_the_whole(
        picks in prop::collection::vec(any::<prop::sample::Index>(), 1..12),
        cuts in prop::collection::vec((1_usize..40, any::<bool>()), 1..40),
    ) {
        let corpus: Vec<_> = encoded(Version::V5, Role::Server).into_iter().filter(|bytes| bytes[0] != 0x10).collect();
        let bytes = picks.iter().map(|pick| pick.get(&corpus).clone()).collect::<Vec<_>>().concat();
        let mut whole = Recorder::new(Version::V5);
        whole.feed(0, &bytes);
        whole.drain();
        let mut split = Recorder::new(Version::V5);
        let mut rest = bytes.as_slice();
        for (size, turns) in cuts.iter().cycle() {
            let (piece, behind) = rest.split_at((*size).min(rest.len()));
            split.feed(0, piece);
            rest = behind;
            if *turns {
                split.turn();
            }
            if rest.is_empty() {
                break;
            }
        }
        split.drain();
        let sorted = |recorder: &Recorder| {
            let mut found = recorder.found[0].clone();
            found.sort();
            found
        };
        prop_assert_eq!(sorted(&whole), sorted(&split));
    }
}

fn limited(messages_per_second: u64, bytes_per_second: u64) -> Desk {
    let mut desk = Desk::v5();
    desk.inbox.limit(HERE, Rate::new(messages_per_second, bytes_per_second)).unwrap();
    desk
}

fn turn_at(desk: &mut Desk, bytes: &[u8], at_us: u64) -> Option<u8> {
    desk.inbox.feed(HERE, bytes, Timestamp(NOW.0 + at_us)).unwrap();
    let events = desk.inbox.decode(&mut desk.arrivals, Timestamp(NOW.0 + at_us));
    code(&events.into_iter().map(|(_, event)| event).collect::<Vec<_>>())
}

#[test]
fn a_connection_may_send_a_second_of_its_rate_at_once_and_not_more() {
    let mut desk = limited(10, 0);
    assert_eq!(turn_at(&mut desk, &publish(0, 0).repeat(10), 0), None);
    assert_eq!(turn_at(&mut desk, &[0xC0, 0].repeat(99), 1), None, "only PUBLISH is counted");
    assert_eq!(turn_at(&mut desk, &publish(0, 0).repeat(5), 500_000), None, "half a second gives half");
    assert_eq!(turn_at(&mut desk, &publish(0, 0).repeat(10), 9_000_000), None, "a pause gives a second, not more");
    assert_eq!(turn_at(&mut desk, &publish(0, 0), 9_099_999), Some(0x96));
    assert!(desk.arrivals.publishes.is_empty());
    assert_eq!(turn_at(&mut desk, &publish(0, 0), 20_000_000), None, "nothing is decoded after a fault");
    assert!(desk.arrivals.publishes.is_empty());
}

#[test]
fn a_connection_may_send_so_many_bytes() {
    let mut desk = limited(0, 1_000);
    assert_eq!(turn_at(&mut desk, &[0xC0, 0].repeat(500), 0), None);
    assert_eq!(turn_at(&mut desk, &[0xC0, 0].repeat(250), 500_000), None);
    assert_eq!(turn_at(&mut desk, &[0xC0, 0], 500_000), Some(0x96));
    let mut desk = limited(0, 1_000);
    desk.inbox.limit(HERE, None).unwrap();
    assert_eq!(turn_at(&mut desk, &[0xC0, 0].repeat(5_000), 0), None, "the limit was taken back");
}

#[test]
fn what_comes_faster_than_the_limit_of_all_waits_and_is_shared_by_turns() {
    let mut desk = Desk::v5();
    let other = Connection(1);
    let busy = Connection(2);
    for connection in [other, busy] {
        desk.inbox.open(connection).unwrap();
        let publishing = Publishing::new(Version::V5, 100, 3, Default::default());
        let (party, version, keep_alive_s, maximum_packet_size_bytes) = (Party(9), Version::V5, 10, 1 << 20);
        let acceptance =
            Acceptance { party, key_slot: KeySlot(0), version, keep_alive_s, maximum_packet_size_bytes, publishing };
        desk.inbox.accept(connection, acceptance).unwrap();
    }
    desk.inbox.limit_all(Rate::new(100, 0));
    desk.inbox.feed(busy, &publish(0, 0).repeat(300), NOW).unwrap();
    desk.inbox.feed(other, &publish(0, 0).repeat(3), NOW).unwrap();
    let mut seen = vec![0; 3];
    let (mut now, mut turns, mut other_done_at) = (NOW, 0, None);
    loop {
        assert!(desk.inbox.decode(&mut desk.arrivals, now).is_empty());
        for publish in &desk.arrivals.publishes {
            seen[publish.connection.0 as usize] += 1;
        }
        if seen[1] == 3 {
            other_done_at.get_or_insert(now);
        }
        let passed = now.0 - NOW.0;
        assert!((seen[1] + seen[2]) as u64 <= 100 + passed / 10_000, "{seen:?} after {passed} us");
        let Some(next) = desk.inbox.next_at() else { break };
        assert!(!desk.inbox.ready(), "nothing to do before there are tokens");
        assert!(next > now && next.0 <= now.0 + 20_000);
        (now, turns) = (next, turns + 1);
        assert!(turns < 1_000);
    }
    assert_eq!(seen, [0, 3, 300]);
    assert!(now.0 <= NOW.0 + 2_100_000, "303 messages at 100 a second, of which a second's worth is free");
    assert!(other_done_at.unwrap().0 <= NOW.0 + 100_000, "who sends little does not wait for who sends much");
    assert!(!desk.inbox.ready());
}

#[test]
fn the_limit_of_all_in_bytes_takes_whole_packets() {
    let mut desk = Desk::v5();
    desk.inbox.open(Connection(1)).unwrap();
    desk.inbox.limit_all(Rate::new(0, 100));
    let connect = corpus_packet(Kind::Connect);
    assert!(connect.len() > 100);
    desk.inbox.feed(Connection(1), &connect, NOW).unwrap();
    assert_eq!(desk.inbox.decode(&mut desk.arrivals, NOW).len(), 1, "into debt, rather than never");
    desk.inbox.release(Connection(1));
    desk.inbox.feed(Connection(1), &[0xE0, 0], NOW).unwrap();
    assert!(desk.inbox.decode(&mut desk.arrivals, NOW).is_empty() && !desk.inbox.ready());
    let next = desk.inbox.next_at().unwrap();
    assert_eq!(next.0, NOW.0 + (connect.len() as u64 - 100 + 1) * 10_000);
    assert_eq!(desk.inbox.decode(&mut desk.arrivals, next).len(), 1);
    desk.inbox.limit_all(None);
    assert_eq!(desk.inbox.next_at(), None);
}

proptest! {
    /// However it is cut into feeds and turns, the limit of all changes when something is decoded, not what.
    #[test]
    fn throttling_keeps_every_packet_and_their_order(
        sizes in proptest::collection::vec(1..400_usize, 1..20),
        (messages, bytes) in (0..50_u64, 0..2_000_u64),
    ) {
        let mut desk = Desk::v5();
        desk.inbox.open(Connection(1)).unwrap();
        let publishing = Publishing::new(Version::V311, 100, 0, Default::default());
        let (party, version, keep_alive_s, maximum_packet_size_bytes) = (Party(9), Version::V311, 10, 1 << 20);
        let key_slot = KeySlot(0);
        let acceptance = Acceptance { party, key_slot, version, keep_alive_s, maximum_packet_size_bytes, publishing };
        desk.inbox.accept(Connection(1), acceptance).unwrap();
        desk.inbox.limit_all(Rate::new(messages, bytes));
        let stream: Vec<u8> = (0..200_u8).flat_map(|number| [0x30, 4, 0, 1, b'a', number]).collect();
        let (mut rest, mut now, mut found) = (stream.as_slice(), NOW, Vec::new());
        for turn in 0..100_000 {
            let (piece, behind) = rest.split_at(sizes[turn % sizes.len()].min(rest.len()));
            rest = behind;
            desk.inbox.feed(Connection(1), piece, now).unwrap();
            prop_assert!(desk.inbox.decode(&mut desk.arrivals, now).is_empty());
            let payloads = desk.arrivals.publishes.iter().map(|publish| desk.arrivals.span(publish.payload)[0]);
            found.extend(payloads);
            now = desk.inbox.next_at().unwrap_or(now);
            if rest.is_empty() && desk.inbox.next_at().is_none() && !desk.inbox.ready() {
                break;
            }
        }
        prop_assert_eq!(found, (0..200).collect::<Vec<u8>>());
    }
}
