//! The log against a small model, over a disk that loses, tears and reorders what was not synced.
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
use holdfast_kernel::error::Error;
use holdfast_kernel::flow::state::{Changes, Source, State};
use holdfast_kernel::flow::{Fate, Refusal, Scan, Subscription};
use holdfast_kernel::ids::{Offset, Party, Queue, Timestamp};
use holdfast_kernel::store::{Commit, Job, Log, Options, Question, Recovery, Wanted};
use holdfast_kernel::topic;
use log_support::{arrivals, message, open, options, scan_all, subscription, Asking, Stored, TOPICS};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const FILTERS: [&str; 7] = ["#", "a/#", "+", "b/+", "a/b", "nobody/+", "z"];

#[derive(Clone, Debug)]
enum Step {
    Append(Vec<(usize, u8, bool, usize)>),
    Control(u8, usize),
    Party(u32, u64),
    Begin,
    Commit,
    Checkpoint,
    /// Begins to write a file ahead, or goes on with that, or takes it over.
    Ahead,
    /// Begins to write the footer that waits longest, or goes on with that, or takes it over.
    Seal,
    StopAfter(u64),
    FailSync,
    Crash,
    Reopen,
    Check(usize, u8),
}

fn step() -> impl Strategy<Value = Step> {
    let message = (0..TOPICS.len(), 0_u8..3, proptest::bool::weighted(0.2), prop_oneof![0_usize..80, 0_usize..3_000]);
    prop_oneof![
        8 => proptest::collection::vec(message, 1..20).prop_map(Step::Append),
        2 => (0_u8..5, 0_usize..60).prop_map(|(key, size)| Step::Control(key, size)),
        1 => (1_u32..4, 0_u64..100).prop_map(|(party, mark)| Step::Party(party, mark)),
        2 => Just(Step::Begin),
        6 => Just(Step::Commit),
        1 => Just(Step::Checkpoint),
        2 => Just(Step::Ahead),
        4 => Just(Step::Seal),
        1 => (0_u64..12).prop_map(Step::StopAfter),
        1 => Just(Step::FailSync),
        1 => Just(Step::Crash),
        2 => Just(Step::Reopen),
        3 => (0..FILTERS.len(), any::<u8>()).prop_map(|(filter, from)| Step::Check(filter, from)),
    ]
}

/// What the log is to hold, and since when it is durable.
#[derive(Default)]
struct Model {
    messages: Vec<Stored>,
    durable: usize,
    controls: Vec<(u64, u8, Vec<u8>)>,
    durable_controls: usize,
    parties: Vec<(u32, Vec<u8>)>,
    durable_parties: usize,
}

impl Model {
    fn wanted(&self, filter: &str, from: u64, end: usize) -> Vec<(u64, Stored)> {
        let numbered =
            self.messages[..end].iter().enumerate().map(|(offset, message)| (offset as u64, message.clone()));
        numbered
            .filter(|(offset, message)| *offset >= from && message.qos > 0)
            .filter(|(_, message)| topic::matches(filter.as_bytes(), message.topic.as_bytes()))
            .collect()
    }

    fn append(&mut self, log: &mut Log, messages: &[(usize, u8, bool, usize)], now: Timestamp) {
        let messages: Vec<Stored> = messages
            .iter()
            .map(|&(topic, qos, retain, size)| {
                let payload = vec![(self.messages.len() % 251) as u8; size];
                Stored { topic: TOPICS[topic], qos, retain, payload }
            })
            .collect();
        let mut arrivals = arrivals(&messages);
        let stop = log.append(&mut arrivals, &["z"], now).is_err();
        for (publish, message) in arrivals.publishes.iter().zip(messages) {
            let wanted = message.qos > 0 || message.retain || message.topic == "z";
            if let Some(stored) = publish.stored {
                assert_eq!(stored.offset.0 as usize, self.messages.len());
                assert!(wanted);
                self.messages.push(message);
            } else {
                assert!(!wanted || stop || publish.fate != Fate::Accepted, "what is wanted is stored");
            }
        }
    }

    fn append_control(&mut self, log: &mut Log, key: u8, size: usize, now: Timestamp) {
        let (number, value) = (log.next_control_number(), vec![key; size]);
        if log.append_control(5, &[key], &value, now).is_ok() {
            self.controls.push((number, key, value));
        }
    }

    fn append_state(&mut self, log: &mut Log, party: u32, mark: u64, now: Timestamp) {
        let mut value = Vec::new();
        State::new(Offset(mark)).encode(&mut value);
        if log.append_control(0, &party.to_le_bytes(), &value, now).is_ok() {
            self.parties.push((party, value));
        }
    }

    fn ends(&self) -> [usize; 3] {
        [self.messages.len(), self.controls.len(), self.parties.len()]
    }

    fn committed(&mut self, ends: [usize; 3]) {
        [self.durable, self.durable_controls, self.durable_parties] = ends;
    }

    /// What was not durable may be gone, from some point on.
    fn recovered(&mut self, log: &mut Log) {
        let end = log.end_offset().0 as usize;
        assert!(
            (self.durable..=self.messages.len()).contains(&end),
            "{} <= {end} <= {}",
            self.durable,
            self.messages.len()
        );
        self.messages.truncate(end);
        let controls = log.controls(0, usize::MAX, u64::MAX).unwrap().rows;
        assert!(controls.len() >= self.durable_controls && controls.len() <= self.controls.len());
        self.controls.truncate(controls.len());
        for (found, expected) in controls.iter().zip(&self.controls) {
            assert_eq!((found.0, &found.2, &found.3), (expected.0, &vec![expected.1], &expected.2));
        }
        self.recovered_parties(log);
        assert_eq!(log.durable_offset(), log.end_offset());
        self.committed(self.ends());
    }

    fn recovered_parties(&mut self, log: &Log) {
        for party in 1..4 {
            let written: Vec<&Vec<u8>> = self.parties[self.durable_parties..]
                .iter()
                .filter(|(of, _)| *of == party)
                .map(|(_, state)| state)
                .collect();
            let durable =
                self.parties[..self.durable_parties].iter().rev().find(|(of, _)| *of == party).map(|(_, state)| state);
            let found = log.delivery_state(Party(party));
            assert!(found.as_ref() == durable || written.iter().any(|state| Some(*state) == found.as_ref()));
        }
        let kept: Vec<(u32, Vec<u8>)> =
            (1..4).filter_map(|party| Some((party, log.delivery_state(Party(party))?))).collect();
        self.parties = kept;
    }

    fn check(&self, log: &mut Log, filter: &str, from: u64, page: u32) {
        let end = log.durable_offset().0 as usize;
        let expected = self.wanted(filter, from, end);
        assert_eq!(scan_all(log, filter, from, page), expected, "scan {filter} from {from}");
        let subscriptions = [subscription(filter, 0, u64::MAX)];
        let half = (from + end as u64) / 2;
        for to in [half, end as u64] {
            let counted = log.count(&subscriptions, (Offset(from), Offset(to)), Timestamp(0));
            let naive = expected.iter().filter(|(offset, _)| *offset < to).count() as u64;
            assert_eq!(counted, naive, "count {filter} in {from}..{to}");
        }
        for newest in [0, 1, 3, 1_000] {
            let first = log.offset_of_newest(&subscriptions, Offset(from), newest, Timestamp(0));
            let left = expected.iter().filter(|(offset, _)| *offset >= first).count() as u64;
            assert_eq!(left, newest.min(expected.len() as u64), "newest {newest} of {filter} from {from}");
        }
        self.check_retained(log, filter);
    }

    fn check_retained(&self, log: &Log, filter: &str) {
        if log.end_offset() != log.durable_offset() {
            return;
        }
        let mut retained = BTreeMap::new();
        for (offset, message) in self.messages.iter().enumerate().filter(|(_, message)| message.retain) {
            if message.payload.is_empty() {
                retained.remove(message.topic);
            } else {
                retained.insert(message.topic, offset as u64);
            }
        }
        let matching = retained.into_iter().filter(|(name, _)| topic::matches(filter.as_bytes(), name.as_bytes()));
        let mut offsets: Vec<u64> = matching.map(|(_, offset)| offset).collect();
        offsets.sort_unstable();
        let (found, _) = log.retained(filter.as_bytes(), Offset(0), 100);
        let found: Vec<u64> = found.into_iter().map(|offset| offset.0).collect();
        assert_eq!(found, offsets, "retained {filter}");
    }
}

/// Begins, goes on or takes over; what is on its way then.
fn write_ahead(log: &mut Log, job: Option<Job>, stopped: bool) -> Option<Job> {
    let Some(mut job) = job else { return log.ahead_job() };
    if job.step() {
        return Some(job);
    }
    assert!(log.finish(job).is_ok() || stopped);
    None
}

/// Begins, goes on or takes over; what is on its way then.
fn seal(log: &mut Log, job: Option<Job>, stopped: bool) -> Option<Job> {
    let Some(mut job) = job else {
        while !log.prepare_seal(2) {}
        return log.seal_job();
    };
    if job.step() {
        return Some(job);
    }
    let finished = log.finish(job);
    assert!(finished.is_ok() || stopped);
    finished.ok()?.next
}

fn fail_sync(disk: &FakeDisk, log: &mut Log, model: &mut Model, now: Timestamp) {
    // Something has to be synced, or the fault would meet the next opening.
    let controls = model.controls.len();
    model.append_control(log, 9, 0, now);
    if model.controls.len() > controls {
        disk.fail_next_sync();
        assert!(log.commit().is_err());
    }
}

fn open_to_seal(disk: &FakeDisk, leaves_footers: bool) -> (Log, Recovery) {
    let (mut log, recovery) = open(disk, options());
    if leaves_footers {
        log.leave_footers();
    }
    (log, recovery)
}

fn run(seed: u64, steps: Vec<Step>) {
    let disk = FakeDisk::new(seed, 1 << 30);
    let leaves_footers = seed % 4 > 0;
    let (mut log, _) = open_to_seal(&disk, leaves_footers);
    let mut model = Model::default();
    let mut now = 2_000;
    let mut stopped = false;
    let mut flight: Option<(Commit, [usize; 3])> = None;
    let (mut ahead, mut sealing): (Option<Job>, Option<Job>) = (None, None);
    for step in steps {
        now += 1_000;
        // What a commit that is on its way lets happen meanwhile; everything else waits for its end.
        let passing = matches!(
            step,
            Step::Append(_) | Step::Control(..) | Step::Party(..) | Step::StopAfter(_) | Step::Ahead | Step::Seal
        );
        if let Some((commit, ends)) = flight.take_if(|_| !passing) {
            let ended = commit.run();
            match log.finish_commit(commit, ended) {
                Ok(()) => model.committed(ends),
                Err(error) => assert!(stopped, "{error}"),
            }
        }
        match step {
            Step::Append(messages) => {
                model.append(&mut log, &messages, Timestamp(now));
            }
            Step::Control(key, size) => model.append_control(&mut log, key, size, Timestamp(now)),
            Step::Party(party, mark) => model.append_state(&mut log, party, mark, Timestamp(now)),
            Step::Begin => flight = log.begin_commit().ok().flatten().map(|commit| (commit, model.ends())),
            Step::Commit => match log.commit() {
                Ok(_) => model.committed(model.ends()),
                Err(error) => assert!(stopped || error == Error::Poisoned, "{error}"),
            },
            Step::FailSync => fail_sync(&disk, &mut log, &mut model, Timestamp(now)),
            Step::Ahead => ahead = write_ahead(&mut log, ahead.take(), stopped),
            Step::Seal => sealing = seal(&mut log, sealing.take(), stopped),
            Step::Checkpoint => drop(log.checkpoint(Timestamp(now))),
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
                (ahead, sealing) = (None, None);
                drop(log);
                let (opened, recovery) = open_to_seal(&disk, leaves_footers);
                log = opened;
                assert_eq!(recovery.damaged, vec![], "nothing was damaged");
                model.recovered(&mut log);
            }
            Step::Check(filter, from) if !stopped => {
                let from = u64::from(from) * log.end_offset().0 / 256;
                model.check(&mut log, FILTERS[filter], from, u32::from(from as u8 % 7) + 1);
            }
            Step::Check(..) => {}
        }
    }
    if !stopped {
        for filter in FILTERS {
            model.check(&mut log, filter, 0, 1_000);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    // accepts: S0.3
    #[test]
    fn what_was_durable_is_there_after_any_crash(seed: u64, steps in proptest::collection::vec(step(), 1..60)) {
        run(seed, steps);
    }
}

#[test]
fn a_segment_that_is_begun_while_the_next_file_is_made_lies_before_it() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    let mut count = 0_u64;
    let mut put = |log: &mut Log, messages: u64| {
        for _ in 0..messages {
            log.append(&mut arrivals(&[message("a", &[count as u8; 1_000])]), &[""; 0], Timestamp(5)).unwrap();
            count += 1;
        }
    };
    // The log rolls twice: the second time while the commit, which makes a file for that, is on its way.
    put(&mut log, 20);
    let commit = log.begin_commit().unwrap().unwrap();
    put(&mut log, 20);
    let ended = commit.run();
    log.finish_commit(commit, ended).unwrap();
    put(&mut log, 20);
    log.commit().unwrap();
    let all: Vec<u64> = (0..60).collect();
    let found = |log: &mut Log| scan_all(log, "a", 0, 7).into_iter().map(|(offset, _)| offset).collect::<Vec<u64>>();
    assert_eq!(found(&mut log), all);
    assert!(all.iter().all(|offset| log.locate(Offset(*offset)).unwrap().is_some()));
    drop(log);
    let (mut log, recovery) = open(&disk, options());
    assert_eq!((found(&mut log), recovery.damaged, recovery.trimmed_bytes), (all, vec![], 0));
}

#[test]
fn a_failed_sync_poisons_until_the_log_is_opened_again() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    log.append(&mut arrivals(&[message("a", b"1")]), &[""; 0], Timestamp(5)).unwrap();
    disk.fail_next_sync();
    assert!(matches!(log.commit(), Err(Error::Disk { operation: "sync", .. })));
    assert_eq!(log.durable_offset(), Offset(0));
    assert_eq!(log.append(&mut arrivals(&[message("a", b"2")]), &[""; 0], Timestamp(6)), Err(Error::Poisoned));
    assert_eq!(log.append_control(1, b"k", b"v", Timestamp(6)), Err(Error::Poisoned));
    assert_eq!(log.commit(), Err(Error::Poisoned));
    disk.crash();
    let (mut log, _) = open(&disk, options());
    log.append(&mut arrivals(&[message("a", b"3")]), &[""; 0], Timestamp(7)).unwrap();
    assert_eq!(log.commit(), Ok(true));
}

#[test]
fn a_full_disk_refuses_messages_takes_control_records_and_recovers_by_itself() {
    let disk = FakeDisk::new(1, 300_000);
    let options = Options { reserve_bytes: 60_000, ..options() };
    let (mut log, _) = open(&disk, options);
    let mut now = 10;
    let mut refused = false;
    let mut stored = 0;
    while !refused {
        now += 1;
        let mut turn = arrivals(&[message("a", &[7; 1_000])]);
        log.append(&mut turn, &[""; 0], Timestamp(now)).unwrap();
        refused = turn.publishes[0].fate == Fate::Refused(Refusal::NoRoom);
        assert_eq!(turn.publishes[0].stored.is_some(), !refused);
        stored += u64::from(!refused);
        log.commit().unwrap();
    }
    assert!(stored > 100, "{stored}");
    assert!(log.append_control(1, b"k", &[1; 1_000], Timestamp(now)).is_ok());
    assert_eq!(log.commit(), Ok(true));
    disk.set_capacity(1 << 30);
    let mut turn = arrivals(&[message("a", b"again")]);
    log.append(&mut turn, &[""; 0], Timestamp(now + 2_000_000)).unwrap();
    assert_eq!(turn.publishes[0].fate, Fate::Accepted);
    assert_eq!(turn.publishes[0].stored.map(|stored| stored.offset), Some(Offset(stored)));
}

#[test]
fn a_write_that_finds_no_space_loses_nothing() {
    for crash in [false, true] {
        let disk = FakeDisk::new(3, 1 << 30);
        let (mut log, _) = open(&disk, options());
        log.append(&mut arrivals(&[message("a", b"first")]), &[""; 0], Timestamp(5)).unwrap();
        log.commit().unwrap();
        // One record that reaches beyond what was set aside for its segment.
        log.append(&mut arrivals(&[message("a", &[1; 40_000])]), &[""; 0], Timestamp(6)).unwrap();
        let used = (1 << 30) - disk.free_bytes().unwrap();
        disk.set_capacity(used);
        assert!(matches!(log.commit(), Err(Error::Disk { full: true, .. })));
        assert_eq!(log.durable_offset(), Offset(1));
        disk.set_capacity(1 << 30);
        if crash {
            disk.crash();
            let (mut log, recovery) = open(&disk, options());
            assert_eq!(recovery.damaged, vec![]);
            assert_eq!(scan_all(&mut log, "a", 0, 10).len() as u64, log.end_offset().0);
            continue;
        }
        log.append(&mut arrivals(&[message("a", b"third")]), &[""; 0], Timestamp(2_000_000)).unwrap();
        log.commit().unwrap();
        let (mut log, recovery) = open(&disk, options());
        assert_eq!(recovery.damaged, vec![]);
        assert_eq!(scan_all(&mut log, "a", 0, 10).len(), 3);
    }
}

#[test]
fn a_newer_format_is_refused_and_left_alone() {
    let disk = FakeDisk::new(1, 1 << 30);
    drop(open(&disk, options()));
    disk.remove("format").unwrap();
    disk.create("format", 0).unwrap().write_at(0, b"holdfast-log 3\n").unwrap();
    let before = disk.list().unwrap();
    let result = Log::open(Arc::new(disk.clone()), options(), Timestamp(1));
    assert!(matches!(result.err(), Some(Error::NewerFormat { version: 3, .. })));
    assert_eq!(disk.list().unwrap(), before);
}

#[test]
fn a_queue_weighs_what_its_messages_weigh_on_average() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    for _ in 0..40 {
        let messages = [message("a", &[1; 1_000]), message("b/x", &[2; 5_000])];
        log.append(&mut arrivals(&messages), &[""; 0], Timestamp(5)).unwrap();
        log.commit().unwrap();
    }
    let (ours, all) = ([subscription("a", 0, u64::MAX)], [subscription("#", 0, u64::MAX)]);
    let mut weigh = |subscriptions: &[Subscription], from: u64, to: u64| {
        let range = (Offset(from), Offset(to));
        let mut question = Question::new(subscriptions.into(), Party(3), range, Timestamp(0), Wanted::Bytes);
        log.answer(&mut question, u64::MAX).unwrap().unwrap()
    };
    let whole = weigh(&ours, 0, 80);
    assert!((40_000..45_000).contains(&whole), "{whole}");
    assert!(weigh(&ours, 0, 40).abs_diff(whole / 2) < 100);
    assert_eq!(weigh(&ours, 80, 80), 0);
    assert!(weigh(&all, 0, 80) > whole + 200_000);
}

#[test]
fn a_message_that_a_group_has_handed_over_is_the_groups_no_more() {
    let (group, member) = (Party(50), Party(7));
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    let put = |log: &mut Log, party: Party, value: &[u8]| {
        log.append_control(0, &party.0.to_le_bytes(), value, Timestamp(5)).unwrap();
    };
    let changed = |changes: Changes| {
        let mut bytes = Vec::new();
        changes.encode(&mut bytes);
        bytes
    };
    let mark = |log: &mut Log| State::decode(&log.delivery_state(group).unwrap()).unwrap().mark;
    log.append(&mut arrivals(&[message("a", b"1"), message("a", b"2")]), &[""; 0], Timestamp(5)).unwrap();
    let mut state = Vec::new();
    State::new(Offset(0)).encode(&mut state);
    put(&mut log, group, &state);
    let sent = vec![(1, Offset(0), Source::Group(group))];
    put(&mut log, member, &changed(Changes { sent, ..Changes::default() }));
    assert_eq!(mark(&mut log), Offset(1));
    log.commit().unwrap();
    // What the group itself had to say was lost with the power.
    disk.crash();
    let (mut log, _) = open(&disk, options());
    assert_eq!(mark(&mut log), Offset(1));
    put(&mut log, member, &changed(Changes { completed: vec![1], ..Changes::default() }));
    log.commit().unwrap();
    drop(log);
    let (mut log, _) = open(&disk, options());
    assert_eq!(mark(&mut log), Offset(1));
    assert!(State::decode(&log.delivery_state(member).unwrap()).unwrap().flights.is_empty());
}

proptest! {
    #[test]
    fn single_messages_are_found_in_whatever_order_they_are_asked_for(
        wanted in proptest::collection::vec(0_u64..320, 1..80),
        sorted in any::<bool>(),
    ) {
        let disk = FakeDisk::new(1, 1 << 30);
        let (mut log, _) = open(&disk, options());
        for number in 0..300_u16 {
            let payload = vec![number.to_le_bytes()[0]; 200];
            log.append(&mut arrivals(&[message("a", &payload)]), &[""; 0], Timestamp(5)).unwrap();
        }
        log.commit().unwrap();
        let mut wanted = wanted;
        if sorted {
            wanted.sort_unstable();
        }
        let mut scan = Scan {
 whole: false,
            queue: Queue(1),
            owner: Party(1),
            subscriptions: Arc::from([]),
            receive: None,
            key: None,
            from: Offset(0),
            owed: wanted.iter().copied().map(Offset).collect(),
            retained: None,
            records_maximum: 0,
            bytes_maximum: 0,
            found: Vec::new(),
            found_owed: Vec::new(),
            reached: Offset(0),
            missing: None,
        };
        log.scan(std::slice::from_mut(&mut scan)).unwrap();
        let found: Vec<Option<u64>> = scan.found_owed.iter().map(|found| found.as_ref().map(|f| f.offset.0)).collect();
        let expected: Vec<Option<u64>> = wanted.iter().map(|offset| (*offset < 300).then_some(*offset)).collect();
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn a_scan_from_the_start_does_not_read_the_control_records_before_the_first_message() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, Options { segment_bytes: 1 << 20, ..options() });
    for number in 0..3_000_u32 {
        log.append_control(9, &number.to_le_bytes(), &[1; 100], Timestamp(5)).unwrap();
    }
    log.append(&mut arrivals(&[message("a", b"first")]), &[""; 0], Timestamp(5)).unwrap();
    log.commit().unwrap();
    log.close().unwrap();
    drop(log);
    // Whoever read this record would count the damage.
    disk.flip_bit("segment-0000000001.log", 5_000);
    let (mut log, _) = open(&disk, Options { segment_bytes: 1 << 20, ..options() });
    assert_eq!(scan_all(&mut log, "a", 0, 7).len(), 1);
    assert_eq!(log.statistics().iter().find(|(name, _)| *name == "damaged_reads"), Some(&("damaged_reads", 0)));
}
