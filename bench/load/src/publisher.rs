//! A client that publishes numbered messages to one topic.

use crate::connection::Connection;
use crate::error::LoadError;
use crate::histogram::Histogram;
use crate::speech::{News, Publishes};
use rustix::fd::OwnedFd;
use std::ops::Range;

/// One publisher and how far it is.
pub struct Publisher {
    connection: Connection,
    speech: Box<dyn Publishes>,
    /// The broker takes what it publishes.
    pub connected: bool,
    /// Messages handed to the socket; also the number of the next one.
    pub published: u64,
    /// When the last of them was.
    published_ns: u64,
    /// Messages whose last acknowledgement has come (PUBACK, PUBCOMP, SEND_RECEIPT).
    pub acknowledged: u64,
    /// Messages given up after a stall: they no longer fill the window.
    pub forgiven: u64,
    /// Published is never more than this.
    pub limit: u64,
    /// The subscribers that get each message.
    pub hearers: Range<usize>,
}

impl Publisher {
    /// Takes over a connection on which `speech` has asked the broker to accept it.
    pub fn new(connection: Connection, speech: Box<dyn Publishes>, hearers: Range<usize>) -> Self {
        Self {
            connection,
            speech,
            connected: false,
            published: 0,
            published_ns: 0,
            acknowledged: 0,
            forgiven: 0,
            limit: u64::MAX,
            hearers,
        }
    }

    /// Publishes up to `count` messages, as far as the outbox has room and the socket takes them.
    pub fn publish(&mut self, count: u64, now_ns: u64, epoll: &OwnedFd) -> Result<(), LoadError> {
        let each = self.speech.messages();
        let mut left = count.min(self.limit - self.published) / each;
        while left > 0 {
            let room = self.connection.room_bytes() / self.speech.size_bytes();
            let some = left.min(room as u64);
            if some == 0 {
                break;
            }
            for _ in 0..some {
                self.speech.encode(self.published, now_ns, self.connection.outbox());
                self.published += each;
            }
            self.published_ns = now_ns;
            left -= some;
            self.connection.flush(epoll)?;
        }
        Ok(())
    }

    /// Reads once and answers; notes in `waits` how long the last message has waited for its acknowledgement.
    pub fn read(&mut self, buffer: &mut [u8], now_ns: u64, waits: &mut Histogram) -> Result<(), LoadError> {
        let Self { connection, speech, connected, acknowledged, published_ns, .. } = self;
        let open = connection.read(
            buffer,
            |bytes, outbox| speech.take(bytes, outbox),
            |news| {
                match news {
                    News::Ready => *connected = true,
                    News::Acknowledged(count) => {
                        *acknowledged += count;
                        waits.add(now_ns.saturating_sub(*published_ns));
                    }
                    News::Nothing => {}
                    News::Subscribed | News::Came(..) => return false,
                }
                true
            },
        )?;
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
