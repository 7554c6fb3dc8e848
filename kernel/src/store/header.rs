//! The names of the log's files, and what the first bytes of a segment say (`docs/formats/log.md`).

use super::encoding::{Decoder, Encoder};
use crate::error::{Error, Result};
use crate::ids::{LogPosition, Offset, Timestamp};

/// The version of every file of the log that is written.
pub(super) const FORMAT_VERSION: u32 = 2;

/// The oldest version that is read.
pub(super) const FORMAT_VERSION_OLDEST: u32 = 1;

/// Bytes of a segment before its first record.
pub(super) const SEGMENT_HEADER_BYTES: u32 = 96;

const MAGIC: &[u8; 8] = b"HFSEGMNT";

/// Whether a segment is part of the sequence or holds what outlived its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    /// Records in the order in which they were appended, without gaps.
    Log,
    /// Records that were copied from segments that retention removed.
    Carry,
}

/// The start of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The log it belongs to.
    pub epoch: u128,
    /// Log or carry.
    pub kind: SegmentKind,
    /// Its number; later ones are greater.
    pub number: u32,
    /// The first offset it covers.
    pub base_offset: Offset,
    /// The log position of its first byte after the header; of a carry segment, where what it replaces begins.
    pub base_position: LogPosition,
    /// The number of the first control record in it.
    pub base_control: u64,
    /// When it was begun.
    pub created_at: Timestamp,
    /// Of a carry segment: the offset at which what it replaces ends.
    pub end_offset: Offset,
    /// Of a carry segment: the log position at which what it replaces ends.
    pub end_position: LogPosition,
}

impl Header {
    /// True if what a carry segment replaces has this log position in it.
    pub fn covers(&self, position: LogPosition) -> bool {
        self.base_position <= position && position < self.end_position
    }
}

/// The name of a segment's file.
pub fn segment_name(kind: SegmentKind, number: u32) -> String {
    match kind {
        SegmentKind::Log => format!("segment-{number:010}.log"),
        SegmentKind::Carry => format!("carry-{number:010}.log"),
    }
}

/// What kind of segment a file name stands for, and its number.
pub fn parse_segment_name(name: &str) -> Option<(SegmentKind, u32)> {
    let (kind, rest) = match name.strip_prefix("segment-") {
        Some(rest) => (SegmentKind::Log, rest),
        None => (SegmentKind::Carry, name.strip_prefix("carry-")?),
    };
    let number = rest.strip_suffix(".log")?.parse().ok()?;
    (segment_name(kind, number) == name).then_some((kind, number))
}

/// The bytes of a header.
pub fn encode(header: &Header) -> Vec<u8> {
    let mut out = Vec::with_capacity(96);
    out.put(MAGIC);
    out.put_u32(FORMAT_VERSION);
    out.put_u32(header.number);
    out.put_u128(header.epoch);
    out.put_u32(u32::from(header.kind == SegmentKind::Carry));
    out.put_u64(header.base_offset.0);
    out.put_u64(header.base_position.0);
    out.put_u64(header.base_control);
    out.put_u64(header.created_at.0);
    out.put_u64(header.end_offset.0);
    out.put_u64(header.end_position.0);
    out.put_u64(0);
    let checksum = crate::checksum::of(&out);
    out.put_u32(checksum);
    out
}

/// The header at the start of `bytes`: `None` if there is none, an error if a newer version wrote it.
pub fn decode(bytes: &[u8], file: &str) -> Result<Option<Header>> {
    let Some(checked) = bytes.get(..92) else { return Ok(None) };
    let checksum = Decoder::new(bytes.get(92..).unwrap_or_default()).u32();
    if checksum != Some(crate::checksum::of(checked)) {
        return Ok(None);
    }
    let mut source = Decoder::new(checked);
    if source.take(8) != Some(MAGIC) {
        return Ok(None);
    }
    match source.u32() {
        Some(FORMAT_VERSION_OLDEST..=FORMAT_VERSION) => Ok(fields(&mut source)),
        Some(version) if version > FORMAT_VERSION => Err(Error::NewerFormat { file: file.to_owned(), version }),
        _ => Ok(None),
    }
}

fn fields(source: &mut Decoder<'_>) -> Option<Header> {
    let number = source.u32()?;
    let epoch = source.u128()?;
    let kind = if source.u32()? == 0 { SegmentKind::Log } else { SegmentKind::Carry };
    Some(Header {
        epoch,
        kind,
        number,
        base_offset: Offset(source.u64()?),
        base_position: LogPosition(source.u64()?),
        base_control: source.u64()?,
        created_at: Timestamp(source.u64()?),
        end_offset: Offset(source.u64()?),
        end_position: LogPosition(source.u64()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Header {
        Header {
            epoch: 77,
            kind: SegmentKind::Carry,
            number: 3,
            base_offset: Offset(10),
            base_position: LogPosition(2_000),
            base_control: 4,
            created_at: Timestamp(5),
            end_offset: Offset(20),
            end_position: LogPosition(6_000),
        }
    }

    #[test]
    fn a_header_comes_back_and_damage_is_noticed() {
        let mut bytes = encode(&example());
        assert_eq!(bytes.len(), usize::try_from(SEGMENT_HEADER_BYTES).unwrap());
        assert_eq!(decode(&bytes, "x"), Ok(Some(example())));
        bytes[30] ^= 1;
        assert_eq!(decode(&bytes, "x"), Ok(None));
        assert_eq!(decode(&[0; 96], "x"), Ok(None));
    }

    #[test]
    fn a_newer_version_is_named() {
        let mut bytes = encode(&example());
        bytes[8] = 3;
        let checksum = crate::checksum::of(&bytes[..92]).to_le_bytes();
        bytes[92..96].copy_from_slice(&checksum);
        assert_eq!(decode(&bytes, "x"), Err(Error::NewerFormat { file: "x".into(), version: 3 }));
    }

    #[test]
    fn only_names_of_segments_are_segments() {
        assert_eq!(parse_segment_name(&segment_name(SegmentKind::Log, 12)), Some((SegmentKind::Log, 12)));
        assert_eq!(parse_segment_name(&segment_name(SegmentKind::Carry, 0)), Some((SegmentKind::Carry, 0)));
        assert_eq!(parse_segment_name("segment-12.log"), None);
        assert_eq!(parse_segment_name("checkpoint-0000000012"), None);
    }
}
