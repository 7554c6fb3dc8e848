//! The receiving side of connections under a protocol that is not MQTT: frames with their size before them, a command
//! in each, and an optional payload behind it. What is proven here is true whatever the protocol.

#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::as_conversions)]

use holdfast_kernel::flow::{Arrivals, Fate, Publish, Span};
use holdfast_kernel::ids::{Connection, KeySlot, Party, Timestamp};
use holdfast_kernel::limits::TURN_CONNECTION_BYTES_MAXIMUM;
use holdfast_kernel::wire::decoder::{Breach, Decoder};
use holdfast_kernel::wire::inbox::Inbox;
use holdfast_kernel::wire::rate::Rate;
use proptest::prelude::*;

const HERE: Connection = Connection(0);
const NOW: Timestamp = Timestamp(1_000_000);
const FRAME_BYTES_MAXIMUM: usize = 1_000;
const SILENCE_US: u64 = 30_000_000;

/// The command of a message; every other one is for the caller.
const SEND: &[u8] = b"send";

#[derive(Debug)]
struct Prefixed {
    connection: Connection,
    commands: u32,
}

/// Both sizes of a frame: of all that follows the first, and of the command.
struct Sizes {
    total: usize,
    command: usize,
}

#[derive(Debug, PartialEq, Eq)]
enum Wrong {
    Sizes,
    Breach(Breach),
    /// In the words of a peer from which so many commands have come.
    After(u32, Box<Wrong>),
}

impl Decoder for Prefixed {
    type Header = Sizes;
    type Control = Vec<u8>;
    type Fault = Wrong;
    const HOLDS_WHO_IS_TOO_FAST: bool = false;

    fn new(connection: Connection) -> Prefixed {
        Prefixed { connection, commands: 0 }
    }

    fn header(&self, bytes: &[u8]) -> Result<Option<Sizes>, Wrong> {
        let number =
            |at: usize| bytes.get(at..at + 4).map(|four| u32::from_be_bytes(four.try_into().unwrap()) as usize);
        let (Some(total), Some(command)) = (number(0), number(4)) else { return Ok(None) };
        if total < 4 + command {
            return Err(Wrong::Sizes);
        }
        Ok(Some(Sizes { total, command }))
    }

    fn size_bytes(sizes: &Sizes) -> usize {
        4 + sizes.total
    }

    fn frame_bytes_maximum(&self) -> usize {
        FRAME_BYTES_MAXIMUM
    }

    fn silence_us(&self) -> Option<u64> {
        (self.commands > 0).then_some(SILENCE_US)
    }

    fn take(
        &mut self,
        sizes: &Sizes,
        start: usize,
        arrivals: &mut Arrivals,
        rate: Option<&mut Rate>,
    ) -> Result<Option<Vec<u8>>, Wrong> {
        self.commands += 1;
        let payload = start + 8 + sizes.command..start + 4 + sizes.total;
        let command = &arrivals.bytes[start + 8..payload.start];
        if command != SEND {
            return Ok(Some(command.to_vec()));
        }
        if rate.is_some_and(|rate| !rate.spend(1, 0)) {
            return Err(Wrong::Breach(Breach::TooFast));
        }
        arrivals.totals.note(1, payload.len());
        arrivals.publishes.push(Publish {
            connection: self.connection,
            publisher: Party(1),
            key_slot: KeySlot(0),
            packet_identifier: 0,
            qos: 1,
            retain: false,
            topic: Span::default(),
            properties: Span::default(),
            payload: Span { start: payload.start as u32, size_bytes: payload.len() as u32 },
            expiry_interval_s: None,
            fate: Fate::Accepted,
            row: None,
            entry: None,
            targets: None,
            stored: None,
        });
        Ok(None)
    }

    fn fault(&self, breach: Breach) -> Wrong {
        Wrong::Breach(breach)
    }

    fn addressed(&self, fault: Wrong) -> Wrong {
        Wrong::After(self.commands, Box::new(fault))
    }
}

fn frame(command: &[u8], payload: &[u8]) -> Vec<u8> {
    let total = (4 + command.len() + payload.len()) as u32;
    [&total.to_be_bytes()[..], &(command.len() as u32).to_be_bytes(), command, payload].concat()
}

#[derive(Default)]
struct Desk {
    inbox: Inbox<Prefixed>,
    arrivals: Arrivals,
    payloads: Vec<Vec<u8>>,
    controls: Vec<Vec<u8>>,
}

impl Desk {
    fn new() -> Desk {
        let mut desk = Desk::default();
        desk.inbox.open(HERE).unwrap();
        desk
    }

    fn turn(&mut self, bytes: &[u8]) -> Option<Wrong> {
        self.inbox.feed(HERE, bytes, NOW).unwrap();
        let events = self.inbox.decode(&mut self.arrivals, NOW);
        let payloads = self.arrivals.publishes.iter().map(|publish| self.arrivals.span(publish.payload).to_vec());
        self.payloads.extend(payloads);
        let mut fault = None;
        for (_, event) in events {
            match event {
                Ok(control) => self.controls.push(control),
                Err(wrong) => fault = Some(wrong),
            }
        }
        fault
    }
}

#[test]
fn messages_come_in_order_and_a_connection_is_held_until_it_is_released() {
    let mut desk = Desk::new();
    let sent = [frame(SEND, b"1"), frame(b"subscribe", b""), frame(SEND, b"2"), frame(b"flow", b"")].concat();
    assert_eq!(desk.turn(&sent), None);
    assert_eq!((desk.payloads.len(), desk.controls.len(), desk.inbox.ready()), (1, 1, false));
    desk.inbox.release(HERE);
    assert!(desk.inbox.ready());
    assert_eq!(desk.turn(&frame(SEND, b"3")), None);
    desk.inbox.release(HERE);
    assert_eq!(desk.turn(b""), None);
    assert_eq!(desk.payloads, [b"1", b"2", b"3"]);
    assert_eq!(desk.controls, [&b"subscribe"[..], b"flow"]);
}

#[test]
fn a_frame_above_the_maximum_is_refused_by_its_header_in_words_of_its_peer() {
    let most = FRAME_BYTES_MAXIMUM - 8 - SEND.len();
    let mut desk = Desk::new();
    assert_eq!(desk.turn(&frame(SEND, &vec![0; most])), None);
    let too_large = frame(SEND, &vec![0; most + 1]);
    let fault = desk.turn(&too_large[..8]);
    assert_eq!(fault, Some(Wrong::After(1, Box::new(Wrong::Breach(Breach::FrameTooLarge)))));
    desk.inbox.release(HERE);
    assert_eq!(desk.turn(&frame(SEND, b"")), None, "nothing is decoded after a fault");
    assert_eq!(desk.payloads.len(), 1);
}

#[test]
fn what_waits_is_bounded_by_the_largest_frame() {
    let mut desk = Desk::new();
    assert_eq!(desk.turn(&frame(b"subscribe", b"")), None);
    let most = TURN_CONNECTION_BYTES_MAXIMUM + FRAME_BYTES_MAXIMUM;
    assert_eq!(desk.turn(&vec![0; most]), None);
    assert_eq!(desk.turn(&[0]), Some(Wrong::After(1, Box::new(Wrong::Breach(Breach::TooMuchWaits)))));
}

#[test]
fn a_message_counts_against_the_rate_and_a_command_does_not() {
    let mut desk = Desk::new();
    desk.inbox.limit(HERE, Rate::new(2, 0)).unwrap();
    for _ in 0..5 {
        assert_eq!(desk.turn(&frame(b"flow", b"")), None);
        desk.inbox.release(HERE);
    }
    let fault = desk.turn(&frame(SEND, b"").repeat(3));
    assert_eq!(fault, Some(Wrong::After(8, Box::new(Wrong::Breach(Breach::TooFast)))));
    assert_eq!(desk.payloads.len(), 2);
}

#[test]
fn the_protocol_says_how_long_its_peer_may_be_silent() {
    let mut desk = Desk::new();
    let late = Timestamp(NOW.0 + SILENCE_US + 1);
    assert!(desk.inbox.silent(late).is_empty(), "before its first command it may be silent for ever");
    assert_eq!(desk.turn(&frame(SEND, b"")), None);
    assert!(desk.inbox.silent(Timestamp(NOW.0 + SILENCE_US)).is_empty());
    assert_eq!(desk.inbox.silent(late), [HERE]);
    assert!(desk.turn(&frame(SEND, b"")[1..].repeat(2)).is_some());
    assert!(desk.inbox.silent(late).is_empty(), "its fault has been reported");
}

#[test]
fn what_a_second_inbox_brings_stands_behind_what_the_first_has_decoded() {
    let (mut desk, mut other) = (Desk::new(), Desk::new());
    assert_eq!(desk.turn(&frame(SEND, b"first")), None);
    let commands = [frame(SEND, b"second"), frame(b"flow", b""), frame(SEND, b"held")].concat();
    other.inbox.feed(HERE, &commands, NOW).unwrap();
    assert_eq!(other.inbox.decode_more(&mut desk.arrivals, NOW), [(HERE, Ok(b"flow".to_vec()))]);
    let payloads: Vec<_> = desk.arrivals.publishes.iter().map(|one| desk.arrivals.span(one.payload)).collect();
    assert_eq!(payloads, [&b"first"[..], b"second"]);
    other.inbox.release(HERE);
    assert_eq!(other.turn(b""), None);
    assert_eq!(other.payloads, [b"held"]);
}

#[test]
fn what_the_first_frame_lacks_is_told_over_feeds_and_turns() {
    let mut desk = Desk::new();
    let sent = [frame(SEND, &[0; 88]), frame(SEND, &[0; 38])].concat();
    let mut fed = 0;
    let mut lacks = |desk: &mut Desk, count: usize| {
        let bytes = &sent[fed..fed + count];
        desk.inbox.feed(HERE, bytes, NOW).unwrap();
        fed += count;
        desk.inbox.lacks(HERE, bytes)
    };
    // Not even its header, which would tell; then some of it, twice in one turn, and once in the next.
    assert_eq!(lacks(&mut desk, 3), 0);
    assert_eq!(desk.turn(b""), None);
    assert_eq!(lacks(&mut desk, 20), 0, "what waits from before is still no header");
    assert_eq!(desk.turn(b""), None);
    assert_eq!(lacks(&mut desk, 30), 47);
    assert_eq!(lacks(&mut desk, 40), 7);
    assert_eq!(desk.turn(b""), None);
    assert!(desk.payloads.is_empty());
    // The rest, and the second frame's first bytes: something can be decoded.
    assert_eq!(lacks(&mut desk, 17), 0);
    assert_eq!(desk.turn(b""), None);
    assert_eq!(desk.payloads.len(), 1);
    assert_eq!(lacks(&mut desk, 39), 1);
    assert_eq!(lacks(&mut desk, 1), 0);
    assert_eq!(desk.turn(b""), None);
    assert_eq!(desk.payloads.len(), 2);
    // What is no frame is to be told of at once, and nobody lacks anything who is not there.
    let too_large = frame(SEND, &[0; FRAME_BYTES_MAXIMUM]);
    desk.inbox.feed(HERE, &too_large[..50], NOW).unwrap();
    assert_eq!(desk.inbox.lacks(HERE, &too_large[..50]), 0);
    assert_eq!(desk.inbox.lacks(Connection(9), &sent[..50]), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_split_over_feeds_and_turns_decodes_as_the_whole(
        frames in prop::collection::vec((any::<bool>(), 0_usize..60), 1..20),
        cuts in prop::collection::vec((1_usize..90, any::<bool>()), 1..20),
    ) {
        let (mut sent, mut payloads, mut controls) = (Vec::new(), Vec::new(), Vec::new());
        for (number, (is_message, size)) in frames.iter().enumerate() {
            let filled = vec![number as u8; *size];
            sent.extend(if *is_message { frame(SEND, &filled) } else { frame(&filled, b"payload") });
            if *is_message { payloads.push(filled) } else { controls.push(filled) }
        }
        let (mut desk, mut rest) = (Desk::new(), sent.as_slice());
        for (size, is_turn) in cuts.iter().cycle() {
            let (piece, behind) = rest.split_at((*size).min(rest.len()));
            desk.inbox.feed(HERE, piece, NOW).unwrap();
            rest = behind;
            if *is_turn {
                prop_assert_eq!(desk.turn(b""), None);
                desk.inbox.release(HERE);
            }
            if rest.is_empty() {
                break;
            }
        }
        desk.inbox.release(HERE);
        while desk.inbox.ready() {
            prop_assert_eq!(desk.turn(b""), None);
            desk.inbox.release(HERE);
        }
        prop_assert_eq!((desk.payloads, desk.controls), (payloads, controls));
    }
}
