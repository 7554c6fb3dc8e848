//! Frames as Pulsar clients write them, and an inbox that writes down what it decodes.
#![allow(dead_code)] // Each test uses its part.

use crate::entry_support::{batch, saying, tail};
use holdfast_kernel::flow::Arrivals;
use holdfast_kernel::ids::{Connection, KeySlot, Party, Receiver, Timestamp};
use holdfast_kernel::limits::TURN_CONNECTION_BYTES_MAXIMUM;
use holdfast_kernel::protobuf::{put_bytes, put_message, put_varint};
use holdfast_kernel::pulsar::inbox::Inbox;
use holdfast_kernel::pulsar::kind;
use holdfast_kernel::pulsar::peer::{Consumer, Producer};

pub const FRAME_MAXIMUM: usize = 1 << 20;
pub const SILENCE_US: u64 = 60_000_000;
pub const TOPIC: &[u8] = b"site/reads";
pub const LEDGER: u64 = 12;

/// A frame of whatever stands in it.
pub fn framed(command: &[u8], tail: &[u8]) -> Vec<u8> {
    let total = (4 + command.len() + tail.len()) as u32;
    [&total.to_be_bytes()[..], &(command.len() as u32).to_be_bytes(), command, tail].concat()
}

/// A command of a kind, with fields that are numbers and fields that are bytes.
pub fn command(kind: u8, numbers: &[(u32, u64)], blocks: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut command = Vec::new();
    put_varint(&mut command, 1, u64::from(kind));
    put_message(&mut command, u32::from(kind), |into| {
        numbers.iter().for_each(|(field, value)| put_varint(into, *field, *value));
        blocks.iter().for_each(|(field, bytes)| put_bytes(into, *field, bytes));
    });
    command
}

pub fn simple(kind: u8, numbers: &[(u32, u64)], blocks: &[(u32, Vec<u8>)]) -> Vec<u8> {
    framed(&command(kind, numbers, blocks), &[])
}

pub fn connect() -> Vec<u8> {
    simple(kind::CONNECT, &[(4, 20)], &[(1, b"a client".to_vec())])
}

pub fn send(numbers: &[(u32, u64)], tail: &[u8]) -> Vec<u8> {
    framed(&command(kind::SEND, numbers, &[]), tail)
}

/// A message by itself, of producer 3.
pub fn message(sequence_id: u64, payload: &[u8]) -> Vec<u8> {
    send(&[(1, 3), (2, sequence_id)], &tail(&saying(&[]), payload))
}

/// A batch of so many messages.
pub fn batch_of(count: usize) -> Vec<u8> {
    let payload = batch(&vec![(Vec::new(), None, b"value".to_vec()); count]);
    tail(&saying(&[(11, count as u64)]), &payload)
}

pub fn message_id(ledger: u64, entry: u64, ack_set: &[u64]) -> Vec<u8> {
    let mut id = Vec::new();
    put_varint(&mut id, 1, ledger);
    put_varint(&mut id, 2, entry);
    ack_set.iter().for_each(|word| put_varint(&mut id, 5, *word));
    id
}

/// ACK of consumer 4: individual (0) or cumulative (1).
pub fn ack(ack_type: u64, entries: &[u64], request: Option<u64>) -> Vec<u8> {
    let ids: Vec<_> = entries.iter().map(|entry| (3, message_id(LEDGER, *entry, &[]))).collect();
    let mut numbers = vec![(1, 4), (2, ack_type)];
    numbers.extend(request.map(|request| (8, request)));
    simple(kind::ACK, &numbers, &ids)
}

pub fn redeliver(entries: &[u64]) -> Vec<u8> {
    let ids: Vec<_> = entries.iter().map(|entry| (2, message_id(LEDGER, *entry, &[]))).collect();
    simple(kind::REDELIVER_UNACKNOWLEDGED_MESSAGES, &[(1, 4)], &ids)
}

pub fn flow(messages: u64) -> Vec<u8> {
    simple(kind::FLOW, &[(1, 4), (2, messages)], &[])
}

/// A frame of each kind that a client sends after CONNECT.
pub fn frames() -> Vec<Vec<u8>> {
    let with_key = saying(&[(11, 2), (17, 1), (19, 1_800_000_000_000), (24, 9)]);
    let pair = batch(&[(Vec::new(), Some("a".to_owned()), b"1".to_vec()), (Vec::new(), None, Vec::new())]);
    let mut damaged = batch_of(3);
    damaged[3] ^= 1;
    vec![
        message(1, b"payload"),
        send(&[(1, 3), (2, 8), (3, 2), (6, 9)], &tail(&with_key, &pair)),
        send(&[(1, 3), (2, 8), (3, 3)], &batch_of(3)),
        send(&[(1, 3), (2, 11)], &batch_of(1)[6..]),
        send(&[(1, 3), (2, 12), (3, 3)], &damaged),
        ack(0, &[1, 2, u64::MAX], Some(5)),
        ack(1, &[7], None),
        redeliver(&[3, 4]),
        redeliver(&[]),
        flow(1_000),
        simple(kind::PING, &[], &[]),
        simple(kind::PONG, &[], &[]),
        simple(4, &[(3, 1), (4, 4), (5, 6)], &[(1, b"topic".to_vec()), (2, b"subscription".to_vec())]),
    ]
}

/// An inbox that writes down all it decodes, and releases at once.
pub struct Recorder {
    pub inbox: Inbox,
    pub arrivals: Arrivals,
    /// One text per frame, for each of the connections 0 and 1.
    pub found: [Vec<String>; 2],
    pub ended: [bool; 2],
    pub pings: usize,
}

impl Recorder {
    /// Both connections are accepted already, with a producer and a consumer each.
    pub fn new() -> Recorder {
        let mut inbox = Inbox::default();
        for number in 0..2 {
            let connection = Connection(number);
            inbox.open(connection).unwrap();
            inbox.accept(connection, FRAME_MAXIMUM, SILENCE_US).unwrap();
            let producer = Producer { topic_name: TOPIC.into(), party: Party(9), key_slot: KeySlot(2) };
            inbox.add_producer(connection, 3, producer).unwrap();
            let consumer = Consumer { receiver: Receiver(6), ledger: LEDGER, is_shared: false };
            inbox.add_consumer(connection, 4, consumer).unwrap();
        }
        Recorder { inbox, arrivals: Arrivals::default(), found: Default::default(), ended: [false; 2], pings: 0 }
    }

    pub fn feed(&mut self, connection: usize, bytes: &[u8]) {
        let waiting = self.inbox.feed(Connection(connection as u32), bytes, Timestamp(1)).unwrap();
        assert!(waiting <= FRAME_MAXIMUM + TURN_CONNECTION_BYTES_MAXIMUM, "{waiting} bytes wait");
    }

    /// One turn: decodes, writes down, and releases what was held.
    pub fn turn(&mut self) {
        let events = self.inbox.decode(&mut self.arrivals, Timestamp(1));
        let Recorder { arrivals, found, .. } = self;
        for publish in &arrivals.publishes {
            let mut parts = *arrivals.entry_of(publish).unwrap();
            parts.checksum ^= crc32c::crc32c(&arrivals.span(publish.payload)[6..]);
            assert_eq!(parts.checksum, 0, "the checksum is that of the payload");
            let (topic, payload) = (arrivals.span(publish.topic), arrivals.span(publish.payload));
            let text = format!("publish {topic:?} {payload:02x?} {parts:?} {:?}", publish.fate);
            found[publish.connection.0 as usize].push(text);
        }
        for settlement in &arrivals.settlements {
            let numbers = &arrivals.numbers[settlement.numbers.clone()];
            let text = format!("settle {:?} {numbers:?} {:?}", settlement.says, settlement.request);
            found[settlement.connection.0 as usize].push(text);
        }
        self.pings += arrivals.pings.len();
        for connection in &arrivals.pings {
            found[connection.0 as usize].push("ping".to_owned());
        }
        for (connection, event) in events {
            let index = connection.0 as usize;
            assert!(!self.ended[index], "decoded after a fault");
            self.ended[index] = event.is_err();
            self.found[index].push(format!("{event:?}"));
            self.inbox.release(connection);
        }
    }

    /// Turns until nothing is left to decode.
    pub fn drain(&mut self) {
        self.turn();
        while self.inbox.ready() {
            self.turn();
        }
    }
}

/// Order is promised within entries, within settlements and within commands.
pub fn by_kind(found: &[String]) -> Vec<&String> {
    let mut sorted: Vec<&String> = found.iter().collect();
    sorted.sort_by_key(|text| (text.starts_with("publish"), text.starts_with("settle"), text.as_str() == "ping"));
    sorted
}
