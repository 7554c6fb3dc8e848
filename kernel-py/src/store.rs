//! The binding of the log and of the simulated disk.

use crate::error::to_python;
use crate::flow::{subscriptions_of, Arrivals, Progress, Scans};
use crate::moment;
use holdfast_kernel::disk::fake::FakeDisk;
use holdfast_kernel::disk::os::OsDisk;
use holdfast_kernel::disk::Disk;
use holdfast_kernel::ids::{Offset, Party, Timestamp};
use holdfast_kernel::store::{self, Damage, Durability, Options, Recovery, RetentionCursor, Wanted};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBytes, PyDict, PyList};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a queue loses: party, first offset, end offset, count.
type Loss = (u32, u64, u64, u64);

/// A control record: number, table, key, value.
type ControlRow<'py> = (u64, u32, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// The durable log.
#[pyclass(module = "holdfast._kernel")]
pub struct Log {
    /// The kernel's log.
    pub inner: store::Log,
}

#[pymethods]
impl Log {
    #[staticmethod]
    #[pyo3(signature = (directory, *, segment_bytes, cache_bytes, reserve_bytes, durability, seed, now_us))]
    #[allow(clippy::too_many_arguments)] // All are keywords on the Python side.
    fn open<'py>(
        py: Python<'py>,
        directory: &str,
        segment_bytes: u32,
        cache_bytes: usize,
        reserve_bytes: u64,
        durability: &str,
        seed: u64,
        now_us: u64,
    ) -> PyResult<(Log, Bound<'py, PyDict>)> {
        let disk = OsDisk::create(Path::new(directory)).map_err(to_python)?;
        let options = options(segment_bytes, cache_bytes, reserve_bytes, durability, seed)?;
        open(py, Arc::new(disk), options, now_us)
    }

    #[staticmethod]
    #[pyo3(signature = (disk, *, segment_bytes, cache_bytes, reserve_bytes, durability, seed, now_us))]
    #[allow(clippy::too_many_arguments)] // All are keywords on the Python side.
    fn open_simulated<'py>(
        py: Python<'py>,
        disk: &SimulatedDisk,
        segment_bytes: u32,
        cache_bytes: usize,
        reserve_bytes: u64,
        durability: &str,
        seed: u64,
        now_us: u64,
    ) -> PyResult<(Log, Bound<'py, PyDict>)> {
        let options = options(segment_bytes, cache_bytes, reserve_bytes, durability, seed)?;
        let disk: Arc<dyn Disk> = disk.inner.clone();
        open(py, disk, options, now_us)
    }

    fn append(&mut self, arrivals: &mut Arrivals, store_all: Vec<Vec<u8>>, now_us: u64) -> PyResult<()> {
        self.inner.append(&mut arrivals.inner, &store_all, Timestamp(now_us)).map_err(to_python)
    }

    fn append_control(&mut self, table: u32, key: &[u8], value: &[u8], now_us: u64) -> PyResult<u64> {
        let position = self.inner.append_control(table, key, value, Timestamp(now_us)).map_err(to_python)?;
        Ok(position.0)
    }

    fn append_progress(&mut self, progress: &Progress, now_us: u64) -> PyResult<u64> {
        for (party, value) in &progress.inner {
            let position = self.inner.append_control(0, &party.0.to_le_bytes(), value, Timestamp(now_us));
            position.map_err(to_python)?;
        }
        Ok(self.inner.end_position().0)
    }

    fn end_offset(&self) -> u64 {
        self.inner.end_offset().0
    }

    fn begin_offset(&self) -> u64 {
        self.inner.begin_offset().0
    }

    fn durable_offset(&self) -> u64 {
        self.inner.durable_offset().0
    }

    fn end_position(&self) -> u64 {
        self.inner.end_position().0
    }

    fn durable_position(&self) -> u64 {
        self.inner.durable_position().0
    }

    fn uncommitted_bytes(&self) -> u64 {
        self.inner.uncommitted_bytes()
    }

    fn controls<'py>(
        &mut self,
        py: Python<'py>,
        from_number: u64,
        limit: usize,
        effort: u64,
    ) -> PyResult<(Vec<ControlRow<'py>>, u64, bool)> {
        let found = self.inner.controls(from_number, limit, effort).map_err(to_python)?;
        let rows = found
            .rows
            .into_iter()
            .map(|(number, table, key, value)| (number, table, PyBytes::new(py, &key), PyBytes::new(py, &value)))
            .collect();
        Ok((rows, found.reached, found.is_all))
    }

    fn next_control_number(&self) -> u64 {
        self.inner.next_control_number()
    }

    fn delivery_state<'py>(&self, py: Python<'py>, party: u32) -> Option<Bound<'py, PyBytes>> {
        self.inner.delivery_state(Party(party)).map(|state| PyBytes::new(py, &state))
    }

    fn begin_instant(&mut self) {
        self.inner.begin_instant();
    }

    #[allow(clippy::type_complexity, reason = "two tables and a place, described on the Python side")]
    fn states_piece<'py>(
        &mut self,
        py: Python<'py>,
        after: Option<u32>,
        effort: u64,
    ) -> PyResult<((Bound<'py, PyDict>, Bound<'py, PyDict>), Option<u32>)> {
        let (states, reached) = self.inner.states_piece(after.map(Party), effort);
        Ok((moment::states(py, &states)?, reached.map(|party| party.0)))
    }

    fn retained_piece<'py>(&mut self, py: Python<'py>, effort: u64) -> PyResult<(Bound<'py, PyDict>, bool)> {
        let (rows, is_all) = self.inner.retained_piece(effort);
        Ok((moment::retained(py, &rows)?, is_all))
    }

    fn note_effort(&mut self, effort: u64) {
        self.inner.note_effort(effort);
    }

    fn marks(&self, parties: Vec<u32>) -> Vec<Option<u64>> {
        let parties: Vec<Party> = parties.into_iter().map(Party).collect();
        self.inner.marks(&parties).into_iter().map(|mark| mark.map(|mark| mark.0)).collect()
    }

    fn commit(&mut self, py: Python<'_>) -> PyResult<bool> {
        py.detach(|| self.inner.commit()).map_err(to_python)
    }

    fn scan(&mut self, scans: &mut Scans) -> PyResult<()> {
        self.inner.scan(&mut scans.inner).map_err(to_python)
    }

    fn answer(&mut self, question: &mut Question, effort: u64) -> PyResult<Option<u64>> {
        self.inner.answer(&mut question.inner, effort).map_err(to_python)
    }

    fn prepare_filters(&mut self, effort: u64) -> bool {
        self.inner.prepare_filters(effort)
    }

    fn declare(&mut self, topic_name: &[u8], now_us: u64) -> PyResult<u32> {
        Ok(self.inner.declare(topic_name, Timestamp(now_us)).map_err(to_python)?.0)
    }

    fn keep_all(&mut self, topic_name: &[u8], keeps_all: bool) {
        self.inner.keep_all(topic_name, keeps_all);
    }

    fn entries_end(&self, topic_name: &[u8]) -> Option<u64> {
        self.inner.entries_end(topic_name)
    }

    fn stored_at(&mut self, offset: u64) -> PyResult<Option<u64>> {
        Ok(self.inner.stored_at(Offset(offset)).map_err(to_python)?.map(|at| at.0))
    }

    fn offset_at(&mut self, time_us: u64) -> PyResult<u64> {
        Ok(self.inner.offset_at(Timestamp(time_us)).map_err(to_python)?.0)
    }

    fn retained(&self, topic_filter: &[u8], from_offset: u64, limit: usize) -> (Vec<u64>, u64) {
        let (found, reached) = self.inner.retained(topic_filter, Offset(from_offset), limit);
        (found.into_iter().map(|offset| offset.0).collect(), reached.0)
    }

    fn retained_count(&self) -> usize {
        self.inner.retained_count()
    }

    fn published(&mut self, party: u32, from_offset: u64) -> PyResult<u64> {
        self.inner.published(Party(party), Offset(from_offset)).map_err(to_python)
    }

    #[pyo3(signature = (*, maximum_age_us, maximum_bytes, now_us))]
    fn begin_retention(&mut self, maximum_age_us: u64, maximum_bytes: u64, now_us: u64) -> PyResult<bool> {
        self.inner.begin_retention(maximum_age_us, maximum_bytes, Timestamp(now_us)).map_err(to_python)
    }

    fn begin_thinning(&mut self, now_us: u64) -> PyResult<bool> {
        self.inner.begin_thinning(Timestamp(now_us)).map_err(to_python)
    }

    fn abandon_retention(&mut self) {
        self.inner.abandon_retention();
    }

    fn whole_from(&self) -> u64 {
        self.inner.whole_from().0
    }

    fn survey_job(&self) -> Option<Job> {
        self.inner.survey_job().map(Job::new)
    }

    fn going(&mut self, topics: Vec<PyBackedStr>) -> Vec<usize> {
        self.inner.going(&topics.iter().map(|topic| &**topic).collect::<Vec<_>>())
    }

    fn whole_controls_from(&self) -> u64 {
        self.inner.whole_controls_from()
    }

    fn going_names(&mut self, maximum: usize) -> Option<Vec<String>> {
        let names = self.inner.going_names(maximum)?;
        names.iter().map(|name| String::from_utf8(name.to_vec()).ok()).collect()
    }

    fn renew_piece(&mut self, effort: u64, now_us: u64) -> PyResult<bool> {
        self.inner.renew_piece(effort, Timestamp(now_us)).map_err(to_python)
    }

    fn retention_may_go_on(&self) -> bool {
        self.inner.retention_may_go_on()
    }

    fn retention_has_checkpoint(&self) -> bool {
        self.inner.retention_has_checkpoint()
    }

    fn visit(&mut self, cursors: &Bound<'_, PyList>) -> PyResult<()> {
        let cursors = cursors.iter().map(|cursor| cursor_of(&cursor)).collect::<PyResult<Vec<RetentionCursor>>>()?;
        self.inner.visit(cursors);
        Ok(())
    }

    fn visit_piece(&mut self, effort: u64) -> PyResult<(Vec<Loss>, bool)> {
        let (losses, done) = self.inner.visit_piece(effort).map_err(to_python)?;
        let losses = losses.iter().map(|loss| (loss.party.0, loss.first.0, loss.end.0, loss.count));
        Ok((losses.collect(), done))
    }

    fn find_piece(&mut self, effort: u64) -> PyResult<bool> {
        self.inner.find_piece(effort).map_err(to_python)
    }

    fn give_up(&mut self, party: u32, first_offset: u64, end_offset: u64, now_us: u64) -> PyResult<()> {
        let (first, end) = (Offset(first_offset), Offset(end_offset));
        self.inner.give_up(Party(party), first, end, Timestamp(now_us)).map_err(to_python)
    }

    fn carry_job(&mut self, now_us: u64) -> Option<Job> {
        self.inner.carry_job(Timestamp(now_us)).map(Job::new)
    }

    fn checkpoint(&mut self, py: Python<'_>, now_us: u64) -> PyResult<()> {
        py.detach(|| self.inner.checkpoint(Timestamp(now_us))).map_err(to_python)
    }

    fn begin_checkpoint(&mut self, now_us: u64) -> PyResult<()> {
        self.inner.begin_checkpoint(Timestamp(now_us)).map_err(to_python)
    }

    fn checkpoint_piece(&mut self, effort: u64) -> bool {
        self.inner.checkpoint_piece(effort)
    }

    fn checkpoint_job(&mut self) -> Option<Job> {
        self.inner.checkpoint_job().map(Job::new)
    }

    fn ahead_job(&self) -> Option<Job> {
        self.inner.ahead_job().map(Job::new)
    }

    fn release_job(&mut self, kept_bytes: u64) -> Option<Job> {
        self.inner.release_job(kept_bytes).map(Job::new)
    }

    fn leave_footers(&mut self) {
        self.inner.leave_footers();
    }

    fn awaits_footer(&self) -> bool {
        self.inner.awaits_footer()
    }

    fn prepare_seal(&mut self, effort: usize) -> bool {
        self.inner.prepare_seal(effort)
    }

    fn seal_job(&mut self) -> Option<Job> {
        self.inner.seal_job().map(Job::new)
    }

    fn finish(&mut self, job: &Job) -> PyResult<(u64, u64, Option<Job>)> {
        let job = lock(&job.inner).take().ok_or_else(|| PyValueError::new_err("the job was finished before"))?;
        let finished = self.inner.finish(job).map_err(to_python)?;
        Ok((finished.removed_segments, finished.carried_records, finished.next.map(Job::new)))
    }

    fn bytes_since_checkpoint(&self) -> u64 {
        self.inner.bytes_since_checkpoint()
    }

    fn epoch(&self) -> String {
        self.inner.epoch()
    }

    fn effort(&self) -> u64 {
        self.inner.effort()
    }

    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, value) in self.inner.statistics() {
            dict.set_item(name, value)?;
        }
        Ok(dict)
    }

    fn remembered(&self) -> HashMap<&'static str, u64> {
        self.inner.remembered().into_iter().collect()
    }

    fn close(&mut self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.inner.close()).map_err(to_python)
    }
}

/// A question about stored messages, and how far it is answered.
#[pyclass(module = "holdfast._kernel")]
pub struct Question {
    inner: store::Question,
}

#[pymethods]
impl Question {
    #[new]
    #[pyo3(signature = (
        wanted, subscriptions, owner, from_offset, to_offset, *, messages = 0, unexpired_at_us = 0
    ))]
    #[allow(clippy::too_many_arguments)] // What is asked about, and what is asked.
    fn new(
        wanted: &str,
        subscriptions: &Bound<'_, PyAny>,
        owner: u32,
        from_offset: u64,
        to_offset: u64,
        messages: u64,
        unexpired_at_us: u64,
    ) -> PyResult<Question> {
        let wanted = match wanted {
            "count" => Wanted::Count,
            "bytes" => Wanted::Bytes,
            "newest" => Wanted::Newest(messages),
            "first" => Wanted::First,
            other => return Err(PyValueError::new_err(format!("count, bytes, newest or first, not {other}"))),
        };
        let range = (Offset(from_offset), Offset(to_offset));
        let subscriptions = subscriptions_of(subscriptions)?;
        let at = Timestamp(unexpired_at_us);
        Ok(Question { inner: store::Question::new(subscriptions, Party(owner), range, at, wanted) })
    }

    fn so_far(&self) -> u64 {
        self.inner.so_far()
    }
}

/// Work beside the loop. The lock is free whenever a step has ended: the loop and its worker take turns.
#[pyclass(module = "holdfast._kernel")]
pub struct Job {
    inner: Mutex<Option<store::Job>>,
}

impl Job {
    fn new(inner: store::Job) -> Job {
        Job { inner: Mutex::new(Some(inner)) }
    }
}

#[pymethods]
impl Job {
    fn step(&self, py: Python<'_>) -> bool {
        py.detach(|| lock(&self.inner).as_mut().is_some_and(store::Job::step))
    }
}

fn lock(job: &Mutex<Option<store::Job>>) -> MutexGuard<'_, Option<store::Job>> {
    job.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A cursor from the dict that the stub describes.
fn cursor_of(item: &Bound<'_, PyAny>) -> PyResult<RetentionCursor> {
    Ok(RetentionCursor {
        party: Party(item.get_item("party")?.extract()?),
        mark: Offset(item.get_item("mark")?.extract()?),
        subscriptions: subscriptions_of(&item.get_item("subscriptions")?)?.to_vec(),
        keep_from: Offset(item.get_item("keep_from")?.extract()?),
        messages_maximum: item.get_item("messages_maximum")?.extract()?,
    })
}

/// A seeded disk in memory with faults.
#[pyclass(module = "holdfast._kernel")]
pub struct SimulatedDisk {
    inner: Arc<FakeDisk>,
}

#[pymethods]
impl SimulatedDisk {
    #[new]
    #[pyo3(signature = (seed, *, capacity_bytes = 1 << 40))]
    fn new(seed: u64, capacity_bytes: u64) -> SimulatedDisk {
        SimulatedDisk { inner: Arc::new(FakeDisk::new(seed, capacity_bytes)) }
    }

    fn crash(&self) {
        self.inner.crash();
    }

    fn fail_next_sync(&self) {
        self.inner.fail_next_sync();
    }

    fn set_capacity(&self, capacity_bytes: u64) {
        self.inner.set_capacity(capacity_bytes);
    }

    fn flip_bit(&self, file: &str, position: u64) {
        self.inner.flip_bit(file, position);
    }

    fn files(&self) -> PyResult<Vec<String>> {
        self.inner.list().map_err(to_python)
    }

    fn write(&self, file: &str, data: &[u8]) -> PyResult<()> {
        let write = || {
            let written = self.inner.create(file, 0)?;
            written.write_at(0, data)?;
            written.sync()?;
            self.inner.sync_directory()
        };
        write().map_err(to_python)
    }

    fn remove(&self, file: &str) -> PyResult<()> {
        self.inner.remove(file).map_err(to_python)
    }

    fn read<'py>(&self, py: Python<'py>, file: &str) -> PyResult<Bound<'py, PyBytes>> {
        let file = self.inner.open(file, false).map_err(to_python)?;
        let mut bytes = vec![0; usize::try_from(file.size().map_err(to_python)?).unwrap_or_default()];
        file.read_at(0, &mut bytes).map_err(to_python)?;
        Ok(PyBytes::new(py, &bytes))
    }
}

fn options(
    segment_bytes: u32,
    cache_bytes: usize,
    reserve_bytes: u64,
    durability: &str,
    seed: u64,
) -> PyResult<Options> {
    let durability = match durability {
        "fsync" => Durability::Fsync,
        "os" => Durability::Os,
        "memory" => Durability::Memory,
        other => return Err(PyValueError::new_err(format!("durability is fsync, os or memory, not {other}"))),
    };
    Ok(Options { segment_bytes, cache_bytes, reserve_bytes, durability, seed })
}

fn open<'py>(
    py: Python<'py>,
    disk: Arc<dyn Disk>,
    options: Options,
    now_us: u64,
) -> PyResult<(Log, Bound<'py, PyDict>)> {
    let (inner, recovery) = py.detach(|| store::Log::open(disk, options, Timestamp(now_us))).map_err(to_python)?;
    let report = report(py, &inner, &recovery)?;
    Ok((Log { inner }, report))
}

fn report<'py>(py: Python<'py>, log: &store::Log, recovery: &Recovery) -> PyResult<Bound<'py, PyDict>> {
    let damaged = PyList::empty(py);
    for damage in &recovery.damaged {
        damaged.append(damage_dict(py, damage)?)?;
    }
    let dict = PyDict::new(py);
    for (name, value) in log.statistics() {
        dict.set_item(name, value)?;
    }
    dict.set_item("begin_offset", log.begin_offset().0)?;
    dict.set_item("end_offset", log.end_offset().0)?;
    dict.set_item("trimmed_bytes", recovery.trimmed_bytes)?;
    dict.set_item("damaged", damaged)?;
    dict.set_item("control_number", log.next_control_number())?;
    dict.set_item("from_checkpoint", recovery.from_checkpoint)?;
    Ok(dict)
}

/// A damaged place, as the stub describes it.
pub fn damage_dict<'py>(py: Python<'py>, damage: &Damage) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("file", &damage.file)?;
    dict.set_item("first_position", damage.first_position)?;
    dict.set_item("end_position", damage.end_position)?;
    dict.set_item("reason", &damage.reason)?;
    dict.set_item("first_offset", damage.first_offset.0)?;
    dict.set_item("end_offset", damage.end_offset.0)?;
    Ok(dict)
}

/// Adds the classes to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Log>()?;
    module.add_class::<Question>()?;
    module.add_class::<Job>()?;
    module.add_class::<SimulatedDisk>()
}
