//! The values that pass from stage to stage, opaque to Python.

use crate::error::to_python;
use crate::mqtt::properties::travelling;
use crate::rows::Rows;
use holdfast_kernel::flow::submission::{Outcome, Submission};
use holdfast_kernel::flow::{self, Subscription};
use holdfast_kernel::ids::{KeySlot, Offset, Party};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use std::sync::Arc;

/// What one turn brought.
#[pyclass(module = "holdfast._kernel")]
#[derive(Default)]
pub struct Arrivals {
    /// The kernel's value.
    pub inner: flow::Arrivals,
}

#[pymethods]
impl Arrivals {
    #[new]
    fn new() -> Arrivals {
        Arrivals::default()
    }

    fn __bool__(&self) -> bool {
        !self.inner.is_empty()
    }

    #[getter]
    fn publishes(&self) -> usize {
        self.inner.publishes.len()
    }

    #[getter]
    fn acknowledgements(&self) -> usize {
        self.inner.acknowledgements.len()
    }

    #[pyo3(signature = (topic_name, payload, *, qos, retain, properties, party, key_slot))]
    #[allow(clippy::too_many_arguments, reason = "they are the parts of one message, by keyword in Python")]
    fn put(
        &mut self,
        topic_name: &[u8],
        payload: &[u8],
        qos: u8,
        retain: bool,
        properties: &Bound<'_, PyAny>,
        party: u32,
        key_slot: u16,
    ) -> PyResult<()> {
        let (properties, expiry_interval_s) = travelling(properties)?;
        let message = Submission {
            publisher: Party(party),
            key_slot: KeySlot(key_slot),
            qos,
            retain,
            topic: topic_name,
            properties: properties.as_bytes(),
            payload,
            expiry_interval_s,
        };
        self.inner.put(&message).map_err(to_python)
    }

    fn outcomes(&self) -> Vec<(bool, Option<u64>)> {
        let outcomes = self.inner.outcomes().map(|outcome| match outcome {
            Outcome::Passed => (true, None),
            Outcome::Stored(position) => (true, Some(position.0)),
            Outcome::Refused => (false, None),
        });
        outcomes.collect()
    }

    #[pyo3(signature = (rows, *, party, key_slot, messages_maximum, bytes_maximum))]
    fn put_rows(
        &mut self,
        rows: &Rows,
        party: u32,
        key_slot: u16,
        messages_maximum: usize,
        bytes_maximum: usize,
    ) -> PyResult<usize> {
        let publisher = (Party(party), KeySlot(key_slot));
        self.inner.put_rows(&rows.inner, publisher, messages_maximum, bytes_maximum).map_err(to_python)
    }

    fn rows_taken(&self) -> (usize, Option<u64>) {
        let (count, durable_at) = self.inner.rows_taken();
        (count, durable_at.map(|position| position.0))
    }

    fn totals(&self) -> ([u64; 3], u64) {
        (self.inner.totals.publishes, self.inner.totals.payload_bytes)
    }
}

/// What one turn sends.
#[pyclass(module = "holdfast._kernel")]
#[derive(Default)]
pub struct Outgoing {
    /// The kernel's value.
    pub inner: flow::Outgoing,
}

#[pymethods]
impl Outgoing {
    #[new]
    fn new() -> Outgoing {
        Outgoing::default()
    }

    fn __len__(&self) -> usize {
        self.inner.departures.len()
    }
}

/// What the log is to remember of a turn: for each party its encoded changes.
#[pyclass(frozen, module = "holdfast._kernel")]
pub struct Progress {
    /// The kernel's values.
    pub inner: Vec<(Party, Vec<u8>)>,
}

/// Requests of hungry queues to the log, and its answers.
#[pyclass(module = "holdfast._kernel")]
#[derive(Default)]
pub struct Scans {
    /// The kernel's value.
    pub inner: Vec<flow::Scan>,
}

#[pymethods]
impl Scans {
    fn __len__(&self) -> usize {
        self.inner.len()
    }
}

/// Subscriptions from the tuples that the stub describes.
pub fn subscriptions_of(items: &Bound<'_, PyAny>) -> PyResult<Arc<[Subscription]>> {
    let mut subscriptions = Vec::with_capacity(items.len()?);
    for item in items.try_iter()? {
        let (filter, qos, from, no_local, retain_as_published, identifier, until, keeps_all) = item?.extract()?;
        let filter: PyBackedStr = filter;
        let (filter, from, until) = (filter.as_bytes().to_vec(), Offset(from), Offset(until));
        let terms = Subscription { filter, qos, no_local, keeps_all, retain_as_published, identifier, from, until };
        subscriptions.push(terms);
    }
    Ok(subscriptions.into())
}

/// Adds the classes to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Arrivals>()?;
    module.add_class::<Outgoing>()?;
    module.add_class::<Progress>()?;
    module.add_class::<Scans>()
}
