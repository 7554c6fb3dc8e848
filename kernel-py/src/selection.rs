//! Key slots, their owners and rounds: for tests; the broker's tables live inside `Dispatch`.

use holdfast_kernel::dispatch::cursor::Holder;
use holdfast_kernel::dispatch::selection;
use holdfast_kernel::ids::KeySlot;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The slot of a key.
#[pyfunction]
pub fn key_slot(key: &[u8]) -> u16 {
    selection::key_slot(key).0
}

/// The hash whose lowest 16 bits are the slot.
#[pyfunction]
pub fn murmur3_32(key: &[u8]) -> u32 {
    selection::murmur3_32(key)
}

/// The owner of each key slot.
#[pyclass(module = "holdfast._kernel")]
#[derive(Default)]
pub struct Owners {
    inner: selection::Owners,
}

#[pymethods]
impl Owners {
    #[new]
    fn new() -> Owners {
        Owners::default()
    }

    fn set(&mut self, ranges: Vec<(u32, u32, u32)>) -> PyResult<()> {
        let ranges: Vec<_> = ranges.into_iter().map(|(start, end, holder)| (start, end, Holder(holder))).collect();
        self.inner.set(&ranges).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    fn owner(&self, key_slot: u16) -> Option<u32> {
        self.inner.owner(KeySlot(key_slot)).map(|holder| holder.0)
    }
}

/// Holders in a round.
#[pyclass(module = "holdfast._kernel")]
#[derive(Default)]
pub struct Round {
    inner: selection::Round,
}

#[pymethods]
impl Round {
    #[new]
    fn new() -> Round {
        Round::default()
    }

    fn join(&mut self, holder: u32) {
        self.inner.join(Holder(holder));
    }

    fn leave(&mut self, holder: u32) {
        self.inner.leave(Holder(holder));
    }

    fn next(&mut self, without_room: Vec<u32>) -> Option<u32> {
        self.inner.next(|holder| !without_room.contains(&holder.0)).map(|holder| holder.0)
    }
}

/// Adds the classes and functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Owners>()?;
    module.add_class::<Round>()?;
    module.add_function(wrap_pyfunction!(key_slot, module)?)?;
    module.add_function(wrap_pyfunction!(murmur3_32, module)?)?;
    Ok(())
}
