//! Where the keys of a group are, if it gives each key to one member: who has messages of it in flight, and what waits.
//!
//! Owns: that order. Never: knows who has room, or what a key means; a key is its slot.
//!
//! Invariants:
//! 1. Messages in flight of one slot are at one member: its owner, or the one that it moves away from.
//! 2. A slot moves when what is in flight of it has been settled, or its holder is gone; until then what comes waits.
//! 3. Of one slot, what waits goes out in offset order, before anything that is read after it.
//! 4. At most [`KEYS_WAITING_MAXIMUM`] messages wait while those of other keys go past them.

use super::window::Spread;
use crate::flow::Found;
use crate::ids::{KeySlot, Offset, Receiver, Timestamp};
use crate::limits::KEYS_WAITING_MAXIMUM;
use crate::selection::{Key, Owners};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// What is in flight of one slot.
#[derive(Debug, Clone)]
pub struct Hold {
    /// The slot.
    pub slot: KeySlot,
    /// At whom.
    pub receiver: Receiver,
    /// How many messages.
    pub in_flight: usize,
    /// How many wait until the slot can move; known of what [`Keys::holds`] gives.
    pub moving: usize,
    /// Since when without a gap.
    pub since: Timestamp,
    /// The first message of that time.
    pub first: Offset,
}

/// The keys of one group.
#[derive(Debug)]
pub struct Keys {
    /// What keys are taken from.
    pub key: Key,
    owners: Arc<Owners<Receiver>>,
    holds: HashMap<KeySlot, Hold, Spread>,
    /// The slot of each message in flight.
    slots: HashMap<Offset, KeySlot, Spread>,
    /// What waits for room at its owner.
    lanes: BTreeMap<Receiver, VecDeque<Found>>,
    /// What waits until its slot can move.
    moving: BTreeMap<KeySlot, VecDeque<Found>>,
    waiting: usize,
    /// Messages in flight at QoS 1 from before, when keys were others or none: nothing is given until they are settled.
    before: usize,
    /// Slots of messages that are not durable yet, in offset order.
    ahead: VecDeque<(Offset, KeySlot)>,
}

impl Keys {
    /// Keys of a group that has `before` messages in flight.
    pub fn new(key: Key, owners: Arc<Owners<Receiver>>, before: usize) -> Keys {
        let (holds, slots, ahead) = (HashMap::default(), HashMap::default(), VecDeque::new());
        Keys { key, owners, holds, slots, lanes: BTreeMap::new(), moving: BTreeMap::new(), waiting: 0, before, ahead }
    }

    /// Divides the slots anew. What waits is forgotten: it is looked up again.
    pub fn divide(&mut self, owners: Arc<Owners<Receiver>>) {
        self.owners = owners;
        self.forget();
    }

    /// Forgets what waits, since something that came back may lie before it.
    pub fn forget(&mut self) {
        self.lanes.clear();
        self.moving.clear();
        self.waiting = 0;
    }

    /// A message was stored and will be offered once it is durable.
    pub fn expect(&mut self, offset: Offset, slot: KeySlot) {
        self.ahead.push_back((offset, slot));
    }

    /// The slot of a message that is offered.
    pub fn expected(&mut self, offset: Offset) -> Option<KeySlot> {
        while self.ahead.front().is_some_and(|(ahead, _)| *ahead < offset) {
            self.ahead.pop_front();
        }
        let slot = self.ahead.front().filter(|(ahead, _)| *ahead == offset).map(|(_, slot)| *slot);
        self.ahead.drain(..usize::from(slot.is_some()));
        slot
    }

    /// True if further messages may be looked at.
    pub fn looks_on(&self) -> bool {
        self.waiting < KEYS_WAITING_MAXIMUM && self.before == 0
    }

    /// How many messages wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Who gets a message of this slot if it has room; `None` while the slot cannot move there, or nobody owns it.
    pub fn owner(&self, slot: KeySlot) -> Option<Receiver> {
        let owner = self.owners.owner(slot)?;
        self.holds.get(&slot).is_none_or(|hold| hold.receiver == owner).then_some(owner)
    }

    /// True if nothing waits for room there.
    pub fn is_clear(&self, owner: Receiver) -> bool {
        !self.lanes.contains_key(&owner)
    }

    /// The message waits: for room at its owner, or without one until its slot can move.
    pub fn wait(&mut self, owner: Option<Receiver>, found: Found) {
        self.waiting += 1;
        match owner {
            Some(owner) => self.lanes.entry(owner).or_default().push_back(found),
            None => self.moving.entry(found.key_slot).or_default().push_back(found),
        }
    }

    /// Those for whose room something waits.
    pub fn waited_for(&self) -> impl Iterator<Item = Receiver> + '_ {
        self.lanes.keys().copied()
    }

    /// The first message that waits for room there.
    pub fn take(&mut self, owner: Receiver) -> Option<Found> {
        let lane = self.lanes.get_mut(&owner)?;
        let found = lane.pop_front()?;
        if lane.is_empty() {
            self.lanes.remove(&owner);
        }
        self.waiting -= 1;
        Some(found)
    }

    /// A message went out at QoS 1 or 2.
    pub fn sent(&mut self, found: &Found, receiver: Receiver, now: Timestamp) {
        let (slot, first) = (found.key_slot, found.offset);
        let new = Hold { slot, receiver, in_flight: 0, moving: 0, since: now, first };
        self.holds.entry(slot).or_insert(new).in_flight += 1;
        self.slots.insert(first, slot);
    }

    /// How many messages are in flight; those of QoS 2 until they are received.
    pub fn in_flight(&self) -> usize {
        self.slots.len().saturating_add(self.before)
    }

    /// A message is in flight no more: acknowledged, received, given up, or its member is gone. With the last one of
    /// its slot the slot may move.
    pub fn ended(&mut self, offset: Offset, was_held: bool) {
        let Some(slot) = self.slots.remove(&offset) else {
            self.before = self.before.saturating_sub(usize::from(was_held));
            return;
        };
        let Some(hold) = self.holds.get_mut(&slot) else { return };
        hold.in_flight = hold.in_flight.saturating_sub(1);
        if hold.in_flight > 0 {
            return;
        }
        self.holds.remove(&slot);
        let Some(owner) = self.owners.owner(slot) else { return };
        for found in self.moving.remove(&slot).into_iter().flatten().rev() {
            self.lanes.entry(owner).or_default().push_front(found);
        }
    }

    /// The slots with messages in flight, those held longest first.
    pub fn holds(&self, maximum: usize) -> Vec<Hold> {
        let moving = |hold: &Hold| self.moving.get(&hold.slot).map_or(0, VecDeque::len);
        let mut holds: Vec<Hold> =
            self.holds.values().map(|hold| Hold { moving: moving(hold), ..hold.clone() }).collect();
        holds.sort_unstable_by_key(|hold| (hold.since, hold.slot));
        holds.truncate(maximum);
        holds
    }
}
