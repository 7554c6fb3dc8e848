//! A queue gives so many messages and then waits until all of them are acknowledged: a pack.
//!
//! Owns: how many messages a queue has given since its last commit, how many of them are pending, and since when it
//! waits. Never: decides what is done about a pack that waits.
//!
//! Invariants:
//! 1. At most `maximum` messages are given between two commits, and once a pack is closed none.
//! 2. A pack is committed as soon as nothing of it is pending, and only then; the next one may begin in the same turn.
//!
//! Flow: allotment gives, admission finishes, the caller asks now and then what is overdue (`packs`).

use crate::ids::{Offset, Timestamp};

/// What a queue has given to one receiver since its last commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pack {
    maximum: usize,
    taken: usize,
    pending: usize,
    first: Offset,
    is_closed: bool,
    sent_at: Timestamp,
}

impl Pack {
    /// An empty pack, or, of what was `in_flight` on an earlier connection, one with that and nothing else.
    pub fn resume(maximum: usize, in_flight: impl Iterator<Item = Offset>) -> Pack {
        let (mut first, mut pending) = (None, 0_usize);
        for offset in in_flight {
            first = Some(first.map_or(offset, |known: Offset| known.min(offset)));
            pending = pending.saturating_add(1);
        }
        let first = first.unwrap_or_default();
        Pack { maximum, taken: pending, pending, first, is_closed: pending > 0, sent_at: Timestamp(0) }
    }

    /// How many messages it has at most.
    pub fn maximum(&self) -> usize {
        self.maximum
    }

    /// True if another message may be given.
    pub fn is_open(&self) -> bool {
        !self.is_closed
    }

    /// Its first message and how many it has; nothing while there is none.
    pub fn content(&self) -> Option<(Offset, usize)> {
        (self.taken > 0).then_some((self.first, self.taken))
    }

    /// How many of its messages are neither acknowledged nor given up.
    pub fn pending(&self) -> usize {
        self.pending
    }

    /// One more message is given; to a closed pack only what lies between the messages that it resumes.
    pub fn give(&mut self, offset: Offset, now: Timestamp) {
        self.first = match (self.taken, self.is_closed) {
            (0, _) => offset,
            (_, true) => self.first.min(offset),
            _ => self.first,
        };
        self.taken = self.taken.saturating_add(1);
        self.pending = self.pending.saturating_add(1);
        self.is_closed |= self.taken >= self.maximum;
        self.sent_at = now;
    }

    /// One of its messages is sent again.
    pub fn send_again(&mut self, now: Timestamp) {
        self.sent_at = now;
    }

    /// Nothing more is at hand: what has been given is all of it.
    pub fn close(&mut self) {
        self.is_closed = self.taken > 0;
    }

    /// One of its messages is acknowledged or gone.
    pub fn finish(&mut self) {
        self.pending = self.pending.saturating_sub(1);
        if self.pending == 0 {
            self.commit();
        }
    }

    /// All of its messages are done with.
    pub fn commit(&mut self) {
        (self.taken, self.pending, self.is_closed) = (0, 0, false);
    }

    /// When something of it was last sent; 0 if it has not been on this connection.
    pub fn sent_at(&self) -> Timestamp {
        self.sent_at
    }

    /// Its first message.
    pub fn first(&self) -> Offset {
        self.first
    }

    /// True if nothing has been sent of it for so long although something is pending.
    pub fn is_overdue(&self, now: Timestamp, timeout_us: u64) -> bool {
        self.pending > 0 && now.0.saturating_sub(self.sent_at.0) >= timeout_us
    }
}
