//! What every inbox does with the one read buffer.

use holdfast_kernel::ids::{Connection, Timestamp};
use holdfast_kernel::wire::decoder::Decoder;
use holdfast_kernel::wire::inbox::Inbox;
use pyo3::buffer::ReadOnlyCell;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Takes the first `count` bytes of the read buffer; returns how many wait undecoded on the connection.
pub fn feed<D: Decoder>(
    inbox: &mut Inbox<D>,
    read_buffer: Option<&[ReadOnlyCell<u8>]>,
    connection: u32,
    count: usize,
    now_us: u64,
) -> PyResult<usize> {
    let cells = read_buffer.and_then(|cells| cells.get(..count));
    let cells = cells.ok_or_else(|| PyValueError::new_err(format!("the read buffer does not hold {count} bytes")))?;
    let fill = |target: &mut Vec<u8>| target.extend(cells.iter().map(ReadOnlyCell::get));
    let waiting = inbox.feed_with(Connection(connection), count, Timestamp(now_us), fill);
    waiting.map_err(|error| PyValueError::new_err(error.to_string()))
}
