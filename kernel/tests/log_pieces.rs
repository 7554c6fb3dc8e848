//! Questions and scans in pieces: exact however small the pieces are, and bounded however much the log holds.
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
use holdfast_kernel::flow::{terms, Scan, Subscription};
use holdfast_kernel::ids::{Offset, Party, Timestamp};
use holdfast_kernel::limits::{SCAN_EFFORT_MAXIMUM, SCAN_EFFORT_MINIMUM};
use holdfast_kernel::store::{Log, Options, Question, Wanted};
use log_support::{arrivals, message, open, options, scan_of, subscription, Stored};
use proptest::prelude::*;

const TOPICS: [&str; 12] = ["a", "a/b", "a/b/c", "a/c", "b", "b/b", "b/c/d", "c!/b", "c/b", "c/b/d", "z", "$x/b"];
const FILTERS: [&str; 10] = ["#", "a/#", "+/b", "+/b/#", "c/+", "z", "a/b", "nobody/+", "+/+/d", "$x/#"];
const OWNER: Party = Party(3);

#[derive(Clone, Debug)]
struct Brief {
    topic: usize,
    publisher: u32,
    lives_s: Option<u32>,
}

fn store(log: &mut Log, messages: &[Brief], from: usize) {
    for (place, brief) in messages.iter().enumerate().skip(from) {
        let size = 100 + 13 * place % 900;
        let stored = Stored { topic: TOPICS[brief.topic], qos: 1, retain: false, payload: vec![place as u8; size] };
        let mut arrived = arrivals(&[stored]);
        arrived.publishes[0].publisher = Party(brief.publisher);
        arrived.publishes[0].expiry_interval_s = brief.lives_s;
        log.append(&mut arrived, &[""; 0], Timestamp(1_000_000)).unwrap();
        if place % 7 == 0 {
            log.commit().unwrap();
        }
    }
    log.commit().unwrap();
}

/// What a plain look at every message says.
fn wanted(messages: &[Brief], subscriptions: &[Subscription], range: (u64, u64), unexpired_at: u64) -> Vec<u64> {
    let is_wanted = |(place, brief): &(usize, &Brief)| {
        let expires_at = brief.lives_s.map(|lives| 1_000_000 * (1 + u64::from(lives)));
        let (offset, topic) = (Offset(*place as u64), TOPICS[brief.topic].as_bytes());
        (range.0..range.1).contains(&offset.0)
            && expires_at.is_none_or(|at| at > unexpired_at)
            && terms(subscriptions, topic, offset, Party(brief.publisher), OWNER).is_some()
    };
    messages.iter().enumerate().filter(is_wanted).map(|(place, _)| place as u64).collect()
}

fn ask(log: &mut Log, question: &mut Question, effort: u64) -> u64 {
    for _ in 0..200_000 {
        if let Some(answer) = log.answer(question, effort).unwrap() {
            return answer;
        }
    }
    panic!("a question never ends");
}

fn brief() -> impl Strategy<Value = Brief> {
    (0..TOPICS.len(), 2_u32..5, proptest::option::weighted(0.2, 1_u32..50))
        .prop_map(|(topic, publisher, lives_s)| Brief { topic, publisher, lives_s })
}

fn subscribed(most: u64) -> impl Strategy<Value = Subscription> {
    (0..FILTERS.len(), 0..most, proptest::option::weighted(0.3, 0..most), proptest::bool::weighted(0.2)).prop_map(
        |(filter, from, until, no_local)| Subscription {
            no_local,
            keeps_all: false,
            ..subscription(FILTERS[filter], from, until.unwrap_or(u64::MAX))
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn answers_are_exact_however_small_the_pieces(
        messages in proptest::collection::vec(brief(), 1..220),
        later in proptest::collection::vec(brief(), 0..40),
        subscriptions in proptest::collection::vec(subscribed(200), 0..5),
        from in 0_u64..220,
        length in 0_u64..300,
        newest in 0_u64..90,
        at in prop_oneof![Just(0), 1_000_000_u64..60_000_000],
        effort in 1_u64..60,
        is_opened_again in any::<bool>(),
    ) {
        let disk = FakeDisk::new(1, 1 << 30);
        let (mut log, _) = open(&disk, options());
        store(&mut log, &messages, 0);
        if is_opened_again {
            drop(log);
            log = open(&disk, options()).0;
        }
        let end = messages.len() as u64;
        let range = (Offset(from), Offset(from + length));
        let question = |wanted| Question::new(subscriptions.as_slice().into(), OWNER, range, Timestamp(at), wanted);
        let [mut count, mut first, mut kept] =
            [Wanted::Count, Wanted::First, Wanted::Newest(newest)].map(question);
        // What comes after a question was put does not change its answer.
        let mut early = [None; 3];
        for (early, question) in early.iter_mut().zip([&mut count, &mut first, &mut kept]) {
            *early = log.answer(question, effort).unwrap();
        }
        let all: Vec<Brief> = messages.iter().chain(&later).cloned().collect();
        store(&mut log, &all, messages.len());
        let mut answer = |early: Option<u64>, question: &mut Question| {
            early.unwrap_or_else(|| ask(&mut log, question, effort))
        };
        let to = (from + length).min(end);
        let expected = wanted(&messages, &subscriptions, (from, to), at);
        prop_assert_eq!(answer(early[0], &mut count), expected.len() as u64);
        let found = answer(early[1], &mut first);
        prop_assert_eq!((found < to).then_some(found), expected.first().copied().filter(|first| *first < to));
        let found = answer(early[2], &mut kept);
        let left = expected.iter().filter(|offset| **offset >= found).count() as u64;
        prop_assert_eq!(left, newest.min(expected.len() as u64));
    }
}

/// Without optimisation a tenth shows the same.
const MANY: u64 = if cfg!(debug_assertions) { 20_000 } else { 100_000 };

/// A log with many topics: `zebra/fx/<number>/reads`, one message in each, twice.
fn large() -> Log {
    let disk = FakeDisk::new(1, 1 << 34);
    let (mut log, _) = open(&disk, Options { segment_bytes: 1 << 20, cache_bytes: 1 << 20, ..options() });
    for _ in 0..2 {
        for first in (0..MANY).step_by(1_000) {
            let mut arrived = arrivals(&[]);
            for number in first..first + 1_000 {
                let topic: &'static str = format!("zebra/fx/{number}/reads").leak();
                let one = arrivals(&[message(topic, &[7; 60])]);
                let mut publish = one.publishes[0].clone();
                let start = arrived.bytes.len() as u32;
                arrived.bytes.extend_from_slice(&one.bytes);
                publish.topic.start += start;
                publish.payload.start += start;
                arrived.publishes.push(publish);
            }
            log.append(&mut arrived, &[""; 0], Timestamp(5)).unwrap();
            log.commit().unwrap();
        }
    }
    log
}

/// One message in each of these topics.
fn store_in(log: &mut Log, topics: impl Iterator<Item = String>) {
    let messages: Vec<Stored> = topics.map(|topic| message(topic.leak(), &[7; 60])).collect();
    for some in messages.chunks(1_000) {
        let mut arrived = arrivals(some);
        log.append(&mut arrived, &[""; 0], Timestamp(5)).unwrap();
        log.commit().unwrap();
    }
}

#[test]
fn a_queue_that_takes_a_little_each_turn_from_a_segment_that_grows_costs_what_it_takes() {
    // Of all topics the first filter has enough that the segment is read in order, the second one has too few.
    for (filter, of) in [("zebra/fx/+/reads", 1_u64), ("zebra/fx/+/rare", 8)] {
        let topics = 400;
        let disk = FakeDisk::new(1, 1 << 34);
        let (mut log, _) = open(&disk, Options { segment_bytes: 1 << 26, cache_bytes: 1 << 20, ..options() });
        let name = |number: u64| match (of, number % of) {
            (1, _) => format!("zebra/fx/{}/reads", number % topics),
            (_, 0) => format!("zebra/fx/{}/rare", number % topics),
            _ => format!("zebra/fx/{}/frequent", number % topics),
        };
        store_in(&mut log, (0..8_000).map(name));
        let mut scan = Scan { records_maximum: 50, bytes_maximum: 1 << 20, ..scan_of(filter, 0) };
        let (mut found, mut turns, before) = (Vec::new(), 0, log.effort());
        while scan.from < log.durable_offset() {
            log.scan(std::slice::from_mut(&mut scan)).unwrap();
            found.extend(scan.found.iter().map(|found| found.offset.0));
            scan.from = scan.reached;
            turns += 1;
            if turns % 10 == 0 && turns < 100 {
                store_in(&mut log, (8_000..8_008).map(name));
            }
        }
        let end = log.durable_offset().0;
        let expected: Vec<u64> = (0..end).filter(|offset| offset % of == 0).collect();
        assert_eq!(found, expected, "{filter}");
        let spent = log.effort() - before;
        assert!(spent < 6 * end, "{filter}: {spent} for {} in {turns} turns", found.len());
    }
}

/// Effort beyond what a piece was given: what reading one footer takes, and what lies between two marks.
const SLACK: u64 = 20_000;

#[test]
fn no_piece_takes_much_more_effort_than_it_is_given_with_a_hundred_thousand_topics() {
    let mut log = large();
    let filters = ["zebra/fx/+/reads", "zebra/#", "+/+/+/reads", "zebra/fx/7/reads", "nobody/+/x"];
    for effort in [1_000, 10_000] {
        for filter in filters {
            for wanted in [Wanted::Count, Wanted::Bytes, Wanted::Newest(10_000), Wanted::First] {
                let subscriptions =
                    [subscription(filter, 17, u64::MAX), subscription("zebra/fx/8/reads", 9, MANY + MANY / 2)];
                let range = (Offset(5), Offset(u64::MAX));
                let mut question = Question::new(subscriptions.as_slice().into(), OWNER, range, Timestamp(0), wanted);
                loop {
                    let before = log.effort();
                    let answer = log.answer(&mut question, effort).unwrap();
                    let spent = log.effort() - before;
                    assert!(spent <= effort + SLACK, "{filter} {wanted:?}: {spent}");
                    if answer.is_some() {
                        break;
                    }
                }
            }
        }
    }
}

#[test]
fn a_question_that_was_answered_costs_little_the_next_time() {
    let mut log = large();
    let ask = |log: &mut Log| {
        let subscriptions = [subscription("zebra/fx/+/reads", 0, u64::MAX)];
        let range = (Offset(0), Offset(u64::MAX));
        let mut question = Question::new(subscriptions.as_slice().into(), OWNER, range, Timestamp(0), Wanted::Count);
        let before = log.effort();
        assert_eq!(log.answer(&mut question, u64::MAX).unwrap(), Some(2 * MANY));
        log.effort() - before
    };
    let first = ask(&mut log);
    assert!(first > MANY);
    // All but the segment that still grows is remembered.
    assert!(ask(&mut log) < first / 3);
}

#[test]
fn queues_with_the_same_filters_share_what_was_merged_and_no_turn_merges_more_than_its_effort() {
    let topics = MANY / 2;
    // Of a segment that grows only windows that are full are shared.
    for (segment_bytes, is_shared) in [(1 << 20, true), (1 << 26, MANY >= 100_000)] {
        let disk = FakeDisk::new(1, 1 << 34);
        let (mut log, _) = open(&disk, Options { segment_bytes, cache_bytes: 1 << 20, ..options() });
        // One message in eight is wanted, each of another topic.
        let name = |number: u64| match number % 8 {
            0 => format!("f/{number}/s"),
            _ => "busy".to_owned(),
        };
        store_in(&mut log, (0..8 * topics).map(name));
        let mut alone = 0;
        for number in 0..5 {
            let mut filters = [subscription("f/+/s", 0, u64::MAX), subscription("+/+/nothing", 0, u64::MAX)];
            // The first one finds the topics of the filters as well, and only the second one has them in this order.
            filters.rotate_left(usize::from(number == 1));
            let queue = holdfast_kernel::ids::Queue(number);
            let mut scan = Scan { queue, subscriptions: filters.into(), ..scan_of("a", 0) };
            let (mut found, before) = (0, log.effort());
            while scan.from < log.durable_offset() {
                let so_far = log.effort();
                log.scan(std::slice::from_mut(&mut scan)).unwrap();
                let spent = log.effort() - so_far;
                assert!(spent <= SCAN_EFFORT_MAXIMUM + SLACK, "{spent}");
                found += scan.found.len() as u64;
                scan.from = scan.reached;
            }
            assert_eq!(found, topics);
            let spent = log.effort() - before;
            alone = if number == 1 { spent } else { alone };
            // What is found costs each of them the same.
            assert!(number < 2 || !is_shared || spent < alone - topics, "{spent} after {alone}");
        }
    }
}

#[test]
fn scans_of_many_queues_together_keep_to_the_effort_of_a_turn_and_all_get_on() {
    let mut log = large();
    let scan = |number: u32| Scan {
        whole: false,
        queue: holdfast_kernel::ids::Queue(number),
        records_maximum: 4_096,
        bytes_maximum: 4 << 20,
        ..scan_of("zebra/fx/+/reads", 0)
    };
    let mut scans: Vec<Scan> = (0..20).map(scan).collect();
    let mut found = [0_u64; 20];
    for turn in 0..4_000 {
        let before = log.effort();
        log.scan(&mut scans).unwrap();
        let spent = log.effort() - before;
        assert!(spent <= SCAN_EFFORT_MAXIMUM + SLACK, "{spent}");
        for scan in &mut scans {
            found[scan.queue.0 as usize] += scan.found.len() as u64;
            scan.from = scan.reached;
        }
        // As queues take turns.
        scans.rotate_left(1);
        if found.iter().all(|found| *found == 2 * MANY) {
            assert!(turn > 20);
            return;
        }
    }
    panic!("some queue was starved: {found:?}");
}

/// A queue reads all there is: how many turns that takes, and its effort, where others ask for `others` in each.
fn turns_beside(others: u64) -> (u64, u64) {
    let mut log = large();
    let mut scan = Scan { records_maximum: 4_096, bytes_maximum: 4 << 20, ..scan_of("zebra/fx/+/reads", 0) };
    let (mut turns, mut spent, mut found, mut begin) = (0, 0, 0, 0);
    while scan.from < log.durable_offset() {
        let before = log.effort();
        while log.effort() - before < others {
            begin += 1;
            let subscriptions = [subscription("zebra/fx/+/reads", begin, u64::MAX)];
            let range = (Offset(begin), Offset(u64::MAX));
            let mut question =
                Question::new(subscriptions.as_slice().into(), OWNER, range, Timestamp(0), Wanted::Count);
            log.answer(&mut question, 1_000).unwrap();
        }
        let before = log.effort();
        log.scan(std::slice::from_mut(&mut scan)).unwrap();
        (turns, spent) = (turns + 1, spent + log.effort() - before);
        found += scan.found.len() as u64;
        scan.from = scan.reached;
    }
    assert_eq!(found, 2 * MANY);
    (turns, spent)
}

#[test]
fn queues_have_what_others_have_left_of_a_turn_and_get_on_with_their_least() {
    let (alone, _) = turns_beside(0);
    for others in [SCAN_EFFORT_MAXIMUM, 4 * SCAN_EFFORT_MAXIMUM] {
        let (turns, spent) = turns_beside(others);
        assert!(turns > 2 * alone, "{turns} after {alone}");
        assert!(spent / turns <= 2 * SCAN_EFFORT_MINIMUM, "{spent} in {turns} turns");
    }
}
