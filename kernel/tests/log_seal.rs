//! Footers that are written beside the loop (docs/adr/0033-footers-wait.md): no commit waits for them, nothing is lost
//! without them, and whoever reads the directory meanwhile sees the same messages.
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
use holdfast_kernel::ids::{Offset, Timestamp};
use holdfast_kernel::limits::UNSEALED_SEGMENTS_MAXIMUM;
use holdfast_kernel::store::{Job, Log, LogReader, SegmentDescription};
use log_support::{arrivals, message, open, options, scan_all};
use std::sync::Arc;

fn append(log: &mut Log, size_bytes: usize) {
    let payload = vec![(log.end_offset().0 % 251) as u8; size_bytes];
    log.append(&mut arrivals(&[message("b/x", &payload)]), &[""; 0], Timestamp(5)).unwrap();
}

/// Messages of about a kilobyte; some fourteen of them are in a segment.
fn put(log: &mut Log, messages: u64) {
    for _ in 0..messages {
        append(log, 1_000);
        log.commit().unwrap();
    }
}

fn log_with_footers_left(disk: &FakeDisk) -> Log {
    let (mut log, _) = open(disk, options());
    log.leave_footers();
    log
}

fn begin_seal(log: &mut Log) -> Option<Job> {
    while !log.prepare_seal(1) {}
    log.seal_job()
}

fn run_seal(log: &mut Log, mut job: Job) {
    while job.step() {}
    let mut forgetting = log.finish(job).unwrap().next.unwrap();
    assert!(!forgetting.step());
    log.finish(forgetting).unwrap();
}

fn reader(disk: &FakeDisk) -> LogReader {
    let mut reader = LogReader::open(Arc::new(disk.clone())).unwrap();
    reader.refresh(None, true).unwrap();
    reader
}

fn sealed(disk: &FakeDisk) -> Vec<bool> {
    reader(disk).segments().iter().map(|segment| segment.sealed).collect()
}

fn found(log: &mut Log) -> Vec<u64> {
    scan_all(log, "b/+", 0, 50).into_iter().map(|(offset, _)| offset).collect()
}

#[test]
fn a_commit_writes_no_footer_that_may_wait() {
    let disk = FakeDisk::new(1, 1 << 30);
    let mut log = log_with_footers_left(&disk);
    put(&mut log, 20);
    assert_eq!(sealed(&disk), [false, false]);
    assert_eq!(found(&mut log), (0..20).collect::<Vec<_>>());
    let job = begin_seal(&mut log).unwrap();
    assert!(begin_seal(&mut log).is_none(), "one segment has ended");
    put(&mut log, 1);
    run_seal(&mut log, job);
    assert_eq!(sealed(&disk), [true, false]);
    assert_eq!(found(&mut log), (0..21).collect::<Vec<_>>());
}

#[test]
fn a_footer_waits_until_what_lies_behind_its_segment_is_durable() {
    let disk = FakeDisk::new(1, 1 << 30);
    let mut log = log_with_footers_left(&disk);
    for _ in 0..20 {
        append(&mut log, 1_000);
        assert!(begin_seal(&mut log).is_none());
        log.commit().unwrap();
        if begin_seal(&mut log).is_some() {
            return;
        }
    }
    panic!("no segment has ended");
}

#[test]
fn what_would_be_too_many_is_written_by_the_commit() {
    let disk = FakeDisk::new(1, 1 << 30);
    let mut log = log_with_footers_left(&disk);
    let segments = |disk: &FakeDisk| sealed(disk).len();
    for beyond in 1..4 {
        while segments(&disk) <= UNSEALED_SEGMENTS_MAXIMUM + beyond {
            put(&mut log, 1);
        }
        let waiting = UNSEALED_SEGMENTS_MAXIMUM + 1;
        assert_eq!(sealed(&disk), [vec![true; beyond], vec![false; waiting]].concat());
    }
}

#[test]
fn without_anybody_who_writes_footers_commits_do() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    put(&mut log, 20);
    assert_eq!(sealed(&disk), [true, false]);
}

#[test]
fn all_is_there_wherever_a_footer_is_cut_short() {
    for seed in 0..40 {
        for writes in 0..6 {
            let disk = FakeDisk::new(seed, 1 << 30);
            let mut log = log_with_footers_left(&disk);
            put(&mut log, 40);
            let mut job = begin_seal(&mut log).unwrap();
            disk.stop_after(writes);
            while job.step() {}
            drop(log);
            for _ in 0..2 {
                disk.crash();
                let (mut log, recovery) = open(&disk, options());
                let case = format!("seed {seed}, {writes} writes");
                assert_eq!((found(&mut log), recovery.damaged), ((0..40).collect::<Vec<_>>(), vec![]), "{case}");
                assert!(sealed(&disk).iter().rev().skip(1).all(|sealed| *sealed), "{case}: a start seals the others");
            }
        }
    }
}

#[test]
fn a_footer_for_which_there_is_no_room_waits_and_comes_later() {
    let disk = FakeDisk::new(1, 1 << 30);
    let mut log = log_with_footers_left(&disk);
    // What the file has left behind them is less than their footer takes.
    for _ in 0..70 {
        append(&mut log, 150);
        log.commit().unwrap();
    }
    let mut job = begin_seal(&mut log).unwrap();
    disk.set_capacity(0);
    while job.step() {}
    assert!(matches!(log.finish(job), Err(Error::Disk { full: true, .. })));
    assert_eq!(found(&mut log), (0..70).collect::<Vec<_>>());
    disk.set_capacity(1 << 30);
    let job = begin_seal(&mut log).unwrap();
    run_seal(&mut log, job);
    assert_eq!(sealed(&disk), [true, false]);
}

#[test]
fn readers_see_the_same_while_footers_wait_or_are_half_written() {
    let disk = FakeDisk::new(1, 1 << 30);
    let mut log = log_with_footers_left(&disk);
    put(&mut log, 40);
    let whole = |segments: Vec<SegmentDescription>| segments.iter().map(|segment| segment.whole).collect::<Vec<_>>();
    assert_eq!(whole(reader(&disk).segments()), [true, true, false]);
    let first = reader(&disk).segments().remove(0);
    let file = disk.open(&first.file, true).unwrap();
    // As a footer begins whose other steps are still to come: over the marker that told readers of the last commit.
    file.write_at(first.bytes - 20, &[9; 100]).unwrap();
    let mut reader = reader(&disk);
    assert_eq!(
        (reader.end_offset(), reader.take_passed_over(), reader.verify().unwrap()),
        (Offset(40), vec![], vec![])
    );
}
