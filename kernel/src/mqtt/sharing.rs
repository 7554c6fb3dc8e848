//! Who gets a message of QoS 0 that passes through to a group.
//!
//! Owns: the members of each group, as the caller gave them. Never: stores a message, or knows one of QoS 1 or 2;
//! those are the group's queue's.

use crate::flow::Terms;
use crate::ids::{Connection, KeySlot, Party, Queue};
use crate::selection::{Key, Round, Selection};
use std::collections::BTreeMap;

/// A connection that shares, and how it wants messages.
#[derive(Debug, Clone)]
pub struct Member {
    /// To whom.
    pub connection: Connection,
    /// On which terms.
    pub terms: Terms,
    /// How many messages it has been given.
    pub given: u64,
}

#[derive(Debug)]
struct Group {
    party: Party,
    selection: Selection<Connection>,
    round: Round<Member>,
}

/// All groups that have members.
#[derive(Debug, Default)]
pub struct Sharing {
    groups: BTreeMap<Queue, Group>,
}

impl Sharing {
    /// These share the queue's messages from now on; without members the queue is forgotten.
    pub fn set(&mut self, queue: Queue, party: Party, selection: Selection<Connection>, mut members: Vec<Member>) {
        let known = self.groups.remove(&queue);
        if members.is_empty() {
            return;
        }
        for member in &mut members {
            let before = known.iter().flat_map(|group| group.round.members());
            let before = before.filter(|other| other.connection == member.connection);
            member.given = before.map(|other| other.given).sum();
        }
        let turn = known.map_or(0, |group| group.round.turn());
        self.groups.insert(queue, Group { party, selection, round: Round::of(members, turn) });
    }

    /// The next member, of those for which `load` gives how much waits for them; `None` if none has room. `slot` is
    /// asked
    /// where the message's key decides.
    pub fn next(
        &mut self,
        queue: Queue,
        slot: impl FnOnce(&Key) -> KeySlot,
        load: impl Fn(Connection) -> Option<usize>,
    ) -> Option<&Member> {
        let Group { selection, round, .. } = self.groups.get_mut(&queue)?;
        let owner = match selection {
            Selection::ByKey(key, owners) => Some(owners.owner(slot(key))?),
            _ => None,
        };
        let may = |member: &Member| owner.is_none_or(|owner| owner == member.connection);
        let member = round.next(selection, |member| if may(member) { load(member.connection) } else { None })?;
        member.given = member.given.wrapping_add(1);
        Some(member)
    }

    /// The members of a queue.
    pub fn members(&self, queue: Queue) -> &[Member] {
        self.groups.get(&queue).map_or(&[], |group| group.round.members())
    }

    /// Whose messages they are.
    pub fn party(&self, queue: Queue) -> Option<Party> {
        self.groups.get(&queue).map(|group| group.party)
    }
}
