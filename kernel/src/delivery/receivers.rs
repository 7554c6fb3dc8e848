//! All receivers: which connection each is on, and which of them have something to remember.
//!
//! Owns: their handles. Never: decides what one of them gets.
//!
//! A connection has one receiver as long as the protocol that has several is not there; nothing but this file knows.

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
    receiver: ids::Receiver,
    serial: u32,
}

/// All receivers.
#[derive(Debug, Default)]
pub(super) struct Receivers {
    slots: Slots<ids::Receiver, Receiver>,
    lines: Slots<Connection, Line>,
    free: Vec<ids::Receiver>,
    /// Counts those that were attached: a connection's handle is used again.
    serial: u32,
    changed: Vec<ids::Receiver>,
    /// How many take nothing at the moment.
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

    /// The receiver of a connection, if it has one.
    #[inline]
    pub fn on(&self, connection: Connection) -> Option<ids::Receiver> {
        self.lines.get(connection).map(|line| line.receiver)
    }

    /// Tells a connection from those that had its handle before; 0 without a receiver.
    #[inline]
    pub fn serial_of(&self, connection: Connection) -> u32 {
        self.lines.get(connection).map_or(0, |line| line.serial)
    }

    /// Whether the socket of a receiver takes bytes.
    pub fn set_writable(&mut self, handle: ids::Receiver, is_writable: bool) {
        let Some(receiver) = self.get_mut(handle) else { return };
        let was_writable = std::mem::replace(&mut receiver.is_writable, is_writable);
        self.unwritable = self.unwritable + usize::from(was_writable) - usize::from(is_writable);
    }

    /// True if some receiver takes nothing at the moment.
    #[inline]
    pub fn is_any_unwritable(&self) -> bool {
        self.unwritable > 0
    }

    /// The handle that the next one gets.
    pub fn next(&self) -> ids::Receiver {
        self.free.last().copied().unwrap_or_else(|| self.slots.fresh())
    }

    /// Another receiver; it gets the handle that was said to be next.
    pub fn add(&mut self, mut receiver: Receiver) -> ids::Receiver {
        let handle = self.next();
        self.free.pop();
        self.serial = self.serial.wrapping_add(1);
        receiver.serial = self.serial;
        receiver.copied_for = self.instant.number();
        self.lines.put(receiver.connection, Line { receiver: handle, serial: self.serial });
        self.slots.put(handle, receiver);
        handle
    }

    /// A receiver is gone.
    pub fn remove(&mut self, handle: ids::Receiver) -> Result<Receiver> {
        let mut receiver = self.slots.take(handle).ok_or_else(|| nobody(handle))?;
        self.instant.before_change(&mut receiver);
        self.lines.take(receiver.connection);
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
