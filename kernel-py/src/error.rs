//! What a kernel error is in Python.

use holdfast_kernel::error::Error;
use pyo3::exceptions::{PyException, PyOSError, PyValueError};
use pyo3::prelude::*;

pyo3::create_exception!(holdfast._kernel, DiskError, PyOSError, "The disk refused.");
pyo3::create_exception!(holdfast._kernel, DamagedError, PyException, "Stored bytes are not what was written.");
pyo3::create_exception!(holdfast._kernel, NewerFormatError, PyException, "A file was written by a newer version.");
pyo3::create_exception!(holdfast._kernel, BusyError, PyException, "There is no room just now, and there will be.");
pyo3::create_exception!(holdfast._kernel, PoisonedError, PyException, "A sync failed; the log takes no more.");

/// The Python exception for a kernel error; its text is the error's.
pub fn to_python(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::Disk { full, .. } => Python::attach(|py| {
            let raised = DiskError::new_err(text);
            let set = raised.value(py).setattr("full", full);
            set.err().unwrap_or(raised)
        }),
        Error::Damaged { .. } => DamagedError::new_err(text),
        Error::NewerFormat { .. } => NewerFormatError::new_err(text),
        Error::Busy(_) => BusyError::new_err(text),
        Error::Poisoned => PoisonedError::new_err(text),
        Error::Invalid(_) => PyValueError::new_err(text),
    }
}

/// Adds the exceptions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("DiskError", py.get_type::<DiskError>())?;
    module.add("BusyError", py.get_type::<BusyError>())?;
    module.add("DamagedError", py.get_type::<DamagedError>())?;
    module.add("NewerFormatError", py.get_type::<NewerFormatError>())?;
    module.add("PoisonedError", py.get_type::<PoisonedError>())
}
