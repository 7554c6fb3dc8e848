//! Several messages in one record: found whole or one by one, from any offset, counted exactly, and still there after a
//! restart, with records that hold one message beside them.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::cast_possible_truncation
)]

mod log_support;

use holdfast_kernel::disk::fake::FakeDisk;
use holdfast_kernel::flow::entry::{Body, EntryParts, CHECKED_FROM};
use holdfast_kernel::flow::{Messages, Scan};
use holdfast_kernel::ids::{Offset, Party, Timestamp};
use holdfast_kernel::store::{Log, Options, RetentionCursor, Wanted};
use log_support::{
    arrivals, message, open, options, retain, scan_of, subscription, without_checkpoints, Asking, TOPICS,
};
use proptest::prelude::*;

/// A record: its topic, how many messages it holds (0: it is a message and no entry), and the bytes of each.
type Brief = (usize, u32, usize);

/// The first offset of each record, and its end.
fn places(records: &[Brief]) -> Vec<(usize, u64, u64)> {
    let mut at = 0;
    let mut found = Vec::new();
    for (topic, count, _) in records {
        let end = at + u64::from((*count).max(1));
        found.push((*topic, at, end));
        at = end;
    }
    found
}

fn tail(count: u32, bytes: usize) -> Vec<u8> {
    let mut tail = vec![0x0e, 0x01, 0, 0, 0, 0];
    tail.extend((0..count as usize * bytes).map(|at| (at % 251) as u8));
    let checksum = crc32c::crc32c(&tail[CHECKED_FROM..]).to_be_bytes();
    tail[2..6].copy_from_slice(&checksum);
    tail
}

fn append(log: &mut Log, records: &[Brief]) {
    append_some(log, records);
    log.commit().unwrap();
}

/// The same, of which the last ones may not be durable.
fn append_some(log: &mut Log, records: &[Brief]) {
    for (number, (topic, count, bytes)) in records.iter().enumerate() {
        let payload = if *count == 0 { vec![7; *bytes] } else { tail(*count, *bytes) };
        let mut arrived = arrivals(&[message(TOPICS[*topic], &payload)]);
        if *count > 0 {
            arrived.publishes[0].entry = Some(0);
            arrived.entries.push(EntryParts {
                producer: 4,
                sequence_first: number as u64,
                sequence_last: number as u64 + u64::from(*count) - 1,
                count: *count,
                key_hash: (number % 2 == 0).then_some(number as u32),
                not_before: (number % 3 == 0).then_some(Timestamp(9)),
                opened_bytes: 0,
                checksum: crc32c::crc32c(&payload[CHECKED_FROM..]),
            });
        }
        log.append(&mut arrived, &[""; 0], Timestamp(1_000 + number as u64)).unwrap();
        assert!(arrived.publishes[0].stored.is_some());
        if number % 7 == 0 {
            log.commit().unwrap();
        }
    }
}

/// What a queue finds in several scans: offset and count.
fn scanned(log: &mut Log, filter: &str, from: u64, whole: bool, page: u32) -> Vec<(u64, u32)> {
    let mut scan = Scan { whole, records_maximum: page, ..scan_of(filter, from) };
    let (mut all, end) = (Vec::new(), log.durable_offset());
    while scan.from < end {
        log.scan(std::slice::from_mut(&mut scan)).unwrap();
        assert_eq!(scan.missing, None);
        assert!(scan.reached > scan.from, "a scan moves on");
        assert!(scan.found.len() <= page as usize);
        all.extend(scan.found.iter().map(|found| (found.offset.0, found.count)));
        scan.from = scan.reached;
    }
    all
}

fn check(log: &mut Log, records: &[Brief], asked: &[(u64, u64)], page: u32) {
    let places = places(records);
    let end = places.last().map_or(0, |last| last.2);
    assert_eq!(log.end_offset(), Offset(end));
    for (filter, topics) in [("#", 0..6), ("a", 0..1), ("b/+", 3..5)] {
        let of_filter: Vec<&(usize, u64, u64)> = places.iter().filter(|(topic, ..)| topics.contains(topic)).collect();
        for (from, to) in asked.iter().map(|(one, other)| (one % (end + 1), other % (end + 1))) {
            let (from, to) = (from.min(to), from.max(to));
            let singly: Vec<(u64, u32)> =
                of_filter.iter().flat_map(|place| place.1.max(from)..place.2).map(|offset| (offset, 1)).collect();
            assert_eq!(scanned(log, filter, from, false, page), singly);
            let behind = of_filter.iter().filter(|place| place.2 > from);
            let whole: Vec<(u64, u32)> = behind.map(|place| (place.1, (place.2 - place.1) as u32)).collect();
            assert_eq!(scanned(log, filter, from, true, page), whole);

            let subscriptions = [subscription(filter, 0, u64::MAX)];
            let within: Vec<u64> = singly.iter().map(|(offset, _)| *offset).filter(|offset| *offset < to).collect();
            let range = (Offset(from), Offset(to));
            assert_eq!(log.count(&subscriptions, range, Timestamp(0)), within.len() as u64);
            assert_eq!(
                log.ask(&subscriptions, range, Timestamp(0), Wanted::First),
                within.first().copied().unwrap_or(to)
            );
            for left in [1, 3, 50] {
                let newest = within.len().checked_sub(left).map_or(from, |place| within[place]);
                let answer = log.ask(&subscriptions, range, Timestamp(0), Wanted::Newest(left as u64));
                let remaining = within.iter().filter(|offset| **offset >= answer).count();
                assert_eq!(remaining, within.len().min(left), "{answer} where {newest} does");
            }
        }
    }
    for (number, ((topic, offset, _), (_, count, bytes))) in places.iter().zip(records).enumerate() {
        let mut scan = Scan { whole: true, records_maximum: 1, ..scan_of(TOPICS[*topic], *offset) };
        log.scan(std::slice::from_mut(&mut scan)).unwrap();
        let location = scan.found[0].location;
        let entry = log.entry(location, Offset(*offset)).unwrap().unwrap();
        assert_eq!((entry.offset, entry.count), (Offset(*offset), (*count).max(1)));
        let before = records[..number].iter().filter(|record| record.0 == *topic).count();
        assert_eq!(entry.number, before as u64);
        match entry.body {
            Body::AsSent(sent) => assert_eq!(sent, tail(*count, *bytes)),
            Body::Message(message) => assert_eq!((*count, message.payload.len()), (0, *bytes)),
        }
    }
}

fn small() -> Options {
    Options { segment_bytes: 16_384, ..options() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_message_is_found_and_counted_from_any_offset(
        records in proptest::collection::vec((0_usize..6, 0_u32..40, 1_usize..60), 1..60),
        asked in proptest::collection::vec((any::<u64>(), any::<u64>()), 4),
        page in 1_u32..30,
    ) {
        let disk = FakeDisk::new(1, 1 << 30);
        let (mut log, _) = open(&disk, small());
        append(&mut log, &records);
        check(&mut log, &records, &asked, page);
        drop(log);
        let (mut log, _) = open(&disk, small());
        check(&mut log, &records, &asked, page);
        drop(log);
        let (mut log, _) = open(&without_checkpoints(&disk), small());
        check(&mut log, &records, &asked, page);
    }

    #[test]
    fn a_power_cut_leaves_whole_entries_and_all_that_were_synced(
        records in proptest::collection::vec((0_usize..6, 0_u32..400, 1_usize..4), 1..40),
        seed: u64,
    ) {
        let disk = FakeDisk::new(seed, 1 << 30);
        let (mut log, _) = open(&disk, options());
        append_some(&mut log, &records);
        let durable = log.durable_offset().0;
        drop(log);
        disk.crash();
        let (mut log, _) = open(&disk, options());
        let kept = log.end_offset().0;
        prop_assert!(kept >= durable, "{kept} of {durable}");
        let places = places(&records);
        let left = places.iter().position(|place| place.1 == kept).unwrap_or(places.len());
        prop_assert!(left < places.len() || places[left - 1].2 == kept, "{kept} lies within an entry");
        log.commit().unwrap();
        check(&mut log, &records[..left], &[(0, u64::MAX - 1)], 50);
    }
}

#[test]
fn an_entry_of_a_thousand_messages_takes_a_thousand_offsets_and_one_number() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    let records = [(0, 1_000, 3), (0, 0, 5), (0, 65_536, 1), (1, 2, 2)];
    append(&mut log, &records);
    check(&mut log, &records, &[(0, u64::MAX - 7), (500, 1_500), (999, 66_000)], 10_000);
}

#[test]
fn a_topic_has_a_number_before_its_first_entry_and_keeps_it() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    assert_eq!(log.entries_end(b"a"), None);
    let number = log.declare(b"a", Timestamp(5)).unwrap();
    assert_eq!((log.declare(b"a", Timestamp(6)).unwrap(), log.entries_end(b"a")), (number, Some(0)));
    assert_eq!(log.end_offset(), Offset(0));
    append(&mut log, &[(0, 3, 1), (0, 0, 1)]);
    drop(log);
    let (mut log, _) = open(&disk, options());
    assert_eq!((log.declare(b"a", Timestamp(7)).unwrap(), log.entries_end(b"a")), (number, Some(2)));
}

#[test]
fn what_outlives_its_segment_is_whole_entries() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, small());
    let records: Vec<Brief> = (0..200).map(|number| (number % 2, 20, 20)).collect();
    append(&mut log, &records);
    let end = log.end_offset();
    // It has acknowledged all but what begins in the middle of the second entry of its topic.
    let mark = Offset(20 * 2 + 7);
    let cursor = RetentionCursor {
        party: Party(9),
        mark,
        subscriptions: vec![subscription("a", 0, u64::MAX)],
        keep_from: Offset(0),
        messages_maximum: u64::MAX,
    };
    let done = retain(&mut log, u64::MAX, 1, &[cursor], 5_000).unwrap();
    assert!(done.removed_segments > 0 && done.carried_records > 0, "{done:?}");
    assert_eq!(done.losses.iter().map(|loss| loss.count).sum::<u64>(), 0);
    let wanted: Vec<(u64, u32)> = places(&records)
        .iter()
        .filter(|place| place.0 == 0)
        .flat_map(|place| place.1.max(mark.0)..place.2)
        .map(|offset| (offset, 1))
        .collect();
    assert_eq!(found(&mut log, mark.0), wanted);
    drop(log);
    let (mut log, _) = open(&disk, small());
    assert_eq!(log.end_offset(), end);
    assert_eq!(found(&mut log, mark.0), wanted);
}

/// What a queue for `a` finds that has lost nothing, whatever has gone beside it.
fn found(log: &mut Log, from: u64) -> Vec<(u64, u32)> {
    let (mut all, end) = (Vec::new(), log.durable_offset());
    let mut scan = scan_of("a", from);
    while scan.from < end {
        log.scan(std::slice::from_mut(&mut scan)).unwrap();
        all.extend(scan.found.iter().map(|found| (found.offset.0, found.count)));
        scan.from = scan.reached;
    }
    all
}
