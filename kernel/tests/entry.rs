//! Entries opened, their keys hashed, and messages written as entries.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "a test may stop at what it did not expect"
)]

mod entry_support;

use entry_support::{batch, compressed, flushed, put_pair, said, saying, tail, Pairs, WAYS};
use holdfast_kernel::entry::{key_hash, metadata, of_message, open, Closed, Compression, InnerMessage, Opened};
use holdfast_kernel::flow::Message;
use holdfast_kernel::ids::Timestamp;
use holdfast_kernel::limits::{ENTRY_MESSAGES_MAXIMUM, ENTRY_OPENED_BYTES_MAXIMUM, USER_PROPERTIES_MAXIMUM};
use holdfast_kernel::protobuf::{put_bytes, put_message, put_varint};
use proptest::prelude::*;

fn opened(tail: &[u8]) -> Opened {
    let mut opened = Opened::default();
    open(tail, &mut opened).unwrap();
    opened
}

fn closed(tail: &[u8]) -> Closed {
    let mut into = opened(&tail_of_one());
    let why = open(tail, &mut into).unwrap_err();
    assert_eq!((into.len(), into.message(0)), (0, None), "what stays closed leaves nothing");
    why
}

fn tail_of_one() -> Vec<u8> {
    tail(&said(), b"one")
}

fn user(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut encoded = Vec::new();
    for (name, value) in pairs {
        encoded.push(0x26);
        for text in [name, value] {
            encoded.extend_from_slice(&(text.len() as u16).to_be_bytes());
            encoded.extend_from_slice(text.as_bytes());
        }
    }
    encoded
}

fn field(identifier: u8, value: &[u8]) -> Vec<u8> {
    [&[identifier], &(value.len() as u16).to_be_bytes()[..], value].concat()
}

fn text() -> impl Strategy<Value = String> {
    "[a-zé€]{0,6}"
}

fn pairs() -> impl Strategy<Value = Pairs> {
    proptest::collection::vec(("[ab]{0,2}", text()), 0..5)
}

/// What travels with a message, in the order in which it is written.
fn travelling() -> impl Strategy<Value = Vec<u8>> {
    let bytes = proptest::collection::vec(any::<u8>(), 0..9);
    let named = (proptest::option::of(0..2_u8), proptest::option::of(text()), proptest::option::of("[a-z/]{1,6}"));
    (named, proptest::option::of(bytes), pairs()).prop_map(|((format, content, response), data, pairs)| {
        let mut encoded = format.map_or(Vec::new(), |format| vec![1, format]);
        content.iter().for_each(|text| encoded.extend(field(3, text.as_bytes())));
        response.iter().for_each(|text| encoded.extend(field(8, text.as_bytes())));
        data.iter().for_each(|data| encoded.extend(field(9, data)));
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        [encoded, user(&pairs)].concat()
    })
}

fn message<'a>(properties: &'a [u8], payload: &'a [u8], retain: bool) -> Message<'a> {
    let appended_at = Timestamp(1_700_000_000_123_456);
    Message { topic: b"a/b", properties, payload, qos: 1, retain, appended_at, expires_at: None }
}

proptest! {
    #[test]
    fn a_message_comes_back_from_an_entry(
        properties in travelling(),
        payload: Vec<u8>,
        retain: bool,
        sequence: u64,
        before: Vec<u8>,
    ) {
        let mut written = before.clone();
        of_message(&message(&properties, &payload, retain), b"broker", sequence, &mut written);
        let (front, tail) = written.split_at(before.len());
        prop_assert_eq!(front, before.as_slice());
        prop_assert_eq!(tail[2..6].to_vec(), crc32c::crc32c(&tail[6..]).to_be_bytes());
        let (metadata, payload_from) = metadata(tail).unwrap();
        prop_assert_eq!((metadata.producer_name, metadata.sequence_id), (&b"broker"[..], sequence));
        prop_assert_eq!((metadata.publish_time_ms, metadata.messages), (1_700_000_000_123, None));
        prop_assert_eq!(&tail[payload_from..], payload.as_slice());
        let opened = opened(tail);
        let expected = InnerMessage {
            properties: &properties,
            payload: &payload,
            key: None,
            event_time: None,
            retain,
            is_null: false,
        };
        prop_assert_eq!((opened.len(), opened.message(0)), (1, Some(expected)));
    }

    #[test]
    fn a_batch_is_its_messages_however_it_is_compressed(
        messages in proptest::collection::vec((pairs(), proptest::option::of(text()), any::<Vec<u8>>()), 1..9),
    ) {
        let payload = batch(&messages);
        for (number, way) in WAYS {
            let count = messages.len() as u64;
            let metadata = saying(&[(8, number), (9, payload.len() as u64), (11, count)]);
            let opened = opened(&tail(&metadata, &compressed(way, &payload)));
            prop_assert_eq!(opened.len(), messages.len());
            for (index, (properties, key, value)) in messages.iter().enumerate() {
                let found = opened.message(index).unwrap();
                let mut expected: Vec<_> =
                    properties.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
                expected.extend(key.iter().map(|key| ("pulsar-key", key.as_str())));
                prop_assert_eq!(found.properties, user(&expected));
                prop_assert_eq!(found.payload, value.as_slice());
                prop_assert_eq!(found.key, key.as_ref().map(String::as_bytes));
            }
        }
    }

    #[test]
    fn any_bytes_are_opened_or_stay_closed(metadata: Vec<u8>, payload: Vec<u8>, way in 0..6_u64, size in 0..1_000_u64) {
        let mut into = Opened::default();
        let metadata = [saying(&[(8, way), (9, size), (11, 2)]), metadata].concat();
        _ = open(&tail(&metadata, &payload), &mut into);
        _ = open(&payload, &mut into);
        let used: usize = (0..into.len()).map(|index| into.message(index).unwrap().payload.len()).sum();
        prop_assert!(used <= 1_000 + payload.len());
    }
}

#[test]
fn the_key_by_which_order_is_kept_goes_before_the_key() {
    let hash = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut fields = said();
        write(&mut fields);
        let tail = tail(&fields, b"");
        key_hash(&metadata(&tail).unwrap().0)
    };
    for (key, expected) in [
        ("Order-3459134", 3_112_179_635),
        ("orders-aggregator-pod-2345-consumer1", 1_003_084_738),
        ("orders-aggregator-pod-2345-consumer2", 373_317_202),
        ("orders-aggregator-pod-2345-consumer100", 320_276_078),
    ] {
        assert_eq!(hash(&|fields| put_bytes(fields, 6, key.as_bytes())), Some(expected));
    }
    let both = |fields: &mut Vec<u8>| {
        put_bytes(fields, 6, b"other");
        put_bytes(fields, 18, b"Order-3459134");
    };
    assert_eq!(hash(&both), Some(3_112_179_635));
    let in_base64 = |fields: &mut Vec<u8>| {
        put_bytes(fields, 6, b"T3JkZXItMzQ1OTEzNA==");
        put_varint(fields, 17, 1);
    };
    assert_eq!(hash(&in_base64), Some(3_112_179_635));
    assert_eq!(hash(&|_| {}), None);
    let no_key = |fields: &mut Vec<u8>| {
        put_bytes(fields, 6, b"");
        put_varint(fields, 30, 1);
    };
    assert_eq!(hash(&no_key), None);
}

#[test]
fn metadata_says_all_that_is_asked_of_it() {
    let mut fields =
        saying(&[(8, 3), (9, 1_000), (11, 5), (12, 99), (17, 1), (19, u64::MAX), (24, 11), (25, 1), (99, 1)]);
    put_bytes(&mut fields, 16, b"\0\0\0\0\0\0\0\x02");
    put_pair(&mut fields, 4, b"a", b"1");
    put_pair(&mut fields, 4, b"a", b"2");
    let tail = tail(&fields, b"payload");
    let (read, payload_from) = metadata(&tail).unwrap();
    assert_eq!(&tail[payload_from..], b"payload");
    assert_eq!((read.producer_name, read.sequence_id, read.highest_sequence_id), (&b"maker"[..], 7, Some(11)));
    assert_eq!((read.compression, read.uncompressed_size, read.messages), (Compression::Zstd, 1_000, Some(5)));
    assert_eq!((read.event_time_ms, read.deliver_at_ms, read.null_value), (Some(99), Some(-1), true));
    assert_eq!((read.partition_key, read.partition_key_b64, read.ordering_key), (None, true, None));
    assert_eq!(read.schema_version, Some(&b"\0\0\0\0\0\0\0\x02"[..]));
    assert_eq!((read.is_encrypted, read.is_chunk), (false, false));
    let properties: Vec<_> = read.properties().collect();
    assert_eq!(properties, [(&b"a"[..], &b"1"[..]), (b"a", b"2")]);
}

#[test]
fn a_batch_of_one_is_no_single_message() {
    let payload = batch(&[(Vec::new(), None, b"inner".to_vec())]);
    assert_eq!(opened(&tail(&saying(&[(11, 1)]), &payload)).message(0).unwrap().payload, b"inner");
    assert_eq!(opened(&tail(&said(), &payload)).message(0).unwrap().payload, payload);
}

#[test]
fn metadata_that_cannot_be_is_refused() {
    let whole = tail_of_one();
    assert!(metadata(&whole).is_some());
    for size in 0..whole.len() - 3 {
        assert!(metadata(&whole[..size]).is_none(), "cut to {size}");
    }
    assert!(metadata(&[&[0x0e, 0x02], &whole[2..]].concat()).is_none());
    let refuses = |fields: &[u8], payload: &[u8]| {
        assert!(metadata(&tail(fields, payload)).is_none(), "{fields:02x?}");
        assert_eq!(closed(&tail(fields, payload)), Closed::Malformed);
    };
    // What must be there: the name, the number and the time.
    let one_missing = [&b"\x10\x07\x18\x07"[..], b"\x0a\x00\x18\x07", b"\x0a\x00\x10\x07"];
    one_missing.iter().for_each(|fields| refuses(fields, b""));
    // A property without a value, a group, a way to compress that there is not.
    refuses(&[said(), b"\x22\x03\x0a\x01a".to_vec()].concat(), b"");
    refuses(&[said(), b"\x23\x24".to_vec()].concat(), b"");
    refuses(&saying(&[(8, 5), (9, 1)]), b"");
    // More messages than bytes, than there may be, none, and fewer than none.
    let room = vec![0; 4 * (ENTRY_MESSAGES_MAXIMUM as usize + 1)];
    for count in [0, u64::from(ENTRY_MESSAGES_MAXIMUM) + 1, u64::MAX] {
        refuses(&saying(&[(11, count)]), &room);
    }
    refuses(&saying(&[(11, 3)]), &[0; 11]);
    refuses(&saying(&[(11, 3), (8, 1), (9, 11)]), &[0; 1_000]);
    let most = tail(&saying(&[(11, u64::from(ENTRY_MESSAGES_MAXIMUM))]), &room);
    assert_eq!(metadata(&most).unwrap().0.messages, Some(ENTRY_MESSAGES_MAXIMUM));
}

#[test]
fn what_is_encrypted_or_a_chunk_stays_closed() {
    let mut encrypted = said();
    put_message(&mut encrypted, 13, |into| put_bytes(into, 1, b"key"));
    assert_eq!(closed(&tail(&encrypted, b"secret")), Closed::Encrypted);
    assert_eq!(closed(&tail(&saying(&[(27, 2), (29, 0)]), b"part")), Closed::Chunk);
    assert_eq!(opened(&tail(&saying(&[(27, 1)]), b"whole")).message(0).unwrap().payload, b"whole");
}

#[test]
fn what_does_not_unpack_to_the_size_it_says_stays_closed() {
    let payload = vec![b'a'; 5_000];
    for (number, way) in &WAYS[1..] {
        let packed = compressed(*way, &payload);
        let of_size = |size: u64| tail(&saying(&[(8, *number), (9, size)]), &packed);
        assert_eq!(opened(&of_size(5_000)).message(0).unwrap().payload, payload);
        for size in [0, 1, 4_999, 5_001, 10_000, 100_000_000] {
            assert_eq!(closed(&of_size(size)), Closed::Malformed, "{way:?} to {size}");
        }
        assert_eq!(closed(&of_size(ENTRY_OPENED_BYTES_MAXIMUM as u64 + 1)), Closed::TooLarge);
        let cut = tail(&saying(&[(8, *number), (9, 5_000)]), &packed[..packed.len() - 1]);
        assert_eq!(closed(&cut), Closed::Malformed, "{way:?} cut");
        let nothing = tail(&saying(&[(8, *number), (9, 0)]), &compressed(*way, b""));
        assert_eq!(opened(&nothing).message(0).unwrap().payload, b"");
    }
}

#[test]
fn a_stream_that_is_flushed_and_not_ended_is_opened() {
    for size in [0, 1, 5_000, 100_000_u32] {
        let payload: Vec<u8> = (0..size).map(|index| (index % 251) as u8).collect();
        let packed = flushed(&payload);
        let of_size = |size: u32| tail(&saying(&[(8, 2), (9, u64::from(size))]), &packed);
        assert_eq!(opened(&of_size(size)).message(0).unwrap().payload, payload);
        let others = [size / 2, size.saturating_sub(1), size + 1, size + 1_000];
        for other in others.into_iter().filter(|other| *other != size) {
            assert_eq!(closed(&of_size(other)), Closed::Malformed, "{size} to {other}");
        }
        if size > 0 {
            let cut = tail(&saying(&[(8, 2), (9, u64::from(size))]), &packed[..packed.len() - 1]);
            assert_eq!(closed(&cut), Closed::Malformed, "{size} cut");
        }
    }
}

#[test]
fn a_batch_that_ends_early_stays_closed() {
    let payload = batch(&[(Vec::new(), None, b"first".to_vec()), (Vec::new(), None, b"second".to_vec())]);
    for size in 8..payload.len() {
        assert_eq!(closed(&tail(&saying(&[(11, 2)]), &payload[..size])), Closed::Malformed);
    }
    assert_eq!(closed(&tail(&saying(&[(11, 3)]), &payload)), Closed::Malformed);
    // A payload of fewer than no bytes, and metadata without its size.
    let negative = [&11_u32.to_be_bytes()[..], b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"].concat();
    assert_eq!(closed(&tail(&saying(&[(11, 1)]), &negative)), Closed::Malformed);
    assert_eq!(closed(&tail(&saying(&[(11, 1)]), b"\0\0\0\0\0\0\0\0")), Closed::Malformed);
}

#[test]
fn what_only_an_entry_has_travels_under_names_of_its_own() {
    let mut fields = saying(&[(12, 1_234), (25, 1), (17, 1)]);
    put_bytes(&mut fields, 6, b"a2V5");
    let opened = opened(&tail(&fields, b""));
    let found = opened.message(0).unwrap();
    let expected = [("pulsar-key", "key"), ("pulsar-event-time", "1234"), ("pulsar-null-value", "true")];
    assert_eq!(found.properties, user(&expected));
    assert_eq!((found.key, found.event_time), (Some(&b"key"[..]), Some(Timestamp(1_234_000))));
    assert_eq!((found.payload, found.is_null), (&b""[..], true));
}

#[test]
fn a_key_that_is_no_text_travels_as_it_was_written() {
    let mut fields = saying(&[(17, 1)]);
    put_bytes(&mut fields, 6, b"/wA=");
    let opened = opened(&tail(&fields, b""));
    let found = opened.message(0).unwrap();
    assert_eq!((found.properties, found.key), (user(&[("pulsar-key", "/wA=")]).as_slice(), Some(&b"\xff\0"[..])));
}

#[test]
fn a_reserved_name_counts_once_and_only_if_it_can() {
    let given = [
        ("mqtt-retain", "no"),
        ("mqtt-correlation-data", "*"),
        ("mqtt-response-topic", "a/+"),
        ("mqtt-payload-format-indicator", "2"),
        ("a", "1"),
        ("mqtt-content-type", "text"),
        ("mqtt-content-type", "again"),
    ];
    let mut fields = said();
    given.iter().for_each(|(name, value)| put_pair(&mut fields, 4, name.as_bytes(), value.as_bytes()));
    let opened = opened(&tail(&fields, b""));
    let found = opened.message(0).unwrap();
    let others: Vec<_> = given.into_iter().filter(|pair| pair.1 != "text").collect();
    assert_eq!(found.properties, [field(3, b"text"), user(&others)].concat());
    assert!(!found.retain);
}

#[test]
fn what_no_user_property_can_say_is_left_out() {
    let mut fields = said();
    let long = "a".repeat(65_536);
    put_pair(&mut fields, 4, long.as_bytes(), b"");
    put_pair(&mut fields, 4, b"a", &long.as_bytes()[1..]);
    put_pair(&mut fields, 4, b"a", b"\xff");
    put_pair(&mut fields, 4, b"a\0", b"");
    assert_eq!(opened(&tail(&fields, b"")).message(0).unwrap().properties, user(&[("a", &long[1..])]));
    let mut fields = said();
    (0..=USER_PROPERTIES_MAXIMUM).for_each(|_| put_pair(&mut fields, 4, b"", b""));
    assert_eq!(opened(&tail(&fields, b"")).message(0).unwrap().properties.len(), USER_PROPERTIES_MAXIMUM * 5);
}
