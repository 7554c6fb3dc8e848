//! The values that pass from stage to stage, opaque to Python.

use holdfast_kernel::flow;
use pyo3::prelude::*;

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
        self.inner.packets.len()
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

/// Adds the classes to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Arrivals>()?;
    module.add_class::<Outgoing>()?;
    module.add_class::<Scans>()
}
