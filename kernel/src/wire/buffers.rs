//! Bytes that wait for each connection's socket.
//!
//! Owns: one buffer per connection that has something to send, and the buffers that are free. Never: knows what the
//! bytes mean; a protocol keeps beside each buffer what it needs to write into it.
//!
//! Invariant: a connection that has nothing to send holds no buffer.

use super::pieces::Pieces;
use crate::error::Result;
use crate::ids::Connection;
use crate::limits::OUTBOX_SPARE_BYTES_MAXIMUM;
use crate::slots::Slots;
use std::mem;

/// What waits for one connection.
#[derive(Debug)]
pub struct Buffer<Writer> {
    /// What its protocol keeps of it.
    pub writer: Writer,
    /// The bytes.
    pub bytes: Vec<u8>,
    is_writable: bool,
    /// It is in the list of those that have something to send.
    is_listed: bool,
    /// Where `bytes` are cut, if one write may have only so many messages.
    pieces: Option<Box<Pieces>>,
}

impl<Writer> Buffer<Writer> {
    /// True if its socket takes bytes.
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// A message ends where the bytes do.
    #[inline]
    pub fn end_message(&mut self) {
        if let Some(pieces) = &mut self.pieces {
            pieces.note(self.bytes.len());
        }
    }
}

/// What waits for all connections.
#[derive(Debug)]
pub struct Buffers<Writer> {
    slots: Slots<Connection, Buffer<Writer>>,
    /// Connections whose buffer may hold something.
    listed: Vec<Connection>,
    spare: Spare,
}

impl<Writer> Default for Buffers<Writer> {
    fn default() -> Buffers<Writer> {
        Buffers { slots: Slots::default(), listed: Vec::new(), spare: Spare::default() }
    }
}

impl<Writer> Buffers<Writer> {
    /// A connection may be sent to.
    pub fn open(&mut self, connection: Connection, writer: Writer) -> Result<()> {
        connection.check()?;
        self.close(connection);
        let buffer = Buffer { writer, bytes: Vec::new(), is_writable: true, is_listed: false, pieces: None };
        self.slots.put(connection, buffer);
        Ok(())
    }

    /// Forgets the connection and what waits for it.
    pub fn close(&mut self, connection: Connection) {
        let Some(buffer) = self.slots.take(connection) else { return };
        if buffer.is_listed {
            self.listed.retain(|listed| *listed != connection);
        }
        self.spare.keep(buffer.bytes);
    }

    /// What waits for a connection; `None` if it is closed.
    #[inline]
    pub fn get(&self, connection: Connection) -> Option<&Buffer<Writer>> {
        self.slots.get(connection)
    }

    /// The same, to be written to.
    #[inline]
    pub fn get_mut(&mut self, connection: Connection) -> Option<&mut Buffer<Writer>> {
        let buffer = self.slots.get_mut(connection)?;
        if !buffer.is_listed {
            buffer.is_listed = true;
            self.listed.push(connection);
            if let Some(spare) = self.spare.take() {
                buffer.bytes = spare;
            }
        }
        Some(buffer)
    }

    /// While a connection is not writable its bytes stay here.
    pub fn set_writable(&mut self, connection: Connection, is_writable: bool) {
        if let Some(buffer) = self.slots.get_mut(connection) {
            buffer.is_writable = is_writable;
        }
    }

    /// From now on at most so many messages to the connection are one piece for `take`; 0 for no limit.
    pub fn limit_writes(&mut self, connection: Connection, messages_maximum: usize) {
        if let Some(buffer) = self.slots.get_mut(connection) {
            buffer.pieces = (messages_maximum > 0).then(|| Box::new(Pieces::new(messages_maximum)));
        }
    }

    /// Hands all bytes of each writable connection to `send`, in one call, or in pieces where those are limited.
    pub fn take(&mut self, mut send: impl FnMut(Connection, &[u8])) {
        let mut listed = mem::take(&mut self.listed);
        listed.retain(|connection| {
            let Some(buffer) = self.slots.get_mut(*connection) else { return false };
            if !buffer.is_writable {
                return true;
            }
            buffer.is_listed = false;
            let bytes = mem::take(&mut buffer.bytes);
            match &mut buffer.pieces {
                Some(pieces) => pieces.cut(&bytes, |piece| send(*connection, piece)),
                None if bytes.is_empty() => {}
                None => send(*connection, &bytes),
            }
            self.spare.keep(bytes);
            false
        });
        self.listed = listed;
    }
}

/// Emptied buffers, for those that have something to send next.
#[derive(Debug, Default)]
struct Spare {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Spare {
    fn keep(&mut self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        if capacity > 0 && self.bytes.saturating_add(capacity) <= OUTBOX_SPARE_BYTES_MAXIMUM {
            buffer.clear();
            self.bytes += capacity;
            self.buffers.push(buffer);
        }
    }

    fn take(&mut self) -> Option<Vec<u8>> {
        let buffer = self.buffers.pop()?;
        self.bytes = self.bytes.saturating_sub(buffer.capacity());
        Some(buffer)
    }
}
