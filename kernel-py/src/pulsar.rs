//! `Command`, `PulsarInbox` and `PulsarOutboxes`.

use crate::error::to_python;
use crate::flow::{Arrivals, Outgoing};
use crate::mqtt::Inbox;
use crate::notice::NoticeKind;
use crate::read_buffer::feed;
use crate::store::Log;
use holdfast_kernel::error::Error;
use holdfast_kernel::ids::{Connection, KeySlot, Party, Receiver, Timestamp};
use holdfast_kernel::pulsar::peer::{Consumer, Control, Producer};
use holdfast_kernel::pulsar::{inbox, outbox};
use holdfast_kernel::wire::rate::Rate;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict};

/// Adds this part's classes.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Command>()?;
    module.add_class::<PulsarInbox>()?;
    module.add_class::<PulsarOutboxes>()
}

fn invalid(error: Error) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// A command that is decided on in Python, or what the peer did wrong.
#[pyclass(module = "holdfast._kernel", frozen, get_all)]
struct Command {
    kind: u8,
    data: Py<PyBytes>,
    fault: Option<&'static str>,
    held_until_us: Option<u64>,
}

impl Command {
    fn new(py: Python<'_>, event: inbox::Event) -> Command {
        let (kind, bytes, fault, held_until_us) = match event {
            Ok(Control::Command { kind, bytes }) => (kind, bytes, None, None),
            Ok(Control::TooFast(until)) => (0, Vec::new(), None, Some(until.0)),
            Err(fault) => (0, Vec::new(), Some(fault.reason), None),
        };
        Command { kind, data: PyBytes::new(py, &bytes).unbind(), fault, held_until_us }
    }
}

/// What has arrived on each connection and is not decoded yet.
#[pyclass(module = "holdfast._kernel")]
pub struct PulsarInbox {
    pub inner: inbox::Inbox,
    read_buffer: PyBuffer<u8>,
}

#[pymethods]
impl PulsarInbox {
    #[new]
    fn new(read_buffer: &Bound<'_, PyByteArray>, beside: &Inbox) -> PyResult<PulsarInbox> {
        Ok(PulsarInbox { inner: inbox::Inbox::beside(&beside.inner), read_buffer: PyBuffer::get(read_buffer)? })
    }

    fn open(&mut self, connection: u32) -> PyResult<()> {
        self.inner.open(Connection(connection)).map_err(invalid)
    }

    #[pyo3(signature = (connection, *, frame_bytes_maximum, silence_us))]
    fn accept(&mut self, connection: u32, frame_bytes_maximum: usize, silence_us: u64) -> PyResult<()> {
        self.inner.accept(Connection(connection), frame_bytes_maximum, silence_us).map_err(invalid)
    }

    #[pyo3(signature = (connection, producer, *, topic_name, party, key_slot))]
    fn add_producer(
        &mut self,
        connection: u32,
        producer: u64,
        topic_name: &[u8],
        party: u32,
        key_slot: u16,
    ) -> PyResult<()> {
        let made = Producer { topic_name: topic_name.into(), party: Party(party), key_slot: KeySlot(key_slot) };
        self.inner.add_producer(Connection(connection), producer, made).map_err(invalid)
    }

    fn remove_producer(&mut self, connection: u32, producer: u64) {
        self.inner.remove_producer(Connection(connection), producer);
    }

    #[pyo3(signature = (connection, consumer, *, receiver, ledger, is_shared = false))]
    fn add_consumer(
        &mut self,
        connection: u32,
        consumer: u64,
        receiver: u32,
        ledger: u64,
        is_shared: bool,
    ) -> PyResult<()> {
        let made = Consumer { receiver: Receiver(receiver), ledger, is_shared };
        self.inner.add_consumer(Connection(connection), consumer, made).map_err(invalid)
    }

    fn remove_consumer(&mut self, connection: u32, consumer: u64) {
        self.inner.remove_consumer(Connection(connection), consumer);
    }

    fn close(&mut self, connection: u32) {
        self.inner.close(Connection(connection));
    }

    fn feed(&mut self, py: Python<'_>, connection: u32, count: usize, now_us: u64) -> PyResult<usize> {
        feed(&mut self.inner, self.read_buffer.as_slice(py), connection, count, now_us)
    }

    #[pyo3(signature = (arrivals, now_us=0))]
    fn decode(&mut self, py: Python<'_>, arrivals: &mut Arrivals, now_us: u64) -> Vec<(u32, Command)> {
        let events = self.inner.decode_more(&mut arrivals.inner, Timestamp(now_us));
        events.into_iter().map(|(connection, event)| (connection.0, Command::new(py, event))).collect()
    }

    #[pyo3(signature = (connection, *, messages_per_second, bytes_per_second))]
    fn limit(&mut self, connection: u32, messages_per_second: u64, bytes_per_second: u64) -> PyResult<()> {
        let rate = Rate::new(messages_per_second, bytes_per_second);
        self.inner.limit(Connection(connection), rate).map_err(invalid)
    }

    fn refuse_behind(&mut self, arrivals: &Arrivals) {
        self.inner.refuse_behind(&arrivals.inner);
    }

    fn next_at_us(&self) -> Option<u64> {
        self.inner.next_at().map(|at| at.0)
    }

    fn unread(&mut self, connection: u32, from_us: u64, to_us: u64) {
        self.inner.unread(Connection(connection), Timestamp(from_us), Timestamp(to_us));
    }

    fn release(&mut self, connection: u32) {
        self.inner.release(Connection(connection));
    }

    fn ready(&self) -> bool {
        self.inner.ready()
    }

    fn silent(&self, now_us: u64) -> Vec<u32> {
        self.inner.silent(Timestamp(now_us)).into_iter().map(|connection| connection.0).collect()
    }
}

/// Bytes that wait for each connection's socket, and the encoder.
#[pyclass(module = "holdfast._kernel")]
pub struct PulsarOutboxes {
    pub inner: outbox::Outboxes,
}

#[pymethods]
impl PulsarOutboxes {
    #[new]
    fn new() -> PulsarOutboxes {
        PulsarOutboxes { inner: outbox::Outboxes::default() }
    }

    #[pyo3(signature = (connection, *, frame_bytes_maximum = usize::MAX))]
    fn open(&mut self, connection: u32, frame_bytes_maximum: usize) -> PyResult<()> {
        self.inner.open(Connection(connection), frame_bytes_maximum).map_err(invalid)
    }

    fn close(&mut self, connection: u32) {
        self.inner.close(Connection(connection));
    }

    fn write(&mut self, connection: u32, data: &[u8]) {
        self.inner.write(Connection(connection), data);
    }

    fn set_writable(&mut self, connection: u32, writable: bool) {
        self.inner.set_writable(Connection(connection), writable);
    }

    fn waiting_bytes(&self, connection: u32) -> usize {
        self.inner.waiting_bytes(Connection(connection))
    }

    fn add_consumer(&mut self, connection: u32, consumer: u64, receiver: u32) {
        self.inner.add_consumer(Connection(connection), consumer, Receiver(receiver));
    }

    fn remove_consumer(&mut self, connection: u32, receiver: u32) {
        self.inner.remove_consumer(Connection(connection), Receiver(receiver));
    }

    fn pass_through(&mut self, arrivals: &Arrivals) {
        self.inner.pass_through(&arrivals.inner);
    }

    fn encode(&mut self, outgoing: &mut Outgoing, log: &mut Log) -> PyResult<()> {
        self.inner.encode(&mut outgoing.inner, &mut log.inner).map_err(to_python)
    }

    fn gone(&mut self) -> Vec<(u32, u64, NoticeKind)> {
        let gone = self.inner.gone().into_iter();
        gone.map(|(receiver, offset, kind)| (receiver.0, offset.0, NoticeKind(kind))).collect()
    }

    fn take<'py>(&mut self, py: Python<'py>) -> Vec<(u32, Bound<'py, PyBytes>)> {
        let mut taken = Vec::new();
        self.inner.take(|connection, bytes| taken.push((connection.0, PyBytes::new(py, bytes))));
        taken
    }

    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counters = self.inner.counters();
        let dict = PyDict::new(py);
        dict.set_item("entries_sent", counters.entries_sent)?;
        dict.set_item("messages_sent", counters.messages_sent)?;
        dict.set_item("receipts_sent", counters.receipts_sent)?;
        dict.set_item("refusals_sent", counters.refusals_sent)?;
        dict.set_item("replies_sent", counters.replies_sent)?;
        dict.set_item("pings_answered", counters.pings_answered)?;
        dict.set_item("bytes_encoded", counters.bytes_encoded)?;
        dict.set_item("dropped_retention", counters.dropped_retention)?;
        dict.set_item("dropped_too_large", counters.dropped_too_large)?;
        Ok(dict)
    }
}
