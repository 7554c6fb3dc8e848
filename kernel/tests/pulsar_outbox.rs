//! What Pulsar clients are sent: entries as they came, receipts, answers.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "a test may stop at what it did not expect"
)]

mod entry_support;
mod pulsar_corpus;

use holdfast_kernel::entry::{metadata, open, Opened};
use holdfast_kernel::error::Result;
use holdfast_kernel::flow::entry::{Body, Entry, Receipt, Reply};
use holdfast_kernel::flow::{
    Acknowledgement, Arrivals, Departure, Message, Messages, NoticeKind, Outgoing, Refusal, Sending, Step,
};
use holdfast_kernel::ids::{Connection, Location, Offset, Party, Receiver, Timestamp, TopicId};
use holdfast_kernel::pulsar::kind;
use holdfast_kernel::pulsar::outbox::Outboxes;
use pulsar_corpus::{batch_of, command, framed, message_id};

const HERE: Connection = Connection(1);
const OTHER: Connection = Connection(2);
const RECEIVER: Receiver = Receiver(8);
const CONSUMER: u64 = 5;

/// A log with one record: an entry, or a message without one.
struct Stored {
    tail: Option<Vec<u8>>,
    is_gone: bool,
}

impl Messages for Stored {
    fn message(&mut self, _: Location, _: Offset) -> Result<Option<Message<'_>>> {
        panic!("entries are sent whole")
    }

    fn entry(&mut self, location: Location, offset: Offset) -> Result<Option<Entry<'_>>> {
        assert_eq!((location, offset), (Location { segment: 3, position: 64 }, Offset(70)));
        let message = Message {
            topic: b"a",
            properties: b"\x26\x00\x01n\x00\x01v",
            payload: b"payload",
            qos: 1,
            retain: true,
            appended_at: Timestamp(1_700_000_000_123_456),
            expires_at: None,
        };
        let body = self.tail.as_deref().map_or(Body::Message(message), Body::AsSent);
        let (topic, number, count, publisher) = (TopicId(12), 34, 3, Party(1));
        let entry = Entry { topic, number, offset, count, appended_at: message.appended_at, publisher, body };
        Ok((!self.is_gone).then_some(entry))
    }
}

fn opened() -> Outboxes {
    let mut outboxes = Outboxes::default();
    outboxes.open(HERE, 1 << 20).unwrap();
    outboxes.add_consumer(HERE, CONSUMER, RECEIVER);
    outboxes
}

fn sending(redeliveries: u16) -> Departure {
    Departure::Sending(Sending {
        connection: HERE,
        receiver: RECEIVER,
        redeliveries,
        packet_identifier: 0,
        qos: 1,
        dup: false,
        again: false,
        retain: false,
        identifiers: None,
        offset: Offset(70),
        location: Location { segment: 3, position: 64 },
    })
}

/// What each connection is sent for these.
fn sent(outboxes: &mut Outboxes, departures: Vec<Departure>, stored: &mut Stored) -> Vec<(Connection, Vec<u8>)> {
    let mut outgoing = Outgoing { departures };
    outboxes.encode(&mut outgoing, stored).unwrap();
    assert!(outgoing.departures.is_empty(), "nobody takes what is left");
    taken(outboxes)
}

fn taken(outboxes: &mut Outboxes) -> Vec<(Connection, Vec<u8>)> {
    let mut all = Vec::new();
    outboxes.take(|connection, bytes| all.push((connection, bytes.to_vec())));
    all
}

fn a_batch() -> Stored {
    Stored { tail: Some(batch_of(3)), is_gone: false }
}

fn heading(redeliveries: &[(u32, u64)]) -> Vec<u8> {
    let id = message_id(12, 34, &[]);
    let mut command = command(kind::MESSAGE, &[(1, CONSUMER)], &[(2, id)]);
    for (field, value) in redeliveries {
        holdfast_kernel::protobuf::put_varint(&mut command, *field, *value);
    }
    let size = u8::try_from(command.len() - 4).unwrap();
    command[3] = size;
    command
}

// accepts: S4.79
#[test]
fn an_entry_leaves_byte_for_byte_behind_a_command_of_its_consumer() {
    let mut outboxes = opened();
    let tail = batch_of(3);
    let out = sent(&mut outboxes, vec![sending(0), sending(7)], &mut a_batch());
    let expected = [framed(&heading(&[]), &tail), framed(&heading(&[(3, 7)]), &tail)].concat();
    assert_eq!(out, [(HERE, expected.clone())]);
    let counters = outboxes.counters();
    assert_eq!((counters.entries_sent, counters.messages_sent), (2, 6));
    assert_eq!(counters.bytes_encoded, expected.len() as u64);
}

#[test]
fn a_message_that_is_no_entry_is_made_one() {
    let mut outboxes = opened();
    let out = sent(&mut outboxes, vec![sending(0)], &mut Stored { tail: None, is_gone: false });
    let command = heading(&[]);
    let tail = &out[0].1[8 + command.len()..];
    assert_eq!(out[0].1, framed(&command, tail));
    let (said, _) = metadata(tail).unwrap();
    assert_eq!((said.producer_name, said.sequence_id, said.publish_time_ms), (&b"holdfast"[..], 34, 1_700_000_000_123));
    let mut opened = Opened::default();
    open(tail, &mut opened).unwrap();
    assert_eq!(opened.message(0).unwrap().payload, b"payload");
    assert_eq!(tail[2..6], crc32c::crc32c(&tail[6..]).to_be_bytes());
}

#[test]
fn a_receipt_names_the_entry_and_the_numbers_that_its_producer_gave_it() {
    let receipt = Receipt {
        connection: HERE,
        producer: 3,
        sequence_first: 40,
        sequence_last: 44,
        topic: TopicId(12),
        entry: 34,
        refusal: None,
    };
    let mut outboxes = opened();
    let out = sent(&mut outboxes, vec![Departure::Receipt(receipt)], &mut a_batch());
    let mut expected = command(kind::SEND_RECEIPT, &[(1, 3), (2, 40)], &[(3, message_id(12, 34, &[]))]);
    expected.extend(b"\x20\x2c");
    expected[3] += 2;
    assert_eq!(out, [(HERE, framed(&expected, b""))]);
    for (refusal, error) in [(Refusal::NoRoom, 2), (Refusal::NotAuthorized, 4), (Refusal::Damaged, 9)] {
        let refused = Receipt { refusal: Some(refusal), topic: TopicId(0), ..receipt };
        let out = sent(&mut outboxes, vec![Departure::Receipt(refused)], &mut a_batch());
        let begun = command(kind::SEND_ERROR, &[(1, 3), (2, 40), (3, error)], &[]);
        let body = &out[0].1[8..];
        assert_eq!(body[..3], begun[..3], "{refusal:?}");
        assert_eq!(body[4..begun.len()], begun[4..], "{refusal:?}");
        assert!(body[begun.len()] == 0x22 && body[begun.len() + 2..].ends_with(b"."), "a sentence goes with it");
    }
    assert_eq!((outboxes.counters().receipts_sent, outboxes.counters().refusals_sent), (1, 3));
}

#[test]
fn answers_go_to_who_asked_and_what_is_for_nobody_is_forgotten() {
    let mut outboxes = opened();
    let mut arrivals = Arrivals::default();
    arrivals.pings.extend([HERE, OTHER]);
    outboxes.pass_through(&arrivals);
    assert_eq!(taken(&mut outboxes), [(HERE, framed(&command(kind::PONG, &[], &[]), b""))]);
    let reply = Reply { connection: HERE, receiver: RECEIVER, request: 77 };
    let step = Acknowledgement { connection: HERE, step: Step::Completed, packet_identifier: 1, refusal: None };
    let departures = vec![
        Departure::Reply(reply),
        Departure::Reply(Reply { receiver: Receiver(99), ..reply }),
        Departure::Reply(Reply { connection: OTHER, ..reply }),
        Departure::Encoded(HERE, b"encoded".to_vec()),
        Departure::Encoded(OTHER, b"lost".to_vec()),
        Departure::Acknowledgement(step),
    ];
    let answer = framed(&command(kind::ACK_RESPONSE, &[(1, CONSUMER), (6, 77)], &[]), b"");
    assert_eq!(sent(&mut outboxes, departures, &mut a_batch()), [(HERE, [&answer[..], b"encoded"].concat())]);
    outboxes.remove_consumer(HERE, RECEIVER);
    let departures = vec![Departure::Reply(reply), sending(0)];
    assert_eq!(sent(&mut outboxes, departures, &mut a_batch()), [], "it has gone");
    assert_eq!((outboxes.counters().pings_answered, outboxes.counters().replies_sent), (1, 1));
}

#[test]
fn what_cannot_be_sent_is_told_with_its_reason_and_leaves_no_trace() {
    let mut outboxes = opened();
    let gone = &mut Stored { tail: None, is_gone: true };
    assert_eq!(sent(&mut outboxes, vec![sending(0)], gone), []);
    assert_eq!(outboxes.gone(), [(RECEIVER, Offset(70), NoticeKind::Retention)]);
    let whole = framed(&heading(&[]), &batch_of(3));
    outboxes.open(HERE, whole.len()).unwrap();
    outboxes.add_consumer(HERE, CONSUMER, RECEIVER);
    outboxes.write(HERE, b"before");
    let all = sent(&mut outboxes, vec![sending(0), sending(1)], &mut a_batch());
    assert_eq!(all, [(HERE, [&b"before"[..], &whole].concat())]);
    assert_eq!(outboxes.gone(), [(RECEIVER, Offset(70), NoticeKind::TooLarge)]);
    assert_eq!(outboxes.gone(), []);
    let counters = outboxes.counters();
    assert_eq!((counters.dropped_retention, counters.dropped_too_large, counters.entries_sent), (1, 1, 1));
}

#[test]
fn what_its_socket_does_not_take_waits() {
    let mut outboxes = opened();
    outboxes.set_writable(HERE, false);
    assert_eq!(sent(&mut outboxes, vec![sending(0)], &mut a_batch()), []);
    let waiting = outboxes.waiting_bytes(HERE);
    outboxes.set_writable(HERE, true);
    assert_eq!(taken(&mut outboxes)[0].1.len(), waiting);
    outboxes.close(HERE);
    assert_eq!((outboxes.waiting_bytes(HERE), sent(&mut outboxes, vec![sending(0)], &mut a_batch())), (0, vec![]));
}
