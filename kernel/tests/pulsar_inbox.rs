//! What Pulsar clients send, and what they may not: entries, settlements, permits, commands.

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

use entry_support::{saying, tail};
use holdfast_kernel::entry::MAGIC;
use holdfast_kernel::flow::entry::{EntryParts, Permits, Says};
use holdfast_kernel::flow::{Arrivals, Fate, Refusal};
use holdfast_kernel::ids::{Connection, KeySlot, Party, Receiver, Timestamp};
use holdfast_kernel::limits::{COMMAND_BYTES_MAXIMUM, PRODUCERS_REMEMBERED_MAXIMUM, TURN_BYTES_MAXIMUM};
use holdfast_kernel::pulsar::command::are_last_answers;
use holdfast_kernel::pulsar::fault::Fault;
use holdfast_kernel::pulsar::inbox::Inbox;
use holdfast_kernel::pulsar::kind;
use holdfast_kernel::pulsar::peer::{Consumer, Control, Producer};
use holdfast_kernel::selection::murmur3_32;
use holdfast_kernel::wire::rate::Rate;
use proptest::prelude::*;
use pulsar_corpus::{
    ack, batch_of, by_kind, command, connect, flow, framed, frames, message, message_id, redeliver, send, simple,
    Recorder, FRAME_MAXIMUM, LEDGER, SILENCE_US, TOPIC,
};

const HERE: Connection = Connection(0);
const NOW: Timestamp = Timestamp(1_000_000);

struct Desk {
    inbox: Inbox,
    arrivals: Arrivals,
}

impl Desk {
    fn opening() -> Desk {
        Desk::of(Inbox::default())
    }

    fn of(mut inbox: Inbox) -> Desk {
        inbox.open(HERE).unwrap();
        Desk { inbox, arrivals: Arrivals::default() }
    }

    /// Accepted, with a producer 3 and a consumer 4.
    fn new() -> Desk {
        Desk::opening().accepted()
    }

    fn accepted(self) -> Desk {
        let mut desk = self;
        desk.inbox.accept(HERE, FRAME_MAXIMUM, SILENCE_US).unwrap();
        desk.produce(3, TOPIC);
        desk.consume(false);
        desk
    }

    fn produce(&mut self, number: u64, topic_name: &[u8]) {
        let producer = Producer { topic_name: topic_name.into(), party: Party(9), key_slot: KeySlot(2) };
        self.inbox.add_producer(HERE, number, producer).unwrap();
    }

    fn consume(&mut self, is_shared: bool) {
        let consumer = Consumer { receiver: Receiver(6), ledger: LEDGER, is_shared };
        self.inbox.add_consumer(HERE, 4, consumer).unwrap();
    }

    fn turn(&mut self, bytes: &[u8]) -> Option<Result<Control, Fault>> {
        self.inbox.feed(HERE, bytes, NOW).unwrap();
        let mut events = self.inbox.decode(&mut self.arrivals, NOW);
        assert!(events.len() <= 1, "it is held after the first");
        events.pop().map(|(_, event)| event)
    }

    /// Nothing is decided on, and nothing is wrong.
    fn takes(&mut self, bytes: &[u8]) {
        assert_eq!(self.turn(bytes), None);
    }

    fn parts(&self) -> Vec<EntryParts> {
        self.arrivals.entries.clone()
    }

    fn payload(&self, index: usize) -> &[u8] {
        self.arrivals.span(self.arrivals.publishes[index].payload)
    }

    /// What is said of which entries.
    fn said(&self) -> Vec<(Says, Vec<u64>, Option<u64>)> {
        let said = self.arrivals.settlements.iter().map(|settlement| {
            assert_eq!((settlement.connection, settlement.receiver), (HERE, Receiver(6)));
            (settlement.says, self.arrivals.numbers[settlement.numbers.clone()].to_vec(), settlement.request)
        });
        said.collect()
    }
}

/// What a connection is faulted with for these bytes, of which nothing is taken.
fn fault_of(bytes: &[u8]) -> &'static str {
    let mut desk = Desk::new();
    let fault = desk.turn(bytes).unwrap().unwrap_err();
    assert!(desk.arrivals.publishes.is_empty() && desk.arrivals.entries.is_empty(), "nothing of it is stored");
    desk.inbox.release(HERE);
    desk.takes(&message(1, b"after"));
    assert!(desk.arrivals.publishes.is_empty(), "nothing is decoded after a fault");
    fault.reason
}

// accepts: S4.6
// accepts: S4.76
#[test]
fn a_batch_is_one_entry_byte_for_byte_under_the_topic_and_the_party_of_its_producer() {
    let mut desk = Desk::new();
    let entry = batch_of(5);
    desk.takes(&send(&[(1, 3), (2, 40), (3, 5)], &entry));
    let publish = &desk.arrivals.publishes[0];
    assert_eq!(desk.arrivals.span(publish.topic), TOPIC);
    assert_eq!((publish.publisher, publish.key_slot, publish.qos), (Party(9), KeySlot(2), 1));
    assert_eq!((publish.fate, publish.retain, publish.packet_identifier), (Fate::Accepted, false, 0));
    assert_eq!(desk.payload(0), entry);
    let parts = desk.arrivals.entry_of(publish).unwrap();
    let expected = EntryParts {
        producer: 3,
        sequence_first: 40,
        sequence_last: 44,
        count: 5,
        key_hash: None,
        not_before: None,
        opened_bytes: 0,
        checksum: crc32c::crc32c(&entry[6..]),
    };
    assert_eq!(*parts, expected);
    assert_eq!(desk.arrivals.totals.publishes, [0, 5, 0], "messages are counted, not entries");
}

#[test]
fn what_an_entry_says_of_its_key_its_time_and_its_numbers_is_read() {
    let mut desk = Desk::new();
    desk.takes(&send(&[(1, 3), (2, 69)], &tail(&saying(&[(8, 1), (9, 70_000)]), b"compressed")));
    assert_eq!(desk.parts()[0].opened_bytes, 70_000);
    let mut metadata = saying(&[(9, 7), (19, 1_800_000_000_123), (24, 77)]);
    holdfast_kernel::protobuf::put_bytes(&mut metadata, 6, b"key");
    desk.takes(&send(&[(1, 3), (2, 70)], &tail(&metadata, b"payload")));
    let parts = desk.parts()[0];
    assert_eq!(parts.key_hash, Some(murmur3_32(b"key")));
    assert_eq!(parts.opened_bytes, 0);
    assert_eq!(parts.not_before, Some(Timestamp(1_800_000_000_123_000)));
    assert_eq!((parts.sequence_first, parts.sequence_last), (70, 77), "the metadata say which is the last");
    desk.takes(&send(&[(1, 3), (2, 70), (6, 79)], &tail(&metadata, b"payload")));
    assert_eq!(desk.parts()[0].sequence_last, 79, "the command knows better");
    desk.takes(&send(&[(1, 3), (2, 70), (6, 1)], &tail(&saying(&[(19, -5_i64 as u64)]), b"payload")));
    assert_eq!((desk.parts()[0].sequence_last, desk.parts()[0].not_before), (70, None), "what cannot be is not");
}

#[test]
fn an_entry_without_a_checksum_gets_one() {
    let mut desk = Desk::new();
    let entry = batch_of(2);
    desk.takes(&[send(&[(1, 3), (2, 1)], &entry[6..]), send(&[(1, 3), (2, 3)], &entry)].concat());
    assert_eq!(desk.payload(0), entry);
    assert_eq!(desk.payload(1), entry);
    assert!(desk.payload(0).starts_with(&MAGIC));
    assert_eq!(desk.parts()[0].checksum, desk.parts()[1].checksum);
}

#[test]
fn a_checksum_that_does_not_fit_refuses_the_entry_in_its_place() {
    let mut desk = Desk::new();
    let mut damaged = batch_of(3);
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    let frames = [message(1, b"a"), send(&[(1, 3), (2, 2), (3, 3)], &damaged), message(5, b"b")].concat();
    desk.takes(&frames);
    let fates: Vec<_> = desk.arrivals.publishes.iter().map(|publish| publish.fate).collect();
    assert_eq!(fates, [Fate::Accepted, Fate::Refused(Refusal::Damaged), Fate::Accepted]);
    let told: Vec<_> = desk.parts().iter().map(|parts| (parts.producer, parts.sequence_first)).collect();
    assert_eq!(told, [(3, 1), (3, 2), (3, 5)]);
    // Metadata that are damaged are not read.
    desk.takes(&send(&[(1, 3), (2, 9)], &[&MAGIC[..], b"????", &[0xff; 30]].concat()));
    assert_eq!(desk.arrivals.publishes[0].fate, Fate::Refused(Refusal::Damaged));
}

#[test]
fn an_entry_that_is_not_what_it_says_ends_the_connection() {
    let entry = batch_of(3);
    let of = |tail: &[u8]| fault_of(&send(&[(1, 3), (2, 1)], tail));
    let malformed = "an entry that is not what it says";
    assert_eq!(of(b""), malformed);
    assert_eq!(of(&entry[..5]), malformed, "a checksum that ends early");
    assert_eq!(of(&entry[6..9]), malformed, "metadata that end early");
    assert_eq!(of(&entry[6..30]), malformed, "metadata that end early");
    assert_eq!(of(&tail(b"\x0a\x05ab", b"")), malformed, "metadata that are no fields");
    assert_eq!(of(&tail(&saying(&[(11, 1_000)]), b"few")), malformed, "more messages than bytes");
    assert_eq!(of(&tail(&saying(&[(11, 0)]), b"none")), malformed, "no message");
    assert_eq!(of(&tail(&saying(&[(11, 65_537)]), &vec![0; 300_000])), malformed, "more messages than may be");
    assert_eq!(of(&tail(&saying(&[(11, u64::MAX)]), b"")), malformed, "fewer messages than none");
    assert_eq!(of(&tail(&saying(&[(8, 1), (9, u64::from(u32::MAX)), (11, 65_537)]), b"")), malformed);
    assert_eq!(of(&tail(&saying(&[(8, 9)]), b"")), malformed, "a compression that there is not");
    assert_eq!(of(b"\x0e\x02\0\0\0\x02\x08\x01"), malformed, "what only a broker puts in front");
    let other = "an entry with another number of messages than its command says";
    assert_eq!(fault_of(&send(&[(1, 3), (2, 1), (3, 2)], &entry)), other);
    assert_eq!(fault_of(&send(&[(1, 3), (2, 1), (3, -1_i64 as u64)], &entry)), other);
}

#[test]
fn sizes_that_contradict_one_another_end_the_connection_before_more_is_read() {
    assert_eq!(fault_of(&[0, 0, 0, 0]), "a frame without a command");
    assert_eq!(fault_of(&[0, 0, 0, 4]), "a frame without a command");
    assert_eq!(fault_of(&[0, 0, 0, 9, 0, 0, 0, 6]), "a command that is larger than its frame");
    assert_eq!(fault_of(&[0, 0, 0, 9, 0xff, 0xff, 0xff, 0xff]), "a command that is larger than its frame");
    let most = (FRAME_MAXIMUM as u32 - 4).to_be_bytes();
    Desk::new().takes(&[&most[..], &[0, 0, 0, 9]].concat());
    let more = (FRAME_MAXIMUM as u32 - 3).to_be_bytes();
    assert_eq!(fault_of(&[&more[..], &[0, 0, 0, 9]].concat()), "a frame that is larger than one may be");
    let ping = command(kind::PING, &[], &[]);
    assert_eq!(fault_of(&framed(&ping, b"more")), "a frame that is larger than its command");
}

#[test]
fn commands_that_are_none_end_the_connection() {
    assert_eq!(fault_of(&framed(b"\x08", b"")), "a command that is no Protobuf");
    assert_eq!(fault_of(&framed(b"\x12\x00", b"")), "a command that does not say which");
    for kind in [1, 41, 49, 69, 200] {
        assert_eq!(fault_of(&simple(kind, &[], &[])), "a command of a kind that there is not", "{kind}");
    }
    for kind in [3, kind::SEND_RECEIPT, kind::SEND_ERROR, kind::MESSAGE, 13, 14, 17, kind::ACK_RESPONSE, 36] {
        assert_eq!(fault_of(&simple(kind, &[], &[])), "a command that only brokers send", "{kind}");
    }
    assert_eq!(fault_of(&connect()), "a second CONNECT");
    assert_eq!(fault_of(&send(&[(1, 3)], b"")), "an entry without its producer or its number");
    assert_eq!(fault_of(&simple(kind::FLOW, &[(1, 4)], &[])), "permits without their consumer or their number");
    let untyped = "an acknowledgement without its consumer or its type";
    assert_eq!(fault_of(&simple(kind::ACK, &[(1, 4)], &[])), untyped);
    assert_eq!(fault_of(&simple(kind::ACK, &[(1, 4), (2, 2)], &[])), untyped);
    let unnamed = "a message id without its ledger or its entry";
    assert_eq!(fault_of(&simple(kind::ACK, &[(1, 4), (2, 0)], &[(3, b"\x08\x01".to_vec())])), unnamed);
    let transaction = "a command of a transaction, of which there are none";
    assert_eq!(fault_of(&send(&[(1, 3), (2, 1), (4, 1), (5, 1)], &batch_of(1))), transaction);
    assert_eq!(fault_of(&simple(kind::ACK, &[(1, 4), (2, 0), (6, 1)], &[])), transaction);
    let large = simple(4, &[], &[(1, vec![b'a'; COMMAND_BYTES_MAXIMUM])]);
    assert_eq!(fault_of(&large), "a command that is larger than one may be");
}

#[test]
fn connect_comes_first_and_nothing_before_it_was_accepted() {
    let mut desk = Desk::opening();
    let fault = desk.turn(&message(1, b"early")).unwrap().unwrap_err();
    assert_eq!(fault.reason, "a first command that is not CONNECT");
    let mut desk = Desk::opening();
    assert_eq!(
        desk.turn(&[0, 4, 0, 0, 0, 0, 0, 9]).unwrap().unwrap_err().reason,
        "a frame that is larger than one may be"
    );
    let mut desk = Desk::opening();
    let control = desk.turn(&[connect(), message(1, b"behind")].concat()).unwrap().unwrap();
    assert_eq!(control, Control::Command { kind: kind::CONNECT, bytes: connect()[8..].to_vec() });
    assert!(desk.arrivals.publishes.is_empty(), "it is held");
    assert!(desk.inbox.silent(Timestamp(NOW.0 + 10 * SILENCE_US)).is_empty(), "its silence is counted once accepted");
    desk.inbox.accept(HERE, FRAME_MAXIMUM, SILENCE_US).unwrap();
    desk.produce(3, TOPIC);
    desk.inbox.release(HERE);
    desk.takes(b"");
    assert_eq!(desk.arrivals.publishes.len(), 1);
    assert_eq!(desk.inbox.silent(Timestamp(NOW.0 + SILENCE_US + 1)), [HERE]);
    let mut desk = Desk::opening();
    assert!(desk.turn(&[connect(), message(1, b"behind")].concat()).unwrap().is_ok());
    desk.inbox.release(HERE);
    assert_eq!(desk.turn(b"").unwrap().unwrap_err().reason, "a command before CONNECT was accepted");
}

#[test]
fn entries_of_producers_that_are_closed_are_passed_over_and_of_others_are_a_fault() {
    let mut desk = Desk::new();
    desk.inbox.remove_producer(HERE, 3);
    desk.takes(&message(1, b"late"));
    assert!(desk.arrivals.publishes.is_empty());
    desk.inbox.remove_producer(HERE, 99);
    desk.inbox.remove_producer(Connection(7), 3);
    for number in 0..PRODUCERS_REMEMBERED_MAXIMUM as u64 {
        desk.produce(100 + number, TOPIC);
        desk.inbox.remove_producer(HERE, 100 + number);
    }
    desk.takes(&send(&[(1, 100), (2, 1)], &batch_of(1)));
    desk.produce(100, TOPIC);
    desk.takes(&send(&[(1, 100), (2, 1)], &batch_of(1)));
    assert_eq!(desk.arrivals.publishes.len(), 1, "it is there again");
    let fault = desk.turn(&message(2, b"forgotten")).unwrap().unwrap_err();
    assert_eq!(fault.reason, "an entry of a producer that there never was");
    assert_eq!(fault_of(&send(&[(1, 99), (2, 1)], &batch_of(1))), "an entry of a producer that there never was");
}

#[test]
fn each_producer_has_its_topic_which_lies_once_in_the_arena() {
    let mut desk = Desk::new();
    let long = vec![b't'; 60_000];
    desk.produce(5, &long);
    let entry = batch_of(1);
    let mut sent = Vec::new();
    for number in 0..1_000 {
        sent.extend(send(&[(1, 3 + 2 * (number % 2)), (2, number)], &entry));
    }
    for _ in 0..2 {
        desk.takes(&sent);
        let names: Vec<_> = desk.arrivals.publishes.iter().map(|one| desk.arrivals.span(one.topic)).collect();
        assert!(names.chunks(2).all(|pair| pair[0] == TOPIC && pair[1] == long));
        assert!(desk.arrivals.bytes.len() < sent.len() + 2 * long.len());
    }
}

// accepts: S4.24
#[test]
fn acknowledgements_name_entries_of_their_consumer() {
    let mut desk = Desk::new();
    desk.takes(&[ack(0, &[5, 3, 9], Some(70)), ack(1, &[8], None), ack(0, &[u64::MAX], Some(71))].concat());
    let expected =
        [(Says::Done, vec![5, 3, 9], Some(70)), (Says::DoneUpTo, vec![8], None), (Says::Done, vec![], Some(71))];
    assert_eq!(desk.said(), expected);
    let ids = [
        (3, message_id(LEDGER + 1, 1, &[])),
        (3, message_id(u64::MAX, 2, &[])),
        (3, message_id(LEDGER, 3, &[0, 0])),
        (3, message_id(LEDGER, 4, &[0, 2])),
        (3, [message_id(LEDGER, 5, &[]), b"\x2a\x02\x80\x01".to_vec()].concat()),
        (3, [message_id(LEDGER, 6, &[]), b"\x2a\x02\x80\x00".to_vec()].concat()),
    ];
    desk.takes(&simple(kind::ACK, &[(1, 4), (2, 0)], &ids));
    assert_eq!(desk.said(), [(Says::Done, vec![3, 6], None)], "of its ledger, and all messages of each");
    desk.takes(&simple(kind::ACK, &[(1, 77), (2, 0), (8, 1)], &ids));
    assert_eq!(desk.said(), [], "of a consumer that is not there");
}

// accepts: S4.26
#[test]
fn only_what_asks_for_no_answer_may_wait_for_company() {
    let last = [ack(0, &[1, 2], None), ack(1, &[3], None), flow(500)];
    for frames in [&last[..1], &last[1..2], &last[2..], &last] {
        assert!(are_last_answers(&frames.concat()), "{frames:?}");
    }
    // An answer is asked for, entries are wanted again, an entry, another command, a cut, and nothing.
    let others = [ack(0, &[1], Some(7)), redeliver(&[1]), message(1, b"payload"), connect()];
    for frame in &others {
        assert!(!are_last_answers(frame), "{frame:?}");
        assert!(!are_last_answers(&[flow(500), frame.clone()].concat()), "{frame:?}");
    }
    let cut = flow(500);
    assert!(!are_last_answers(&[&cut[..], &cut[..cut.len() - 1]].concat()));
    assert!(!are_last_answers(&[]));
}

#[test]
fn a_cumulative_acknowledgement_of_a_shared_subscription_is_refused() {
    let mut desk = Desk::new();
    desk.consume(true);
    desk.takes(&ack(0, &[5], None));
    let fault = desk.turn(&ack(1, &[5], None)).unwrap().unwrap_err();
    assert_eq!(fault.reason, "a cumulative acknowledgement of a Shared subscription");
    assert_eq!(desk.said(), []);
}

// accepts: S4.29
#[test]
fn entries_are_wanted_again_by_number_or_all() {
    let mut desk = Desk::new();
    desk.takes(&[redeliver(&[3, 4]), redeliver(&[]), redeliver(&[u64::MAX])].concat());
    let expected = [(Says::Again, vec![3, 4], None), (Says::AllAgain, vec![], None), (Says::Again, vec![], None)];
    assert_eq!(desk.said(), expected, "none of those that were named is not all");
}

#[test]
fn permits_are_given_to_consumers_that_are_there() {
    let mut desk = Desk::new();
    let unknown = simple(kind::FLOW, &[(1, 77), (2, 5)], &[]);
    desk.takes(&[flow(1_000), unknown, flow(u64::from(u32::MAX))].concat());
    let receiver = Receiver(6);
    assert_eq!(
        desk.arrivals.permits,
        [Permits { receiver, messages: 1_000 }, Permits { receiver, messages: u32::MAX }]
    );
    desk.inbox.remove_consumer(HERE, 4);
    desk.takes(&flow(5));
    assert_eq!(desk.arrivals.permits, []);
}

#[test]
fn a_command_is_handed_out_whole_and_holds_its_connection() {
    let mut desk = Desk::new();
    let subscribe = simple(4, &[(3, 1), (4, 9)], &[(1, b"topic".to_vec()), (2, b"name".to_vec())]);
    let sent = [message(1, b"a"), subscribe.clone(), message(2, b"b"), simple(kind::PING, &[], &[])].concat();
    assert_eq!(desk.turn(&sent), Some(Ok(Control::Command { kind: 4, bytes: subscribe[8..].to_vec() })));
    assert_eq!((desk.arrivals.publishes.len(), desk.arrivals.pings.len()), (1, 0));
    desk.inbox.release(HERE);
    desk.takes(&simple(kind::PONG, &[], &[]));
    assert_eq!((desk.arrivals.publishes.len(), desk.arrivals.pings.len()), (1, 1));
}

#[test]
fn limits_count_messages_and_not_entries() {
    let mut desk = Desk::new();
    desk.inbox.limit(HERE, Rate::new(10, 0)).unwrap();
    desk.takes(&send(&[(1, 3), (2, 1)], &batch_of(10)));
    let mut desk = Desk::new();
    desk.inbox.limit_all(Rate::new(10, 0));
    desk.takes(&send(&[(1, 3), (2, 1)], &batch_of(10)).repeat(3));
    assert_eq!(desk.arrivals.publishes.len(), 1);
    assert!(desk.inbox.next_at().is_some(), "the others wait for their time");
}

#[test]
fn who_sends_faster_than_it_may_is_taken_and_held_until_that_is_paid_for() {
    let mut desk = Desk::new();
    // A batch has more messages than a second allows, and two wait behind it.
    desk.inbox.limit(HERE, Rate::new(10, 0)).unwrap();
    let sent = [send(&[(1, 3), (2, 1)], &batch_of(25)), message(26, b"a"), message(27, b"b")].concat();
    // It is 15 too many, and there is to be one again.
    assert_eq!(desk.turn(&sent), Some(Ok(Control::TooFast(Timestamp(2_600_000)))));
    assert_eq!(desk.arrivals.publishes.len(), 1);
    desk.inbox.release(HERE);
    assert_eq!(desk.turn(b""), Some(Ok(Control::TooFast(Timestamp(2_700_000)))), "too early: the next one adds to it");
    assert_eq!(desk.arrivals.publishes.len(), 1);
    desk.inbox.unread(HERE, NOW, Timestamp(2_700_000));
    desk.inbox.release(HERE);
    desk.takes(b"");
    assert_eq!(desk.arrivals.publishes.len(), 1, "the last one, within what there is");
}

#[test]
fn bytes_beyond_what_a_connection_may_send_are_no_fault_and_hold_it() {
    let mut desk = Desk::new();
    let large = message(1, &[7; 4_000]);
    desk.inbox.limit(HERE, Rate::new(0, 1_000)).unwrap();
    let Some(Ok(Control::TooFast(until))) = desk.turn(&large) else { panic!("it is not held") };
    assert_eq!(desk.arrivals.publishes.len(), 1);
    assert!(until > Timestamp(4_000_000) && until < Timestamp(4_500_000), "{until:?}");
    desk.takes(&message(2, b"behind it"));
    assert!(desk.arrivals.publishes.is_empty());
}

#[test]
fn what_a_producer_sends_behind_an_entry_without_room_is_refused_until_it_is_added_anew() {
    let mut desk = Desk::new();
    desk.produce(5, b"other");
    let sends = [message(1, b"x"), send(&[(1, 5), (2, 1)], &batch_of(1))].concat();
    let fates = |desk: &mut Desk| {
        desk.takes(&sends);
        desk.arrivals.publishes.iter().map(|publish| publish.fate).collect::<Vec<_>>()
    };
    assert_eq!(fates(&mut desk), [Fate::Accepted, Fate::Accepted]);
    desk.inbox.refuse_behind(&desk.arrivals);
    assert_eq!(fates(&mut desk), [Fate::Accepted, Fate::Accepted], "both were stored");
    desk.arrivals.publishes[0].fate = Fate::Refused(Refusal::NoRoom);
    desk.inbox.refuse_behind(&desk.arrivals);
    assert_eq!(fates(&mut desk), [Fate::Refused(Refusal::NoRoom), Fate::Accepted], "the other one goes on");
    desk.produce(3, TOPIC);
    assert_eq!(fates(&mut desk), [Fate::Accepted, Fate::Accepted]);
}

#[test]
fn inboxes_beside_each_other_have_one_limit_and_take_turns() {
    let first = Desk::new();
    let beside = Desk::of(Inbox::beside(&first.inbox)).accepted();
    let (mut desks, mut seen, mut now, mut turns) = ([first, beside], [0, 0], NOW, 0);
    desks[0].inbox.limit_all(Rate::new(10, 0));
    for desk in &mut desks {
        let entries: Vec<u8> = (0..40).flat_map(|id| message(id, b"x")).collect();
        desk.inbox.feed(HERE, &entries, NOW).unwrap();
    }
    while seen != [40, 40] {
        for (desk, seen) in desks.iter_mut().zip(&mut seen) {
            assert!(desk.inbox.decode(&mut desk.arrivals, now).is_empty());
            *seen += desk.arrivals.publishes.len();
        }
        let passed_us = (now.0 - NOW.0) as usize;
        assert!(seen[0] + seen[1] <= 10 + passed_us / 100_000, "{seen:?} after {passed_us} us");
        assert!(seen[0].abs_diff(seen[1]) <= 10, "{seen:?}: neither starves beside the other");
        if !desks.iter().any(|desk| desk.inbox.ready()) {
            now = desks.iter().filter_map(|desk| desk.inbox.next_at()).min().unwrap_or(now);
        }
        turns += 1;
        assert!(turns < 1_000, "{seen:?}");
    }
    desks[0].inbox.limit_all(None);
    assert!(desks.iter().all(|desk| desk.inbox.next_at().is_none()), "the limit was taken back for both");
}

#[test]
fn a_second_inbox_decodes_behind_the_first_in_one_turn() {
    let mut desk = Desk::new();
    let mut first = Desk::new();
    first.takes(&message(1, b"first"));
    let kept = first.payload(0).to_vec();
    desk.inbox.feed(HERE, &[message(2, b"second"), ack(0, &[4], None)].concat(), NOW).unwrap();
    assert!(desk.inbox.decode_more(&mut first.arrivals, NOW).is_empty());
    assert_eq!(first.payload(0), kept);
    assert!(first.payload(1).ends_with(b"second"));
    assert_eq!((first.arrivals.entries.len(), first.said().len()), (2, 1));
    assert_eq!(first.arrivals.entry_of(&first.arrivals.publishes[1]).unwrap().sequence_first, 2);
}

#[test]
fn what_a_turn_has_no_room_for_waits_in_order() {
    let mut desk = Desk::new();
    let other = Connection(1);
    desk.inbox.open(other).unwrap();
    desk.inbox.accept(other, FRAME_MAXIMUM, 0).unwrap();
    let sent: Vec<_> = (0..6).map(|number| message(number, &[number as u8; 1_000])).collect();
    for bytes in &sent {
        // The pings between them cut the pieces.
        let (begun, rest) = bytes.split_at(bytes.len() - 7);
        desk.inbox.feed(HERE, begun, NOW).unwrap();
        desk.inbox.feed(other, &simple(kind::PING, &[], &[]), NOW).unwrap();
        desk.inbox.feed(HERE, rest, NOW).unwrap();
    }
    let mut full = Arrivals { bytes: vec![0; TURN_BYTES_MAXIMUM - 2_300], ..Arrivals::default() };
    assert!(desk.inbox.decode_more(&mut full, NOW).is_empty());
    assert_eq!((full.publishes.len(), full.pings.len()), (1, 2), "of the second message only the beginning");
    assert!(full.bytes.len() <= TURN_BYTES_MAXIMUM + 2_300);
    assert!(desk.inbox.ready());
    desk.takes(b"");
    let firsts: Vec<_> = desk.parts().iter().map(|parts| parts.sequence_first).collect();
    assert_eq!((firsts, desk.arrivals.pings.len()), (vec![1, 2, 3, 4, 5], 4));
    assert!(!desk.inbox.ready());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_split_over_feeds_and_turns_decodes_as_the_whole(
        picked in prop::collection::vec(0_usize..13, 1..20),
        cuts in prop::collection::vec((1_usize..90, any::<bool>()), 1..20),
    ) {
        let corpus = frames();
        let sent: Vec<u8> = picked.iter().flat_map(|index| corpus[*index].clone()).collect();
        let (mut whole, mut split) = (Recorder::new(), Recorder::new());
        whole.feed(0, &sent);
        whole.drain();
        let mut rest = sent.as_slice();
        for (size, is_turn) in cuts.iter().cycle() {
            let (piece, behind) = rest.split_at((*size).min(rest.len()));
            split.feed(0, piece);
            rest = behind;
            if *is_turn {
                split.turn();
            }
            if rest.is_empty() {
                break;
            }
        }
        split.drain();
        prop_assert_eq!(by_kind(&whole.found[0]), by_kind(&split.found[0]));
        let without_text = [9, 11]; // Permits name no connection, and PONG says nothing.
        let texts = picked.iter().filter(|index| !without_text.contains(*index)).count();
        prop_assert_eq!(whole.found[0].len(), texts);
        prop_assert!(!whole.ended[0]);
    }
}
