//! The durable log: its parts joined, and what can be asked of it.
//!
//! Owns: one data directory, as its only writer. Never: policy, a thread, a clock. Each part has its own state and its
//! own file, and is handed here what it needs of the others: `records` is what the log holds, `scan` what is read of it
//! for queues, `snapshot` its checkpoints, and `retention` what goes away.

use super::commit::{Commit, Ended};
use super::controls::Controls;
use super::counting::{Looking, Question};
use super::encoding::{index64, wide};
use super::filters::FilterMemory;
use super::identity::Identity;
use super::job::{Finished, Job, Task};
use super::options::Options;
use super::records::Records;
use super::recovery::{self, Recovery};
use super::release::Released;
use super::retention::{Loss, Retention, RetentionCursor};
use super::scan::Scanning;
use super::seal::SealWrite;
use super::segment::Indexed;
use super::snapshot::Checkpoints;
use crate::disk::Disk;
use crate::error::Result;
use crate::flow::entry::Entry;
use crate::flow::moment::{RetainedRows, States};
use crate::flow::state::Changes;
use crate::flow::{Arrivals, Message, Messages, Scan};
use crate::ids::{Location, LogPosition, Offset, Party, Timestamp, TopicId};
use crate::limits::UNSEALED_SEGMENTS_MAXIMUM;
use std::sync::Arc;

/// A segment of which such a part is full has its successor's file written.
const AHEAD_SHARE: u32 = 8;

/// The log.
pub struct Log {
    records: Records,
    checkpoints: Checkpoints,
    retention: Retention,
    filters: FilterMemory,
    scanning: Scanning,
    released: Released,
}

impl Log {
    /// Opens or creates the log on `disk`. Nobody else may write to it; the caller holds the lock.
    pub fn open(disk: Arc<dyn Disk>, options: Options, now: Timestamp) -> Result<(Log, Recovery)> {
        let (records, checkpoints, recovery) = recovery::open(disk, &options, now)?;
        let scanning = Scanning::new(records.end_offset());
        let filters = FilterMemory::new(options.seed);
        // What is there already is in memory for whoever has read it.
        let released = Released { until: records.archive.segments.last().map_or(0, |segment| segment.header.number) };
        Ok((Log { records, checkpoints, retention: Retention::default(), filters, scanning, released }, recovery))
    }

    /// Commits what is left, with a checkpoint, so that the next start reads little.
    pub fn close(&mut self) -> Result<()> {
        self.checkpoint(Timestamp(0))
    }

    /// The offset of the next message.
    pub fn end_offset(&self) -> Offset {
        self.records.end_offset()
    }

    /// The oldest offset from which on the log is whole; what was carried lies below.
    pub fn begin_offset(&self) -> Offset {
        self.records.begin_offset()
    }

    /// The offset below which everything is durable.
    pub fn durable_offset(&self) -> Offset {
        self.records.durable_offset()
    }

    /// The log position after everything appended.
    pub fn end_position(&self) -> LogPosition {
        self.records.end_position()
    }

    /// The log position below which everything is durable.
    pub fn durable_position(&self) -> LogPosition {
        self.records.durable_position()
    }

    /// Bytes that are appended and not yet on the disk.
    pub fn uncommitted_bytes(&self) -> u64 {
        self.records.uncommitted_bytes()
    }

    /// The log's identity.
    pub fn epoch(&self) -> String {
        Identity { epoch: self.records.appending.epoch() }.epoch_text()
    }

    /// The number of the next control record.
    pub fn next_control_number(&self) -> u64 {
        self.records.appending.head.control
    }

    /// Records looked at and topics looked up or compared since it was opened: what a piece of work is measured by.
    pub fn effort(&self) -> u64 {
        self.records.archive.effort
    }

    /// Named numbers for people.
    pub fn statistics(&self) -> Vec<(&'static str, u64)> {
        let Records { archive, derived, appending, commits, space, .. } = &self.records;
        vec![
            ("segments", wide(archive.segments.len())),
            ("bytes", archive.segments.iter().map(|segment| segment.bytes()).sum()),
            ("topics", wide(derived.dictionary.len())),
            ("retained", wide(derived.retained.len())),
            ("parties", wide(derived.parties.len())),
            ("controls_in_force", wide(derived.in_force.len())),
            ("commits", commits.count),
            ("committed_bytes", commits.bytes),
            ("records_appended", appending.records_appended),
            ("cache_hits", archive.blocks.hits),
            ("cache_misses", archive.blocks.misses),
            ("damaged_reads", archive.damaged_reads),
            ("space_is_low", u64::from(space.is_low())),
        ]
    }

    /// Bytes of what is remembered to save work, by what it is: each part has its maximum.
    pub fn remembered(&self) -> Vec<(&'static str, u64)> {
        let filters = [("filters", self.filters.bytes())];
        let all = self.records.archive.remembered().into_iter().chain(filters).chain(self.scanning.remembered());
        all.map(|(name, bytes)| (name, super::encoding::wide(bytes))).collect()
    }
}

/// What is appended and committed.
impl Log {
    /// Stores what has to be stored of this turn: QoS 1 and 2, retained messages, and QoS 0 on topics that match a
    /// filter of `store_all`. Where there is no room the message is refused.
    pub fn append<Filter: AsRef<[u8]>>(
        &mut self,
        arrivals: &mut Arrivals,
        store_all: &[Filter],
        now: Timestamp,
    ) -> Result<()> {
        self.records.append(arrivals, store_all, now)
    }

    /// The number of a topic, which it gets if it has none. It is durable once the log is up to where it ends now.
    pub fn declare(&mut self, name: &[u8], now: Timestamp) -> Result<TopicId> {
        self.records.topic_number(name, now)
    }

    /// How many entries a topic has had; `None` if there is no such topic.
    pub fn entries_end(&self, name: &[u8]) -> Option<u64> {
        self.records.entries_end(name)
    }

    /// Appends a control record. In table 0 the key is a party (four bytes, little endian) and the value what
    /// `flow::state` encodes. An empty value removes the key. Returns the log position at which it is durable.
    pub fn append_control(&mut self, table: u32, key: &[u8], value: &[u8], now: Timestamp) -> Result<LogPosition> {
        self.records.append_control(table, key, value, now)
    }

    /// What comes at QoS 0 on the topic is stored for queues that are given entries whole, from now on or no longer.
    pub fn keep_all(&mut self, topic_name: &[u8], keeps_all: bool) {
        self.records.derived.dictionary.keep_all(topic_name, keeps_all);
    }

    /// Freezes what has gathered; `None` if there is nothing or a commit is on its way already.
    pub fn begin_commit(&mut self) -> Result<Option<Commit>> {
        self.records.begin_commit()
    }

    /// Takes over an ended commit. An error means that its group is not durable.
    pub fn finish_commit(&mut self, commit: Commit, ended: Ended) -> Result<()> {
        self.records.finish_commit(commit, ended)
    }

    /// Writes and syncs what has been appended, here and now. True if there was something.
    pub fn commit(&mut self) -> Result<bool> {
        self.records.commit()
    }

    /// What lies between two offsets is given up: the party at rest passes over it. What lies before may have been
    /// carried, and is still to be had.
    pub fn give_up(&mut self, party: Party, first: Offset, end: Offset, now: Timestamp) -> Result<()> {
        let mut value = Vec::new();
        Changes { acknowledged: vec![(first, end)], ..Changes::default() }.encode(&mut value);
        self.append_control(0, &party.0.to_le_bytes(), &value, now).map(|_| ())
    }
}

/// What is read.
impl Log {
    /// Answers the scans, with what is left of SCAN_EFFORT_MAXIMUM since they were asked last: who comes later may not
    /// be looked at, and then has reached what it had. The first one always gets on.
    pub fn scan(&mut self, scans: &mut [Scan]) -> Result<()> {
        self.scanning.scan(&mut self.records, &mut self.filters, scans)
    }

    /// Works on the question with about this effort, and always gets on. Returns the answer once it is there.
    pub fn answer(&mut self, question: &mut Question, effort: u64) -> Result<Option<u64>> {
        Looking::into(&mut self.records, &mut self.filters).answer(question, effort)
    }

    /// The first offset that was appended at `time` or later, or the end of what is durable.
    pub fn offset_at(&mut self, time: Timestamp) -> Result<Offset> {
        let durable = self.durable_offset();
        Ok(self.records.archive.offset_at(time)?.map_or(durable, |offset| offset.min(durable)))
    }

    /// Gets ready for filters with wildcards, with about this effort; true once it is. Without it the first one to come
    /// does that.
    pub fn prepare_filters(&mut self, effort: u64) -> bool {
        let archive = &mut self.records.archive;
        let until = archive.effort.saturating_add(effort);
        self.filters.prepare(&self.records.derived.dictionary, (&mut archive.effort, until))
    }

    /// Durable control records from a number on, table 0 left out; fewer than `limit` only where there are no more. To
    /// ask from a number says that all below have been taken over: copies that retention makes of them are not told.
    pub fn controls(&mut self, from_number: u64, limit: usize, effort: u64) -> Result<Controls> {
        let end = self.records.commits.durable(&self.records.appending.head).control;
        let Records { archive, following, .. } = &mut self.records;
        Controls::read(archive, following, (from_number, end), limit, effort)
    }

    /// The delivery state of a durable party, as last written.
    pub fn delivery_state(&self, party: Party) -> Option<Vec<u8>> {
        self.records.derived.parties.encoded(party)
    }

    /// What delivery states and retained messages are at this moment is to be copied, while they change.
    pub fn begin_instant(&mut self) {
        let end = self.end_offset();
        self.records.derived.parties.begin_instant();
        self.records.derived.retained.begin_instant(end);
    }

    /// Delivery states copied since the last call, with about `effort` more of those behind a party; up to which one
    /// they have been looked at, `None` if all have.
    pub fn states_piece(&mut self, after: Option<Party>, effort: u64) -> (States, Option<Party>) {
        let piece = self.records.derived.parties.instant_piece(after, index64(effort));
        self.note_effort(wide(piece.0.len()));
        piece
    }

    /// Retained messages copied since the last call, with about `effort` more; true if that was all.
    pub fn retained_piece(&mut self, effort: u64) -> (RetainedRows, bool) {
        let piece = self.records.derived.retained.instant_piece(index64(effort));
        self.note_effort(wide(piece.0.len()));
        piece
    }

    /// So much was looked at elsewhere.
    pub fn note_effort(&mut self, effort: u64) {
        self.records.archive.effort = self.records.archive.effort.wrapping_add(effort);
    }

    /// Below which offset durable parties have acknowledged all; `None` of those without a state.
    pub fn marks(&self, parties: &[Party]) -> Vec<Option<Offset>> {
        let known = &self.records.derived.parties;
        parties.iter().map(|party| known.get(*party).map(|known| known.state.mark)).collect()
    }

    /// Offsets of the retained messages that match, from `from` on in their order: `limit` at most, and up to which
    /// offset that is all.
    pub fn retained(&self, filter: &[u8], from: Offset, limit: usize) -> (Vec<Offset>, Offset) {
        self.records.derived.retained.page(filter, from, self.end_offset(), limit)
    }

    /// How many messages of a party the log has from an offset on. Looks at every record behind that.
    pub fn published(&mut self, party: Party, from: Offset) -> Result<u64> {
        self.records.archive.published(party, from)
    }

    /// How many topics have a retained message.
    pub fn retained_count(&self) -> usize {
        self.records.derived.retained.len()
    }

    /// Where the message with an offset is; `None` if it is gone, damaged or not yet durable.
    pub fn locate(&mut self, offset: Offset) -> Result<Option<Location>> {
        if offset >= self.durable_offset() {
            return Ok(None);
        }
        self.records.archive.find_message(offset, None)
    }

    /// When the message with an offset was stored; `None` if it is gone, damaged or not yet durable.
    pub fn stored_at(&mut self, offset: Offset) -> Result<Option<Timestamp>> {
        let Some(location) = self.locate(offset)? else { return Ok(None) };
        Ok(self.records.archive.record_at(location)?.map(|record| record.appended_at))
    }
}

/// Checkpoints, and work beside the loop.
impl Log {
    /// A checkpoint begins: the log is to be replayed from here. One that was on its way is given up.
    pub fn begin_checkpoint(&mut self, now: Timestamp) -> Result<()> {
        self.checkpoints.begin(&mut self.records, now)
    }

    /// Takes down some more of the state, for about `effort`; true when all of it is taken down, or nothing is to be.
    pub fn checkpoint_piece(&mut self, effort: u64) -> bool {
        self.checkpoints.piece(&mut self.records, effort)
    }

    /// The checkpoint that was taken down, once the log is durable up to where it ends: to be written beside the loop
    /// and handed back to `finish`. `None` before that; a commit brings it about.
    pub fn checkpoint_job(&mut self) -> Option<Job> {
        self.checkpoints.write(&self.records).map(Job::checkpoint)
    }

    /// All of it here and now: commits what there is and writes a checkpoint behind it.
    pub fn checkpoint(&mut self, now: Timestamp) -> Result<()> {
        self.checkpoints.take_whole(&mut self.records, now)
    }

    /// Bytes appended since the last checkpoint began.
    pub fn bytes_since_checkpoint(&self) -> u64 {
        self.end_position().0.saturating_sub(self.checkpoints.begun().0)
    }

    /// The log position from which the newest durable checkpoint has the log replayed.
    pub fn checkpointed(&self) -> LogPosition {
        self.checkpoints.checkpointed()
    }

    /// The file of the next segment, to be written in full beside the loop and handed back to `finish`: once the open
    /// segment is an eighth full, where commits sync and there is room for two more. `None` where it is written.
    pub fn ahead_job(&self) -> Option<Job> {
        let files = &self.records.appending.files;
        let end = self.records.archive.segments.last().map_or(0, |segment| segment.end);
        let is_due = end >= files.segment_bytes() / AHEAD_SHARE;
        // What is written ahead must not be what makes the disk full.
        let spare = u64::from(files.segment_bytes()).saturating_mul(2);
        let may = self.records.commits.syncs() && self.records.space.has_spare(spare);
        files.ahead().filter(|_| is_due && may).map(|write| Job::new(Task::Ahead(write)))
    }

    /// The oldest segment written since the log was opened that ends at least so many bytes before its end: what the
    /// system has of it in memory, to be given back beside the loop. `None` if there is none.
    pub fn release_job(&mut self, kept_bytes: u64) -> Option<Job> {
        let release = self.released.next(&self.records.archive.segments, self.end_position(), kept_bytes);
        release.map(|release| Job::new(Task::Release(release)))
    }

    /// Commits leave the footers of segments to whoever asks for them from now on, as long as no more than
    /// `UNSEALED_SEGMENTS_MAXIMUM` wait. Where messages are not synced they do not: there, what is sealed is what is
    /// known to be on the medium.
    pub fn leave_footers(&mut self) {
        if self.records.commits.syncs() {
            self.records.appending.unsealed_maximum = UNSEALED_SEGMENTS_MAXIMUM;
        }
    }

    /// True if the footer of a segment waits and can be written: records behind the segment are durable.
    pub fn awaits_footer(&self) -> bool {
        self.records.appending.unsealed.first(self.records.commits.written()).is_some()
    }

    /// Gets ready to write the footer of the oldest segment that waits for one, with about this effort; true once
    /// `seal_job` has it, or there is none. It waits until records behind the segment are durable.
    pub fn prepare_seal(&mut self, effort: usize) -> bool {
        let Records { appending, derived, commits, .. } = &mut self.records;
        appending.unsealed.prepare(commits.written(), &derived.dictionary, effort)
    }

    /// The footer that `prepare_seal` has got ready, to be written beside the loop and handed back to `finish`. Until
    /// then the segment's index is in memory, and a start reads its records.
    pub fn seal_job(&mut self) -> Option<Job> {
        self.records.appending.unsealed.take().map(|write| Job::new(Task::Seal(Box::new(write))))
    }

    /// Takes over a job whose steps are done; an error where one of them failed, and then all is as it was before.
    pub fn finish(&mut self, job: Job) -> Result<Finished> {
        match (job.task, job.failed) {
            (Task::Checkpoint(write), failed) => self.checkpoints.written(&write, failed).map(|()| Finished::default()),
            (Task::Seal(write), Some(error)) => {
                self.records.appending.unsealed.put_back(*write);
                Err(error)
            }
            (_, Some(error)) => Err(error),
            (Task::Seal(write), None) => Ok(self.sealed(write)),
            (Task::Survey(survey), None) => {
                self.retention.surveyed(survey);
                Ok(Finished::default())
            }
            (Task::Carry(write), None) if write.is_worthless => {
                self.retention.abandon();
                Ok(Finished::default())
            }
            (Task::Carry(write), None) => {
                Ok(Finished { next: Some(Job::new(Task::Naming(write))), ..Finished::default() })
            }
            (Task::Naming(write), None) => Ok(self.retention.carried(&mut self.records.archive, write)),
            (Task::Removal(_) | Task::Release(_) | Task::Forgetting(_), None) => Ok(Finished::default()),
            (Task::Ahead(write), None) => {
                self.records.appending.files.set_aside_written(write);
                Ok(Finished::default())
            }
        }
    }
}

impl Log {
    /// The footer is on the medium: it takes the place of the index in memory.
    fn sealed(&mut self, write: Box<SealWrite>) -> Finished {
        let (number, trailer) = write.outcome();
        if let (Some(place), Some(trailer)) = (self.records.archive.find(number), trailer) {
            self.records.archive.reindex(place, Indexed::Sealed(trailer));
        }
        Finished { next: Some(Job::new(Task::Forgetting(Some(write)))), ..Finished::default() }
    }
}

/// What goes away.
impl Log {
    /// Begins to remove sealed segments past retention, oldest first: those whose last record is older than
    /// `maximum_age_us`, and those without which the log would fit into `maximum_bytes`. False if there are none. A
    /// run that was on its way is given up.
    pub fn begin_retention(&mut self, maximum_age_us: u64, maximum_bytes: u64, now: Timestamp) -> Result<bool> {
        self.retention.begin(&mut self.records, maximum_age_us, maximum_bytes, now)
    }

    /// Begins to write the next carry segments in turn anew as one, which happens if at least half of what they hold is
    /// needed by nobody any more. False if there are none.
    pub fn begin_thinning(&mut self, now: Timestamp) -> Result<bool> {
        self.retention.begin_thinning(&mut self.records, self.checkpoints.checkpointed(), now)
    }

    /// The log is whole from here on, and stays so as long as the present run of retention lasts.
    pub fn whole_from(&self) -> Offset {
        self.begin_offset().max(self.retention.going_until())
    }

    /// All control records from this number on are there, and stay so as long as the present run of retention lasts.
    /// Whoever follows them and has not come so far has missed what was removed.
    pub fn whole_controls_from(&self) -> u64 {
        self.records.begin_control().max(self.retention.going_controls())
    }

    /// Which topics have records in the range: to be found out beside the loop and handed back to `finish`.
    pub fn survey_job(&self) -> Option<Job> {
        self.retention.survey_job(&self.records.archive)
    }

    /// The places of those of some topics that have records in what goes; of all of them before it is surveyed.
    pub fn going(&mut self, topics: &[&str]) -> Vec<usize> {
        self.retention.going(&mut self.records, topics)
    }

    /// The names of all topics that have records in what goes; `None` if they are more than `maximum`, or not known.
    pub fn going_names(&mut self, maximum: usize) -> Option<Vec<Arc<[u8]>>> {
        self.retention.going_names(&mut self.records, maximum)
    }

    /// Writes some more of what the log would lose with the range anew, for about `effort`; true if that was all.
    pub fn renew_piece(&mut self, effort: u64, now: Timestamp) -> Result<bool> {
        self.retention.renew_piece(&mut self.records, effort, now)
    }

    /// True once what was written anew is durable and a checkpoint stands behind the range. Where the disk is nearly
    /// full, room comes first: a checkpoint would take some.
    pub fn retention_may_go_on(&self) -> bool {
        self.retention.may_go_on(&self.records, self.checkpoints.checkpointed())
    }

    /// False if the newest checkpoint does not reach behind the range of the present run.
    pub fn retention_has_checkpoint(&self) -> bool {
        self.retention.has_checkpoint(self.checkpoints.checkpointed())
    }

    /// There are queues; these are to be looked at, groups before the sessions that take from them. After a crash any
    /// queue may read on from before the range, where it must not find a hole.
    pub fn visit(&mut self, cursors: Vec<RetentionCursor>) {
        self.retention.visit(cursors);
    }

    /// Looks at some more of them, for about `effort`. What they lose, and true if none waits any more.
    pub fn visit_piece(&mut self, effort: u64) -> Result<(Vec<Loss>, bool)> {
        self.retention.visit_piece(&mut self.records, &mut self.filters, self.checkpoints.checkpointed(), effort)
    }

    /// Finds some more of what is needed besides what queues need, for about `effort`; true if that is all. To be
    /// called when all queues have been visited: a group may have handed over meanwhile what it was to give then.
    pub fn find_piece(&mut self, effort: u64) -> Result<bool> {
        self.retention.find_piece(&mut self.records, self.checkpoints.checkpointed(), effort)
    }

    /// What was found needed is to be copied beside the loop, and handed back to `finish`. `None` before all of it has
    /// been looked for.
    pub fn carry_job(&mut self, now: Timestamp) -> Option<Job> {
        self.retention.carry_job(&mut self.records.appending, now)
    }

    /// The run is given up; nothing has gone.
    pub fn abandon_retention(&mut self) {
        self.retention.abandon();
    }
}

impl Messages for Log {
    fn message(&mut self, location: Location, offset: Offset) -> Result<Option<Message<'_>>> {
        self.records.message(location, offset)
    }

    fn entry(&mut self, location: Location, offset: Offset) -> Result<Option<Entry<'_>>> {
        self.records.entry(location, offset)
    }
}
