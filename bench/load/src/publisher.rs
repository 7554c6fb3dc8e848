//! A client that publishes numbered messages to one topic.

use crate::connection::Connection;
use crate::error::LoadError;
use crate::packet::{self, Frame, Packet, Reply};
use rustix::fd::OwnedFd;
use std::ops::Range;

/// One publisher and how far it is.
pub struct Publisher {
    connection: Connection,
    frame: Frame,
    qos: u8,
    next_identifier: u16,
    /// CONNACK has come.
    pub connected: bool,
    /// Messages handed to the socket; also the number of the next one.
    pub published: u64,
    /// Messages whose last acknowledgement has come (PUBACK, PUBCOMP).
    pub acknowledged: u64,
    /// Messages given up after a stall: they no longer fill the window.
    pub forgiven: u64,
    /// Published is never more than this.
    pub limit: u64,
    /// The subscribers that get each message.
    pub hearers: Range<usize>,
}

impl Publisher {
    /// Takes over a fresh connection and asks the broker to accept it.
    pub fn new(mut connection: Connection, frame: Frame, qos: u8, hearers: Range<usize>) -> Self {
        let client_identifier = connection.name().replace(' ', "-");
        packet::encode_connect(&client_identifier, true, connection.outbox());
        Self {
            connection,
            frame,
            qos,
            next_identifier: 1,
            connected: false,
            published: 0,
            acknowledged: 0,
            forgiven: 0,
            limit: u64::MAX,
            hearers,
        }
    }

    /// Appends up to `count` messages, as far as the outbox has room.
    pub fn publish(&mut self, count: u64, now_ns: u64) {
        let room = self.connection.room_bytes() / self.frame.size_bytes();
        let count = count.min(room as u64).min(self.limit - self.published);
        for _ in 0..count {
            self.frame.encode(self.next_identifier, self.published, now_ns, self.connection.outbox());
            // The window is far below 65 535, so an identifier is free again when its turn comes.
            self.next_identifier = self.next_identifier.checked_add(1).unwrap_or(1);
            self.published += 1;
        }
    }

    /// Reads once and answers.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<(), LoadError> {
        let Self { connection, connected, acknowledged, qos, .. } = self;
        let open = connection.read(buffer, |packet, name, outbox| {
            match packet {
                Packet::Connack(0) => *connected = true,
                Packet::Connack(code) => return Err(LoadError::Refused(name.into(), "CONNECT", code)),
                Packet::Reply(Reply::Puback, _) if *qos == 1 => *acknowledged += 1,
                Packet::Reply(Reply::Pubrec, identifier) if *qos == 2 => Reply::Pubrel.encode(identifier, outbox),
                Packet::Reply(Reply::Pubcomp, _) if *qos == 2 => *acknowledged += 1,
                _ => return Err(LoadError::Foreign(name.into())),
            }
            Ok(())
        })?;
        if open {
            Ok(())
        } else {
            Err(LoadError::Closed(connection.name().into(), None))
        }
    }

    /// Writes what the socket takes.
    pub fn flush(&mut self, epoll: &OwnedFd) -> Result<(), LoadError> {
        self.connection.flush(epoll)
    }
}
