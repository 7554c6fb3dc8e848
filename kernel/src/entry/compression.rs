//! How the payload of an entry is compressed, and how that is undone.
//!
//! Invariants:
//! 1. Memory is taken for what the entry says, and only if so many bytes can come of its payload, and no more than
//!    [`ENTRY_OPENED_BYTES_MAXIMUM`].
//! 2. What becomes of it has the size that the entry says, or nothing becomes of it.

use super::Closed;
use crate::limits::ENTRY_OPENED_BYTES_MAXIMUM;
use flate2::{Decompress, FlushDecompress, Status};

/// What a stream of ZLIB has at a place up to which everything was written: an empty block.
const FLUSHED: &[u8] = &[0, 0, 0xff, 0xff];

/// The ways in which a payload may be compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// It is not.
    #[default]
    None,
    /// A block of LZ4 without a frame.
    Lz4,
    /// A stream of ZLIB.
    Zlib,
    /// A frame of Zstandard.
    Zstd,
    /// A block of Snappy without a frame.
    Snappy,
}

impl Compression {
    /// The way with this number on the wire.
    pub fn from_number(number: u64) -> Option<Compression> {
        let ways = [Compression::None, Compression::Lz4, Compression::Zlib, Compression::Zstd, Compression::Snappy];
        ways.get(usize::try_from(number).ok()?).copied()
    }

    /// To so many bytes at most one of the compressed ones can grow. LZ4 adds 255 with a byte, DEFLATE 258 with two
    /// bits, Snappy 64 with three bytes; Zstandard repeats a byte 131 072 times in four.
    fn growth_maximum(self) -> usize {
        match self {
            Compression::None => 1,
            Compression::Lz4 => 255,
            Compression::Zlib => 1_032,
            Compression::Zstd => 32_768,
            Compression::Snappy => 22,
        }
    }

    /// Writes the payload in place of what is in `into`, as it was before it was compressed to `size` bytes less.
    pub(super) fn undo(self, payload: &[u8], size: u32, into: &mut Vec<u8>) -> Result<(), Closed> {
        into.clear();
        if self == Compression::None {
            if payload.len() > ENTRY_OPENED_BYTES_MAXIMUM {
                return Err(Closed::TooLarge);
            }
            into.extend_from_slice(payload);
            return Ok(());
        }
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        if size > ENTRY_OPENED_BYTES_MAXIMUM {
            return Err(Closed::TooLarge);
        }
        if size > payload.len().saturating_mul(self.growth_maximum()) {
            return Err(Closed::Malformed);
        }
        into.resize(size, 0);
        let undone = match self {
            Compression::None => None,
            Compression::Lz4 => lz4_flex::block::decompress_into(payload, into).ok(),
            Compression::Zlib => inflated(payload, into),
            Compression::Zstd => zstd::bulk::decompress_to_buffer(payload, into.as_mut_slice()).ok(),
            Compression::Snappy => snap::raw::Decoder::new().decompress(payload, into).ok(),
        };
        if undone == Some(size) {
            return Ok(());
        }
        into.clear();
        Err(Closed::Malformed)
    }
}

/// How many bytes of `into` a stream of ZLIB fills; `None` if it does not end within it.
fn inflated(payload: &[u8], into: &mut [u8]) -> Option<usize> {
    if payload.is_empty() || payload.ends_with(FLUSHED) {
        return inflated_flushed(payload, into);
    }
    let mut stream = Decompress::new(true);
    let status = stream.decompress(payload, into, FlushDecompress::Finish).ok()?;
    usize::try_from(stream.total_out()).ok().filter(|_| status == Status::StreamEnd)
}

/// The same of a stream that is flushed in place of ended, as Pulsar's client for Java leaves it: that nothing more
/// comes of it stands for its end. Of nothing it makes a stream without a byte.
fn inflated_flushed(payload: &[u8], into: &mut [u8]) -> Option<usize> {
    let mut stream = Decompress::new(true);
    let mut status = Status::Ok;
    // A byte beyond is where it would go on. It is given once there is no room before it.
    let mut beyond = [0];
    for room in [into, &mut beyond] {
        let rest = payload.get(usize::try_from(stream.total_in()).ok()?..)?;
        if status != Status::StreamEnd {
            status = stream.decompress(rest, room, FlushDecompress::Sync).ok()?;
        }
    }
    usize::try_from(stream.total_out()).ok()
}
