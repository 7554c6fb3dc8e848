//! Whose turn it is when a message of QoS 0 passes through to a group.
//!
//! Owns: the members of each group, as the caller gave them. Never: stores a message, or knows one of QoS 1 or 2;
//! those are the group's queue's.

use crate::flow::Terms;
use crate::ids::{Connection, Party, Queue};
use std::collections::BTreeMap;

/// A connection that takes its turn, and how it wants messages.
#[derive(Debug, Clone)]
pub struct Member {
    /// To whom.
    pub connection: Connection,
    /// On which terms.
    pub terms: Terms,
}

#[derive(Debug)]
struct Group {
    party: Party,
    members: Vec<Member>,
    /// The index of the one whose turn it is.
    turn: usize,
}

/// All groups that have members.
#[derive(Debug, Default)]
pub struct Sharing {
    groups: BTreeMap<Queue, Group>,
}

impl Sharing {
    /// These share the queue's messages from now on; without members the queue is forgotten.
    pub fn set(&mut self, queue: Queue, party: Party, members: Vec<Member>) {
        if members.is_empty() {
            self.groups.remove(&queue);
            return;
        }
        let turn = self.groups.get(&queue).map_or(0, |group| group.turn);
        self.groups.insert(queue, Group { party, members, turn });
    }

    /// The next member in turn that has room; `None` if none has.
    pub fn next(&mut self, queue: Queue, mut has_room: impl FnMut(Connection) -> bool) -> Option<&Member> {
        let Group { members, turn, .. } = self.groups.get_mut(&queue)?;
        let (before, from_turn) = members.split_at(members.len().min(*turn));
        let mut in_turn = (before.len()..).zip(from_turn).chain((0..).zip(before));
        let (index, member) = in_turn.find(|(_, member)| has_room(member.connection))?;
        *turn = index + 1;
        Some(member)
    }

    /// Whose messages they are.
    pub fn party(&self, queue: Queue) -> Option<Party> {
        self.groups.get(&queue).map(|group| group.party)
    }
}
