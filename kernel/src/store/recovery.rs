//! Opening a log: what a crash left is made whole again, what is damaged is set aside and named
//! (docs/adr/0004-torn-tail-or-damage.md).
//!
//! Invariants:
//! 1. Everything that was durable is there again, with the same offsets and bytes, unless the disk damaged it.
//! 2. What is not whole and no marker (nor checkpoint) vouches for is a torn tail: it is cut off and counted.
//! 3. What is not whole and was vouched for is damage: reported with the offsets that it held, and passed over.
//! 4. Sealed segments that a checkpoint covers are not read.

use super::append::names_of;
use super::archive::{Archive, Indexed, Segment};
use super::checkpoint::Recovered;
use super::commit::{Ends, Work};
use super::dictionary::Dictionary;
use super::filters::FilterMemory;
use super::footer;
use super::header::{self, Header, SegmentKind, SEGMENT_HEADER_BYTES};
use super::identity::{self, Identity};
use super::in_force::InForce;
use super::index::SegmentIndex;
use super::log::{Head, Log, Options, Totals};
use super::parties::Parties;
use super::record::{Kind, Record};
use super::replay::{self, end_before, Pages, Place};
use super::retained::{Retained, RetainedMessages};
use super::scan::ScanMemory;
use crate::disk::{Disk, DiskFile};
use crate::error::Result;
use crate::ids::{LogPosition, Offset, Timestamp, TopicId};
use crate::limits::DAMAGE_REPORTS_MAXIMUM;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// A place that the disk has damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: String,
    /// The first byte.
    pub first_position: u64,
    /// The byte after the last one.
    pub end_position: u64,
    /// What is wrong.
    pub reason: String,
    /// The first offset that it may have held.
    pub first_offset: Offset,
    /// The offset after the last one that it may have held.
    pub end_offset: Offset,
}

/// What was found when the log was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Bytes of a torn tail that were cut off.
    pub trimmed_bytes: u64,
    /// What the disk has damaged; the first of them.
    pub damaged: Vec<Damage>,
    /// True if derived state came from a checkpoint.
    pub from_checkpoint: bool,
    /// True if there was no log before.
    pub created: bool,
}

/// A replay on its way.
struct Replay {
    /// What the checkpoint has.
    known: Recovered,
    /// By topic, because its name may come later: the retained message, or `None` where it was deleted.
    retained: HashMap<u32, Option<Retained>>,
}

impl Recovery {
    fn report(&mut self, damage: Damage) {
        if self.damaged.len() < DAMAGE_REPORTS_MAXIMUM {
            self.damaged.push(damage);
        }
    }
}

impl Log {
    /// Opens or creates the log on `disk`. Nobody else may write to it; the caller holds the lock.
    pub fn open(disk: Arc<dyn Disk>, options: Options, now: Timestamp) -> Result<(Log, Recovery)> {
        options.check()?;
        let known = identity::read(disk.as_ref())?;
        let identity = known.unwrap_or_else(|| Identity::from_seed(options.seed));
        let mut recovery = Recovery { created: known.is_none(), ..Recovery::default() };
        for name in disk.list()?.iter().filter(|name| name.ends_with(".partial")) {
            disk.remove(name)?;
        }
        identity::write(disk.as_ref(), &identity)?;
        let mut log = Log::empty(disk, options, identity);
        log.load_carries(&mut recovery)?;
        log.load_segments(&mut recovery)?;
        let names = log.disk.list()?;
        let own = log.archive.segments.iter().filter(|segment| segment.header.kind == SegmentKind::Log);
        let first = own.map(|segment| segment.header.base_position).min();
        let checkpoint = log.load_checkpoint(&names, |position| first.is_some_and(|first| first <= position))?;
        recovery.from_checkpoint = checkpoint.is_some();
        let end = checkpoint.as_ref().map_or(LogPosition(0), |known| known.end);
        log.replay(checkpoint, &mut recovery)?;
        log.make_durable(end)?;
        log.ready(now, end, &mut recovery)?;
        log.opened_at = log.end_offset();
        Ok((log, recovery))
    }

    fn empty(disk: Arc<dyn Disk>, options: Options, identity: Identity) -> Log {
        Log {
            options,
            epoch: identity.epoch,
            archive: Archive::new(Arc::clone(&disk), identity.salt(), options.cache_bytes),
            disk,
            dictionary: Dictionary::new(options.seed),
            filters: FilterMemory::new(options.seed),
            retained: RetainedMessages::default(),
            parties: Parties::default(),
            in_force: InForce::default(),
            memory: ScanMemory::default(),
            head: Head { control: 1, ..Head::default() },
            opened_at: Offset(0),
            durable: Ends::default(),
            written: Ends::default(),
            work: Vec::new(),
            group_started: false,
            in_flight: false,
            poisoned: false,
            next_marker: Record::plain(Kind::Marker, &[]),
            sync_directory: false,
            next_number: 1,
            prepared: None,
            space_is_low: false,
            space_checked_at: 0,
            synced: LogPosition(0),
            sync_until: LogPosition(0),
            walk: None,
            checkpoint_number: 0,
            checkpoint_begun: LogPosition(0),
            checkpointed: LogPosition(0),
            run: None,
            renewed: None,
            thinned: 0,
            totals: Totals::default(),
        }
    }

    /// All segment files of a kind, by number.
    fn files(&mut self, wanted: SegmentKind) -> Result<Vec<(u32, String)>> {
        let mut found = Vec::new();
        for name in self.disk.list()? {
            if let Some((kind, number)) = header::parse_segment_name(&name) {
                self.next_number = self.next_number.max(number.saturating_add(1));
                if kind == wanted {
                    found.push((number, name));
                }
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Carry segments, newest first. A carry segment has its name only when it is whole and synced; then it replaces
    /// all files that lie in its range, and a crash may have left some of those.
    fn load_carries(&mut self, recovery: &mut Recovery) -> Result<()> {
        let mut carries: Vec<Segment> = Vec::new();
        for (number, name) in self.files(SegmentKind::Carry)?.into_iter().rev() {
            let file = self.disk.open(&name, true)?;
            let Some(header) = header::decode(&identity::read_all(self.disk.as_ref(), &name, 96)?, &name)? else {
                let size = u32::try_from(file.size()?).unwrap_or(u32::MAX);
                recovery.report(damage(&name, 0, size, "the header is damaged", Offset(0), Offset(0)));
                self.disk.rename(&name, &format!("{name}.damaged"))?;
                continue;
            };
            if carries.iter().any(|newer| newer.header.covers(header.base_position)) {
                self.disk.remove(&name)?;
                continue;
            }
            for (_, old) in self.files(SegmentKind::Log)?.into_iter().filter(|(old, _)| *old < number) {
                let replaced = header::decode(&identity::read_all(self.disk.as_ref(), &old, 96)?, &old)?;
                if replaced.is_some_and(|replaced| header.covers(replaced.base_position)) {
                    self.disk.remove(&old)?;
                }
            }
            let (index, end) = match footer::read_trailer(file.as_ref(), &name)? {
                Some(trailer) => (Indexed::Sealed(trailer), trailer.records_end),
                None => self.reindexed_carry(&header, &name, file.as_ref(), recovery)?,
            };
            carries.push(Segment::new(header, name, file, index, end));
        }
        carries.sort_by_key(|carry| carry.header.base_position);
        self.head.offset = carries.last().map_or(0, |carry| carry.header.end_offset.0);
        self.archive.segments = carries;
        Ok(())
    }

    /// The index of a carry segment whose footer is damaged, from its records.
    fn reindexed_carry(
        &self,
        header: &Header,
        name: &str,
        file: &dyn DiskFile,
        recovery: &mut Recovery,
    ) -> Result<(Indexed, u32)> {
        let pages = Pages::read(file, None, self.archive.salt)?;
        let (index, position) = replay::index_of(&pages, header, self.options.seed);
        recovery.report(damage(
            name,
            position,
            pages.limit,
            "the footer is damaged",
            index.summary.end_offset,
            header.end_offset,
        ));
        Ok((Indexed::Closed(Arc::new(index)), position))
    }

    /// The log's own segments, as their headers and footers describe them.
    fn load_segments(&mut self, recovery: &mut Recovery) -> Result<()> {
        let mut files: VecDeque<(u32, String)> = self.files(SegmentKind::Log)?.into();
        let mut previous = (Offset(self.head.offset), self.head.control);
        while let Some((number, name)) = files.pop_front() {
            let file = self.disk.open(&name, true)?;
            let trailer = footer::read_trailer(file.as_ref(), &name)?;
            let header = match header::decode(&identity::read_all(self.disk.as_ref(), &name, 96)?, &name)? {
                Some(header) => header,
                None => {
                    let limit = trailer.map(|trailer| trailer.records_end);
                    let pages = Pages::read(file.as_ref(), limit, self.archive.salt)?;
                    if !self.is_header_vouched(&pages, &files, previous.0)? {
                        files.push_front((number, name));
                        return self.remove_torn(files, recovery);
                    }
                    let Some(header) = self.rebuilt_header(number, &pages, previous.1) else {
                        let reason = "neither header nor footer can be read";
                        recovery.report(damage(&name, 0, pages.limit, reason, previous.0, previous.0));
                        self.disk.rename(&name, &format!("{name}.damaged"))?;
                        continue;
                    };
                    let (base, end) = (header.base_offset, SEGMENT_HEADER_BYTES);
                    recovery.report(damage(&name, 0, end, "the header is damaged", base, base));
                    header
                }
            };
            let (index, end) = match trailer {
                Some(trailer) => (Indexed::Sealed(trailer), trailer.records_end),
                None => {
                    let index = SegmentIndex::new(header.base_offset, header.base_control, self.options.seed);
                    (Indexed::Open(Box::new(index)), SEGMENT_HEADER_BYTES)
                }
            };
            let segment = Segment::new(header, name, file, index, end);
            let summary = segment.summary();
            previous = (summary.end_offset, summary.end_control);
            self.archive.segments.push(segment);
        }
        Ok(())
    }

    /// True if a missing header was there once: a marker vouches for records behind those before it.
    fn is_header_vouched(&self, pages: &Pages, later: &VecDeque<(u32, String)>, offset: Offset) -> Result<bool> {
        let before =
            self.archive.segments.last().map_or(Ok(LogPosition(0)), |last| last.whole_until(self.archive.salt))?;
        let is_vouched = |pages: &Pages| pages.vouched(SEGMENT_HEADER_BYTES, offset.0).is_some_and(|end| end > before);
        if is_vouched(pages) {
            return Ok(true);
        }
        for (_, name) in later {
            if is_vouched(&Pages::read(self.disk.open(name, false)?.as_ref(), None, self.archive.salt)?) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Files of the last group, which was torn. The newest goes first: what a crash leaves of them is torn again.
    fn remove_torn(&mut self, files: VecDeque<(u32, String)>, recovery: &mut Recovery) -> Result<()> {
        for (_, name) in files.into_iter().rev() {
            let pages = Pages::read(self.disk.open(&name, false)?.as_ref(), None, self.archive.salt)?;
            recovery.trimmed_bytes = recovery.trimmed_bytes.saturating_add(u64::from(pages.used_end()));
            self.disk.remove(&name)?;
        }
        Ok(())
    }

    fn rebuilt_header(&self, number: u32, pages: &Pages, base_control: u64) -> Option<Header> {
        let (base_position, first_offset) = pages.base()?;
        Some(Header {
            epoch: self.epoch,
            kind: SegmentKind::Log,
            number,
            base_offset: Offset(first_offset),
            base_position,
            base_control,
            created_at: Timestamp(0),
            end_offset: Offset(0),
            end_position: LogPosition(0),
        })
    }

    /// Applies what the checkpoint does not have, and finds out where the log ends.
    fn replay(&mut self, checkpoint: Option<Recovered>, recovery: &mut Recovery) -> Result<()> {
        let from_checkpoint = checkpoint.is_some();
        let mut replay = Replay { known: checkpoint.unwrap_or_default(), retained: HashMap::new() };
        if !from_checkpoint {
            self.learn_names()?;
        }
        let mut place = 0;
        while let Some(segment) = self.archive.segments.get(place) {
            let next = self.archive.segments.get(place.saturating_add(1)).map(|next| next.header);
            let sealed = matches!(segment.index, Indexed::Sealed(_));
            let behind = next.is_some_and(|next| next.base_position <= replay.known.from)
                || segment.header.kind == SegmentKind::Carry;
            let covered = sealed && behind && from_checkpoint;
            if !covered && !self.replay_segment(place, &mut replay, next, recovery)? {
                break;
            }
            place = place.saturating_add(1);
        }
        for (topic, change) in replay.retained {
            if let Some(name) = self.dictionary.shared_name(TopicId(topic)) {
                self.retained.change(name, change);
            }
        }
        Ok(())
    }

    /// A topic's record may lie behind its oldest messages, because retention writes it anew; so without a checkpoint
    /// names come from the footers first. A damaged directory is found again, and reported, by whoever verifies.
    fn learn_names(&mut self) -> Result<()> {
        for place in 0..self.archive.segments.len() {
            if let Ok(Some(directory)) = self.archive.directory(place) {
                for entry in directory.entries().filter(|entry| entry.topic.0 > 0 && !directory.name(entry).is_empty())
                {
                    self.dictionary.declare(entry.topic, directory.name(&entry), 0, LogPosition(0));
                }
            }
        }
        Ok(())
    }

    /// False if the log was found to end here.
    fn replay_segment(
        &mut self,
        place: usize,
        replay: &mut Replay,
        next: Option<Header>,
        recovery: &mut Recovery,
    ) -> Result<bool> {
        let Some(segment) = self.archive.segments.get(place) else { return Ok(false) };
        let header = segment.header;
        let sealed_end = matches!(segment.index, Indexed::Sealed(_)).then_some(segment.end);
        let known_end = sealed_end.or_else(|| next.and_then(|next| end_before(&header, &next)));
        let pages = Pages::read(segment.file.as_ref(), known_end, self.archive.salt)?;
        let mut index = SegmentIndex::new(header.base_offset, header.base_control, self.options.seed);
        let mut next_offset = header.base_offset.0;
        let mut position = SEGMENT_HEADER_BYTES;
        let torn = loop {
            match pages.at(position, next_offset) {
                Place::Whole(record, end) => {
                    next_offset = record.offset.0.saturating_add(u64::from(record.count));
                    index.add(&record, position, record.size_bytes());
                    self.replay_record(&record, &header, position, replay);
                    position = end;
                }
                Place::End => {
                    // The file of a torn group's later segment may have its name where one before it has none.
                    let here = self.log_position(place, position);
                    let gap = header.kind == SegmentKind::Log && next.is_some_and(|next| here < next.base_position);
                    break gap && !self.is_vouched(place, &pages, position, here, replay.known.end, next_offset)?;
                }
                Place::Hole(whole) => {
                    let here = self.log_position(place, position);
                    if !self.is_vouched(place, &pages, position, here, replay.known.end, next_offset)? {
                        break true;
                    }
                    let end = whole.unwrap_or(pages.limit);
                    let end_offset = whole.and_then(|whole| pages.record(whole)).map(|record| record.offset);
                    let end_offset = end_offset.or(next.map(|next| next.base_offset)).unwrap_or(Offset(next_offset));
                    recovery.report(damage(
                        &self.name(place),
                        position,
                        end,
                        "records are damaged",
                        Offset(next_offset),
                        end_offset,
                    ));
                    position = end;
                }
            }
        };
        if header.kind == SegmentKind::Log {
            self.conclude(place, position, index, torn, &pages, recovery)?;
        }
        Ok(!torn)
    }

    /// True if what lies at `here` was durable once: a marker behind it says so, in this segment or a later one, or the
    /// checkpoint stands on it.
    fn is_vouched(
        &self,
        place: usize,
        pages: &Pages,
        position: u32,
        here: LogPosition,
        end: LogPosition,
        next_offset: u64,
    ) -> Result<bool> {
        // A carry segment has its name only since it was synced.
        let carried = self.archive.segments.get(place).is_some_and(|segment| segment.header.kind == SegmentKind::Carry);
        if carried || here < end || pages.vouched(position, next_offset).is_some_and(|vouched| vouched > here) {
            return Ok(true);
        }
        for later in self.archive.segments.get(place.saturating_add(1)..).unwrap_or_default() {
            let limit = matches!(later.index, Indexed::Sealed(_)).then_some(later.end);
            let pages = Pages::read(later.file.as_ref(), limit, self.archive.salt)?;
            let base = later.header.base_offset.0;
            if pages.vouched(SEGMENT_HEADER_BYTES, base).is_some_and(|vouched| vouched > here) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The segment's records end at `position`: its index is taken over, and what lies behind is cut off if it is torn.
    fn conclude(
        &mut self,
        place: usize,
        position: u32,
        index: SegmentIndex,
        torn: bool,
        pages: &Pages,
        recovery: &mut Recovery,
    ) -> Result<()> {
        let last = torn || place.saturating_add(1) == self.archive.segments.len();
        if torn {
            recovery.trimmed_bytes =
                recovery.trimmed_bytes.saturating_add(u64::from(pages.used_end().saturating_sub(position)));
            // The newest goes first: a removal that is cut short leaves no hole.
            for later in self.archive.segments.split_off(place.saturating_add(1)).into_iter().rev() {
                recovery.trimmed_bytes = recovery.trimmed_bytes.saturating_add(later.file.size()?);
                self.disk.remove(&later.name)?;
            }
        }
        let Some(segment) = self.archive.segments.get_mut(place) else { return Ok(()) };
        segment.end = position;
        let had_footer = matches!(segment.index, Indexed::Sealed(_));
        if !torn && segment.footer_is_whole()? {
            return Ok(());
        }
        if last {
            if torn || had_footer {
                // What is left of a torn group must not be found behind the records that come next.
                segment.file.truncate(u64::from(position))?;
                segment.file.truncate(u64::from(self.options.segment_bytes.max(position)))?;
            }
            self.archive.reindex(place, Indexed::Open(Box::new(index)));
            return Ok(());
        }
        // Its footer was lost or is damaged: it gets a new one.
        let index = Arc::new(index);
        let names = names_of(&index, |id| self.dictionary.get(id));
        let (number, end_position) = (segment.header.number, segment.log_position(position));
        let (file, sealed) = (Arc::clone(&segment.file), Arc::clone(&index));
        self.work.push(Work::Seal { number, file, records_end: position, end_position, index: sealed, names });
        self.archive.reindex(place, Indexed::Closed(index));
        Ok(())
    }

    fn replay_record(&mut self, record: &Record<'_>, header: &Header, position: u32, replay: &mut Replay) {
        let within = u64::from(position.saturating_sub(SEGMENT_HEADER_BYTES));
        let here = LogPosition(header.base_position.0.saturating_add(within));
        let own = header.kind == SegmentKind::Log;
        if own && here < replay.known.from {
            return;
        }
        self.head.offset = self.head.offset.max(record.offset.0.saturating_add(u64::from(record.count)));
        self.head.time = self.head.time.max(record.appended_at.0);
        match record.kind {
            Kind::Message => {
                self.dictionary.note_entry(record.topic, record.entry);
                if own && !replay.known.has(record.publisher, here) {
                    self.parties.note_message(record);
                }
                if record.retain {
                    replay.retained.insert(record.topic.0, Retained::of(record));
                }
            }
            Kind::Control => self.replay_control(record, here, &replay.known),
            Kind::Topic => self.dictionary.declare(record.topic, record.payload, record.entry, here),
            Kind::Marker => {}
        }
    }

    fn replay_control(&mut self, record: &Record<'_>, here: LogPosition, known: &Recovered) {
        self.head.control = self.head.control.max(record.entry.saturating_add(1));
        let key = record.key.unwrap_or_default();
        if record.publisher.0 > 0 {
            self.in_force.apply(record.publisher.0, key, record.payload, record.entry);
        } else if let Ok(party) = super::append::party_of(key) {
            // A state that cannot be decoded was refused when it was to be appended.
            drop(self.parties.apply(party, record.entry, record.payload, |party| known.has(party, here)));
        }
    }

    /// The log is whole and synced: the next record gets its place.
    fn ready(&mut self, now: Timestamp, stood_on: LogPosition, recovery: &mut Recovery) -> Result<()> {
        self.advance(now);
        if let Some(last) = self.archive.segments.last().filter(|last| last.header.kind == SegmentKind::Log) {
            self.head.offset = self.head.offset.max(last.base_offset().0);
            self.head.control = self.head.control.max(last.header.base_control);
            self.head.position = last.log_position(last.end).0;
        } else if let Some(carry) = self.archive.segments.last() {
            self.head.position = self.head.position.max(carry.header.end_position.0);
        }
        self.disk.sync_directory()?;
        let open = self.archive.segments.last().is_some_and(|last| matches!(last.index, Indexed::Open(_)));
        if open {
            let last = self.archive.segments.last().map(|last| (last.header.number, last.end));
            let (number, end) = last.unwrap_or_default();
            self.archive.tail.begin(number, end);
        } else {
            self.begin_log()?;
        }
        self.durable = self.ends();
        self.written = self.durable;
        self.synced = self.durable.position;
        self.next_marker = Record::marker(self.end_position(), self.end_offset(), Timestamp(self.head.time));
        self.space_is_low = self.disk.free_bytes()? < self.options.reserve_bytes;
        let is_cut = self.head.position < stood_on.0;
        if is_cut {
            self.report_cut(stood_on, recovery);
        }
        self.declare_learned(Timestamp(self.head.time))?;
        self.commit()?;
        if is_cut {
            // What the checkpoint stood on is gone: records that come now would lie before it, and the next recovery
            // would pass over them. It gets a successor before anything is acknowledged.
            self.checkpointed = LogPosition(0);
            self.checkpoint(now)?;
        }
        self.announce();
        Ok(())
    }

    /// A file that was cut exactly between two records is whole in itself; only the checkpoint knows how far it went.
    fn report_cut(&self, stood_on: LogPosition, recovery: &mut Recovery) {
        let Some(last) = self.archive.segments.last() else { return };
        let is_known = |known: &Damage| known.file == last.name && known.end_position == u64::from(last.end);
        if !recovery.damaged.iter().any(is_known) {
            let missing = stood_on.0.saturating_sub(self.head.position);
            let end = last.end.saturating_add(u32::try_from(missing).unwrap_or(u32::MAX));
            let (first_offset, end_offset) = (last.summary().end_offset, Offset(self.head.offset));
            let reason = "it ends before the checkpoint that stands on it";
            recovery.report(damage(&last.name, last.end, end, reason, first_offset, end_offset));
        }
    }

    fn log_position(&self, place: usize, position: u32) -> LogPosition {
        self.archive.segments.get(place).map_or(LogPosition(0), |segment| segment.log_position(position))
    }

    fn name(&self, place: usize) -> String {
        self.archive.segments.get(place).map_or_else(String::new, |segment| segment.name.clone())
    }
}

pub(super) fn damage(
    file: &str,
    first: u32,
    end: u32,
    reason: &str,
    first_offset: Offset,
    end_offset: Offset,
) -> Damage {
    Damage {
        file: file.to_owned(),
        first_position: u64::from(first),
        end_position: u64::from(end),
        reason: reason.to_owned(),
        first_offset,
        end_offset,
    }
}
