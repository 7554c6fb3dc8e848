//! How members of a group are chosen, as the broker compiles it; and the slots of keys.

use crate::error::to_python;
use holdfast_kernel::ids::{Connection, KeySlot};
use holdfast_kernel::selection::{self, Key, Owners};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::Arc;

/// The slot of a key.
#[pyfunction]
pub fn key_slot(key: &[u8]) -> u16 {
    selection::key_slot(key).0
}

/// How the next member is chosen.
#[pyclass(module = "holdfast._kernel", frozen)]
pub struct Selection {
    pub inner: selection::Selection<Connection>,
}

#[pymethods]
impl Selection {
    #[new]
    #[pyo3(signature = (how, owners = Vec::new(), name = Vec::new()))]
    fn new(how: &str, owners: Vec<(u32, u32, u32)>, name: Vec<u8>) -> PyResult<Selection> {
        let key = match how {
            "turns" => return Ok(Selection { inner: selection::Selection::Turns }),
            "least_loaded" => return Ok(Selection { inner: selection::Selection::LeastLoaded }),
            "stay" => return Ok(Selection { inner: selection::Selection::Stay }),
            "topic" => Key::Topic,
            "publisher" => Key::Publisher,
            "user_property" => Key::UserProperty(name.into()),
            _ => return Err(PyValueError::new_err(format!("{how} is no way to choose"))),
        };
        let ranges = owners.into_iter().map(|(start, end, owner)| (start, end, Connection(owner))).collect();
        let owners = Owners::new(ranges).map_err(to_python)?;
        Ok(Selection { inner: selection::Selection::ByKey(key, Arc::new(owners)) })
    }

    fn owner(&self, key_slot: u16) -> Option<u32> {
        let selection::Selection::ByKey(_, owners) = &self.inner else { return None };
        owners.owner(KeySlot(key_slot)).map(|owner| owner.0)
    }
}

/// Adds the class and the function to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Selection>()?;
    module.add_function(wrap_pyfunction!(key_slot, module)?)
}
