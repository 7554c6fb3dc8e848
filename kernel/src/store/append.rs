//! Appending: records go into the chunk that gathers for the next commit, and into the index of the open segment.
//!
//! Owns: where the log ends, the group that gathers, and the files of its next segments. Never: what a record says.
//!
//! Invariants:
//! 1. The first record of a commit group is its marker.
//! 2. A record lies in one segment; one that is full is sealed beside the loop, or by the commit that holds its last
//!    records.

use super::archive::Archive;
use super::dictionary::Dictionary;
use super::encoding::narrow;
use super::files::Files;
use super::group::{Group, Work};
use super::head::Head;
use super::header::{self, Header, SegmentKind, SEGMENT_HEADER_BYTES};
use super::identity::Identity;
use super::index::SegmentIndex;
use super::options::Options;
use super::record::{self, Record, MARKER_BYTES};
use super::seal::{names_of, Seal, Unsealed};
use super::segment::{Indexed, Segment};
use super::space::Space;
use crate::disk::{Disk, DiskFile};
use crate::error::{Error, Result};
use crate::ids::{Location, LogPosition, Offset, Timestamp};
use crate::limits::{CHUNK_BYTES, SEGMENT_TOPICS_MAXIMUM};
use std::sync::Arc;

/// The end of the log at which it grows.
pub(super) struct Appending {
    pub(super) head: Head,
    pub(super) group: Group,
    pub(super) files: Files,
    pub(super) unsealed: Unsealed,
    /// So many of them may wait.
    pub(super) unsealed_maximum: usize,
    epoch: u128,
    seed: u64,
    /// Since the log was opened.
    pub(super) records_appended: u64,
}

impl Appending {
    /// To a log without records.
    pub(super) fn new(disk: Arc<dyn Disk>, identity: &Identity, options: &Options) -> Appending {
        Appending {
            head: Head { control: 1, ..Head::default() },
            group: Group::new(),
            files: Files::new(disk, options.segment_bytes),
            unsealed: Unsealed::default(),
            unsealed_maximum: 0,
            epoch: identity.epoch,
            seed: options.seed,
            records_appended: 0,
        }
    }

    /// The identity of the log, which is in every segment.
    pub(super) fn epoch(&self) -> u128 {
        self.epoch
    }

    /// What spreads hash tables.
    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    /// Ends the segment if the record does not fit, and begins the commit group with its marker.
    pub(super) fn make_room(
        &mut self,
        archive: &mut Archive,
        dictionary: &Dictionary,
        space: &mut Space,
        size_bytes: usize,
    ) -> Result<()> {
        let needed = narrow(size_bytes).saturating_add(self.group.beginning_bytes());
        let segment_bytes = self.files.segment_bytes();
        let is_full = |segment: &Segment| {
            let is_over = segment.end.saturating_add(needed) > segment_bytes || has_many_topics(segment);
            is_over && segment.end > SEGMENT_HEADER_BYTES.saturating_add(narrow(MARKER_BYTES))
        };
        if archive.segments.last().is_some_and(is_full) {
            self.roll(archive, dictionary, space)?;
        }
        if let Some(marker) = self.group.begin() {
            self.put(archive, &marker)?;
        }
        Ok(())
    }

    /// Appends the record to the filling chunk, for which there is room.
    pub(super) fn put(&mut self, archive: &mut Archive, record: &Record<'_>) -> Result<Location> {
        self.put_checked(archive, record, None)
    }

    /// The same for an entry with the checksum that was compared already.
    pub(super) fn put_checked(
        &mut self,
        archive: &mut Archive,
        record: &Record<'_>,
        checked: Option<u32>,
    ) -> Result<Location> {
        let size = record.size_bytes();
        let filling = &archive.tail.filling.bytes;
        // A chunk that grew would be copied as a whole.
        if filling.len().saturating_add(size) > CHUNK_BYTES && !filling.is_empty() {
            self.freeze(archive);
        }
        let Some(segment) = archive.segments.last_mut() else { return Err(Error::Poisoned) };
        let location = Location { segment: segment.header.number, position: segment.end };
        let filling = &mut archive.tail.filling.bytes;
        record::put(record, checked, archive.salt, filling);
        if let Indexed::Open(index) = &mut segment.index {
            index.add(record, location.position, size);
        }
        segment.end = segment.end.saturating_add(narrow(size));
        self.head.pass(record, size);
        self.records_appended = self.records_appended.wrapping_add(1);
        if filling.len() >= CHUNK_BYTES {
            self.freeze(archive);
        }
        Ok(location)
    }

    /// Hands the filling chunk to the next commit.
    pub(super) fn freeze(&mut self, archive: &mut Archive) {
        let Some(segment) = archive.segments.last() else { return };
        let file = Arc::clone(&segment.file);
        if let Some(chunk) = archive.tail.freeze() {
            self.group.add(Work::Write { file, chunk });
        }
    }

    /// The first segment of an empty log, or the one after a sealed one.
    pub(super) fn begin_log(&mut self, archive: &mut Archive, space: &mut Space) -> Result<()> {
        let (number, file) = self.next_file(space)?;
        self.begin_segment(archive, number, file);
        Ok(())
    }

    /// The next group begins with a marker that vouches for everything so far.
    pub(super) fn begin_group(&mut self) {
        self.group.will_begin_with(self.head.marker());
    }

    /// Tells readers elsewhere that everything recovered is durable, as a commit does.
    pub(super) fn announce(&self, archive: &Archive) {
        if let Some(segment) = archive.segments.last() {
            let mut bytes = Vec::with_capacity(MARKER_BYTES);
            record::encode(self.group.marker(), archive.salt, &mut bytes);
            drop(segment.file.write_at(u64::from(segment.end), &bytes));
        }
    }

    /// Ends the open segment and begins the next one.
    fn roll(&mut self, archive: &mut Archive, dictionary: &Dictionary, space: &mut Space) -> Result<()> {
        let (number, file) = self.next_file(space)?;
        self.freeze(archive);
        self.close_segment(archive, dictionary);
        self.begin_segment(archive, number, file);
        Ok(())
    }

    fn next_file(&mut self, space: &mut Space) -> Result<(u32, Arc<dyn DiskFile>)> {
        let taken = self.files.take(space)?;
        self.group.add_name();
        Ok(taken)
    }

    /// The open segment takes no more records. If too many footers wait then, the next commit writes the first of them.
    fn close_segment(&mut self, archive: &mut Archive, dictionary: &Dictionary) {
        let Some(segment) = archive.segments.last_mut() else { return };
        let Indexed::Open(index) = &mut segment.index else { return };
        let empty = SegmentIndex::new(Offset(0), 0, 0);
        let index = Arc::new(std::mem::replace(index.as_mut(), empty));
        let (number, file, records_end) = (segment.header.number, Arc::clone(&segment.file), segment.end);
        segment.index = Indexed::Closed(Arc::clone(&index));
        let end_position = self.head.ends().position;
        self.unsealed.add(Seal { number, file, records_end, end_position, index });
        if let Some(seal) = self.unsealed.take_beyond(self.unsealed_maximum) {
            self.seal(seal, dictionary);
        }
    }

    /// The next commit writes this footer.
    pub(super) fn seal(&mut self, seal: Seal, dictionary: &Dictionary) {
        let names = names_of(seal.topics(), |id| dictionary.get(id)).collect();
        self.group.add(Work::Seal { seal, names });
    }

    /// The next record goes to a new segment.
    fn begin_segment(&mut self, archive: &mut Archive, number: u32, file: Arc<dyn DiskFile>) {
        let header = Header {
            epoch: self.epoch,
            kind: SegmentKind::Log,
            number,
            base_offset: Offset(self.head.offset),
            base_position: LogPosition(self.head.position),
            base_control: self.head.control,
            created_at: Timestamp(self.head.time),
            end_offset: Offset(0),
            end_position: LogPosition(0),
        };
        self.group.add(Work::Header { file: Arc::clone(&file), bytes: header::encode(&header) });
        let index = SegmentIndex::new(header.base_offset, header.base_control, self.seed);
        let name = header::segment_name(SegmentKind::Log, number);
        let segment = Segment::new(header, name, file, Indexed::Open(Box::new(index)), SEGMENT_HEADER_BYTES);
        archive.segments.push(segment);
        archive.tail.begin(number, SEGMENT_HEADER_BYTES);
    }
}

fn has_many_topics(segment: &Segment) -> bool {
    matches!(&segment.index, Indexed::Open(index) if index.topics.len() >= SEGMENT_TOPICS_MAXIMUM)
}
