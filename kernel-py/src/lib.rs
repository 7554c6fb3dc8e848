//! The Python binding: conversions, lock release, error mapping and the committer thread; no logic.

mod cursor;
mod flow;
mod route;
mod selection;

use pyo3::prelude::*;

/// The compiled module `holdfast._kernel`.
#[pymodule]
fn _kernel(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<flow::Arrivals>()?;
    module.add_class::<route::Routes>()?;
    module.add_class::<cursor::Cursor>()?;
    module.add_class::<cursor::RangeSet>()?;
    module.add_class::<selection::Owners>()?;
    module.add_class::<selection::Round>()?;
    module.add_function(wrap_pyfunction!(selection::key_slot, module)?)?;
    module.add_function(wrap_pyfunction!(selection::murmur3_32, module)?)?;
    Ok(())
}
