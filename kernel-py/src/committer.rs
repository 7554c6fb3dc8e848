//! The committer: one thread that writes and syncs, and never takes the interpreter lock.
//!
//! The log stays on the loop's thread. A group of appended bytes goes to the thread as a value and comes back with
//! its outcome; a count in the kernel of the system (eventfd) wakes the loop.

use crate::error::to_python;
use crate::store::Log;
use holdfast_kernel::store::{Commit, Ended};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rustix::event::{eventfd, EventfdFlags};
use rustix::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// The thread that commits: while one group is on its way to the disk the next one gathers.
#[pyclass(module = "holdfast._kernel")]
pub struct Committer {
    log: Py<Log>,
    groups: Option<Sender<Commit>>,
    ended: Mutex<Receiver<(Commit, Ended)>>,
    woken: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    in_flight: bool,
}

#[pymethods]
impl Committer {
    #[new]
    fn new(log: Py<Log>) -> PyResult<Committer> {
        let (groups, to_run) = std::sync::mpsc::channel::<Commit>();
        let (outcomes, ended) = std::sync::mpsc::channel();
        let woken = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(std::io::Error::from)?;
        let woken = Arc::new(woken);
        let wake = Arc::clone(&woken);
        let thread = std::thread::Builder::new().name("committer".into()).spawn(move || {
            for commit in to_run {
                let outcome = commit.run();
                if outcomes.send((commit, outcome)).is_err() {
                    break;
                }
                // It fails only where the count is full, and then the loop has been woken already.
                rustix::io::write(&wake, &1_u64.to_ne_bytes()).ok();
            }
        })?;
        let thread = Some(thread);
        Ok(Committer { log, groups: Some(groups), ended: Mutex::new(ended), woken, thread, in_flight: false })
    }

    fn collect(&mut self, py: Python<'_>) -> PyResult<()> {
        // It fails only where nobody has woken the loop.
        rustix::io::read(&self.woken, &mut [0_u8; 8]).ok();
        while let Some((commit, ended)) = self.next_ended() {
            self.in_flight = false;
            let mut log = self.log.borrow_mut(py);
            log.inner.finish_commit(commit, ended).map_err(to_python)?;
        }
        self.wake(py)
    }

    fn wake(&mut self, py: Python<'_>) -> PyResult<()> {
        if self.in_flight {
            return Ok(());
        }
        let Some(groups) = &self.groups else { return Ok(()) };
        let commit = self.log.borrow_mut(py).inner.begin_commit().map_err(to_python)?;
        if let Some(commit) = commit {
            groups.send(commit).map_err(|_| PyRuntimeError::new_err("the committer has ended"))?;
            self.in_flight = true;
        }
        Ok(())
    }

    fn stop(&mut self, py: Python<'_>) -> PyResult<()> {
        self.groups = None;
        if let Some(thread) = self.thread.take() {
            py.detach(|| thread.join()).map_err(|_| PyRuntimeError::new_err("the committer failed"))?;
        }
        self.collect(py)?;
        let mut log = self.log.borrow_mut(py);
        let inner = &mut log.inner;
        py.detach(|| while_any(|| inner.commit())).map_err(to_python)
    }
}

impl Committer {
    /// Readable when a commit has ended.
    pub fn woken(&self) -> &OwnedFd {
        &self.woken
    }

    fn next_ended(&self) -> Option<(Commit, Ended)> {
        self.ended.lock().ok().and_then(|ended| ended.try_recv().ok())
    }
}

fn while_any<E>(mut step: impl FnMut() -> Result<bool, E>) -> Result<(), E> {
    while step()? {}
    Ok(())
}

/// Adds the class to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Committer>()
}
