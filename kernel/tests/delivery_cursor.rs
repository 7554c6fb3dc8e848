//! Ranges and cursor hold what they promise, whatever is done to them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::as_conversions, clippy::panic, missing_docs)]

use holdfast_kernel::delivery::cursor::{Cursor, Entry};
use holdfast_kernel::ids::{KeySlot, Offset, Receiver, Timestamp};
use holdfast_kernel::ranges::RangeSet;
use holdfast_kernel::selection::{key_slot, murmur3_32};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn entry(offset: u64, count: u32) -> Entry {
    let key_slot = KeySlot((offset % 3) as u16);
    Entry { offset: Offset(offset), count, number: offset, key_slot, not_before: Timestamp(0) }
}

fn ends(entry: &Entry) -> u64 {
    entry.end().0
}

/// One thing that happens to a cursor; numbers choose among what is there.
#[derive(Debug, Clone)]
enum Operation {
    Deliver { gap: u64, count: u32, holder: u32 },
    Acknowledge(usize),
    AcknowledgeMessage(usize, u32),
    AcknowledgeUpTo(usize),
    GiveBack(usize, u64),
    Release(u32),
    Redeliver(u64, u32),
    TakeProgress,
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let operation = prop_oneof![
        4 => (0..3u64, 1..4u32, 1..4u32).prop_map(|(gap, count, holder)| Operation::Deliver { gap, count, holder }),
        3 => any::<usize>().prop_map(Operation::Acknowledge),
        1 => (any::<usize>(), 0..4u32).prop_map(|(choice, index)| Operation::AcknowledgeMessage(choice, index)),
        1 => any::<usize>().prop_map(Operation::AcknowledgeUpTo),
        1 => (any::<usize>(), 0..9u64).prop_map(|(choice, time)| Operation::GiveBack(choice, time)),
        1 => (1..4u32).prop_map(Operation::Release),
        2 => (0..9u64, 1..4u32).prop_map(|(now, holder)| Operation::Redeliver(now, holder)),
        1 => Just(Operation::TakeProgress),
    ];
    proptest::collection::vec(operation, 0..400)
}

/// A cursor, what is outstanding by its user's own account, and what progress records say.
struct Run {
    cursor: Cursor,
    outstanding: Vec<Entry>,
    end: u64,
    durable_mark: u64,
    durable: RangeSet,
}

impl Run {
    fn new() -> Run {
        let (cursor, durable) = (Cursor::new(Offset(0)), RangeSet::new());
        Run { cursor, outstanding: Vec::new(), end: 0, durable_mark: 0, durable }
    }

    fn chosen(&self, choice: usize) -> Entry {
        let there = self.outstanding.len();
        if there == 0 {
            entry(u64::MAX - 9, 1)
        } else {
            self.outstanding[choice % there]
        }
    }

    fn play(&mut self, operation: &Operation) {
        match *operation {
            Operation::Deliver { gap, count, holder } => {
                let entry = entry(self.end + gap, count);
                assert!(self.cursor.deliver(entry, Receiver(holder)));
                self.outstanding.push(entry);
                self.end = ends(&entry);
            }
            Operation::Acknowledge(choice) => {
                let entry = self.chosen(choice);
                let was_there = self.outstanding.contains(&entry);
                assert_eq!(self.cursor.acknowledge(entry.offset).is_some(), was_there);
                assert!(self.cursor.acknowledge(entry.offset).is_none());
                self.outstanding.retain(|other| *other != entry);
            }
            Operation::AcknowledgeMessage(choice, index) => {
                let entry = self.chosen(choice);
                if self.cursor.acknowledge_message(entry.offset, index) {
                    self.outstanding.retain(|other| *other != entry);
                }
            }
            Operation::AcknowledgeUpTo(choice) => {
                let bound = ends(&self.chosen(choice));
                while let Some(first) =
                    self.cursor.first().map(|first| first.entry).filter(|first| ends(first) <= bound)
                {
                    assert!(self.cursor.acknowledge_numbered(first.number).is_some());
                    assert!(self.cursor.acknowledge_numbered(first.number).is_none());
                }
                self.outstanding.retain(|other| ends(other) > bound);
            }
            Operation::GiveBack(choice, time) => {
                self.cursor.give_back(self.chosen(choice).offset, Timestamp(time));
            }
            Operation::Release(holder) => {
                self.cursor.release(Receiver(holder));
            }
            Operation::Redeliver(now, holder) => {
                if let Some(entry) = self.cursor.next_redelivery(Timestamp(now), |entry| entry.key_slot != KeySlot(1)) {
                    assert_ne!(entry.key_slot, KeySlot(1));
                    assert!(self.cursor.redeliver(entry.offset, Receiver(holder)).unwrap() > 1);
                }
            }
            Operation::TakeProgress => self.take_progress(),
        }
    }

    fn take_progress(&mut self) {
        if let Some(progress) = self.cursor.take_progress() {
            progress.ranges.iter().for_each(|(start, end)| self.durable.insert(start, end));
            self.durable.remove_below(progress.mark.0);
            self.durable_mark = progress.mark.0;
            let restored = Cursor::restore(progress.mark, self.durable.clone());
            assert_eq!((restored.mark(), restored.acknowledged()), (self.cursor.mark(), self.cursor.acknowledged()));
        }
    }

    fn check(&self) {
        let cursor = &self.cursor;
        assert!(cursor.mark() <= cursor.read());
        assert_eq!(cursor.in_flight_count() + cursor.redelivery_count(), self.outstanding.len());
        assert_eq!(cursor.in_flight_count(), cursor.deliveries().count());
        assert!(cursor.acknowledged().len() <= self.outstanding.len());
        for entry in &self.outstanding {
            assert!(cursor.delivery(entry.offset).is_some());
            assert!(cursor.mark() <= entry.offset && !cursor.acknowledged().contains(entry.offset.0));
        }
        // Whatever was read and is not outstanding is below the mark or in a range.
        let done = |offset: &u64| *offset < cursor.mark().0 || cursor.acknowledged().contains(*offset);
        let held: BTreeSet<u64> = self.outstanding.iter().flat_map(|entry| entry.offset.0..ends(entry)).collect();
        let open = (0..cursor.read().0).filter(|offset| !done(offset) && !held.contains(offset)).count();
        let gaps: u64 = 2 * u64::try_from(self.outstanding.len()).unwrap();
        assert!(u64::try_from(open).unwrap() <= gaps, "{open} offsets belong to nobody");
    }
}

proptest! {
    #[test]
    fn a_cursor_keeps_its_invariants(operations in operations()) {
        let mut run = Run::new();
        let mut mark = Offset(0);
        for operation in &operations {
            run.play(operation);
            run.check();
            prop_assert!(run.cursor.mark() >= mark);
            mark = run.cursor.mark();
        }
        run.play(&Operation::AcknowledgeUpTo(run.outstanding.len().saturating_sub(1)));
        prop_assert_eq!(run.cursor.mark(), run.cursor.read());
        prop_assert_eq!(run.cursor.mark(), Offset(run.end));
        prop_assert!(run.cursor.acknowledged().is_empty());
        prop_assert_eq!(run.cursor.in_flight_count() + run.cursor.redelivery_count(), 0);
    }

    #[test]
    fn ranges_equal_a_set(changes in proptest::collection::vec((0..4u8, 0..80u64, 0..80u64), 0..60)) {
        let mut ranges = RangeSet::new();
        let mut set = BTreeSet::new();
        for (kind, start, end) in changes {
            if kind == 0 {
                ranges.remove_below(start / 2);
                set = set.split_off(&(start / 2));
            } else {
                ranges.insert(start, end);
                set.extend(start..end);
            }
            prop_assert_eq!(ranges.iter().flat_map(|(start, end)| start..end).collect::<BTreeSet<_>>(), set.clone());
            let apart = ranges.iter().zip(ranges.iter().skip(1)).all(|((_, end), (next, _))| end < next);
            prop_assert!(apart);
        }
        let mut bytes = Vec::new();
        ranges.encode(&mut bytes);
        bytes.push(7);
        let (decoded, rest) = RangeSet::decode(&bytes).unwrap();
        prop_assert_eq!((&decoded, rest), (&ranges, &[7u8][..]));
    }

    #[test]
    fn any_bytes_are_ranges_in_their_one_encoding_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        if let Ok((ranges, rest)) = RangeSet::decode(&bytes) {
            let mut again = Vec::new();
            ranges.encode(&mut again);
            prop_assert_eq!([&again, rest].concat(), bytes);
        }
    }
}

#[test]
fn ranges_reach_to_the_last_position() {
    let mut ranges = RangeSet::new();
    ranges.insert(u64::MAX - 1, u64::MAX);
    ranges.insert(0, 1);
    assert_eq!(ranges.gaps(0, u64::MAX).iter().collect::<Vec<_>>(), [(1, u64::MAX - 1)]);
    assert!(ranges.gaps(u64::MAX, u64::MAX).is_empty());
    ranges.insert(1, u64::MAX);
    assert_eq!(ranges.iter().collect::<Vec<_>>(), [(0, u64::MAX)]);
    assert!(ranges.contains_range(0, u64::MAX) && !ranges.contains(u64::MAX));
}

#[test]
fn a_batch_is_done_when_its_last_message_is() {
    let mut cursor = Cursor::new(Offset(0));
    cursor.deliver(entry(0, 3), Receiver(1));
    assert!(!cursor.acknowledge_message(Offset(0), 2));
    assert!(!cursor.acknowledge_message(Offset(0), 2));
    assert!(!cursor.acknowledge_message(Offset(0), 3));
    let delivery = cursor.delivery(Offset(0)).unwrap();
    assert_eq!(delivery.remaining(), 2);
    assert!(!cursor.acknowledge_message(Offset(0), 0));
    assert_eq!(cursor.mark(), Offset(0));
    assert!(cursor.acknowledge_message(Offset(0), 1));
    assert_eq!(cursor.mark(), Offset(3));
}

#[test]
fn a_holder_that_leaves_gives_back_its_own_only() {
    let mut cursor = Cursor::new(Offset(0));
    for offset in 0..4 {
        cursor.deliver(entry(offset, 1), Receiver((offset % 2) as u32));
    }
    assert_eq!(cursor.release(Receiver(1)), 2);
    assert_eq!(cursor.deliveries().map(|delivery| delivery.entry.offset.0).collect::<Vec<_>>(), [0, 2]);
    let next = |cursor: &mut Cursor| cursor.next_redelivery(Timestamp(0), |_| true).map(|entry| entry.offset);
    assert_eq!(next(&mut cursor), Some(Offset(1)));
    assert_eq!(cursor.redeliver(Offset(1), Receiver(0)), Some(2));
    assert_eq!(cursor.give_back(Offset(2), Timestamp(50)).then(|| next(&mut cursor)), Some(Some(Offset(3))));
    assert_eq!(cursor.next_due(), Some(Timestamp(50)));
    assert_eq!(cursor.redeliver(Offset(2), Receiver(0)), None);
}

#[test]
fn what_is_skipped_is_told_by_what_was_known_of_it() {
    let mut cursor = Cursor::restore(Offset(0), [(40, 50)].into_iter().collect());
    for offset in [0, 10, 20, 28] {
        cursor.deliver(entry(offset, 4), Receiver(1));
    }
    cursor.acknowledge(Offset(10));
    cursor.acknowledge_message(Offset(20), 1);
    let skipped = cursor.skip(Offset(60));
    assert_eq!(skipped.offered.iter().collect::<Vec<_>>(), [(0, 4), (20, 21), (22, 24), (28, 32)]);
    assert_eq!(skipped.messages, 11);
    assert_eq!(skipped.unread.iter().collect::<Vec<_>>(), [(32, 40), (50, 60)]);
    assert_eq!((cursor.mark(), cursor.read()), (Offset(60), Offset(60)));
    assert_eq!(cursor.skip(Offset(60)), Default::default());
}

#[test]
fn done_entries_behind_one_that_is_stuck_take_no_memory() {
    let mut cursor = Cursor::new(Offset(0));
    cursor.deliver(entry(0, 1), Receiver(1));
    for offset in 1..100_000 {
        cursor.deliver(entry(offset, 1), Receiver(2));
        assert!(cursor.acknowledge(Offset(offset)).is_some());
    }
    assert_eq!(cursor.acknowledged().iter().collect::<Vec<_>>(), [(1, 100_000)]);
    assert!(format!("{cursor:?}").len() < 60_000, "done entries stay");
    assert!(cursor.acknowledge(Offset(0)).is_some());
    assert_eq!(cursor.mark(), Offset(100_000));
}

/// accepts: S4.140
#[test]
fn the_order_key_hashes_to_its_slot() {
    assert_eq!(murmur3_32(b"Order-3459134"), 3_112_179_635);
    assert_eq!(key_slot(b"Order-3459134"), KeySlot(6_067));
}
