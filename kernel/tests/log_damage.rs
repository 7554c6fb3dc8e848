//! What the log does about damage: it is named, passed over, and costs nothing else.
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
use holdfast_kernel::ids::{Offset, Timestamp};
use holdfast_kernel::store::{ColumnSet, Criteria, Filter, Limits, LogReader};
use log_support::{arrivals, message, open, options, scan_all, subscription, Asking};
use std::sync::Arc;

#[test]
fn damage_in_a_segment_is_named_and_passed_over() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    for number in 0..100_u8 {
        log.append(&mut arrivals(&[message("a", &[number; 1_000])]), &[""; 0], Timestamp(5)).unwrap();
        log.commit().unwrap();
    }
    drop(log);
    // The first segment is sealed by now; its fifth kilobyte lies in the fifth message.
    disk.flip_bit("segment-0000000001.log", 5_000);
    let (mut log, recovery) = open(&disk, options());
    assert_eq!(recovery.damaged.len(), 1);
    let damage = &recovery.damaged[0];
    assert_eq!(damage.file, "segment-0000000001.log");
    assert!(damage.first_position <= 5_000 && damage.end_position > 5_000);
    assert_eq!(damage.end_offset.0 - damage.first_offset.0, 1);
    assert_eq!(recovery.trimmed_bytes, 0);
    let found: Vec<u64> = scan_all(&mut log, "a", 0, 7).into_iter().map(|(offset, _)| offset).collect();
    let expected: Vec<u64> = (0..100).filter(|offset| *offset != damage.first_offset.0).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_damaged_footer_costs_nothing_that_it_told_of() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    for number in 0..100_u8 {
        log.append(&mut arrivals(&[message("a", &[number; 1_000])]), &[""; 0], Timestamp(5)).unwrap();
        log.append_control(9, &[number % 7], &[number; 20], Timestamp(5)).unwrap();
        log.commit().unwrap();
    }
    log.checkpoint(Timestamp(5)).unwrap();
    log.commit().unwrap();
    let controls = log.controls(1, 1_000, u64::MAX).unwrap().rows;
    drop(log);
    let name = "segment-0000000001.log";
    let size = disk.open(name, false).unwrap().size().unwrap();
    let trailer = size - 108;
    let mut bytes = [0; 4];
    disk.open(name, false).unwrap().read_at(trailer + 16, &mut bytes).unwrap();
    let records_end = u64::from(u32::from_le_bytes(bytes));
    // Every byte of postings, names, directory and marks in turn, a few at a time.
    for position in (records_end..trailer).step_by(5) {
        disk.flip_bit(name, position);
        let (mut log, recovery) = open(&disk, options());
        assert_eq!(recovery.damaged, vec![], "the checkpoint covers it");
        assert_eq!(log.controls(1, 1_000, u64::MAX).unwrap().rows, controls, "byte {position}");
        assert_eq!(scan_all(&mut log, "a", 0, 50).len(), 100, "byte {position}");
        let count = log.count(&[subscription("a", 0, u64::MAX)], (Offset(3), Offset(90)), Timestamp(0));
        assert_eq!(count, 87, "byte {position}");
        drop(log);
        disk.flip_bit(name, position);
    }
}

#[test]
fn what_is_stored_after_a_cut_behind_the_checkpoint_is_kept() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    for number in 0..10_u8 {
        log.append(&mut arrivals(&[message("a", &[number; 1_000])]), &[""; 0], Timestamp(5)).unwrap();
        log.commit().unwrap();
    }
    log.checkpoint(Timestamp(5)).unwrap();
    log.commit().unwrap();
    drop(log);
    disk.open("segment-0000000001.log", true).unwrap().truncate(5_000).unwrap();
    let (mut log, _) = open(&disk, options());
    log.append(&mut arrivals(&[message("b/x", b"new")]), &[""; 0], Timestamp(6)).unwrap();
    log.commit().unwrap();
    drop(log);
    let (mut log, _) = open(&disk, options());
    let found = scan_all(&mut log, "#", 0, 7);
    assert_eq!(found.iter().filter(|(offset, _)| *offset < 10).count(), 4);
    // Its offset was never given before.
    assert_eq!(found.last().map(|(offset, stored)| (*offset, stored.topic)), Some((10, "b/x")));
}

#[test]
fn a_cut_behind_the_checkpoint_is_named_wherever_it_lies() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    let mut ends = Vec::new();
    for number in 0..10_u8 {
        log.append(&mut arrivals(&[message("a", &[number; 1_000])]), &[""; 0], Timestamp(5)).unwrap();
        log.commit().unwrap();
        ends.push(log.end_position());
    }
    log.checkpoint(Timestamp(5)).unwrap();
    log.commit().unwrap();
    drop(log);
    // Behind the fourth message, and ever nearer to its end: the last cut lies exactly between two records.
    let between = ends[3].0 + 96;
    for cut in [between + 700, between + 1, between] {
        disk.open("segment-0000000001.log", true).unwrap().truncate(cut).unwrap();
        let copy = FakeDisk::new(1, 1 << 30);
        for name in disk.list().unwrap() {
            let file = disk.open(&name, false).unwrap();
            let mut bytes = vec![0; usize::try_from(file.size().unwrap()).unwrap()];
            file.read_at(0, &mut bytes).unwrap();
            copy.create(&name, 0).unwrap().write_at(0, &bytes).unwrap();
        }
        let (_, recovery) = open(&copy, options());
        assert_eq!(recovery.damaged.len(), 1, "cut at {cut}");
        let damage = &recovery.damaged[0];
        assert_eq!(damage.file, "segment-0000000001.log");
        assert_eq!(damage.first_offset.0, 4, "cut at {cut}: {damage:?}");
        assert!(damage.end_position > between);
    }
    let (_, recovery) = open(&disk, options());
    assert_eq!(recovery.damaged[0].end_offset.0, 10, "{:?}", recovery.damaged[0]);
    let (_, recovery) = open(&disk, options());
    assert_eq!(recovery.damaged, vec![], "it is named once");
}

/// Which offsets a reader gets of a range of such topics, and how many it is told are missing.
fn read(reader: &mut LogReader, filter: &[u8], (from, to): (u64, u64), rows: usize) -> (Vec<u64>, u64) {
    let criteria = Criteria { filters: vec![Filter::always(filter)], ..Criteria::default() };
    let (mut offsets, mut missing, mut from) = (Vec::new(), 0, Offset(from));
    while from < Offset(to) {
        let limits = Limits { from, to: Offset(to), rows, bytes: 1 << 20 };
        let (columns, reached) = reader.read(&criteria, ColumnSet::ALL, &limits).unwrap();
        offsets.extend(columns.offset.chunks(8).map(|offset| u64::from_le_bytes(offset.try_into().unwrap())));
        missing += columns.missing;
        from = reached;
    }
    (offsets, missing)
}

#[test]
fn a_reader_is_told_how_many_messages_damage_took_from_what_it_read() {
    for is_recovered in [false, true] {
        let disk = FakeDisk::new(1, 1 << 30);
        let (mut log, _) = open(&disk, options());
        for number in 0..100_u8 {
            // Every tenth is of the topic that few messages have, which is read by its index.
            let topic = if number % 10 == 4 { "few" } else { "many" };
            log.append(&mut arrivals(&[message(topic, &[number; 1_000])]), &[""; 0], Timestamp(5)).unwrap();
            log.commit().unwrap();
        }
        let damaged = 4;
        disk.flip_bit("segment-0000000001.log", 5_000);
        if is_recovered {
            drop(log);
            log = open(&disk, options()).0;
        }
        let mut reader = LogReader::open(Arc::new(disk.clone())).unwrap();
        reader.refresh(Some(Offset(100)), true).unwrap();
        for rows in [1, 7, 1_000] {
            let expected: Vec<u64> = (0..100).filter(|offset| *offset != damaged).collect();
            assert_eq!(read(&mut reader, b"#", (0, 100), rows), (expected, 1), "{rows} at once");
            let few: Vec<u64> = (14..100).step_by(10).collect();
            assert_eq!(read(&mut reader, b"few", (0, 100), rows), (few, 1), "{rows} at once");
        }
        assert_eq!(read(&mut reader, b"#", (damaged, damaged + 1), 10), (vec![], 1));
        assert_eq!(read(&mut reader, b"#", (damaged + 1, 9), 10), (vec![5, 6, 7, 8], 0), "none of what was asked for");
        assert_eq!(read(&mut reader, b"#", (0, damaged), 10), (vec![0, 1, 2, 3], 0), "none of what was asked for");
        for (range, missing) in [((0, damaged), 0), ((damaged, damaged + 1), 1), ((damaged + 1, 14), 0)] {
            assert_eq!(read(&mut reader, b"few", range, 10), (vec![], missing), "by index, {range:?}");
        }
        drop(log);
    }
}
