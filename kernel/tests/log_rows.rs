//! Entries as rows: one for each message, from any offset and however few at a time; one without a value for what
//! cannot be opened.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::cast_possible_truncation
)]

mod entry_support;
mod log_support;

use entry_support::{batch, compressed, saying, tail};
use holdfast_kernel::disk::fake::FakeDisk;
use holdfast_kernel::entry::Compression;
use holdfast_kernel::flow::entry::{EntryParts, CHECKED_FROM};
use holdfast_kernel::flow::Scan;
use holdfast_kernel::ids::{Offset, Timestamp};
use holdfast_kernel::protobuf::put_bytes;
use holdfast_kernel::store::{ColumnSet, Columns, Criteria, Limits, Log, LogReader};
use log_support::{arrivals, message, open, options, scan_of};
use proptest::prelude::*;
use std::sync::Arc;

fn entry(count: u32, sent: &[u8], log: &mut Log) {
    let mut arrived = arrivals(&[message("a", sent)]);
    arrived.publishes[0].entry = Some(0);
    arrived.entries.push(EntryParts {
        producer: 1,
        sequence_first: 0,
        sequence_last: u64::from(count) - 1,
        count,
        key_hash: None,
        not_before: None,
        opened_bytes: 0,
        checksum: crc32c::crc32c(&sent[CHECKED_FROM..]),
    });
    log.append(&mut arrived, &[""; 0], Timestamp(5)).unwrap();
}

/// A batch of messages that say their offsets, compressed in one of two ways.
fn batch_of(first: u64, count: u32) -> Vec<u8> {
    let messages: Vec<_> =
        (0..u64::from(count)).map(|place| (Vec::new(), None, (first + place).to_string().into_bytes())).collect();
    let payload = batch(&messages);
    let way = if first % 2 == 0 { Compression::None } else { Compression::Lz4 };
    let number = u64::from(first % 2 == 1);
    tail(&saying(&[(8, number), (9, payload.len() as u64), (11, u64::from(count))]), &compressed(way, &payload))
}

fn numbers(columns: &Columns) -> Vec<(u64, String)> {
    let offsets = columns.offset.chunks(8).map(|offset| u64::from_le_bytes(offset.try_into().unwrap()));
    let ends: Vec<usize> =
        columns.value.offsets.chunks(4).map(|end| i32::from_le_bytes(end.try_into().unwrap()) as usize).collect();
    let values = ends.windows(2).map(|ends| String::from_utf8(columns.value.data[ends[0]..ends[1]].to_vec()).unwrap());
    offsets.zip(values).collect()
}

fn rows(reader: &mut LogReader, from: u64, to: u64, page: usize) -> Vec<(u64, String)> {
    let (mut all, mut from) = (Vec::new(), Offset(from));
    while from.0 < to {
        let limits = Limits { from, to: Offset(to), rows: page, bytes: 1 << 20 };
        let (columns, reached) = reader.read(&Criteria::default(), ColumnSet::ALL, &limits).unwrap();
        assert!(reached > from, "a reader moves on");
        let found = numbers(&columns);
        assert!(found.len() <= page);
        all.extend(found);
        from = reached;
    }
    all
}

/// How large each message of the log is found to be.
fn sizes(log: &mut Log, whole: bool) -> Vec<u32> {
    let mut scan = Scan { whole, ..scan_of("#", 0) };
    log.scan(std::slice::from_mut(&mut scan)).unwrap();
    scan.found.iter().map(|found| found.size_bytes).collect()
}

#[test]
fn what_is_given_out_by_itself_is_as_large_as_its_topic_and_what_is_compressed_make_it() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    let payload = batch(&vec![(Vec::new(), None, vec![0; 50_000]); 10]);
    let said = saying(&[(8, 1), (9, payload.len() as u64), (11, 10)]);
    entry(10, &tail(&said, &compressed(Compression::Lz4, &payload)), &mut log);
    // Of what is not compressed that number says nothing.
    entry(1, &tail(&saying(&[(9, 1 << 30)]), b"x"), &mut log);
    let topic = &*"t".repeat(60_000).leak();
    log.append(&mut arrivals(&[message(topic, b"x")]), &[""; 0], Timestamp(5)).unwrap();
    log.commit().unwrap();
    let singly = sizes(&mut log, false);
    assert_eq!(singly.len(), 12);
    assert!(singly[..10].iter().all(|size| (50_000..51_000).contains(size)), "{singly:?}");
    assert!(singly[10] < 200, "{singly:?}");
    assert!((60_000..60_200).contains(&singly[11]), "{singly:?}");
    // Whoever takes entries takes them as they are stored, and has the topic already.
    let whole = sizes(&mut log, true);
    assert!(whole.len() == 3 && whole.iter().all(|size| *size < 5_000), "{whole:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn each_message_of_an_entry_is_a_row(
        counts in proptest::collection::vec(0_u32..20, 1..30),
        range in any::<(u64, u64)>(),
        page in 1_usize..30,
    ) {
        let disk = FakeDisk::new(1, 1 << 30);
        let (mut log, _) = open(&disk, options());
        for count in &counts {
            let first = log.end_offset().0;
            if *count == 0 {
                let said = first.to_string();
                log.append(&mut arrivals(&[message("b", said.as_bytes())]), &[""; 0], Timestamp(5)).unwrap();
            } else {
                entry(*count, &batch_of(first, *count), &mut log);
            }
        }
        log.commit().unwrap();
        let end = log.end_offset().0;
        let (from, to) = (range.0 % (end + 1), range.1 % (end + 1));
        let (from, to) = (from.min(to), from.max(to));
        let mut reader = LogReader::open(Arc::new(disk)).unwrap();
        reader.refresh(None, false).unwrap();
        let wanted: Vec<(u64, String)> = (from..to).map(|offset| (offset, offset.to_string())).collect();
        prop_assert_eq!(rows(&mut reader, from, to, page), wanted);
        let limits = Limits { from: Offset(from), to: Offset(to), rows: page, bytes: u64::MAX };
        let reach = reader.reach(&Criteria::default(), &limits).unwrap();
        prop_assert_eq!(reach.rows, (to - from).min(page as u64));
        prop_assert_eq!(reach.end.0, to.min(from + page as u64));
    }
}

#[test]
fn what_is_encrypted_is_one_row_without_a_value_that_says_so() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    let mut metadata = saying(&[(11, 3)]);
    put_bytes(&mut metadata, 13, b"\x0a\x01k\x12\x01v");
    entry(3, &tail(&metadata, &[0; 40]), &mut log);
    entry(1, &batch_of(3, 1), &mut log);
    log.commit().unwrap();
    let mut reader = LogReader::open(Arc::new(disk)).unwrap();
    reader.refresh(None, false).unwrap();
    assert_eq!(rows(&mut reader, 0, 4, 10), [(0, String::new()), (3, "3".to_owned())]);
    let limits = Limits { from: Offset(0), to: Offset(4), rows: 10, bytes: 1 << 20 };
    let (columns, _) = reader.read(&Criteria::default(), ColumnSet::ALL, &limits).unwrap();
    let said = String::from_utf8_lossy(&columns.properties.values.data).into_owned();
    assert_eq!(said, "encrypted");
}

#[test]
fn a_time_that_no_calendar_shows_is_none() {
    let times = [1_700_000_000_000, 253_402_300_799_999, 253_402_300_800_000, u64::MAX];
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    times.iter().for_each(|time| entry(1, &tail(&saying(&[(12, *time)]), b"x"), &mut log));
    log.commit().unwrap();
    let mut reader = LogReader::open(Arc::new(disk)).unwrap();
    reader.refresh(None, false).unwrap();
    let limits = Limits { from: Offset(0), to: Offset(4), rows: 10, bytes: 1 << 20 };
    let (columns, _) = reader.read(&Criteria::default(), ColumnSet::ALL, &limits).unwrap();
    assert_eq!(columns.has_event_time.bytes, [0b0011]);
}
