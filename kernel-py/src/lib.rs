//! The Python binding: conversions, lock release, error mapping and the committer thread; no logic.

mod committer;
mod cursor;
mod dispatch;
mod error;
mod flow;
mod log_reader;
mod mqtt;
mod route;
mod selection;
mod store;

use pyo3::prelude::*;

/// The compiled module `holdfast._kernel`.
#[pymodule]
fn _kernel(module: &Bound<'_, PyModule>) -> PyResult<()> {
    error::register(module)?;
    flow::register(module)?;
    mqtt::register(module)?;
    route::register(module)?;
    store::register(module)?;
    log_reader::register(module)?;
    committer::register(module)?;
    dispatch::register(module)?;
    cursor::register(module)?;
    selection::register(module)
}
