//! What is in flight at one moment, copied while everything goes on.
//!
//! A receiver is copied before it changes for the first time behind the moment, or when the walk comes to it. So to
//! begin costs nothing, and each piece and each turn costs what it copies. Nobody is copied who came behind the moment.
//!
//! Owns: which moment it is, how far the walk is, and what has been copied and not been taken. Never: knows what a
//! moment is for.

use super::receiver::Receiver;
use crate::flow::moment::InFlight;
use crate::flow::state::{Flight, Phase, Source};
use crate::ids::{self, Handle, Offset, Timestamp};
use crate::slots::Slots;

/// The moment that is copied, or was copied last.
#[derive(Debug, Default)]
pub(super) struct Instant {
    number: u32,
    /// The next receiver of the walk; `None` if none is under way.
    next: Option<u32>,
    copied: Vec<InFlight>,
}

impl Instant {
    /// The number of the moment.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Another moment: this one. What was copied for the one before is forgotten.
    pub fn begin(&mut self) {
        self.number = self.number.wrapping_add(1);
        self.next = Some(0);
        self.copied.clear();
    }

    /// The receiver will change.
    #[inline]
    pub fn before_change(&mut self, receiver: &mut Receiver) {
        if receiver.copied_for != self.number {
            self.copy(receiver);
        }
    }

    #[cold]
    fn copy(&mut self, receiver: &mut Receiver) {
        receiver.copied_for = self.number;
        let (party, connection) = (receiver.party, Some(receiver.connection));
        // It is there, whether or not anything is in flight to it.
        let nothing = Flight { offset: Offset(0), qos: 0, phase: Phase::Sent, source: Source::Queue };
        let present = (0, nothing, 0, Timestamp(0));
        let sent = std::iter::once(present).chain(receiver.window.sent());
        self.copied.extend(sent.map(|(packet_identifier, flight, attempts, since)| InFlight {
            party,
            connection,
            packet_identifier,
            flight,
            attempts,
            since,
        }));
    }

    /// Copies further receivers until about `effort` rows are there, and hands out so many of what has been copied;
    /// true if that was all.
    pub fn piece(&mut self, slots: &mut Slots<ids::Receiver, Receiver>, effort: usize) -> (Vec<InFlight>, bool) {
        let mut looked_at = 0_usize;
        while let Some(number) = self.next {
            if looked_at.saturating_add(self.copied.len()) >= effort {
                break;
            }
            let handle = ids::Receiver::new(number);
            self.next = (handle != slots.fresh()).then_some(number.saturating_add(1));
            if let Some(receiver) = slots.get_mut(handle) {
                self.before_change(receiver);
            }
            looked_at = looked_at.saturating_add(1);
        }
        let rows = self.copied.split_off(self.copied.len().saturating_sub(effort.max(1)));
        let is_all = self.next.is_none() && self.copied.is_empty();
        (rows, is_all)
    }
}
