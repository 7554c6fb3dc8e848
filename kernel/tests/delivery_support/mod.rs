//! What every test of delivery publishes and reads: messages of 100 bytes, and a subscription to all of them.
#![allow(dead_code)] // Each test uses its part.

use holdfast_kernel::flow::{Fate, Found, Publish, Span, Stored, Subscription, Target, Terms};
use holdfast_kernel::ids::{Connection, KeySlot, Location, LogPosition, Offset, Party, Queue};
use std::sync::Arc;

/// A message of somebody else that the log has taken; it goes to that queue and connection.
pub fn publish(qos: u8, target: Option<(Queue, Connection)>, stored: Stored) -> Publish {
    let terms = Terms { qos: 2, ..Terms::default() };
    let targets = target.map(|(queue, connection)| Arc::from([Target { queue, connection, terms, own: None }]));
    Publish {
        connection: Connection(0),
        publisher: Party(1),
        key_slot: KeySlot(0),
        packet_identifier: 1,
        qos,
        retain: false,
        topic: Span::default(),
        properties: Span::default(),
        payload: Span::default(),
        expiry_interval_s: None,
        fate: Fate::Accepted,
        row: None,
        entry: None,
        targets,
        stored: Some(stored),
    }
}

/// Where the log has put a message that does not expire.
pub fn stored(offset: u64, durable_at: u64) -> Stored {
    Stored {
        topic: Default::default(),
        entry: 0,
        offset: Offset(offset),
        location: location(offset),
        size_bytes: 100,
        is_kept: false,
        expires_at: None,
        durable_at: LogPosition(durable_at),
    }
}

pub fn reads() -> Arc<[Subscription]> {
    Arc::from([Subscription {
        filter: b"#".to_vec(),
        qos: 2,
        no_local: false,
        keeps_all: false,
        retain_as_published: true,
        identifier: None,
        from: Offset(0),
        until: Offset(u64::MAX),
    }])
}

fn location(offset: u64) -> Location {
    Location { segment: 0, position: offset as u32 }
}

/// The same message as a scan finds it.
pub fn found(offset: u64, qos: u8, key_slot: u16, terms: Terms) -> Found {
    Found {
        entry: 0,
        offset: Offset(offset),
        count: 1,
        location: location(offset),
        size_bytes: 100,
        qos,
        retain: false,
        expires_at: None,
        key_slot: KeySlot(key_slot),
        terms,
    }
}
