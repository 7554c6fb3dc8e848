//! The file of the next segment, written in full before it is used (docs/adr/0031-segments-are-written-ahead.md).
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
use holdfast_kernel::ids::Timestamp;
use holdfast_kernel::store::Log;
use log_support::{arrivals, message, open, options, scan_all};

#[test]
fn a_file_that_was_written_ahead_is_the_next_segment() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    let put = |log: &mut Log| {
        log.append(&mut arrivals(&[message("a", &[7; 1_000])]), &[""; 0], Timestamp(5)).unwrap();
        log.commit().unwrap();
    };
    put(&mut log);
    assert!(log.ahead_job().is_none(), "an eighth of 16 KiB is not full");
    put(&mut log);
    let mut job = log.ahead_job().unwrap();
    // What is left of a file that was not written to its end goes with the next start.
    assert!(!job.step());
    drop(log);
    let (mut log, _) = open(&disk, options());
    assert!(!disk.list().unwrap().contains(&"segment-ahead.partial".to_owned()));
    let mut job = log.ahead_job().unwrap();
    while job.step() {}
    log.finish(job).unwrap();
    assert!(log.ahead_job().is_none(), "one is enough");
    let ahead = disk.open("segment-ahead.partial", false).unwrap();
    (0..20).for_each(|_| put(&mut log));
    assert!(!disk.list().unwrap().contains(&"segment-ahead.partial".to_owned()));
    let mut start = [0; 4];
    ahead.read_at(0, &mut start).unwrap();
    assert_ne!(start, [0; 4], "it is a segment now");
    drop(log);
    let (mut log, recovery) = open(&disk, options());
    assert_eq!((scan_all(&mut log, "a", 0, 9).len(), recovery.damaged), (22, vec![]));
}

#[test]
fn a_full_disk_writes_nothing_ahead_and_loses_nothing_by_it() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    for _ in 0..3 {
        log.append(&mut arrivals(&[message("a", &[7; 1_000])]), &[""; 0], Timestamp(5)).unwrap();
    }
    log.commit().unwrap();
    let mut job = log.ahead_job().unwrap();
    disk.set_capacity(0);
    assert!(!job.step());
    assert!(matches!(log.finish(job), Err(Error::Disk { full: true, .. })));
    disk.set_capacity(1 << 30);
    assert!(!disk.list().unwrap().contains(&"segment-ahead.partial".to_owned()), "the room was given back");
    assert!(log.ahead_job().is_some());
    assert_eq!(scan_all(&mut log, "a", 0, 9).len(), 3);
}
