//! Retention, and what readers elsewhere see, while power is cut.
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
use holdfast_kernel::disk::Disk;
use holdfast_kernel::flow::state::{Flight, Phase, Source, State};
use holdfast_kernel::flow::Scan;
use holdfast_kernel::ids::{Offset, Party, Timestamp};
use holdfast_kernel::store::{
    ColumnSet, Columns, Criteria, Filter, Limits, Log, LogReader, Options, RetentionCursor, SegmentKind,
};
use holdfast_kernel::topic;
use log_support::{arrivals, message, open, options, retain, scan_all, subscription, Retention, Stored, TOPICS};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug)]
enum Step {
    Append(Vec<(usize, u8, bool, usize)>),
    Control(u8, u8),
    Commit,
    Checkpoint,
    /// Retention by size, and the quota of the cursor.
    Retain(u64, u64),
    /// Whoever follows the control records takes over so many pages of them.
    Follow(usize),
    StopAfter(u64),
    Crash,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let message = (0..TOPICS.len(), 0_u8..3, proptest::bool::weighted(0.1), 0_usize..2_500);
    let quota = prop_oneof![Just(1_000_000_u64), 0_u64..20];
    prop_oneof![
        8 => proptest::collection::vec(message, 1..20).prop_map(Step::Append),
        2 => (0_u8..5, 0_u8..3).prop_map(|(key, value)| Step::Control(key, value)),
        4 => Just(Step::Commit),
        1 => Just(Step::Checkpoint),
        3 => (0_u64..60_000, quota).prop_map(|(bytes, quota)| Step::Retain(bytes, quota)),
        3 => (1_usize..5).prop_map(Step::Follow),
        1 => (0_u64..12).prop_map(Step::StopAfter),
        1 => Just(Step::Crash),
        1 => Just(Step::Reopen),
    ]
}

/// The queue whose messages are kept.
const FILTER: &str = "a/#";
const OWNER: Party = Party(3);

#[derive(Default)]
struct Model {
    messages: Vec<Stored>,
    durable: usize,
    controls: Vec<(u8, Vec<u8>)>,
    durable_controls: usize,
    /// The queue has lost everything below.
    mark: u64,
    follower: Follower,
}

/// Whoever has a copy of the values in force, and keeps it over crashes.
#[derive(Default)]
struct Follower {
    values: BTreeMap<u8, Vec<u8>>,
    /// All up to this number has been taken over.
    applied: u64,
}

impl Follower {
    fn follow(&mut self, log: &mut Log, pages: usize) {
        if self.applied + 1 < log.whole_controls_from() {
            // What was removed of what has gone nobody says any more.
            *self = Follower::default();
        }
        for _ in 0..pages {
            let found = log.controls(self.applied + 1, 2, u64::MAX).unwrap();
            for (_, _, key, value) in found.rows {
                match value.is_empty() {
                    true => self.values.remove(&key[0]),
                    false => self.values.insert(key[0], value),
                };
            }
            self.applied = found.reached;
            if found.is_all {
                assert_eq!(self.values, values_of(log), "copies tell nothing new, and nothing else is passed over");
                // That asked from the beginning: the follower says again how far it is.
                log.controls(self.applied + 1, 0, u64::MAX).unwrap();
                return;
            }
        }
    }
}

/// The values in force, as the records have them.
fn values_of(log: &mut Log) -> BTreeMap<u8, Vec<u8>> {
    let found = log.controls(0, usize::MAX, u64::MAX).unwrap().rows;
    let found: Vec<(u8, Vec<u8>)> = found.into_iter().map(|(_, _, key, value)| (key[0], value)).collect();
    Model::in_force(&found)
}

impl Model {
    fn queue(&self, end: usize) -> Vec<(u64, Stored)> {
        let numbered =
            self.messages[..end].iter().enumerate().map(|(offset, message)| (offset as u64, message.clone()));
        let wanted = |message: &Stored| message.qos > 0 && topic::matches(FILTER.as_bytes(), message.topic.as_bytes());
        numbered.filter(|(offset, message)| *offset >= self.mark && wanted(message)).collect()
    }

    fn in_force(controls: &[(u8, Vec<u8>)]) -> BTreeMap<u8, Vec<u8>> {
        let mut found = BTreeMap::new();
        for (key, value) in controls {
            if value.is_empty() {
                found.remove(key);
            } else {
                found.insert(*key, value.clone());
            }
        }
        found
    }

    /// What a call of `retain` reported as lost is what is lost.
    fn retained(&mut self, log: &Log, retention: Retention, quota: u64) {
        // Retention may have committed what had gathered.
        self.durable = log.durable_offset().0 as usize;
        let expected = self.queue(self.durable);
        for loss in retention.losses {
            let lost = expected.iter().filter(|(offset, _)| loss.first.0 <= *offset && *offset < loss.end.0);
            assert_eq!(lost.count() as u64, loss.count);
            assert!(expected.len() as u64 - loss.count >= quota.min(expected.len() as u64));
            self.mark = loss.end.0;
        }
    }

    /// What was not durable may be gone, from some point on.
    fn recovered(&mut self, log: &mut Log) {
        let end = log.end_offset().0 as usize;
        assert!((self.durable..=self.messages.len()).contains(&end));
        self.messages.truncate(end);
        self.durable = end;
        let found = values_of(log);
        let matches = |count: usize| Model::in_force(&self.controls[..count]) == found;
        let count = (self.durable_controls..=self.controls.len()).find(|count| matches(*count));
        let count = count.expect("control records in force are kept");
        self.controls.truncate(count);
        self.durable_controls = count;
    }

    fn check(&mut self, disk: &FakeDisk, log: &mut Log) {
        let end = log.durable_offset().0 as usize;
        assert_eq!(scan_all(log, FILTER, self.mark, 7), self.queue(end), "what the queue has not seen is kept");
        self.check_reader(disk, log, end);
        if log.end_offset() != log.durable_offset() {
            return;
        }
        let mut retained = BTreeMap::new();
        for (offset, message) in self.messages.iter().enumerate().filter(|(_, message)| message.retain) {
            retained.insert(message.topic, (offset as u64, message.payload.is_empty()));
        }
        let mut expected: Vec<u64> = retained.values().filter(|(_, empty)| !empty).map(|(offset, _)| *offset).collect();
        expected.sort_unstable();
        let found: Vec<u64> = log.retained(b"#", Offset(0), 100).0.into_iter().map(|offset| offset.0).collect();
        assert_eq!(found, expected);
        for offset in found {
            assert!(log.locate(Offset(offset)).unwrap().is_some(), "retained message {offset} is kept");
        }
    }

    fn check_reader(&self, disk: &FakeDisk, log: &Log, end: usize) {
        let mut reader = LogReader::open(Arc::new(disk.clone())).unwrap();
        reader.refresh(None, true).unwrap();
        assert_eq!(reader.end_offset(), Offset(end as u64), "a reader sees what is durable and nothing else");
        assert_eq!(reader.begin_offset(), log.begin_offset());
        assert_eq!(reader.verify().unwrap(), vec![]);
        let begin = reader.begin_offset().0 as usize;
        for filters in [&["#"][..], &["b/+", "z"][..]] {
            let always = filters.iter().map(|filter| Filter::always(filter.as_bytes())).collect();
            let criteria = Criteria { filters: always, ..Criteria::default() };
            let matching = |message: &Stored| {
                filters.iter().any(|filter| topic::matches(filter.as_bytes(), message.topic.as_bytes()))
            };
            let expected: Vec<(u64, &Stored)> = (begin..end)
                .map(|offset| (offset as u64, &self.messages[offset]))
                .filter(|(_, message)| matching(message))
                .collect();
            let (mut from, mut seen) = (begin as u64, Vec::new());
            while from < end as u64 {
                let limits = Limits { from: Offset(from), to: Offset(end as u64), rows: 10, bytes: 1 << 20 };
                let (columns, reached) = reader.read(&criteria, ColumnSet::ALL, &limits).unwrap();
                assert!(reached.0 > from);
                from = reached.0;
                seen.extend(rows(&columns));
            }
            assert_eq!(seen.len(), expected.len());
            for ((offset, topic, entry, value), (expected_offset, message)) in seen.iter().zip(&expected) {
                assert_eq!((offset, topic.as_str(), value), (expected_offset, message.topic, &message.payload));
                let before =
                    self.messages[..*offset as usize].iter().filter(|other| other.topic == message.topic).count();
                assert_eq!(*entry, before as u64, "entry numbers are dense in their topic");
            }
            let range = Limits { from: Offset(begin as u64), to: Offset(end as u64), rows: 0, bytes: u64::MAX };
            let half = reader.reach(&criteria, &Limits { rows: expected.len() / 2, ..range }).unwrap();
            assert_eq!(expected.iter().filter(|(offset, _)| *offset < half.end.0).count() as u64, half.rows);
            assert_eq!(half.rows, expected.len() as u64 / 2);
            let whole = reader.reach(&criteria, &Limits { rows: usize::MAX, ..range }).unwrap();
            assert_eq!((whole.end.0, whole.rows), (end as u64, expected.len() as u64));
        }
    }
}

fn rows(columns: &Columns) -> Vec<(u64, String, u64, Vec<u8>)> {
    let number = |bytes: &[u8], row: usize| u64::from_le_bytes(bytes[row * 8..row * 8 + 8].try_into().unwrap());
    let cut = |bytes: &holdfast_kernel::store::Bytes, row: usize| {
        let at = |row: usize| u32::from_le_bytes(bytes.offsets[row * 4..row * 4 + 4].try_into().unwrap()) as usize;
        bytes.data[at(row)..at(row + 1)].to_vec()
    };
    let row = |row| {
        let topic = String::from_utf8(cut(&columns.topic, row)).unwrap();
        (number(&columns.offset, row), topic, number(&columns.entry, row), cut(&columns.value, row))
    };
    (0..columns.rows).map(row).collect()
}

fn cursor(mark: u64, quota: u64) -> RetentionCursor {
    let subscriptions = vec![subscription(FILTER, 0, u64::MAX)];
    RetentionCursor { party: OWNER, mark: Offset(mark), subscriptions, keep_from: Offset(0), messages_maximum: quota }
}

fn run(seed: u64, steps: Vec<Step>) {
    let disk = FakeDisk::new(seed, 1 << 30);
    let (mut log, _) = open(&disk, options());
    let mut model = Model::default();
    let (mut now, mut stopped) = (2_000, false);
    for step in steps {
        now += 1_000;
        match step {
            Step::Append(messages) => {
                let made = messages.into_iter().map(|(topic, qos, retain, size)| {
                    let payload = vec![(model.messages.len() % 251) as u8; size];
                    Stored { topic: TOPICS[topic], qos, retain, payload }
                });
                let messages: Vec<Stored> = made.collect();
                let mut arrivals = arrivals(&messages);
                drop(log.append(&mut arrivals, &["#"], Timestamp(now)));
                let stored = arrivals.publishes.iter().zip(messages).filter(|(publish, _)| publish.stored.is_some());
                model.messages.extend(stored.map(|(_, message)| message));
            }
            Step::Control(key, value) => {
                let value = vec![value; usize::from(value)];
                if log.append_control(5, &[key], &value, Timestamp(now)).is_ok() {
                    model.controls.push((key, value));
                }
            }
            Step::Commit => {
                if log.commit().is_ok() {
                    model.durable = model.messages.len();
                    model.durable_controls = model.controls.len();
                }
            }
            Step::Checkpoint => drop(log.checkpoint(Timestamp(now))),
            Step::Retain(bytes, quota) => match retain(&mut log, u64::MAX, bytes, &[cursor(model.mark, quota)], now) {
                Ok(retention) => {
                    model.retained(&log, retention, quota);
                }
                Err(error) => {
                    assert!(stopped, "{error}");
                    return;
                }
            },
            Step::Follow(pages) => model.follower.follow(&mut log, pages),
            Step::StopAfter(writes) => {
                disk.stop_after(writes);
                stopped = true;
            }
            Step::Crash | Step::Reopen => {
                if matches!(step, Step::Crash) {
                    disk.crash();
                } else if stopped {
                    continue;
                }
                stopped = false;
                drop(log);
                let (opened, recovery) = open(&disk, options());
                log = opened;
                assert_eq!(recovery.damaged, vec![]);
                model.recovered(&mut log);
                model.check(&disk, &mut log);
            }
        }
        if !stopped {
            model.check(&disk, &mut log);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn what_is_needed_outlives_its_segment(seed: u64, steps in proptest::collection::vec(step(), 1..50)) {
        run(seed, steps);
    }
}

#[test]
fn a_reader_beside_a_writer_sees_only_what_is_durable() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    let mut reader = LogReader::open(Arc::new(disk.clone())).unwrap();
    for number in 0..100_u64 {
        log.append(&mut arrivals(&[message("a", &[1; 500])]), &[""; 0], Timestamp(number)).unwrap();
        reader.refresh(None, true).unwrap();
        assert_eq!(reader.end_offset(), Offset(number));
        log.commit().unwrap();
        reader.refresh(None, true).unwrap();
        assert_eq!(reader.end_offset(), Offset(number + 1));
        reader.refresh(Some(Offset(number / 2)), true).unwrap();
        assert_eq!(reader.end_offset(), Offset(number / 2));
    }
    assert_eq!(reader.offset_at(Timestamp(0)).unwrap(), Offset(0));
    reader.refresh(None, true).unwrap();
    for (first, end) in reader.split(&Criteria::default(), Offset(0), Offset(100), 4).unwrap().iter().zip(1..) {
        assert!(first.0 < first.1 && end <= 4);
    }
    assert_eq!(reader.topics(None, b"", 10).unwrap(), vec![(b"a".to_vec(), 100)]);
}

#[test]
fn a_range_reaches_about_as_many_bytes_as_were_asked_for_and_always_further() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    for number in 0..1_000_u64 {
        log.append(&mut arrivals(&[message("a", &[1; 1_000])]), &[""; 0], Timestamp(number)).unwrap();
    }
    while log.commit().unwrap() {}
    let mut reader = LogReader::open(Arc::new(disk.clone())).unwrap();
    reader.refresh(None, false).unwrap();
    let everything = Criteria::default();
    let limits = Limits { from: Offset(0), to: Offset(1_000), rows: usize::MAX, bytes: 300_000 };
    let reach = reader.reach(&everything, &limits).unwrap();
    assert!((200..450).contains(&reach.end.0), "{reach:?}");
    assert_eq!(reach.rows, reach.end.0);
    let mut from = Offset(0);
    while from < limits.to {
        let next = reader.reach(&everything, &Limits { from, bytes: 1, ..limits }).unwrap().end;
        assert!(next > from);
        from = next;
    }
}

#[test]
fn verification_names_the_place_of_a_flipped_bit() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    for number in 0..40_u64 {
        log.append(&mut arrivals(&[message("a", &[1; 1_000])]), &[""; 0], Timestamp(number)).unwrap();
        log.commit().unwrap();
    }
    let reader = LogReader::open(Arc::new(disk.clone())).unwrap();
    assert_eq!(reader.verify().unwrap(), vec![]);
    disk.flip_bit("segment-0000000001.log", 5_000);
    let damaged = reader.verify().unwrap();
    assert_eq!(damaged.len(), 1);
    assert!(damaged[0].first_position <= 5_000 && 5_000 < damaged[0].end_position);
}

#[test]
fn a_message_that_a_group_has_handed_over_stays_until_its_receiver_has_it() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    let (group, member) = (Party(50), Party(7));
    let flight = |offset, source| Flight { offset: Offset(offset), qos: 2, phase: Phase::Sent, source };
    let mut state = State::new(Offset(0));
    state.flights.insert(1, flight(3, Source::Group(group)));
    state.flights.insert(2, Flight { phase: Phase::Received, ..flight(4, Source::Group(group)) });
    let mut value = Vec::new();
    state.encode(&mut value);
    log.append_control(0, &member.0.to_le_bytes(), &value, Timestamp(1)).unwrap();
    for number in 0..60_u64 {
        log.append(&mut arrivals(&[message("a", &[number as u8; 1_000])]), &[""; 0], Timestamp(number)).unwrap();
        log.commit().unwrap();
    }
    retain(&mut log, u64::MAX, 0, &[], 100).unwrap();
    let mut scan = Scan { owed: vec![Offset(3), Offset(4)], ..log_support::scan_of("nobody", 0) };
    log.scan(std::slice::from_mut(&mut scan)).unwrap();
    assert_eq!(scan.found_owed.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn what_was_carried_goes_when_nobody_needs_it_any_more() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    for number in 0..400_u64 {
        log.append(&mut arrivals(&[message("a", &[1; 1_000])]), &[""; 0], Timestamp(number)).unwrap();
        log.commit().unwrap();
    }
    let mut retain = |mark: u64| {
        retain(&mut log, u64::MAX, 0, &[cursor(mark, u64::MAX)], 500).unwrap();
        let mut reader = LogReader::open(Arc::new(disk.clone())).unwrap();
        reader.refresh(None, true).unwrap();
        let segments = reader.segments();
        segments.iter().filter(|segment| segment.kind == SegmentKind::Carry).map(|segment| segment.bytes).sum::<u64>()
    };
    (0..20).for_each(|_| {
        retain(0);
    });
    let all = retain(0);
    assert!(all > 200_000, "a queue needs all of it: {all}");
    (0..20).for_each(|_| {
        retain(250);
    });
    let half = retain(250);
    assert!(half < all - 100_000, "it has got on: {half}");
    (0..20).for_each(|_| {
        retain(400);
    });
    assert!(retain(400) < 20_000, "it has all of it");
}

/// How many carry segments there are.
fn carries(disk: &FakeDisk) -> usize {
    disk.list().unwrap().iter().filter(|name| name.starts_with("carry-")).count()
}

#[test]
fn carry_segments_do_not_become_many_however_often_something_is_carried() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    let mut most = 0;
    for round in 1..=60_u64 {
        for number in 0..40 {
            log.append(&mut arrivals(&[message("a", &[1; 1_000])]), &[""; 0], Timestamp(number)).unwrap();
        }
        log.commit().unwrap();
        // What a queue has not seen yet is carried, and more than small: it has all of it a little later.
        let waiting = [cursor(log.end_offset().0 - 40, u64::MAX)];
        assert!(retain(&mut log, u64::MAX, 0, &waiting, 100).unwrap().carried_records > 0);
        if round % 6 == 0 {
            retain(&mut log, u64::MAX, 0, &waiting, 100).unwrap();
            most = most.max(carries(&disk));
        }
    }
    assert!(most <= 2, "{most} carry segments");
    let mark = log.end_offset().0 - 40;
    assert_eq!(scan_all(&mut log, FILTER, mark, 7).len(), 40, "what the queue has not seen is there");
}

#[test]
fn carry_segments_that_are_needed_are_left_as_they_are() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    for number in 0..200_u64 {
        log.append(&mut arrivals(&[message("a", &[1; 1_000])]), &[""; 0], Timestamp(number)).unwrap();
        log.commit().unwrap();
        retain(&mut log, u64::MAX, 16_384, &[cursor(0, u64::MAX)], 500).unwrap();
    }
    let before = (carries(&disk), log.statistics());
    for mark in [0, 90] {
        let thinned = retain(&mut log, u64::MAX, u64::MAX, &[cursor(mark, u64::MAX)], 500).unwrap();
        assert_eq!(thinned.removed_segments, 0, "less than half of them all is not needed any more");
    }
    assert_eq!((carries(&disk), log.statistics()), before);
    let thinned = retain(&mut log, u64::MAX, u64::MAX, &[cursor(150, u64::MAX)], 500).unwrap();
    assert_eq!((thinned.removed_segments, carries(&disk)), (before.0 as u64, 1));
}

/// Fills and removes segments until the log begins behind all that was there.
fn forget_everything(log: &mut Log) {
    let end = log.end_offset();
    while log.begin_offset() < end {
        log.append(&mut arrivals(&[message("filling", &[1; 4_000])]), &[""; 0], Timestamp(100)).unwrap();
        log.commit().unwrap();
        retain(log, u64::MAX, 0, &[], 100).unwrap();
    }
}

#[test]
fn a_deleted_retained_message_stays_deleted_when_the_record_that_deleted_it_is_gone() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    let retained = |payload: &[u8]| Stored { retain: true, ..message("a", payload) };
    log.append(&mut arrivals(&[retained(b"here")]), &[""; 0], Timestamp(1)).unwrap();
    forget_everything(&mut log);
    assert_eq!(log.retained(b"a", Offset(0), 1).0.len(), 1, "it was carried");
    log.append(&mut arrivals(&[retained(b"")]), &[""; 0], Timestamp(101)).unwrap();
    forget_everything(&mut log);
    assert!(log.retained(b"a", Offset(0), 1).0.is_empty());
    disk.crash();
    drop(log);
    let (log, _) = open(&disk, options());
    assert!(log.retained(b"a", Offset(0), 1).0.is_empty());
}

#[test]
fn whoever_has_a_control_record_is_not_told_the_copy_that_retention_makes_of_it() {
    let disk = FakeDisk::new(3, 1 << 30);
    let (mut log, _) = open(&disk, options());
    for key in 0..100_u8 {
        log.append_control(5, &[key], b"value", Timestamp(2)).unwrap();
    }
    log.append(&mut arrivals(&[message("a", &[0; 40_000])]), &["#"], Timestamp(2)).unwrap();
    log.commit().unwrap();
    assert_eq!(log.controls(1, usize::MAX, u64::MAX).unwrap().reached, 100);
    assert_eq!(log.controls(51, usize::MAX, u64::MAX).unwrap().rows.len(), 50);

    retain(&mut log, u64::MAX, 0, &[], 3).unwrap();
    log.append_control(5, &[7], b"", Timestamp(4)).unwrap();
    log.commit().unwrap();
    let found = log.controls(101, usize::MAX, u64::MAX).unwrap();
    let told: Vec<&[u8]> = found.rows.iter().map(|(_, _, key, _)| key.as_slice()).collect();
    // The first half was there when somebody last asked; of the other nobody has said that they have it.
    let expected: Vec<[u8; 1]> = (50..100).chain([7]).map(|key| [key]).collect();
    assert_eq!(told, expected);

    // Whoever begins anew has nothing of what was copied, on the pages behind the first one either.
    log.controls(found.reached + 1, 0, u64::MAX).unwrap();
    log.append(&mut arrivals(&[message("a", &[0; 40_000])]), &["#"], Timestamp(5)).unwrap();
    log.commit().unwrap();
    retain(&mut log, u64::MAX, 0, &[], 5).unwrap();
    let (mut keys, mut page) = (Vec::new(), log.controls(1, 60, u64::MAX).unwrap());
    while !page.is_all {
        keys.extend(page.rows.iter().map(|(_, _, key, _)| key[0]));
        page = log.controls(page.reached + 1, 60, u64::MAX).unwrap();
    }
    keys.extend(page.rows.iter().map(|(_, _, key, _)| key[0]));
    assert!((0..100).filter(|key| *key != 7).all(|key| keys.contains(&key)), "{keys:?}");
}

/// As many control records in force as take 100 KB.
fn put_in_force(log: &mut Log) {
    for key in 0..1_000_u16 {
        log.append_control(5, &key.to_le_bytes(), &[b'v'; 48], Timestamp(2)).unwrap();
    }
    log.commit().unwrap();
}

fn bytes_of(log: &Log) -> u64 {
    log.statistics().into_iter().find(|(name, _)| *name == "bytes").unwrap().1
}

#[test]
fn what_is_in_force_counts_only_where_the_disk_is_nearly_full() {
    for (reserve_bytes, is_low) in [(0, false), (u64::MAX, true)] {
        let disk = FakeDisk::new(3, 1 << 30);
        let (mut log, _) = open(&disk, Options { reserve_bytes, ..options() });
        log.append(&mut arrivals(&vec![message("a", &[1; 1_000]); 100]), &[""; 0], Timestamp(1)).unwrap();
        put_in_force(&mut log);
        assert!(retain(&mut log, u64::MAX, 65_536, &[], 500).unwrap().removed_segments > 0);
        log.commit().unwrap();
        assert!(bytes_of(&log) > 65_536, "as much is in force");
        let again = retain(&mut log, u64::MAX, 65_536, &[], 500).unwrap();
        assert_eq!(again.removed_segments > 0, is_low);
    }
}

#[test]
fn what_is_in_force_does_not_count_among_what_the_log_may_have() {
    let disk = FakeDisk::new(3, 1 << 30);
    let (mut log, _) = open(&disk, options());
    put_in_force(&mut log);
    let (mut anew, mut most) = (0, 0);
    for number in 0..400_u64 {
        log.append(&mut arrivals(&[message("a", &[1; 1_000])]), &[""; 0], Timestamp(number)).unwrap();
        log.commit().unwrap();
        let before = log.end_position().0;
        retain(&mut log, u64::MAX, 65_536, &[], 500).unwrap();
        anew += log.end_position().0 - before;
        most = most.max(bytes_of(&log));
    }
    // It has more than it may have already of what cannot go, and that is written anew about as fast as messages come.
    assert!(anew < 1_000_000, "{anew} bytes were written anew for 400 KB of messages");
    assert!(most < 65_536 + 110_000 + 6 * 16_384, "{most} bytes");
    disk.crash();
    drop(log);
    let (mut log, _) = open(&disk, options());
    assert_eq!(values_of(&mut log).len(), 256, "of each first byte of a key there is a value");
}
