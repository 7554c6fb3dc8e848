//! A client that subscribes and checks the numbers of what it gets.

use crate::connection::Connection;
use crate::error::LoadError;
use crate::histogram::Histogram;
use crate::speech::{News, Subscribes};
use crate::stamp::Stamp;
use rustix::fd::OwnedFd;

/// The numbers that came from each publisher that a subscriber hears.
pub struct Heard {
    first_publisher: usize,
    /// For each publisher the number after the highest that came.
    next: Vec<u64>,
    /// For each publisher how many came.
    came: Vec<u64>,
    /// Messages that came, each copy counted.
    pub received: u64,
    /// Messages whose numbers were not higher than one before: a second copy, or out of order.
    pub duplicated: u64,
}

impl Heard {
    /// Nothing yet from `count` publishers, of which the first is `first_publisher`.
    pub fn new(first_publisher: usize, count: usize) -> Self {
        Self { first_publisher, next: vec![0; count], came: vec![0; count], received: 0, duplicated: 0 }
    }

    /// Counts messages, of which the first has this stamp; false if this subscriber should not have got them.
    fn count(&mut self, stamp: Stamp, messages: u64) -> bool {
        let publisher = usize::try_from(stamp.publisher).unwrap_or(usize::MAX);
        let Some(next) = publisher.checked_sub(self.first_publisher).and_then(|index| self.next.get_mut(index)) else {
            return false;
        };
        self.received += messages;
        self.came[publisher - self.first_publisher] += messages;
        if stamp.number < *next {
            self.duplicated += messages;
        } else {
            *next = stamp.number + messages;
        }
        true
    }

    /// How many messages of one publisher have come.
    pub fn came(&self, publisher: usize) -> u64 {
        self.came[publisher - self.first_publisher]
    }

    /// How far the messages of one publisher have come.
    pub fn reached(&self, publisher: usize) -> u64 {
        self.next[publisher - self.first_publisher]
    }
}

/// One subscriber.
pub struct Subscriber {
    connection: Connection,
    speech: Box<dyn Subscribes>,
    /// The broker has accepted it.
    pub connected: bool,
    /// Its subscription is there.
    pub subscribed: bool,
    leaves: bool,
    /// The broker has closed the connection after that was announced.
    pub left: bool,
    /// What has come.
    pub heard: Heard,
}

impl Subscriber {
    /// Takes over a connection on which `speech` has asked the broker to accept it.
    pub fn new(connection: Connection, speech: Box<dyn Subscribes>, heard: Heard) -> Self {
        Self { connection, speech, connected: false, subscribed: false, leaves: false, left: false, heard }
    }

    /// Asks for filters.
    pub fn subscribe(&mut self, topic_filters: &[String], qos: u8) {
        self.speech.subscribe(topic_filters, qos, self.connection.outbox());
    }

    /// Sends acknowledgements that have waited for company.
    pub fn acknowledge(&mut self, epoll: &OwnedFd) -> Result<(), LoadError> {
        self.speech.acknowledge(self.connection.outbox());
        self.flush(epoll)
    }

    /// Takes the socket out of the epoll set: from now on it only stays open.
    pub fn set_aside(&mut self, epoll: &OwnedFd) -> Result<(), LoadError> {
        self.connection.set_aside(epoll)
    }

    /// Says that it leaves; the broker then closes.
    pub fn leave(&mut self, epoll: &OwnedFd) -> Result<(), LoadError> {
        self.leaves = true;
        self.speech.leave(self.connection.outbox());
        self.connection.flush(epoll)?;
        self.connection.finish();
        Ok(())
    }

    /// Reads once, counts what came and answers.
    pub fn read(&mut self, buffer: &mut [u8], now_ns: u64, latency: &mut Histogram) -> Result<(), LoadError> {
        let Self { connection, speech, connected, subscribed, leaves, left, heard } = self;
        let open = connection.read(
            buffer,
            |bytes, outbox| speech.take(bytes, outbox),
            |news| {
                match news {
                    News::Came(stamp, messages) => {
                        latency.add(now_ns.saturating_sub(stamp.sent_ns));
                        return heard.count(stamp, messages);
                    }
                    News::Ready => *connected = true,
                    News::Subscribed => *subscribed = true,
                    News::Nothing => {}
                    News::Acknowledged(_) => return false,
                }
                true
            },
        );
        match open {
            Ok(true) => Ok(()),
            // A broker may close before it has read everything that was written: the connection is then reset.
            Ok(false) | Err(LoadError::Closed(..)) if *leaves => {
                *left = true;
                Ok(())
            }
            Ok(false) => Err(LoadError::Closed(connection.name().into(), None)),
            Err(error) => Err(error),
        }
    }

    /// Writes what the socket takes; nothing any more once it leaves. [MQTT-3.14.4-2]
    pub fn flush(&mut self, epoll: &OwnedFd) -> Result<(), LoadError> {
        if self.leaves {
            return Ok(());
        }
        self.connection.flush(epoll)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(publisher: u32, number: u64) -> Stamp {
        Stamp { publisher, number, sent_ns: 0 }
    }

    #[test]
    fn gaps_and_second_copies_show() {
        let mut heard = Heard::new(3, 2);
        for number in [0, 1, 3, 3] {
            assert!(heard.count(stamp(4, number), 1));
        }
        assert_eq!((heard.received, heard.duplicated), (4, 1));
        assert_eq!((heard.reached(3), heard.reached(4)), (0, 4));
    }

    #[test]
    fn a_batch_counts_as_its_messages() {
        let mut heard = Heard::new(0, 1);
        for number in [0, 10, 10] {
            assert!(heard.count(stamp(0, number), 10));
        }
        assert_eq!((heard.received, heard.duplicated, heard.reached(0)), (30, 10, 20));
    }

    #[test]
    fn messages_of_others_are_not_counted() {
        let mut heard = Heard::new(3, 2);
        for publisher in [0, 2, 5, u32::MAX] {
            assert!(!heard.count(stamp(publisher, 0), 1));
        }
        assert_eq!(heard.received, 0);
    }
}
