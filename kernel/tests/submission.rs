//! A message that is handed in takes the way of one that came on a connection, and whoever handed it in learns what
//! became of it.

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
use holdfast_kernel::error::Error;
use holdfast_kernel::flow::state::State;
use holdfast_kernel::flow::submission::{Outcome, Submission};
use holdfast_kernel::flow::{Arrivals, Departure, Messages, Outgoing};
use holdfast_kernel::ids::{Connection, KeySlot, LogPosition, Offset, Party, Queue, Timestamp};
use holdfast_kernel::limits::{SUBMISSIONS_MAXIMUM, TURN_BYTES_MAXIMUM};
use holdfast_kernel::mqtt::exchange;
use holdfast_kernel::route::{self, Routes};
use holdfast_kernel::store::{Durability, Log, Options};
use log_support::{arrivals, message, open, options, subscription};

const HERE: Connection = Connection(0);
const BY: Party = Party(7);

fn handed_in(topic: &[u8], qos: u8) -> Submission<'_> {
    Submission {
        publisher: BY,
        key_slot: KeySlot(3),
        qos,
        retain: false,
        topic,
        properties: &[],
        payload: b"said",
        expiry_interval_s: None,
    }
}

fn put(messages: &[Submission<'_>]) -> Arrivals {
    let mut turn = Arrivals::default();
    for message in messages {
        turn.put(message).unwrap();
    }
    turn
}

fn empty() -> Log {
    open(&FakeDisk::new(1, 1 << 30), options()).0
}

fn append(log: &mut Log, turn: &mut Arrivals) -> Vec<Outcome> {
    log.append::<&[u8]>(turn, &[], Timestamp(5_000)).unwrap();
    turn.outcomes().collect()
}

#[test]
fn what_is_stored_is_told_with_its_position_and_what_is_not_is_passed() {
    let mut log = empty();
    let outcomes = append(&mut log, &mut put(&[handed_in(b"a", 0), handed_in(b"a", 1), handed_in(b"a", 2)]));
    assert_eq!(outcomes[0], Outcome::Passed);
    assert!(matches!(outcomes[1], Outcome::Stored(first) if LogPosition(0) < first && first < log.end_position()));
    assert_eq!(outcomes[2], Outcome::Stored(log.end_position()));
    log.commit().unwrap();
    let location = log.locate(Offset(1)).unwrap().unwrap();
    let found = log.message(location, Offset(1)).unwrap().unwrap();
    assert_eq!((found.topic, found.payload, found.qos), (&b"a"[..], &b"said"[..], 2));
}

#[test]
fn properties_and_the_time_at_which_it_expires_are_kept() {
    let mut log = empty();
    let properties: &[u8] = &[1, 1];
    append(&mut log, &mut put(&[Submission { properties, expiry_interval_s: Some(2), ..handed_in(b"a", 1) }]));
    log.commit().unwrap();
    let location = log.locate(Offset(0)).unwrap().unwrap();
    let found = log.message(location, Offset(0)).unwrap().unwrap();
    assert_eq!((found.properties, found.expires_at), (properties, Some(Timestamp(2_005_000))));
}

#[test]
fn what_the_log_has_no_room_for_is_refused() {
    let reserve = Options { reserve_bytes: u64::MAX, ..options() };
    let mut log = open(&FakeDisk::new(1, 1 << 30), reserve).0;
    assert_eq!(append(&mut log, &mut put(&[handed_in(b"a", 1)])), [Outcome::Refused]);
    assert_eq!(log.end_offset(), Offset(0));
}

#[test]
fn only_what_was_handed_in_is_told_and_only_of_this_turn() {
    let mut log = empty();
    let mut turn = arrivals(&[message("a", b"from a client")]);
    turn.put(&handed_in(b"a", 1)).unwrap();
    assert_eq!(append(&mut log, &mut turn), [Outcome::Stored(log.end_position())]);
    turn.clear();
    assert_eq!(turn.outcomes().count(), 0);
}

/// No packet answers it, whatever connections there are.
#[test]
fn a_queue_gets_it_when_it_is_durable_and_nobody_is_sent_an_answer() {
    let (mut log, mut deliveries, mut routes) = (empty(), Deliveries::default(), Routes::new(0));
    let subscriptions = [subscription("a", 0, u64::MAX)].into();
    let attachment = Attachment {
        party: Party(9),
        state: State::default(),
        subscriptions,
        receive_maximum: 10,
        end: Offset(0),
        entries_maximum: 0,
        pack_maximum: 0,
    };
    let (_, queue) = deliveries.attach(HERE, attachment).unwrap();
    subscribe(&mut routes, queue, "a");
    let mut turn = put(&[handed_in(b"a", 1), handed_in(b"a", 2)]);
    routes.route(&mut turn);
    append(&mut log, &mut turn);
    deliveries.admit(&turn, log.end_position(), exchange::next);
    let leaving = |deliveries: &mut Deliveries, log: &Log| {
        let mut outgoing = Outgoing::default();
        deliveries.settle(log.durable_offset(), log.durable_position(), &mut outgoing);
        deliveries.allot(&mut outgoing, Timestamp(5_000));
        outgoing.departures
    };
    assert!(leaving(&mut deliveries, &log).is_empty(), "nothing leaves before it is durable");
    log.commit().unwrap();
    let offsets = leaving(&mut deliveries, &log).into_iter().map(|packet| match packet {
        Departure::Sending(sending) => sending.offset,
        other => panic!("{other:?}"),
    });
    assert_eq!(offsets.collect::<Vec<_>>(), [Offset(0), Offset(1)]);
    assert!(deliveries.take_answered().is_empty());
}

fn subscribe(routes: &mut Routes, queue: Queue, filter: &str) {
    let subscription = route::Subscription {
        queue,
        connection: HERE,
        owner: Party(9),
        qos: 1,
        no_local: false,
        retain_as_published: false,
        identifier: None,
    };
    routes.subscribe(filter.as_bytes(), subscription).unwrap();
}

#[test]
fn no_grant_of_a_connection_holds_for_it() {
    let mut routes = Routes::new(0);
    for connection in 0..3 {
        routes.grant(Connection(connection), Some(&[("#", false)]), None::<&[(&str, bool)]>).unwrap();
    }
    let mut turn = put(&[handed_in(b"a", 1)]);
    routes.route(&mut turn);
    assert!(matches!(append(&mut empty(), &mut turn)[..], [Outcome::Stored(_)]));
}

#[test]
fn a_turn_takes_so_many_and_so_many_bytes() {
    let mut turn = Arrivals::default();
    for _ in 0..SUBMISSIONS_MAXIMUM {
        turn.put(&handed_in(b"a", 0)).unwrap();
    }
    assert!(matches!(turn.put(&handed_in(b"a", 0)), Err(Error::Busy(_))));
    turn.clear();
    turn.put(&handed_in(b"a", 0)).unwrap();
    turn.clear();
    turn.bytes.resize(TURN_BYTES_MAXIMUM, 0);
    assert!(matches!(turn.put(&handed_in(b"a", 0)), Err(Error::Busy(_))));
    assert_eq!(turn.publishes.len(), 0);
}

#[test]
fn what_nobody_may_publish_is_an_error() {
    let mut turn = Arrivals::default();
    for bad in [handed_in(b"", 0), handed_in(b"a/+", 0), handed_in(b"#", 0), handed_in(b"\xFF", 0), handed_in(b"a", 3)]
    {
        assert!(matches!(turn.put(&bad), Err(Error::Invalid(_))), "{bad:?}");
    }
    assert_eq!((turn.publishes.len(), turn.bytes.len()), (0, 0));
}

#[test]
fn without_a_disk_that_is_waited_for_it_is_durable_at_once() {
    let memory = Options { durability: Durability::Memory, ..options() };
    let mut log = open(&FakeDisk::new(1, 1 << 30), memory).0;
    let outcomes = append(&mut log, &mut put(&[handed_in(b"a", 1)]));
    assert_eq!(outcomes, [Outcome::Stored(log.durable_position())]);
}
