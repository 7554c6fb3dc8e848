//! Who gets a record next: the tables that policy compiled, evaluated.
//!
//! Owns: the ways to choose, what a key is taken from and its hash, the owner of each key slot, the turn in a round.
//! Never: decides which way is taken or who owns what; the caller says so, and who has room.

use crate::error::{Error, Result};
use crate::ids::KeySlot;
use std::sync::Arc;

/// How the next one is chosen among those that have room.
#[derive(Debug, Clone, Default)]
pub enum Selection<Owner> {
    /// Each in its turn.
    #[default]
    Turns,
    /// Who has least to do; each in its turn among those.
    LeastLoaded,
    /// The same one as long as it has room.
    Stay,
    /// Whoever owns the slot of the record's key, nobody else.
    ByKey(Key, Arc<Owners<Owner>>),
}

impl<Owner: Copy> Selection<Owner> {
    /// The same way to choose among others: for each owner, who stands in for it, if anybody does.
    pub fn among<Other>(&self, stands_in: impl Fn(Owner) -> Option<Other>) -> Selection<Other> {
        match self {
            Selection::Turns => Selection::Turns,
            Selection::LeastLoaded => Selection::LeastLoaded,
            Selection::Stay => Selection::Stay,
            Selection::ByKey(key, owners) => {
                let owned = owners.ranges.iter();
                let ranges = owned.filter_map(|(start, end, owner)| Some((*start, *end, stands_in(*owner)?))).collect();
                Selection::ByKey(key.clone(), Arc::new(Owners { ranges }))
            }
        }
    }
}

/// What the key of a record is taken from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// Its topic.
    Topic,
    /// Who published it: the slot that its records carry.
    Publisher,
    /// The first user property of this name; its topic where there is none.
    UserProperty(Arc<[u8]>),
}

impl Key {
    /// The slot of a record's key. `properties` are as in [`crate::flow::Publish::properties`].
    pub fn slot(&self, topic: &[u8], properties: &[u8], publisher: KeySlot) -> KeySlot {
        match self {
            Key::Topic => key_slot(topic),
            Key::Publisher => publisher,
            Key::UserProperty(name) => key_slot(user_property(properties, name).unwrap_or(topic)),
        }
    }
}

/// The value of the first user property of a name. What else travels with a message is a byte (0x01) or has a length.
fn user_property<'a>(mut properties: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    while let Some((identifier, rest)) = properties.split_first() {
        if *identifier == 0x01 {
            properties = rest.get(1..)?;
            continue;
        }
        let (first, rest) = field(rest)?;
        properties = rest;
        if *identifier == 0x26 {
            let (value, rest) = field(rest)?;
            properties = rest;
            if first == name {
                return Some(value);
            }
        }
    }
    None
}

/// A string or binary value with its two length bytes, and what follows it.
fn field(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (size, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*size)))
}

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
pub struct Owners<Owner> {
    /// First slot, slot after the last, owner; in order and disjoint.
    ranges: Vec<(u32, u32, Owner)>,
}

impl<Owner: Copy> Owners<Owner> {
    /// A table of half-open ranges, given in any order; slots in none of them have no owner. Refused if a range is
    /// empty, ends past the last slot or overlaps another.
    pub fn new(mut ranges: Vec<(u32, u32, Owner)>) -> Result<Owners<Owner>> {
        ranges.sort_unstable_by_key(|(start, _, _)| *start);
        let mut free_from = 0;
        for (start, end, _) in &ranges {
            if *start < free_from || start >= end || *end > KEY_SLOTS {
                return Err(Error::Invalid(format!(
                    "key slots [{start}, {end}) are empty, taken twice or past {KEY_SLOTS}"
                )));
            }
            free_from = *end;
        }
        Ok(Owners { ranges })
    }

    /// Who owns a slot.
    pub fn owner(&self, slot: KeySlot) -> Option<Owner> {
        let slot = u32::from(slot.0);
        let after = self.ranges.partition_point(|(start, _, _)| *start <= slot);
        let (_, end, owner) = self.ranges.get(after.checked_sub(1)?)?;
        (slot < *end).then_some(*owner)
    }
}

/// Members in a round.
#[derive(Debug, Clone)]
pub struct Round<Member> {
    members: Vec<Member>,
    /// The index of the one whose turn it is.
    turn: usize,
}

impl<Member> Default for Round<Member> {
    fn default() -> Round<Member> {
        Round::of(Vec::new(), 0)
    }
}

impl<Member: PartialEq> Round<Member> {
    /// A member joins at the end of the round; one that is in it stays where it is.
    pub fn join(&mut self, member: Member) {
        if !self.members.contains(&member) {
            self.members.push(member);
        }
    }

    /// A member leaves the round; the turns of the others keep their order.
    pub fn leave(&mut self, member: &Member) {
        if let Some(index) = self.members.iter().position(|other| other == member) {
            self.members.remove(index);
            if index < self.turn {
                self.turn -= 1;
            }
        }
    }
}

impl<Member> Round<Member> {
    /// A round of these, with the turn at this index.
    pub fn of(members: Vec<Member>, turn: usize) -> Round<Member> {
        Round { members, turn }
    }

    /// The index of the one whose turn it is.
    pub fn turn(&self) -> usize {
        self.turn
    }

    /// Everybody in the round, in its order.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The next one, of those for which `load` gives what they have to do; it gives `None` for one without room.
    /// Who owns a key is not asked here.
    pub fn next<Owner>(
        &mut self,
        selection: &Selection<Owner>,
        mut load: impl FnMut(&Member) -> Option<usize>,
    ) -> Option<&mut Member> {
        let turn = self.turn.min(self.members.len());
        let in_turn = (turn..self.members.len()).chain(0..turn);
        let mut loads = in_turn.filter_map(|index| Some((index, load(self.members.get(index)?)?)));
        let (index, _) = match selection {
            Selection::LeastLoaded => loads.min_by_key(|(_, load)| *load)?,
            _ => loads.next()?,
        };
        self.turn = if matches!(selection, Selection::Stay) { index } else { index + 1 };
        self.members.get_mut(index)
    }
}
