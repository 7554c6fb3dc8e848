//! The binding of delivery.

use crate::error::to_python;
use crate::flow::{subscriptions_of, Arrivals, Outgoing, Progress, Scans};
use crate::moment;
use crate::mqtt::packet_identifiers;
use crate::notice::{told, NoticeKind, Told};
use crate::selection::Selection;
use holdfast_kernel::delivery as kernel;
use holdfast_kernel::delivery::keys::Hold;
use holdfast_kernel::error::Error;
use holdfast_kernel::flow::state::{OwedFilter, Phase, Source, State};
use holdfast_kernel::flow::Terms;
use holdfast_kernel::ids::{Connection, LogPosition, Offset, Party, Queue, Receiver, Timestamp};
use holdfast_kernel::mqtt::exchange;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

/// Attached queues with their cursors, windows and what is in flight. Python names connections, of which each has at
/// most one receiver with a queue of its own, and this is where they become receivers; those by permits it names.
#[pyclass(module = "holdfast._kernel")]
pub struct Deliveries {
    pub inner: kernel::Deliveries,
}

#[pymethods]
impl Deliveries {
    #[new]
    fn new() -> Deliveries {
        Deliveries { inner: kernel::Deliveries::default() }
    }

    #[pyo3(signature = (
        connection, *, party, state, subscriptions, receive_maximum, mark, end_offset, entries_maximum,
        pack_maximum, sent_before
    ))]
    #[allow(clippy::too_many_arguments)] // All are keywords on the Python side.
    fn attach(
        &mut self,
        connection: u32,
        party: u32,
        state: &[u8],
        subscriptions: &Bound<'_, PyAny>,
        receive_maximum: u16,
        mark: u64,
        end_offset: u64,
        entries_maximum: usize,
        pack_maximum: usize,
        sent_before: u64,
    ) -> PyResult<u32> {
        let attachment = kernel::Attachment {
            party: Party(party),
            state: decode(state, mark)?,
            subscriptions: subscriptions_of(subscriptions)?,
            receive_maximum,
            end: Offset(end_offset),
            entries_maximum,
            pack_maximum,
        };
        let (_, queue) = self.inner.attach(Connection(connection), attachment).map_err(to_python)?;
        self.inner.set_sent_before(queue, Offset(sent_before)).map_err(to_python)?;
        Ok(queue.0)
    }

    fn detach<'py>(&mut self, py: Python<'py>, connection: u32, unreleased: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let receiver = self.receiver(connection)?;
        let state = self.inner.detach(receiver, identifiers(unreleased)).map_err(to_python)?;
        Ok(encoded(py, &state))
    }

    fn party_state<'py>(
        &mut self,
        py: Python<'py>,
        connection: u32,
        unreleased: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        let receiver = self.receiver(connection)?;
        let state = self.inner.state(receiver, identifiers(unreleased)).map_err(to_python)?;
        Ok(encoded(py, &state))
    }

    #[pyo3(signature = (*, party, owner, state, subscriptions, mark, end_offset, sent_before = 0, whole = false))]
    #[allow(clippy::too_many_arguments, reason = "they are one queue, by keyword in Python")]
    fn open_group(
        &mut self,
        party: u32,
        owner: u32,
        state: &[u8],
        subscriptions: &Bound<'_, PyAny>,
        mark: u64,
        end_offset: u64,
        sent_before: u64,
        whole: bool,
    ) -> PyResult<u32> {
        let attachment = kernel::members::GroupAttachment {
            party: Party(party),
            owner: Party(owner),
            state: decode(state, mark)?,
            subscriptions: subscriptions_of(subscriptions)?,
            end: Offset(end_offset),
            sent_before: Offset(sent_before),
            whole,
        };
        Ok(self.inner.open_group(attachment).0)
    }

    fn attach_consumer(&mut self, connection: u32) -> PyResult<u32> {
        Ok(self.inner.attach_consumer(Connection(connection)).map_err(to_python)?.0)
    }

    fn detach_consumer(&mut self, receiver: u32) -> PyResult<()> {
        self.inner.detach_consumer(Receiver(receiver)).map_err(to_python)
    }

    fn open(&mut self, connection: u32) {
        self.inner.open(Connection(connection));
    }

    fn close(&mut self, connection: u32) -> PyResult<()> {
        self.inner.close(Connection(connection)).map_err(to_python)
    }

    #[pyo3(signature = (queue, receiver, *, counts_redeliveries))]
    fn join_consumer(&mut self, queue: u32, receiver: u32, counts_redeliveries: bool) -> PyResult<()> {
        self.inner.join_consumer(Queue(queue), Receiver(receiver), counts_redeliveries).map_err(to_python)
    }

    fn leave_consumer(&mut self, queue: u32, receiver: u32) {
        self.inner.leave_consumer(Queue(queue), Receiver(receiver));
    }

    fn consumers(&mut self, queue: u32) -> PyResult<Vec<(u32, u64, u64, i64)>> {
        let members = self.inner.consumers(Queue(queue)).map_err(to_python)?.into_iter();
        Ok(members.map(|member| (member.receiver.0, member.given, member.in_flight, member.permits)).collect())
    }

    fn refuse_entry(&mut self, receiver: u32, offset: u64, kind: &NoticeKind) {
        self.inner.refuse_entry(Receiver(receiver), Offset(offset), kind.0);
    }

    fn keep_unreceived(&mut self, keeps: bool) {
        self.inner.keep_unreceived(keeps);
    }

    fn close_group<'py>(&mut self, py: Python<'py>, queue: u32) -> PyResult<Bound<'py, PyBytes>> {
        let state = self.inner.close_group(Queue(queue)).map_err(to_python)?;
        Ok(encoded(py, &state))
    }

    #[pyo3(signature = (queue, connection, *, qos, retain_as_published, identifier))]
    fn join(
        &mut self,
        queue: u32,
        connection: u32,
        qos: u8,
        retain_as_published: bool,
        identifier: Option<u32>,
    ) -> PyResult<()> {
        let identifiers = identifier.map(|identifier| [identifier].into());
        let terms = Terms { qos, retain_as_published, identifiers };
        self.inner.join(Queue(queue), self.receiver(connection)?, terms).map_err(to_python)
    }

    fn leave(&mut self, queue: u32, connection: u32) {
        if let Some(receiver) = self.inner.receiver_on(Connection(connection)) {
            self.inner.leave(Queue(queue), receiver);
        }
    }

    fn select(&mut self, queue: u32, selection: PyRef<'_, Selection>) -> PyResult<()> {
        let among = selection.inner.among(|owner| self.inner.receiver_on(owner));
        self.inner.select(Queue(queue), among).map_err(to_python)
    }

    fn members(&mut self, queue: u32) -> PyResult<Vec<(u32, u64, usize)>> {
        let members = self.inner.members(Queue(queue)).map_err(to_python)?;
        let row = |(member, given, in_flight)| Some((self.inner.connection_of(member)?.0, given, in_flight));
        Ok(members.into_iter().filter_map(row).collect())
    }

    #[allow(clippy::type_complexity, reason = "rows of plain numbers, described on the Python side")]
    fn keys(&mut self, queue: u32, maximum: usize) -> PyResult<(usize, Vec<(u16, u32, usize, usize, u64, u64)>)> {
        let (waiting, holds) = self.inner.keys(Queue(queue), maximum).map_err(to_python)?;
        let row = |hold: Hold| {
            let connection = self.inner.connection_of(hold.receiver)?.0;
            Some((hold.slot.0, connection, hold.in_flight, hold.moving, hold.since.0, hold.first.0))
        };
        Ok((waiting, holds.into_iter().filter_map(row).collect()))
    }

    fn begin_instant(&mut self) {
        self.inner.begin_instant();
    }

    fn instant_piece<'py>(&mut self, py: Python<'py>, effort: usize) -> PyResult<(Bound<'py, PyDict>, bool)> {
        let (rows, is_all) = self.inner.instant_piece(effort);
        Ok((moment::in_flight(py, &rows)?, is_all))
    }

    fn backlog(&mut self, queue: u32) -> PyResult<(u64, usize)> {
        let (from, returned) = self.inner.backlog(Queue(queue)).map_err(to_python)?;
        Ok((from.0, returned))
    }

    fn subscribe(&mut self, queue: u32, kept: usize, others: &Bound<'_, PyAny>) -> PyResult<()> {
        self.inner.set_subscriptions(Queue(queue), kept, &subscriptions_of(others)?).map_err(to_python)
    }

    #[pyo3(signature = (queue, receive))]
    fn grant(&mut self, queue: u32, receive: Option<Vec<(Vec<u8>, bool)>>) -> PyResult<()> {
        self.inner.grant(Queue(queue), receive.as_deref()).map_err(to_python)
    }

    #[pyo3(signature = (queue, topic_filter, *, qos, no_local, identifier, from_offset, until_offset))]
    #[allow(clippy::too_many_arguments)] // All but two are keywords on the Python side.
    fn owe(
        &mut self,
        queue: u32,
        topic_filter: Vec<u8>,
        qos: u8,
        no_local: bool,
        identifier: Option<u32>,
        from_offset: u64,
        until_offset: u64,
    ) -> PyResult<()> {
        let owed = OwedFilter { qos, no_local, identifier, from: Offset(from_offset), until: Offset(until_offset) };
        self.inner.owe(Queue(queue), topic_filter, owed).map_err(to_python)
    }

    fn set_writable(&mut self, connection: u32, writable: bool) {
        self.inner.set_writable(Connection(connection), writable);
    }

    fn admit(&mut self, arrivals: &Arrivals, end_position: u64) {
        self.inner.admit(&arrivals.inner, LogPosition(end_position), exchange::next);
    }

    fn hold(&mut self, connection: u32, data: Vec<u8>, position: u64) {
        self.inner.hold(Connection(connection), data, LogPosition(position));
    }

    fn settle(&mut self, durable_offset: u64, durable_position: u64, outgoing: &mut Outgoing) {
        self.inner.settle(Offset(durable_offset), LogPosition(durable_position), &mut outgoing.inner);
    }

    fn hungry(&mut self, durable_offset: u64) -> Scans {
        Scans { inner: self.inner.hungry(Offset(durable_offset)) }
    }

    fn feed(&mut self, scans: &mut Scans) {
        self.inner.feed(&mut scans.inner);
    }

    fn allot(&mut self, outgoing: &mut Outgoing, now_us: u64) -> bool {
        self.inner.allot(&mut outgoing.inner, Timestamp(now_us));
        self.inner.has_notices()
    }

    fn take_progress(&mut self) -> Option<Progress> {
        let progress = Progress { inner: self.inner.take_progress() };
        (!progress.inner.is_empty() || self.inner.needs_progress()).then_some(progress)
    }

    fn progressed(&mut self, position: u64) {
        self.inner.progressed(LogPosition(position));
    }

    fn packs_overdue(&mut self, now_us: u64, timeout_us: u64) -> Vec<(u32, u32, u64, usize)> {
        let overdue = self.inner.packs_overdue(Timestamp(now_us), timeout_us).into_iter();
        overdue.map(|pack| (pack.connection.0, pack.group.0, pack.first.0, pack.pending)).collect()
    }

    fn packs_due_us(&self, now_us: u64, timeout_us: u64) -> Option<u64> {
        self.inner.packs_due(Timestamp(now_us), timeout_us).map(|due| due.0)
    }

    fn retry_pack(&mut self, connection: u32, group: u32, resend: bool, now_us: u64) -> PyResult<()> {
        let receiver = self.receiver(connection)?;
        self.inner.retry_pack(receiver, Party(group), resend, Timestamp(now_us)).map_err(to_python)
    }

    fn give_up_pack(&mut self, connection: u32, group: u32, keep_identifiers: bool) -> PyResult<Vec<(u64, u64)>> {
        let given_up = self.inner.give_up_pack(self.receiver(connection)?, Party(group), keep_identifiers);
        given_up.map(|ranges| ranges.iter().collect()).map_err(to_python)
    }

    fn pack<'py>(&mut self, py: Python<'py>, connection: u32, group: u32) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(receiver) = self.inner.receiver_on(Connection(connection)) else { return Ok(None) };
        let Some(pack) = self.inner.pack(receiver, Party(group)) else { return Ok(None) };
        let (first, taken) = pack.content().map_or((None, 0), |(first, taken)| (Some(first.0), taken));
        let dict = PyDict::new(py);
        dict.set_item("first_offset", first)?;
        dict.set_item("taken", taken)?;
        dict.set_item("pending", pack.pending())?;
        dict.set_item("open", pack.is_open())?;
        Ok(Some(dict))
    }

    fn waiting(&self) -> bool {
        self.inner.is_waiting()
    }

    fn awaits_commit(&self) -> bool {
        self.inner.awaits_commit()
    }

    fn refuse(&mut self, connection: u32, packet_identifier: u16, kind: &NoticeKind) {
        self.inner.refuse(Connection(connection), packet_identifier, kind.0);
    }

    fn refused(&mut self) -> Vec<(u32, String, u32)> {
        let refused = self.inner.take_refused().into_iter();
        refused.map(|((connection, refusal), times)| (connection.0, format!("{refusal:?}"), times)).collect()
    }

    fn at_fault(&mut self) -> Vec<u32> {
        self.inner.take_at_fault().into_iter().map(|connection| connection.0).collect()
    }

    fn mark(&mut self, queue: u32) -> PyResult<u64> {
        self.inner.mark(Queue(queue)).map(|mark| mark.0).map_err(to_python)
    }

    fn polled_to(&mut self, queue: u32) -> PyResult<u64> {
        Ok(self.inner.polled_to(Queue(queue)).map_err(to_python)?.0)
    }

    fn acknowledged(&mut self, queue: u32) -> PyResult<u64> {
        self.inner.acknowledged(Queue(queue)).map_err(to_python)
    }

    fn in_flight(&mut self, queue: u32) -> PyResult<usize> {
        self.inner.in_flight(Queue(queue)).map_err(to_python)
    }

    fn sent(&mut self, queue: u32) -> PyResult<Vec<(u64, u64)>> {
        Ok(self.inner.sent(Queue(queue)).map_err(to_python)?.into_iter().map(|(offset, at)| (offset.0, at.0)).collect())
    }

    fn queues(&self) -> Vec<(u32, u32, u32)> {
        self.inner.queues().into_iter().map(|(party, queue, connection)| (party.0, queue.0, connection.0)).collect()
    }

    fn notices(&mut self) -> Vec<Told> {
        self.inner.take_notices().iter().map(told).collect()
    }

    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counters = self.inner.counters();
        let dict = PyDict::new(py);
        dict.set_item("deliveries", counters.deliveries)?;
        dict.set_item("redeliveries", counters.redeliveries)?;
        dict.set_item("completed", counters.completed)?;
        dict.set_item("answered", counters.answered)?;
        dict.set_item("refused", counters.refused)?;
        Ok(dict)
    }
}

impl Deliveries {
    fn receiver(&self, connection: u32) -> PyResult<Receiver> {
        let receiver = self.inner.receiver_on(Connection(connection));
        receiver.ok_or_else(|| to_python(Error::Invalid(format!("connection {connection} has no receiver"))))
    }
}

#[pyfunction]
fn unreleased<'py>(py: Python<'py>, state: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    let state = decode(state, 0)?;
    Ok(PyBytes::new(py, &state.unreleased.iter().flat_map(|identifier| identifier.to_le_bytes()).collect::<Vec<_>>()))
}

#[pyfunction]
#[pyo3(signature = (mark, acknowledged = Vec::new(), *, unreleased = Vec::new(), before = Vec::new()))]
fn new_state<'py>(
    py: Python<'py>,
    mark: u64,
    acknowledged: Vec<(u64, u64)>,
    unreleased: Vec<u8>,
    before: Vec<u8>,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut state = State::new(Offset(mark));
    state.last_packet_identifier = decode(&before, 0)?.last_packet_identifier;
    state.unreleased = packet_identifiers(&unreleased)?;
    for (first, end) in acknowledged {
        state.acknowledge(Offset(first), Offset(end));
    }
    Ok(encoded(py, &state))
}

#[pyfunction]
fn state_mark(state: &[u8]) -> PyResult<u64> {
    Ok(decode(state, 0)?.mark.0)
}

#[pyfunction]
#[pyo3(signature = (state, mark, *, abandons = false))]
fn state_skip<'py>(py: Python<'py>, state: &[u8], mark: u64, abandons: bool) -> PyResult<Bound<'py, PyBytes>> {
    let mut state = decode(state, 0)?;
    let cut = if abandons { State::abandon } else { State::skip };
    cut(&mut state, Offset(mark));
    Ok(encoded(py, &state))
}

#[pyfunction]
fn describe_state<'py>(py: Python<'py>, state: &[u8]) -> PyResult<Bound<'py, PyDict>> {
    let state = decode(state, 0)?;
    let flights = PyList::empty(py);
    for (identifier, flight) in &state.flights {
        let item = PyDict::new(py);
        item.set_item("packet_identifier", identifier)?;
        item.set_item("offset", flight.offset.0)?;
        item.set_item("qos", flight.qos)?;
        item.set_item("phase", if flight.phase == Phase::Received { "received" } else { "published" })?;
        if let Source::Group(group) = flight.source {
            item.set_item("group", group.0)?;
        }
        flights.append(item)?;
    }
    let dict = PyDict::new(py);
    dict.set_item("mark", state.mark.0)?;
    dict.set_item("acknowledged", state.acknowledged.iter().collect::<Vec<_>>())?;
    dict.set_item("in_flight", flights)?;
    dict.set_item("unreleased", state.unreleased.iter().copied().collect::<Vec<u16>>())?;
    dict.set_item("owed", state.owed.iter().map(|owed| owed.offset.0).collect::<Vec<_>>())?;
    let filters = state.owed_filters.iter().map(|(filter, owed)| (PyBytes::new(py, filter), owed.from.0, owed.until.0));
    dict.set_item("owed_filters", filters.collect::<Vec<_>>())?;
    Ok(dict)
}

fn decode(bytes: &[u8], mark: u64) -> PyResult<State> {
    if bytes.is_empty() {
        return Ok(State::new(Offset(mark)));
    }
    State::decode(bytes).map_err(to_python)
}

fn encoded<'py>(py: Python<'py>, state: &State) -> Bound<'py, PyBytes> {
    let mut bytes = Vec::new();
    state.encode(&mut bytes);
    PyBytes::new(py, &bytes)
}

fn identifiers(bytes: &[u8]) -> impl Iterator<Item = u16> + '_ {
    bytes.chunks_exact(2).filter_map(|pair| <[u8; 2]>::try_from(pair).ok()).map(u16::from_le_bytes)
}

/// Adds the classes and functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Deliveries>()?;
    module.add_function(wrap_pyfunction!(unreleased, module)?)?;
    module.add_function(wrap_pyfunction!(new_state, module)?)?;
    module.add_function(wrap_pyfunction!(state_mark, module)?)?;
    module.add_function(wrap_pyfunction!(state_skip, module)?)?;
    module.add_function(wrap_pyfunction!(describe_state, module)?)?;
    Ok(())
}
