//! `RangeSet`: what of a queue is acknowledged, and what it has lost.

use holdfast_kernel::ranges;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Disjoint, coalesced, half-open ranges of integers.
#[pyclass(module = "holdfast._kernel")]
#[derive(Default)]
pub struct RangeSet {
    /// The kernel's ranges.
    pub inner: ranges::RangeSet,
}

#[pymethods]
impl RangeSet {
    #[new]
    #[pyo3(signature = (ranges = Vec::new()))]
    fn new(ranges: Vec<(u64, u64)>) -> RangeSet {
        RangeSet { inner: ranges.into_iter().collect() }
    }

    #[staticmethod]
    fn decode(data: &[u8]) -> PyResult<(RangeSet, usize)> {
        let (inner, rest) = ranges::RangeSet::decode(data).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok((RangeSet { inner }, data.len().saturating_sub(rest.len())))
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.inner.encode(&mut bytes);
        bytes
    }

    fn insert(&mut self, start: u64, end: u64) {
        self.inner.insert(start, end);
    }

    fn remove_below(&mut self, position: u64) {
        self.inner.remove_below(position);
    }

    fn contains(&self, position: u64) -> bool {
        self.inner.contains(position)
    }

    fn contains_range(&self, start: u64, end: u64) -> bool {
        self.inner.contains_range(start, end)
    }

    fn gaps(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        self.inner.gaps(start, end).iter().collect()
    }

    fn ranges(&self) -> Vec<(u64, u64)> {
        self.inner.iter().collect()
    }

    fn positions(&self) -> u64 {
        self.inner.positions()
    }

    fn __len__(&self) -> usize {
        self.inner.len()
    }
}

/// Adds the class to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<RangeSet>()
}
