//! Retained messages for new subscriptions: looked up page by page, through the log and delivery together.

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
use holdfast_kernel::flow::state::{OwedFilter, State};
use holdfast_kernel::flow::{Acknowledgement, Arrivals, Departure, Messages, Outgoing, Step};
use holdfast_kernel::ids::{Connection, LogPosition, Offset, Party, Queue, Timestamp};
use holdfast_kernel::limits::{OWED_PAGE_MAXIMUM, RETAINED_LOOKED_AT_MAXIMUM};
use holdfast_kernel::mqtt::exchange;
use holdfast_kernel::store::{Log, Options};
use log_support::{arrivals, open, options, subscription, Stored};
use proptest::prelude::*;
use std::sync::Arc;

const HERE: Connection = Connection(1);
const OWNER: Party = Party(9);
/// Whose messages `log_support::arrivals` makes.
const PUBLISHER: Party = Party(7);

fn roomy() -> Options {
    Options { segment_bytes: 1 << 20, cache_bytes: 1 << 20, ..options() }
}

fn retain(log: &mut Log, topics: &[String]) {
    let named = topics.iter().map(|topic| &*Box::leak(topic.clone().into_boxed_str()));
    let messages: Vec<Stored> =
        named.map(|topic| Stored { topic, qos: 1, retain: true, payload: b"x".to_vec() }).collect();
    log.append::<&[u8]>(&mut arrivals(&messages), &[], Timestamp(5)).unwrap();
    log.commit().unwrap();
}

fn numbered(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}/{number}")).collect()
}

fn attach(deliveries: &mut Deliveries, log: &Log, party: Party, state: State, filters: &[&str]) -> Queue {
    let end = log.end_offset();
    let state = State { mark: end, ..state };
    let subscriptions: Vec<_> = filters.iter().map(|filter| subscription(filter, end.0, u64::MAX)).collect();
    let subscriptions = Arc::from(subscriptions);
    let attachment =
        Attachment { party, state, subscriptions, receive_maximum: 500, end, entries_maximum: 0, pack_maximum: 0 };
    deliveries.attach(HERE, attachment).unwrap().1
}

fn owed(log: &Log, qos: u8) -> OwedFilter {
    OwedFilter { qos, no_local: false, identifier: None, from: Offset(0), until: log.end_offset() }
}

/// One turn, with its progress appended; returns the topics that were sent and acknowledged.
fn turn(deliveries: &mut Deliveries, log: &mut Log) -> Vec<String> {
    let mut scans = deliveries.hungry(log.durable_offset());
    log.scan(&mut scans).unwrap();
    assert!(scans.iter().all(|scan| scan.owed.len() <= OWED_PAGE_MAXIMUM));
    deliveries.feed(&mut scans);
    let mut outgoing = Outgoing::default();
    deliveries.allot(&mut outgoing, Timestamp(9));
    let (mut topics, mut acknowledgements) = (Vec::new(), Vec::new());
    for packet in outgoing.departures {
        let Departure::Sending(sending) = packet else { continue };
        assert!(sending.retain && !sending.dup);
        let message = log.message(sending.location, sending.offset).unwrap().unwrap();
        topics.push(String::from_utf8(message.topic.to_vec()).unwrap());
        let (connection, packet_identifier) = (HERE, sending.packet_identifier);
        let step = Step::Acknowledged;
        acknowledgements.push(Acknowledgement { connection, step, packet_identifier, refusal: None });
    }
    remember(deliveries, log);
    deliveries.admit(&Arrivals { acknowledgements, ..Arrivals::default() }, LogPosition(0), exchange::next);
    remember(deliveries, log);
    topics
}

fn remember(deliveries: &mut Deliveries, log: &mut Log) {
    for (party, value) in deliveries.take_progress() {
        log.append_control(0, &party.0.to_le_bytes(), &value, Timestamp(9)).unwrap();
    }
}

fn all_turns(deliveries: &mut Deliveries, log: &mut Log) -> Vec<String> {
    let mut topics = turn(deliveries, log);
    while deliveries.is_waiting() {
        topics.extend(turn(deliveries, log));
    }
    topics
}

#[test]
fn more_retained_messages_than_a_page_reach_a_subscriber_in_pages_of_bounded_size() {
    let (mut log, _) = open(&FakeDisk::new(1, 1 << 30), roomy());
    let topics = numbered("t", RETAINED_LOOKED_AT_MAXIMUM + 3 * OWED_PAGE_MAXIMUM);
    retain(&mut log, &topics);
    for qos in [0, 1] {
        let mut deliveries = Deliveries::default();
        let queue = attach(&mut deliveries, &log, OWNER, State::default(), &["t/+"]);
        deliveries.owe(queue, b"t/+".to_vec(), owed(&log, qos)).unwrap();
        assert_eq!(all_turns(&mut deliveries, &mut log), topics, "QoS {qos}");
    }
}

#[test]
fn what_is_owed_outlives_a_restart_and_nothing_comes_twice() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, roomy());
    let topics = numbered("t", 2 * OWED_PAGE_MAXIMUM + 5);
    retain(&mut log, &topics);
    let mut deliveries = Deliveries::default();
    let queue = attach(&mut deliveries, &log, OWNER, State::default(), &["#"]);
    deliveries.owe(queue, b"#".to_vec(), owed(&log, 1)).unwrap();
    let mut sent = turn(&mut deliveries, &mut log);
    sent.extend(turn(&mut deliveries, &mut log));
    assert_eq!(sent.len(), 1_000);
    log.commit().unwrap();
    drop(log);

    let (mut log, _) = open(&disk, roomy());
    let state = State::decode(&log.delivery_state(OWNER).unwrap()).unwrap();
    assert_eq!(state.owed.len(), OWED_PAGE_MAXIMUM - 1_000);
    let mut deliveries = Deliveries::default();
    attach(&mut deliveries, &log, OWNER, state, &["#"]);
    sent.extend(all_turns(&mut deliveries, &mut log));
    assert_eq!(sent, topics);
    let state = State::decode(&log.delivery_state(OWNER).unwrap()).unwrap();
    assert!(state.owed.is_empty() && state.owed_filters.is_empty());
}

#[test]
fn a_session_that_leaves_keeps_what_it_is_owed_above_qos_0() {
    let (mut log, _) = open(&FakeDisk::new(1, 1 << 30), roomy());
    retain(&mut log, &numbered("t", 10));
    let mut deliveries = Deliveries::default();
    let queue = attach(&mut deliveries, &log, OWNER, State::default(), &["t/+", "#"]);
    deliveries.owe(queue, b"t/+".to_vec(), owed(&log, 2)).unwrap();
    deliveries.owe(queue, b"#".to_vec(), owed(&log, 0)).unwrap();
    let state = deliveries.detach(deliveries.receiver_on(HERE).unwrap(), std::iter::empty()).unwrap();
    let mut bytes = Vec::new();
    state.encode(&mut bytes);
    assert_eq!(State::decode(&bytes).unwrap(), state);
    assert_eq!(state.owed_filters.keys().collect::<Vec<_>>(), [b"t/+"]);
}

/// [MQTT-3.8.3-3], for a publisher that outlives the log's opening and for numbers that are given out anew.
#[test]
fn no_local_leaves_out_what_the_subscriber_has_published_itself() {
    let disk = FakeDisk::new(1, 1 << 30);
    let transient = Party(Party::TRANSIENT.0 + 5);
    let (mut log, _) = open(&disk, roomy());
    for reopened in [false, true] {
        if reopened {
            log = open(&disk, roomy()).0;
        } else {
            for (topic, publisher) in [("a", PUBLISHER), ("b", transient), ("c", Party(8))] {
                let mut one = arrivals(&[Stored { topic, qos: 1, retain: true, payload: b"x".to_vec() }]);
                one.publishes[0].publisher = publisher;
                log.append::<&[u8]>(&mut one, &[], Timestamp(5)).unwrap();
            }
            log.commit().unwrap();
        }
        for (party, expected) in [(PUBLISHER, "bc"), (transient, if reopened { "abc" } else { "ac" }), (OWNER, "abc")] {
            let mut deliveries = Deliveries::default();
            let queue = attach(&mut deliveries, &log, party, State::default(), &["#"]);
            deliveries.owe(queue, b"#".to_vec(), OwedFilter { no_local: true, ..owed(&log, 1) }).unwrap();
            assert_eq!(all_turns(&mut deliveries, &mut log).concat(), expected, "{party:?}, reopened: {reopened}");
        }
    }
}

#[test]
fn subscribing_again_begins_again_and_unsubscribing_ends_it() {
    let (mut log, _) = open(&FakeDisk::new(1, 1 << 30), roomy());
    let topics = numbered("t", OWED_PAGE_MAXIMUM + 100);
    retain(&mut log, &topics);
    let mut deliveries = Deliveries::default();
    let queue = attach(&mut deliveries, &log, OWNER, State::default(), &["#"]);
    for _ in 0..3 {
        deliveries.owe(queue, b"#".to_vec(), owed(&log, 1)).unwrap();
    }
    assert_eq!(all_turns(&mut deliveries, &mut log), topics, "it is owed once");
    deliveries.owe(queue, b"#".to_vec(), owed(&log, 1)).unwrap();
    turn(&mut deliveries, &mut log);
    deliveries.set_subscriptions(queue, 0, &[subscription("#", 0, log.end_offset().0)]).unwrap();
    assert_eq!(all_turns(&mut deliveries, &mut log).len(), OWED_PAGE_MAXIMUM - 500, "what was at hand");
    let state = State::decode(&log.delivery_state(OWNER).unwrap()).unwrap();
    assert!(state.owed_filters.is_empty(), "after a crash it does not come back");
}

#[test]
fn overlapping_filters_are_held_as_filters() {
    let (mut log, _) = open(&FakeDisk::new(1, 1 << 30), roomy());
    retain(&mut log, &numbered("t", 2 * OWED_PAGE_MAXIMUM));
    let mut deliveries = Deliveries::default();
    let filters = ["#", "+/#", "+/+", "t/#", "t/+"];
    let queue = attach(&mut deliveries, &log, OWNER, State::default(), &filters);
    for filter in filters {
        deliveries.owe(queue, filter.as_bytes().to_vec(), owed(&log, 1)).unwrap();
    }
    turn(&mut deliveries, &mut log);
    let state = deliveries.detach(deliveries.receiver_on(HERE).unwrap(), std::iter::empty()).unwrap();
    assert_eq!((state.owed.len(), state.owed_filters.len()), (OWED_PAGE_MAXIMUM - 500, filters.len()));
}

proptest! {
    /// However the log is asked, the pages together are what matches, in offset order.
    #[test]
    fn pages_of_any_size_come_to_the_same(
        topics in proptest::collection::vec((0..4_u8, 0..30_u8), 1..60),
        filter in proptest::sample::select(vec!["#", "+/+", "1/+", "2/#", "3/7", "+/3", "1", "nobody/#"]),
        limit in 1..7_usize,
    ) {
        let (mut log, _) = open(&FakeDisk::new(1, 1 << 30), options());
        let topics: Vec<String> = topics.iter().map(|(one, two)| format!("{one}/{two}")).collect();
        retain(&mut log, &topics);
        let matching = |topic: &str| holdfast_kernel::topic::matches(filter.as_bytes(), topic.as_bytes());
        let is_newest = |place: usize| !topics[place + 1..].contains(&topics[place]);
        let expected = (0..topics.len()).filter(|place| is_newest(*place) && matching(&topics[*place]));
        let expected: Vec<u64> = expected.map(|place| place as u64).collect();
        let (mut found, mut reached) = (Vec::new(), Offset(0));
        while reached < log.end_offset() {
            let (page, further) = log.retained(filter.as_bytes(), reached, limit);
            prop_assert!(page.len() <= limit && further > reached);
            found.extend(page.iter().map(|offset| offset.0));
            reached = further;
        }
        prop_assert_eq!(found, expected);
    }
}
