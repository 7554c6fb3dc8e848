//! Single cases of delivery that a random walk meets too seldom.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::as_conversions)]

mod delivery_support;

use delivery_support::{found, publish, stored};
use holdfast_kernel::delivery::window::Window;
use holdfast_kernel::delivery::{Attachment, Deliveries};
use holdfast_kernel::flow::entry::EntryParts;
use holdfast_kernel::flow::state::{Flight, Owed, Phase, Source, State};
use holdfast_kernel::flow::{
    Acknowledgement, Arrivals, Departure, Fate, Found, NoticeKind, Outgoing, Publish, Refusal, Sending, Span, Step,
    Stored, Terms,
};
use holdfast_kernel::ids::{Connection, KeySlot, Location, LogPosition, Offset, Party, Queue, Receiver, Timestamp};
use holdfast_kernel::limits;
use holdfast_kernel::mqtt::exchange;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const SUBSCRIBER: Connection = Connection(1);

fn attach(deliveries: &mut Deliveries, state: State, end: u64, entries_maximum: usize) -> Queue {
    attach_receiver(deliveries, state, end, entries_maximum).1
}

fn attach_receiver(deliveries: &mut Deliveries, state: State, end: u64, entries_maximum: usize) -> (Receiver, Queue) {
    let attachment = Attachment {
        party: if entries_maximum == 0 { Party(7) } else { Party::TRANSIENT },
        state,
        subscriptions: Arc::from([]),
        receive_maximum: 65_535,
        end: Offset(end),
        entries_maximum,
        pack_maximum: 0,
    };
    deliveries.attach(SUBSCRIBER, attachment).unwrap()
}

fn published(queue: Queue, offset: u64, expires_at: Option<u64>) -> Publish {
    let expires_at = expires_at.map(Timestamp);
    publish(1, Some((queue, SUBSCRIBER)), Stored { expires_at, ..stored(offset, offset + 1) })
}

fn admit(deliveries: &mut Deliveries, publishes: Vec<Publish>) {
    let end = publishes.iter().filter_map(|publish| publish.stored).map(|stored| stored.durable_at).max().unwrap();
    deliveries.admit(&Arrivals { publishes, ..Arrivals::default() }, end, exchange::next);
}

fn allotted(deliveries: &mut Deliveries, durable: u64, now: u64) -> Vec<Sending> {
    let mut outgoing = Outgoing::default();
    deliveries.settle(Offset(durable), LogPosition(durable), &mut outgoing);
    deliveries.allot(&mut outgoing, Timestamp(now));
    let deliveries = outgoing.departures.into_iter().filter_map(|packet| match packet {
        Departure::Sending(sending) => Some(sending),
        _ => None,
    });
    deliveries.collect()
}

fn acknowledge(deliveries: &mut Deliveries, step: Step, packet_identifier: u16) {
    let acknowledgement = Acknowledgement { connection: SUBSCRIBER, step, packet_identifier, refusal: None };
    let acknowledgements = vec![acknowledgement];
    deliveries.admit(&Arrivals { acknowledgements, ..Arrivals::default() }, LogPosition(0), exchange::next);
}

#[test]
fn what_the_log_refused_is_counted_message_by_message() {
    let mut deliveries = Deliveries::default();
    let queue = attach(&mut deliveries, State::default(), 0, 0);
    let refused = Publish { fate: Fate::Refused(Refusal::NoRoom), stored: None, ..published(queue, 0, None) };
    deliveries.admit(&Arrivals { publishes: vec![refused; 3], ..Arrivals::default() }, LogPosition(0), exchange::next);
    assert_eq!(deliveries.counters().refused, 3);
    let refused = deliveries.take_refused().into_values().collect::<Vec<_>>();
    assert_eq!(refused, [3]);
}

// accepts: S0.3
#[test]
fn nothing_is_answered_or_sent_before_it_is_durable() {
    let mut deliveries = Deliveries::default();
    let queue = attach(&mut deliveries, State::default(), 0, 0);
    admit(&mut deliveries, vec![published(queue, 0, None)]);
    let mut outgoing = Outgoing::default();
    deliveries.settle(Offset(0), LogPosition(0), &mut outgoing);
    deliveries.allot(&mut outgoing, Timestamp(1));
    assert!(outgoing.departures.is_empty());
    assert_eq!(allotted(&mut deliveries, 1, 1).len(), 1);
}

// accepts: S0.60 S0.61
#[test]
fn an_expired_message_is_noticed_and_takes_no_packet_identifier() {
    let mut deliveries = Deliveries::default();
    let queue = attach(&mut deliveries, State::default(), 0, 0);
    admit(
        &mut deliveries,
        vec![published(queue, 0, Some(50)), published(queue, 1, None), published(queue, 2, Some(50))],
    );
    let sent = allotted(&mut deliveries, 3, 50);
    assert_eq!(sent.iter().map(|sending| sending.packet_identifier).collect::<Vec<_>>(), [1]);
    let notices = deliveries.take_notices();
    assert!(notices.iter().all(|notice| notice.kind == NoticeKind::Expired && notice.count == 1));
    assert_eq!(notices.iter().map(|notice| notice.first.0).collect::<Vec<_>>(), [0, 2]);
    acknowledge(&mut deliveries, Step::Acknowledged, 1);
    assert_eq!(deliveries.mark(queue).unwrap(), Offset(3));
}

#[test]
fn an_expired_message_behind_one_that_is_in_flight_is_told_once() {
    let mut deliveries = Deliveries::default();
    let queue = attach(&mut deliveries, State::default(), 0, 0);
    admit(&mut deliveries, vec![published(queue, 0, None), published(queue, 1, None), published(queue, 2, Some(50))]);
    assert_eq!(allotted(&mut deliveries, 3, 50).len(), 2);
    let mut remembered = State::default();
    for (_, value) in deliveries.take_progress() {
        remembered.apply(&value).unwrap();
    }
    let left = deliveries.detach(deliveries.receiver_on(SUBSCRIBER).unwrap(), std::iter::empty()).unwrap();
    for state in [remembered, left] {
        assert_eq!((state.mark, state.acknowledged.iter().collect::<Vec<_>>()), (Offset(0), vec![(2, 3)]));
    }
}

// accepts: S2.33
#[test]
fn a_transient_queue_that_is_full_skips_and_says_what() {
    let mut deliveries = Deliveries::default();
    let queue = attach(&mut deliveries, State::default(), 0, 10);
    deliveries.set_writable(SUBSCRIBER, false);
    admit(&mut deliveries, (0..25).map(|offset| published(queue, offset, None)).collect());
    assert!(allotted(&mut deliveries, 25, 1).is_empty());
    let notices = deliveries.take_notices();
    assert_eq!(notices.len(), 1);
    assert_eq!((notices[0].kind, notices[0].first, notices[0].end), (NoticeKind::SlowReader, Offset(10), Offset(25)));
    assert_eq!(notices[0].count, 15);
    deliveries.set_writable(SUBSCRIBER, true);
    assert_eq!(allotted(&mut deliveries, 25, 1).len(), 10);
}

#[test]
fn a_durable_queue_that_is_full_reads_the_log_again() {
    let mut deliveries = Deliveries::default();
    let queue = attach(&mut deliveries, State::default(), 0, 0);
    deliveries.set_writable(SUBSCRIBER, false);
    let total = limits::QUEUE_ENTRIES_MAXIMUM as u64 + 7;
    admit(&mut deliveries, (0..total).map(|offset| published(queue, offset, None)).collect());
    assert!(allotted(&mut deliveries, total, 1).is_empty());
    assert!(deliveries.take_notices().is_empty());
    deliveries.set_writable(SUBSCRIBER, true);
    let mut sent = Vec::new();
    while sent.len() < limits::QUEUE_ENTRIES_MAXIMUM {
        sent.extend(allotted(&mut deliveries, total, 1));
    }
    let scans = deliveries.hungry(Offset(total));
    assert_eq!(scans.len(), 1);
    assert_eq!(scans[0].from, Offset(limits::QUEUE_ENTRIES_MAXIMUM as u64));
}

#[test]
fn an_answer_for_a_session_that_is_gone_does_not_reach_the_next_one() {
    let mut deliveries = Deliveries::default();
    let queue = attach(&mut deliveries, State::default(), 0, 0);
    let mut own = published(queue, 0, None);
    own.connection = SUBSCRIBER;
    admit(&mut deliveries, vec![own]);
    deliveries.detach(deliveries.receiver_on(SUBSCRIBER).unwrap(), std::iter::empty()).unwrap();
    attach(&mut deliveries, State::new(Offset(1)), 1, 0);
    let mut outgoing = Outgoing::default();
    deliveries.settle(Offset(1), LogPosition(1), &mut outgoing);
    assert!(outgoing.departures.is_empty());
}

#[test]
fn a_receiver_is_known_by_its_own_handle_and_not_by_its_connections() {
    let mut deliveries = Deliveries::default();
    let attachment = |party| Attachment {
        party: Party(party),
        state: State::default(),
        subscriptions: Arc::from([]),
        receive_maximum: 10,
        end: Offset(0),
        entries_maximum: 0,
        pack_maximum: 0,
    };
    let (first, _) = deliveries.attach(Connection(70), attachment(1)).unwrap();
    let (second, _) = deliveries.attach(Connection(7), attachment(2)).unwrap();
    assert_eq!(
        (deliveries.connection_of(first), deliveries.connection_of(second)),
        (Some(Connection(70)), Some(Connection(7)))
    );
    assert!(deliveries.attach(Connection(70), attachment(3)).is_err());
    deliveries.detach(first, std::iter::empty()).unwrap();
    let (third, _) = deliveries.attach(Connection(8), attachment(3)).unwrap();
    assert_eq!(third, first, "a handle is used again");
    assert_eq!((deliveries.receiver_on(Connection(70)), deliveries.receiver_on(Connection(8))), (None, Some(third)));
    assert_eq!(deliveries.receiver_on(Connection(7)), Some(second));
}

#[test]
fn only_what_the_exchange_awaits_is_an_answer_to_it() {
    use Step::{Acknowledged, Completed, Received};
    let flight = |qos, phase| Flight { offset: Offset(0), qos, phase, source: Source::Queue };
    let cases = [
        (flight(1, Phase::Sent), vec![Acknowledged]),
        (flight(2, Phase::Sent), vec![Received]),
        // A client that has not seen PUBREL may say again that it has the message.
        (flight(2, Phase::Received), vec![Received, Completed]),
    ];
    for (flight, awaited) in cases {
        for step in [Acknowledged, Received, Completed] {
            for refusal in [None, Some(Refusal::ByPeer)] {
                let mut deliveries = Deliveries::default();
                let state = State { flights: BTreeMap::from([(9, flight)]), ..State::default() };
                attach(&mut deliveries, state, 1, 0);
                let answer =
                    |packet_identifier| Acknowledgement { connection: SUBSCRIBER, step, packet_identifier, refusal };
                let acknowledgements = vec![answer(9), answer(10)];
                deliveries.admit(&Arrivals { acknowledgements, ..Arrivals::default() }, LogPosition(0), exchange::next);
                let is_awaited = awaited.contains(&step);
                assert_eq!(deliveries.take_at_fault().contains(&SUBSCRIBER), !is_awaited, "{step:?} {flight:?}");
                assert!(deliveries.take_at_fault().is_empty());
                let state = deliveries.detach(deliveries.receiver_on(SUBSCRIBER).unwrap(), std::iter::empty()).unwrap();
                assert_eq!(
                    state.flights.get(&9) == Some(&flight),
                    !is_awaited || flight.phase == Phase::Received && step == Received && refusal.is_none()
                );
            }
        }
    }
}

#[test]
fn what_has_its_packet_identifier_is_sent_again_though_all_of_them_are_taken() {
    let total = u64::from(u16::MAX);
    let flight = |offset| Flight { offset: Offset(offset), qos: 1, phase: Phase::Sent, source: Source::Queue };
    let flights = (0..total).map(|offset| (offset as u16 + 1, flight(offset))).collect();
    let mut deliveries = Deliveries::default();
    attach(&mut deliveries, State { flights, ..State::default() }, total + 5, 0);
    let mut again = Vec::new();
    loop {
        let mut scans = deliveries.hungry(Offset(total + 5));
        for scan in &mut scans {
            let end = (total + 5).min(scan.from.0 + u64::from(scan.records_maximum));
            let terms = || Terms { qos: 1, ..Terms::default() };
            scan.found = (scan.from.0..end).map(|offset| found(offset, 1, 0, terms())).collect();
            scan.reached = Offset(end);
        }
        deliveries.feed(&mut scans);
        let sent = allotted(&mut deliveries, total + 5, 1);
        if scans.is_empty() && sent.is_empty() {
            break;
        }
        again.extend(sent);
    }
    assert!(again.iter().all(|sending| sending.dup && u64::from(sending.packet_identifier) == sending.offset.0 + 1));
    assert_eq!(again.len() as u64, total);
    // Nothing can be done before one of them is acknowledged.
    assert!(!deliveries.is_waiting());
    acknowledge(&mut deliveries, Step::Acknowledged, 9);
    let new = allotted(&mut deliveries, total + 5, 1);
    assert_eq!(new.iter().map(|sending| (sending.packet_identifier, sending.dup)).collect::<Vec<_>>(), [(9, false)]);
}

// [MQTT-3.3.4-9]
#[test]
fn what_is_gone_when_it_is_to_be_sent_again_keeps_its_place_until_the_receiver_answers() {
    for qos in [1, 2] {
        let mut deliveries = Deliveries::default();
        let attachment = Attachment {
            party: Party(7),
            state: State::default(),
            subscriptions: Arc::from([]),
            receive_maximum: 1,
            end: Offset(0),
            entries_maximum: 0,
            pack_maximum: 1,
        };
        let (receiver, queue) = deliveries.attach(SUBSCRIBER, attachment).unwrap();
        let messages = [0, 1].map(|offset| publish(qos, Some((queue, SUBSCRIBER)), stored(offset, offset + 1)));
        admit(&mut deliveries, messages.to_vec());
        // At QoS 2 the packet identifier is durable before the message leaves.
        let at_once = allotted(&mut deliveries, 2, 1);
        assert_eq!(deliveries.take_progress().len(), usize::from(qos == 2));
        deliveries.progressed(LogPosition(2));
        let sent = at_once.into_iter().chain(allotted(&mut deliveries, 2, 1));
        assert_eq!(sent.map(|sending| sending.offset).collect::<Vec<_>>(), [Offset(0)]);
        deliveries.retry_pack(receiver, Party(0), true, Timestamp(2)).unwrap();
        let mut scans = deliveries.hungry(Offset(2));
        for scan in &mut scans {
            scan.found = vec![found(1, qos, 0, Terms { qos: 2, ..Terms::default() })];
            scan.reached = Offset(2);
        }
        deliveries.feed(&mut scans);
        assert_eq!(deliveries.take_notices().len(), 1);
        assert!(allotted(&mut deliveries, 2, 3).is_empty(), "the receiver asked for one at a time");
        let steps: &[Step] = if qos == 1 { &[Step::Acknowledged] } else { &[Step::Received, Step::Completed] };
        for step in steps {
            acknowledge(&mut deliveries, *step, 1);
        }
        assert!(deliveries.take_at_fault().is_empty() && deliveries.take_notices().is_empty());
        assert_eq!(deliveries.mark(queue).unwrap(), Offset(1));
        let at_once = allotted(&mut deliveries, 2, 4);
        deliveries.take_progress();
        deliveries.progressed(LogPosition(2));
        let next = at_once.into_iter().chain(allotted(&mut deliveries, 2, 4));
        assert_eq!(next.map(|sending| sending.offset).collect::<Vec<_>>(), [Offset(1)]);
    }
}

#[test]
fn owed_retained_messages_come_first_and_are_owed_until_acknowledged() {
    let mut deliveries = Deliveries::default();
    let owed = vec![Owed { offset: Offset(3), qos: 1, identifier: Some(9) }];
    let queue = attach(&mut deliveries, State { owed, ..State::new(Offset(10)) }, 10, 0);
    admit(&mut deliveries, vec![published(queue, 10, None)]);
    let feed = |deliveries: &mut Deliveries| {
        let mut scans = deliveries.hungry(Offset(11));
        for scan in &mut scans {
            let found = |offset: &Offset| Some(found_at(*offset));
            scan.found_owed = scan.owed.iter().map(found).collect();
        }
        deliveries.feed(&mut scans);
    };
    feed(&mut deliveries);
    let sent = allotted(&mut deliveries, 11, 1);
    assert_eq!(
        sent.iter().map(|sending| (sending.retain, sending.location.position)).collect::<Vec<_>>(),
        [(true, 3), (false, 10)]
    );
    acknowledge(&mut deliveries, Step::Acknowledged, sent[1].packet_identifier);
    let state = deliveries.detach(deliveries.receiver_on(SUBSCRIBER).unwrap(), std::iter::empty()).unwrap();
    assert_eq!(state.owed.iter().map(|owed| owed.offset).collect::<Vec<_>>(), [Offset(3)]);
    let queue = attach(&mut deliveries, state, 11, 0);
    feed(&mut deliveries);
    let again = allotted(&mut deliveries, 11, 1);
    assert_eq!((again.len(), again[0].dup, again[0].packet_identifier), (1, true, sent[0].packet_identifier));
    acknowledge(&mut deliveries, Step::Acknowledged, again[0].packet_identifier);
    assert_eq!(deliveries.in_flight(queue).unwrap(), 0);
    assert!(deliveries
        .detach(deliveries.receiver_on(SUBSCRIBER).unwrap(), std::iter::empty())
        .unwrap()
        .owed
        .is_empty());
}

#[test]
fn a_retained_message_that_is_not_durable_yet_is_asked_for_when_it_is() {
    let mut deliveries = Deliveries::default();
    let owed = [3, 10, 11].map(|offset| Owed { offset: Offset(offset), qos: 0, identifier: None });
    attach(&mut deliveries, State { owed: owed.to_vec(), ..State::new(Offset(10)) }, 10, 0);
    let mut looked_up = Vec::new();
    for durable in [10, 10, 11, 12] {
        let mut scans = deliveries.hungry(Offset(durable));
        for scan in &mut scans {
            looked_up.push((durable, scan.owed.iter().map(|offset| offset.0).collect::<Vec<_>>()));
            scan.found_owed = scan.owed.iter().map(|offset| Some(found_at(*offset))).collect();
        }
        deliveries.feed(&mut scans);
        allotted(&mut deliveries, durable, 1);
        assert_eq!(deliveries.awaits_commit(), durable < 12);
        assert!(!deliveries.is_waiting());
    }
    assert_eq!(looked_up, [(10, vec![3]), (11, vec![10]), (12, vec![11])]);
}

/// Messages of which each takes 60 000 bytes where it is sent, though in the log it has 100.
fn long_where_they_are_sent(queue: Queue) -> [Arrivals; 2] {
    let published = |number| published(queue, number, None);
    let by_their_topic = (0..100).map(|number| Publish { topic: Span::new(0, 60_000), ..published(number) }).collect();
    let compressed = EntryParts {
        producer: 1,
        sequence_first: 0,
        sequence_last: 99,
        count: 100,
        key_hash: None,
        not_before: None,
        opened_bytes: 6_000_000,
        checksum: 0,
    };
    let entry = Publish { entry: Some(0), ..published(0) };
    [
        Arrivals { publishes: by_their_topic, ..Arrivals::default() },
        Arrivals { publishes: vec![entry], entries: vec![compressed], ..Arrivals::default() },
    ]
}

#[test]
fn a_turn_gives_a_receiver_no_more_than_its_bytes_as_they_are_sent() {
    for kind in 0..2 {
        let mut deliveries = Deliveries::default();
        let queue = attach(&mut deliveries, State::default(), 0, 0);
        let arrivals = &long_where_they_are_sent(queue)[kind];
        deliveries.admit(arrivals, LogPosition(100), exchange::next);
        let mut sent = Vec::new();
        while sent.len() < 100 {
            let turn = allotted(&mut deliveries, 100, 1);
            assert!((1..=1 + limits::ALLOT_BYTES_MAXIMUM / 60_000).contains(&turn.len()), "{} at once", turn.len());
            sent.extend(turn.iter().map(|sending| sending.offset.0));
        }
        assert_eq!(sent, (0..100).collect::<Vec<_>>());
    }
}

#[test]
fn what_is_kept_of_qos_0_holds_nothing_up_for_a_session_that_never_gets_it() {
    let mut deliveries = Deliveries::default();
    let queue = attach(&mut deliveries, State::default(), 0, 0);
    let kept = Stored { is_kept: true, ..stored(0, 1) };
    admit(&mut deliveries, vec![publish(0, Some((queue, SUBSCRIBER)), kept)]);
    assert!(!deliveries.awaits_commit());
    admit(&mut deliveries, vec![published(queue, 1, None)]);
    assert!(deliveries.awaits_commit());
    let sent = allotted(&mut deliveries, 2, 1);
    assert_eq!(sent.iter().map(|sending| sending.offset).collect::<Vec<_>>(), [Offset(1)]);
}

fn found_at(offset: Offset) -> Found {
    Found {
        entry: 0,
        offset,
        count: 1,
        location: Location { segment: 0, position: offset.0 as u32 },
        size_bytes: 100,
        qos: 1,
        retain: true,
        expires_at: None,
        key_slot: KeySlot(0),
        terms: Terms::default(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    // accepts: S0.53
    #[test]
    fn packet_identifiers_never_collide_over_many_wraps(
        kept in proptest::collection::btree_set(0..2_000_u64, 0..40),
        start: u16,
    ) {
        let mut window = Window::resume(100, start, std::iter::empty());
        let mut open = BTreeMap::new();
        for turn in 0..200_000_u64 {
            let flight = Flight { offset: Offset(turn), qos: 1, phase: Phase::Sent, source: Source::Queue };
            let identifier = window.send(flight, Timestamp(0)).unwrap();
            prop_assert_ne!(identifier, 0);
            prop_assert!(open.insert(identifier, turn).is_none(), "identifier {} was still in flight", identifier);
            if !kept.contains(&turn) {
                open.remove(&identifier);
                prop_assert_eq!(window.complete(identifier).map(|(flight, _)| flight.offset), Some(Offset(turn)));
            }
        }
        prop_assert_eq!(window.len(), kept.len());
    }
}

/// How what was in flight to a receiver since an earlier connection ends.
#[derive(Clone, Copy, PartialEq)]
enum End {
    /// The log has the message no more.
    Gone,
    /// It does not fit into a packet any more.
    Unfit,
    /// It is refused before it is sent again.
    Refused,
}

const ENDS: [End; 3] = [End::Gone, End::Unfit, End::Refused];

fn given_up(end: End, qos: u8) -> (Deliveries, Receiver) {
    let flight = Flight { offset: Offset(3), qos, phase: Phase::Sent, source: Source::Queue };
    let mut deliveries = Deliveries::default();
    let state = State { mark: Offset(3), flights: [(9, flight)].into(), ..State::default() };
    let (receiver, _) = attach_receiver(&mut deliveries, state, 5, 0);
    let mut scans = deliveries.hungry(Offset(5));
    for scan in &mut scans {
        let terms = || Terms { qos: 2, ..Terms::default() };
        scan.found = (if end == End::Gone { 4 } else { 3 }..5).map(|offset| found(offset, qos, 0, terms())).collect();
        scan.reached = Offset(5);
    }
    deliveries.feed(&mut scans);
    let why = match end {
        End::Gone => NoticeKind::Retention,
        End::Unfit => {
            let sent = allotted(&mut deliveries, 5, 1);
            assert_eq!(sent.first().map(|sending| (sending.packet_identifier, sending.dup)), Some((9, true)));
            deliveries.refuse(SUBSCRIBER, 9, NoticeKind::TooLarge);
            NoticeKind::TooLarge
        }
        End::Refused => {
            deliveries.refuse(SUBSCRIBER, 9, NoticeKind::Refused);
            NoticeKind::Refused
        }
    };
    let notices = deliveries.take_notices().into_iter().map(|notice| (notice.kind, notice.first, notice.count));
    assert_eq!(notices.collect::<Vec<_>>(), [(why, Offset(3), 1)]);
    assert!(allotted(&mut deliveries, 5, 1).iter().all(|sending| sending.offset == Offset(4)), "it does not come back");
    (deliveries, receiver)
}

fn in_flight(deliveries: &mut Deliveries, receiver: Receiver) -> BTreeMap<u16, Flight> {
    deliveries.state(receiver, std::iter::empty()).unwrap().flights
}

fn told(deliveries: &mut Deliveries) -> Vec<Acknowledgement> {
    let mut outgoing = Outgoing::default();
    deliveries.settle(Offset(5), LogPosition(5), &mut outgoing);
    let told = outgoing.departures.into_iter().filter_map(|packet| match packet {
        Departure::Acknowledgement(told) => Some(told),
        _ => None,
    });
    told.collect()
}

#[test]
fn what_a_receiver_may_have_of_qos_2_and_is_not_sent_again_is_released() {
    for end in ENDS {
        let (mut deliveries, receiver) = given_up(end, 2);
        assert!(told(&mut deliveries).is_empty(), "not before it is durable");
        let progress = deliveries.take_progress();
        assert!(!progress.is_empty());
        deliveries.progressed(LogPosition(5));
        let released =
            Acknowledgement { connection: SUBSCRIBER, step: Step::Released, packet_identifier: 9, refusal: None };
        assert_eq!(told(&mut deliveries), [released]);
        // If the connection breaks before its answer, the identifier is still to be released.
        let left = in_flight(&mut deliveries, receiver).get(&9).map(|flight| flight.phase);
        assert_eq!(left, Some(Phase::Received));
        acknowledge(&mut deliveries, Step::Completed, 9);
        assert!(deliveries.take_at_fault().is_empty());
        assert!(!in_flight(&mut deliveries, receiver).contains_key(&9), "it is free again");
        assert!(deliveries.take_notices().is_empty());
    }
}

#[test]
fn what_a_receiver_may_have_of_qos_1_and_is_not_sent_again_is_over() {
    for end in ENDS {
        let (mut deliveries, receiver) = given_up(end, 1);
        deliveries.take_progress();
        deliveries.progressed(LogPosition(5));
        assert!(told(&mut deliveries).is_empty());
        assert!(!in_flight(&mut deliveries, receiver).contains_key(&9));
    }
}
