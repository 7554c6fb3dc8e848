//! One receiver that takes by permits: entries as they are, from one queue, without packet identifiers.
//!
//! Owns: how many messages it may still be given, and how many it has. Never: knows which entries those are; the
//! queue's cursor does.
//!
//! Invariants:
//! 1. It is given nothing without a permit, and so at most one entry beyond its permits.
//! 2. It is given nothing while it has [`CONSUMER_UNSETTLED_MAXIMUM`] messages of which it has said nothing, or
//!    [`CONSUMER_IN_ORDER_UNSETTLED_MAXIMUM`] where it does not share.

use crate::flow::{Found, Sending};
use crate::ids::{self, Connection};
use crate::limits::{ALLOT_BYTES_MAXIMUM, CONSUMER_IN_ORDER_UNSETTLED_MAXIMUM, CONSUMER_UNSETTLED_MAXIMUM};

/// One attached receiver by permits.
#[derive(Debug)]
pub(super) struct Consumer {
    /// Where it is.
    pub connection: Connection,
    /// From which queue it takes, or took last: of that it may still say that it is done with something.
    pub queue: Option<ids::Queue>,
    /// It is one of that queue's members.
    pub takes: bool,
    /// It is told how often an entry was wanted again, and what it wants again counts. One without that takes its
    /// entries in order.
    pub counts_redeliveries: bool,
    /// Its connection takes bytes.
    pub is_writable: bool,
    /// How much it has been sent in this turn.
    pub allotted_bytes: usize,
    /// How many messages it may still be given. An entry costs its messages, and may take more than there are.
    pub permits: i64,
    /// How many messages it has.
    pub unsettled: u64,
    /// How many messages it has been given.
    pub given: u64,
}

impl Consumer {
    /// Nothing was given to it, and nothing may be.
    pub fn new(connection: Connection, is_writable: bool) -> Consumer {
        Consumer {
            connection,
            queue: None,
            takes: false,
            counts_redeliveries: false,
            is_writable,
            allotted_bytes: 0,
            permits: 0,
            unsettled: 0,
            given: 0,
        }
    }

    /// It may be given so many messages more.
    pub fn permit(&mut self, messages: u32) {
        self.permits = self.permits.saturating_add(i64::from(messages));
    }

    /// True if it would take another entry of this queue.
    pub fn takes_of(&self, queue: ids::Queue) -> bool {
        let may_have = match self.counts_redeliveries {
            true => CONSUMER_UNSETTLED_MAXIMUM,
            false => CONSUMER_IN_ORDER_UNSETTLED_MAXIMUM,
        };
        let has_room = self.permits > 0 && self.unsettled < may_have;
        has_room && self.is_writable && self.takes && self.queue == Some(queue)
    }

    /// What it has to do, for whoever chooses among members.
    pub fn load(&self) -> usize {
        usize::try_from(self.unsettled).unwrap_or(usize::MAX)
    }

    /// True if it has been sent as much as one turn may.
    pub fn is_sated(&self) -> bool {
        self.allotted_bytes > ALLOT_BYTES_MAXIMUM
    }

    /// It is given an entry, which was wanted again so often.
    pub fn take(&mut self, handle: ids::Receiver, found: &Found, redeliveries: u16, again: bool) -> Sending {
        self.permits = self.permits.saturating_sub(i64::from(found.count));
        self.unsettled = self.unsettled.saturating_add(u64::from(found.count));
        self.given = self.given.wrapping_add(u64::from(found.count));
        let size = usize::try_from(found.size_bytes).unwrap_or(usize::MAX);
        self.allotted_bytes = self.allotted_bytes.saturating_add(size);
        Sending {
            connection: self.connection,
            receiver: handle,
            redeliveries: if self.counts_redeliveries { redeliveries } else { 0 },
            packet_identifier: 0,
            qos: 1,
            dup: false,
            again,
            retain: false,
            identifiers: None,
            offset: found.offset,
            location: found.location,
        }
    }

    /// It has an entry of so many messages no more.
    pub fn let_go(&mut self, messages: u32) {
        self.unsettled = self.unsettled.saturating_sub(u64::from(messages));
    }
}
