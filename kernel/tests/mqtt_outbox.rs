//! The outbox: who gets which bytes, what is dropped and counted, what is kept.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "a test may stop at what it did not expect"
)]

mod entry_support;

use entry_support::{batch, compressed, saying, tail};
use holdfast_kernel::entry::Compression;
use holdfast_kernel::error::Result;
use holdfast_kernel::flow::entry::EntryParts;
use holdfast_kernel::flow::{
    Acknowledgement, Arrivals, Departure, Fate, Message, Messages, NoticeKind, Outgoing, Publish, Refusal, Sending,
    Span, Step, Target, Terms,
};
use holdfast_kernel::ids::{Connection, KeySlot, Location, Offset, Party, Queue, Timestamp};
use holdfast_kernel::limits::OUTBOX_BYTES_MAXIMUM;
use holdfast_kernel::mqtt::outbox::Outboxes;
use holdfast_kernel::mqtt::sharing::Member;
use holdfast_kernel::mqtt::Version;
use holdfast_kernel::protobuf::put_bytes;
use holdfast_kernel::selection::{Key, Owners, Selection};
use std::sync::Arc;

const OLD: Connection = Connection(1);
const NEW: Connection = Connection(2);

fn outboxes(maximum_packet_size_bytes: u32) -> Outboxes {
    let mut outboxes = Outboxes::default();
    outboxes.open(OLD, Version::V311, maximum_packet_size_bytes, 0, Party(11)).unwrap();
    outboxes.open(NEW, Version::V5, maximum_packet_size_bytes, 0, Party(12)).unwrap();
    outboxes
}

fn taken(outboxes: &mut Outboxes) -> Vec<(Connection, Vec<u8>)> {
    let mut taken = Vec::new();
    outboxes.take(|connection, bytes| taken.push((connection, bytes.to_vec())));
    taken
}

fn target(connection: Connection, terms: Terms) -> Target {
    Target { queue: Queue(connection.0), connection, terms, own: None }
}

/// A message `pp` on `t` with a content type, by party 5.
fn arrivals(qos: u8, retain: bool, targets: Vec<Target>) -> Arrivals {
    let mut arrivals = Arrivals { bytes: b"tpp\x03\0\x01c".to_vec(), ..Arrivals::default() };
    let span = |start, size_bytes| Span { start, size_bytes };
    arrivals.publishes.push(Publish {
        connection: Connection(0),
        publisher: Party(5),
        key_slot: KeySlot(0),
        packet_identifier: u16::from(qos),
        qos,
        retain,
        topic: span(0, 1),
        properties: span(3, 4),
        payload: span(1, 2),
        expiry_interval_s: Some(60),
        fate: Fate::Accepted,
        row: None,
        entry: None,
        targets: Some(Arc::from(targets)),
        stored: None,
    });
    arrivals
}

#[test]
fn messages_pass_through_at_qos_0_on_each_target_s_terms() {
    let mut boxes = outboxes(1_000);
    let identifiers: Option<Arc<[u32]>> = Some([1, 200].into());
    let plain = Terms::default();
    let targets = vec![
        target(OLD, plain.clone()),
        target(NEW, plain.clone()),
        target(NEW, Terms { retain_as_published: true, ..plain.clone() }),
        target(NEW, Terms { identifiers, ..plain.clone() }),
        target(NEW, plain),
        target(Connection(77), Terms::default()),
    ];
    boxes.pass_through(&arrivals(0, true, targets), Timestamp(0));
    let old = b"\x30\x05\0\x01tpp".to_vec();
    let new = b"\x30\x0F\0\x01t\x09\x02\0\0\0\x3C\x03\0\x01cpp".to_vec();
    let retained = [b"\x31", &new[1..]].concat();
    let identified = b"\x30\x14\0\x01t\x0E\x02\0\0\0\x3C\x03\0\x01c\x0B\x01\x0B\xC8\x01pp".to_vec();
    assert_eq!(taken(&mut boxes), [(OLD, old), (NEW, [new.clone(), retained, identified, new].concat())]);
    assert_eq!(boxes.counters().publishes_sent, 5);
    assert!(taken(&mut boxes).is_empty());
}

/// An entry on `t` by party 5, published at QoS 1.
fn entry_arrives(tail: &[u8], count: u32, targets: Vec<Target>) -> Arrivals {
    let mut arrivals = arrivals(1, false, targets);
    let start = arrivals.bytes.len() as u32;
    arrivals.bytes.extend_from_slice(tail);
    let publish = &mut arrivals.publishes[0];
    (publish.payload, publish.properties) = (Span { start, size_bytes: tail.len() as u32 }, Span::default());
    (publish.entry, publish.expiry_interval_s) = (Some(0), None);
    arrivals.entries.push(EntryParts {
        producer: 1,
        sequence_first: 7,
        sequence_last: 7,
        count,
        key_hash: None,
        not_before: None,
        opened_bytes: 0,
        checksum: 0,
    });
    arrivals
}

#[test]
fn each_message_of_an_entry_passes_through_at_qos_0() {
    let mut boxes = outboxes(1_000);
    let named = vec![("mqtt-retain".to_owned(), "true".to_owned()), ("a".to_owned(), "b".to_owned())];
    let payload = batch(&[(named, None, b"first".to_vec()), (Vec::new(), None, b"second".to_vec())]);
    let fields = [(8, 1), (9, payload.len() as u64), (11, 2)];
    let entry = tail(&saying(&fields), &compressed(Compression::Lz4, &payload));
    let retain_as_published = Terms { retain_as_published: true, ..Terms::default() };
    let qos_1 = Terms { qos: 1, ..Terms::default() };
    let targets = vec![target(OLD, Terms::default()), target(NEW, retain_as_published), target(NEW, qos_1)];
    boxes.pass_through(&entry_arrives(&entry, 2, targets), Timestamp(0));
    let old = b"\x30\x08\0\x01tfirst\x30\x09\0\x01tsecond".to_vec();
    let new = b"\x31\x10\0\x01t\x07\x26\0\x01a\0\x01bfirst\x30\x0A\0\x01t\0second".to_vec();
    assert_eq!(taken(&mut boxes), [(OLD, old), (NEW, new)]);
    assert_eq!((boxes.counters().publishes_sent, boxes.counters().payload_bytes_sent), (4, 22));
}

#[test]
fn an_entry_that_stays_closed_is_told_to_whom_its_messages_would_have_gone() {
    let mut boxes = outboxes(1_000);
    let member = Member { connection: OLD, terms: Terms::default(), given: 0 };
    boxes.share(Queue(9), Party(99), Selection::Turns, vec![member]);
    let mut encrypted = saying(&[(11, 3)]);
    put_bytes(&mut encrypted, 13, b"");
    let group = Target { queue: Queue(9), ..target(Connection::GROUP, Terms::default()) };
    let qos_1 = Terms { qos: 1, ..Terms::default() };
    let targets = vec![target(NEW, Terms::default()), target(OLD, qos_1), group];
    boxes.pass_through(&entry_arrives(&tail(&encrypted, &[0; 40]), 3, targets), Timestamp(0));
    assert!(taken(&mut boxes).is_empty());
    let told: Vec<_> = boxes.notices().iter().map(|notice| (notice.party, notice.kind, notice.count)).collect();
    assert_eq!(told, [(Party(12), NoticeKind::Closed, 3), (Party(99), NoticeKind::Closed, 3)]);
    assert_eq!(boxes.counters().dropped_closed, 6);
}

#[test]
fn only_effective_qos_0_passes_and_never_back_to_whom_it_is_barred() {
    let mut boxes = outboxes(1_000);
    let qos_1 = Terms { qos: 1, ..Terms::default() };
    let own = Target { own: Some(Arc::new((Party(5), None))), ..target(NEW, Terms::default()) };
    boxes.pass_through(&arrivals(1, false, vec![target(OLD, qos_1.clone()), own]), Timestamp(0));
    assert!(taken(&mut boxes).is_empty());
    boxes.pass_through(&arrivals(0, false, vec![target(OLD, qos_1)]), Timestamp(0));
    boxes.pass_through(&arrivals(2, false, vec![target(NEW, Terms::default())]), Timestamp(0));
    assert_eq!(taken(&mut boxes).len(), 2);
    for fate in [Fate::Duplicate, Fate::Refused(Refusal::NoRoom)] {
        let mut again = arrivals(2, false, vec![target(NEW, Terms::default())]);
        again.publishes[0].fate = fate;
        boxes.pass_through(&again, Timestamp(0));
    }
    assert!(taken(&mut boxes).is_empty());
}

#[test]
fn a_refusal_that_a_version_cannot_express_is_not_sent_as_an_acknowledgement() {
    let mut boxes = outboxes(1_000);
    let refusal = |connection| {
        Departure::Acknowledgement(Acknowledgement {
            connection,
            step: Step::Acknowledged,
            packet_identifier: 7,
            refusal: Some(Refusal::NoRoom),
        })
    };
    let mut outgoing = Outgoing { departures: vec![refusal(OLD), refusal(NEW)] };
    boxes.encode(&mut outgoing, &mut Log, Timestamp(0)).unwrap();
    assert_eq!(taken(&mut boxes), [(NEW, vec![0x40, 3, 0, 7, 0x97])]);
}

#[test]
fn an_old_client_is_acknowledged_what_it_may_not_publish() {
    let mut boxes = outboxes(1_000);
    let denied = |connection, step| {
        Departure::Acknowledgement(Acknowledgement {
            connection,
            step,
            packet_identifier: 7,
            refusal: Some(Refusal::NotAuthorized),
        })
    };
    let steps = [Step::Acknowledged, Step::Received];
    let packets = steps.iter().flat_map(|step| [denied(OLD, *step), denied(NEW, *step)]).collect();
    boxes.encode(&mut Outgoing { departures: packets }, &mut Log, Timestamp(0)).unwrap();
    let (old, new) = (vec![0x40, 2, 0, 7, 0x50, 2, 0, 7], vec![0x40, 3, 0, 7, 0x87, 0x50, 3, 0, 7, 0x87]);
    assert_eq!(taken(&mut boxes), [(OLD, old), (NEW, new)]);
}

#[test]
fn pings_are_answered() {
    let mut boxes = outboxes(1_000);
    boxes.pass_through(&Arrivals { pings: vec![NEW, OLD, Connection(77)], ..Arrivals::default() }, Timestamp(0));
    assert_eq!(taken(&mut boxes), [(NEW, vec![0xD0, 0]), (OLD, vec![0xD0, 0])]);
    assert_eq!(boxes.counters().pings_answered, 2, "of another protocol's none");
}

#[test]
fn slow_reader_loses_messages_of_qos_0_and_is_told_how_many() {
    let mut boxes = outboxes(1_000);
    boxes.set_writable(NEW, false);
    boxes.write(NEW, &vec![0; OUTBOX_BYTES_MAXIMUM - 20]);
    let messages = arrivals(0, false, vec![target(NEW, Terms::default()), target(OLD, Terms::default())]);
    for _ in 0..3 {
        boxes.pass_through(&messages, Timestamp(0));
    }
    let notices = boxes.notices();
    assert_eq!(notices.len(), 1);
    assert_eq!((notices[0].party, notices[0].kind, notices[0].count), (Party(12), NoticeKind::SlowReader, 2));
    assert!(boxes.notices().is_empty());
    assert_eq!(taken(&mut boxes).iter().map(|(connection, _)| *connection).collect::<Vec<_>>(), [OLD]);
    assert!(boxes.waiting_bytes(NEW) <= OUTBOX_BYTES_MAXIMUM);
    boxes.set_writable(NEW, true);
    assert_eq!(taken(&mut boxes).len(), 1);
    assert_eq!((boxes.waiting_bytes(NEW), boxes.counters().dropped_slow_reader), (0, 2));
}

#[test]
fn who_keeps_up_gets_messages_of_qos_0_of_any_size() {
    let mut boxes = outboxes(4 * 1_048_576);
    let mut messages = arrivals(0, false, vec![target(NEW, Terms::default()), target(OLD, Terms::default())]);
    let start = u32::try_from(messages.bytes.len()).unwrap();
    messages.bytes.resize(3 * OUTBOX_BYTES_MAXIMUM, 7);
    messages.publishes[0].payload = Span { start, size_bytes: 2 * 1_048_576 };
    boxes.write(NEW, &vec![0; OUTBOX_BYTES_MAXIMUM / 2 - 1]);
    boxes.write(OLD, &vec![0; OUTBOX_BYTES_MAXIMUM / 2]);
    boxes.pass_through(&messages, Timestamp(0));
    assert!(boxes.waiting_bytes(NEW) > 2 * OUTBOX_BYTES_MAXIMUM);
    assert_eq!((boxes.waiting_bytes(OLD), boxes.counters().dropped_slow_reader), (OUTBOX_BYTES_MAXIMUM / 2, 1));
}

/// A message whose location's position says when it expires (in seconds); segment 1 is gone.
struct Log;

impl Messages for Log {
    fn entry(
        &mut self,
        _: Location,
        _: Offset,
    ) -> holdfast_kernel::error::Result<Option<holdfast_kernel::flow::entry::Entry<'_>>> {
        Ok(None)
    }

    fn message(&mut self, location: Location, _: Offset) -> Result<Option<Message<'_>>> {
        let expires_at = (location.position > 0).then(|| Timestamp(u64::from(location.position) * 1_000_000));
        let message = Message {
            topic: b"t",
            properties: b"\x03\0\x01c",
            payload: b"pp",
            qos: 2,
            retain: true,
            appended_at: Timestamp(2_000_000),
            expires_at,
        };
        Ok((location.segment != 1).then_some(message))
    }
}

fn sending(connection: Connection, qos: u8, segment: u32, position: u32) -> Departure {
    Departure::Sending(Sending {
        receiver: Default::default(),
        redeliveries: 0,
        connection,
        packet_identifier: if qos == 0 { 0 } else { 258 },
        qos,
        dup: qos > 0,
        again: false,
        retain: false,
        identifiers: Some([5].into()),
        offset: Offset(0),
        location: Location { segment, position },
    })
}

fn encoded(boxes: &mut Outboxes, packets: Vec<Departure>, now_us: u64) -> Vec<(Connection, Vec<u8>)> {
    let mut outgoing = Outgoing { departures: packets };
    boxes.encode(&mut outgoing, &mut Log, Timestamp(now_us)).unwrap();
    assert!(outgoing.departures.is_empty());
    taken(boxes)
}

#[test]
fn deliveries_carry_the_interval_that_remains() {
    // accepts: S0.63
    let mut boxes = outboxes(1_000);
    let interval = |boxes: &mut Outboxes, qos, now_us| {
        let sent = encoded(boxes, vec![sending(NEW, qos, 0, 10)], now_us);
        let packet = sent.first()?.1.clone();
        let at = if qos == 0 { 7 } else { 9 };
        Some(u32::from_be_bytes(packet[at..at + 4].try_into().unwrap()))
    };
    assert_eq!(interval(&mut boxes, 1, 3_000_000), Some(7));
    assert_eq!(interval(&mut boxes, 1, 3_000_001), Some(7));
    assert_eq!(interval(&mut boxes, 1, 2_999_999), Some(8));
    assert_eq!(interval(&mut boxes, 1, 500_000), Some(8), "the clock was set back since: no more than it came with");
    assert_eq!(interval(&mut boxes, 1, 20_000_000), Some(1), "its packet identifier is taken: it goes");
    assert_eq!(interval(&mut boxes, 0, 9_999_999), Some(1));
    assert_eq!(interval(&mut boxes, 0, 10_000_000), None);
    assert_eq!(boxes.notices()[0].kind, NoticeKind::Expired);
    assert!(boxes.refused().is_empty());
}

#[test]
fn each_version_gets_its_own_packets() {
    let mut boxes = outboxes(1_000);
    let acknowledge = |connection, step, refusal| {
        Departure::Acknowledgement(Acknowledgement { connection, step, packet_identifier: 258, refusal })
    };
    let packets = |connection| {
        vec![
            sending(connection, 1, 0, 0),
            acknowledge(connection, Step::Acknowledged, None),
            acknowledge(connection, Step::Received, Some(Refusal::NoRoom)),
            acknowledge(connection, Step::Released, None),
            acknowledge(connection, Step::Completed, Some(Refusal::NotInFlight)),
            Departure::Encoded(connection, vec![1, 2, 3]),
        ]
    };
    let old = b"\x3A\x07\0\x01t\x01\x02pp\x40\x02\x01\x02\x62\x02\x01\x02\x70\x02\x01\x02\x01\x02\x03";
    assert_eq!(encoded(&mut boxes, packets(OLD), 0), [(OLD, old.to_vec())]);
    let new = b"\x3A\x0E\0\x01t\x01\x02\x06\x03\0\x01c\x0B\x05pp\x40\x02\x01\x02\x50\x03\x01\x02\x97\x62\x02\x01\x02\
                \x70\x03\x01\x02\x92\x01\x02\x03";
    assert_eq!(encoded(&mut boxes, packets(NEW), 0), [(NEW, new.to_vec())]);
    let mut outgoing = Outgoing { departures: packets(Connection(50)) };
    boxes.encode(&mut outgoing, &mut Log, Timestamp(0)).unwrap();
    assert_eq!(outgoing.departures.len(), 6, "what goes to who is not open here is left to others");
    assert!(taken(&mut boxes).is_empty());
}

#[test]
fn what_cannot_be_sent_at_qos_1_is_handed_back() {
    let mut boxes = outboxes(15);
    let packets = vec![sending(NEW, 1, 0, 0), sending(OLD, 1, 0, 0), sending(OLD, 2, 1, 0), sending(NEW, 0, 0, 9)];
    let sent = encoded(&mut boxes, packets, 0);
    assert_eq!(sent.iter().map(|(connection, _)| *connection).collect::<Vec<_>>(), [OLD], "16 bytes are too many");
    assert_eq!(boxes.refused(), [(NEW, 258, NoticeKind::TooLarge), (OLD, 258, NoticeKind::Retention)]);
    assert!(boxes.refused().is_empty());
    assert_eq!((boxes.counters().dropped_too_large, boxes.counters().dropped_retention), (2, 1));
    let notices = boxes.notices().into_iter().map(|notice| (notice.party, notice.kind, notice.count));
    let expected = [(Party(12), NoticeKind::TooLarge, 1)];
    assert_eq!(notices.collect::<Vec<_>>(), expected);
}

#[test]
fn closed_connection_gets_nothing_and_a_new_one_starts_empty() {
    let mut boxes = outboxes(1_000);
    boxes.write(NEW, b"old");
    boxes.close(NEW);
    boxes.write(NEW, b"nobody");
    assert!(taken(&mut boxes).is_empty());
    boxes.open(NEW, Version::V5, 1_000, 0, Party(12)).unwrap();
    assert_eq!(boxes.waiting_bytes(NEW), 0);
    boxes.write(NEW, b"new");
    assert_eq!(taken(&mut boxes), [(NEW, b"new".to_vec())]);
    assert!(boxes.open(Connection(u32::MAX), Version::V5, 1_000, 0, Party(1)).is_err());
}

#[test]
fn a_group_gets_qos_0_in_turn_past_those_that_do_not_keep_up() {
    let mut boxes = outboxes(1_000);
    let member = |connection| Member { connection, terms: Terms::default(), given: 0 };
    let group = Queue(9);
    boxes.share(group, Party(50), Selection::Turns, vec![member(OLD), member(NEW)]);
    let terms = Terms { qos: 2, ..Terms::default() };
    let publish = |boxes: &mut Outboxes, qos, count| {
        for _ in 0..count {
            let target = Target { queue: group, connection: Connection::GROUP, terms: terms.clone(), own: None };
            boxes.pass_through(&arrivals(qos, false, vec![target]), Timestamp(0));
        }
    };
    let sizes = |boxes: &Outboxes| [OLD, NEW].map(|connection| boxes.waiting_bytes(connection));
    publish(&mut boxes, 1, 1);
    assert_eq!(sizes(&boxes), [0, 0], "what is stored is for the group's queue");
    publish(&mut boxes, 0, 2);
    let [old, new] = sizes(&boxes);
    assert!(old > 0 && new > 0);
    publish(&mut boxes, 0, 4);
    assert_eq!(sizes(&boxes), [3 * old, 3 * new]);
    boxes.set_writable(OLD, false);
    publish(&mut boxes, 0, 3);
    assert_eq!(sizes(&boxes), [3 * old, 6 * new]);
    boxes.set_writable(NEW, false);
    publish(&mut boxes, 0, 2);
    let lost: Vec<_> = boxes.notices().iter().map(|notice| (notice.party, notice.kind, notice.count)).collect();
    assert_eq!(lost, [(Party(50), NoticeKind::SlowReader, 2)]);
    boxes.share(group, Party(50), Selection::Turns, vec![]);
    publish(&mut boxes, 0, 1);
    assert!(boxes.notices().is_empty(), "nobody is there, which is nobody's loss at QoS 0");
}

#[test]
fn a_write_has_at_most_so_many_messages_and_what_is_left_leaves_with_the_turn() {
    for (maximum, sizes) in [(0, vec![5]), (1, vec![1; 5]), (2, vec![2, 2, 1]), (5, vec![5]), (9, vec![5])] {
        let mut boxes = outboxes(1_000);
        boxes.limit_writes(OLD, maximum);
        for _ in 0..2 {
            let packets = (0..5).map(|_| sending(OLD, 1, 0, 0)).collect();
            let sent = encoded(&mut boxes, packets, 0);
            // Each message is one PUBLISH of the same length.
            let total: usize = sent.iter().map(|(_, bytes)| bytes.len()).sum();
            let messages: Vec<usize> = sent.iter().map(|(_, bytes)| bytes.len() * 5 / total).collect();
            assert_eq!(messages, sizes, "{maximum}");
        }
    }
}

/// What each of two members of a group has been given of so many messages of QoS 0, with this much waiting for OLD.
fn shared(selection: Selection<Connection>, waits: usize, count: usize) -> [u64; 2] {
    let mut boxes = outboxes(1_000);
    let member = |connection| Member { connection, terms: Terms::default(), given: 0 };
    boxes.write(OLD, &vec![0; waits]);
    for _ in 0..2 {
        // Whoever joins or leaves changes nothing about what the others were given.
        boxes.share(Queue(9), Party(50), selection.clone(), vec![member(OLD), member(NEW)]);
        for _ in 0..count {
            let target = Target { queue: Queue(9), connection: Connection::GROUP, terms: Terms::default(), own: None };
            boxes.pass_through(&arrivals(0, false, vec![target]), Timestamp(0));
        }
    }
    let given: Vec<u64> = boxes.members(Queue(9)).iter().map(|member| member.given).collect();
    given.try_into().unwrap()
}

#[test]
fn qos_0_is_shared_as_the_selection_says() {
    assert_eq!(shared(Selection::Turns, 50, 4), [4, 4]);
    assert_eq!(shared(Selection::Stay, 50, 4), [8, 0]);
    assert_eq!(shared(Selection::LeastLoaded, 10_000, 4), [0, 8], "it has less to be sent");
    let owner = |key, owner| Selection::ByKey(key, Arc::new(Owners::new(vec![(0, 65_536, owner)]).unwrap()));
    for key in [Key::Topic, Key::Publisher, Key::UserProperty(Arc::from(*b"reader"))] {
        assert_eq!(shared(owner(key.clone(), OLD), 50, 4), [8, 0]);
        assert_eq!(shared(owner(key.clone(), NEW), 50, 4), [0, 8]);
        assert_eq!(shared(owner(key, OLD), OUTBOX_BYTES_MAXIMUM, 4), [0, 0], "its owner or nobody");
    }
}
