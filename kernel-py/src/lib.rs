//! The Python binding: conversions, lock release, error mapping and the committer thread; no logic.

mod flow;
mod mqtt;

use pyo3::prelude::*;

/// The compiled module `holdfast._kernel`.
#[pymodule]
fn _kernel(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<flow::Arrivals>()?;
    module.add_class::<flow::Outgoing>()?;
    module.add_class::<flow::Scans>()?;
    mqtt::register(module)
}
