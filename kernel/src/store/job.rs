//! Work beside the loop: what waits for the disk or copies bytes, and needs nothing of the log that changes.
//!
//! Owns: the steps of one piece of work, and what it failed with. Never: touches the log, which hands a job out and
//! takes it over again in one short step (docs/adr/0015-in-pieces-or-beside.md). Any thread may run the steps.

use super::ahead::AheadWrite;
use super::carry::{CarryWrite, Survey};
use super::checkpoint::CheckpointWrite;
use super::segment::Segment;
use crate::disk::Disk;
use crate::error::{Error, Result};
use std::collections::VecDeque;
use std::sync::Arc;

/// One piece of work.
pub struct Job {
    pub(super) task: Task,
    pub(super) failed: Option<Error>,
}

/// What a finished job came to.
#[derive(Default)]
pub struct Finished {
    /// Segments that are not part of the log any more.
    pub removed_segments: u64,
    /// Messages that were copied.
    pub carried_records: u64,
    /// What is to be done next, beside the loop too.
    pub next: Option<Job>,
}

pub(super) enum Task {
    Checkpoint(CheckpointWrite),
    Survey(Survey),
    Carry(Box<CarryWrite>),
    Naming(Box<CarryWrite>),
    Removal(Removal),
    Ahead(AheadWrite),
}

/// Files of segments that have gone, oldest first, and what was found out to copy what was needed of them.
pub(super) struct Removal {
    disk: Arc<dyn Disk>,
    segments: VecDeque<Segment>,
    copied: Option<Box<CarryWrite>>,
}

impl Job {
    pub(super) fn new(task: Task) -> Job {
        Job { task, failed: None }
    }

    pub(super) fn checkpoint(write: CheckpointWrite) -> Job {
        Job::new(Task::Checkpoint(write))
    }

    pub(super) fn removal(disk: Arc<dyn Disk>, segments: VecDeque<Segment>, copied: Box<CarryWrite>) -> Job {
        Job::new(Task::Removal(Removal { disk, segments, copied: Some(copied) }))
    }

    /// Does the next step; true while there is another one. What goes wrong is told by `Log::finish`.
    pub fn step(&mut self) -> bool {
        let result = match &mut self.task {
            _ if self.failed.is_some() => return false,
            Task::Checkpoint(write) => write.step(),
            Task::Survey(survey) => survey.step(),
            Task::Carry(write) => write.step(),
            Task::Naming(write) => write.give_name().map(|()| false),
            Task::Removal(removal) => removal.step(),
            Task::Ahead(write) => write.step(),
        };
        match (result, &self.task) {
            (Ok(more), _) => return more,
            (Err(error), task) => {
                match task {
                    Task::Checkpoint(write) => write.undo(),
                    Task::Carry(write) | Task::Naming(write) => write.undo(),
                    Task::Ahead(write) => write.undo(),
                    Task::Survey(_) | Task::Removal(_) => {}
                }
                self.failed = Some(error);
            }
        }
        false
    }
}

impl Removal {
    /// Removes one file. Its last handle is closed here: giving back what it took on the disk takes time, and so does
    /// forgetting the topics of a million messages.
    fn step(&mut self) -> Result<bool> {
        self.copied = None;
        match self.segments.pop_front() {
            Some(segment) => self.disk.remove(&segment.name).map(|()| true),
            None => self.disk.sync_directory().map(|()| false),
        }
    }
}
