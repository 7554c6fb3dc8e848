//! All attached queues, and the order in which they get a turn.
//!
//! Owns: their handles, who is ready, and which groups have something to remember. Never: decides what a queue gives.

use super::queue::Queue;
use crate::error::{Error, Result};
use crate::ids::{self, Party};
use crate::slots::Slots;
use crate::topic::grant::{Grant, HeldGrants};
use std::collections::{BTreeMap, VecDeque};

/// All attached queues.
#[derive(Debug, Default)]
pub(super) struct Queues {
    slots: Slots<ids::Queue, Queue>,
    groups: BTreeMap<Party, ids::Queue>,
    /// Handles of queues that are gone, with how many messages had arrived by then.
    freed: VecDeque<(ids::Queue, u64)>,
    ready: VecDeque<ids::Queue>,
    /// Whose turn it is to ask the log first, among those that are ready.
    first_scan: usize,
    changed_groups: Vec<ids::Queue>,
    grants: HeldGrants,
}

/// What became of a queue's turn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// It has nothing more, or nobody has room: an acknowledgement or a new message makes it ready again.
    Rests,
    /// It has more than one turn may send.
    GoesOn,
}

impl Queues {
    pub fn get(&self, handle: ids::Queue) -> Option<&Queue> {
        self.slots.get(handle)
    }

    #[inline]
    pub fn get_mut(&mut self, handle: ids::Queue) -> Option<&mut Queue> {
        self.slots.get_mut(handle)
    }

    pub fn find(&mut self, handle: ids::Queue) -> Result<&mut Queue> {
        self.slots.get_mut(handle).ok_or_else(|| Error::Invalid(format!("there is no queue {}", handle.0)))
    }

    /// The queue of a party's group.
    pub fn of_group(&self, party: Party) -> Option<ids::Queue> {
        self.groups.get(&party).copied()
    }

    /// Another queue, when `settled` messages have been offered of all that arrived. A handle is used again only when
    /// no message that is still on its way names it.
    pub fn add(&mut self, queue: Queue, settled: u64) -> ids::Queue {
        let freed = self.freed.front().filter(|(_, until)| *until <= settled).map(|(handle, _)| *handle);
        let handle = freed.unwrap_or_else(|| self.slots.fresh());
        if freed.is_some() {
            self.freed.pop_front();
        }
        if queue.group.is_some() {
            self.groups.insert(queue.party, handle);
        }
        self.slots.put(handle, queue);
        self.make_ready(handle);
        handle
    }

    /// A queue is gone, when so many messages have arrived.
    pub fn remove(&mut self, handle: ids::Queue, arrived: u64) -> Option<Queue> {
        let queue = self.slots.take(handle)?;
        if queue.group.is_some() {
            self.groups.remove(&queue.party);
        }
        self.freed.push_back((handle, arrived));
        self.ready.retain(|ready| *ready != handle);
        Some(queue)
    }

    /// The grant of these rules, which queues with the same ones share.
    pub fn grant<Filter: AsRef<[u8]>>(&mut self, rules: &[(Filter, bool)]) -> Result<Grant> {
        self.grants.grant(rules)
    }

    /// The queue gets a turn.
    pub fn make_ready(&mut self, handle: ids::Queue) {
        let Some(queue) = self.slots.get_mut(handle) else { return };
        if !queue.is_ready {
            queue.is_ready = true;
            self.ready.push_back(handle);
        }
    }

    /// Those that get a turn.
    pub fn ready(&self) -> impl Iterator<Item = (ids::Queue, &Queue)> {
        self.ready.iter().filter_map(|handle| Some((*handle, self.slots.get(*handle)?)))
    }

    /// How many get a turn.
    pub fn ready_count(&self) -> usize {
        self.ready.len()
    }

    /// The same, beginning with another one each time, so that none waits behind one that has much to look through.
    pub fn ready_by_turns(&mut self) -> impl Iterator<Item = (ids::Queue, &Queue)> {
        let count = self.ready.len();
        self.first_scan = self.first_scan.wrapping_add(1).checked_rem(count).unwrap_or_default();
        let handles = self.ready.iter().copied().cycle().skip(self.first_scan).take(count);
        handles.filter_map(|handle| Some((handle, self.slots.get(handle)?)))
    }

    /// The next one to get its turn.
    pub fn begin_turn(&mut self) -> Option<ids::Queue> {
        self.ready.pop_front()
    }

    /// It has had its turn.
    pub fn end_turn(&mut self, handle: ids::Queue, turn: Turn) {
        let Some(queue) = self.slots.get_mut(handle) else { return };
        if turn == Turn::GoesOn || queue.reads_on() {
            self.ready.push_back(handle);
        } else {
            queue.is_ready = false;
        }
    }

    /// A group has something to remember.
    pub fn change_group(&mut self, handle: ids::Queue) {
        let Some(group) = self.slots.get_mut(handle).and_then(|queue| queue.group.as_mut()) else { return };
        if !group.is_changed {
            group.is_changed = true;
            self.changed_groups.push(handle);
        }
    }

    /// Those with something to remember since the last call.
    pub fn take_changed_groups(&mut self) -> Vec<ids::Queue> {
        std::mem::take(&mut self.changed_groups)
    }
}
