//! What a power cut leaves while retention is at work: wherever it comes, nothing that is still needed is gone.
//! The faults that these tests are there to find are planted by `make mutants`.
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
use holdfast_kernel::error::Result;
use holdfast_kernel::flow::state::State;
use holdfast_kernel::ids::{Offset, Party, Timestamp};
use holdfast_kernel::store::{Log, Options, RetentionCursor};
use log_support::{arrivals, message, open, options, scan_all, subscription, Stored};

const SEEDS: u64 = 12;

/// What a power cut comes after, in writes of the disk.
const WRITES: u64 = 24;

/// Calls of retention, after which it has removed what it may.
const CALLS: usize = 20;

/// Fills some four segments, message by message.
fn fill(log: &mut Log) {
    for _ in 0..60 {
        let payload = vec![(log.end_offset().0 % 251) as u8; 1_000];
        log.append(&mut arrivals(&[message("b/x", &payload)]), &[""; 0], Timestamp(5)).unwrap();
        log.commit().unwrap();
    }
}

/// Removes everything that is sealed, or stops at the first error.
fn retain(log: &mut Log, cursors: &[RetentionCursor]) -> Result<()> {
    for _ in 0..CALLS {
        if log_support::retain(log, u64::MAX, 0, cursors, 6)?.removed_segments == 0 {
            return Ok(());
        }
        log.commit()?;
    }
    panic!("retention has not ended");
}

fn put_retained(log: &mut Log, payload: &[u8]) {
    log.append(&mut arrivals(&[Stored { retain: true, ..message("a", payload) }]), &[""; 0], Timestamp(5)).unwrap();
    log.commit().unwrap();
}

fn retained_count(log: &Log) -> usize {
    log.retained(b"a", Offset(0), 10).0.len()
}

/// Key and newest value of every control record in force.
fn in_force(log: &mut Log) -> Vec<(Vec<u8>, Vec<u8>)> {
    let rows = log.controls(0, usize::MAX, u64::MAX).unwrap().rows.into_iter();
    let found: std::collections::BTreeMap<_, _> = rows.map(|(_, _, key, value)| (key, value)).collect();
    found.into_iter().collect()
}

#[test]
fn what_a_queue_needs_is_there_wherever_retention_is_cut_short() {
    let subscriptions = vec![subscription("b/+", 0, u64::MAX)];
    let cursor = RetentionCursor {
        party: Party(3),
        mark: Offset(0),
        subscriptions,
        keep_from: Offset(0),
        messages_maximum: u64::MAX,
    };
    for seed in 0..SEEDS {
        for writes in 0..WRITES {
            let disk = FakeDisk::new(seed, 1 << 30);
            let (mut log, _) = open(&disk, options());
            fill(&mut log);
            disk.stop_after(writes);
            drop(retain(&mut log, std::slice::from_ref(&cursor)));
            for _ in 0..2 {
                disk.crash();
                let (mut log, recovery) = open(&disk, options());
                assert_eq!(recovery.damaged, vec![], "seed {seed}, {writes} writes");
                let found: Vec<u64> = scan_all(&mut log, "b/+", 0, 50).into_iter().map(|(offset, _)| offset).collect();
                assert_eq!(found, (0..60).collect::<Vec<_>>(), "seed {seed}, {writes} writes");
            }
        }
    }
}

#[test]
fn control_records_are_in_force_wherever_retention_is_cut_short() {
    for seed in 0..SEEDS {
        for writes in 0..WRITES {
            let disk = FakeDisk::new(seed, 1 << 30);
            let (mut log, _) = open(&disk, options());
            log.append_control(5, b"k", b"v", Timestamp(5)).unwrap();
            fill(&mut log);
            disk.stop_after(writes);
            drop(retain(&mut log, &[]));
            disk.crash();
            let (mut log, _) = open(&disk, options());
            assert_eq!(in_force(&mut log), [(b"k".to_vec(), b"v".to_vec())], "seed {seed}, {writes} writes");
        }
    }
}

#[test]
fn what_was_deleted_stays_deleted_wherever_retention_of_a_full_disk_is_cut_short() {
    let options = Options { reserve_bytes: 1 << 20, ..options() };
    for seed in 0..SEEDS {
        for writes in 0..WRITES {
            let disk = FakeDisk::new(seed, 1 << 30);
            let (mut log, _) = open(&disk, options);
            put_retained(&mut log, b"here");
            log.checkpoint(Timestamp(5)).unwrap();
            put_retained(&mut log, b"");
            fill(&mut log);
            let used = (1 << 30) - disk.free_bytes().unwrap();
            disk.set_capacity(used + (1 << 19));
            log.append_control(5, b"k", b"v", Timestamp(5)).unwrap();
            log.commit().unwrap();
            disk.stop_after(writes);
            drop(retain(&mut log, &[]));
            disk.crash();
            let (log, recovery) = open(&disk, options);
            assert_eq!((retained_count(&log), recovery.damaged), (0, vec![]), "seed {seed}, {writes} writes");
        }
    }
}

#[test]
fn delivery_states_of_parties_at_rest_outlive_their_records_without_a_checkpoint_too() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    let mut value = Vec::new();
    State::new(Offset(3)).encode(&mut value);
    log.append_control(0, &9_u32.to_le_bytes(), &value, Timestamp(5)).unwrap();
    fill(&mut log);
    retain(&mut log, &[]).unwrap();
    log.commit().unwrap();
    drop(log);
    for name in disk.list().unwrap().iter().filter(|name| name.starts_with("checkpoint-")) {
        disk.remove(name).unwrap();
    }
    let (log, recovery) = open(&disk, options());
    assert!(!recovery.from_checkpoint && log.begin_offset() > Offset(0));
    assert_eq!(log.delivery_state(Party(9)), Some(value));
}
