//! Mutated packets against the codec, for `FUZZ_SECONDS` (2 if unset), from `FUZZ_SEED` (a fixed one if unset).
//!
//! Each round takes valid packets, changes some bytes and asks: does decoding end in a value or a declared fault, is a
//! decoded packet the same after encode and decode, and does an inbox decode the same however the bytes are split?

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "a test may stop at what it did not expect"
)]

mod mqtt_corpus;

use holdfast_kernel::mqtt::decode::decode;
use holdfast_kernel::mqtt::encode::encode;
use holdfast_kernel::mqtt::frame::Frame;
use holdfast_kernel::mqtt::packet::Packet;
use holdfast_kernel::mqtt::{Role, Version};
use mqtt_corpus::{encoded, Random, Recorder, VERSIONS};
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

/// Order is promised within publishes, within acknowledgements and within control packets.
fn by_kind(found: &[String]) -> Vec<&String> {
    let mut sorted: Vec<&String> = found.iter().collect();
    sorted.sort_by_key(|text| (text.starts_with("publish"), text.starts_with("Pub"), text.as_str() == "ping"));
    sorted
}

/// Runs `check` on mutated packets until time is up; returns the seed of the round that failed, if one did.
fn hunt(seconds: u64, seed: u64, check: impl Fn(&mut Random, &[u8], Version)) -> Option<u64> {
    let corpora = VERSIONS.map(|version| [encoded(version, Role::Server), encoded(version, Role::Client)].concat());
    let started = Instant::now();
    let mut round = 0;
    while started.elapsed() < Duration::from_secs(seconds) {
        for _ in 0..ROUNDS_PER_CLOCK {
            let seed = seed.wrapping_add(round);
            let mut random = Random(seed);
            let index = random.below(3);
            let bytes = mutated(&mut random, &corpora[index]);
            let checked = catch_unwind(AssertUnwindSafe(|| check(&mut random, &bytes, VERSIONS[index])));
            if let Err(reason) = checked {
                let reason = reason.downcast_ref::<String>().map_or("an assertion", String::as_str);
                println!("seed {seed}, {:?}, {bytes:02x?}: {reason}", VERSIONS[index]);
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
    let connect = encoded(version, Role::Server).into_iter().find(|packet| packet[0] >> 4 == 1).unwrap();
    check_inbox(random, &[connect.as_slice(), bytes].concat(), Recorder::opening, version);
    if bytes[0] >> 4 == 1 {
        check_inbox(random, bytes, Recorder::opening, version);
    }
}

#[test]
fn mutated_packets_end_in_a_value_or_a_fault() {
    let found = hunt(number("FUZZ_SECONDS", 2), number("FUZZ_SEED", 1), check_all);
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
    let found = hunt(5, 1, canary);
    std::panic::set_hook(quiet);
    assert!(found.is_some(), "the hunt finds nothing, so its silence means nothing");
}
