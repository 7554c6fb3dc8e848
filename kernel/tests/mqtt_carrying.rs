//! Messages that are carried on to another broker: what they become, what waits, and the client's side of a connection.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "a test may stop at what it did not expect"
)]

use holdfast_kernel::flow::{
    Acknowledgement, Arrivals, Departure, Fate, Message, Messages, NoticeKind, Outgoing, Publish, Refusal, Span, Step,
    Target, Terms,
};
use holdfast_kernel::ids::{Connection, KeySlot, Location, Offset, Party, Queue, Timestamp};
use holdfast_kernel::mqtt::inbox::Inbox;
use holdfast_kernel::mqtt::outbox::Outboxes;
use holdfast_kernel::mqtt::packet::Packet;
use holdfast_kernel::mqtt::peer::{Acceptance, Expectation};
use holdfast_kernel::mqtt::publishing::Publishing;
use holdfast_kernel::mqtt::rewriting::{Hops, Outcome, Part, Rewriting, Rewritten, Rule};
use holdfast_kernel::mqtt::shelf::Carried;
use holdfast_kernel::mqtt::Version;
use proptest::prelude::*;
use std::sync::Arc;

const HERE: Connection = Connection(1);
const THERE: Connection = Connection(2);
const PARTY: Party = Party(7);

fn rule(filter: &str, topic: Option<Vec<Part>>) -> Rule {
    Rule { filters: vec![filter.as_bytes().into()], topic, properties: Vec::new(), keeps_retain: false }
}

fn literal(text: &str) -> Part {
    Part::Literal(text.as_bytes().into())
}

fn hops(maximum: u32) -> Option<Hops> {
    Some(Hops { name: "hops".into(), maximum })
}

fn pair(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).unwrap();
    [&[0x26, 0, length(name)], name.as_bytes(), &[0, length(value)], value.as_bytes()].concat()
}

fn applied(rewriting: &Rewriting, topic: &str, properties: &[u8]) -> (Outcome, String, Vec<u8>) {
    let mut into = Rewritten::default();
    let outcome = rewriting.apply(topic.as_bytes(), properties, &mut into);
    (outcome, String::from_utf8(into.topic).unwrap(), into.properties)
}

#[test]
fn the_first_rule_that_matches_says_what_a_topic_becomes() {
    let rules = vec![
        rule("a/secret/#", None),
        rule("a/+", Some(vec![literal("x/"), Part::Level(2)])),
        rule("a/#", Some(vec![literal("y/"), Part::Topic])),
    ];
    let rewriting = Rewriting::new(rules, None).unwrap();
    assert_eq!(applied(&rewriting, "a/b", b""), (Outcome::Carried, "x/b".into(), vec![]));
    assert_eq!(applied(&rewriting, "a/b/c", b"p"), (Outcome::Carried, "y/a/b/c".into(), b"p".to_vec()));
    assert_eq!(applied(&rewriting, "other", b"").0, Outcome::LeftOut, "no rule is about it");
    assert_eq!(applied(&rewriting, "a/secret/b", b"").0, Outcome::LeftOut);
}

#[test]
fn a_topic_that_cannot_be_made_loses_its_message() {
    let level = Rewriting::new(vec![rule("#", Some(vec![Part::Level(3)]))], None).unwrap();
    assert_eq!(applied(&level, "a/b", b"").0, Outcome::Lost(NoticeKind::Unmappable), "it has no third level");
    assert_eq!(applied(&level, "a/b/", b"").0, Outcome::Lost(NoticeKind::Unmappable), "its third level is empty");
    let long = Rewriting::new(vec![rule("#", Some(vec![Part::Topic, Part::Topic]))], None).unwrap();
    let topic = "t".repeat(40_000);
    assert_eq!(applied(&long, &topic, b"").0, Outcome::Lost(NoticeKind::Unmappable));
    assert!(Rewriting::new(vec![rule("a/#/b", None)], None).is_err());
}

#[test]
fn hops_are_counted_up_to_their_maximum_and_other_properties_are_kept() {
    let added = Rule { properties: vec![("site".into(), "7".into())], ..rule("#", Some(vec![Part::Topic])) };
    let rewriting = Rewriting::new(vec![added], hops(2)).unwrap();
    let site = pair("site", "7");
    let first = [&*site, &pair("hops", "1")].concat();
    assert_eq!(applied(&rewriting, "t", b"").2, first);
    let second = [&*pair("k", "v"), &site, &pair("hops", "2")].concat();
    let carried = [&*pair("hops", "1"), &pair("k", "v")].concat();
    assert_eq!(applied(&rewriting, "t", &carried), (Outcome::Carried, "t".into(), second));
    assert_eq!(applied(&rewriting, "t", &pair("hops", "2")).0, Outcome::Lost(NoticeKind::Looped));
    assert_eq!(applied(&rewriting, "t", &pair("hops", "many")).2, [&*site, &pair("hops", "1")].concat());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_a_message_becomes_does_not_depend_on_those_before_it(
        messages in proptest::collection::vec((0_usize..4, 0_usize..4), 1..20),
    ) {
        let rules = vec![rule("a/secret", None), rule("a/#", Some(vec![literal("x/"), Part::Level(2)]))];
        let rewriting = Rewriting::new(rules, hops(1)).unwrap();
        let properties = [vec![], pair("hops", "0"), pair("hops", "1"), pair("k", "v")];
        let mut kept = Rewritten::default();
        for (at, of) in messages {
            let (topic, properties) = (["a", "a/b", "a/secret", "b"][at], &properties[of]);
            let outcome = rewriting.apply(topic.as_bytes(), properties, &mut kept);
            let (expected, became, carried) = applied(&rewriting, topic, properties);
            prop_assert_eq!(outcome, expected);
            prop_assert_eq!((&*kept.topic, &kept.properties), (became.as_bytes(), &carried));
        }
    }
}

struct Nothing;

impl Messages for Nothing {
    fn entry(
        &mut self,
        _: Location,
        _: Offset,
    ) -> holdfast_kernel::error::Result<Option<holdfast_kernel::flow::entry::Entry<'_>>> {
        Ok(None)
    }

    fn message(&mut self, _: Location, _: Offset) -> holdfast_kernel::error::Result<Option<Message<'_>>> {
        Ok(None)
    }
}

/// Messages of QoS 0 on `t`, one byte each, for one connection.
fn arrivals(payloads: &[u8], connection: Connection, expiry_interval_s: Option<u32>) -> Arrivals {
    let mut arrivals = Arrivals { bytes: [b"t", payloads].concat(), ..Arrivals::default() };
    let terms = Terms { qos: 1, ..Terms::default() };
    let targets: Arc<[Target]> = [Target { queue: Queue(0), connection, terms, own: None }].into();
    for index in 0..payloads.len() {
        let payload = Span { start: u32::try_from(index + 1).unwrap(), size_bytes: 1 };
        arrivals.publishes.push(Publish {
            connection: Connection(9),
            publisher: Party(5),
            key_slot: KeySlot(0),
            packet_identifier: 0,
            qos: 0,
            retain: false,
            topic: Span { start: 0, size_bytes: 1 },
            properties: Span::default(),
            payload,
            expiry_interval_s,
            fate: Fate::Accepted,
            row: None,
            entry: None,
            targets: Some(targets.clone()),
            stored: None,
        });
    }
    arrivals
}

fn carrying(version: Version, shelf_bytes_maximum: usize) -> Outboxes {
    let rewriting = Rewriting::new(vec![rule("#", Some(vec![literal("x/"), Part::Topic]))], None).unwrap();
    let rewriting = Arc::new(rewriting);
    let mut outboxes = Outboxes::default();
    for connection in [HERE, THERE] {
        outboxes.open(connection, version, 1 << 20, 0, PARTY).unwrap();
        outboxes.carry(connection, rewriting.clone(), shelf_bytes_maximum);
    }
    outboxes.set_writable(HERE, false);
    outboxes
}

fn taken(outboxes: &mut Outboxes, now: Timestamp) -> Vec<u8> {
    outboxes.encode(&mut Outgoing::default(), &mut Nothing, now).unwrap();
    let mut taken = Vec::new();
    outboxes.take(|_, bytes| taken.extend_from_slice(bytes));
    taken
}

// accepts: S1.46
#[test]
fn what_waits_on_a_shelf_goes_first_and_in_order() {
    let mut outboxes = carrying(Version::V311, 10_000);
    outboxes.pass_through(&arrivals(b"ab", HERE, None), Timestamp(0));
    assert_eq!(taken(&mut outboxes, Timestamp(0)), b"", "it cannot be written to");
    assert_eq!(outboxes.shelved(HERE).0, 2);
    assert!(!outboxes.is_waiting());
    outboxes.hand_over(HERE, THERE);
    assert_eq!((outboxes.shelved(HERE), outboxes.shelved(THERE).0), ((0, 0), 2));
    assert!(outboxes.is_waiting());
    outboxes.pass_through(&arrivals(b"c", THERE, None), Timestamp(0));
    let publish = |payload: u8| [&[0x30, 6, 0, 3], &b"x/t"[..], &[payload]].concat();
    assert_eq!(taken(&mut outboxes, Timestamp(0)), [publish(b'a'), publish(b'b'), publish(b'c')].concat());
    assert_eq!(outboxes.shelved(THERE), (0, 0));
    assert_eq!(outboxes.counters().publishes_sent, 3);
    assert_eq!(outboxes.carried(THERE), Carried { sent: 3, repeated: 0, again: 0, passing: 3 });
    outboxes.hand_over(THERE, HERE);
    assert_eq!((outboxes.carried(HERE).sent, outboxes.carried(THERE).sent), (3, 0), "counted on");
}

#[test]
fn what_is_held_waits_on_the_shelf_of_a_connection_that_could_be_written_to() {
    let mut outboxes = carrying(Version::V5, 10_000);
    outboxes.hold(THERE, true);
    outboxes.pass_through(&arrivals(b"a", THERE, None), Timestamp(0));
    assert_eq!(taken(&mut outboxes, Timestamp(0)), b"");
    assert!(!outboxes.is_waiting(), "nothing is done about it");
    assert_eq!(outboxes.carried(THERE), Carried { passing: 1, ..Carried::default() });
    outboxes.hold(THERE, false);
    assert!(outboxes.is_waiting());
    assert!(taken(&mut outboxes, Timestamp(0)).ends_with(b"a"));
}

#[test]
fn where_no_hops_are_counted_contents_that_come_again_are() {
    for (version, hops, again) in [(Version::V311, hops(1), 2), (Version::V5, None, 2), (Version::V5, hops(1), 0)] {
        let mut outboxes = Outboxes::default();
        outboxes.open(HERE, version, 1 << 20, 0, PARTY).unwrap();
        outboxes.carry(HERE, Arc::new(Rewriting::new(vec![rule("#", Some(vec![Part::Topic]))], hops).unwrap()), 10_000);
        outboxes.pass_through(&arrivals(b"aba", HERE, None), Timestamp(0));
        outboxes.hold(HERE, true);
        outboxes.pass_through(&arrivals(b"cb", HERE, None), Timestamp(0));
        outboxes.hold(HERE, false);
        taken(&mut outboxes, Timestamp(0));
        assert_eq!(outboxes.carried(HERE), Carried { sent: 5, repeated: 0, again, passing: 5 }, "{version:?}");
    }
}

#[test]
fn another_server_is_told_what_is_refused_for_ever_and_not_what_finds_no_room() {
    let mut outboxes = carrying(Version::V5, 10_000);
    let refusals = [Refusal::NoRoom, Refusal::TooManyTopics, Refusal::NotAuthorized];
    let departures = [Step::Acknowledged, Step::Received].into_iter().flat_map(|step| {
        (1..).zip(refusals).map(move |(packet_identifier, refusal)| {
            let (connection, refusal) = (THERE, Some(refusal));
            Departure::Acknowledgement(Acknowledgement { connection, step, packet_identifier, refusal })
        })
    });
    let mut outgoing = Outgoing { departures: departures.collect() };
    outboxes.encode(&mut outgoing, &mut Nothing, Timestamp(0)).unwrap();
    let answers = |kind| [[kind, 3, 0, 2, 0x97], [kind, 3, 0, 3, 0x87]].concat();
    assert_eq!(taken(&mut outboxes, Timestamp(0)), [answers(0x40), answers(0x50)].concat());
}

#[test]
fn a_full_shelf_loses_the_oldest_and_says_so() {
    let mut outboxes = carrying(Version::V5, 3 * 66);
    outboxes.pass_through(&arrivals(b"abcd", HERE, None), Timestamp(0));
    assert_eq!(outboxes.shelved(HERE), (3, 3 * 66));
    let notices = outboxes.notices();
    assert_eq!(
        notices.iter().map(|notice| (notice.party, notice.kind, notice.count)).collect::<Vec<_>>(),
        [(PARTY, NoticeKind::Overflow, 1)]
    );
    outboxes.hand_over(HERE, THERE);
    let written = taken(&mut outboxes, Timestamp(0));
    assert!(written.ends_with(b"d") && !written.contains(&b'a'));
}

#[test]
fn what_expires_on_the_shelf_is_not_sent_and_the_rest_with_the_time_that_is_left() {
    let mut outboxes = carrying(Version::V5, 10_000);
    outboxes.pass_through(&arrivals(b"a", HERE, Some(5)), Timestamp(0));
    outboxes.pass_through(&arrivals(b"b", HERE, Some(60)), Timestamp(0));
    outboxes.hand_over(HERE, THERE);
    let written = taken(&mut outboxes, Timestamp(10_000_000));
    assert_eq!(written, [&[0x30, 12, 0, 3], &b"x/t"[..], &[5, 2, 0, 0, 0, 50, b'b']].concat());
    assert_eq!(outboxes.counters().dropped_expired, 1);
}

fn server(rules: Vec<Rule>) -> Inbox {
    let mut inbox = Inbox::default();
    inbox.open(HERE).unwrap();
    let rewriting = Arc::new(Rewriting::new(rules, hops(1)).unwrap());
    let expectation = Expectation { version: Version::V5, maximum_packet_size_bytes: 1 << 20, rewriting };
    inbox.expect(HERE, expectation).unwrap();
    inbox
}

const CONNACK: [u8; 5] = [0x20, 3, 0, 0, 0];

fn accepted(rules: Vec<Rule>) -> Inbox {
    let mut inbox = server(rules);
    inbox.feed(HERE, &CONNACK, Timestamp(0)).unwrap();
    let events = inbox.decode(&mut Arrivals::default(), Timestamp(0));
    assert!(matches!(events[..], [(HERE, Ok(Packet::Connack(_)))]));
    let publishing = Publishing::new(Version::V5, 10, 0, Default::default());
    let acceptance = Acceptance {
        party: PARTY,
        key_slot: KeySlot(0),
        version: Version::V5,
        keep_alive_s: 10,
        maximum_packet_size_bytes: 1 << 20,
        publishing,
    };
    inbox.accept(HERE, acceptance).unwrap();
    inbox.release(HERE);
    inbox
}

#[test]
fn a_server_begins_with_connack_and_sends_only_what_servers_send() {
    for bytes in [&[0xD0, 0][..], &[0x10, 0], &[0x30, 4, 0, 1, b't', 0]] {
        let mut inbox = server(vec![]);
        inbox.feed(HERE, bytes, Timestamp(0)).unwrap();
        let events = inbox.decode(&mut Arrivals::default(), Timestamp(0));
        assert!(matches!(events[..], [(HERE, Err(_))]), "{bytes:?}");
    }
    for bytes in [&[0xC0, 0][..], &CONNACK, &[0x10, 0]] {
        let mut inbox = accepted(vec![]);
        inbox.feed(HERE, bytes, Timestamp(0)).unwrap();
        let mut arrivals = Arrivals::default();
        let events = inbox.decode(&mut arrivals, Timestamp(0));
        assert!(arrivals.pings.is_empty());
        assert!(
            matches!(events[..], [(HERE, Err(_))] | [(HERE, Ok(Packet::Connack(_)))]),
            "{bytes:?} is a fault, or comes up to whoever ends the connection"
        );
    }
}

#[test]
fn messages_of_a_server_are_taken_over_as_what_they_become() {
    let rules = vec![rule("out/#", None), rule("#", Some(vec![literal("in/"), Part::Topic]))];
    let mut inbox = accepted(rules);
    let publish = |topic: &str, properties: &[u8], identifier: u8| {
        let size = 2 + topic.len() + 2 + 1 + properties.len() + 1;
        let head = [0x32, u8::try_from(size).unwrap(), 0, u8::try_from(topic.len()).unwrap()];
        let middle = [0, identifier, u8::try_from(properties.len()).unwrap()];
        [&head, topic.as_bytes(), &middle, properties, b"p"].concat()
    };
    let mut retained = publish("a", b"", 1);
    retained[0] |= 1;
    let bytes = [retained, publish("a", &pair("hops", "1"), 2), publish("out/a", b"", 3)].concat();
    inbox.feed(HERE, &bytes, Timestamp(0)).unwrap();
    let mut arrivals = Arrivals::default();
    assert!(inbox.decode(&mut arrivals, Timestamp(0)).is_empty());
    let fates: Vec<Fate> = arrivals.publishes.iter().map(|publish| publish.fate).collect();
    assert_eq!(fates, [Fate::Accepted, Fate::Duplicate, Fate::Duplicate], "answered, and not stored");
    let first = &arrivals.publishes[0];
    assert!(!first.retain, "the rule does not keep it");
    assert_eq!(arrivals.span(first.topic), b"in/a");
    assert_eq!(arrivals.span(first.properties), pair("hops", "1"));
    assert_eq!(arrivals.span(first.payload), b"p");
    assert_eq!(inbox.taken(HERE).unwrap(), 1);
    assert_eq!(inbox.lost(HERE).unwrap(), 1, "what a rule leaves out is not lost");
}
