//! The binding of the log's reader.

use crate::error::to_python;
use crate::moment;
use crate::store::damage_dict;
use holdfast_kernel::disk::os::OsDisk;
use holdfast_kernel::ids::{Offset, Party, Timestamp};
use holdfast_kernel::store::{
    self, Bits, Bytes, ColumnSet, Columns, Filter, Limits, Pattern, Properties, SegmentKind, Stretch,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3_bytes::PyBytes;
use std::collections::HashSet;
use std::mem::take;
use std::path::Path;
use std::sync::Arc;

/// The file whose lock the writer holds.
const LOCK_FILE: &str = "lock";

/// What a reader wants.
#[pyclass(module = "holdfast._kernel", frozen)]
pub struct Criteria {
    inner: store::Criteria,
}

/// A topic filter with the offsets from and up to which it holds, and whose messages it leaves out.
type Span = (Vec<u8>, u64, u64, u32);

#[pymethods]
impl Criteria {
    #[new]
    #[pyo3(signature = (
        filters, *, spans = None, pattern = None, names = None, prefix = None, qos = None, retain = None, keys = None
    ))]
    #[allow(clippy::too_many_arguments)] // All but two are keywords on the Python side.
    fn new(
        filters: Vec<Vec<u8>>,
        spans: Option<Vec<Span>>,
        pattern: Option<&str>,
        names: Option<HashSet<Vec<u8>>>,
        prefix: Option<Vec<u8>>,
        qos: Option<Vec<u8>>,
        retain: Option<bool>,
        keys: Option<HashSet<Vec<u8>>>,
    ) -> PyResult<Criteria> {
        let always = filters.iter().map(|filter| Filter::always(filter));
        let span = |(topic_filter, from, until, without)| Filter {
            topic_filter,
            from: Offset(from),
            until: Offset(until),
            without: Party(without),
        };
        let filters = always.chain(spans.unwrap_or_default().into_iter().map(span)).collect();
        let pattern = pattern.map(Pattern::new).transpose().map_err(to_python)?;
        let prefix = prefix.unwrap_or_default();
        Ok(Criteria { inner: store::Criteria { filters, pattern, names, prefix, qos, retain, keys } })
    }
}

/// What was acknowledged, what was in flight, and what is retained.
type Recorded<'py> = (Bound<'py, PyDict>, Bound<'py, PyDict>, Bound<'py, PyDict>);

/// A reader of a log directory.
#[pyclass(module = "holdfast._kernel")]
pub struct LogReader {
    inner: store::LogReader,
    disk: Arc<OsDisk>,
}

#[pymethods]
impl LogReader {
    #[staticmethod]
    fn open(py: Python<'_>, directory: &str) -> PyResult<LogReader> {
        let disk = Arc::new(OsDisk::open(Path::new(directory)).map_err(to_python)?);
        let inner = py.detach(|| store::LogReader::open(Arc::<OsDisk>::clone(&disk))).map_err(to_python)?;
        let mut reader = LogReader { inner, disk };
        reader.refresh(py, None)?;
        Ok(reader)
    }

    fn refresh(&mut self, py: Python<'_>, durable_offset: Option<u64>) -> PyResult<()> {
        let is_written = self.disk.is_locked(LOCK_FILE);
        py.detach(|| self.inner.refresh(durable_offset.map(Offset), is_written)).map_err(to_python)
    }

    fn passed_over<'py>(&mut self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.inner.take_passed_over().iter().map(|damage| damage_dict(py, damage)).collect()
    }

    fn begin_offset(&self) -> u64 {
        self.inner.begin_offset().0
    }

    fn end_offset(&self) -> u64 {
        self.inner.end_offset().0
    }

    fn epoch(&self) -> String {
        self.inner.epoch()
    }

    fn segments<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let mut segments = Vec::new();
        for segment in self.inner.segments() {
            let dict = PyDict::new(py);
            dict.set_item("number", segment.number)?;
            dict.set_item("kind", if segment.kind == SegmentKind::Carry { "carry" } else { "log" })?;
            dict.set_item("file", segment.file)?;
            dict.set_item("bytes", segment.bytes)?;
            dict.set_item("begin_offset", segment.begin_offset.0)?;
            dict.set_item("end_offset", segment.end_offset.0)?;
            dict.set_item("first_time_us", (segment.records > 0).then_some(segment.first_time.0))?;
            dict.set_item("last_time_us", (segment.records > 0).then_some(segment.last_time.0))?;
            dict.set_item("sealed", segment.sealed)?;
            dict.set_item("whole", segment.whole)?;
            dict.set_item("records", segment.records)?;
            segments.push(dict);
        }
        Ok(segments)
    }

    fn topics(
        &mut self,
        py: Python<'_>,
        topic_filter: Option<Vec<u8>>,
        after: Vec<u8>,
        limit: usize,
    ) -> PyResult<Vec<(String, u64)>> {
        let topics = py.detach(|| self.inner.topics(topic_filter.as_deref(), &after, limit)).map_err(to_python)?;
        Ok(topics.into_iter().map(|(name, count)| (String::from_utf8_lossy(&name).into_owned(), count)).collect())
    }

    fn recorded<'py>(&self, py: Python<'py>) -> PyResult<Recorded<'py>> {
        let is_written = self.disk.is_locked(LOCK_FILE);
        let (states, retained) = py.detach(|| self.inner.recorded(is_written)).map_err(to_python)?;
        let (acknowledged, in_flight) = moment::states(py, &states)?;
        Ok((acknowledged, in_flight, moment::retained(py, &retained)?))
    }

    #[pyo3(signature = (parties, *, from_offset, from_number, to_offset, rows_maximum))]
    fn progress<'py>(
        &mut self,
        py: Python<'py>,
        parties: HashSet<u32>,
        from_offset: u64,
        from_number: u64,
        to_offset: u64,
        rows_maximum: usize,
    ) -> PyResult<(Bound<'py, PyDict>, Option<u64>)> {
        let parties = parties.into_iter().map(Party).collect();
        let (from, to) = (Offset(from_offset), Offset(to_offset));
        let wanted = Stretch { from, from_number, to, rows: rows_maximum };
        let (rows, next) = py.detach(|| self.inner.progress(&parties, wanted)).map_err(to_python)?;
        Ok((moment::progress(py, &rows)?, next))
    }

    fn offset_at(&mut self, py: Python<'_>, time_us: u64) -> PyResult<u64> {
        let offset = py.detach(|| self.inner.offset_at(Timestamp(time_us))).map_err(to_python)?;
        Ok(offset.0)
    }

    #[pyo3(signature = (criteria, columns, *, from_offset, to_offset, rows_maximum, bytes_maximum))]
    #[allow(clippy::too_many_arguments)] // All but two are keywords on the Python side.
    fn read<'py>(
        &mut self,
        py: Python<'py>,
        criteria: &Criteria,
        columns: Vec<String>,
        from_offset: u64,
        to_offset: u64,
        rows_maximum: usize,
        bytes_maximum: u64,
    ) -> PyResult<(Bound<'py, PyDict>, u64, u64)> {
        let (from, to, rows) = (Offset(from_offset), Offset(to_offset), rows_maximum);
        let limits = Limits { from, to, rows, bytes: bytes_maximum };
        let wanted = ColumnSet::of(&columns).ok_or_else(|| PyValueError::new_err("there is no such column"))?;
        let criteria = &criteria.inner;
        let (columns, reached) = py.detach(|| self.inner.read(criteria, wanted, &limits)).map_err(to_python)?;
        let missing = columns.missing;
        Ok((columns_dict(py, columns)?, reached.0, missing))
    }

    #[pyo3(signature = (criteria, *, from_offset, to_offset, rows_maximum, bytes_maximum))]
    fn reach(
        &mut self,
        py: Python<'_>,
        criteria: &Criteria,
        from_offset: u64,
        to_offset: u64,
        rows_maximum: usize,
        bytes_maximum: u64,
    ) -> PyResult<(u64, u64)> {
        let (from, to) = (Offset(from_offset), Offset(to_offset));
        let limits = Limits { from, to, rows: rows_maximum, bytes: bytes_maximum };
        let reach = py.detach(|| self.inner.reach(&criteria.inner, &limits)).map_err(to_python)?;
        Ok((reach.end.0, reach.rows))
    }

    #[pyo3(signature = (criteria, *, from_offset, to_offset, parts))]
    fn split(
        &mut self,
        py: Python<'_>,
        criteria: &Criteria,
        from_offset: u64,
        to_offset: u64,
        parts: usize,
    ) -> PyResult<Vec<(u64, u64)>> {
        let (from, to) = (Offset(from_offset), Offset(to_offset));
        let ranges = py.detach(|| self.inner.split(&criteria.inner, from, to, parts)).map_err(to_python)?;
        Ok(ranges.into_iter().map(|(first, end)| (first.0, end.0)).collect())
    }

    fn verify<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let damaged = py.detach(|| self.inner.verify()).map_err(to_python)?;
        damaged.iter().map(|damage| damage_dict(py, damage)).collect()
    }
}

/// The columns that were wanted, each with its buffers, which lie where the kernel has filled them: to copy some
/// megabytes takes milliseconds in which nobody else has the interpreter.
fn columns_dict(py: Python<'_>, mut columns: Columns) -> PyResult<Bound<'_, PyDict>> {
    let bytes = |data: Vec<u8>| Some(PyBytes::from(data));
    let bits = |bits: Bits| bytes(bits.bytes);
    let texts = |validity, texts: Bytes| vec![validity, bytes(texts.offsets), bytes(texts.data)];
    let lists = |lists: Properties| {
        let (keys, values) = (lists.keys, lists.values);
        let buffers = [lists.offsets, keys.offsets, keys.data, values.offsets, values.data];
        buffers.into_iter().map(bytes).collect()
    };
    let dict = PyDict::new(py);
    for name in columns.wanted().names() {
        let all = &mut columns;
        let buffers = match name {
            "topic" => texts(None, take(&mut all.topic)),
            "key" => texts(bits(take(&mut all.has_key)), take(&mut all.key)),
            "value" => texts(None, take(&mut all.value)),
            "shard" => vec![None, bytes(take(&mut all.shard))],
            "offset" => vec![None, bytes(take(&mut all.offset))],
            "entry" => vec![None, bytes(take(&mut all.entry))],
            "timestamp" => vec![None, bytes(take(&mut all.timestamp))],
            "event_time" => vec![bits(take(&mut all.has_event_time)), bytes(take(&mut all.event_time))],
            "qos" => vec![None, bytes(take(&mut all.qos))],
            "retain" => vec![None, bits(take(&mut all.retain))],
            "publisher" => vec![bits(take(&mut all.has_publisher)), bytes(take(&mut all.publisher))],
            "expires_at" => vec![bits(take(&mut all.has_expires_at)), bytes(take(&mut all.expires_at))],
            "properties" => lists(take(&mut all.properties)),
            _ => lists(take(&mut all.headers)),
        };
        dict.set_item(name, buffers)?;
    }
    dict.set_item("rows", columns.rows)?;
    Ok(dict)
}

/// Adds the class to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Criteria>()?;
    module.add_class::<LogReader>()
}
