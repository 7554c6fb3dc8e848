//! What only tests ask for of entries: the messages in one, the hash of its key, and a message written as one.

use holdfast_kernel::entry;
use holdfast_kernel::flow::Message;
use holdfast_kernel::ids::Timestamp;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

type Bytes<'py> = Bound<'py, PyBytes>;

/// A message of an entry: properties, payload, key, event time, RETAIN, and whether it has no value.
type InnerMessage<'py> = (Bytes<'py>, Bytes<'py>, Option<Bytes<'py>>, Option<u64>, bool, bool);

/// The messages of an entry.
#[pyfunction]
fn open_entry<'py>(py: Python<'py>, tail: &[u8]) -> PyResult<Vec<InnerMessage<'py>>> {
    let mut opened = entry::Opened::default();
    entry::open(tail, &mut opened).map_err(|closed| PyValueError::new_err(format!("{closed:?}")))?;
    let message = |message: entry::InnerMessage<'_>| {
        let bytes = |bytes| PyBytes::new(py, bytes);
        let event_time = message.event_time.map(|time| time.0);
        let key = message.key.map(bytes);
        (bytes(message.properties), bytes(message.payload), key, event_time, message.retain, message.is_null)
    };
    Ok((0..opened.len()).filter_map(|index| opened.message(index)).map(message).collect())
}

/// The hash of the key by which an entry's order is kept.
#[pyfunction]
fn entry_key_hash(tail: &[u8]) -> PyResult<Option<u32>> {
    let read = entry::metadata(tail).ok_or_else(|| PyValueError::new_err("Malformed"))?;
    Ok(entry::key_hash(&read.0))
}

/// A message as an entry.
#[pyfunction]
#[pyo3(signature = (properties, payload, *, retain, appended_at_us, producer_name, sequence))]
fn entry_of_message<'py>(
    py: Python<'py>,
    properties: &[u8],
    payload: &[u8],
    retain: bool,
    appended_at_us: u64,
    producer_name: &[u8],
    sequence: u64,
) -> Bytes<'py> {
    let appended_at = Timestamp(appended_at_us);
    let message = Message { topic: b"", properties, payload, qos: 0, retain, appended_at, expires_at: None };
    let mut tail = Vec::new();
    entry::of_message(&message, producer_name, sequence, &mut tail);
    PyBytes::new(py, &tail)
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(open_entry, module)?)?;
    module.add_function(wrap_pyfunction!(entry_key_hash, module)?)?;
    module.add_function(wrap_pyfunction!(entry_of_message, module)?)
}
