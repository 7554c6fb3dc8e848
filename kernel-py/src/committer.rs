//! The committer: one thread that writes and syncs, and never takes the interpreter lock.
//!
//! The log stays on the loop's thread. A group of appended bytes goes to the thread as a value and comes back with
//! its outcome; a byte on a socket pair wakes the loop.

use crate::error::to_python;
use crate::store::Log;
use holdfast_kernel::store::{Commit, Ended};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::Mutex;
use std::thread::JoinHandle;

/// The thread that commits: while one group is on its way to the disk the next one gathers.
#[pyclass(module = "holdfast._kernel")]
pub struct Committer {
    log: Py<Log>,
    groups: Option<Sender<Commit>>,
    ended: Mutex<Receiver<(Commit, Ended)>>,
    woken: UnixStream,
    thread: Option<JoinHandle<()>>,
    in_flight: bool,
}

#[pymethods]
impl Committer {
    #[new]
    fn new(log: Py<Log>) -> PyResult<Committer> {
        let (groups, to_run) = std::sync::mpsc::channel::<Commit>();
        let (outcomes, ended) = std::sync::mpsc::channel();
        let (woken, mut wake) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        wake.set_nonblocking(true)?;
        let thread = std::thread::Builder::new().name("committer".into()).spawn(move || {
            for commit in to_run {
                let outcome = commit.run();
                if outcomes.send((commit, outcome)).is_err() {
                    break;
                }
                // A full socket means that the loop has been woken already.
                drop(wake.write(&[1]));
            }
        })?;
        let thread = Some(thread);
        Ok(Committer { log, groups: Some(groups), ended: Mutex::new(ended), woken, thread, in_flight: false })
    }

    fn fileno(&self) -> i32 {
        self.woken.as_raw_fd()
    }

    fn collect(&mut self, py: Python<'_>) -> PyResult<()> {
        let mut drained = [0_u8; 64];
        while self.woken.read(&mut drained).is_ok_and(|count| count == drained.len()) {}
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
