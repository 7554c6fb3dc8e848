//! What the log says of the keys of its records.
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
use holdfast_kernel::flow::{Scan, Span};
use holdfast_kernel::ids::{KeySlot, Offset, Timestamp};
use holdfast_kernel::selection::{key_slot, Key};
use log_support::{arrivals, message, open, options};
use std::sync::Arc;

#[test]
fn a_scan_tells_the_slot_of_what_a_group_takes_its_keys_from() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    let mut batch = arrivals(&[message("a", b"x")]);
    let start = batch.bytes.len() as u32;
    batch.bytes.extend_from_slice(b"\x26\0\x06reader\0\x017");
    batch.publishes[0].properties = Span { start, size_bytes: 12 };
    batch.publishes[0].key_slot = KeySlot(9);
    log.append(&mut batch, &[""; 0], Timestamp(5)).unwrap();
    log.commit().unwrap();
    log.close().unwrap();
    drop(log);
    let (mut log, _) = open(&disk, options());
    let mut slots = |key: Option<Key>| {
        let mut scans = [Scan { owed: vec![Offset(0)], key, ..log_support::scan_of("a", 0) }];
        log.scan(&mut scans).unwrap();
        let owed = scans[0].found_owed[0].as_ref().unwrap().key_slot;
        (scans[0].found[0].key_slot, owed)
    };
    assert_eq!(slots(None), (KeySlot(9), KeySlot(9)));
    assert_eq!(slots(Some(Key::Publisher)), (KeySlot(9), KeySlot(9)), "the log keeps it");
    assert_eq!(slots(Some(Key::Topic)), (key_slot(b"a"), key_slot(b"a")));
    let reader = Key::UserProperty(Arc::from(*b"reader"));
    assert_eq!(slots(Some(reader)), (key_slot(b"7"), key_slot(b"7")));
}
