//! What lies far behind the end of the log leaves the system's memory, and nothing else changes
//! (docs/adr/0037-what-lies-far-behind-leaves-memory.md).
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
use holdfast_kernel::ids::Timestamp;
use holdfast_kernel::store::Log;
use log_support::{arrivals, message, open, options, scan_all};

const SEGMENT_BYTES: u64 = 16_384;

/// Messages of about a kilobyte; some fourteen of them are in a segment.
fn put(log: &mut Log, messages: u64) {
    for _ in 0..messages {
        log.append(&mut arrivals(&[message("a", &[7; 1_000])]), &[""; 0], Timestamp(5)).unwrap();
        log.commit().unwrap();
    }
}

fn segments(disk: &FakeDisk) -> Vec<String> {
    let mut names = disk.list().unwrap();
    names.retain(|name| name.ends_with(".log"));
    names.sort();
    names
}

fn are_released(disk: &FakeDisk) -> Vec<bool> {
    segments(disk).iter().map(|name| !disk.released(name).is_empty()).collect()
}

fn release(log: &mut Log, kept_bytes: u64) -> u64 {
    let mut jobs = 0;
    while let Some(mut job) = log.release_job(kept_bytes) {
        while job.step() {}
        log.finish(job).unwrap();
        jobs += 1;
    }
    jobs
}

#[test]
fn a_segment_is_released_once_as_a_whole_when_the_log_has_gone_on_so_far() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    assert!(log.release_job(0).is_none(), "the open segment stays");
    put(&mut log, 70);
    let names = segments(&disk);
    assert_eq!(release(&mut log, u64::MAX), 0);
    assert_eq!(release(&mut log, 2 * SEGMENT_BYTES), 2);
    assert_eq!(are_released(&disk)[..4], [true, true, false, false]);
    assert_eq!(release(&mut log, 2 * SEGMENT_BYTES), 0, "once is enough");
    let size = disk.open(&names[0], false).unwrap().size().unwrap();
    let released = disk.released(&names[0]);
    assert!(released[0].0 == 0 && released.last().unwrap().1 >= size);
    assert_eq!(scan_all(&mut log, "a", 0, 99).len(), 70);
}

#[test]
fn what_waits_for_its_footer_and_what_was_there_at_the_start_stays() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    put(&mut log, 40);
    drop(log);
    let (mut log, _) = open(&disk, options());
    log.leave_footers();
    assert_eq!(release(&mut log, 0), 0);
    put(&mut log, 20);
    assert_eq!(release(&mut log, 0), 0, "its footer is still to be written");
    while !log.prepare_seal(1) {}
    let mut seal = log.seal_job().unwrap();
    while seal.step() {}
    log.finish(seal).unwrap();
    assert_eq!(release(&mut log, 0), 1);
    assert_eq!(are_released(&disk)[..2], [false, false]);
}
