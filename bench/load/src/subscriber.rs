//! A client that subscribes to one filter and checks the numbers of what it gets.

use crate::connection::Connection;
use crate::error::LoadError;
use crate::histogram::Histogram;
use crate::packet::{self, Packet, Reply, Stamp};
use rustix::fd::OwnedFd;

/// The numbers that came from each publisher that a subscriber hears.
pub struct Heard {
    first_publisher: usize,
    /// For each publisher the number after the highest that came.
    next: Vec<u64>,
    /// Messages that came, each copy counted.
    pub received: u64,
    /// Messages whose number was not higher than one before: a second copy, or one out of order.
    pub duplicated: u64,
}

impl Heard {
    /// Nothing yet from `count` publishers, of which the first is `first_publisher`.
    pub fn new(first_publisher: usize, count: usize) -> Self {
        Self { first_publisher, next: vec![0; count], received: 0, duplicated: 0 }
    }

    /// Counts a message; false if this subscriber should not have got it.
    fn count(&mut self, stamp: Stamp) -> bool {
        let publisher = usize::try_from(stamp.publisher).unwrap_or(usize::MAX);
        let Some(next) = publisher.checked_sub(self.first_publisher).and_then(|index| self.next.get_mut(index)) else {
            return false;
        };
        self.received += 1;
        if stamp.number < *next {
            self.duplicated += 1;
        } else {
            *next = stamp.number + 1;
        }
        true
    }

    /// How far the messages of one publisher have come.
    pub fn reached(&self, publisher: usize) -> u64 {
        self.next[publisher - self.first_publisher]
    }
}

/// One subscriber.
pub struct Subscriber {
    connection: Connection,
    /// CONNACK has come.
    pub connected: bool,
    /// SUBACK has come.
    pub subscribed: bool,
    leaves: bool,
    /// The broker has closed the connection after DISCONNECT.
    pub left: bool,
    /// What has come.
    pub heard: Heard,
}

impl Subscriber {
    /// Takes over a fresh connection and asks the broker to accept it, with a session that lasts if `persistent`.
    pub fn new(mut connection: Connection, persistent: bool, heard: Heard) -> Self {
        let client_identifier = connection.name().replace(' ', "-");
        packet::encode_connect(&client_identifier, !persistent, connection.outbox());
        Self { connection, connected: false, subscribed: false, leaves: false, left: false, heard }
    }

    /// Asks for filters.
    pub fn subscribe<Filter: AsRef<str>>(&mut self, topic_filters: &[Filter], qos: u8) {
        packet::encode_subscribe(topic_filters, qos, self.connection.outbox());
    }

    /// Takes the socket out of the epoll set: from now on it only stays open.
    pub fn set_aside(&mut self, epoll: &OwnedFd) -> Result<(), LoadError> {
        self.connection.set_aside(epoll)
    }

    /// Says DISCONNECT; the broker then closes.
    pub fn leave(&mut self, epoll: &OwnedFd) -> Result<(), LoadError> {
        self.leaves = true;
        packet::encode_disconnect(self.connection.outbox());
        self.connection.flush(epoll)?;
        self.connection.finish();
        Ok(())
    }

    /// Reads once, counts what came and answers.
    pub fn read(&mut self, buffer: &mut [u8], now_ns: u64, latency: &mut Histogram) -> Result<(), LoadError> {
        let Self { connection, connected, subscribed, leaves, left, heard } = self;
        let open = connection.read(buffer, |packet, name, outbox| {
            match packet {
                Packet::Publish { qos, packet_identifier, payload } => {
                    let stamp = Stamp::decode(payload).ok_or_else(|| LoadError::Foreign(name.into()))?;
                    if !heard.count(stamp) {
                        return Err(LoadError::Foreign(name.into()));
                    }
                    latency.add(now_ns.saturating_sub(stamp.sent_ns));
                    match qos {
                        0 => {}
                        1 => Reply::Puback.encode(packet_identifier, outbox),
                        _ => Reply::Pubrec.encode(packet_identifier, outbox),
                    }
                }
                Packet::Reply(Reply::Pubrel, identifier) => Reply::Pubcomp.encode(identifier, outbox),
                Packet::Connack(0) => *connected = true,
                Packet::Connack(code) => return Err(LoadError::Refused(name.into(), "CONNECT", code)),
                Packet::Suback(0..=2) => *subscribed = true,
                Packet::Suback(code) => return Err(LoadError::Refused(name.into(), "SUBSCRIBE", code)),
                Packet::Reply(..) => return Err(LoadError::Foreign(name.into())),
            }
            Ok(())
        });
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

    /// Writes what the socket takes; nothing any more after DISCONNECT. [MQTT-3.14.4-2]
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
            assert!(heard.count(stamp(4, number)));
        }
        assert_eq!((heard.received, heard.duplicated), (4, 1));
        assert_eq!((heard.reached(3), heard.reached(4)), (0, 4));
    }

    #[test]
    fn messages_of_others_are_not_counted() {
        let mut heard = Heard::new(3, 2);
        for publisher in [0, 2, 5, u32::MAX] {
            assert!(!heard.count(stamp(publisher, 0)));
        }
        assert_eq!(heard.received, 0);
    }
}
