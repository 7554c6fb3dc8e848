//! Deliveries that tell which message each is.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may stop at what it did not expect"
)]

use holdfast_kernel::error::Result;
use holdfast_kernel::flow::{
    Arrivals, Departure, Fate, Message, Messages, NoticeKind, Outgoing, Publish, Sending, Span, Target, Terms,
};
use holdfast_kernel::ids::{Connection, KeySlot, Location, Offset, Party, Queue, Timestamp};
use holdfast_kernel::mqtt::identity::Identity;
use holdfast_kernel::mqtt::outbox::Outboxes;
use holdfast_kernel::mqtt::Version;
use std::sync::Arc;

const TOLD: Connection = Connection(1);
const NOT_TOLD: Connection = Connection(2);
const OLD: Connection = Connection(3);

fn pair(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).unwrap();
    [&[0x26, 0, length(name)], name.as_bytes(), &[0, length(value)], value.as_bytes()].concat()
}

struct Stored(Vec<u8>);

impl Messages for Stored {
    fn entry(
        &mut self,
        _: Location,
        _: Offset,
    ) -> holdfast_kernel::error::Result<Option<holdfast_kernel::flow::entry::Entry<'_>>> {
        Ok(None)
    }

    fn message(&mut self, _: Location, _: Offset) -> Result<Option<Message<'_>>> {
        Ok(Some(Message {
            topic: b"t",
            properties: &self.0,
            payload: b"pp",
            qos: 1,
            retain: false,
            appended_at: Timestamp(0),
            expires_at: None,
        }))
    }
}

fn outboxes(maximum_packet_size_bytes: u32) -> Outboxes {
    let identity = Arc::new(Identity::new("id", "e-").unwrap());
    let mut outboxes = Outboxes::default();
    for (connection, version) in [(TOLD, Version::V5), (NOT_TOLD, Version::V5), (OLD, Version::V311)] {
        outboxes.open(connection, version, maximum_packet_size_bytes, 0, Party(7)).unwrap();
    }
    outboxes.identify(TOLD, Some(identity.clone()));
    outboxes.identify(OLD, Some(identity));
    outboxes
}

fn sent(outboxes: &mut Outboxes, connection: Connection, qos: u8, properties: &[u8]) -> Vec<u8> {
    sent_again(outboxes, connection, qos, properties, false)
}

fn sent_again(outboxes: &mut Outboxes, connection: Connection, qos: u8, properties: &[u8], again: bool) -> Vec<u8> {
    let sending = Sending {
        receiver: Default::default(),
        redeliveries: 0,
        connection,
        packet_identifier: 9,
        qos,
        dup: false,
        again,
        retain: false,
        identifiers: None,
        offset: Offset(120),
        location: Location::default(),
    };
    let mut outgoing = Outgoing { departures: vec![Departure::Sending(sending)] };
    outboxes.encode(&mut outgoing, &mut Stored(properties.to_vec()), Timestamp(0)).unwrap();
    taken(outboxes)
}

fn taken(outboxes: &mut Outboxes) -> Vec<u8> {
    let mut taken = Vec::new();
    outboxes.take(|_, bytes| taken.extend_from_slice(bytes));
    taken
}

fn publish(first: u8, identifier: &[u8], properties: &[u8]) -> Vec<u8> {
    let rest = [b"\0\x01t", identifier, &[u8::try_from(properties.len()).unwrap()], properties, b"pp"].concat();
    [&[first, u8::try_from(rest.len()).unwrap()], &*rest].concat()
}

// accepts: S3.66
#[test]
fn who_asks_is_told_which_message_it_is() {
    let (mut boxes, site) = (outboxes(1_000), pair("site", "north"));
    let told = [&*site, &pair("id", "e-120")].concat();
    assert_eq!(sent(&mut boxes, TOLD, 1, &site), publish(0x32, &[0, 9], &told));
    assert_eq!(sent(&mut boxes, TOLD, 0, &site), publish(0x30, &[], &told));
    assert_eq!(sent(&mut boxes, NOT_TOLD, 1, &site), publish(0x32, &[0, 9], &site));
    assert_eq!(sent(&mut boxes, OLD, 1, &site), b"\x32\x07\0\x01t\0\x09pp", "3.1.1 has no properties");
    boxes.identify(TOLD, None);
    assert_eq!(sent(&mut boxes, TOLD, 1, &site), publish(0x32, &[0, 9], &site));
}

// accepts: S3.66
#[test]
fn nobody_else_can_say_which_message_it_is() {
    let (mut boxes, claimed) = (outboxes(1_000), [pair("id", "e-7"), pair("k", "v"), pair("id", "")].concat());
    let told = [pair("k", "v"), pair("id", "e-120")].concat();
    assert_eq!(sent(&mut boxes, TOLD, 1, &claimed), publish(0x32, &[0, 9], &told));
    assert_eq!(sent(&mut boxes, NOT_TOLD, 1, &claimed), publish(0x32, &[0, 9], &claimed), "it is theirs");
}

#[test]
fn a_message_that_only_this_makes_too_large_goes_without_it() {
    let claimed = pair("id", "e-7");
    let mut boxes = outboxes(22);
    assert_eq!(sent(&mut boxes, TOLD, 1, &[]), publish(0x32, &[0, 9], &pair("id", "e-120")), "22 bytes");
    let mut boxes = outboxes(21);
    assert_eq!(sent(&mut boxes, TOLD, 1, &[]), publish(0x32, &[0, 9], &[]));
    assert_eq!(sent(&mut boxes, TOLD, 1, &claimed), publish(0x32, &[0, 9], &[]), "nor with what is claimed");
    assert_eq!(boxes.refused(), []);
    let mut boxes = outboxes(9);
    assert_eq!(sent(&mut boxes, TOLD, 1, &[]), b"");
    assert_eq!(boxes.refused(), [(TOLD, 9, NoticeKind::TooLarge)]);
}

#[test]
fn what_came_back_to_its_group_says_so() {
    let (mut boxes, site, mark) = (outboxes(1_000), pair("site", "north"), pair("again", "perhaps"));
    assert_eq!(sent_again(&mut boxes, NOT_TOLD, 1, &site, true), publish(0x32, &[0, 9], &site), "nobody is told");
    boxes.mark_again(Some(("again", "perhaps"))).unwrap();
    let marked = [&*site, &*mark].concat();
    assert_eq!(sent_again(&mut boxes, NOT_TOLD, 1, &site, true), publish(0x32, &[0, 9], &marked));
    assert_eq!(sent_again(&mut boxes, NOT_TOLD, 1, &site, false), publish(0x32, &[0, 9], &site));
    let both = [&*site, &pair("id", "e-120"), &*mark].concat();
    assert_eq!(sent_again(&mut boxes, TOLD, 2, &site, true), publish(0x34, &[0, 9], &both));
    assert_eq!(sent_again(&mut boxes, OLD, 1, &site, true), b"\x32\x07\0\x01t\0\x09pp");
    boxes.mark_again(None).unwrap();
    assert_eq!(sent_again(&mut boxes, NOT_TOLD, 1, &site, true), publish(0x32, &[0, 9], &site));
}

#[test]
fn what_passes_through_before_the_disk_has_it_is_told_as_nothing() {
    let properties = [pair("id", "e-7"), pair("k", "v")].concat();
    let span = |start: usize, size: usize| Span {
        start: u32::try_from(start).unwrap(),
        size_bytes: u32::try_from(size).unwrap(),
    };
    let mut arrivals = Arrivals { bytes: [b"tpp", &*properties].concat(), ..Arrivals::default() };
    let target = |connection| Target { queue: Queue(0), connection, terms: Terms::default(), own: None };
    arrivals.publishes.push(Publish {
        connection: Connection(0),
        publisher: Party(5),
        key_slot: KeySlot(0),
        packet_identifier: 1,
        qos: 1,
        retain: false,
        topic: span(0, 1),
        properties: span(3, properties.len()),
        payload: span(1, 2),
        expiry_interval_s: None,
        fate: Fate::Accepted,
        row: None,
        entry: None,
        targets: Some([target(TOLD), target(NOT_TOLD)].into()),
        stored: None,
    });
    let mut boxes = outboxes(1_000);
    boxes.pass_through(&arrivals, Timestamp(0));
    let expected = [publish(0x30, &[], &pair("k", "v")), publish(0x30, &[], &properties)].concat();
    assert_eq!(taken(&mut boxes), expected);
}

#[test]
fn what_is_too_long_for_a_property_is_refused() {
    let long = "x".repeat(65_536);
    assert!(Identity::new(&long, "").is_err());
    assert!(Identity::new("id", &long).is_err());
    assert!(Identity::new("id", &long[..65_515]).is_ok(), "20 digits more");
}
