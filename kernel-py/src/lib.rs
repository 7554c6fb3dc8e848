//! The Python binding: conversions, lock release, error mapping, the committer thread and plain sockets; no logic.

mod committer;
mod delivery;
#[cfg(feature = "testing")]
mod entry;
mod error;
mod flow;
mod log_reader;
mod moment;
mod mqtt;
mod notice;
mod pulsar;
mod ranges;
mod read_buffer;
mod route;
mod rows;
mod selection;
mod sockets;
mod store;
#[cfg(feature = "testing")]
mod testing;
mod turn;

use pyo3::prelude::*;

/// The compiled module `holdfast._kernel`.
#[pymodule]
fn _kernel(module: &Bound<'_, PyModule>) -> PyResult<()> {
    error::register(module)?;
    flow::register(module)?;
    mqtt::register(module)?;
    route::register(module)?;
    rows::register(module)?;
    store::register(module)?;
    log_reader::register(module)?;
    committer::register(module)?;
    delivery::register(module)?;
    notice::register(module)?;
    pulsar::register(module)?;
    ranges::register(module)?;
    sockets::register(module)?;
    turn::register(module)?;
    #[cfg(feature = "testing")]
    entry::register(module)?;
    #[cfg(feature = "testing")]
    testing::register(module)?;
    selection::register(module)
}
