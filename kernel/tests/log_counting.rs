//! How much waits in a queue at rest: what has expired does not count, and what is too old is found by its time.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions
)]

mod log_support;

use holdfast_kernel::disk::fake::FakeDisk;
use holdfast_kernel::flow::state::{Flight, Phase, Source, State};
use holdfast_kernel::ids::{Offset, Party, Timestamp};
use holdfast_kernel::store::{Log, Options};
use log_support::{arrivals, message, open, options, subscription, Asking, TOPICS};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000;
const BEGAN: u64 = 10 * SECOND;

/// The topic, the second in which it comes, and for how many seconds it lives.
type Brief = (usize, u64, Option<u32>);

fn stored(log: &mut Log, messages: &[Brief]) {
    for (topic, at, lives) in messages {
        let mut arrived = arrivals(&[message(TOPICS[*topic], &[7; 400])]);
        arrived.publishes[0].expiry_interval_s = *lives;
        log.append(&mut arrived, &[""; 0], Timestamp(BEGAN + at * SECOND)).unwrap();
    }
    log.commit().unwrap();
}

fn check(log: &mut Log, messages: &[Brief]) {
    let end = Offset(messages.len() as u64);
    for second in [0, 1, 5, 20, 45, 90, 1_000] {
        let now = BEGAN + second * SECOND;
        let lives = |brief: &Brief| brief.2.is_none_or(|lives| BEGAN + (brief.1 + u64::from(lives)) * SECOND > now);
        for (filter, topics) in [("#", 0..6), ("a", 0..1), ("b/+", 3..5)] {
            let subscriptions = [subscription(filter, 0, u64::MAX)];
            let wanted: Vec<usize> = (0..messages.len())
                .filter(|place| topics.contains(&messages[*place].0) && lives(&messages[*place]))
                .collect();
            for from in [0, messages.len() / 2] {
                let range = (Offset(from as u64), end);
                let counted = log.count(&subscriptions, range, Timestamp(now));
                assert_eq!(counted, wanted.iter().filter(|place| **place >= from).count() as u64);
            }
            let newest = log.offset_of_newest(&subscriptions, Offset(0), 3, Timestamp(now));
            let left = wanted.iter().filter(|place| **place as u64 >= newest).count();
            assert_eq!(left, wanted.len().min(3));
        }
        let first = messages.iter().position(|brief| brief.1 >= second).unwrap_or(messages.len());
        assert_eq!(log.offset_at(Timestamp(now)).unwrap(), Offset(first as u64));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_has_expired_is_not_counted_and_ages_are_found(
        messages in proptest::collection::vec((0_usize..6, 0_u64..3, proptest::option::of(1_u32..60)), 1..160),
    ) {
        let mut at = 0;
        let messages: Vec<Brief> = messages
            .into_iter()
            .map(|(topic, later, lives)| {
                at += later;
                (topic, at, lives)
            })
            .collect();
        let disk = FakeDisk::new(1, 1 << 30);
        let (mut log, _) = open(&disk, options());
        stored(&mut log, &messages);
        check(&mut log, &messages);
        drop(log);
        let (mut log, _) = open(&disk, options());
        check(&mut log, &messages);
    }
}

#[test]
fn a_segment_without_records_does_not_hide_the_ages_of_those_before() {
    let disk = FakeDisk::new(1, 1 << 30);
    let mut stored = Vec::new();
    // Sooner or later a segment ends where the next one has been begun and nothing has come yet.
    for at in 0..120 {
        let (mut log, _) = open(&disk, options());
        let mut arrived = arrivals(&[message("a", &[7; 400])]);
        log.append(&mut arrived, &[""; 0], Timestamp(BEGAN + at * SECOND)).unwrap();
        log.commit().unwrap();
        stored.push(BEGAN + at * SECOND);
        drop(log);
        disk.crash();
        let (mut log, _) = open(&disk, options());
        for (offset, time) in stored.iter().enumerate() {
            assert_eq!(log.offset_at(Timestamp(*time)).unwrap(), Offset(offset as u64));
        }
    }
}

#[test]
fn what_is_skipped_is_never_what_is_in_flight() {
    let flight = |offset, phase, source| Flight { offset: Offset(offset), qos: 2, phase, source };
    let mut state = State::new(Offset(3));
    state.flights.insert(1, Flight { qos: 1, ..flight(5, Phase::Sent, Source::Queue) });
    state.flights.insert(2, flight(7, Phase::Sent, Source::Queue));
    state.flights.insert(3, flight(8, Phase::Received, Source::Queue));
    state.flights.insert(4, flight(9, Phase::Sent, Source::Group(Party(9))));
    state.flights.insert(5, flight(30, Phase::Sent, Source::Queue));
    let flights = state.flights.clone();
    state.skip(Offset(20));
    assert_eq!(state.mark, Offset(5));
    assert_eq!(state.acknowledged.iter().collect::<Vec<_>>(), [(6, 7), (8, 20)]);
    assert_eq!(state.flights, flights);
}

#[test]
fn many_control_records_before_a_message_do_not_make_a_time_dear() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, Options { segment_bytes: 8 << 20, ..options() });
    log.append(&mut arrivals(&[message("a", &[7; 40])]), &[""; 0], Timestamp(BEGAN)).unwrap();
    for number in 0_u32..20_000 {
        log.append_control(5, &number.to_le_bytes(), &[1; 100], Timestamp(BEGAN + SECOND)).unwrap();
    }
    log.append(&mut arrivals(&[message("a", &[8; 40])]), &[""; 0], Timestamp(BEGAN + 9 * SECOND)).unwrap();
    log.commit().unwrap();
    let before = log.effort();
    for (second, offset) in [(0, 0), (1, 1), (5, 1), (9, 1), (10, 2)] {
        assert_eq!(log.offset_at(Timestamp(BEGAN + second * SECOND)).unwrap(), Offset(offset), "{second}");
    }
    assert!(log.effort() - before < 5_000, "{}", log.effort() - before);
}

#[test]
fn what_is_remembered_is_told_by_what_it_is() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    for number in 0..40 {
        log.append(&mut arrivals(&[message("a/b", &[1; 1_000])]), &[""; 0], Timestamp(number)).unwrap();
        log.commit().unwrap();
    }
    let told = |log: &Log, what| log.remembered().into_iter().find(|(name, _)| *name == what).unwrap().1;
    for what in ["filters", "blocks", "directories", "segment_topics", "postings", "queues", "windows"] {
        assert_eq!(told(&log, what), 0, "{what}");
    }
    assert_eq!(log.count(&[subscription("a/+", 0, u64::MAX)], (Offset(0), Offset(40)), Timestamp(50)), 40);
    assert!(told(&log, "filters") > 0 && told(&log, "directories") > 0);
}
