//! Pulsar's binary protocol: frames, entries, and the two clients that speak it.
//!
//! They send what the official clients send: they look a topic up, one entry takes one SEND, permits are given back by
//! halves of the queue, and acknowledgements wait for company.

mod consumer;
mod entry;
mod frame;
mod producer;
mod protobuf;

pub use consumer::Consumer;
pub use producer::Producer;

use crate::speech::Fault;
use frame::Frame;

/// Bytes that a message takes in a batch beyond its payload, at most.
const MESSAGE_ROOM_BYTES: usize = 16;

/// True if an entry of so many messages is not too large for a frame.
pub fn fits(batch: u64, payload_bytes: usize) -> bool {
    batch.max(1) as usize * (payload_bytes + MESSAGE_ROOM_BYTES) + frame::ROOM_BYTES <= frame::FRAME_BYTES_MAXIMUM
}

/// The largest frame.
pub const FRAME_BYTES_MAXIMUM: usize = frame::FRAME_BYTES_MAXIMUM;

/// The number of the only producer or consumer of a connection.
const ID: u64 = 0;

/// The number of a request; each is answered before the next one.
const REQUEST: u64 = 1;

/// What the newest clients speak.
const PROTOCOL_VERSION: u64 = 20;

/// A look-up that leads to this connection.
const CONNECT_HERE: u64 = 1;

/// The first frame of what a broker sent.
fn scan(bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, Fault> {
    frame::scan(bytes).map_err(|sentence| Fault::Nonsense(sentence.into()))
}

/// A topic's name for Pulsar's clients.
fn topic(name: &str) -> String {
    format!("persistent://public/default/{}", name.replace('/', "%2F"))
}

fn put_connect(outbox: &mut Vec<u8>) {
    let mut fields = Vec::new();
    protobuf::put_bytes(&mut fields, 1, b"holdfast-load");
    protobuf::put_number(&mut fields, 4, PROTOCOL_VERSION);
    protobuf::put_bytes(&mut fields, 5, b"none");
    frame::put(outbox, frame::CONNECT, &fields, 0);
}

fn put_lookup(topic: &str, outbox: &mut Vec<u8>) {
    let mut fields = Vec::new();
    protobuf::put_bytes(&mut fields, 1, topic.as_bytes());
    protobuf::put_number(&mut fields, 2, REQUEST);
    frame::put(outbox, frame::LOOKUP, &fields, 0);
}

/// Takes what either client answers in the same way.
fn take_any(frame: &Frame<'_>, outbox: &mut Vec<u8>) -> Result<(), Fault> {
    match frame.kind {
        frame::PING => frame::put(outbox, frame::PONG, &[], 0),
        frame::ACTIVE_CONSUMER_CHANGE => {}
        frame::ERROR => return Err(Fault::Refused("command", frame::sentence(frame))),
        _ => return Err(Fault::Foreign),
    }
    Ok(())
}

/// Takes the answer to a look-up.
fn take_lookup(frame: &Frame<'_>) -> Result<(), Fault> {
    if protobuf::number(frame.fields, 3) == CONNECT_HERE {
        return Ok(());
    }
    let said = String::from_utf8_lossy(protobuf::bytes(frame.fields, 7)).into_owned();
    Err(Fault::Refused("LOOKUP", format!("error {}: {said}", protobuf::number(frame.fields, 6))))
}
