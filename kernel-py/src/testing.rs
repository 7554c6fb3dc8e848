//! What only tests ask for: the hash of keys, what one turn brought, and a `Cursor`, since the broker's live inside
//! `Deliveries`.

use crate::flow::Arrivals;
use crate::ranges::RangeSet;
use holdfast_kernel::delivery::cursor::{self, Entry};
use holdfast_kernel::flow::entry::EntryParts;
use holdfast_kernel::flow::Fate;
use holdfast_kernel::ids::{KeySlot, Offset, Receiver, Timestamp};
use holdfast_kernel::selection;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The position of one queue.
#[pyclass(module = "holdfast._kernel")]
pub struct Cursor {
    inner: cursor::Cursor,
}

fn entry(offset: u64, count: u32, key_slot: u16, not_before: u64) -> Entry {
    let (key_slot, not_before) = (KeySlot(key_slot), Timestamp(not_before));
    Entry { offset: Offset(offset), count, number: offset, key_slot, not_before }
}

fn ended(delivery: &cursor::Delivery) -> (u32, u16, u64) {
    (delivery.holder.0, delivery.attempts, delivery.remaining())
}

#[pymethods]
impl Cursor {
    #[new]
    #[pyo3(signature = (mark, acknowledged = Vec::new()))]
    fn new(mark: u64, acknowledged: Vec<(u64, u64)>) -> Cursor {
        Cursor { inner: cursor::Cursor::restore(Offset(mark), acknowledged.into_iter().collect()) }
    }

    fn mark(&self) -> u64 {
        self.inner.mark().0
    }

    fn read(&self) -> u64 {
        self.inner.read().0
    }

    fn acknowledged(&self) -> Vec<(u64, u64)> {
        self.inner.acknowledged().iter().collect()
    }

    fn wants(&self, offset: u64) -> bool {
        self.inner.wants(&entry(offset, 1, 0, 0))
    }

    fn pass_to(&mut self, to: u64) {
        self.inner.pass(Offset(to));
    }

    #[pyo3(signature = (offset, holder, *, count = 1, key_slot = 0))]
    fn deliver(&mut self, offset: u64, holder: u32, count: u32, key_slot: u16) -> bool {
        self.inner.deliver(entry(offset, count, key_slot, 0), Receiver(holder))
    }

    #[pyo3(signature = (offset, not_before, *, count = 1, key_slot = 0))]
    fn delay(&mut self, offset: u64, not_before: u64, count: u32, key_slot: u16) -> bool {
        self.inner.delay(entry(offset, count, key_slot, not_before))
    }

    fn acknowledge(&mut self, offset: u64) -> Option<(u32, u16, u64)> {
        self.inner.acknowledge(Offset(offset)).as_ref().map(ended)
    }

    fn acknowledge_numbered(&mut self, number: u64) -> Option<(u32, u16, u64)> {
        self.inner.acknowledge_numbered(number).as_ref().map(ended)
    }

    #[pyo3(signature = (offset, *, count = 1))]
    fn acknowledge_ahead(&mut self, offset: u64, count: u32) {
        self.inner.acknowledge_ahead(&entry(offset, count, 0, 0));
    }

    fn acknowledge_message(&mut self, offset: u64, batch_index: u32) -> bool {
        self.inner.acknowledge_message(Offset(offset), batch_index)
    }

    fn give_back(&mut self, offset: u64, not_before: u64) -> bool {
        self.inner.give_back(Offset(offset), Timestamp(not_before))
    }

    fn release(&mut self, holder: u32) -> u64 {
        self.inner.release(Receiver(holder))
    }

    fn next_redelivery(&mut self, now: u64, key_slots_on_hold: Vec<u16>) -> Option<u64> {
        let may_go = |entry: &Entry| !key_slots_on_hold.contains(&entry.key_slot.0);
        self.inner.next_redelivery(Timestamp(now), may_go).map(|entry| entry.offset.0)
    }

    fn redeliver(&mut self, offset: u64, holder: u32) -> Option<u16> {
        self.inner.redeliver(Offset(offset), Receiver(holder))
    }

    fn next_due(&self) -> Option<u64> {
        self.inner.next_due().map(|time| time.0)
    }

    fn in_flight_count(&self) -> usize {
        self.inner.in_flight_count()
    }

    fn redelivery_count(&self) -> usize {
        self.inner.redelivery_count()
    }

    fn take_progress(&mut self) -> Option<(u64, Vec<(u64, u64)>)> {
        let progress = self.inner.take_progress()?;
        Some((progress.mark.0, progress.ranges.iter().collect()))
    }

    fn deliveries(&self) -> Vec<(u64, u32, u16, u64)> {
        let delivery = |delivery: &cursor::Delivery| {
            (delivery.entry.offset.0, delivery.holder.0, delivery.attempts, delivery.remaining())
        };
        self.inner.deliveries().map(delivery).collect()
    }

    fn skip(&mut self, to: u64) -> (RangeSet, u64, RangeSet) {
        let skipped = self.inner.skip(Offset(to));
        (RangeSet { inner: skipped.offered }, skipped.messages, RangeSet { inner: skipped.unread })
    }
}

/// The hash whose lowest 16 bits are the slot of a key.
#[pyfunction]
pub fn murmur3_32(key: &[u8]) -> u32 {
    selection::murmur3_32(key)
}

/// An entry of a turn: connection, topic, payload, whether it is refused, and what it has besides.
type Entered<'py> =
    (u32, Bound<'py, PyBytes>, Bound<'py, PyBytes>, bool, (u64, u64, u64, u32, Option<u32>, Option<u64>));

/// What is said of entries: connection, receiver, what, their numbers, and by which number it wants to be told.
type Said = (u32, u32, String, Vec<u64>, Option<u64>);

/// Entries, what is said of them, permits (receiver and messages), and connections that ask whether anybody is there.
type Arrived<'py> = (Vec<Entered<'py>>, Vec<Said>, Vec<(u32, u32)>, Vec<u32>);

/// What one turn brought of entries, of what is said of them, of permits and of who asks whether anybody is there.
#[pyfunction]
pub fn arrived<'py>(py: Python<'py>, arrivals: &Arrivals) -> Arrived<'py> {
    let arrivals = &arrivals.inner;
    let bytes = |span| PyBytes::new(py, arrivals.span(span));
    let entered = arrivals.publishes.iter().filter_map(|publish| {
        let parts = arrivals.entry_of(publish)?;
        let EntryParts { producer, sequence_first, sequence_last, count, key_hash, not_before, .. } = *parts;
        let parts = (producer, sequence_first, sequence_last, count, key_hash, not_before.map(|at| at.0));
        let is_refused = publish.fate != Fate::Accepted;
        Some((publish.connection.0, bytes(publish.topic), bytes(publish.payload), is_refused, parts))
    });
    let said = arrivals.settlements.iter().map(|settlement| {
        let numbers = arrivals.numbers.get(settlement.numbers.clone()).unwrap_or_default().to_vec();
        let says = format!("{:?}", settlement.says);
        (settlement.connection.0, settlement.receiver.0, says, numbers, settlement.request)
    });
    let permits = arrivals.permits.iter().map(|permits| (permits.receiver.0, permits.messages));
    let pings = arrivals.pings.iter().map(|connection| connection.0);
    (entered.collect(), said.collect(), permits.collect(), pings.collect())
}

/// Adds the class and the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Cursor>()?;
    module.add_function(wrap_pyfunction!(arrived, module)?)?;
    module.add_function(wrap_pyfunction!(murmur3_32, module)?)
}
