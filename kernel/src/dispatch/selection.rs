//! Who gets a record next: the tables that policy compiled, evaluated.
//!
//! Owns: the hash of keys, the owner of each key slot, the turn in a round. Never: decides who owns what; the
//! caller divides the slots and says who has room.

use super::cursor::Holder;
use crate::error::{Error, Result};
use crate::ids::KeySlot;

/// The number of key slots: every key hashes to one of them.
pub const KEY_SLOTS: u32 = 65_536;

/// The slot of a key: MurmurHash3 (x86, 32 bit, seed 0) modulo 65 536.
pub fn key_slot(key: &[u8]) -> KeySlot {
    KeySlot(u16::try_from(murmur3_32(key) % KEY_SLOTS).unwrap_or_default())
}

/// MurmurHash3, the 32-bit variant for x86, with seed 0.
pub fn murmur3_32(key: &[u8]) -> u32 {
    let scramble = |block: u32| block.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let mut hash = 0u32;
    let mut tail = key;
    while let Some((block, rest)) = tail.split_first_chunk::<4>() {
        hash ^= scramble(u32::from_le_bytes(*block));
        hash = hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
        tail = rest;
    }
    let last = tail.iter().rev().fold(0u32, |block, byte| (block << 8) | u32::from(*byte));
    hash ^= scramble(last);
    // The algorithm adds the length modulo 2^32.
    hash ^= u32::try_from(key.len() & 0xffff_ffff).unwrap_or_default();
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

/// The owner of each key slot, as the caller divided them.
#[derive(Debug, Clone, Default)]
pub struct Owners {
    /// First slot, slot after the last, owner; in order and disjoint.
    ranges: Vec<(u32, u32, Holder)>,
}

impl Owners {
    /// Replaces the table. Ranges are half-open, in any order; slots in none of them have no owner. Refused, with the
    /// table unchanged, if a range is empty, ends past the last slot or overlaps another.
    pub fn set(&mut self, ranges: &[(u32, u32, Holder)]) -> Result<()> {
        let mut sorted = ranges.to_vec();
        sorted.sort_unstable_by_key(|(start, _, _)| *start);
        let mut free_from = 0;
        for (start, end, _) in &sorted {
            if *start < free_from || start >= end || *end > KEY_SLOTS {
                return Err(Error::Invalid(format!(
                    "key slots [{start}, {end}) are empty, taken twice or past {KEY_SLOTS}"
                )));
            }
            free_from = *end;
        }
        self.ranges = sorted;
        Ok(())
    }

    /// Who owns a slot.
    pub fn owner(&self, slot: KeySlot) -> Option<Holder> {
        let slot = u32::from(slot.0);
        let after = self.ranges.partition_point(|(start, _, _)| *start <= slot);
        let (_, end, holder) = self.ranges.get(after.checked_sub(1)?)?;
        (slot < *end).then_some(*holder)
    }
}

/// Holders in a round, each in its turn.
#[derive(Debug, Clone, Default)]
pub struct Round {
    holders: Vec<Holder>,
    /// The index of the one whose turn it is.
    turn: usize,
}

impl Round {
    /// A holder joins at the end of the round; one that is in it stays where it is.
    pub fn join(&mut self, holder: Holder) {
        if !self.holders.contains(&holder) {
            self.holders.push(holder);
        }
    }

    /// A holder leaves the round; the turns of the others keep their order.
    pub fn leave(&mut self, holder: Holder) {
        if let Some(index) = self.holders.iter().position(|other| *other == holder) {
            self.holders.remove(index);
            if index < self.turn {
                self.turn -= 1;
            }
        }
    }

    /// Everybody in the round, in its order.
    pub fn holders(&self) -> &[Holder] {
        &self.holders
    }

    /// The next holder in turn that has room; `None` if none has.
    pub fn next(&mut self, mut has_room: impl FnMut(Holder) -> bool) -> Option<Holder> {
        let (before, from_turn) = self.holders.split_at_checked(self.turn).unwrap_or((&self.holders, &[]));
        let mut in_turn = (self.turn..).zip(from_turn).chain((0..).zip(before));
        let (index, holder) = in_turn.find(|(_, holder)| has_room(**holder))?;
        let holder = *holder;
        self.turn = index + 1;
        Some(holder)
    }
}
