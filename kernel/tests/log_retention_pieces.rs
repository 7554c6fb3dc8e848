//! No piece of a chore does more than its budget, whatever the log holds.
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
use holdfast_kernel::flow::state::State;
use holdfast_kernel::flow::{Arrivals, Span};
use holdfast_kernel::ids::{Offset, Party, Timestamp};
use holdfast_kernel::store::{Log, Options, RetentionCursor};
use log_support::{arrivals, message, open, options, subscription};

const TOPICS: u32 = 100_000;
const PARTIES: u32 = 10_000;
const PIECE: u64 = 1_000;
/// What a piece may go beyond the budget: reading the directory of one segment, which has at most 65 536 topics.
const OVER: u64 = 12_000;

fn topic(number: u32) -> String {
    format!("fleet/{number}/reads")
}

/// A retained message on each of many topics, and a session at rest for each of many parties.
fn filled(disk: &FakeDisk) -> Log {
    let (mut log, _) = open(disk, Options { segment_bytes: 4 << 20, ..options() });
    for first in (0..TOPICS).step_by(1_000) {
        let mut batch = Arrivals::default();
        for number in first..first + 1_000 {
            let name = topic(number);
            let mut one = arrivals(&[message("a", b"21.5")]).publishes.remove(0);
            let start = batch.bytes.len() as u32;
            batch.bytes.extend(name.as_bytes());
            one.topic = Span { start, size_bytes: name.len() as u32 };
            one.payload = Span { start, size_bytes: 4 };
            one.retain = true;
            batch.publishes.push(one);
        }
        log.append(&mut batch, &[""; 0], Timestamp(5)).unwrap();
        log.commit().unwrap();
    }
    for party in 1..=PARTIES {
        let mut state = Vec::new();
        State::new(Offset(0)).encode(&mut state);
        log.append_control(0, &party.to_le_bytes(), &state, Timestamp(5)).unwrap();
        log.append_control(1, format!("client-{party}").as_bytes(), b"{}", Timestamp(5)).unwrap();
    }
    while log.statistics()[0].1 < 8 {
        log.append(&mut arrivals(&[message("filling", &[1; 4_000])]), &[""; 0], Timestamp(5)).unwrap();
        log.commit().unwrap();
    }
    log
}

/// Does pieces until one says that it was the last; how many there were, each within the budget.
fn pieces(log: &mut Log, mut piece: impl FnMut(&mut Log) -> bool) -> u64 {
    for count in 1.. {
        let before = log.effort();
        let done = piece(log);
        let effort = log.effort() - before;
        assert!(effort <= PIECE + OVER, "a piece did {effort}");
        log.commit().unwrap();
        if done {
            return count;
        }
    }
    0
}

#[test]
fn every_piece_of_a_checkpoint_and_of_retention_keeps_to_its_budget() {
    let disk = FakeDisk::new(1, 1 << 30);
    let mut log = filled(&disk);
    let now = Timestamp(9);
    assert!(log.begin_retention(u64::MAX, 0, now).unwrap());
    let mut survey = log.survey_job().unwrap();
    while survey.step() {}
    log.finish(survey).unwrap();
    let renewed = pieces(&mut log, |log| log.renew_piece(PIECE, now).unwrap());
    assert!(renewed > u64::from(TOPICS) / PIECE, "topics are renewed in pieces: {renewed}");

    log.begin_checkpoint(now).unwrap();
    let taken = pieces(&mut log, |log| log.checkpoint_piece(PIECE));
    assert!(taken > u64::from(TOPICS + PARTIES) / PIECE, "it is taken down in pieces: {taken}");
    let mut write = log.checkpoint_job().unwrap();
    let mut steps = 1;
    while write.step() {
        steps += 1;
    }
    assert!(steps > 5, "it is written in pieces: {steps}");
    log.finish(write).unwrap();
    assert!(log.retention_may_go_on());

    let cursor = |party: u32| RetentionCursor {
        party: Party(party),
        mark: Offset(0),
        subscriptions: vec![subscription(&topic(party), 0, u64::MAX)],
        keep_from: Offset(0),
        messages_maximum: u64::MAX,
    };
    log.visit((1..=PARTIES).map(cursor).collect());
    pieces(&mut log, |log| log.visit_piece(PIECE).unwrap().1);
    let found = pieces(&mut log, |log| log.find_piece(PIECE).unwrap());
    assert!(found > u64::from(TOPICS) / PIECE, "retained messages are found in pieces: {found}");

    let mut carry = log.carry_job(now).unwrap();
    while carry.step() {}
    let before = log.effort();
    let mut naming = log.finish(carry).unwrap().next.unwrap();
    while naming.step() {}
    let finished = log.finish(naming).unwrap();
    assert!(log.effort() - before <= OVER, "taking the place of the segments costs nothing for a record");
    assert_eq!(finished.carried_records, u64::from(TOPICS), "all of them are retained");
    assert!(log.locate(Offset(77)).unwrap().is_some());
}

#[test]
fn a_piece_that_writes_long_names_and_states_anew_ends_by_their_bytes() {
    const COUNT: u32 = 100;
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, Options { segment_bytes: 4 << 20, ..options() });
    for number in 1..=COUNT {
        let name = format!("{number}/{}", "x".repeat(50_000)).leak();
        log.append(&mut arrivals(&[message(name, b"21.5")]), &[""; 0], Timestamp(5)).unwrap();
        let mut state = State::new(Offset(0));
        (1..12_000).for_each(|n| state.acknowledge(Offset(n * 100_000), Offset(n * 100_000 + 1)));
        let mut value = Vec::new();
        state.encode(&mut value);
        assert!(value.len() > 20_000);
        log.append_control(0, &number.to_le_bytes(), &value, Timestamp(5)).unwrap();
        log.commit().unwrap();
    }
    for _ in 0..10 {
        log.append(&mut arrivals(&[message("filling", &[1; 1_000_000])]), &[""; 0], Timestamp(5)).unwrap();
        log.commit().unwrap();
    }
    assert!(log.begin_retention(u64::MAX, 1 << 20, Timestamp(9)).unwrap());
    let mut survey = log.survey_job().unwrap();
    while survey.step() {}
    log.finish(survey).unwrap();
    let mut most = 0;
    while !log.renew_piece(PIECE, Timestamp(9)).unwrap() {
        most = most.max(log.uncommitted_bytes());
        log.commit().unwrap();
    }
    // As much as its effort allows, and one more.
    assert!(most > 100_000 && most <= PIECE * 256 + 70_000, "{most} bytes at one go");
}
