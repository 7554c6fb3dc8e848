//! Opening a log: what a crash left is made whole again, what is damaged is set aside and named
//! (docs/adr/0004-torn-tail-or-damage.md).
//!
//! Invariants:
//! 1. Everything that was durable is there again, with the same offsets and bytes, unless the disk damaged it.
//! 2. What is not whole and no marker (nor checkpoint) vouches for is a torn tail: it is cut off and counted.
//! 3. What is not whole and was vouched for is damage: reported with the offsets that it held, and passed over.
//! 4. Sealed segments that a checkpoint covers are not read.

use super::append::Appending;
use super::archive::Archive;
use super::checkpoint::Recovered;
use super::commit::Commits;
use super::controls::Following;
use super::damage::Damage;
use super::derived::Derived;
use super::footer;
use super::header::{self, Header, SegmentKind, SEGMENT_HEADER_BYTES};
use super::identity::{self, Identity};
use super::index::SegmentIndex;
use super::options::Options;
use super::record::{Kind, Record};
use super::records::Records;
use super::replay::{self, end_before, whole_until, Pages, Place};
use super::resync;
use super::retained::Retained;
use super::seal::Seal;
use super::segment::{Indexed, Segment};
use super::snapshot::Checkpoints;
use super::space::Space;
use super::unpacked::Unpacked;
use crate::disk::{Disk, DiskFile};
use crate::error::Result;
use crate::ids::{LogPosition, Offset, Timestamp, TopicId};
use crate::limits::DAMAGE_REPORTS_MAXIMUM;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

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

/// Opens or creates the log on `disk`: its records, its checkpoints, and what was found.
pub(super) fn open(disk: Arc<dyn Disk>, options: &Options, now: Timestamp) -> Result<(Records, Checkpoints, Recovery)> {
    options.check()?;
    let known = identity::read(disk.as_ref())?;
    let identity = known.unwrap_or_else(|| Identity::from_seed(options.seed));
    for name in disk.list()?.iter().filter(|name| name.ends_with(".partial")) {
        disk.remove(name)?;
    }
    identity::write(disk.as_ref(), &identity)?;
    let report = Recovery { created: known.is_none(), ..Recovery::default() };
    let mut opening = Opening {
        archive: Archive::new(Arc::clone(&disk), identity.salt(), options.cache_bytes),
        derived: Derived::new(options.seed),
        appending: Appending::new(Arc::clone(&disk), &identity, options),
        report,
    };
    opening.load_carries()?;
    opening.load_segments()?;
    let own = opening.archive.segments.iter().filter(|segment| segment.header.kind == SegmentKind::Log);
    let first = own.map(|segment| segment.header.base_position).min();
    let is_usable = |position| first.is_some_and(|first| first <= position);
    let (mut checkpoints, recovered) =
        Checkpoints::load(disk.as_ref(), identity.epoch, is_usable, &mut opening.derived)?;
    let mut end = LogPosition(0);
    if let Some(recovered) = &recovered {
        opening.report.from_checkpoint = true;
        opening.appending.head = recovered.head;
        end = recovered.end();
    }
    opening.replay(recovered)?;
    resync::make_durable(&opening.archive, end)?;
    let (records, report) = opening.ready(options, &mut checkpoints, now, end)?;
    Ok((records, checkpoints, report))
}

/// A log that is being opened.
struct Opening {
    archive: Archive,
    derived: Derived,
    appending: Appending,
    report: Recovery,
}

impl Opening {
    /// The disk has damaged this.
    fn note(&mut self, damage: Damage) {
        if self.report.damaged.len() < DAMAGE_REPORTS_MAXIMUM {
            self.report.damaged.push(damage);
        }
    }

    fn note_trimmed(&mut self, bytes: u64) {
        self.report.trimmed_bytes = self.report.trimmed_bytes.saturating_add(bytes);
    }

    /// All segment files of a kind, by number.
    fn files(&mut self, wanted: SegmentKind) -> Result<Vec<(u32, String)>> {
        let mut found = Vec::new();
        for name in self.archive.disk.list()? {
            if let Some((kind, number)) = header::parse_segment_name(&name) {
                self.appending.files.note(number);
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
    fn load_carries(&mut self) -> Result<()> {
        let mut carries: Vec<Segment> = Vec::new();
        for (number, name) in self.files(SegmentKind::Carry)?.into_iter().rev() {
            let file = self.archive.disk.open(&name, true)?;
            let Some(header) = header::decode(&identity::read_all(self.archive.disk.as_ref(), &name, 96)?, &name)?
            else {
                let size = u32::try_from(file.size()?).unwrap_or(u32::MAX);
                self.note(Damage::of(&name, (0, size), "the header is damaged", (Offset(0), Offset(0))));
                self.archive.disk.rename(&name, &format!("{name}.damaged"))?;
                continue;
            };
            if carries.iter().any(|newer| newer.header.covers(header.base_position)) {
                self.archive.disk.remove(&name)?;
                continue;
            }
            for (_, old) in self.files(SegmentKind::Log)?.into_iter().filter(|(old, _)| *old < number) {
                let replaced = header::decode(&identity::read_all(self.archive.disk.as_ref(), &old, 96)?, &old)?;
                if replaced.is_some_and(|replaced| header.covers(replaced.base_position)) {
                    self.archive.disk.remove(&old)?;
                }
            }
            let (index, end) = match footer::read_trailer(file.as_ref(), &name)? {
                Some(trailer) => (Indexed::Sealed(trailer), trailer.records_end),
                None => self.reindexed_carry(&header, &name, file.as_ref())?,
            };
            carries.push(Segment::new(header, name, file, index, end));
        }
        carries.sort_by_key(|carry| carry.header.base_position);
        self.appending.head.offset = carries.last().map_or(0, |carry| carry.header.end_offset.0);
        self.archive.segments = carries;
        Ok(())
    }

    /// The index of a carry segment whose footer is damaged, from its records.
    fn reindexed_carry(&mut self, header: &Header, name: &str, file: &dyn DiskFile) -> Result<(Indexed, u32)> {
        let pages = Pages::read(file, None, self.archive.salt)?;
        let (index, position) = replay::index_of(&pages, header, self.appending.seed());
        self.note(Damage::of(
            name,
            (position, pages.limit),
            "the footer is damaged",
            (index.summary.end_offset, header.end_offset),
        ));
        Ok((Indexed::Closed(Arc::new(index)), position))
    }

    /// The log's own segments, as their headers and footers describe them.
    fn load_segments(&mut self) -> Result<()> {
        let mut files: VecDeque<(u32, String)> = self.files(SegmentKind::Log)?.into();
        let mut previous = (Offset(self.appending.head.offset), self.appending.head.control);
        while let Some((number, name)) = files.pop_front() {
            let file = self.archive.disk.open(&name, true)?;
            let trailer = footer::read_trailer(file.as_ref(), &name)?;
            let header = match header::decode(&identity::read_all(self.archive.disk.as_ref(), &name, 96)?, &name)? {
                Some(header) => header,
                None => {
                    let limit = trailer.map(|trailer| trailer.records_end);
                    let pages = Pages::read(file.as_ref(), limit, self.archive.salt)?;
                    if !self.is_header_vouched(&pages, &files, previous.0)? {
                        files.push_front((number, name));
                        return self.remove_torn(files);
                    }
                    let Some(header) = self.rebuilt_header(number, &pages, previous.1) else {
                        let reason = "neither header nor footer can be read";
                        self.note(Damage::of(&name, (0, pages.limit), reason, (previous.0, previous.0)));
                        self.archive.disk.rename(&name, &format!("{name}.damaged"))?;
                        continue;
                    };
                    let (base, end) = (header.base_offset, SEGMENT_HEADER_BYTES);
                    self.note(Damage::of(&name, (0, end), "the header is damaged", (base, base)));
                    header
                }
            };
            let (index, end) = match trailer {
                Some(trailer) => (Indexed::Sealed(trailer), trailer.records_end),
                None => {
                    let index = SegmentIndex::new(header.base_offset, header.base_control, self.appending.seed());
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
            self.archive.segments.last().map_or(Ok(LogPosition(0)), |last| whole_until(last, self.archive.salt))?;
        let is_vouched = |pages: &Pages| pages.vouched(SEGMENT_HEADER_BYTES, offset.0).is_some_and(|end| end > before);
        if is_vouched(pages) {
            return Ok(true);
        }
        for (_, name) in later {
            if is_vouched(&Pages::read(self.archive.disk.open(name, false)?.as_ref(), None, self.archive.salt)?) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Files of the last group, which was torn. The newest goes first: what a crash leaves of them is torn again.
    fn remove_torn(&mut self, files: VecDeque<(u32, String)>) -> Result<()> {
        for (_, name) in files.into_iter().rev() {
            let pages = Pages::read(self.archive.disk.open(&name, false)?.as_ref(), None, self.archive.salt)?;
            self.note_trimmed(u64::from(pages.used_end()));
            self.archive.disk.remove(&name)?;
        }
        Ok(())
    }

    fn rebuilt_header(&self, number: u32, pages: &Pages, base_control: u64) -> Option<Header> {
        let (base_position, first_offset) = pages.base()?;
        Some(Header {
            epoch: self.appending.epoch(),
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
    fn replay(&mut self, checkpoint: Option<Recovered>) -> Result<()> {
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
            if !covered && !self.replay_segment(place, &mut replay, next)? {
                break;
            }
            place = place.saturating_add(1);
        }
        for (topic, change) in replay.retained {
            if let Some(name) = self.derived.dictionary.shared_name(TopicId(topic)) {
                self.derived.retained.change(name, change);
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
                    self.derived.dictionary.declare(entry.topic, directory.name(&entry), 0, LogPosition(0));
                }
            }
        }
        Ok(())
    }

    /// False if the log was found to end here.
    fn replay_segment(&mut self, place: usize, replay: &mut Replay, next: Option<Header>) -> Result<bool> {
        let Some(segment) = self.archive.segments.get(place) else { return Ok(false) };
        let header = segment.header;
        let sealed_end = matches!(segment.index, Indexed::Sealed(_)).then_some(segment.end);
        let known_end = sealed_end.or_else(|| next.and_then(|next| end_before(&header, &next)));
        let pages = Pages::read(segment.file.as_ref(), known_end, self.archive.salt)?;
        let mut index = SegmentIndex::new(header.base_offset, header.base_control, self.appending.seed());
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
                    break gap && !self.is_vouched(place, &pages, position, here, replay.known.end(), next_offset)?;
                }
                Place::Hole(whole) => {
                    let here = self.log_position(place, position);
                    if !self.is_vouched(place, &pages, position, here, replay.known.end(), next_offset)? {
                        break true;
                    }
                    let end = whole.unwrap_or(pages.limit);
                    let end_offset = whole.and_then(|whole| pages.record(whole)).map(|record| record.offset);
                    let end_offset = end_offset.or(next.map(|next| next.base_offset)).unwrap_or(Offset(next_offset));
                    self.note(Damage::of(
                        &self.name(place),
                        (position, end),
                        "records are damaged",
                        (Offset(next_offset), end_offset),
                    ));
                    position = end;
                }
            }
        };
        if header.kind == SegmentKind::Log {
            self.conclude(place, position, index, torn, &pages)?;
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
    fn conclude(&mut self, place: usize, position: u32, index: SegmentIndex, torn: bool, pages: &Pages) -> Result<()> {
        let last = torn || place.saturating_add(1) == self.archive.segments.len();
        if torn {
            self.note_trimmed(u64::from(pages.used_end().saturating_sub(position)));
            // The newest goes first: a removal that is cut short leaves no hole.
            for later in self.archive.segments.split_off(place.saturating_add(1)).into_iter().rev() {
                self.note_trimmed(later.file.size()?);
                self.archive.disk.remove(&later.name)?;
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
                segment.file.truncate(u64::from(self.appending.files.segment_bytes().max(position)))?;
            }
            self.archive.reindex(place, Indexed::Open(Box::new(index)));
            return Ok(());
        }
        // Its footer was lost or is damaged: it gets a new one.
        let index = Arc::new(index);
        let seal = Seal {
            number: segment.header.number,
            file: Arc::clone(&segment.file),
            records_end: position,
            end_position: segment.log_position(position),
            index: Arc::clone(&index),
        };
        self.appending.seal(seal, &self.derived.dictionary);
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
        let head = &mut self.appending.head;
        head.offset = head.offset.max(record.offset.0.saturating_add(u64::from(record.count)));
        head.time = head.time.max(record.appended_at.0);
        match record.kind {
            Kind::Message | Kind::Entry => {
                self.derived.dictionary.note_entry(record.topic, record.entry);
                if own && !replay.known.has(record.publisher, here) {
                    self.derived.parties.note_message(record);
                }
                if record.retain {
                    replay.retained.insert(record.topic.0, Retained::of(record));
                }
            }
            Kind::Control => {
                head.control = head.control.max(record.entry.saturating_add(1));
                // A state that cannot be decoded was refused when it was to be appended.
                drop(self.derived.take_control(record, |party| replay.known.has(party, here)));
            }
            Kind::Topic => self.derived.dictionary.declare(record.topic, record.payload, record.entry, here),
            Kind::Marker => {}
        }
    }

    /// The log is whole and synced: the next record gets its place.
    fn ready(
        mut self,
        options: &Options,
        checkpoints: &mut Checkpoints,
        now: Timestamp,
        stood_on: LogPosition,
    ) -> Result<(Records, Recovery)> {
        let now = self.find_end(now);
        self.archive.disk.sync_directory()?;
        let mut space = Space::new(options.reserve_bytes);
        match self.archive.segments.last().filter(|last| matches!(last.index, Indexed::Open(_))) {
            Some(last) => self.archive.tail.begin(last.header.number, last.end),
            None => self.appending.begin_log(&mut self.archive, &mut space)?,
        }
        let commits = Commits::new(options, self.appending.head.ends());
        self.appending.begin_group();
        space.note(self.archive.disk.free_bytes()?);
        let is_cut = self.appending.head.position < stood_on.0;
        if is_cut {
            self.report_cut(stood_on);
        }
        let Opening { archive, derived, appending, report } = self;
        let following = Following::default();
        let mut records =
            Records { archive, derived, appending, commits, space, following, unpacked: Unpacked::default() };
        resync::declare_learned(&mut records, now)?;
        records.commit()?;
        if is_cut {
            // What the checkpoint stood on is gone: records that come now would lie before it, and the next recovery
            // would pass over them. It gets a successor before anything is acknowledged.
            checkpoints.fall();
            checkpoints.take_whole(&mut records, now)?;
        }
        records.appending.announce(&records.archive);
        Ok((records, report))
    }

    /// Where the next record goes, by the last segment, and when it is appended.
    fn find_end(&mut self, now: Timestamp) -> Timestamp {
        let head = &mut self.appending.head;
        if let Some(last) = self.archive.segments.last() {
            match last.header.kind {
                SegmentKind::Log => {
                    head.offset = head.offset.max(last.base_offset().0);
                    head.control = head.control.max(last.header.base_control);
                    head.position = last.log_position(last.end).0;
                }
                SegmentKind::Carry => head.position = head.position.max(last.header.end_position.0),
            }
        }
        head.advance(now)
    }

    /// A file that was cut exactly between two records is whole in itself; only the checkpoint knows how far it went.
    fn report_cut(&mut self, stood_on: LogPosition) {
        let Some(last) = self.archive.segments.last() else { return };
        let is_known = |known: &Damage| known.file == last.name && known.end_position == u64::from(last.end);
        if !self.report.damaged.iter().any(is_known) {
            let missing = stood_on.0.saturating_sub(self.appending.head.position);
            let end = last.end.saturating_add(u32::try_from(missing).unwrap_or(u32::MAX));
            let (first_offset, end_offset) = (last.summary().end_offset, Offset(self.appending.head.offset));
            let reason = "it ends before the checkpoint that stands on it";
            self.note(Damage::of(&last.name, (last.end, end), reason, (first_offset, end_offset)));
        }
    }

    fn log_position(&self, place: usize, position: u32) -> LogPosition {
        self.archive.segments.get(place).map_or(LogPosition(0), |segment| segment.log_position(position))
    }

    fn name(&self, place: usize) -> String {
        self.archive.segments.get(place).map_or_else(String::new, |segment| segment.name.clone())
    }
}
