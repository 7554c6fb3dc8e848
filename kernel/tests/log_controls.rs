//! Control records as they are read again by who keeps a table of them.
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
use holdfast_kernel::store::Options;
use log_support::{arrivals, message, open, options};

#[test]
fn what_a_log_has_appended_of_its_own_is_not_read_again_by_who_asks_for_the_other_control_records() {
    let disk = FakeDisk::new(1, 1 << 30);
    // Nothing of what is on the disk is in memory.
    let (mut log, _) = open(&disk, Options { cache_bytes: 0, ..options() });
    assert!(log.controls(1, usize::MAX, u64::MAX).unwrap().is_all);
    for number in 0..200_u32 {
        log.append_control(0, &number.to_le_bytes(), &[], Timestamp(5)).unwrap();
        if number == 100 {
            log.append_control(9, b"key", b"value", Timestamp(5)).unwrap();
        }
        log.append(&mut arrivals(&[message("a", &[0; 3_000])]), &["#"], Timestamp(5)).unwrap();
        log.commit().unwrap();
    }
    let before = log.effort();
    let found = log.controls(1, usize::MAX, u64::MAX).unwrap();
    assert_eq!(found.rows, [(102, 9, b"key".to_vec(), b"value".to_vec())]);
    assert_eq!((found.reached, found.is_all), (201, true));
    let effort = log.effort() - before;
    // One block for the one record; there are three.
    assert!(effort < 310, "{effort}");
    // And each is looked at by who begins anew.
    assert_eq!(log.controls(0, usize::MAX, u64::MAX).unwrap().rows, found.rows);
}

#[test]
fn control_records_are_read_in_pieces_where_most_are_the_kernels_own() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    for number in 0..1_000_u32 {
        log.append_control(0, &number.to_le_bytes(), &[], Timestamp(5)).unwrap();
    }
    log.append_control(9, b"key", b"value", Timestamp(5)).unwrap();
    log.commit().unwrap();
    // Whoever has appended them knows which are its own.
    drop(log);
    let (mut log, _) = open(&disk, options());
    let (mut pieces, mut next) = (0, 1);
    loop {
        let before = log.effort();
        let found = log.controls(next, usize::MAX, 100).unwrap();
        // And one block from the disk.
        assert!(log.effort() - before <= 310 && found.reached >= next);
        (pieces, next) = (pieces + 1, found.reached + 1);
        if found.is_all {
            assert_eq!(found.rows, [(1_001, 9, b"key".to_vec(), b"value".to_vec())]);
            break;
        }
    }
    assert!(pieces >= 10, "{pieces}");
}
