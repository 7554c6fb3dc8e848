//! The Python binding: conversions, lock release, error mapping and the committer thread; no logic.

use pyo3::prelude::*;

/// The compiled module `holdfast._kernel`.
#[pymodule]
fn _kernel(_module: &Bound<'_, PyModule>) -> PyResult<()> {
    Ok(())
}
