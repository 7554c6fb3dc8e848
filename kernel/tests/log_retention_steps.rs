//! Runs of retention whose steps have the log go on between them, and power cuts after any of them.
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
use holdfast_kernel::flow::state::{Changes, Phase, Source, State};
use holdfast_kernel::ids::{Offset, Party, Timestamp};
use holdfast_kernel::store::{Job, Log, RetentionCursor};
use holdfast_kernel::topic;
use log_support::{arrivals, message, open, options, scan_all, subscription, without_checkpoints, Stored, TOPICS};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// The queue whose messages are kept, and the group whose messages one member is handed.
const FILTER: &str = "a/#";
const OWNER: Party = Party(3);
const GROUP_FILTER: &str = "b/+";
const GROUP: Party = Party(50);
const MEMBER: Party = Party(9);
const AT_REST: Party = Party(70);

#[derive(Clone, Debug)]
enum Step {
    Append(usize, bool, bool, usize),
    Control(u8, u8),
    Commit,
    /// The queue acknowledges some of what it has not.
    Acknowledge(usize),
    /// The group hands its oldest message over.
    HandOver,
    /// Its member has it.
    Complete,
    /// The next step of the run, or the first one of the next; how much it keeps.
    Retain(u64),
    StopAfter(u64),
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let flag = |weight| proptest::bool::weighted(weight);
    prop_oneof![
        10 => (0..TOPICS.len(), flag(0.3), flag(0.3), 500_usize..2_500)
            .prop_map(|(topic, retain, empty, size)| Step::Append(topic, retain, empty, size)),
        1 => (0_u8..4, 0_u8..3).prop_map(|(key, value)| Step::Control(key, value)),
        4 => Just(Step::Commit),
        1 => (1_usize..9).prop_map(Step::Acknowledge),
        2 => Just(Step::HandOver),
        1 => Just(Step::Complete),
        24 => prop_oneof![Just(u64::MAX), 3_u64..30].prop_map(Step::Retain),
        1 => (0_u64..6).prop_map(Step::StopAfter),
        1 => Just(Step::Crash),
    ]
}

/// What comes next in a run.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum Stage {
    #[default]
    Begin,
    Survey,
    Renew,
    Checkpoint,
    Visit,
    Find,
    Carry,
    Told,
}

struct Run {
    log: Log,
    disk: FakeDisk,
    stage: Stage,
    job: Option<Job>,
    messages: Vec<Stored>,
    durable: usize,
    controls: Vec<(u8, Vec<u8>)>,
    durable_controls: usize,
    /// The queue needs nothing below.
    mark: u64,
    now: u64,
    removed: u64,
}

impl Run {
    fn new(seed: u64) -> Run {
        let disk = FakeDisk::new(seed, 1 << 30);
        let (mut log, _) = open(&disk, options());
        for (party, mark) in [(GROUP, 0), (AT_REST, 4_711)] {
            let mut state = Vec::new();
            State::new(Offset(mark)).encode(&mut state);
            log.append_control(0, &party.0.to_le_bytes(), &state, Timestamp(5)).unwrap();
        }
        log.commit().unwrap();
        Run {
            log,
            disk,
            stage: Stage::Begin,
            job: None,
            messages: Vec::new(),
            durable: 0,
            controls: Vec::new(),
            durable_controls: 0,
            mark: 0,
            now: 2_000,
            removed: 0,
        }
    }

    fn matching(&self, filter: &str, from: u64) -> Vec<(u64, Stored)> {
        let numbered =
            self.messages[..self.durable].iter().enumerate().map(|(at, message)| (at as u64, message.clone()));
        let wanted = |message: &Stored| message.qos > 0 && topic::matches(filter.as_bytes(), message.topic.as_bytes());
        numbered.filter(|(at, message)| *at >= from && wanted(message)).collect()
    }

    fn state(&self, party: Party) -> State {
        self.log.delivery_state(party).map_or_else(State::default, |state| State::decode(&state).unwrap())
    }

    fn change(&mut self, party: Party, changes: &Changes) {
        let mut value = Vec::new();
        changes.encode(&mut value);
        drop(self.log.append_control(0, &party.0.to_le_bytes(), &value, Timestamp(self.now)));
    }

    fn hand_over(&mut self) {
        let state = self.state(GROUP);
        let open = |offset: &u64| *offset >= state.mark.0 && !state.acknowledged.contains(*offset);
        let next = self.matching(GROUP_FILTER, 0).into_iter().map(|(offset, _)| offset).find(open);
        let identifiers = self.state(MEMBER).flights;
        let free = (1..100_u16).find(|identifier| !identifiers.contains_key(identifier));
        if let (Some(offset), Some(identifier)) = (next, free) {
            let sent = vec![(identifier, Offset(offset), Source::Group(GROUP))];
            self.change(MEMBER, &Changes { sent, ..Changes::default() });
        }
    }

    fn complete(&mut self) {
        let completed: Vec<u16> = self.state(MEMBER).flights.keys().take(1).copied().collect();
        self.change(MEMBER, &Changes { completed, ..Changes::default() });
    }

    fn cursor(&self, party: Party, filter: &str, mark: u64, quota: u64) -> RetentionCursor {
        let subscriptions = vec![subscription(filter, 0, u64::MAX)];
        let (mark, keep_from) = (Offset(mark), Offset(0));
        RetentionCursor { party, mark, subscriptions, keep_from, messages_maximum: quota }
    }

    /// One step of a run; errors are those of a disk that was stopped.
    fn retain(&mut self, quota: u64) -> Result<(), holdfast_kernel::error::Error> {
        let now = Timestamp(self.now);
        if let Some(job) = &mut self.job {
            if !job.step() {
                let before = self.removed;
                let finished = self.log.finish(self.job.take().unwrap())?;
                self.removed += finished.removed_segments;
                self.job = finished.next;
                if self.stage == Stage::Told && self.removed == before && self.job.is_some() {
                    // The copy is about to take the place of the range: what it was found not to need, because its
                    // receiver has it, is durable before.
                    self.log.commit()?;
                }
                if self.stage == Stage::Told && self.job.is_none() {
                    self.stage = Stage::Begin;
                }
            }
            return Ok(());
        }
        self.stage = match self.stage {
            Stage::Begin if self.log.begin_retention(u64::MAX, 20_000, now)? => Stage::Survey,
            Stage::Begin if self.log.begin_thinning(now)? => Stage::Survey,
            Stage::Begin => Stage::Begin,
            Stage::Survey => {
                self.job = self.log.survey_job();
                Stage::Renew
            }
            Stage::Renew if !self.log.renew_piece(2, now)? => Stage::Renew,
            Stage::Renew => {
                self.log.begin_checkpoint(now)?;
                Stage::Checkpoint
            }
            Stage::Checkpoint if self.log.retention_may_go_on() => {
                let mark = self.state(GROUP).mark.0;
                let own = self.cursor(OWNER, FILTER, self.mark, quota);
                self.log.visit(vec![self.cursor(GROUP, GROUP_FILTER, mark, u64::MAX), own]);
                Stage::Visit
            }
            Stage::Checkpoint => {
                if self.log.checkpoint_piece(2) {
                    self.job = self.log.checkpoint_job();
                }
                Stage::Checkpoint
            }
            Stage::Visit => {
                let (losses, all) = self.log.visit_piece(1)?;
                for loss in losses {
                    assert_eq!(loss.party, OWNER);
                    let lost = self.matching(FILTER, loss.first.0);
                    assert_eq!(lost.iter().filter(|(at, _)| *at < loss.end.0).count() as u64, loss.count);
                    self.mark = loss.end.0;
                }
                if all {
                    Stage::Find
                } else {
                    Stage::Visit
                }
            }
            Stage::Find if !self.log.find_piece(1)? => Stage::Find,
            Stage::Find => Stage::Carry,
            Stage::Carry => {
                self.job = self.log.carry_job(now);
                Stage::Told
            }
            // The copy was not worth it.
            Stage::Told => Stage::Begin,
        };
        Ok(())
    }

    fn crash(&mut self) {
        self.disk.crash();
        (self.job, self.stage) = (None, Stage::Begin);
        let (opened, recovery) = open(&self.disk, options());
        assert_eq!(recovery.damaged, vec![]);
        self.log = opened;
        let end = self.log.end_offset().0 as usize;
        assert!((self.durable..=self.messages.len()).contains(&end));
        self.messages.truncate(end);
        self.durable = end;
        let found: Vec<(u8, Vec<u8>)> = self
            .log
            .controls(0, usize::MAX, u64::MAX)
            .unwrap()
            .rows
            .into_iter()
            .map(|(_, _, key, value)| (key[0], value))
            .collect();
        let count = (self.durable_controls..=self.controls.len())
            .find(|count| in_force(&self.controls[..*count]) == in_force(&found))
            .expect("control records in force are kept");
        self.controls.truncate(count);
        self.durable_controls = count;
        // Should no checkpoint be whole, the records have it all; but what retained messages were deleted.
        let (mut plain, _) = open(&without_checkpoints(&self.disk), options());
        for party in [GROUP, MEMBER, AT_REST] {
            assert_eq!(plain.delivery_state(party), self.log.delivery_state(party), "{party:?}");
        }
        let (expected, mark) = (self.matching(FILTER, self.mark), self.mark);
        assert_eq!(scan_all(&mut plain, FILTER, mark, 7), expected, "names of topics are kept");
    }

    fn check(&mut self) {
        self.durable = self.log.durable_offset().0 as usize;
        let (expected, mark) = (self.matching(FILTER, self.mark), self.mark);
        assert_eq!(scan_all(&mut self.log, FILTER, mark, 7), expected, "what the queue has not seen is kept, once");
        let group = self.state(GROUP);
        for (offset, _) in self.matching(GROUP_FILTER, group.mark.0) {
            if !group.acknowledged.contains(offset) {
                assert!(self.log.locate(Offset(offset)).unwrap().is_some(), "the group's message {offset} is kept");
            }
        }
        for flight in self.state(MEMBER).flights.values().filter(|flight| flight.phase == Phase::Sent) {
            assert!(self.log.locate(flight.offset).unwrap().is_some(), "{flight:?} was handed over and is kept");
        }
        assert_eq!(self.state(AT_REST).mark, Offset(4_711), "a party at rest keeps its state");
        if self.log.end_offset() != self.log.durable_offset() {
            return;
        }
        let mut retained = BTreeMap::new();
        for (offset, message) in self.messages.iter().enumerate().filter(|(_, message)| message.retain) {
            retained.insert(message.topic, (offset as u64, message.payload.is_empty()));
        }
        let mut expected: Vec<u64> = retained.values().filter(|(_, empty)| !empty).map(|(offset, _)| *offset).collect();
        expected.sort_unstable();
        let found: Vec<u64> = self.log.retained(b"#", Offset(0), 100).0.into_iter().map(|offset| offset.0).collect();
        assert_eq!(found, expected);
        for offset in found {
            assert!(self.log.locate(Offset(offset)).unwrap().is_some(), "retained message {offset} is kept");
        }
    }
}

fn in_force(controls: &[(u8, Vec<u8>)]) -> BTreeMap<u8, Vec<u8>> {
    let all: BTreeMap<u8, Vec<u8>> = controls.iter().cloned().collect();
    all.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

fn run(seed: u64, steps: &[Step]) -> u64 {
    let mut run = Run::new(seed);
    let mut stopped = false;
    for step in steps.iter().chain([&Step::Crash]) {
        run.now += 1_000;
        match *step {
            Step::Append(topic, retain, empty, size) => {
                let payload = if retain && empty { vec![] } else { vec![(run.messages.len() % 251) as u8; size] };
                let stored = Stored { retain, ..message(TOPICS[topic], &payload) };
                let mut turn = arrivals(std::slice::from_ref(&stored));
                drop(run.log.append(&mut turn, &[""; 0], Timestamp(run.now)));
                if turn.publishes[0].stored.is_some() {
                    run.messages.push(stored);
                }
            }
            Step::Control(key, value) => {
                let value = vec![value; usize::from(value)];
                if run.log.append_control(5, &[key], &value, Timestamp(run.now)).is_ok() {
                    run.controls.push((key, value));
                }
            }
            Step::Commit => {
                if run.log.commit().is_ok() {
                    run.durable_controls = run.controls.len();
                }
            }
            Step::Acknowledge(count) => {
                let waiting = run.matching(FILTER, run.mark);
                run.mark = waiting.get(count).map_or(run.mark, |(offset, _)| *offset);
            }
            Step::HandOver if !stopped => run.hand_over(),
            Step::Complete if !stopped => run.complete(),
            Step::HandOver | Step::Complete => {}
            Step::Retain(quota) => {
                if let Err(error) = run.retain(quota) {
                    assert!(stopped, "{error}");
                    run.log.abandon_retention();
                    (run.stage, run.job) = (Stage::Begin, None);
                }
            }
            Step::StopAfter(writes) => {
                run.disk.stop_after(writes);
                stopped = true;
            }
            Step::Crash => {
                run.crash();
                stopped = false;
            }
        }
        // What it shows changes with these; in between it would only be slow.
        let shows = matches!(step, Step::Crash | Step::Commit) || (run.job.is_some() && run.stage == Stage::Told);
        if !stopped && shows {
            run.check();
        }
    }
    run.removed
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn what_is_needed_outlives_its_segment_whatever_happens_between_the_steps(
        seed: u64,
        steps in proptest::collection::vec(step(), 100..400)
    ) {
        run(seed, &steps);
    }
}

/// A life in which runs come to their end.
fn steady() -> Vec<Step> {
    let mut steps = Vec::new();
    for number in 0..60_usize {
        let empty = number % 11 == 5;
        steps.push(Step::Append(number % TOPICS.len(), number % 3 == 0, empty, 1_200));
        steps.push(Step::Append(number % 2 + 1, false, false, 1_200));
        steps.push(Step::Control((number % 4) as u8, (number % 3) as u8));
        steps.push(Step::Commit);
        if number % 5 == 0 {
            steps.push(Step::HandOver);
        }
        steps.extend((0..12).map(|_| Step::Retain(if number % 2 == 0 { 25 } else { u64::MAX })));
    }
    steps
}

#[test]
fn a_power_cut_after_any_step_loses_nothing_and_doubles_nothing() {
    let steps = steady();
    assert!(run(1, &steps) >= 3, "runs come to their end");
    for cut in (0..steps.len()).step_by(23) {
        let mut cut_short = steps[..cut].to_vec();
        cut_short.extend([Step::Crash, Step::Commit]);
        cut_short.extend_from_slice(&steps[cut..]);
        run(cut as u64, &cut_short);
    }
}

#[test]
fn a_disk_that_stops_at_any_write_of_a_run_loses_nothing() {
    let steps = steady();
    for writes in 0..24 {
        let middle = steps.len() / 2 + (writes as usize) * 5;
        let mut stops = steps[..middle].to_vec();
        stops.push(Step::StopAfter(writes % 8));
        stops.extend_from_slice(&steps[middle..middle + 40]);
        stops.push(Step::Crash);
        run(writes, &stops);
    }
}

/// What happens in the middle of a run, between what has been asked of queues and what else is looked for; then the
/// power is cut as soon as the segments are gone.
fn cut_behind(before: &[Step], in_between: &[Step]) {
    let mut run = Run::new(3);
    let go = |run: &mut Run, steps: &[Step]| {
        for step in steps {
            match *step {
                Step::Append(topic, retain, empty, size) => {
                    let payload = if empty { vec![] } else { vec![1; size] };
                    let stored = Stored { retain, ..message(TOPICS[topic], &payload) };
                    run.log.append(&mut arrivals(std::slice::from_ref(&stored)), &[""; 0], Timestamp(9)).unwrap();
                    run.messages.push(stored);
                }
                Step::HandOver => run.hand_over(),
                _ => drop(run.log.commit().unwrap()),
            }
        }
        run.durable = run.log.durable_offset().0 as usize;
    };
    go(&mut run, before);
    for number in 0..40 {
        go(&mut run, &[Step::Append(number % 3, false, false, 2_000), Step::Commit]);
    }
    let mut seen = false;
    while run.removed == 0 {
        if run.stage == Stage::Find && !seen {
            go(&mut run, in_between);
            seen = true;
        }
        run.retain(u64::MAX).unwrap();
        if run.stage == Stage::Checkpoint {
            run.log.commit().unwrap();
        }
    }
    assert!(seen);
    run.crash();
    run.check();
}

#[test]
fn a_retained_message_whose_successor_a_crash_takes_back_is_kept() {
    let retained = Step::Append(5, true, false, 100);
    for empty in [false, true] {
        cut_behind(&[retained.clone(), Step::Commit], &[Step::Append(5, true, empty, 100)]);
    }
}

#[test]
fn what_a_group_hands_over_after_it_was_visited_is_kept() {
    let of_the_group = Step::Append(3, false, false, 100);
    cut_behind(&[of_the_group.clone(), of_the_group, Step::Commit], &[Step::HandOver, Step::Commit, Step::HandOver]);
}

#[test]
fn nothing_is_looked_for_before_what_was_written_anew_is_durable() {
    let mut run = Run::new(1);
    for _ in 0..60 {
        run.log.append(&mut arrivals(&[message("a", &[1; 1_000])]), &[""; 0], Timestamp(9)).unwrap();
        run.log.commit().unwrap();
    }
    let (log, now) = (&mut run.log, Timestamp(9));
    log.checkpoint(now).unwrap();
    assert!(log.begin_retention(u64::MAX, 0, now).unwrap());
    let mut survey = log.survey_job().unwrap();
    while survey.step() {}
    log.finish(survey).unwrap();
    assert!(log.retention_has_checkpoint() && !log.retention_may_go_on());
    while !log.renew_piece(3, now).unwrap() {}
    assert!(!log.retention_may_go_on() && log.visit_piece(3).is_err() && log.find_piece(3).is_err());
    log.commit().unwrap();
    assert!(log.retention_may_go_on() && log.visit_piece(3).is_ok());
    assert!(log.carry_job(now).is_none(), "all of it has to be looked for first");
}

#[test]
fn nothing_is_looked_for_before_a_checkpoint_stands_behind_the_range() {
    let mut run = Run::new(1);
    for _ in 0..60 {
        run.log.append(&mut arrivals(&[message("a", &[1; 1_000])]), &[""; 0], Timestamp(9)).unwrap();
        run.log.commit().unwrap();
    }
    let (log, now) = (&mut run.log, Timestamp(9));
    assert!(log.begin_retention(u64::MAX, 0, now).unwrap());
    let mut survey = log.survey_job().unwrap();
    while survey.step() {}
    log.finish(survey).unwrap();
    while !log.renew_piece(3, now).unwrap() {}
    log.commit().unwrap();
    assert!(!log.retention_may_go_on() && log.visit_piece(3).is_err());
    log.checkpoint(now).unwrap();
    assert!(log.retention_may_go_on() && log.visit_piece(3).is_ok());
}

#[test]
fn what_was_given_up_in_a_run_that_did_not_end_is_not_told_again() {
    let mut run = Run::new(1);
    for _ in 0..60 {
        run.log.append(&mut arrivals(&[message("a", &[1; 1_000])]), &[""; 0], Timestamp(9)).unwrap();
        run.log.commit().unwrap();
    }
    let (now, cursor) = (Timestamp(9), run.cursor(OWNER, FILTER, 0, 10));
    let log = &mut run.log;
    let mut told = 0;
    for _ in 0..3 {
        assert!(log.begin_retention(u64::MAX, 0, now).unwrap());
        let mut survey = log.survey_job().unwrap();
        while survey.step() {}
        log.finish(survey).unwrap();
        while !log.renew_piece(100, now).unwrap() {}
        log.checkpoint(now).unwrap();
        log.visit(vec![cursor.clone()]);
        for loss in log.visit_piece(100).unwrap().0 {
            told += loss.count;
            log.give_up(loss.party, loss.first, loss.end, now).unwrap();
        }
        log.abandon_retention();
    }
    let most = log.end_offset().0 - 10;
    assert!(told > 0 && told <= most, "told {told} of {most}");
    assert_eq!(log.begin_offset(), Offset(0), "nothing has gone");
}

#[test]
fn of_some_topics_those_are_told_that_have_records_in_what_goes() {
    let mut run = Run::new(1);
    for number in 0..60 {
        let topic = TOPICS[if number < 40 { number % 3 } else { 3 }];
        run.log.append(&mut arrivals(&[message(topic, &[1; 1_000])]), &[""; 0], Timestamp(9)).unwrap();
        run.log.commit().unwrap();
    }
    let asked = ["nobody's", TOPICS[2], TOPICS[3], TOPICS[4], TOPICS[0]];
    let log = &mut run.log;
    assert!(log.begin_retention(u64::MAX, 40_000, Timestamp(9)).unwrap());
    assert_eq!(log.going(&asked), [0, 1, 2, 3, 4], "it is not surveyed yet");
    let mut survey = log.survey_job().unwrap();
    while survey.step() {}
    log.finish(survey).unwrap();
    let before = log.effort();
    assert_eq!(log.going(&asked), [1, 4], "the others have none, or later ones");
    assert_eq!(log.effort() - before, 5);
}
