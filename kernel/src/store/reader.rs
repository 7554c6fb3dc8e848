//! A log directory as others read it: without touching it, beside a running broker too.
//!
//! Owns: what of the log is visible. Never writes. Invariants:
//! 1. Nothing is visible that is not durable: beside a writer that is what a marker vouches for (or what the caller
//!    knows to be durable), without a writer it is everything that is whole.
//! 2. A refresh costs what is new, not what is there.

use super::archive::Archive;
use super::columns::{ColumnSet, Columns};
use super::criteria::Criteria;
use super::damage::Damage;
use super::dictionary::Dictionary;
use super::encoding::{index64, narrow, wide};
use super::footer;
use super::header::{self, SegmentKind, SEGMENT_HEADER_BYTES};
use super::holes;
use super::identity::{self, Identity};
use super::index::SegmentIndex;
use super::progress::{self, Acknowledged, Stretch};
use super::query::{Limits, Query, Reach};
use super::record::{self, Kind};
use super::recorded;
use super::segment::{Indexed, Segment};
use super::verify;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::flow::moment::{RetainedRows, States};
use crate::ids::{LogPosition, Offset, Party, Timestamp, TopicId};
use crate::limits::DAMAGE_REPORTS_MAXIMUM;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Bytes of the block cache of a reader.
const CACHE_BYTES: usize = 16_777_216;

/// Bytes that are read of the open segment at once.
const WINDOW_BYTES: usize = 262_144;

/// What a reader says of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentDescription {
    /// Its number.
    pub number: u32,
    /// Log or carry.
    pub kind: SegmentKind,
    /// Its file's name.
    pub file: String,
    /// The bytes of its records and its header.
    pub bytes: u64,
    /// The first offset that it covers.
    pub begin_offset: Offset,
    /// The offset after the last one.
    pub end_offset: Offset,
    /// Append time of its first record.
    pub first_time: Timestamp,
    /// Append time of its last record.
    pub last_time: Timestamp,
    /// True if it has its footer.
    pub sealed: bool,
    /// True if nothing more comes to it: it has its footer, or the next one goes on where its records end.
    pub whole: bool,
    /// All its records.
    pub records: u64,
}

/// A reader of a log directory.
pub struct LogReader {
    archive: Archive,
    dictionary: Dictionary,
    /// The last one, because the next one mostly goes on where it ended.
    query: Option<Query>,
    epoch: u128,
    visible_end: Offset,
    vouched: HashMap<u32, Option<Offset>>,
    passed_over: Vec<Damage>,
}

impl LogReader {
    /// Opens the log on `disk`; an error if there is none.
    pub fn open(disk: Arc<dyn Disk>) -> Result<LogReader> {
        let identity = identity::read(disk.as_ref())?;
        let identity = identity.ok_or_else(|| Error::Invalid("there is no log in this directory".to_owned()))?;
        Ok(LogReader {
            archive: Archive::new(disk, identity.salt(), CACHE_BYTES),
            dictionary: Dictionary::new(0),
            query: None,
            epoch: identity.epoch,
            visible_end: Offset(0),
            vouched: HashMap::new(),
            passed_over: Vec::new(),
        })
    }

    /// Looks for what is new. `durable` limits what is visible where the caller knows it; else `is_written` says
    /// whether a writer holds the directory.
    pub fn refresh(&mut self, durable: Option<Offset>, is_written: bool) -> Result<()> {
        let names = self.segment_files()?;
        let known = |segment: &Segment| names.contains_key(&segment.header.number);
        while let Some(gone) = self.archive.segments.iter().position(|segment| !known(segment)) {
            self.archive.remove(gone);
            self.query = None;
        }
        let end = self.archive.segments.last().map_or(Offset(0), |last| last.end_offset());
        let is_known = durable.is_some_and(|durable| durable <= end);
        for (number, (kind, name)) in names {
            match self.archive.find(number) {
                Some(_) if is_known => {}
                Some(place) => self.refresh_segment(place)?,
                None => self.add_segment(kind, &name)?,
            }
        }
        let end = self.archive.segments.last().map_or(Offset(0), |last| last.end_offset());
        self.visible_end = match durable {
            Some(durable) => durable.min(end),
            None if is_written => self.vouched_offset()?.max(self.visible_end).min(end),
            None => end,
        };
        Ok(())
    }

    /// The oldest offset from which on the log is whole.
    pub fn begin_offset(&self) -> Offset {
        let own = self.archive.segments.iter().find(|segment| segment.header.kind == SegmentKind::Log);
        own.map_or(self.visible_end, |segment| segment.base_offset())
    }

    /// The offset after the last visible message.
    pub fn end_offset(&self) -> Offset {
        self.visible_end
    }

    /// Damage in the segment that is not sealed, which was passed over since the last call.
    pub fn take_passed_over(&mut self) -> Vec<Damage> {
        std::mem::take(&mut self.passed_over)
    }

    /// The log's identity.
    pub fn epoch(&self) -> String {
        Identity { epoch: self.epoch }.epoch_text()
    }

    /// All segments, in offset order.
    pub fn segments(&self) -> Vec<SegmentDescription> {
        let segments = &self.archive.segments;
        let described = segments.iter().enumerate().map(|(place, segment)| {
            let summary = segment.summary();
            let sealed = matches!(segment.index, Indexed::Sealed(_));
            let next = segments.get(place.saturating_add(1)).map(|next| next.header.base_position);
            SegmentDescription {
                number: segment.header.number,
                kind: segment.header.kind,
                file: segment.name.clone(),
                bytes: segment.bytes(),
                begin_offset: segment.base_offset(),
                end_offset: segment.end_offset(),
                first_time: summary.first_time,
                last_time: summary.last_time,
                sealed,
                whole: sealed || next.is_some_and(|next| next <= segment.log_position(segment.end)),
                records: summary.records,
            }
        });
        described.collect()
    }

    /// The first `limit` topics after a name that a filter matches (all, without one), in the order of their names,
    /// with their number of stored messages; fewer only where there are no more.
    pub fn topics(&mut self, filter: Option<&[u8]>, after: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, u64)>> {
        let (mut found, mut after) = (Vec::new(), after.to_vec());
        while found.len() < limit {
            let page = self.dictionary.page(filter, &after, limit);
            let Some(last) = page.last() else { break };
            after = self.dictionary.name(*last).to_vec();
            let mut counts = vec![0_u64; page.len()];
            for place in 0..self.archive.segments.len() {
                for (id, total) in page.iter().zip(&mut counts) {
                    let here = self.archive.topic(place, *id)?;
                    let messages = here.map_or(0, |here| here.messages());
                    *total = total.saturating_add(messages);
                }
            }
            let named = page.iter().map(|id| self.dictionary.name(*id).to_vec()).zip(counts);
            found.extend(named.filter(|(_, messages)| *messages > 0));
        }
        found.truncate(limit);
        Ok(found)
    }

    /// The first visible offset that was appended at `time` or later.
    pub fn offset_at(&mut self, time: Timestamp) -> Result<Offset> {
        Ok(self.archive.offset_at(time)?.map_or(self.visible_end, |offset| offset.min(self.visible_end)))
    }

    /// The messages that meet the criteria, as columns, and the offset up to which was read.
    pub fn read(&mut self, criteria: &Criteria, columns: ColumnSet, limits: &Limits) -> Result<(Columns, Offset)> {
        let to = limits.to.min(self.visible_end);
        let query = Query::recall(&mut self.query, &self.dictionary, criteria);
        query.read(&mut self.archive, &self.dictionary, columns, &Limits { to, ..*limits })
    }

    /// The smallest offset such that the range from `from` on has as many messages of the topics as `limits` says, or
    /// about as many bytes of them, or ends at `to`.
    pub fn reach(&mut self, criteria: &Criteria, limits: &Limits) -> Result<Reach> {
        let to = limits.to.min(self.visible_end);
        let query = Query::recall(&mut self.query, &self.dictionary, criteria);
        query.reach(&mut self.archive, &Limits { to, ..*limits })
    }

    /// At most `parts` ranges of about equal stored bytes that cover the range.
    pub fn split(
        &mut self,
        criteria: &Criteria,
        from: Offset,
        to: Offset,
        parts: usize,
    ) -> Result<Vec<(Offset, Offset)>> {
        Query::recall(&mut self.query, &self.dictionary, criteria).split(&mut self.archive, from, to, parts)
    }

    /// What is on record of deliveries, and the retained messages: what recovery would find. `is_written` says whether
    /// a writer holds the directory.
    pub fn recorded(&self, is_written: bool) -> Result<(States, RetainedRows)> {
        recorded::read(&self.archive, &self.dictionary, self.epoch, is_written)
    }

    /// What records of the stretch that lie before a visible message say these parties had acknowledged, and the
    /// control number at which to go on where that is not all.
    pub fn progress(&mut self, parties: &HashSet<Party>, wanted: Stretch) -> Result<(Vec<Acknowledged>, Option<u64>)> {
        let to = wanted.to.min(self.visible_end);
        progress::read(&mut self.archive, parties, Stretch { to, ..wanted })
    }

    /// Reads every checksum of every segment and names what is damaged. One segment is in memory at a time.
    pub fn verify(&self) -> Result<Vec<Damage>> {
        verify::verify(self.archive.disk.as_ref(), self.archive.salt)
    }

    fn segment_files(&self) -> Result<BTreeMap<u32, (SegmentKind, String)>> {
        let names = self.archive.disk.list()?.into_iter();
        let parsed =
            names.filter_map(|name| header::parse_segment_name(&name).map(|(kind, number)| (number, (kind, name))));
        Ok(parsed.collect())
    }

    fn add_segment(&mut self, kind: SegmentKind, name: &str) -> Result<()> {
        // It may be gone since it was listed; the next refresh knows.
        let Ok(file) = self.archive.disk.open(name, false) else { return Ok(()) };
        let header = header::decode(&identity::read_all(self.archive.disk.as_ref(), name, 96)?, name)?;
        // Without a header it has just been begun, or it is damaged, which `verify` tells.
        let Some(header) = header.filter(|header| header.kind == kind && header.epoch == self.epoch) else {
            return Ok(());
        };
        let (index, end) = match footer::read_trailer(file.as_ref(), name)? {
            Some(trailer) => (Indexed::Sealed(trailer), trailer.records_end),
            None => {
                let index = SegmentIndex::new(header.base_offset, header.base_control, 0);
                (Indexed::Open(Box::new(index)), SEGMENT_HEADER_BYTES)
            }
        };
        let replaced = |other: &Segment| {
            header.kind == SegmentKind::Carry
                && header.base_position <= other.header.base_position
                && other.header.base_position < header.end_position
        };
        self.archive.segments.retain(|other| !replaced(other));
        let segment = Segment::new(header, name.to_owned(), file, index, end);
        let order = |segment: &Segment| (segment.header.kind == SegmentKind::Log, segment.header.base_position);
        let place = self.archive.segments.partition_point(|other| order(other) < order(&segment));
        self.archive.segments.insert(place, segment);
        self.learn_names(place);
        self.walk_open(place)
    }

    fn refresh_segment(&mut self, place: usize) -> Result<()> {
        let Some(segment) = self.archive.segments.get(place) else { return Ok(()) };
        if matches!(segment.index, Indexed::Sealed(_)) {
            return Ok(());
        }
        if let Some(trailer) = footer::read_trailer(segment.file.as_ref(), &segment.name)? {
            let number = segment.header.number;
            self.archive.reindex(place, Indexed::Sealed(trailer));
            if let Some(segment) = self.archive.segments.get_mut(place) {
                segment.end = trailer.records_end;
            }
            self.vouched.remove(&number);
            self.learn_names(place);
            return Ok(());
        }
        self.walk_open(place)
    }

    /// Names of a sealed segment's topics. A damaged directory is told by `verify`; its topics stay unknown.
    fn learn_names(&mut self, place: usize) {
        if let Ok(Some(directory)) = self.archive.directory(place) {
            for entry in directory.entries().filter(|entry| entry.topic != TopicId(0)) {
                self.dictionary.declare(entry.topic, directory.name(&entry), 0, LogPosition(0));
            }
        }
    }

    /// Takes over what has been appended to a segment that is not sealed.
    fn walk_open(&mut self, place: usize) -> Result<()> {
        let mut window = WINDOW_BYTES;
        loop {
            let Some(segment) = self.archive.segments.get_mut(place) else { return Ok(()) };
            let Indexed::Open(open) = &mut segment.index else { return Ok(()) };
            let left = segment.file.size()?.saturating_sub(u64::from(segment.end));
            let mut bytes = vec![0; window.min(index64(left))];
            let count = segment.file.read_at(u64::from(segment.end), &mut bytes)?;
            bytes.truncate(count);
            let mut taken = 0;
            let vouched = self.vouched.entry(segment.header.number).or_default();
            while let Some(record) = bytes.get(taken..).and_then(|rest| record::decode(rest, self.archive.salt)) {
                let size = record.size_bytes();
                let within = u64::from(segment.end.saturating_sub(SEGMENT_HEADER_BYTES));
                let here = segment.header.base_position.0.saturating_add(within);
                open.add(&record, segment.end, size);
                match record.kind {
                    Kind::Topic => self.dictionary.declare(record.topic, record.payload, record.entry, LogPosition(0)),
                    Kind::Marker if record.entry == here => *vouched = Some(record.offset),
                    Kind::Marker => {}
                    Kind::Message | Kind::Entry | Kind::Control => {}
                }
                segment.end = segment.end.saturating_add(narrow(size));
                taken = taken.saturating_add(size);
            }
            let rest = bytes.get(taken..).unwrap_or_default();
            // A window may end within the size of a record, or right behind one.
            let is_cut =
                rest.len() < size_of::<u32>() || record::stated_size(rest).is_some_and(|size| size > rest.len());
            if !is_cut || wide(bytes.len()) >= left {
                // What is not written yet is zeros. All are looked at, which is quicker than to stop at the first
                // that is none: a reader that follows the log does this at each look at it.
                let is_end = rest.iter().fold(0, |all, byte| all | byte) == 0;
                let Some(damage) = (if is_end { None } else { holes::pass_over(&mut self.archive, place)? }) else {
                    return Ok(());
                };
                if self.passed_over.len() < DAMAGE_REPORTS_MAXIMUM {
                    self.passed_over.push(damage);
                }
                continue;
            }
            window = if taken == 0 { window.saturating_mul(4) } else { window };
        }
    }

    /// The offset below which markers vouch for everything. A footer proves nothing: it is written before the sync.
    fn vouched_offset(&mut self) -> Result<Offset> {
        for place in (0..self.archive.segments.len()).rev() {
            let Some(segment) = self.archive.segments.get(place) else { continue };
            let (number, base, end) = (segment.header.number, segment.header.base_position, segment.end);
            if segment.header.kind == SegmentKind::Carry {
                return Ok(segment.end_offset());
            }
            if !self.vouched.contains_key(&number) {
                let mut vouched = None;
                let mut position = SEGMENT_HEADER_BYTES;
                while position < end {
                    let Some(record) = self.archive.record(place, position)? else { break };
                    let here = base.0.saturating_add(u64::from(position.saturating_sub(SEGMENT_HEADER_BYTES)));
                    if record.kind == Kind::Marker && record.entry == here {
                        vouched = Some(record.offset);
                    }
                    position = position.saturating_add(narrow(record.size_bytes()));
                }
                self.vouched.insert(number, vouched);
            }
            if let Some(Some(vouched)) = self.vouched.get(&number) {
                return Ok(*vouched);
            }
        }
        Ok(Offset(0))
    }
}
