//! Making sure of what recovery found: whatever no sync is known to have covered is written and synced again.
//!
//! A process that ends, or whose sync failed, leaves bytes that every read sees and the medium may not have. A sync
//! alone does not bring them there: after a failed one the operating system may hold such pages for clean. So they
//! are written again first. And names that only a footer knows are written as records again.

use super::archive::Archive;
use super::dictionary::Topic;
use super::encoding::{index, index64, wide};
use super::header::{SegmentKind, SEGMENT_HEADER_BYTES};
use super::records::Records;
use super::replay::Pages;
use super::segment::Segment;
use crate::error::Result;
use crate::ids::{LogPosition, Timestamp, TopicId};
use crate::limits::BLOCK_BYTES;

/// Everything up to the log's end is on the medium afterwards. `known` is what a checkpoint stands on; above it,
/// and above the last place that a marker vouches for, the bytes are written anew.
pub(super) fn make_durable(archive: &Archive, known: LogPosition) -> Result<()> {
    for segment in archive.segments.iter().rev().filter(|segment| segment.header.kind == SegmentKind::Log) {
        let base = segment.header.base_position;
        let pages = Pages::read(segment.file.as_ref(), Some(segment.end), archive.salt)?;
        let vouched = pages.vouched(SEGMENT_HEADER_BYTES, segment.header.base_offset.0);
        let sure = vouched.unwrap_or_default().max(known);
        rewrite(segment, sure)?;
        segment.file.sync()?;
        if sure > base {
            break;
        }
    }
    Ok(())
}

/// Topics of which only a footer knew get a record again, so that later footers do not have to be trusted.
pub(super) fn declare_learned(records: &mut Records, now: Timestamp) -> Result<()> {
    let undeclared = records.derived.dictionary.topics().filter(|(_, topic)| topic.declared_at == LogPosition(0));
    let undeclared: Vec<(TopicId, Topic)> = undeclared.map(|(id, topic)| (id, topic.clone())).collect();
    for (id, topic) in undeclared {
        if let Some(name) = &topic.name {
            records.put_topic(id, name, topic.next_entry, now)?;
        }
    }
    Ok(())
}

/// Writes a segment's bytes from the log position `sure` on once more: header, records and footer.
fn rewrite(segment: &Segment, sure: LogPosition) -> Result<()> {
    let size = segment.file.size()?.min(u64::from(u32::MAX));
    let end = if segment.is_sealed() { size } else { u64::from(segment.end).min(size) };
    let within = sure.0.saturating_sub(segment.header.base_position.0);
    let mut position = if within == 0 { 0 } else { within.saturating_add(u64::from(SEGMENT_HEADER_BYTES)) };
    let mut block = vec![0; index(BLOCK_BYTES)];
    while position < end {
        let wanted = block.len().min(index64(end.saturating_sub(position)));
        let count = segment.file.read_at(position, block.get_mut(..wanted).unwrap_or_default())?;
        if count == 0 {
            break;
        }
        segment.file.write_at(position, block.get(..count).unwrap_or_default())?;
        position = position.saturating_add(wide(count));
    }
    Ok(())
}
