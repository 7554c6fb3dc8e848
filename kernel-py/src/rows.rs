//! The binding of messages that are handed in many at once.

use crate::error::to_python;
use holdfast_kernel::flow::rows;
use holdfast_kernel::mqtt::columns::{Bounds, Columns, Numbers, Texts};
use holdfast_kernel::topic::grant::HeldGrants;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict};

/// The rows of a part of a batch, and which of them comes next.
#[pyclass(module = "holdfast._kernel")]
pub struct Rows {
    /// The kernel's value.
    pub inner: rows::Rows,
}

#[pymethods]
impl Rows {
    #[new]
    fn new(data: &[u8]) -> Rows {
        Rows { inner: rows::Rows::new(data.to_vec()) }
    }

    fn is_done(&self) -> bool {
        self.inner.is_done()
    }

    fn pass_over(&mut self, count: usize) -> PyResult<usize> {
        self.inner.pass(count).map_err(to_python)
    }
}

/// Buffers of one column, which stay where they are while the interpreter's lock is free.
type Buffers = Vec<PyBackedBytes>;

/// The column of a name; empty where there is none.
fn column(columns: &Bound<'_, PyDict>, name: &str) -> PyResult<Buffers> {
    columns.get_item(name)?.map_or(Ok(Vec::new()), |found| found.extract())
}

fn texts<'a>(offsets: Option<&'a PyBackedBytes>, data: Option<&'a PyBackedBytes>) -> Texts<'a> {
    Texts { offsets: bytes(offsets).unwrap_or_default(), data: bytes(data).unwrap_or_default() }
}

fn bytes(buffer: Option<&PyBackedBytes>) -> Option<&[u8]> {
    buffer.map(|buffer| &**buffer)
}

fn numbers(buffers: &Buffers) -> Option<Numbers<'_>> {
    Some(Numbers { is_there: bytes(buffers.first())?, values: bytes(buffers.get(1))? })
}

/// Messages as rows, from the columns that the stub describes.
#[pyfunction]
#[pyo3(signature = (columns, count, *, properties_are_texts, publish, message_bytes_maximum))]
fn encode_rows<'py>(
    py: Python<'py>,
    columns: &Bound<'py, PyDict>,
    count: usize,
    properties_are_texts: bool,
    publish: Option<Vec<(Vec<u8>, bool)>>,
    message_bytes_maximum: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let grant = publish.map(|rules| HeldGrants::default().grant(&rules)).transpose().map_err(to_python)?;
    let of = |name: &str| column(columns, name);
    let (topic, value, key, properties) = (of("topic")?, of("value")?, of("key")?, of("properties")?);
    let (qos, retain, event_time, expiry) = (of("qos")?, of("retain")?, of("event_time")?, of("expiry")?);
    if topic.len() != 2 || value.len() != 2 {
        return Err(PyKeyError::new_err("topic and value"));
    }
    let encoded = py.detach(|| {
        let columns = Columns {
            rows: count,
            topic: texts(topic.first(), topic.get(1)),
            value: texts(value.first(), value.get(1)),
            key: bytes(key.first()).map(|is_there| (is_there, texts(key.get(1), key.get(2)))),
            qos: bytes(qos.first()),
            retain: bytes(retain.first()),
            event_time: numbers(&event_time),
            expiry: numbers(&expiry),
            properties: bytes(properties.first()).map(|counts| {
                (counts, texts(properties.get(1), properties.get(2)), texts(properties.get(3), properties.get(4)))
            }),
            properties_are_texts,
        };
        let mut out = Vec::new();
        columns.encode(&Bounds { publish: grant, message_bytes_maximum }, &mut out).map(|()| out)
    });
    Ok(PyBytes::new(py, &encoded.map_err(to_python)?))
}

/// Adds the class and the function to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Rows>()?;
    module.add_function(wrap_pyfunction!(encode_rows, module)?)
}
