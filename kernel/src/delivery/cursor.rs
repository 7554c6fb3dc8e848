//! The position of one queue in the log, and everything it has been offered and not acknowledged.
//!
//! Owns: the mark, the acknowledged ranges above it, each delivery's holder and attempts, the redelivery set and the
//! delays. Never: reads the log, knows what a record holds, decides who gets it, or reads a clock.
//!
//! Invariants:
//! 1. `mark <= read`, and neither ever moves backwards.
//! 2. Every matching record below `read` is acknowledged, held, or waits; a record in one state is in no other.
//! 3. An acknowledgement covers the offsets from the end of the entry offered before it, so offsets in between that do
//!    not match leave no gaps: in order, the mark moves at once and `acknowledged` is empty.
//! 4. While nothing is held and nothing waits, the mark is where reading is.
//! 5. Memory follows what is held or waits, and the acknowledged ranges between; never the number of acknowledgements.
//!
//! Entries are offered in log order, so they stand in a sorted deque: appending and finding one cost a few
//! nanoseconds, where a tree costs a hundred. Done entries are popped at the front; those in the middle
//! stay as marks until they outnumber the rest, and are then removed together.

use crate::ids::{KeySlot, Offset, Receiver, Timestamp};
use crate::ranges::RangeSet;
use std::collections::{BTreeSet, VecDeque};

/// Done entries in the middle of the deque that are tolerated before it is compacted.
const DONE_SLOTS_MINIMUM: usize = 64;

/// Fresh ranges that are noted before they are put in order.
const FRESH_RANGES_MINIMUM: usize = 64;

/// A record that a queue wants, as the cursor sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The offset of its first message.
    pub offset: Offset,
    /// How many messages it holds; 0 counts as 1.
    pub count: u32,
    /// Its number among the entries of its topic; queues that are told of entries by it have one topic.
    pub number: u64,
    /// The slot of its key.
    pub key_slot: KeySlot,
    /// It may not go to anybody before this time; 0 is at once.
    pub not_before: Timestamp,
}

impl Entry {
    /// The offset after its last message.
    pub fn end(&self) -> Offset {
        Offset(self.offset.0.saturating_add(u64::from(self.count.max(1))))
    }
}

/// An entry that was offered, with its history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The record.
    pub entry: Entry,
    /// Who has it, or had it last.
    pub holder: Receiver,
    /// How often it was delivered: 1 at first, 0 if a delay has kept it from everybody so far.
    pub attempts: u16,
    /// How often a holder wanted it again where that counts.
    pub redeliveries: u16,
    /// Messages of the batch acknowledged one by one, by their index in it.
    acknowledged: Option<Box<RangeSet>>,
}

impl Delivery {
    /// How many of its messages are not acknowledged.
    pub fn remaining(&self) -> u64 {
        self.size() - self.acknowledged.as_ref().map_or(0, |indexes| indexes.positions())
    }

    fn size(&self) -> u64 {
        self.entry.end().0 - self.entry.offset.0
    }

    /// Acknowledges the message with this index, if it has so many.
    fn acknowledge(&mut self, index: u64) {
        let end = self.size().min(index + 1);
        self.acknowledged.get_or_insert_default().insert(index, end);
    }

    /// Adds the offsets of the messages not acknowledged to `ranges`.
    fn collect_remaining(&self, ranges: &mut RangeSet) {
        let (offset, end) = (self.entry.offset.0, self.entry.end().0);
        let Some(acknowledged) = &self.acknowledged else {
            return ranges.insert(offset, end);
        };
        for (first, last) in acknowledged.gaps(0, end - offset).iter() {
            ranges.insert(offset + first, offset + last);
        }
    }
}

/// What was acknowledged since the last call, for a durable record. Taking over the mark and then adding the ranges
/// brings an older state of the cursor up to now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The mark now.
    pub mark: Offset,
    /// What was acknowledged above the mark.
    pub ranges: RangeSet,
}

/// What `skip` gave up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Messages that had been offered.
    pub offered: RangeSet,
    /// The number of those messages.
    pub messages: u64,
    /// Offsets never read, of which only the log knows how many matched.
    pub unread: RangeSet,
}

/// Where an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its holder has it.
    Held,
    /// In the redelivery set.
    Ready,
    /// Not before its time.
    Future,
    /// Acknowledged or given up.
    Done,
}

#[derive(Debug, Clone)]
struct Slot {
    delivery: Delivery,
    /// Its acknowledgement covers the offsets from here to its end.
    covers_from: u64,
    state: State,
}

impl Slot {
    fn offset(&self) -> u64 {
        self.delivery.entry.offset.0
    }
}

/// The position of one queue.
#[derive(Debug, Clone, Default)]
pub struct Cursor {
    mark: u64,
    read: u64,
    /// The end of the last entry offered.
    tail: u64,
    acknowledged: RangeSet,
    /// In offset order; the first is never `Done`.
    slots: VecDeque<Slot>,
    done: usize,
    held: usize,
    /// Offsets that wait and are due.
    ready: BTreeSet<u64>,
    /// Time and offset of those that are not due.
    future: BTreeSet<(u64, u64)>,
    /// Ranges that came to `acknowledged` since the last `take_progress`, as they came.
    fresh: Vec<(u64, u64)>,
    progressed: bool,
}

impl Cursor {
    /// A cursor that wants nothing below `mark`.
    pub fn new(mark: Offset) -> Cursor {
        Cursor { mark: mark.0, read: mark.0, tail: mark.0, ..Cursor::default() }
    }

    /// A cursor as it was: everything below `mark` and in `acknowledged` is done.
    pub fn restore(mark: Offset, acknowledged: RangeSet) -> Cursor {
        let mut cursor = Cursor { acknowledged, ..Cursor::new(mark) };
        cursor.align();
        cursor
    }

    /// Everything below is done: acknowledged, given up, or not matched.
    pub fn mark(&self) -> Offset {
        Offset(self.mark)
    }

    /// Everything below has been offered or passed.
    pub fn read(&self) -> Offset {
        Offset(self.read)
    }

    /// What is acknowledged above the mark.
    pub fn acknowledged(&self) -> &RangeSet {
        &self.acknowledged
    }

    /// True if some of the entry is new to this cursor and was not acknowledged before it was restored.
    #[inline]
    pub fn wants(&self, entry: &Entry) -> bool {
        if entry.offset.0 < self.read && entry.end().0 <= self.read {
            return false;
        }
        let is_acknowledged = |of: &RangeSet| of.contains_range(entry.offset.0.max(self.read), entry.end().0);
        self.acknowledged.is_empty() || !is_acknowledged(&self.acknowledged)
    }

    /// There is no further matching record below `to`.
    pub fn pass(&mut self, to: Offset) {
        self.read = self.read.max(to.0);
        self.align();
    }

    /// A new record goes to a holder, and reading moves past it. False, and nothing happens, if it is not wanted.
    #[inline]
    pub fn deliver(&mut self, entry: Entry, holder: Receiver) -> bool {
        let wanted = self.wants(&entry);
        if wanted {
            self.held += 1;
            self.offer(Delivery { entry, holder, attempts: 1, redeliveries: 0, acknowledged: None }, State::Held);
        }
        wanted
    }

    /// A new record waits until `entry.not_before`, and reading moves past it. False, and nothing happens, if it is
    /// not wanted.
    pub fn delay(&mut self, entry: Entry) -> bool {
        let wanted = self.wants(&entry);
        if wanted {
            let state = self.enqueue(entry.offset.0, entry.not_before);
            let holder = Receiver::default();
            self.offer(Delivery { entry, holder, attempts: 0, redeliveries: 0, acknowledged: None }, state);
        }
        wanted
    }

    /// Acknowledges a whole entry, whoever holds it and also while it waits; returns it. `None` for an offset at
    /// which nothing is outstanding.
    #[inline]
    pub fn acknowledge(&mut self, offset: Offset) -> Option<Delivery> {
        let index = self.find(offset.0)?;
        self.acknowledge_at(index)
    }

    /// The same for what has this number, where all entries are those of one topic.
    #[inline]
    pub fn acknowledge_numbered(&mut self, number: u64) -> Option<Delivery> {
        let index = self.find_numbered(number)?;
        self.acknowledge_at(index)
    }

    /// Acknowledges an entry that has not been offered yet: it was in flight before the cursor was restored.
    pub fn acknowledge_ahead(&mut self, entry: &Entry) {
        if self.wants(entry) {
            self.cover(entry.offset.0, entry.end().0);
            self.align();
        }
    }

    /// Acknowledges one message of an entry; true if this makes the entry complete.
    pub fn acknowledge_message(&mut self, offset: Offset, batch_index: u32) -> bool {
        let Some(slot) = self.find(offset.0).and_then(|index| self.slots.get_mut(index)) else {
            return false;
        };
        slot.delivery.acknowledge(u64::from(batch_index));
        slot.delivery.remaining() == 0 && self.acknowledge(offset).is_some()
    }

    /// A holder gives an entry back: it waits for redelivery until `not_before`, and keeps its attempts. False if
    /// nobody holds it.
    pub fn give_back(&mut self, offset: Offset, not_before: Timestamp) -> bool {
        let Some(index) = self.find(offset.0).filter(|index| self.state(*index) == Some(State::Held)) else {
            return false;
        };
        self.held -= 1;
        let state = self.enqueue(offset.0, not_before);
        if let Some(slot) = self.slots.get_mut(index) {
            slot.state = state;
            slot.delivery.entry.not_before = not_before;
        }
        true
    }

    /// What was given back was wanted again, and that counts.
    pub fn count_redelivery(&mut self, offset: Offset) {
        if let Some(slot) = self.find(offset.0).and_then(|index| self.slots.get_mut(index)) {
            slot.delivery.redeliveries = slot.delivery.redeliveries.saturating_add(1);
        }
    }

    /// A holder has left: what it has waits for redelivery, in position order. Returns the number of entries.
    pub fn release(&mut self, holder: Receiver) -> u64 {
        let mut released = 0;
        for slot in &mut self.slots {
            if slot.state == State::Held && slot.delivery.holder == holder {
                slot.state = State::Ready;
                slot.delivery.entry.not_before = Timestamp(0);
                self.ready.insert(slot.offset());
                self.held -= 1;
                released += 1;
            }
        }
        released
    }

    /// The lowest entry that waits, is due, and that `may_go` allows (keys on hold are refused there).
    pub fn next_redelivery(&mut self, now: Timestamp, mut may_go: impl FnMut(&Entry) -> bool) -> Option<Entry> {
        while let Some(&(time, offset)) = self.future.first().filter(|(time, _)| *time <= now.0) {
            self.future.remove(&(time, offset));
            self.ready.insert(offset);
            if let Some(slot) = self.find(offset).and_then(|index| self.slots.get_mut(index)) {
                slot.state = State::Ready;
            }
        }
        let entries = self.ready.iter().filter_map(|offset| self.delivery(Offset(*offset)));
        entries.map(|delivery| delivery.entry).find(|entry| may_go(entry))
    }

    /// A waiting entry that is due goes to a holder; returns the attempts with this one. `None` if it is not in the
    /// redelivery set.
    pub fn redeliver(&mut self, offset: Offset, holder: Receiver) -> Option<u16> {
        let index = self.find(offset.0).filter(|index| self.state(*index) == Some(State::Ready))?;
        let slot = self.slots.get_mut(index)?;
        slot.state = State::Held;
        slot.delivery.holder = holder;
        slot.delivery.attempts = slot.delivery.attempts.saturating_add(1);
        let attempts = slot.delivery.attempts;
        self.ready.remove(&offset.0);
        self.held += 1;
        Some(attempts)
    }

    /// When the first entry that is not due becomes due.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.future.first().map(|(time, _)| Timestamp(*time))
    }

    /// What waits and is due, in position order.
    pub fn redeliveries(&self) -> impl Iterator<Item = Offset> + '_ {
        self.ready.iter().copied().map(Offset)
    }

    /// What is outstanding at this offset, held or waiting.
    pub fn delivery(&self, offset: Offset) -> Option<&Delivery> {
        self.find(offset.0).and_then(|index| self.slots.get(index)).map(|slot| &slot.delivery)
    }

    /// What holders have, in position order.
    pub fn deliveries(&self) -> impl Iterator<Item = &Delivery> {
        self.slots.iter().filter(|slot| slot.state == State::Held).map(|slot| &slot.delivery)
    }

    /// What is outstanding with this number, held or waiting; where all entries are those of one topic.
    pub fn numbered(&self, number: u64) -> Option<&Delivery> {
        let slot = self.find_numbered(number).and_then(|index| self.slots.get(index))?;
        (slot.state != State::Done).then_some(&slot.delivery)
    }

    /// What is outstanding first, held or waiting.
    pub fn first(&self) -> Option<&Delivery> {
        self.slots.front().map(|slot| &slot.delivery)
    }

    /// The number of messages that wait, due or not.
    pub fn waiting_messages(&self) -> u64 {
        let waiting = self.slots.iter().filter(|slot| matches!(slot.state, State::Ready | State::Future));
        waiting.map(|slot| slot.delivery.remaining()).sum()
    }

    /// The number of entries that holders have.
    pub fn in_flight_count(&self) -> usize {
        self.held
    }

    /// The number of entries that wait, due or not.
    pub fn redelivery_count(&self) -> usize {
        self.ready.len() + self.future.len()
    }

    /// What was acknowledged or given up since the last call. Passing alone is no progress: what was passed is found
    /// again from the log's index, and is not worth a durable record.
    pub fn take_progress(&mut self) -> Option<Progress> {
        let progressed = std::mem::take(&mut self.progressed);
        progressed.then(|| Progress { mark: Offset(self.mark), ranges: self.take_fresh() })
    }

    /// Gives up everything below `to` that is not acknowledged (retention, a queue's limit). An entry that was offered
    /// and starts below `to` goes as a whole; `to` may not lie inside a record that was not offered.
    pub fn skip(&mut self, to: Offset) -> Skipped {
        let mut skipped = Skipped::default();
        if to.0 <= self.mark {
            return skipped;
        }
        let mut end = to.0;
        let mut index = 0;
        while self.slots.get(index).is_some_and(|slot| slot.offset() < to.0) {
            if let Some((delivery, _)) = self.retire(index) {
                delivery.collect_remaining(&mut skipped.offered);
                skipped.messages += delivery.remaining();
                end = end.max(delivery.entry.end().0);
            }
            index += 1;
        }
        if self.read < to.0 {
            skipped.unread = self.acknowledged.gaps(self.read, to.0);
        }
        self.read = self.read.max(end);
        self.cover(self.mark, end);
        self.trim();
        skipped
    }

    /// The outstanding entry at this offset: its index in the deque.
    #[inline]
    fn find(&self, offset: u64) -> Option<usize> {
        let index = match self.slots.front() {
            Some(first) if first.offset() == offset => 0,
            _ => self.slots.binary_search_by_key(&offset, Slot::offset).ok()?,
        };
        (self.state(index) != Some(State::Done)).then_some(index)
    }

    /// The index of what was offered with this number, done or not.
    #[inline]
    fn find_numbered(&self, number: u64) -> Option<usize> {
        match self.slots.front() {
            Some(first) if first.delivery.entry.number == number => Some(0),
            _ => self.slots.binary_search_by_key(&number, |slot| slot.delivery.entry.number).ok(),
        }
    }

    #[inline]
    fn state(&self, index: usize) -> Option<State> {
        self.slots.get(index).map(|slot| slot.state)
    }

    /// Appends a new entry; reading moves past it.
    #[inline]
    fn offer(&mut self, delivery: Delivery, state: State) {
        let covers_from = self.tail.max(self.mark);
        self.tail = delivery.entry.end().0;
        self.read = self.tail;
        self.slots.push_back(Slot { delivery, covers_from, state });
    }

    /// Puts an offset into the set in which it waits.
    fn enqueue(&mut self, offset: u64, not_before: Timestamp) -> State {
        if not_before.0 == 0 {
            self.ready.insert(offset);
            State::Ready
        } else {
            self.future.insert((not_before.0, offset));
            State::Future
        }
    }

    /// Acknowledges what is outstanding at this index; `None` if it is done.
    #[inline]
    fn acknowledge_at(&mut self, index: usize) -> Option<Delivery> {
        let (delivery, covers_from) = self.retire(index)?;
        self.cover(covers_from, delivery.entry.end().0);
        self.trim();
        Some(delivery)
    }

    /// Makes an outstanding entry done; returns it and from where its acknowledgement covers.
    #[inline]
    fn retire(&mut self, index: usize) -> Option<(Delivery, u64)> {
        let slot = self.slots.get_mut(index)?;
        let offset = slot.offset();
        match slot.state {
            State::Held => self.held -= 1,
            State::Ready => drop(self.ready.remove(&offset)),
            State::Future => drop(self.future.remove(&(slot.delivery.entry.not_before.0, offset))),
            State::Done => return None,
        }
        slot.state = State::Done;
        self.done += 1;
        let acknowledged = slot.delivery.acknowledged.take();
        Some((Delivery { acknowledged, ..slot.delivery }, slot.covers_from))
    }

    /// The offsets `from..end` are done.
    fn cover(&mut self, from: u64, end: u64) {
        self.progressed = true;
        if from <= self.mark {
            self.mark = self.mark.max(end);
        } else {
            self.acknowledged.insert(from, end);
            if let Some(last) = self.fresh.last_mut().filter(|(_, last_end)| *last_end == from) {
                last.1 = end;
                return;
            }
            // Before it grows it is reduced to what still counts, so that it grows no further than the ranges do.
            if self.fresh.len() == self.fresh.capacity() {
                let ranges = self.take_fresh();
                self.fresh.reserve(FRESH_RANGES_MINIMUM.max(ranges.len().saturating_mul(2)));
                self.fresh.extend(ranges.iter());
            }
            self.fresh.push((from, end));
        }
    }

    /// The fresh ranges above the mark, in order.
    fn take_fresh(&mut self) -> RangeSet {
        let fresh = std::mem::take(&mut self.fresh).into_iter();
        let mut ranges: RangeSet = fresh.filter(|(_, end)| *end > self.mark).collect();
        ranges.remove_below(self.mark);
        ranges
    }

    /// Removes done entries at the front, and those in the middle once they are the majority.
    #[inline]
    fn trim(&mut self) {
        while self.slots.front().is_some_and(|slot| slot.state == State::Done) {
            self.slots.pop_front();
            self.done -= 1;
        }
        if self.done > DONE_SLOTS_MINIMUM && self.done > self.slots.len() / 2 {
            self.slots.retain(|slot| slot.state != State::Done);
            self.slots.shrink_to(self.slots.len().saturating_mul(2));
            self.done = 0;
        }
        self.align();
    }

    /// Restores the invariants between mark, read and the ranges after one of them has moved.
    fn align(&mut self) {
        if self.slots.is_empty() {
            self.mark = self.read.max(self.mark);
        }
        if !self.acknowledged.is_empty() {
            self.acknowledged.remove_below(self.mark);
            if let Some((_, end)) = self.acknowledged.first().filter(|(start, _)| *start == self.mark) {
                self.mark = end;
                self.acknowledged.remove_below(end);
            }
        }
        self.read = self.read.max(self.mark);
    }
}
