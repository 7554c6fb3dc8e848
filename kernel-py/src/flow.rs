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
