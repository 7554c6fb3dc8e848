//! What is kept of QoS 0: for queues that are given entries whole, and for nobody else; found, counted and carried.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::cast_possible_truncation
)]

mod log_support;

use holdfast_kernel::disk::fake::FakeDisk;
use holdfast_kernel::flow::{Scan, Subscription};
use holdfast_kernel::ids::{Offset, Party, Timestamp};
use holdfast_kernel::store::{Log, Options, Question, RetentionCursor, Wanted};
use log_support::{
    arrivals, message, open, options, retain, scan_of, subscription, without_checkpoints, Stored, TOPICS,
};
use proptest::prelude::*;

/// The topics that keep all.
const KEEPING: [usize; 2] = [0, 3];

/// A message: its topic, its QoS, and how many seconds it lives, if it expires.
type Brief = (usize, u8, Option<u32>);

fn small() -> Options {
    Options { segment_bytes: 16_384, ..options() }
}

fn append(log: &mut Log, briefs: &[Brief]) -> Vec<Brief> {
    for topic in KEEPING {
        log.keep_all(TOPICS[topic].as_bytes(), true);
    }
    let mut stored = Vec::new();
    for (number, brief) in briefs.iter().enumerate() {
        let payload = vec![number as u8; 300];
        let mut arrived = arrivals(&[Stored { qos: brief.1, ..message(TOPICS[brief.0], &payload) }]);
        arrived.publishes[0].expiry_interval_s = brief.2;
        log.append(&mut arrived, &["b/y"; 1], Timestamp(1_000_000)).unwrap();
        let is_kept = arrived.publishes[0].stored.map(|stored| stored.is_kept);
        let expected = brief.1 == 0 && KEEPING.contains(&brief.0);
        assert_eq!(is_kept.unwrap_or_default(), expected);
        stored.extend(is_kept.map(|_| *brief));
    }
    log.commit().unwrap();
    stored
}

fn found(log: &mut Log, filter: &str, from: u64, whole: bool) -> Vec<u64> {
    let mut scan = Scan { whole, records_maximum: 9, ..scan_of(filter, from) };
    let (mut all, end) = (Vec::new(), log.durable_offset());
    while scan.from < end {
        log.scan(std::slice::from_mut(&mut scan)).unwrap();
        assert!(scan.found.iter().all(|found| found.qos > 0));
        all.extend(scan.found.iter().map(|found| found.offset.0));
        scan.from = scan.reached;
    }
    all
}

fn ask(log: &mut Log, (wanted, of): (Wanted, &Subscription), range: (u64, u64), at: u64, effort: u64) -> u64 {
    let subscriptions = std::slice::from_ref(of).into();
    let range = (Offset(range.0), Offset(range.1));
    let mut question = Question::new(subscriptions, Party(3), range, Timestamp(at), wanted);
    loop {
        if let Some(answer) = log.answer(&mut question, effort).unwrap() {
            return answer;
        }
    }
}

fn check(log: &mut Log, stored: &[Brief], (from, to): (u64, u64), at: u64, effort: u64) {
    for (filter, topics) in [("#", 0..6), ("a", 0..1), ("b/y", 4..5), ("b/+", 3..5)] {
        for keeps_all in [false, true] {
            let offsets = |at: u64| -> Vec<u64> {
                let is_wanted = |(_, (topic, qos, lives_s)): &(usize, &Brief)| {
                    let is_kept = keeps_all && KEEPING.contains(topic);
                    let expires_at = lives_s.map_or(u64::MAX, |lives| 1_000_000 * (1 + u64::from(lives)));
                    topics.contains(topic) && (*qos > 0 || is_kept) && expires_at > at
                };
                stored.iter().enumerate().filter(is_wanted).map(|(place, _)| place as u64).collect()
            };
            let behind: Vec<u64> = offsets(0).into_iter().filter(|offset| *offset >= from).collect();
            assert_eq!(found(log, filter, from, keeps_all), behind);
            let of = Subscription { keeps_all, ..subscription(filter, 0, u64::MAX) };
            let within: Vec<u64> = offsets(at).into_iter().filter(|offset| (from..to).contains(offset)).collect();
            assert_eq!(ask(log, (Wanted::Count, &of), (from, to), at, effort), within.len() as u64);
            let first = ask(log, (Wanted::First, &of), (from, to), at, effort);
            assert_eq!(first, within.first().copied().unwrap_or(to));
            for newest in [1_usize, 4, 30] {
                let answer = ask(log, (Wanted::Newest(newest as u64), &of), (from, to), at, effort);
                let left = within.iter().filter(|offset| **offset >= answer).count();
                assert_eq!(left, within.len().min(newest));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn it_is_found_and_counted_for_queues_that_want_it_alone(
        briefs in proptest::collection::vec(
            (0_usize..6, 0_u8..3, proptest::option::weighted(0.2, 1_u32..50)), 1..160),
        ends in (any::<u64>(), any::<u64>()),
        at in prop_oneof![Just(0), 1_000_000_u64..60_000_000],
        effort in 1_u64..200,
    ) {
        let disk = FakeDisk::new(1, 1 << 30);
        let (mut log, _) = open(&disk, small());
        let stored = append(&mut log, &briefs);
        let end = stored.len() as u64;
        let ends = (ends.0 % (end + 1), ends.1 % (end + 1));
        let range = (ends.0.min(ends.1), ends.0.max(ends.1));
        check(&mut log, &stored, range, at, effort);
        check(&mut log, &stored, (0, end), at, u64::MAX);
        drop(log);
        let (mut log, _) = open(&disk, small());
        check(&mut log, &stored, range, at, effort);
        drop(log);
        let (mut log, _) = open(&without_checkpoints(&disk), small());
        check(&mut log, &stored, (0, end), at, effort);
    }
}

#[test]
fn it_is_carried_past_retention_for_whoever_has_not_had_it() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, small());
    let briefs: Vec<Brief> =
        (0..300_u32).map(|number| (usize::from(number % 10 > 0), (number % 3 % 2) as u8, None)).collect();
    let stored = append(&mut log, &briefs);
    let before = found(&mut log, "a", 0, true);
    assert!(before.len() > 9 && found(&mut log, "a", 0, false).len() < before.len());
    let of = Subscription { keeps_all: true, ..subscription("a", 0, u64::MAX) };
    let cursor = RetentionCursor {
        party: Party(3),
        mark: Offset(0),
        subscriptions: vec![of],
        keep_from: Offset(0),
        messages_maximum: u64::MAX,
    };
    retain(&mut log, 0, 20_000, &[cursor], 9_000_000).unwrap();
    assert!(log.whole_from() > Offset(0), "{} messages have gone nowhere", stored.len());
    assert_eq!(found(&mut log, "a", 0, true), before);
}

#[test]
fn a_topic_keeps_no_more_than_it_is_told() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, small());
    assert_eq!(append(&mut log, &[(0, 0, None), (1, 0, None)]).len(), 1);
    log.keep_all(b"a", false);
    let mut arrived = arrivals(&[Stored { qos: 0, ..message("a", b"") }]);
    log.append(&mut arrived, &[""; 0], Timestamp(5)).unwrap();
    assert!(arrived.publishes[0].stored.is_none());
}
