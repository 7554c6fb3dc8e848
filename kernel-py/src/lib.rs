//! The Python binding: conversions, lock release, error mapping and the committer thread; no logic.

mod cursor;
mod flow;
mod mqtt;
mod route;
mod selection;

use pyo3::prelude::*;

/// The compiled module `holdfast._kernel`.
#[pymodule]
fn _kernel(module: &Bound<'_, PyModule>) -> PyResult<()> {
    flow::register(module)?;
    mqtt::register(module)?;
    route::register(module)?;
    cursor::register(module)?;
    selection::register(module)
}
