//! The log as others read it: beside a writer, over damage, by topic and by time.
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
use holdfast_kernel::flow::state::Changes;
use holdfast_kernel::ids::{Offset, Party, Timestamp};
use holdfast_kernel::store::{ColumnSet, Criteria, Limits, Log, LogReader, Options, Stretch};
use log_support::{arrivals, message, open, options, TOPICS};
use proptest::prelude::*;
use std::collections::HashSet;
use std::sync::Arc;

/// A log of one open segment with 10 messages, each committed on its own.
fn ten_messages(disk: &FakeDisk) -> Log {
    let (mut log, _) = open(disk, options());
    for number in 0..10_u8 {
        log.append(&mut arrivals(&[message("a", &[number; 1_000])]), &[""; 0], Timestamp(5)).unwrap();
        log.commit().unwrap();
    }
    log
}

fn offsets(reader: &mut LogReader) -> Vec<u64> {
    let limits = Limits { from: Offset(0), to: Offset(100), rows: 100, bytes: 1 << 20 };
    let (columns, _) = reader.read(&Criteria::default(), ColumnSet::ALL, &limits).unwrap();
    columns.offset.chunks(8).map(|offset| u64::from_le_bytes(offset.try_into().unwrap())).collect()
}

#[test]
fn a_reader_passes_over_damage_in_the_newest_segment_and_says_so() {
    for is_written in [false, true] {
        let disk = FakeDisk::new(1, 1 << 30);
        let log = ten_messages(&disk);
        disk.flip_bit("segment-0000000001.log", 5_000);
        let mut reader = LogReader::open(Arc::new(disk.clone())).unwrap();
        reader.refresh(None, is_written).unwrap();
        let damaged = reader.take_passed_over();
        assert_eq!(damaged.len(), 1);
        assert!(damaged[0].first_position <= 5_000 && damaged[0].end_position > 5_000);
        let lost = damaged[0].first_offset.0;
        assert_eq!(damaged[0].end_offset.0, lost + 1);
        let expected: Vec<u64> = (0..10).filter(|offset| *offset != lost).collect();
        assert_eq!(offsets(&mut reader), expected);
        reader.refresh(Some(Offset(10)), is_written).unwrap();
        assert!(reader.take_passed_over().is_empty(), "it was told");
        drop(log);
    }
}

#[test]
fn a_reader_waits_before_what_nothing_vouches_for() {
    let disk = FakeDisk::new(1, 1 << 30);
    let log = ten_messages(&disk);
    let end = log.end_position().0;
    // What is behind the newest message vouches for it; without that it may be on its way.
    disk.flip_bit("segment-0000000001.log", end - 100);
    disk.open("segment-0000000001.log", true).unwrap().write_at(end, &[0; 200]).unwrap();
    let mut reader = LogReader::open(Arc::new(disk.clone())).unwrap();
    reader.refresh(None, false).unwrap();
    assert_eq!(offsets(&mut reader), (0..9).collect::<Vec<u64>>());
    assert!(reader.take_passed_over().is_empty());
}

#[test]
fn one_look_sees_all_wherever_a_window_of_it_ends() {
    // The reader takes 256 KiB at once. The first message moves all others by a byte at a time, by as much as one of
    // them takes, so that a window ends at each place of a record.
    let others = vec![message("a", &[7; 400]); 700];
    for first_bytes in 0..500 {
        let disk = FakeDisk::new(1, 1 << 30);
        let (mut log, _) = open(&disk, Options { segment_bytes: 1 << 20, ..options() });
        log.append(&mut arrivals(&[message("a", &vec![1; first_bytes])]), &[""; 0], Timestamp(5)).unwrap();
        log.append(&mut arrivals(&others), &[""; 0], Timestamp(5)).unwrap();
        log.commit().unwrap();
        let mut reader = LogReader::open(Arc::new(disk.clone())).unwrap();
        reader.refresh(None, false).unwrap();
        assert_eq!(reader.end_offset(), Offset(701), "{first_bytes} bytes in the first message");
    }
}

#[test]
fn topics_are_listed_page_by_page() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    for topic in TOPICS.iter().chain(&TOPICS[..2]) {
        log.append(&mut arrivals(&[message(topic, &[1; 3_000])]), &[""; 0], Timestamp(5)).unwrap();
    }
    log.commit().unwrap();
    let mut reader = LogReader::open(Arc::new(disk)).unwrap();
    reader.refresh(None, false).unwrap();
    for (filter, expected) in [(None, &TOPICS[..]), (Some("a/#"), &TOPICS[..3]), (Some("+/y"), &TOPICS[4..5])] {
        for limit in 1..8 {
            let (mut found, mut after) = (Vec::new(), Vec::new());
            loop {
                let page = reader.topics(filter.map(str::as_bytes), &after, limit).unwrap();
                let Some((last, _)) = page.last() else { break };
                assert!(page.len() == limit || found.len() + page.len() == expected.len());
                after = last.clone();
                found.extend(page);
            }
            let counts = expected.iter().map(|topic| if TOPICS[..2].contains(topic) { 2 } else { 1 });
            let wanted: Vec<_> = expected.iter().map(|topic| topic.as_bytes().to_vec()).zip(counts).collect();
            assert_eq!(found, wanted);
        }
    }
}

/// How many messages each answer has, and what the largest one takes, if all of the log is read.
fn answers(reader: &mut LogReader, columns: ColumnSet, bytes: u64) -> (Vec<usize>, usize) {
    let (mut rows, mut largest, mut from) = (Vec::new(), 0, Offset(0));
    while from < reader.end_offset() {
        let limits = Limits { from, to: reader.end_offset(), rows: usize::MAX, bytes };
        let (columns, next) = reader.read(&Criteria::default(), columns, &limits).unwrap();
        assert!(next > from);
        rows.push(columns.rows);
        largest = largest.max(columns.bytes());
        from = next;
    }
    (rows, largest)
}

#[test]
fn an_answer_is_bounded_by_what_it_holds() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, Options { segment_bytes: 1 << 20, ..options() });
    let topic = &*"t".repeat(60_000).leak();
    log.append(&mut arrivals(&vec![message(topic, b"x"); 500]), &[""; 0], Timestamp(5)).unwrap();
    log.append(&mut arrivals(&vec![message("a", &[7; 1_000]); 500]), &[""; 0], Timestamp(5)).unwrap();
    log.commit().unwrap();
    let mut reader = LogReader::open(Arc::new(disk)).unwrap();
    reader.refresh(None, false).unwrap();
    let (rows, largest) = answers(&mut reader, ColumnSet::ALL, 1 << 20);
    assert_eq!(rows.iter().sum::<usize>(), 1_000);
    assert!(largest < (1 << 20) + 2 * topic.len(), "an answer has {largest} bytes");
    // Where only a little of each is wanted an answer has more of them, but does not read on for ever.
    let all = answers(&mut reader, ColumnSet::ALL, 20_000).0;
    let little = answers(&mut reader, ColumnSet::of(&["offset"]).unwrap(), 20_000).0;
    assert_eq!(little.iter().sum::<usize>(), 1_000);
    assert!((18..21).contains(all.last_chunk::<2>().unwrap().first().unwrap()));
    assert!((72..84).contains(little.last_chunk::<2>().unwrap().first().unwrap()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// Also where segments hold control records alone, and where a marker is the last record.
    #[test]
    fn the_first_offset_of_a_time_is_found(
        steps in proptest::collection::vec((0_u8..4, 1_usize..6_000, 0_u64..3), 1..60),
    ) {
        let disk = FakeDisk::new(1, 1 << 30);
        let (mut log, _) = open(&disk, options());
        let (mut now, mut times) = (5_000, Vec::new());
        for (kind, size, passed) in steps {
            now += passed;
            match kind {
                0 | 1 => {
                    log.append(&mut arrivals(&[message("a", &vec![7; size])]), &[""; 0], Timestamp(now)).unwrap();
                    times.push(now);
                }
                2 => {
                    log.append_control(1, b"k", &vec![7; size], Timestamp(now)).unwrap();
                }
                _ => while log.commit().unwrap() {},
            }
        }
        while log.commit().unwrap() {}
        let mut reader = LogReader::open(Arc::new(disk)).unwrap();
        reader.refresh(None, false).unwrap();
        for time in 4_990..now + 3 {
            let expected = times.iter().filter(|at| **at < time).count() as u64;
            prop_assert_eq!(log.offset_at(Timestamp(time)).unwrap(), Offset(expected), "{}", time);
            prop_assert_eq!(reader.offset_at(Timestamp(time)).unwrap(), Offset(expected), "{}", time);
        }
    }
}

#[test]
fn what_was_acknowledged_is_told_record_by_record_with_its_time() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    let mut told = Vec::new();
    for number in 0..20_u64 {
        log.append(&mut arrivals(&[message("a", &[7; 3_000])]), &[""; 0], Timestamp(1_000 + number)).unwrap();
        for party in [7_u32, 8] {
            let (mark, acknowledged) = (Some(Offset(number)), vec![(Offset(number + 5), Offset(number + 6))]);
            let changes = Changes { mark, acknowledged, ..Changes::default() };
            let mut value = Vec::new();
            changes.encode(&mut value);
            log.append_control(0, &party.to_le_bytes(), &value, Timestamp(1_000 + number)).unwrap();
            let row = |begin, end| (number + 1, 1_000 + number, begin, end);
            let below = (number > 0).then(|| row(0, number));
            told.extend(below.into_iter().chain([row(number + 5, number + 6)]).filter(|_| party == 7));
        }
        log.append_control(9, b"key", b"value", Timestamp(1_000 + number)).unwrap();
        log.commit().unwrap();
    }
    let mut reader = LogReader::open(Arc::new(disk.clone())).unwrap();
    reader.refresh(None, false).unwrap();
    assert!(reader.segments().len() > 2, "{}", reader.segments().len());
    let parties = HashSet::from([Party(7)]);
    // The last ones lie before no message yet.
    told.retain(|row| row.0 < 20);
    for (from, to) in [(0, 20), (3, 11), (11, 100), (19, 20), (20, 40)] {
        for rows in [1, 2, 5, 1_000] {
            let (mut found, mut from_number) = (Vec::new(), Some(0));
            while let Some(number) = from_number {
                let wanted = Stretch { from: Offset(from), from_number: number, to: Offset(to), rows };
                let (part, next) = reader.progress(&parties, wanted).unwrap();
                assert!(part.len() <= rows + 1, "a record is told whole");
                found.extend(part.iter().map(|row| (row.before.0, row.at.0, row.begin.0, row.end.0)));
                from_number = next;
            }
            let expected: Vec<_> = told.iter().filter(|row| from <= row.0 && row.0 < to).copied().collect();
            assert_eq!(found, expected, "{from} to {to}, {rows} rows at a time");
        }
    }
}
