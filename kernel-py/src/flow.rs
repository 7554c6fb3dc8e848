//! The values that pass from stage to stage, opaque to Python.

use holdfast_kernel::flow::{self, Subscription};
use holdfast_kernel::ids::Offset;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
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

    #[getter]
    fn publishes(&self) -> usize {
        self.inner.publishes.len()
    }

    #[getter]
    fn acknowledgements(&self) -> usize {
        self.inner.acknowledgements.len()
    }

    fn received(&self) -> ([u64; 3], u64) {
        (self.inner.received.publishes, self.inner.received.payload_bytes)
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

/// Subscriptions from the dicts that the stub describes.
pub fn subscriptions_of(list: &Bound<'_, PyList>) -> PyResult<Arc<[Subscription]>> {
    let mut subscriptions = Vec::with_capacity(list.len());
    for item in list.iter() {
        let dict = item.downcast_into::<PyDict>()?;
        let get = |name: &str| dict.get_item(name)?.ok_or_else(|| PyKeyError::new_err(name.to_owned()));
        subscriptions.push(Subscription {
            filter: get("topic_filter")?.extract::<Vec<u8>>()?,
            qos: get("qos")?.extract()?,
            no_local: get("no_local")?.extract()?,
            retain_as_published: get("retain_as_published")?.extract()?,
            identifier: get("identifier")?.extract()?,
            from: Offset(get("from_offset")?.extract()?),
            until: Offset(get("until_offset")?.extract()?),
        });
    }
    Ok(subscriptions.into())
}

/// Adds the classes to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Arrivals>()?;
    module.add_class::<Outgoing>()?;
    module.add_class::<Scans>()
}
