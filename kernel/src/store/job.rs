//! Work beside the loop: what waits for the disk or copies bytes, and needs nothing of the log that changes.
//!
//! Owns: the steps of one piece of work, and what it failed with. Never: touches the log, which hands a job out and
//! takes it over again in one short step (docs/adr/0015-in-pieces-or-beside.md). Any thread may run the steps.

use super::ahead::AheadWrite;
use super::carry::{CarryWrite, Survey};
use super::checkpoint::CheckpointWrite;
use super::nameless::Nameless;
use super::release::Release;
use super::seal::SealWrite;
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
    Release(Release),
    Seal(Box<SealWrite>),
    /// Forgets the index of a sealed segment: those of many topics take long.
    Forgetting(Option<Box<SealWrite>>),
}

/// Files of segments that have gone, oldest first, and what was found out to copy what was needed of them.
pub(super) struct Removal {
    disk: Arc<dyn Disk>,
    segments: VecDeque<Segment>,
    copied: Option<Box<CarryWrite>>,
    nameless: Nameless,
}

impl Job {
    pub(super) fn new(task: Task) -> Job {
        Job { task, failed: None }
    }

    pub(super) fn checkpoint(write: CheckpointWrite) -> Job {
        Job::new(Task::Checkpoint(write))
    }

    pub(super) fn removal(disk: Arc<dyn Disk>, segments: VecDeque<Segment>, copied: Box<CarryWrite>) -> Job {
        Job::new(Task::Removal(Removal { disk, segments, copied: Some(copied), nameless: Nameless::default() }))
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
            Task::Release(release) => release.step(),
            Task::Seal(write) => write.step(),
            Task::Forgetting(write) => {
                *write = None;
                Ok(false)
            }
        };
        match (result, &self.task) {
            (Ok(more), _) => return more,
            (Err(error), task) => {
                match task {
                    Task::Checkpoint(write) => write.undo(),
                    Task::Carry(write) | Task::Naming(write) => write.undo(),
                    Task::Ahead(write) => write.undo(),
                    Task::Survey(_) | Task::Removal(_) | Task::Release(_) | Task::Seal(_) | Task::Forgetting(_) => {}
                }
                self.failed = Some(error);
            }
        }
        false
    }
}

impl Removal {
    /// Takes the name of one file, or gives back some of what one took on the disk. Here the topics of a million
    /// messages are forgotten, which takes time too.
    fn step(&mut self) -> Result<bool> {
        self.copied = None;
        if let Some(segment) = self.segments.pop_front() {
            self.nameless.remove(self.disk.as_ref(), &segment.name, segment.file)?;
            return Ok(true);
        }
        self.nameless.step(self.disk.as_ref())
    }
}
