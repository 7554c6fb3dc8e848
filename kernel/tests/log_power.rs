//! What power cuts leave of the log: whatever part of a group reached the medium, and whichever names of files did.
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
use holdfast_kernel::ids::Timestamp;
use holdfast_kernel::store::Log;
use log_support::{arrivals, message, open, options, scan_all};

/// Appends `count` messages of `size` bytes.
fn put(log: &mut Log, count: u64, size: usize) {
    for _ in 0..count {
        let payload = vec![(log.end_offset().0 % 251) as u8; size];
        log.append(&mut arrivals(&[message("a", &payload)]), &[""; 0], Timestamp(5)).unwrap();
    }
}

/// Everything from offset 0 on is there, each with its own bytes, and at least `durable` messages.
fn check_whole(log: &mut Log, durable: u64, context: &str) {
    let found = scan_all(log, "a", 0, 50);
    let offsets: Vec<u64> = found.iter().map(|(offset, _)| *offset).collect();
    assert_eq!(offsets, (0..log.end_offset().0).collect::<Vec<_>>(), "{context}: there is no gap");
    assert!(log.end_offset().0 >= durable, "{context}: {} of {durable} messages are left", log.end_offset().0);
    assert!(found.iter().all(|(offset, stored)| stored.payload.first() == Some(&((offset % 251) as u8))), "{context}");
}

#[test]
fn a_group_of_several_segments_is_there_from_its_start_up_to_some_place() {
    for seed in 0..60 {
        for writes in 0..24 {
            let disk = FakeDisk::new(seed, 1 << 30);
            let (mut log, _) = open(&disk, options());
            put(&mut log, 5, 1_000);
            log.commit().unwrap();
            put(&mut log, 60, 1_000);
            disk.stop_after(writes);
            let durable = if log.commit().is_ok() { 65 } else { 5 };
            let context = format!("seed {seed}, {writes} writes");
            for life in 0..2 {
                disk.crash();
                let (mut log, recovery) = open(&disk, options());
                assert_eq!(recovery.damaged, vec![], "{context}, life {life}");
                check_whole(&mut log, durable, &context);
            }
        }
    }
}
