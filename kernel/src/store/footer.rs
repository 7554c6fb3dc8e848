//! The end of a sealed segment: the index of its records, checksummed (`docs/formats/log.md`, "Footer").
//!
//! Owns: the layout of footers and reading parts of them. Invariants:
//! 1. The trailer is the last thing in the file, so that a file with a whole trailer is a sealed segment.
//! 2. The directory is sorted by topic number and has entries of one size: a topic is found without reading the rest.
//! 3. Every part has its own checksum: the trailer, the marks, names with directory, each topic's postings.

use super::encoding::{index, narrow, Decoder, Encoder};
use super::header::{FORMAT_VERSION, FORMAT_VERSION_OLDEST};
use super::index::{Class, Mark, SegmentIndex, Summary};
use crate::checksum;
use crate::disk::DiskFile;
use crate::error::{Error, Result};
use crate::ids::{LogPosition, Offset, Timestamp, TopicId};
use roaring::RoaringBitmap;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"HFFOOTER";
const TRAILER_BYTES: u32 = 108;
const MARK_ENTRY_BYTES: u32 = 20;
const PART_ENTRY_BYTES: u32 = 16;
const PARTS_MAXIMUM: u32 = 64;

/// Bytes of a topic in the directory.
const ENTRY_BYTES: usize = 60;
/// The same in version 1, where each record held one message.
const ENTRY_BYTES_OLDEST: usize = 40;

/// The parts before the trailer, by the numbers under which its table has them.
const PART_POSTINGS: u32 = 1;
const PART_DIRECTORY: u32 = 2;
const PART_MARKS: u32 = 3;

/// Looking for one entry by halving takes about as long as walking over so many.
const HALVING_STEPS: u64 = 16;

/// The last bytes of a sealed segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// The segment's number.
    pub number: u32,
    /// Where its records end and its footer begins.
    pub records_end: u32,
    version: u32,
    /// Some of its records hold more than one message.
    pub is_uneven: bool,
    names_position: u32,
    directory_position: u32,
    /// Topics in the directory.
    pub topics: u32,
    marks_position: u32,
    marks: u32,
    /// What it holds.
    pub summary: Summary,
    /// The log position after its last record.
    pub end_position: LogPosition,
    directory_checksum: u32,
    marks_checksum: u32,
}

/// One topic of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicEntry {
    /// Its number.
    pub topic: TopicId,
    /// How many records of class [`Class::Plain`].
    pub plain: u32,
    /// How many records of class [`Class::Queued`].
    pub queued: u32,
    /// How many messages those of the first class hold.
    pub plain_messages: u32,
    /// How many those of the second class hold.
    pub queued_messages: u32,
    /// How many of those are of QoS 0.
    pub kept_messages: u32,
    /// The number of the first of its records among the topic's entries; `None` where that is not known.
    pub first_entry: Option<u64>,
    /// Bytes of its records.
    pub bytes: u64,
    /// The second in which the first of class [`Class::Queued`] expires; 0 if none ever does.
    pub expires_s: u32,
    postings_position: u32,
    postings_checksum: u32,
    name_position: u32,
    name_bytes: u32,
}

/// A segment's directory and topic names.
#[derive(Debug)]
pub struct Directory {
    /// The names, and behind them the entries.
    bytes: Vec<u8>,
    entries_start: usize,
    entry_bytes: usize,
}

/// The footer's bytes, and its trailer. `names` are those of all topics in the index.
pub fn encode(
    number: u32,
    records_end: u32,
    end_position: LogPosition,
    segment: &SegmentIndex,
    names: &[(TopicId, Arc<[u8]>)],
) -> (Vec<u8>, Trailer) {
    let mut out = Vec::new();
    let mut directory = Vec::new();
    let mut name_bytes: Vec<u8> = Vec::new();
    let place = |size: usize| records_end.saturating_add(narrow(size));
    let mut by_number: Vec<&(TopicId, Arc<[u8]>)> = names.iter().collect();
    by_number.sort_unstable_by_key(|(topic, _)| *topic);
    for (topic, name) in by_number {
        let Some(postings) = segment.topics.get(&topic.0) else { continue };
        let start = out.len();
        for position in postings.plain.iter().chain(&postings.queued) {
            out.put_u32(*position);
        }
        directory.put_u32(topic.0);
        directory.put_u32(narrow(postings.plain.len()));
        directory.put_u32(narrow(postings.queued.len()));
        directory.put_u32(place(start));
        directory.put_u32(checksum::of(out.get(start..).unwrap_or_default()));
        directory.put_u32(narrow(name_bytes.len()));
        directory.put_u32(narrow(name.len()));
        directory.put_u32(postings.expires_s);
        directory.put_u64(postings.bytes);
        directory.put_u32(postings.plain_messages);
        directory.put_u32(postings.queued_messages);
        directory.put_u32(postings.kept_messages);
        directory.put_u64(postings.first_entry.unwrap_or(u64::MAX));
        name_bytes.put(name);
    }
    let names_position = place(out.len());
    let topics = narrow(directory.len() / ENTRY_BYTES);
    let directory_checksum = checksum::append(checksum::of(&name_bytes), &directory);
    out.put(&name_bytes);
    let directory_position = place(out.len());
    out.put(&directory);
    let marks_position = place(out.len());
    let marks_start = out.len();
    for mark in &segment.marks {
        out.put_u64(mark.offset.0);
        out.put_u64(mark.time.0);
        out.put_u32(mark.position);
    }
    let marks_checksum = checksum::of(out.get(marks_start..).unwrap_or_default());
    let trailer = Trailer {
        version: FORMAT_VERSION,
        is_uneven: segment.is_uneven,
        number,
        records_end,
        names_position,
        directory_position,
        topics,
        marks_position,
        marks: narrow(segment.marks.len()),
        summary: segment.summary,
        end_position,
        directory_checksum,
        marks_checksum,
    };
    encode_trailer(&trailer, &mut out);
    (out, trailer)
}

/// The table of parts and the trailer. A part that a later version adds is passed over by this one.
fn encode_trailer(trailer: &Trailer, out: &mut Vec<u8>) {
    let parts_position = trailer.records_end.saturating_add(narrow(out.len()));
    let parts_start = out.len();
    let directory_bytes = trailer.marks_position.saturating_sub(trailer.names_position);
    let postings_bytes = trailer.names_position.saturating_sub(trailer.records_end);
    let marks_bytes = trailer.marks.saturating_mul(MARK_ENTRY_BYTES);
    let parts = [
        // Each topic's postings have a checksum of their own, in the directory.
        [PART_POSTINGS, trailer.records_end, postings_bytes, 0],
        [PART_DIRECTORY, trailer.names_position, directory_bytes, trailer.directory_checksum],
        [PART_MARKS, trailer.marks_position, marks_bytes, trailer.marks_checksum],
    ];
    parts.iter().flatten().for_each(|word| out.put_u32(*word));
    let parts_checksum = checksum::of(out.get(parts_start..).unwrap_or_default());
    let start = out.len();
    out.put(MAGIC);
    let words = [
        FORMAT_VERSION,
        trailer.number,
        trailer.records_end,
        trailer.topics,
        trailer.marks,
        parts_position,
        narrow(parts.len()),
        u32::from(trailer.is_uneven),
    ];
    words.into_iter().for_each(|word| out.put_u32(word));
    let summary = &trailer.summary;
    let numbers = [
        summary.records,
        summary.messages,
        summary.end_offset.0,
        summary.end_control,
        summary.first_time.0,
        summary.last_time.0,
        trailer.end_position.0,
    ];
    numbers.into_iter().for_each(|number| out.put_u64(number));
    out.put_u32(parts_checksum);
    out.put_u32(0);
    let checksum = checksum::of(out.get(start..).unwrap_or_default());
    out.put_u32(checksum);
}

/// The trailer at the end of `file`; `None` if there is none (the segment is not sealed, or its end is damaged).
pub fn read_trailer(file: &dyn DiskFile, name: &str) -> Result<Option<Trailer>> {
    let size = file.size()?;
    let Some(start) = size.checked_sub(u64::from(TRAILER_BYTES)) else { return Ok(None) };
    let bytes = read(file, start, index(TRAILER_BYTES))?;
    let (Some(checked), Some(stored)) = (bytes.get(..104), bytes.get(104..)) else { return Ok(None) };
    if Decoder::new(stored).u32() != Some(checksum::of(checked)) {
        return Ok(None);
    }
    let mut source = Decoder::new(checked);
    if source.take(8) != Some(MAGIC) {
        return Ok(None);
    }
    match source.u32() {
        Some(FORMAT_VERSION) => trailer_fields(&mut source, file),
        Some(FORMAT_VERSION_OLDEST) => Ok(oldest_trailer_fields(&mut source)),
        Some(version) if version > FORMAT_VERSION => Err(Error::NewerFormat { file: name.to_owned(), version }),
        _ => Ok(None),
    }
}

fn trailer_fields(source: &mut Decoder<'_>, file: &dyn DiskFile) -> Result<Option<Trailer>> {
    let mut word = || source.u32().unwrap_or_default();
    let (number, records_end, topics, marks) = (word(), word(), word(), word());
    let (parts_position, parts, is_uneven) = (word(), word(), word() != 0);
    let Some((summary, end_position)) = summary_fields(source) else { return Ok(None) };
    let checksum = source.u32();
    if parts > PARTS_MAXIMUM {
        return Ok(None);
    }
    let bytes = read(file, u64::from(parts_position), index(parts.saturating_mul(PART_ENTRY_BYTES)))?;
    if checksum != Some(checksum::of(&bytes)) {
        return Ok(None);
    }
    let mut table = Decoder::new(&bytes);
    let mut trailer = Trailer {
        version: FORMAT_VERSION,
        is_uneven,
        number,
        records_end,
        names_position: 0,
        directory_position: 0,
        topics,
        marks_position: 0,
        marks,
        summary,
        end_position,
        directory_checksum: 0,
        marks_checksum: 0,
    };
    while let (Some(kind), Some(position), Some(size), Some(checksum)) =
        (table.u32(), table.u32(), table.u32(), table.u32())
    {
        match kind {
            PART_DIRECTORY => {
                let entries = topics.saturating_mul(narrow(ENTRY_BYTES));
                trailer.directory_position = position.saturating_add(size).saturating_sub(entries);
                (trailer.names_position, trailer.directory_checksum) = (position, checksum);
            }
            PART_MARKS => (trailer.marks_position, trailer.marks_checksum) = (position, checksum),
            _ => {}
        }
    }
    Ok(Some(trailer))
}

fn summary_fields(source: &mut Decoder<'_>) -> Option<(Summary, LogPosition)> {
    let summary = Summary {
        records: source.u64()?,
        messages: source.u64()?,
        end_offset: Offset(source.u64()?),
        end_control: source.u64()?,
        first_time: Timestamp(source.u64()?),
        last_time: Timestamp(source.u64()?),
    };
    Some((summary, LogPosition(source.u64()?)))
}

fn oldest_trailer_fields(source: &mut Decoder<'_>) -> Option<Trailer> {
    let (number, records_end) = (source.u32()?, source.u32()?);
    let (names_position, directory_position, topics) = (source.u32()?, source.u32()?, source.u32()?);
    let (marks_position, marks) = (source.u32()?, source.u32()?);
    let (summary, end_position) = summary_fields(source)?;
    Some(Trailer {
        version: FORMAT_VERSION_OLDEST,
        is_uneven: false,
        number,
        records_end,
        names_position,
        directory_position,
        topics,
        marks_position,
        marks,
        summary,
        end_position,
        directory_checksum: source.u32()?,
        marks_checksum: source.u32()?,
    })
}

/// The sparse index of a sealed segment.
pub fn read_marks(file: &dyn DiskFile, trailer: &Trailer, name: &str) -> Result<Vec<Mark>> {
    let size = index(trailer.marks.saturating_mul(MARK_ENTRY_BYTES));
    let bytes = read(file, u64::from(trailer.marks_position), size)?;
    if bytes.len() != size || checksum::of(&bytes) != trailer.marks_checksum {
        return Err(damaged(name, trailer.marks_position, "the checksum of the sparse index does not fit"));
    }
    let mut source = Decoder::new(&bytes);
    let mut marks = Vec::with_capacity(index(trailer.marks));
    while let (Some(offset), Some(time), Some(position)) = (source.u64(), source.u64(), source.u32()) {
        marks.push(Mark { offset: Offset(offset), time: Timestamp(time), position });
    }
    Ok(marks)
}

/// The directory and the names of a sealed segment.
pub fn read_directory(file: &dyn DiskFile, trailer: &Trailer, name: &str) -> Result<Directory> {
    let entry_bytes = if trailer.version == FORMAT_VERSION_OLDEST { ENTRY_BYTES_OLDEST } else { ENTRY_BYTES };
    let entries_start = index(trailer.directory_position.saturating_sub(trailer.names_position));
    let size = entries_start.saturating_add(index(trailer.topics).saturating_mul(entry_bytes));
    let bytes = read(file, u64::from(trailer.names_position), size)?;
    if bytes.len() != size || checksum::of(&bytes) != trailer.directory_checksum {
        return Err(damaged(name, trailer.names_position, "the checksum of the directory does not fit"));
    }
    Ok(Directory { bytes, entries_start, entry_bytes })
}

/// The positions of a topic's records of one class.
pub fn read_postings(file: &dyn DiskFile, entry: &TopicEntry, class: Class, name: &str) -> Result<Vec<u32>> {
    let size = index(entry.plain).saturating_add(index(entry.queued)).saturating_mul(4);
    let bytes = read(file, u64::from(entry.postings_position), size)?;
    positions_of(&bytes, entry, class, name)
}

fn check_postings(bytes: &[u8], entry: &TopicEntry, name: &str) -> Result<()> {
    let size = index(entry.plain).saturating_add(index(entry.queued)).saturating_mul(4);
    if bytes.len() != size || checksum::of(bytes) != entry.postings_checksum {
        return Err(damaged(name, entry.postings_position, "the checksum of a topic's postings does not fit"));
    }
    Ok(())
}

fn positions_of(bytes: &[u8], entry: &TopicEntry, class: Class, name: &str) -> Result<Vec<u32>> {
    check_postings(bytes, entry, name)?;
    let (plain, queued) = bytes.split_at_checked(index(entry.plain).saturating_mul(4)).unwrap_or_default();
    let mut source = Decoder::new(if class == Class::Plain { plain } else { queued });
    let mut positions = Vec::with_capacity(source.rest().len() / 4);
    while let Some(position) = source.u32() {
        positions.push(position);
    }
    Ok(positions)
}

/// The postings of all topics of a segment, unchecked.
pub fn read_all_postings(file: &dyn DiskFile, trailer: &Trailer) -> Result<Vec<u8>> {
    let size = index(trailer.names_position.saturating_sub(trailer.records_end));
    read(file, u64::from(trailer.records_end), size)
}

/// The positions of a topic's records of one class, among all postings of a segment whose records end at `start`.
pub fn postings_among(all: &[u8], start: u32, entry: &TopicEntry, class: Class, name: &str) -> Result<Vec<u32>> {
    let first = index(entry.postings_position.saturating_sub(start));
    let size = index(entry.plain).saturating_add(index(entry.queued)).saturating_mul(4);
    let bytes = all.get(first..first.saturating_add(size)).unwrap_or_default();
    positions_of(bytes, entry, class, name)
}

/// Appends the positions of a topic's records of class [`Class::Queued`] in `low..high`, among all postings of a
/// segment whose records end at `start`.
pub fn queued_among(
    all: &[u8],
    start: u32,
    entry: &TopicEntry,
    (low, high): (u32, u32),
    name: &str,
    into: &mut Vec<u32>,
) -> Result<()> {
    let first = index(entry.postings_position.saturating_sub(start));
    let size = index(entry.plain).saturating_add(index(entry.queued)).saturating_mul(4);
    let bytes = all.get(first..first.saturating_add(size)).unwrap_or_default();
    check_postings(bytes, entry, name)?;
    let queued = bytes.get(index(entry.plain).saturating_mul(4)..).unwrap_or_default();
    let from = |place: usize| Decoder::new(queued.get(place.saturating_mul(4)..).unwrap_or_default());
    let (mut begin, mut end) = (0, queued.len() / 4);
    while begin < end {
        let middle = begin.midpoint(end);
        match from(middle).u32() {
            Some(position) if position < low => begin = middle.saturating_add(1),
            _ => end = middle,
        }
    }
    let mut wanted = from(begin);
    into.extend(std::iter::from_fn(|| wanted.u32()).take_while(|position| *position < high));
    Ok(())
}

/// An error if any part of the footer is damaged: a crash may have left a whole trailer behind a torn index.
pub fn verify(file: &dyn DiskFile, trailer: &Trailer, name: &str) -> Result<()> {
    read_marks(file, trailer, name)?;
    let directory = read_directory(file, trailer, name)?;
    for entry in directory.entries() {
        read_postings(file, &entry, Class::Queued, name)?;
    }
    Ok(())
}

impl Directory {
    /// The entry of a topic, found by halving.
    pub fn entry(&self, topic: TopicId) -> Option<TopicEntry> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            let entry = self.at(middle)?;
            match entry.topic.cmp(&topic) {
                std::cmp::Ordering::Equal => return Some(entry),
                std::cmp::Ordering::Less => low = middle.saturating_add(1),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// All entries, by topic number.
    pub fn entries(&self) -> impl Iterator<Item = TopicEntry> + '_ {
        (0..self.len()).filter_map(|place| self.at(place))
    }

    /// The entries of some topics, by topic number.
    pub fn among<'a>(&'a self, topics: &'a RoaringBitmap) -> Box<dyn Iterator<Item = TopicEntry> + 'a> {
        let size = super::encoding::wide(self.len());
        if topics.len().saturating_mul(HALVING_STEPS) < size {
            return Box::new(topics.iter().filter_map(|topic| self.entry(TopicId(topic))));
        }
        Box::new(self.entries().filter(|entry| topics.contains(entry.topic.0)))
    }

    /// A topic's name.
    pub fn name(&self, entry: &TopicEntry) -> &[u8] {
        let start = index(entry.name_position);
        self.bytes.get(start..start.saturating_add(index(entry.name_bytes))).unwrap_or_default()
    }

    /// Memory that it takes.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn len(&self) -> usize {
        self.bytes.len().saturating_sub(self.entries_start).checked_div(self.entry_bytes).unwrap_or_default()
    }

    fn at(&self, place: usize) -> Option<TopicEntry> {
        let start = self.entries_start.saturating_add(place.saturating_mul(self.entry_bytes));
        let mut source = Decoder::new(self.bytes.get(start..)?);
        let topic = TopicId(source.u32()?);
        let (plain, queued, postings_position) = (source.u32()?, source.u32()?, source.u32()?);
        let (postings_checksum, name_position, name_bytes) = (source.u32()?, source.u32()?, source.u32()?);
        let (expires_s, bytes) = (source.u32()?, source.u64()?);
        let (plain_messages, queued_messages, kept_messages, first_entry) = match self.entry_bytes {
            ENTRY_BYTES_OLDEST => (plain, queued, 0, None),
            _ => (source.u32()?, source.u32()?, source.u32()?, Some(source.u64()?).filter(|it| *it != u64::MAX)),
        };
        Some(TopicEntry {
            topic,
            plain,
            queued,
            plain_messages,
            queued_messages,
            kept_messages,
            first_entry,
            bytes,
            expires_s,
            postings_position,
            postings_checksum,
            name_position,
            name_bytes,
        })
    }
}

fn read(file: &dyn DiskFile, position: u64, size: usize) -> Result<Vec<u8>> {
    // Zeroed as it is allocated: of memory that is new nothing has to be written for that.
    let mut bytes = vec![0; if wide_fits(file, position, size)? { size } else { 0 }];
    let count = file.read_at(position, &mut bytes)?;
    bytes.truncate(count);
    Ok(bytes)
}

/// A damaged size must not lead to a large allocation.
fn wide_fits(file: &dyn DiskFile, position: u64, size: usize) -> Result<bool> {
    Ok(position.saturating_add(super::encoding::wide(size)) <= file.size()?)
}

fn damaged(name: &str, position: u32, reason: &str) -> Error {
    Error::Damaged { file: name.to_owned(), position: u64::from(position), reason: reason.to_owned() }
}
