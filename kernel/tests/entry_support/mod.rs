//! Entries as producers write them.
#![allow(dead_code)] // Each test uses its part.

use holdfast_kernel::entry::{Compression, MAGIC};
use holdfast_kernel::protobuf::{put_bytes, put_message, put_varint};

pub type Pairs = Vec<(String, String)>;

/// What every entry says of itself.
pub fn said() -> Vec<u8> {
    let mut metadata = Vec::new();
    put_bytes(&mut metadata, 1, b"maker");
    put_varint(&mut metadata, 2, 7);
    put_varint(&mut metadata, 3, 1_700_000_000_000);
    metadata
}

/// The same and more fields that are numbers.
pub fn saying(fields: &[(u32, u64)]) -> Vec<u8> {
    let mut metadata = said();
    fields.iter().for_each(|(field, value)| put_varint(&mut metadata, *field, *value));
    metadata
}

pub fn tail(metadata: &[u8], payload: &[u8]) -> Vec<u8> {
    let checked = [&(metadata.len() as u32).to_be_bytes(), metadata, payload].concat();
    [&MAGIC[..], &crc32c::crc32c(&checked).to_be_bytes(), &checked].concat()
}

pub fn put_pair(into: &mut Vec<u8>, field: u32, name: &[u8], value: &[u8]) {
    put_message(into, field, |into| {
        put_bytes(into, 1, name);
        put_bytes(into, 2, value);
    });
}

/// A batch of messages with these properties, key and payload.
pub fn batch(messages: &[(Pairs, Option<String>, Vec<u8>)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (properties, key, value) in messages {
        let mut single = Vec::new();
        properties.iter().for_each(|(name, text)| put_pair(&mut single, 1, name.as_bytes(), text.as_bytes()));
        if let Some(key) = key {
            put_bytes(&mut single, 2, key.as_bytes());
        }
        put_varint(&mut single, 3, value.len() as u64);
        payload.extend_from_slice(&(single.len() as u32).to_be_bytes());
        payload.extend_from_slice(&single);
        payload.extend_from_slice(value);
    }
    payload
}

pub fn compressed(way: Compression, payload: &[u8]) -> Vec<u8> {
    use std::io::Write;
    match way {
        Compression::None => payload.to_vec(),
        Compression::Lz4 => lz4_flex::block::compress(payload),
        Compression::Zlib => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(payload).unwrap();
            encoder.finish().unwrap()
        }
        Compression::Zstd => zstd::bulk::compress(payload, 1).unwrap(),
        Compression::Snappy => snap::raw::Encoder::new().compress_vec(payload).unwrap(),
    }
}

/// A stream of ZLIB as Pulsar's client for Java writes it: flushed, without an end, and nothing of nothing.
pub fn flushed(payload: &[u8]) -> Vec<u8> {
    use flate2::{Compress, FlushCompress};
    let mut stream = Compress::new(flate2::Compression::fast(), true);
    let mut packed = Vec::with_capacity(payload.len() + 1_000);
    if !payload.is_empty() {
        stream.compress_vec(payload, &mut packed, FlushCompress::Sync).unwrap();
    }
    packed
}

pub const WAYS: [(u64, Compression); 5] = [
    (0, Compression::None),
    (1, Compression::Lz4),
    (2, Compression::Zlib),
    (3, Compression::Zstd),
    (4, Compression::Snappy),
];
