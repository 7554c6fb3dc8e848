//! Messages that are carried on to another broker: written as what they become, or put on the shelf.
//!
//! Owns: which of both, and what is counted of it. Never: decides what they become, or who gets them.

use super::{count, drop_messages, Outbox, Outboxes, Written};
use crate::flow::NoticeKind;
use crate::ids::{Connection, Timestamp};
use crate::limits::OUTBOX_BYTES_MAXIMUM;
use crate::mqtt::publish::{Writing, WritingProperties};
use crate::mqtt::recurrence::Recurrence;
use crate::mqtt::rewriting::{Outcome, Rewriting, Rewritten};
use crate::mqtt::shelf::{Carried, Carrying, Shelf};
use crate::mqtt::Version;
use std::mem;
use std::sync::Arc;

impl Outboxes {
    /// Messages to an open connection are carried on by these rules from now on; of QoS 0 those that cannot be written
    /// wait, up to so many bytes. Where no hops are counted it is noted what comes again.
    pub fn carry(&mut self, connection: Connection, rewriting: Arc<Rewriting>, shelf_bytes_maximum: usize) {
        if let Some(outbox) = self.outboxes.get_mut(connection) {
            let (rewritten, shelf) = (Rewritten::default(), Shelf::new(shelf_bytes_maximum));
            let carried = Carried::default();
            let counts_hops = outbox.writer.version == Version::V5 && rewriting.counts_hops();
            let recurrence = (!counts_hops).then(Recurrence::default);
            let carrying = Carrying { rewriting, rewritten, shelf, carried, recurrence, is_held: false };
            outbox.writer.carrying = Some(Box::new(carrying));
        }
    }

    /// Whether messages of QoS 0 wait on the shelf although the connection could be written to.
    pub fn hold(&mut self, connection: Connection, is_held: bool) {
        if let Some(carrying) = self.outboxes.get_mut(connection).and_then(|outbox| outbox.writer.carrying.as_mut()) {
            carrying.is_held = is_held;
        }
    }

    /// What waits on the shelf of one connection goes to the shelf of another, before anything else, and what it has
    /// carried counts as that one's.
    pub fn hand_over(&mut self, from: Connection, to: Connection) {
        let carrying = self.outboxes.get_mut(from).and_then(|outbox| outbox.writer.carrying.as_mut());
        let taken = carrying.map(|carrying| (mem::take(&mut carrying.shelf), mem::take(&mut carrying.carried)));
        let Some((shelf, carried)) = taken else { return };
        if let Some(carrying) = self.outboxes.get_mut(to).and_then(|outbox| outbox.writer.carrying.as_mut()) {
            (carrying.shelf, carrying.carried) = (shelf, carried);
            self.shelved.push(to);
        }
    }

    /// Messages on the shelf of a connection, and the bytes that they take.
    pub fn shelved(&self, connection: Connection) -> (usize, usize) {
        let carrying = self.outboxes.get(connection).and_then(|outbox| outbox.writer.carrying.as_ref());
        carrying.map_or((0, 0), |carrying| carrying.shelf.size())
    }

    /// What a connection has carried on, and those before it that have handed over.
    pub fn carried(&self, connection: Connection) -> Carried {
        let carrying = self.outboxes.get(connection).and_then(|outbox| outbox.writer.carrying.as_ref());
        carrying.map(|carrying| carrying.carried).unwrap_or_default()
    }

    /// True if something on a shelf can be written: [`Outboxes::encode`] has something to do although nothing comes.
    pub fn is_waiting(&self) -> bool {
        let is_open = |connection: &Connection| self.outboxes.get(*connection).is_some_and(Outbox::is_open);
        self.shelved.iter().any(is_open)
    }

    /// Writes what waits on shelves, as far as there is room.
    pub(super) fn clear_shelves(&mut self, now: Timestamp) {
        let mut shelved = mem::take(&mut self.shelved);
        shelved.sort_unstable();
        shelved.dedup();
        shelved.retain(|connection| {
            let Some(outbox) = self.outboxes.get_mut(*connection) else { return false };
            let before = outbox.bytes.len();
            let Some(mut carrying) = outbox.writer.carrying.take() else { return false };
            let Carrying { rewriting, rewritten, shelf, carried, recurrence, is_held } = &mut *carrying;
            while !*is_held && outbox.has_room() && !shelf.is_empty() {
                let written = shelf.hand_out(now, |writing| {
                    let written = outbox.put_rewritten(rewriting, rewritten, writing);
                    if written.is_ok() {
                        carried.count(writing, recurrence);
                    }
                    (written, count(writing.payload.len()))
                });
                match written.unwrap_or((Err(NoticeKind::Expired), 0)) {
                    (Ok(()), payload_bytes) => {
                        self.counters.publishes_sent += 1;
                        self.counters.payload_bytes_sent += payload_bytes;
                    }
                    (Err(kind), _) => {
                        drop_messages(&mut self.dropped, &mut self.counters, outbox.writer.party, kind, 1);
                    }
                }
            }
            self.counters.bytes_encoded += count(outbox.bytes.len() - before);
            let is_left = !shelf.is_empty();
            outbox.writer.carrying = Some(carrying);
            is_left
        });
        self.shelved = shelved;
    }
}

impl Outbox {
    /// Writes a message as what it is carried on as.
    pub(super) fn carry(&mut self, writing: &Writing<'_>) -> Written {
        let Some(mut carrying) = self.writer.carrying.take() else { return self.publish(writing) };
        let Carrying { rewriting, rewritten, carried, recurrence, .. } = &mut *carrying;
        let written = self.put_rewritten(rewriting, rewritten, writing);
        if written.is_ok() {
            carried.count(writing, recurrence);
        }
        carried.passing += u64::from(writing.qos == 0);
        self.writer.carrying = Some(carrying);
        written
    }

    /// True if a message of QoS 0 has to wait behind others, or for its socket.
    pub(super) fn must_shelve(&self) -> bool {
        let waits = |carrying: &Carrying| carrying.is_held || !carrying.shelf.is_empty() || !self.has_room();
        self.writer.carrying.as_deref().is_some_and(waits)
    }

    /// True if what waits on the shelf may be written.
    fn is_open(&self) -> bool {
        self.is_writable() && self.writer.carrying.as_ref().is_some_and(|carrying| !carrying.is_held)
    }

    /// True if a message of any size goes into it.
    pub(super) fn has_room(&self) -> bool {
        self.is_writable() && self.bytes.len() < OUTBOX_BYTES_MAXIMUM / 2
    }

    /// Puts a message of QoS 0 behind those that wait; returns how many had to go for it.
    pub(super) fn shelve(&mut self, writing: &Writing<'_>, now: Timestamp) -> u64 {
        self.writer.carrying.as_mut().map_or(0, |carrying| {
            carrying.carried.passing += 1;
            carrying.shelf.put(writing, now)
        })
    }

    /// Writes a PUBLISH as what it is carried on as. Its properties are there whatever the version, since they say how
    /// often it has been carried.
    fn put_rewritten(&mut self, rewriting: &Rewriting, rewritten: &mut Rewritten, writing: &Writing<'_>) -> Written {
        let properties = writing.properties.unwrap_or_default();
        match rewriting.apply(writing.topic, properties.encoded, rewritten) {
            Outcome::Lost(kind) => Err(kind),
            Outcome::LeftOut => Err(NoticeKind::Denied),
            Outcome::Carried => {
                let properties = WritingProperties { encoded: &rewritten.properties, identifiers: &[], ..properties };
                let properties = (self.writer.version == Version::V5).then_some(properties);
                let retain = writing.retain && rewritten.keeps_retain;
                self.publish(&Writing { topic: &rewritten.topic, properties, retain, ..*writing })
            }
        }
    }
}
