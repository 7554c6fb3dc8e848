//! All receivers: which connection each is on, and which of them have something to remember.
//!
//! Owns: their handles. Never: decides what one of them gets.
//!
//! A connection has at most one receiver with a queue of its own and a window, and any number of those by permits.

use super::consumer::Consumer;
use super::instant::Instant;
use super::receiver::Receiver;
use crate::error::{Error, Result};
use crate::flow::moment::InFlight;
use crate::flow::state::Changes;
use crate::ids::{self, Connection};
use crate::slots::Slots;

/// What is known of a connection.
#[derive(Debug)]
struct Line {
    /// Who takes by a window.
    receiver: Option<ids::Receiver>,
    /// Who takes by permits.
    consumers: Vec<ids::Receiver>,
    serial: u32,
    is_writable: bool,
}

/// All receivers.
#[derive(Debug, Default)]
pub(super) struct Receivers {
    slots: Slots<ids::Receiver, Receiver>,
    /// Those by permits; a handle is in one of the two.
    consumers: Slots<ids::Receiver, Consumer>,
    lines: Slots<Connection, Line>,
    free: Vec<ids::Receiver>,
    /// Counts connections, or receivers that were attached: a connection's handle is used again.
    serial: u32,
    changed: Vec<ids::Receiver>,
    /// How many with a window take nothing at the moment.
    unwritable: usize,
    instant: Instant,
}

impl Receivers {
    #[inline]
    pub fn get(&self, handle: ids::Receiver) -> Option<&Receiver> {
        self.slots.get(handle)
    }

    #[inline]
    pub fn get_mut(&mut self, handle: ids::Receiver) -> Option<&mut Receiver> {
        let receiver = self.slots.get_mut(handle)?;
        self.instant.before_change(receiver);
        Some(receiver)
    }

    pub fn find(&mut self, handle: ids::Receiver) -> Result<&mut Receiver> {
        self.get_mut(handle).ok_or_else(|| nobody(handle))
    }

    pub fn iter(&self) -> impl Iterator<Item = (ids::Receiver, &Receiver)> {
        self.slots.iter()
    }

    /// The same, to be changed in all but their windows.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (ids::Receiver, &mut Receiver)> {
        self.slots.iter_mut()
    }

    #[inline]
    pub fn consumer(&self, handle: ids::Receiver) -> Option<&Consumer> {
        self.consumers.get(handle)
    }

    #[inline]
    pub fn consumer_mut(&mut self, handle: ids::Receiver) -> Option<&mut Consumer> {
        self.consumers.get_mut(handle)
    }

    pub fn find_consumer(&mut self, handle: ids::Receiver) -> Result<&mut Consumer> {
        self.consumer_mut(handle).ok_or_else(|| nobody(handle))
    }

    /// Those by permits of a connection.
    pub fn consumers_on(&self, connection: Connection) -> &[ids::Receiver] {
        self.lines.get(connection).map_or(&[], |line| &line.consumers)
    }

    /// The receiver of a connection that takes by a window, if it has one.
    #[inline]
    pub fn on(&self, connection: Connection) -> Option<ids::Receiver> {
        self.lines.get(connection)?.receiver
    }

    /// Tells a connection from those that had its handle before; 0 if nothing is known of it.
    #[inline]
    pub fn serial_of(&self, connection: Connection) -> u32 {
        self.lines.get(connection).map_or(0, |line| line.serial)
    }

    /// The same from now on, until the connection is closed.
    pub fn begin(&mut self, connection: Connection) -> u32 {
        let known = self.serial_of(connection);
        if known != 0 {
            return known;
        }
        self.serial = self.serial.checked_add(1).unwrap_or(1);
        let line = Line { receiver: None, consumers: Vec::new(), serial: self.serial, is_writable: true };
        self.lines.put(connection, line);
        self.serial
    }

    /// Nothing more is known of a connection, unless it has a receiver with a window: with that it ends.
    pub fn close(&mut self, connection: Connection) {
        if self.on(connection).is_none() {
            self.lines.take(connection);
        }
    }

    /// Whether the socket of a connection takes bytes.
    pub fn set_writable(&mut self, connection: Connection, is_writable: bool) {
        let Some(line) = self.lines.get_mut(connection) else { return };
        line.is_writable = is_writable;
        for handle in &line.consumers {
            if let Some(consumer) = self.consumers.get_mut(*handle) {
                consumer.is_writable = is_writable;
            }
        }
        let Some(receiver) = self.on(connection).and_then(|handle| self.get_mut(handle)) else { return };
        let was_writable = std::mem::replace(&mut receiver.is_writable, is_writable);
        self.unwritable = self.unwritable + usize::from(was_writable) - usize::from(is_writable);
    }

    /// True if some receiver with a window takes nothing at the moment.
    #[inline]
    pub fn is_any_unwritable(&self) -> bool {
        self.unwritable > 0
    }

    /// The handle that the next one gets.
    pub fn next(&self) -> ids::Receiver {
        self.free.last().copied().unwrap_or_else(|| self.slots.fresh().max(self.consumers.fresh()))
    }

    /// Another receiver; it gets the handle that was said to be next.
    pub fn add(&mut self, mut receiver: Receiver) -> ids::Receiver {
        let handle = self.next();
        self.free.pop();
        receiver.serial = self.begin(receiver.connection);
        receiver.copied_for = self.instant.number();
        if let Some(line) = self.lines.get_mut(receiver.connection) {
            line.receiver = Some(handle);
            receiver.is_writable = line.is_writable;
        }
        self.unwritable = self.unwritable.saturating_add(usize::from(!receiver.is_writable));
        self.slots.put(handle, receiver);
        handle
    }

    /// Another receiver by permits.
    pub fn add_consumer(&mut self, connection: Connection) -> ids::Receiver {
        let handle = self.next();
        self.free.pop();
        self.begin(connection);
        if let Some(line) = self.lines.get_mut(connection) {
            line.consumers.push(handle);
            self.consumers.put(handle, Consumer::new(connection, line.is_writable));
        }
        handle
    }

    /// A receiver by permits is gone; its connection is not.
    pub fn remove_consumer(&mut self, handle: ids::Receiver) {
        let Some(consumer) = self.consumers.take(handle) else { return };
        if let Some(line) = self.lines.get_mut(consumer.connection) {
            line.consumers.retain(|other| *other != handle);
        }
        self.free.push(handle);
    }

    /// A queue is gone: nobody has anything of it.
    pub fn forget_queue(&mut self, queue: ids::Queue) {
        for (_, consumer) in self.consumers.iter_mut().filter(|(_, consumer)| consumer.queue == Some(queue)) {
            (consumer.queue, consumer.takes, consumer.unsettled) = (None, false, 0);
        }
    }

    /// A receiver is gone.
    pub fn remove(&mut self, handle: ids::Receiver) -> Result<Receiver> {
        let mut receiver = self.slots.take(handle).ok_or_else(|| nobody(handle))?;
        self.instant.before_change(&mut receiver);
        match self.lines.get_mut(receiver.connection) {
            Some(line) if !line.consumers.is_empty() => line.receiver = None,
            _ => drop(self.lines.take(receiver.connection)),
        }
        self.changed.retain(|changed| *changed != handle);
        self.free.push(handle);
        self.unwritable = self.unwritable.saturating_sub(usize::from(!receiver.is_writable));
        Ok(receiver)
    }

    /// Something has to be remembered of a receiver, if it outlives its connection.
    pub fn change(&mut self, handle: ids::Receiver, change: impl FnOnce(&mut Changes)) {
        let Some(receiver) = self.slots.get_mut(handle) else { return };
        if receiver.party.is_durable() {
            change(&mut receiver.changes);
        }
        if !receiver.is_changed {
            receiver.is_changed = true;
            self.changed.push(handle);
        }
    }

    /// What is in flight now is to be copied, while it changes.
    pub fn begin_instant(&mut self) {
        self.instant.begin();
    }

    /// What has been copied since the last call, with about `effort` more of it; true if that was all.
    pub fn instant_piece(&mut self, effort: usize) -> (Vec<InFlight>, bool) {
        let Receivers { slots, instant, .. } = self;
        instant.piece(slots, effort)
    }

    /// Those with something to remember since the last call.
    pub fn take_changed(&mut self) -> Vec<ids::Receiver> {
        std::mem::take(&mut self.changed)
    }
}

fn nobody(handle: ids::Receiver) -> Error {
    Error::Invalid(format!("there is no receiver {}", handle.0))
}
