//! Grants hold for every message: published, routed, read from the log, or retained.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions
)]

mod log_support;

use holdfast_kernel::delivery::{Attachment, Deliveries};
use holdfast_kernel::disk::fake::FakeDisk;
use holdfast_kernel::flow::state::{Flight, Owed, Phase, Source, State};
use holdfast_kernel::flow::{
    Acknowledgement, Arrivals, Departure, Fate, NoticeKind, Outgoing, Refusal, Step, Subscription,
};
use holdfast_kernel::ids::{Connection, Location, LogPosition, Offset, Party, Queue, Timestamp};
use holdfast_kernel::limits;
use holdfast_kernel::mqtt::exchange;
use holdfast_kernel::route::{self, Routes};
use holdfast_kernel::store::Log;
use holdfast_kernel::topic;
use log_support::{arrivals, open, options, subscription, Stored, TOPICS};
use proptest::prelude::*;
use std::sync::Arc;

type Rules = Option<Vec<(String, bool)>>;

const HERE: Connection = Connection(1);
const EVERYTHING: Option<&[(&str, bool)]> = None;

fn rules() -> impl Strategy<Value = Rules> {
    let filter = proptest::sample::select(vec!["#", "a/#", "+", "b/+", "a/b", "$s/#", "z"]);
    let rule = (filter.prop_map(str::to_owned), any::<bool>());
    proptest::option::weighted(0.8, proptest::collection::vec(rule, 0..4))
}

fn allows(rules: &Rules, topic: &str) -> bool {
    let Some(rules) = rules else { return true };
    let first = rules.iter().find(|(filter, _)| topic::matches(filter.as_bytes(), topic.as_bytes()));
    first.is_some_and(|(_, allowed)| *allowed)
}

fn to(topic: usize, qos: u8) -> Stored {
    Stored { topic: TOPICS[topic], qos, retain: true, payload: vec![7; 30] }
}

/// Each topic once from each of three connections.
fn from_everybody() -> Arrivals {
    let all: Vec<Stored> = (0..TOPICS.len() * 3).map(|number| to(number % TOPICS.len(), 1)).collect();
    let mut arrivals = arrivals(&all);
    for (number, publish) in arrivals.publishes.iter_mut().enumerate() {
        publish.connection = Connection((number / TOPICS.len()) as u32);
    }
    arrivals
}

fn subscribe(routes: &mut Routes, queue: u32, connection: Connection, filter: &str) {
    let (owner, no_local, retain_as_published, identifier) = (Party(queue + 1), false, false, None);
    let queue = Queue(queue);
    let subscription =
        route::Subscription { queue, connection, owner, qos: 1, no_local, retain_as_published, identifier };
    routes.subscribe(filter.as_bytes(), subscription).unwrap();
}

proptest! {
    /// Grants change while topics are remembered: each answer is what the grants of that moment say.
    #[test]
    fn what_is_routed_is_what_the_grants_allow(
        changes in proptest::collection::vec((0..3_u32, rules(), rules()), 1..20),
    ) {
        let mut routes = Routes::new(3);
        for queue in 0..3 {
            subscribe(&mut routes, queue, Connection(queue), "a/#");
            subscribe(&mut routes, queue, Connection(queue), "+");
            subscribe(&mut routes, queue, Connection(queue), "b/x");
        }
        let mut grants: Vec<(Rules, Rules)> = vec![(None, None); 3];
        for (connection, publish, receive) in changes {
            routes.grant(Connection(connection), publish.as_deref(), receive.as_deref()).unwrap();
            grants[connection as usize] = (publish, receive);
            let mut arrivals = from_everybody();
            routes.route(&mut arrivals);
            for (number, publish) in arrivals.publishes.iter().enumerate() {
                let topic = TOPICS[number % TOPICS.len()];
                let may = allows(&grants[publish.connection.0 as usize].0, topic);
                prop_assert_eq!(publish.fate == Fate::Accepted, may, "{}", topic);
                prop_assert_eq!(publish.fate == Fate::Denied, !may);
                let targets = publish.targets.iter().flat_map(|targets| targets.iter());
                let reached: Vec<u32> = targets.map(|target| target.queue.0).collect();
                let wanted = |queue: &u32| allows(&grants[*queue as usize].1, topic) && topic != "b/y";
                let expected: Vec<u32> = (0..3).filter(|queue| may && wanted(queue)).collect();
                prop_assert_eq!(reached, expected, "{}", topic);
            }
        }
    }

    /// What a queue reads from the log is what its subscriptions match and its grant allows, in one scan or in many,
    /// also where the grant changes on the way.
    #[test]
    fn what_is_read_is_what_the_grant_allows(
        topics in proptest::collection::vec(0..TOPICS.len(), 1..200),
        first in rules(),
        second in rules(),
        page in 1..40_u16,
    ) {
        let (mut log, mut deliveries) = (logged(&topics), Deliveries::default());
        let queue = attached(&mut deliveries, &log, State::default(), page);
        deliveries.grant(queue, first.as_deref()).unwrap();
        let early = delivered(&mut deliveries, &mut log, 1, page);
        deliveries.grant(queue, second.as_deref()).unwrap();
        let late = delivered(&mut deliveries, &mut log, 1_000, page);
        let allowed = |rules: &Rules, offset: &u64| allows(rules, TOPICS[topics[*offset as usize]]);
        prop_assert!(early.iter().all(|offset| allowed(&first, offset)));
        prop_assert!(late.iter().all(|offset| allowed(&second, offset)));
        let sent = [early, late].concat();
        prop_assert!(sent.is_sorted_by(|one, other| one < other), "in order, and each once: {:?}", sent);
        // What the first grant denied may have been passed before there was the second.
        let both = |offset: &u64| allowed(&first, offset) && allowed(&second, offset);
        let wanted = |offset: &u64| topics[*offset as usize] != 5 && both(offset);
        let missing = (0..topics.len() as u64).filter(|offset| wanted(offset) && !sent.contains(offset));
        prop_assert_eq!(missing.collect::<Vec<_>>(), []);
    }
}

/// A log with a message to each of these topics.
fn logged(topics: &[usize]) -> Log {
    let (mut log, _) = open(&FakeDisk::new(1, 1 << 30), options());
    let messages: Vec<Stored> = topics.iter().map(|topic| to(*topic, 1)).collect();
    log.append::<&[u8]>(&mut arrivals(&messages), &[], Timestamp(5)).unwrap();
    log.commit().unwrap();
    log
}

/// A session that was away, subscribed to everything but `z`.
fn attached(deliveries: &mut Deliveries, log: &Log, state: State, receive_maximum: u16) -> Queue {
    let subscriptions: Vec<Subscription> =
        ["a/#", "b/+", "a"].iter().map(|filter| subscription(filter, 0, u64::MAX)).collect();
    let (party, end, entries_maximum, pack_maximum) = (Party(7), log.end_offset(), 0, 0);
    let subscriptions = Arc::from(subscriptions);
    let attachment = Attachment { party, state, subscriptions, receive_maximum, end, entries_maximum, pack_maximum };
    deliveries.attach(HERE, attachment).unwrap().1
}

/// Takes so many turns and acknowledges everything; returns the offsets in the order in which they were sent.
fn delivered(deliveries: &mut Deliveries, log: &mut Log, turns: u32, window: u16) -> Vec<u64> {
    let (locations, mut sent) = (locations(log), Vec::new());
    for _ in 0..turns {
        let mut scans = deliveries.hungry(log.durable_offset());
        log.scan(&mut scans).unwrap();
        deliveries.feed(&mut scans);
        let mut outgoing = Outgoing::default();
        deliveries.allot(&mut outgoing, Timestamp(9));
        assert!(outgoing.departures.len() <= usize::from(window));
        let mut acknowledgements = Vec::new();
        for packet in outgoing.departures {
            let Departure::Sending(sending) = packet else { continue };
            let offset = locations.iter().position(|location| *location == sending.location);
            sent.push(offset.expect("it is stored") as u64);
            acknowledgements.push(Acknowledgement {
                connection: HERE,
                step: Step::Acknowledged,
                packet_identifier: sending.packet_identifier,
                refusal: None,
            });
        }
        deliveries.admit(&Arrivals { acknowledgements, ..Arrivals::default() }, LogPosition(0), exchange::next);
        if !deliveries.is_waiting() {
            break;
        }
    }
    sent
}

/// Where each record is, by offset.
fn locations(log: &mut Log) -> Vec<Location> {
    let mut scan = log_support::scan_of("#", 0);
    log.scan(std::slice::from_mut(&mut scan)).unwrap();
    scan.found.iter().map(|found| found.location).collect()
}

#[test]
fn retained_messages_that_are_denied_are_not_owed() {
    let mut log = logged(&[0, 1, 2, 3]);
    let mut deliveries = Deliveries::default();
    let owed = (0..4).map(|offset| Owed { offset: Offset(offset), qos: 1, identifier: None }).collect();
    let state = State { mark: Offset(4), owed, ..State::default() };
    let queue = attached(&mut deliveries, &log, state, 10);
    deliveries.grant(queue, Some(&[("a/b", false), ("#", true)])).unwrap();
    assert_eq!(delivered(&mut deliveries, &mut log, 10, 10), [0, 2, 3]);
}

#[test]
fn what_was_in_flight_and_is_denied_now_is_given_up() {
    let mut log = logged(&[0, 1, 2]);
    let mut deliveries = Deliveries::default();
    let flight = |offset| Flight { offset: Offset(offset), qos: 1, phase: Phase::Sent, source: Source::Queue };
    let flights = [(1, flight(0)), (2, flight(1))].into_iter().collect();
    let queue = attached(&mut deliveries, &log, State { flights, ..State::default() }, 2);
    deliveries.grant(queue, Some(&[("a/b/#", true)])).unwrap();
    assert_eq!(delivered(&mut deliveries, &mut log, 10, 2), [1, 2], "the window has room for both again");
    let notices = deliveries.take_notices();
    assert_eq!(notices.len(), 1);
    assert_eq!((notices[0].kind, notices[0].first, notices[0].count), (NoticeKind::Denied, Offset(0), 1));
    assert_eq!(deliveries.in_flight(queue).unwrap(), 0);
}

/// MQTT 5 section 4.7.2: clients do not exchange messages on the server's own topics.
#[test]
fn only_what_is_handed_in_is_published_to_the_servers_own_topics() {
    let mut routes = Routes::new(0);
    for filter in ["$SYS/#", "$SYSTEM", "$other/+"] {
        subscribe(&mut routes, 1, HERE, filter);
    }
    let topics = ["$SYS/broker/uptime", "$SYS/broker/uptime", "$SYS", "$SYSTEM", "$other/a"];
    let mut turn = arrivals(&topics.map(|topic| Stored { topic, qos: 1, retain: false, payload: Vec::new() }));
    turn.publishes[0].connection = Connection::NONE;
    routes.route(&mut turn);
    let routed = turn.publishes.iter().map(|publish| (publish.fate == Fate::Denied, publish.targets.is_some()));
    assert_eq!(routed.collect::<Vec<_>>(), [(false, true), (true, false), (true, false), (false, true), (false, true)]);
    assert_eq!(routes.grants.counters().publishes_denied, 2);
    assert_eq!(routes.grants.take_denied().into_iter().collect::<Vec<_>>(), [(HERE, 2)]);
}

#[test]
fn a_denied_message_is_answered_and_goes_no_further() {
    let mut routes = Routes::new(0);
    routes.grant(HERE, Some(&[("a", true)]), EVERYTHING).unwrap();
    let mut turn = arrivals(&[0, 1, 2].map(|qos| to(3, qos)));
    routes.route(&mut turn);
    assert!(turn.publishes.iter().all(|publish| publish.fate == Fate::Denied));
    let mut log = logged(&[]);
    log.append::<&[u8]>(&mut turn, &[], Timestamp(9)).unwrap();
    assert_eq!((log.end_offset(), log.retained_count()), (Offset(0), 0));

    let mut deliveries = Deliveries::default();
    attached(&mut deliveries, &log, State::default(), 10);
    deliveries.admit(&turn, log.end_position(), exchange::next);
    let mut outgoing = Outgoing::default();
    deliveries.settle(Offset(0), LogPosition(0), &mut outgoing);
    let answers: Vec<_> = outgoing
        .departures
        .iter()
        .map(|packet| match packet {
            Departure::Acknowledgement(answer) => (answer.step, answer.packet_identifier, answer.refusal),
            _ => panic!("{packet:?}"),
        })
        .collect();
    assert_eq!(
        answers,
        [(Step::Acknowledged, 2, Some(Refusal::NotAuthorized)), (Step::Received, 3, Some(Refusal::NotAuthorized))]
    );
    assert_eq!(deliveries.take_answered().remove(&HERE), Some(2), "Receive Maximum is given back");
    assert!(deliveries.take_refused().is_empty(), "the log has room, so nobody is to be closed");
    assert_eq!(routes.grants.take_denied().into_iter().collect::<Vec<_>>(), [(HERE, 3)]);
    assert!(routes.grants.take_denied().is_empty());
    assert_eq!(routes.grants.counters().publishes_denied, 3);
}

#[test]
fn only_what_a_changed_grant_concerns_is_looked_up_again() {
    let mut routes = Routes::new(0);
    subscribe(&mut routes, 1, HERE, "a/b");
    subscribe(&mut routes, 2, Connection(2), "z");
    let targets = |routes: &mut Routes, topic: &str| routes.targets(topic.as_bytes()).unwrap();
    let (ours, other) = (targets(&mut routes, "a/b"), targets(&mut routes, "z"));
    let rules: Option<&[(&str, bool)]> = Some(&[("#", true)]);
    routes.grant(HERE, rules, EVERYTHING).unwrap();
    assert!(Arc::ptr_eq(&ours, &targets(&mut routes, "a/b")), "what it may publish concerns no target");
    routes.grant(HERE, rules, rules).unwrap();
    assert!(!Arc::ptr_eq(&ours, &targets(&mut routes, "a/b")));
    assert!(Arc::ptr_eq(&other, &targets(&mut routes, "z")));
    let ours = targets(&mut routes, "a/b");
    routes.grant(HERE, EVERYTHING, rules).unwrap();
    assert!(Arc::ptr_eq(&ours, &targets(&mut routes, "a/b")), "the same grant again changes nothing");
    routes.grant(HERE, EVERYTHING, Some(&[])).unwrap();
    assert!(targets(&mut routes, "a/b").is_empty());
    assert_eq!(routes.grants.counters().topics_withheld, 1);
    // Who has unsubscribed, or is gone, is concerned by nothing.
    routes.remove(Queue(1));
    assert!(routes.targets(b"a/b").is_none());
    routes.grant(HERE, EVERYTHING, EVERYTHING).unwrap();
    subscribe(&mut routes, 5, HERE, "a/b");
    assert_eq!(targets(&mut routes, "a/b").len(), 1);
}

#[test]
fn a_grant_that_is_refused_leaves_the_one_that_held() {
    let mut routes = Routes::new(0);
    routes.grant(HERE, Some(&[("a", true)]), EVERYTHING).unwrap();
    assert!(routes.grant(HERE, Some(&[("#", true)]), Some(&[("a#", true)])).is_err());
    let mut turn = arrivals(&[to(0, 0), to(5, 0)]);
    routes.route(&mut turn);
    assert_eq!(turn.publishes.iter().map(|publish| publish.fate).collect::<Vec<_>>(), [Fate::Accepted, Fate::Denied]);
    assert!(Deliveries::default().grant(Queue(0), EVERYTHING).is_err());
}

#[test]
fn topics_that_somebody_invents_cost_a_bounded_memory() {
    let mut routes = Routes::new(0);
    routes.grant(HERE, Some(&[("a/+", true)]), EVERYTHING).unwrap();
    let mut arrivals = Arrivals::default();
    for number in 0..limits::GRANT_MEMORY_TOPICS_MAXIMUM * 2 {
        let mut next = log_support::arrivals(&[to(0, 0)]).publishes.remove(0);
        let name = format!("{}/{number}", if number % 2 == 0 { "a" } else { "b" });
        next.topic.start = arrivals.bytes.len() as u32;
        next.topic.size_bytes = name.len() as u32;
        arrivals.bytes.extend_from_slice(name.as_bytes());
        arrivals.publishes.push(next);
    }
    // Twice, so that what stands in a place that was taken over shows.
    for _ in 0..2 {
        arrivals.publishes.iter_mut().for_each(|publish| publish.fate = Fate::Accepted);
        routes.route(&mut arrivals);
        let right = |(number, publish): (usize, &holdfast_kernel::flow::Publish)| {
            publish.fate == if number % 2 == 0 { Fate::Accepted } else { Fate::Denied }
        };
        assert!(arrivals.publishes.iter().enumerate().all(right));
    }
}
