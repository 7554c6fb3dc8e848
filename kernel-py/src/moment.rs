//! The binding of rows of one moment: columns of fixed width, each as the bytes of an Arrow buffer.

use holdfast_kernel::flow::moment::{InFlight, RetainedRows, States};
use holdfast_kernel::flow::state::{Phase, Source};
use holdfast_kernel::ids::Connection;
use holdfast_kernel::store::Acknowledged;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

/// What is in flight.
pub fn in_flight<'py>(py: Python<'py>, rows: &[InFlight]) -> PyResult<Bound<'py, PyDict>> {
    let columns = PyDict::new(py);
    columns.set_item("rows", rows.len())?;
    let put = |name: &str, bytes: Vec<u8>| columns.set_item(name, PyBytes::new(py, &bytes));
    put("party", column(rows, |row| row.party.0.to_le_bytes()))?;
    put("connection", column(rows, |row| row.connection.unwrap_or(Connection(u32::MAX)).0.to_le_bytes()))?;
    put("packet_identifier", column(rows, |row| row.packet_identifier.to_le_bytes()))?;
    put("offset", column(rows, |row| row.flight.offset.0.to_le_bytes()))?;
    put("qos", column(rows, |row| [row.flight.qos]))?;
    put("received", column(rows, |row| [u8::from(row.flight.phase == Phase::Received)]))?;
    put("retained", column(rows, |row| [u8::from(row.flight.source == Source::Retained)]))?;
    put("queue", column(rows, |row| queue_of(row).to_le_bytes()))?;
    put("attempts", column(rows, |row| row.attempts.to_le_bytes()))?;
    put("since", column(rows, |row| row.since.0.to_le_bytes()))?;
    Ok(columns)
}

/// What delivery states came to: what was acknowledged, and what was in flight.
pub fn states<'py>(py: Python<'py>, states: &States) -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyDict>)> {
    let (rows, columns) = (&states.acknowledged, PyDict::new(py));
    columns.set_item("rows", rows.len())?;
    columns.set_item("party", PyBytes::new(py, &column(rows, |row| row.0 .0.to_le_bytes())))?;
    columns.set_item("begin", PyBytes::new(py, &column(rows, |row| row.1 .0.to_le_bytes())))?;
    columns.set_item("end", PyBytes::new(py, &column(rows, |row| row.2 .0.to_le_bytes())))?;
    Ok((columns, in_flight(py, &states.in_flight)?))
}

/// What records say is acknowledged, each with its time and the message before which it lies.
pub fn progress<'py>(py: Python<'py>, rows: &[Acknowledged]) -> PyResult<Bound<'py, PyDict>> {
    let columns = PyDict::new(py);
    columns.set_item("rows", rows.len())?;
    columns.set_item("party", PyBytes::new(py, &column(rows, |row| row.party.0.to_le_bytes())))?;
    let put = |name: &str, value: fn(&Acknowledged) -> u64| {
        columns.set_item(name, PyBytes::new(py, &column(rows, |row| value(row).to_le_bytes())))
    };
    put("before", |row| row.before.0)?;
    put("at", |row| row.at.0)?;
    put("begin", |row| row.begin.0)?;
    put("end", |row| row.end.0)?;
    Ok(columns)
}

/// Retained messages: the ends of their names, the names, their offsets, and when they expire (0: never).
pub fn retained<'py>(py: Python<'py>, rows: &RetainedRows) -> PyResult<Bound<'py, PyDict>> {
    let (columns, mut names, mut ends) = (PyDict::new(py), Vec::new(), 0_u32.to_le_bytes().to_vec());
    for (name, _, _) in rows {
        names.extend_from_slice(name);
        ends.extend_from_slice(&u32::try_from(names.len()).unwrap_or(u32::MAX).to_le_bytes());
    }
    columns.set_item("rows", rows.len())?;
    columns.set_item("name_ends", PyBytes::new(py, &ends))?;
    columns.set_item("names", PyBytes::new(py, &names))?;
    columns.set_item("offset", PyBytes::new(py, &column(rows, |row| row.1 .0.to_le_bytes())))?;
    let expires_at = column(rows, |row| row.2.map_or(0, |expires_at| expires_at.0).to_le_bytes());
    columns.set_item("expires_at", PyBytes::new(py, &expires_at))?;
    Ok(columns)
}

/// By whose party the queue is known that has given it out.
fn queue_of(row: &InFlight) -> u32 {
    match row.flight.source {
        Source::Group(party) => party.0,
        Source::Queue | Source::Retained => row.party.0,
    }
}

fn column<Row, const WIDTH: usize>(rows: &[Row], value: impl Fn(&Row) -> [u8; WIDTH]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(rows.len().saturating_mul(WIDTH));
    for row in rows {
        bytes.extend_from_slice(&value(row));
    }
    bytes
}
