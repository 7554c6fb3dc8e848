//! The binding of the second codec: `PulsarInbox`, `PulsarOutboxes` and the commands that Python decides on.

use crate::error::to_python;
use crate::flow::{Arrivals, Outgoing};
use crate::notice::NoticeKind;
use crate::store::Log;
use holdfast_kernel::error::Error;
use holdfast_kernel::ids::{Connection, KeySlot, Party, Receiver, Timestamp};
use holdfast_kernel::pulsar::inbox::Event;
use holdfast_kernel::pulsar::{inbox, outbox};
use holdfast_kernel::wire::rate::Rate;
use pyo3::buffer::{PyBuffer, ReadOnlyCell};
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

/// A command that Python decides on, or what a peer did wrong: a value.
#[pyclass(module = "holdfast._kernel", frozen, get_all)]
struct Command {
    kind: u8,
    data: Py<PyBytes>,
    fault: Option<&'static str>,
}

impl Command {
    fn new(py: Python<'_>, event: Event) -> Command {
        match event {
            Ok(control) => Command { kind: control.kind, data: PyBytes::new(py, &control.bytes).unbind(), fault: None },
            Err(fault) => Command { kind: 0, data: PyBytes::new(py, &[]).unbind(), fault: Some(fault.0) },
        }
    }
}

/// What has arrived on each connection of the second protocol and is not decoded yet.
#[pyclass(module = "holdfast._kernel")]
struct PulsarInbox {
    inner: inbox::Inbox,
    read_buffer: PyBuffer<u8>,
}

#[pymethods]
impl PulsarInbox {
    #[new]
    fn new(read_buffer: &Bound<'_, PyByteArray>) -> PyResult<PulsarInbox> {
        Ok(PulsarInbox { inner: inbox::Inbox::default(), read_buffer: PyBuffer::get(read_buffer)? })
    }

    fn open(&mut self, connection: u32) -> PyResult<()> {
        self.inner.open(Connection(connection)).map_err(invalid)
    }

    #[pyo3(signature = (connection, *, frame_bytes_maximum, silence_us))]
    fn accept(&mut self, connection: u32, frame_bytes_maximum: usize, silence_us: u64) -> PyResult<()> {
        self.inner.decoder(Connection(connection)).map_err(invalid)?.accept(frame_bytes_maximum, silence_us);
        Ok(())
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
        let peer = self.inner.decoder(Connection(connection)).map_err(invalid)?;
        peer.add_producer(producer, topic_name, Party(party), KeySlot(key_slot));
        Ok(())
    }

    fn remove_producer(&mut self, connection: u32, producer: u64) {
        if let Ok(peer) = self.inner.decoder(Connection(connection)) {
            peer.remove_producer(producer);
        }
    }

    #[pyo3(signature = (connection, consumer, *, receiver, ledger))]
    fn add_consumer(&mut self, connection: u32, consumer: u64, receiver: u32, ledger: u64) -> PyResult<()> {
        let peer = self.inner.decoder(Connection(connection)).map_err(invalid)?;
        peer.add_consumer(consumer, Receiver(receiver), ledger);
        Ok(())
    }

    fn remove_consumer(&mut self, connection: u32, consumer: u64) {
        if let Ok(peer) = self.inner.decoder(Connection(connection)) {
            peer.remove_consumer(consumer);
        }
    }

    fn close(&mut self, connection: u32) {
        self.inner.close(Connection(connection));
    }

    fn feed(&mut self, py: Python<'_>, connection: u32, count: usize, now_us: u64) -> PyResult<usize> {
        let cells = self.read_buffer.as_slice(py).and_then(|cells| cells.get(..count));
        let cells =
            cells.ok_or_else(|| PyValueError::new_err(format!("the read buffer does not hold {count} bytes")))?;
        self.inner
            .feed_with(Connection(connection), count, Timestamp(now_us), |target| {
                target.extend(cells.iter().map(ReadOnlyCell::get));
            })
            .map_err(invalid)
    }

    fn decode(&mut self, py: Python<'_>, arrivals: &mut Arrivals, now_us: u64) -> Vec<(u32, Command)> {
        let events = self.inner.decode_more(&mut arrivals.inner, Timestamp(now_us));
        events.into_iter().map(|(connection, event)| (connection.0, Command::new(py, event))).collect()
    }

    #[pyo3(signature = (connection, *, messages_per_second, bytes_per_second))]
    fn limit(&mut self, connection: u32, messages_per_second: u64, bytes_per_second: u64) -> PyResult<()> {
        let rate = Rate::new(messages_per_second, bytes_per_second);
        self.inner.limit(Connection(connection), rate).map_err(invalid)
    }

    #[pyo3(signature = (*, messages_per_second, bytes_per_second))]
    fn limit_all(&mut self, messages_per_second: u64, bytes_per_second: u64) {
        self.inner.limit_all(Rate::new(messages_per_second, bytes_per_second));
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

/// Bytes that wait for each connection's socket, and the encoder of the second protocol.
#[pyclass(module = "holdfast._kernel")]
struct PulsarOutboxes {
    inner: outbox::Outboxes,
}

#[pymethods]
impl PulsarOutboxes {
    #[new]
    fn new() -> PulsarOutboxes {
        PulsarOutboxes { inner: outbox::Outboxes::default() }
    }

    fn open(&mut self, connection: u32) -> PyResult<()> {
        self.inner.open(Connection(connection)).map_err(invalid)
    }

    fn close(&mut self, connection: u32) {
        self.inner.close(Connection(connection));
    }

    fn add_consumer(&mut self, connection: u32, consumer: u64, receiver: u32) {
        self.inner.add_consumer(Connection(connection), consumer, Receiver(receiver));
    }

    fn remove_consumer(&mut self, connection: u32, receiver: u32) {
        self.inner.remove_consumer(Connection(connection), Receiver(receiver));
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
        macro_rules! put {
            ($($name:ident)*) => { $( dict.set_item(stringify!($name), counters.$name)?; )* };
        }
        put! { entries_sent messages_sent receipts_sent pings_answered bytes_encoded }
        Ok(dict)
    }
}
