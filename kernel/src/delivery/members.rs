//! What a queue has beside its cursor if several receivers take from it, and a receiver's part in that.
//!
//! Owns: the data of groups and memberships. Never: decides or moves anything; `group` does.

use super::keys::Keys;
use super::pack::Pack;
use crate::flow::state::State;
use crate::flow::{Found, Subscription, Terms};
use crate::ids::{self, Offset, Party, Receiver};
use crate::selection::{Round, Selection};
use std::collections::VecDeque;
use std::sync::Arc;

/// What a queue has beside its cursor and entries if it is a group's.
#[derive(Debug, Default)]
pub struct Group {
    pub(super) round: Round<Receiver>,
    /// How the next member is chosen.
    pub(super) selection: Selection<Receiver>,
    /// Where keys are, if it is chosen by key.
    pub(super) keys: Option<Keys>,
    /// Members have given these back; at hand again, in offset order.
    pub returned: VecDeque<Found>,
    /// True while it is on the list of those with progress to remember.
    pub(super) is_changed: bool,
    /// Its members take by permits, and are given entries as they are.
    pub(super) is_whole: bool,
}

impl Group {
    /// True if it may look at further messages.
    pub fn looks_on(&self) -> bool {
        self.keys.as_ref().is_none_or(Keys::looks_on)
    }

    /// Forgets what has come back and is at hand: something has changed about it, so that it is looked up again.
    pub(super) fn look_again(&mut self) {
        self.returned.clear();
        if let Some(keys) = &mut self.keys {
            keys.forget();
        }
    }

    /// How many messages wait at hand for their key's member or for their key to move.
    pub fn waiting(&self) -> usize {
        self.keys.as_ref().map_or(0, Keys::waiting)
    }
}

/// One receiver's part in one group.
#[derive(Debug)]
pub(super) struct Membership {
    pub group: ids::Queue,
    pub party: Party,
    pub terms: Terms,
    pub in_flight: usize,
    /// What the group may give it before it waits, as its own queue does; none if that may always go on.
    pub pack: Option<Pack>,
    /// How many messages it has been given.
    pub given: u64,
    /// False once it has left, while it still has messages in flight: those it completes [MQTT-3.10.4-3].
    pub takes: bool,
}

/// How a group is attached.
#[derive(Debug)]
pub struct GroupAttachment {
    /// Whose queue it is: the group's own number.
    pub party: Party,
    /// Whose own messages No Local leaves out.
    pub owner: Party,
    /// What it has acknowledged.
    pub state: State,
    /// What it reads.
    pub subscriptions: Arc<[Subscription]>,
    /// The log's end: from here on the group is routed to directly.
    pub end: Offset,
    /// What lies below may have been sent to somebody.
    pub sent_before: Offset,
    /// It is given entries as they are, and its members are receivers by permits; it reads one topic.
    pub whole: bool,
}
