//! Checksums by the processor's instruction, which takes eight bytes.
//!
//! One waits for the one before it as long as three take, so that large pieces are summed up in thirds, which wait for
//! nothing of one another.

use super::combine;
use safe_arch::{crc32_u64, crc32_u8};

const WORD_BYTES: usize = 8;

/// What thirds save of less is not what to put them together takes.
const THIRDS_FROM: usize = 1_536;

/// The fewer bits the number of bytes in a third has, the less it takes to put them together.
const ROUND_BYTES: usize = 256;

/// The checksum of what has the checksum `before`, with `bytes` behind it.
pub fn append(before: u32, bytes: &[u8]) -> u32 {
    match bytes.len() < THIRDS_FROM {
        true => !one_by_one(!before, bytes),
        false => !in_thirds(!before, bytes),
    }
}

#[inline]
fn one_by_one(before: u32, bytes: &[u8]) -> u32 {
    let words = bytes.chunks_exact(WORD_BYTES);
    let behind = words.remainder();
    let sum = words.fold(before.into(), next);
    behind.iter().fold(low_half(sum), |sum, byte| crc32_u8(sum, *byte))
}

#[inline(never)]
fn in_thirds(before: u32, bytes: &[u8]) -> u32 {
    let third_bytes = bytes.len() / 3 / ROUND_BYTES * ROUND_BYTES;
    let mut thirds = bytes.chunks_exact(third_bytes);
    let (Some(first), Some(second), Some(third)) = (thirds.next(), thirds.next(), thirds.next()) else {
        return one_by_one(before, bytes);
    };
    let [of_first, of_second, of_third] = [first, second, third].map(|third| third.chunks_exact(WORD_BYTES));
    let words = of_first.zip(of_second).zip(of_third);
    let sums = words.fold((before.into(), 0, 0), |sums, ((one, two), three)| {
        (next(sums.0, one), next(sums.1, two), next(sums.2, three))
    });
    let both = combine(low_half(sums.0), low_half(sums.1), third_bytes);
    one_by_one(combine(both, low_half(sums.2), third_bytes), bytes.get(3 * third_bytes..).unwrap_or_default())
}

#[inline]
fn next(sum: u64, word: &[u8]) -> u64 {
    crc32_u64(sum, word.first_chunk().map_or(0, |word| u64::from_le_bytes(*word)))
}

/// The instruction leaves nothing above it.
fn low_half(sum: u64) -> u32 {
    u32::try_from(sum & 0xffff_ffff).unwrap_or_default()
}
