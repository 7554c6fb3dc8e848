//! `Packet`, `Inbox`, `Outboxes`, topics and limits.

mod packet;
pub mod properties;

use crate::error::to_python;
use crate::flow::{Arrivals, Outgoing};
use crate::notice::{told, NoticeKind, Told};
use crate::read_buffer::feed;
use crate::selection::Selection;
use crate::store::Log;
use holdfast_kernel::error::Error;
use holdfast_kernel::flow::Terms;
use holdfast_kernel::ids::{Connection, KeySlot, Offset, Party, Queue, Timestamp};
use holdfast_kernel::mqtt::peer::{Acceptance, Expectation};
use holdfast_kernel::mqtt::publishing::Publishing;
use holdfast_kernel::mqtt::sharing::Member;
use holdfast_kernel::mqtt::{identity, inbox, outbox, rewriting, Version};
use holdfast_kernel::wire::rate::Rate;
use holdfast_kernel::{limits, topic};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Adds this part's classes, functions and constants.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<packet::Packet>()?;
    module.add_class::<Inbox>()?;
    module.add_class::<Outboxes>()?;
    module.add_class::<Rewriting>()?;
    module.add_class::<MessageIdentity>()?;
    module.add_function(wrap_pyfunction!(packet::encode_packet, module)?)?;
    module.add_function(wrap_pyfunction!(packet::decode_packets, module)?)?;
    module.add_function(wrap_pyfunction!(packet::encode_acknowledgements, module)?)?;
    module.add_function(wrap_pyfunction!(packet::decode_runs, module)?)?;
    module.add_function(wrap_pyfunction!(topic_matches, module)?)?;
    module.add_function(wrap_pyfunction!(is_valid_topic_name, module)?)?;
    module.add_function(wrap_pyfunction!(is_valid_topic_filter, module)?)?;
    module.add("LIMITS", limits_by_name(module.py())?)?;
    module.add("GROUP_CONNECTION", Connection::GROUP.0)?;
    module.add("TRANSIENT_PARTY", Party::TRANSIENT.0)
}

fn limits_by_name(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    macro_rules! put {
        ($($name:ident)*) => { $( dict.set_item(stringify!($name).to_lowercase(), limits::$name)?; )* };
    }
    put! {
        REMAINING_LENGTH_MAXIMUM FIELD_BYTES_MAXIMUM CONNECT_BYTES_MAXIMUM USER_PROPERTIES_MAXIMUM
        USER_PROPERTIES_ADDED_MAXIMUM FILTERS_PER_PACKET_MAXIMUM FAMILIAR_BYTES_MAXIMUM
        TOPIC_LEVELS_MAXIMUM ROUTE_CACHE_TOPICS_MAXIMUM ROUTE_CACHE_TOPIC_BYTES_MAXIMUM ROUTE_CACHE_TARGETS_MAXIMUM
        ROUTE_CHANGES_MAXIMUM GRANT_RULES_MAXIMUM GRANT_MEMORY_TOPICS_MAXIMUM ALIASES_SENT_MAXIMUM
        ALIAS_TOPIC_BYTES_MAXIMUM KEYS_WAITING_MAXIMUM QUEUE_ENTRIES_MAXIMUM TURN_CONNECTION_BYTES_MAXIMUM
        TURN_BYTES_MAXIMUM SUBMISSIONS_MAXIMUM CONSUMER_UNSETTLED_MAXIMUM
        CONSUMER_IN_ORDER_UNSETTLED_MAXIMUM
        CONNECTIONS_MAXIMUM OUTBOX_SPARE_BYTES_MAXIMUM OUTBOX_BYTES_MAXIMUM OWED_PAGE_MAXIMUM
        RETAINED_LOOKS_MAXIMUM RETAINED_LOOKED_AT_MAXIMUM
        SCAN_BYTES_MAXIMUM ALLOT_BYTES_MAXIMUM NOTICE_RANGES_MAXIMUM TOPICS_MAXIMUM
        SEGMENT_BYTES_MAXIMUM SEGMENT_BYTES_MINIMUM
        RECORD_BYTES_MAXIMUM CONTROL_BYTES_MAXIMUM UNCOMMITTED_BYTES_MAXIMUM CHUNK_BYTES BLOCK_BYTES
        DIRECTORY_CACHE_BYTES SEGMENT_TOPICS_MAXIMUM SEGMENT_TOPICS_CACHE_BYTES POSTINGS_CACHE_BYTES
        FILTER_MEMORY_BYTES_MAXIMUM LEVELS_INDEXED_MAXIMUM FILTER_CATCH_UP_MAXIMUM SCAN_EFFORT_MAXIMUM SCANS_MAXIMUM
        SCAN_MEMORY_ENTRIES_MAXIMUM SCAN_MEMORY_OVERHEAD_ENTRIES SCAN_MEMORY_TOPICS_MAXIMUM WINDOW_MEMORY_BYTES_MAXIMUM
        RETAIN_SEGMENTS_MAXIMUM ENTRY_MESSAGES_MAXIMUM ENTRY_OPENED_BYTES_MAXIMUM SCAN_EFFORT_MINIMUM
        UNSEALED_SEGMENTS_MAXIMUM TOPIC_NAMES_BYTES_MAXIMUM TURN_DECODED_BYTES_MAXIMUM
        ENTRY_OPENED_BYTES_KEPT
        RETAIN_BYTES_MAXIMUM RETENTION_FILTERS_MAXIMUM CARRY_CACHE_BYTES DAMAGE_REPORTS_MAXIMUM
        PATTERN_BYTES_MAXIMUM COMMAND_BYTES_MAXIMUM PRODUCERS_REMEMBERED_MAXIMUM
    }
    Ok(dict)
}

fn invalid(error: Error) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn version(level: u8) -> PyResult<Version> {
    Version::from_level(level).ok_or_else(|| PyValueError::new_err(format!("protocol version {level}")))
}

pub fn packet_identifiers(bytes: &[u8]) -> PyResult<BTreeSet<u16>> {
    let identifiers = bytes.chunks(2).map(|pair| <[u8; 2]>::try_from(pair).map(u16::from_le_bytes));
    identifiers.collect::<Result<_, _>>().map_err(|_| PyValueError::new_err("half a packet identifier"))
}

#[pyfunction]
fn topic_matches(topic_filter: &[u8], topic_name: &[u8]) -> bool {
    topic::matches(topic_filter, topic_name)
}

#[pyfunction]
fn is_valid_topic_name(topic_name: &[u8]) -> bool {
    topic::is_valid_name(topic_name)
}

#[pyfunction]
fn is_valid_topic_filter(topic_filter: &[u8]) -> bool {
    topic::is_valid_filter(topic_filter)
}

/// What is changed of messages that are carried on: a value.
#[pyclass(module = "holdfast._kernel", frozen)]
struct Rewriting {
    inner: Arc<rewriting::Rewriting>,
}

/// Filters, the parts of the new topic (bytes, or the number of a level; 0 is the whole topic; none leaves the message
/// out), properties that are added, and whether messages keep their RETAIN flag.
type Rule = (Vec<Vec<u8>>, Option<Vec<Part>>, Vec<(String, String)>, bool);

/// Topic and properties.
type Carried = (Cow<'static, [u8]>, Cow<'static, [u8]>);

/// A part of a topic, as Python says it.
#[derive(FromPyObject)]
enum Part {
    Level(usize),
    Literal(Vec<u8>),
}

#[pymethods]
impl Rewriting {
    #[new]
    #[pyo3(signature = (rules, *, hops = None))]
    fn new(rules: Vec<Rule>, hops: Option<(String, u32)>) -> PyResult<Rewriting> {
        let part = |part| match part {
            Part::Level(0) => rewriting::Part::Topic,
            Part::Level(level) => rewriting::Part::Level(level),
            Part::Literal(bytes) => rewriting::Part::Literal(bytes.into()),
        };
        let rule = |(filters, topic, properties, keeps_retain): Rule| rewriting::Rule {
            filters: filters.into_iter().map(Into::into).collect(),
            topic: topic.map(|parts| parts.into_iter().map(part).collect()),
            properties,
            keeps_retain,
        };
        let hops = hops.map(|(name, maximum)| rewriting::Hops { name, maximum });
        let inner = rewriting::Rewriting::new(rules.into_iter().map(rule).collect(), hops).map_err(invalid)?;
        Ok(Rewriting { inner: Arc::new(inner) })
    }

    fn apply(&self, topic: &[u8], properties: &[u8]) -> Option<Carried> {
        let mut into = rewriting::Rewritten::default();
        let outcome = self.inner.apply(topic, properties, &mut into);
        (outcome == rewriting::Outcome::Carried).then(|| (into.topic.into(), into.properties.into()))
    }
}

/// What tells one message from another: a value.
#[pyclass(module = "holdfast._kernel", frozen)]
struct MessageIdentity {
    inner: Arc<identity::Identity>,
}

#[pymethods]
impl MessageIdentity {
    #[new]
    fn new(name: &str, prefix: &str) -> PyResult<MessageIdentity> {
        let inner = identity::Identity::new(name, prefix).map_err(invalid)?;
        Ok(MessageIdentity { inner: Arc::new(inner) })
    }

    fn tell(&self, properties: &[u8], offset: Option<u64>) -> Cow<'static, [u8]> {
        let mut told = Vec::new();
        self.inner.tell(properties, offset.map(Offset), &mut told);
        told.into()
    }
}

/// What has arrived on each connection and is not decoded yet.
#[pyclass(module = "holdfast._kernel")]
pub struct Inbox {
    pub inner: inbox::Inbox,
    read_buffer: PyBuffer<u8>,
}

#[pymethods]
impl Inbox {
    #[new]
    fn new(read_buffer: &Bound<'_, PyByteArray>) -> PyResult<Inbox> {
        Ok(Inbox { inner: inbox::Inbox::default(), read_buffer: PyBuffer::get(read_buffer)? })
    }

    fn open(&mut self, connection: u32) -> PyResult<()> {
        self.inner.open(Connection(connection)).map_err(invalid)
    }

    #[pyo3(signature = (connection, *, party, protocol_version, keep_alive_s, receive_maximum,
                        maximum_packet_size_bytes, topic_alias_maximum, unreleased, key_slot = 0))]
    #[allow(clippy::too_many_arguments, reason = "they are the limits of one connection, by keyword in Python")]
    fn accept(
        &mut self,
        connection: u32,
        party: u32,
        protocol_version: u8,
        keep_alive_s: u16,
        receive_maximum: u16,
        maximum_packet_size_bytes: u32,
        topic_alias_maximum: u16,
        unreleased: &[u8],
        key_slot: u16,
    ) -> PyResult<()> {
        let version = version(protocol_version)?;
        let unreleased = packet_identifiers(unreleased)?;
        let publishing = Publishing::new(version, receive_maximum, topic_alias_maximum, unreleased);
        let (party, key_slot) = (Party(party), KeySlot(key_slot));
        let acceptance = Acceptance { party, key_slot, version, keep_alive_s, maximum_packet_size_bytes, publishing };
        self.inner.accept(Connection(connection), acceptance).map_err(invalid)
    }

    #[pyo3(signature = (connection, *, protocol_version, maximum_packet_size_bytes, rewriting))]
    fn expect(
        &mut self,
        connection: u32,
        protocol_version: u8,
        maximum_packet_size_bytes: u32,
        rewriting: &Rewriting,
    ) -> PyResult<()> {
        let (version, rewriting) = (version(protocol_version)?, Arc::clone(&rewriting.inner));
        let expectation = Expectation { version, maximum_packet_size_bytes, rewriting };
        self.inner.expect(Connection(connection), expectation).map_err(invalid)
    }

    fn taken(&mut self, connection: u32) -> PyResult<u64> {
        self.inner.taken(Connection(connection)).map_err(invalid)
    }

    fn lost(&mut self, connection: u32) -> PyResult<u64> {
        self.inner.lost(Connection(connection)).map_err(invalid)
    }

    fn close(&mut self, connection: u32) {
        self.inner.close(Connection(connection));
    }

    fn feed(&mut self, py: Python<'_>, connection: u32, count: usize, now_us: u64) -> PyResult<usize> {
        feed(&mut self.inner, self.read_buffer.as_slice(py), connection, count, now_us)
    }

    #[pyo3(signature = (arrivals, now_us=0))]
    fn decode(&mut self, py: Python<'_>, arrivals: &mut Arrivals, now_us: u64) -> PyResult<Vec<(u32, packet::Packet)>> {
        let events = self.inner.decode(&mut arrivals.inner, Timestamp(now_us));
        events.into_iter().map(|(connection, event)| Ok((connection.0, packet::Packet::new(py, event)?))).collect()
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

    fn unreleased(&mut self, connection: u32) -> PyResult<Cow<'static, [u8]>> {
        let unreleased = self.inner.unreleased(Connection(connection)).map_err(invalid)?;
        Ok(unreleased.into_iter().flat_map(u16::to_le_bytes).collect())
    }

    fn ready(&self) -> bool {
        self.inner.ready()
    }

    fn forget(&mut self, arrivals: &Arrivals) {
        self.inner.forget(&arrivals.inner);
    }

    fn silent(&self, now_us: u64) -> Vec<u32> {
        self.inner.silent(Timestamp(now_us)).into_iter().map(|connection| connection.0).collect()
    }
}

/// Bytes that wait for each connection's socket, and the encoder.
#[pyclass(module = "holdfast._kernel")]
pub struct Outboxes {
    pub inner: outbox::Outboxes,
}

#[pymethods]
impl Outboxes {
    #[new]
    fn new() -> Outboxes {
        Outboxes { inner: outbox::Outboxes::default() }
    }

    #[pyo3(signature = (connection, *, protocol_version, maximum_packet_size_bytes, topic_alias_maximum, party))]
    fn open(
        &mut self,
        connection: u32,
        protocol_version: u8,
        maximum_packet_size_bytes: u32,
        topic_alias_maximum: u16,
        party: u32,
    ) -> PyResult<()> {
        let version = version(protocol_version)?;
        let (connection, party) = (Connection(connection), Party(party));
        self.inner.open(connection, version, maximum_packet_size_bytes, topic_alias_maximum, party).map_err(invalid)
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

    fn limit_writes(&mut self, connection: u32, messages_maximum: usize) {
        self.inner.limit_writes(Connection(connection), messages_maximum);
    }

    fn share(
        &mut self,
        queue: u32,
        party: u32,
        selection: PyRef<'_, Selection>,
        members: Vec<(u32, bool, Option<u32>)>,
    ) {
        let members = members.into_iter().map(|(connection, retain_as_published, identifier)| {
            let identifiers = identifier.map(|identifier| [identifier].into());
            let terms = Terms { qos: 0, retain_as_published, identifiers };
            Member { connection: Connection(connection), terms, given: 0 }
        });
        self.inner.share(Queue(queue), Party(party), selection.inner.clone(), members.collect());
    }

    fn shares(&self, queue: u32) -> Vec<(u32, u64)> {
        self.inner.members(Queue(queue)).iter().map(|member| (member.connection.0, member.given)).collect()
    }

    #[pyo3(signature = (connection, rewriting, *, shelf_bytes_maximum))]
    fn carry(&mut self, connection: u32, rewriting: &Rewriting, shelf_bytes_maximum: usize) {
        self.inner.carry(Connection(connection), Arc::clone(&rewriting.inner), shelf_bytes_maximum);
    }

    #[pyo3(signature = (mark))]
    fn mark_again(&mut self, mark: Option<(String, String)>) -> PyResult<()> {
        let mark = mark.as_ref().map(|(name, value)| (&**name, &**value));
        self.inner.mark_again(mark).map_err(invalid)
    }

    #[pyo3(signature = (connection, identity))]
    fn identify(&mut self, connection: u32, identity: Option<&MessageIdentity>) {
        self.inner.identify(Connection(connection), identity.map(|identity| Arc::clone(&identity.inner)));
    }

    fn hand_over(&mut self, from_connection: u32, to_connection: u32) {
        self.inner.hand_over(Connection(from_connection), Connection(to_connection));
    }

    fn hold(&mut self, connection: u32, is_held: bool) {
        self.inner.hold(Connection(connection), is_held);
    }

    fn carried(&self, connection: u32) -> (u64, u64, u64, u64) {
        let carried = self.inner.carried(Connection(connection));
        (carried.sent, carried.repeated, carried.again, carried.passing)
    }

    fn shelved(&self, connection: u32) -> (usize, usize) {
        self.inner.shelved(Connection(connection))
    }

    fn waiting(&self) -> bool {
        self.inner.is_waiting()
    }

    #[pyo3(signature = (arrivals, now_us=0))]
    fn pass_through(&mut self, arrivals: &Arrivals, now_us: u64) {
        self.inner.pass_through(&arrivals.inner, Timestamp(now_us));
    }

    fn encode(&mut self, outgoing: &mut Outgoing, log: &mut Log, now_us: u64) -> PyResult<()> {
        self.inner.encode(&mut outgoing.inner, &mut log.inner, Timestamp(now_us)).map_err(to_python)
    }

    fn refused(&mut self) -> Vec<(u32, u16, NoticeKind)> {
        let refused = self.inner.refused().into_iter();
        refused.map(|(connection, identifier, kind)| (connection.0, identifier, NoticeKind(kind))).collect()
    }

    fn take<'py>(&mut self, py: Python<'py>) -> Vec<(u32, Bound<'py, PyBytes>)> {
        let mut taken = Vec::new();
        self.inner.take(|connection, bytes| taken.push((connection.0, PyBytes::new(py, bytes))));
        taken
    }

    fn waiting_bytes(&self, connection: u32) -> usize {
        self.inner.waiting_bytes(Connection(connection))
    }

    fn notices(&mut self) -> Vec<Told> {
        self.inner.notices().iter().map(told).collect()
    }

    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counters = self.inner.counters();
        let dict = PyDict::new(py);
        dict.set_item("publishes_sent", counters.publishes_sent)?;
        dict.set_item("payload_bytes_sent", counters.payload_bytes_sent)?;
        dict.set_item("acknowledgements_sent", counters.acknowledgements_sent)?;
        dict.set_item("pings_answered", counters.pings_answered)?;
        dict.set_item("bytes_encoded", counters.bytes_encoded)?;
        dict.set_item("dropped_slow_reader", counters.dropped_slow_reader)?;
        dict.set_item("dropped_too_large", counters.dropped_too_large)?;
        dict.set_item("dropped_expired", counters.dropped_expired)?;
        dict.set_item("dropped_retention", counters.dropped_retention)?;
        dict.set_item("dropped_carrying", counters.dropped_carrying)?;
        dict.set_item("dropped_closed", counters.dropped_closed)?;
        Ok(dict)
    }
}
