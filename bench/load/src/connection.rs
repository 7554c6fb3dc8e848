//! One socket with what waits to be written to it and the cut frame at the end of what was read from it.
//!
//! Owns: the non-blocking socket, its outbox, its interest in the epoll set.
//! Never: knows what a frame means; the protocols do.

use crate::error::LoadError;
use crate::speech::{Fault, News, Taken};
use rustix::event::epoll::{self, EventData, EventFlags};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::os::fd::OwnedFd;

/// Bytes that one read takes: at 80 bytes a message some 3 000 messages a system call.
pub const READ_BYTES: usize = 262_144;

/// Bytes in an outbox at which a publisher stops adding to it: beyond it only memory would grow.
pub const OUTBOX_BYTES_MAXIMUM: usize = 262_144;

/// A connection to the broker under load.
pub struct Connection {
    name: String,
    stream: TcpStream,
    token: u64,
    partial: Vec<u8>,
    outbox: Vec<u8>,
    written: usize,
    waits_to_write: bool,
}

impl Connection {
    /// Connects to the broker on this machine and joins the epoll set under `token`.
    pub fn open(name: String, port: u16, epoll: &OwnedFd, token: u64) -> Result<Self, LoadError> {
        let closed = |error| LoadError::Closed(name.clone(), Some(error));
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(closed)?;
        stream.set_nodelay(true).map_err(closed)?;
        stream.set_nonblocking(true).map_err(closed)?;
        epoll::add(epoll, &stream, EventData::new_u64(token), EventFlags::IN)
            .map_err(|error| LoadError::System("epoll_ctl", error.into()))?;
        Ok(Self { name, stream, token, partial: vec![], outbox: vec![], written: 0, waits_to_write: false })
    }

    /// Who this is, for an error.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where frames to send are appended.
    pub fn outbox(&mut self) -> &mut Vec<u8> {
        &mut self.outbox
    }

    /// How many bytes may be added before the outbox is full.
    pub fn room_bytes(&self) -> usize {
        OUTBOX_BYTES_MAXIMUM.saturating_sub(self.outbox.len() - self.written)
    }

    /// Writes what the socket takes; asks epoll to say when it takes more, only while something waits.
    pub fn flush(&mut self, epoll: &OwnedFd) -> Result<(), LoadError> {
        while self.written < self.outbox.len() {
            match self.stream.write(&self.outbox[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return self.wait_to_write(epoll, true),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(LoadError::Closed(self.name.clone(), Some(error))),
            }
        }
        self.outbox.clear();
        self.written = 0;
        self.wait_to_write(epoll, false)
    }

    fn wait_to_write(&mut self, epoll: &OwnedFd, waits: bool) -> Result<(), LoadError> {
        if self.written > OUTBOX_BYTES_MAXIMUM {
            self.outbox.drain(..self.written);
            self.written = 0;
        }
        if waits == self.waits_to_write {
            return Ok(());
        }
        self.waits_to_write = waits;
        let flags = if waits { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        epoll::modify(epoll, &self.stream, EventData::new_u64(self.token), flags)
            .map_err(|error| LoadError::System("epoll_ctl", error.into()))
    }

    /// Reads once, has `take` take each whole frame, with the outbox for the answer, and tells `hear` what it said,
    /// which is false to what this run cannot have caused. False at the end of the stream.
    pub fn read(
        &mut self,
        buffer: &mut [u8],
        mut take: impl FnMut(&[u8], &mut Vec<u8>) -> Taken,
        mut hear: impl FnMut(News) -> bool,
    ) -> Result<bool, LoadError> {
        let kept = self.partial.len();
        buffer[..kept].copy_from_slice(&self.partial);
        let count = match self.stream.read(&mut buffer[kept..]) {
            Ok(0) => return Ok(false),
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(true),
            Err(error) => return Err(LoadError::Closed(self.name.clone(), Some(error))),
        };
        let mut rest = &buffer[..kept + count];
        while let Some((news, used)) =
            take(rest, &mut self.outbox).map_err(|fault| LoadError::Heard(self.name.clone(), fault))?
        {
            if !hear(news) {
                return Err(LoadError::Heard(self.name.clone(), Fault::Foreign));
            }
            rest = &rest[used..];
        }
        self.partial.clear();
        self.partial.extend_from_slice(rest);
        Ok(true)
    }

    /// Leaves the epoll set; the socket stays open.
    pub fn set_aside(&self, epoll: &OwnedFd) -> Result<(), LoadError> {
        epoll::delete(epoll, &self.stream).map_err(|error| LoadError::System("epoll_ctl", error.into()))
    }

    /// Ends the writing side, so that the broker reads everything and then closes.
    pub fn finish(&self) {
        // A broker that closed first has already done what is asked for here.
        let _closed_already = self.stream.shutdown(Shutdown::Write);
    }
}
