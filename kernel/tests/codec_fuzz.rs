//! Mutated packets and frames against the codecs, mutated entries against what opens them, each for `FUZZ_SECONDS` (2
//! if unset), from `FUZZ_SEED` (a fixed one if unset).
//!
//! Each round takes valid packets, changes some bytes and asks: does decoding end in a value or a declared fault, is a
//! decoded packet the same after encode and decode, does an inbox decode the same however the bytes are split and
//! however fast they may be read, does a table decide about each message, and does a client that follows topic aliases
//! get what was let through? Of entries: does opening one end in its messages or a reason, within memory? Of frames:
//! do entries, settlements and commands come out the same however the bytes are split, and no more of them than the
//! bytes allow?

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "a test may stop at what it did not expect"
)]

mod entry_support;
mod mqtt_corpus;
mod pulsar_corpus;

use entry_support::{batch, compressed, saying, tail, WAYS};
use holdfast_kernel::entry::{key_hash, metadata, of_message, open, Opened};
use holdfast_kernel::flow::{Arrivals, Fate, Message};
use holdfast_kernel::ids::{Connection, KeySlot, Party, Queue, Timestamp};
use holdfast_kernel::mqtt::decode::decode;
use holdfast_kernel::mqtt::encode::encode;
use holdfast_kernel::mqtt::frame::Frame;
use holdfast_kernel::mqtt::inbox::Inbox;
use holdfast_kernel::mqtt::outbox::Outboxes;
use holdfast_kernel::mqtt::packet::Packet;
use holdfast_kernel::mqtt::peer::Acceptance;
use holdfast_kernel::mqtt::property::Value;
use holdfast_kernel::mqtt::publishing::Publishing;
use holdfast_kernel::mqtt::{Role, Version};
use holdfast_kernel::route::{Routes, Subscription};
use holdfast_kernel::topic;
use holdfast_kernel::wire::rate::Rate;
use mqtt_corpus::{encoded, Random, Recorder, ALIAS_MAXIMUM, PACKET_MAXIMUM, VERSIONS};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::{Duration, Instant};

const ROUNDS_PER_CLOCK: u64 = 64;

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// A few packets of the corpus, one after the other, with some bytes changed.
fn mutated(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..=random.below(3) {
        bytes.extend_from_slice(&corpus[random.below(corpus.len())]);
    }
    for _ in 0..random.below(5) {
        let at = random.below(bytes.len());
        match random.below(6) {
            0 => bytes[at] = random.byte(),
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes.insert(at, random.byte()),
            3 if bytes.len() > 1 => drop(bytes.remove(at)),
            4 => bytes[at] = [0, 1, 0x7F, 0x80, 0xFF][random.below(5)],
            _ => bytes[at] = bytes[at].wrapping_add(1),
        }
    }
    bytes
}

/// Decodes one packet; what was accepted must be the same after encode and decode.
fn check_packet(bytes: &[u8], version: Version, role: Role) {
    let Ok(Some(frame)) = Frame::read(bytes) else { return };
    let Some(body) = bytes.get(frame.header_bytes..frame.size_bytes) else { return };
    let Ok(packet) = decode(&frame, body, version, role) else { return };
    let version = if let Packet::Connect(connect) = &packet { connect.version } else { version };
    let again = encode(&packet, version).unwrap_or_else(|error| panic!("{packet:?} cannot be written: {error}"));
    let frame = Frame::read(&again).unwrap().unwrap();
    assert_eq!(decode(&frame, &again[frame.header_bytes..], version, role), Ok(packet));
}

/// The same bytes at once, and in pieces over several turns beside another connection.
fn check_inbox(random: &mut Random, bytes: &[u8], make: fn(Version) -> Recorder, version: Version) {
    let mut whole = make(version);
    whole.feed(0, bytes);
    whole.drain();
    let mut split = make(version);
    let mut rest = bytes;
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(1 + random.below(rest.len()));
        split.feed(0, piece);
        split.feed(1, piece);
        rest = behind;
        if random.below(2) == 0 {
            split.turn();
        }
    }
    split.drain();
    assert_eq!(by_kind(&whole.found[0]), by_kind(&split.found[0]), "the split changed what was decoded");
    assert_eq!(by_kind(&split.found[0]), by_kind(&split.found[1]), "connections differ");
    assert!(whole.arrivals.bytes.len() <= bytes.len() * 2 + 65_535, "the arena outgrew what came");
}

/// The same bytes through a limit of all, a table, and topic aliases to a client.
fn check_journey(random: &mut Random, bytes: &[u8], version: Version) {
    let (publisher, subscriber) = (Connection(1), Connection(2));
    let rules: Vec<(&str, bool)> = (0..random.below(4))
        .map(|_| (["#", "site/#", "+/é/+", "will", "+"][random.below(5)], random.below(2) == 0))
        .collect();
    let mut routes = Routes::new(1);
    routes.grant(publisher, Some(&rules), None).unwrap();
    let (queue, connection, owner) = (Queue(1), subscriber, Party(2));
    let (qos, no_local, retain_as_published, identifier) = (0, false, false, None);
    let subscription = Subscription { queue, connection, owner, qos, no_local, retain_as_published, identifier };
    routes.subscribe(b"#", subscription).unwrap();
    let (mut inbox, mut arrivals, mut outboxes) = (Inbox::default(), Arrivals::default(), Outboxes::default());
    inbox.open(publisher).unwrap();
    let publishing = Publishing::new(version, u16::MAX, ALIAS_MAXIMUM, Default::default());
    let (party, maximum_packet_size_bytes) = (Party(1), PACKET_MAXIMUM);
    let acceptance =
        Acceptance { party, key_slot: KeySlot(0), version, keep_alive_s: 0, maximum_packet_size_bytes, publishing };
    inbox.accept(publisher, acceptance).unwrap();
    inbox.limit_all(Rate::new(random.below(3) as u64, random.below(200) as u64));
    let alias_maximum = random.below(4) as u16;
    outboxes.open(subscriber, Version::V5, u32::MAX, alias_maximum, Party(2)).unwrap();
    inbox.feed(publisher, bytes, Timestamp(1)).unwrap();
    let (mut now, mut expected, mut received) = (Timestamp(1), Vec::new(), Vec::new());
    while inbox.ready() || inbox.next_at().is_some() {
        now = inbox.next_at().unwrap_or(now);
        for (connection, _) in inbox.decode(&mut arrivals, now) {
            inbox.release(connection);
        }
        routes.route(&mut arrivals);
        for publish in &arrivals.publishes {
            let name = arrivals.span(publish.topic);
            let first = rules.iter().find(|(filter, _)| topic::matches(filter.as_bytes(), name));
            let may = first.is_some_and(|(_, allowed)| *allowed);
            assert_eq!(publish.fate == Fate::Denied, !may && publish.fate != Fate::Duplicate);
            if publish.fate == Fate::Accepted && !name.starts_with(b"$") {
                expected.push(String::from_utf8(name.to_vec()).unwrap());
            }
        }
        outboxes.pass_through(&arrivals, Timestamp(0));
        outboxes.take(|_, bytes| received.extend_from_slice(bytes));
    }
    assert_eq!(followed(&received, alias_maximum), expected);
}

/// The topics that a client that follows aliases reads.
fn followed(mut bytes: &[u8], maximum: u16) -> Vec<String> {
    let (mut aliases, mut topics) = (BTreeMap::new(), Vec::new());
    while let Some(frame) = Frame::read(bytes).unwrap() {
        let body = &bytes[frame.header_bytes..frame.size_bytes];
        bytes = &bytes[frame.size_bytes..];
        let Ok(Packet::Publish(publish)) = decode(&frame, body, Version::V5, Role::Client) else { panic!("{body:?}") };
        let alias = publish.properties.items().find(|(property, _)| property.name == "topic_alias");
        let Some((_, Value::Number(alias))) = alias else {
            topics.push(publish.topic_name);
            continue;
        };
        assert!((1..=u32::from(maximum)).contains(&alias));
        if !publish.topic_name.is_empty() {
            aliases.insert(alias, publish.topic_name);
        }
        topics.push(aliases[&alias].clone());
    }
    topics
}

/// Order is promised within publishes, within acknowledgements and within control packets.
fn by_kind(found: &[String]) -> Vec<&String> {
    let mut sorted: Vec<&String> = found.iter().collect();
    sorted.sort_by_key(|text| (text.starts_with("publish"), text.starts_with("Pub"), text.as_str() == "ping"));
    sorted
}

/// The packets of each version.
fn packets() -> Vec<(Version, Vec<Vec<u8>>)> {
    let of = |version| [encoded(version, Role::Server), encoded(version, Role::Client)].concat();
    VERSIONS.map(|version| (version, of(version))).to_vec()
}

/// Entries of each kind, packed in each way.
fn entries() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let properties = b"\x01\x01\x03\x00\x01t\x09\x00\x02\x00\xff\x26\x00\x01a\x00\x01b";
    let message = Message {
        topic: b"a",
        properties,
        payload: b"payload",
        qos: 1,
        retain: true,
        appended_at: Timestamp(1),
        expires_at: None,
    };
    let (mut written, mut batches) = (Vec::new(), Vec::new());
    of_message(&message, b"maker", 7, &mut written);
    let named = vec![("mqtt-correlation-data".to_owned(), "AAE=".to_owned()), ("a".to_owned(), "b".to_owned())];
    let messages = [(named, Some("key".to_owned()), vec![b'a'; 300]), (Vec::new(), None, Vec::new())];
    let payload = batch(&messages);
    for (number, way) in WAYS {
        let fields = [(8, number), (9, payload.len() as u64), (11, 2), (12, 5), (17, 1)];
        batches.push(tail(&saying(&fields), &compressed(way, &payload)));
    }
    vec![("messages", vec![written]), ("batches", batches)]
}

/// Opens an entry; what comes of it is its messages, as many as it says, in no more memory than it says.
fn check_entry(bytes: &[u8]) {
    let mut opened = Opened::default();
    let Ok(()) = open(bytes, &mut opened) else { return };
    let (metadata, payload_from) = metadata(bytes).unwrap();
    key_hash(&metadata);
    assert_eq!(opened.len(), metadata.messages.unwrap_or(1) as usize);
    let payload_bytes: usize = (0..opened.len()).map(|index| opened.message(index).unwrap().payload.len()).sum();
    assert!(payload_bytes <= (bytes.len() - payload_from).max(metadata.uncompressed_size as usize));
}

/// The same frames at once, and in pieces over several turns beside another connection.
fn check_frames(random: &mut Random, bytes: &[u8]) {
    let (mut whole, mut split) = (pulsar_corpus::Recorder::new(), pulsar_corpus::Recorder::new());
    whole.feed(0, bytes);
    whole.drain();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(1 + random.below(rest.len()));
        split.feed(0, piece);
        split.feed(1, piece);
        rest = behind;
        if random.below(2) == 0 {
            split.turn();
        }
    }
    split.drain();
    let of = pulsar_corpus::by_kind;
    assert_eq!(of(&whole.found[0]), of(&split.found[0]), "the split changed what was decoded");
    assert_eq!(of(&split.found[0]), of(&split.found[1]), "connections differ");
    assert!(whole.arrivals.bytes.len() <= bytes.len() * 3 + 1_024, "the arena outgrew what came");
    assert!(whole.arrivals.numbers.len() * 4 <= bytes.len(), "more numbers than were sent");
}

/// Runs `check` on what is mutated until time is up; returns the seed of the round that failed, if one did.
fn hunt<Kind: Copy + Debug>(
    seconds: u64,
    seed: u64,
    corpora: &[(Kind, Vec<Vec<u8>>)],
    check: impl Fn(&mut Random, &[u8], Kind),
) -> Option<u64> {
    let started = Instant::now();
    let mut round = 0;
    while started.elapsed() < Duration::from_secs(seconds) {
        for _ in 0..ROUNDS_PER_CLOCK {
            let seed = seed.wrapping_add(round);
            let mut random = Random(seed);
            let (kind, corpus) = &corpora[random.below(corpora.len())];
            let bytes = mutated(&mut random, corpus);
            let checked = catch_unwind(AssertUnwindSafe(|| check(&mut random, &bytes, *kind)));
            if let Err(reason) = checked {
                let reason = reason.downcast_ref::<String>().map_or("an assertion", String::as_str);
                println!("seed {seed}, {kind:?}, {bytes:02x?}: {reason}");
                return Some(seed);
            }
            round += 1;
        }
    }
    println!("{round} rounds");
    None
}

fn check_all(random: &mut Random, bytes: &[u8], version: Version) {
    check_packet(bytes, version, Role::Server);
    check_packet(bytes, version, Role::Client);
    check_inbox(random, bytes, Recorder::new, version);
    // Its tables cost some megabytes each time.
    if random.below(8) == 0 {
        check_journey(random, bytes, version);
    }
    let connect = encoded(version, Role::Server).into_iter().find(|packet| packet[0] >> 4 == 1).unwrap();
    check_inbox(random, &[connect.as_slice(), bytes].concat(), Recorder::opening, version);
    if bytes[0] >> 4 == 1 {
        check_inbox(random, bytes, Recorder::opening, version);
    }
}

#[test]
fn mutated_packets_end_in_a_value_or_a_fault() {
    let found = hunt(number("FUZZ_SECONDS", 2), number("FUZZ_SEED", 1), &packets(), check_all);
    assert_eq!(found, None, "repeat it with FUZZ_SEED=<the seed found> FUZZ_SECONDS=1 cargo test --test codec_fuzz");
}

#[test]
fn mutated_entries_are_opened_or_stay_closed() {
    let check = |_: &mut Random, bytes: &[u8], _: &'static str| check_entry(bytes);
    let found = hunt(number("FUZZ_SECONDS", 2), number("FUZZ_SEED", 1), &entries(), check);
    assert_eq!(found, None, "repeat it with FUZZ_SEED=<the seed found> FUZZ_SECONDS=1 cargo test --test codec_fuzz");
}

#[test]
fn mutated_frames_end_in_a_value_or_a_fault() {
    let check = |random: &mut Random, bytes: &[u8], _: &'static str| check_frames(random, bytes);
    let corpora = [("frames", pulsar_corpus::frames())];
    let found = hunt(number("FUZZ_SECONDS", 2), number("FUZZ_SEED", 1), &corpora, check);
    assert_eq!(found, None, "repeat it with FUZZ_SEED=<the seed found> FUZZ_SECONDS=1 cargo test --test codec_fuzz");
}

#[test]
fn planted_canary_is_found() {
    let canary = |_: &mut Random, bytes: &[u8], version: Version| {
        let Ok(Some(frame)) = Frame::read(bytes) else { return };
        let Some(body) = bytes.get(frame.header_bytes..frame.size_bytes) else { return };
        let refused = decode(&frame, body, version, Role::Server).is_err_and(|fault| fault.reason.contains("QoS 3"));
        assert!(!refused, "the canary: a mutation reached deep into the decoder");
    };
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let found = hunt(5, 1, &packets(), canary);
    std::panic::set_hook(quiet);
    assert!(found.is_some(), "the hunt finds nothing, so its silence means nothing");
}
