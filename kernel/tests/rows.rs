//! Rows of a batch take the way of all messages, and what the log has of them is a prefix that can be counted.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions
)]

mod log_support;

use holdfast_kernel::disk::fake::FakeDisk;
use holdfast_kernel::error::Error;
use holdfast_kernel::flow::rows::{Row, Rows};
use holdfast_kernel::flow::submission::{Outcome, Submission};
use holdfast_kernel::flow::{Arrivals, Messages};
use holdfast_kernel::ids::{KeySlot, Offset, Party, Timestamp};
use holdfast_kernel::limits::UNCOMMITTED_BYTES_MAXIMUM;
use holdfast_kernel::mqtt::columns::{Bounds, Columns, Numbers, Texts};
use holdfast_kernel::store::Log;
use holdfast_kernel::topic::grant::HeldGrants;
use log_support::{open, options};
use proptest::prelude::*;

const BY: Party = Party(7);
const MANY: usize = 1 << 20;

fn row<'a>(topic: &'a [u8], payload: &'a [u8]) -> Row<'a> {
    Row { topic, payload, qos: 1, ..Row::default() }
}

fn rows(of: &[Row<'_>]) -> Rows {
    let mut bytes = Vec::new();
    of.iter().for_each(|row| row.encode(&mut bytes));
    Rows::new(bytes)
}

fn put(turn: &mut Arrivals, rows: &Rows) -> usize {
    turn.put_rows(rows, (BY, KeySlot(3)), MANY, MANY).unwrap()
}

fn append(log: &mut Log, turn: &mut Arrivals) {
    log.append::<&[u8]>(turn, &[], Timestamp(5_000)).unwrap();
}

fn empty() -> Log {
    open(&FakeDisk::new(1, 1 << 30), options()).0
}

#[test]
fn a_row_is_stored_with_all_that_it_has_whatever_its_qos() {
    let (mut log, mut turn) = (empty(), Arrivals::default());
    let full = Row {
        key: Some(b"k"),
        properties: &[1, 1],
        qos: 0,
        retain: true,
        event_time: Some(Timestamp(9)),
        expiry_interval_s: Some(2),
        ..row(b"a", b"said")
    };
    assert_eq!(put(&mut turn, &rows(&[full])), 1);
    append(&mut log, &mut turn);
    assert_eq!(turn.rows_taken(), (1, Some(log.end_position())));
    log.commit().unwrap();
    let location = log.locate(Offset(0)).unwrap().unwrap();
    let found = log.message(location, Offset(0)).unwrap().unwrap();
    assert_eq!((found.topic, found.payload, found.properties, found.qos), (&b"a"[..], &b"said"[..], &[1, 1][..], 0));
    assert_eq!((found.retain, found.expires_at), (true, Some(Timestamp(2_005_000))));
    assert_eq!(log.retained_count(), 1);
}

#[test]
fn rows_stay_until_they_are_passed_and_come_behind_what_else_is_handed_in() {
    let mut turn = Arrivals::default();
    let single = Submission {
        publisher: BY,
        key_slot: KeySlot(0),
        qos: 1,
        retain: false,
        topic: b"single",
        properties: &[],
        payload: b"",
        expiry_interval_s: None,
    };
    turn.put(&single).unwrap();
    let mut some = rows(&[row(b"a", b"0"), row(b"a", b"1"), row(b"a", b"2")]);
    assert_eq!(turn.put_rows(&some, (BY, KeySlot(3)), 2, MANY).unwrap(), 2);
    let mut log = empty();
    append(&mut log, &mut turn);
    assert!(matches!(turn.outcomes().collect::<Vec<_>>()[..], [Outcome::Stored(_)]));
    assert_eq!(turn.rows_taken().0, 2);
    assert_eq!(some.pass(2).unwrap(), 2);
    assert!(!some.is_done());
    turn.clear();
    assert_eq!(put(&mut turn, &some), 1);
    assert_eq!(some.pass(9).unwrap(), 1);
    assert!(some.is_done());
}

#[test]
fn a_turn_takes_rows_up_to_a_number_of_bytes() {
    let mut turn = Arrivals::default();
    let some = rows(&[row(b"a", &[0; 60]), row(b"a", &[0; 60]), row(b"a", &[0; 60])]);
    assert_eq!(turn.put_rows(&some, (BY, KeySlot(3)), MANY, 100).unwrap(), 2);
}

#[test]
fn where_the_log_is_full_it_takes_no_row_behind_the_first_that_finds_no_room() {
    let (mut log, mut turn) = (empty(), Arrivals::default());
    let large = vec![0; usize::try_from(UNCOMMITTED_BYTES_MAXIMUM).unwrap()];
    let some = rows(&[row(b"a", &large), row(b"a", b"1"), row(b"a", b"2")]);
    turn.put_rows(&some, (BY, KeySlot(3)), MANY, usize::MAX).unwrap();
    append(&mut log, &mut turn);
    assert_eq!(turn.rows_taken().0, 1);
    assert_eq!(log.end_offset(), Offset(1));
}

#[test]
fn what_a_party_has_published_behind_an_offset_is_counted_across_a_crash() {
    let disk = FakeDisk::new(3, 1 << 30);
    let (mut log, _) = open(&disk, options());
    let others = rows(&[row(b"b", b"x")]);
    for turn_number in 0..6_u64 {
        let mut turn = Arrivals::default();
        turn.put_rows(&others, (Party(8), KeySlot(0)), MANY, MANY).unwrap();
        put(&mut turn, &rows(&[row(b"a", &[0; 900]), row(b"c", &turn_number.to_le_bytes())]));
        append(&mut log, &mut turn);
        log.commit().unwrap();
    }
    assert_eq!(log.published(BY, Offset(0)).unwrap(), 12);
    assert_eq!(log.published(BY, Offset(6)).unwrap(), 8);
    drop(log);
    disk.crash();
    let (mut log, _) = open(&disk, options());
    assert_eq!(log.published(BY, Offset(0)).unwrap(), 12);
    assert_eq!(log.published(Party(8), Offset(4)).unwrap(), 4);
    assert_eq!(log.published(BY, Offset(18)).unwrap(), 0);
}

#[test]
fn bytes_that_are_no_rows_are_refused() {
    let mut bytes = Vec::new();
    row(b"a", b"said").encode(&mut bytes);
    bytes.truncate(bytes.len() - 1);
    let mut cut = Rows::new(bytes);
    assert!(cut.pass(1).is_err());
    assert!(Arrivals::default().put_rows(&cut, (BY, KeySlot(0)), 1, 1).is_err());
}

fn column(values: &[&[u8]]) -> (Vec<u8>, Vec<u8>) {
    let (mut offsets, mut data) = (0_u32.to_le_bytes().to_vec(), Vec::new());
    for value in values {
        data.extend_from_slice(value);
        offsets.extend_from_slice(&(data.len() as u32).to_le_bytes());
    }
    (offsets, data)
}

fn encoded(topic: &[u8], change: impl Fn(&mut Columns<'_>), rules: Option<&[(&str, bool)]>) -> Result<Vec<u8>, Error> {
    let (topics, values) = (column(&[b"a/b", topic]), column(&[b"first", b"second"]));
    let mut columns = Columns {
        rows: 2,
        topic: Texts { offsets: &topics.0, data: &topics.1 },
        value: Texts { offsets: &values.0, data: &values.1 },
        ..Columns::default()
    };
    change(&mut columns);
    let publish = rules.map(|rules| HeldGrants::default().grant(rules).unwrap());
    let mut out = Vec::new();
    columns.encode(&Bounds { publish, message_bytes_maximum: 100 }, &mut out)?;
    Ok(out)
}

fn refusal(result: Result<Vec<u8>, Error>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn columns_become_rows() {
    let keys = column(&[b"", b"key"]);
    let names = column(&[b"content_type", b"mine", b"mine"]);
    let values = column(&[b"text", b"1", b"2"]);
    let counts: Vec<u8> = [0_u32, 0, 3].iter().flat_map(|count| count.to_le_bytes()).collect();
    let times: Vec<u8> = [0_u64, 17].iter().flat_map(|time| time.to_le_bytes()).collect();
    let expiry: Vec<u8> = [0_u32, 60].iter().flat_map(|seconds| seconds.to_le_bytes()).collect();
    let (keys, names, values) = (&keys, &names, &values);
    let (counts, times, expiry) = (&counts, &times, &expiry);
    let (topics, payloads) = (column(&[b"a/b", b"c"]), column(&[b"first", b"second"]));
    let columns = Columns {
        rows: 2,
        topic: Texts { offsets: &topics.0, data: &topics.1 },
        value: Texts { offsets: &payloads.0, data: &payloads.1 },
        key: Some((&[0, 1], Texts { offsets: &keys.0, data: &keys.1 })),
        qos: Some(&[0, 2]),
        retain: Some(&[0, 1]),
        event_time: Some(Numbers { is_there: &[0, 1], values: times }),
        expiry: Some(Numbers { is_there: &[0, 1], values: expiry }),
        properties: Some((
            counts,
            Texts { offsets: &names.0, data: &names.1 },
            Texts { offsets: &values.0, data: &values.1 },
        )),
        properties_are_texts: false,
    };
    let mut bytes = Vec::new();
    columns.encode(&Bounds { publish: None, message_bytes_maximum: 100 }, &mut bytes).unwrap();
    let (first, rest) = Row::decode(&bytes).unwrap();
    assert_eq!(first, Row { qos: 0, ..row(b"a/b", b"first") });
    let (second, rest) = Row::decode(rest).unwrap();
    let properties = b"\x03\x00\x04text\x26\x00\x04mine\x00\x011\x26\x00\x04mine\x00\x012";
    let expected = Row {
        key: Some(b"key"),
        properties,
        qos: 2,
        retain: true,
        event_time: Some(Timestamp(17)),
        expiry_interval_s: Some(60),
        ..row(b"c", b"second")
    };
    assert_eq!(second, expected);
    assert!(rest.is_empty());
}

#[test]
fn a_message_that_nobody_may_publish_is_named_with_its_reason() {
    let nothing = |_: &mut Columns<'_>| {};
    for (topic, reason) in [(&b"a/+"[..], "no +"), (b"", "not empty"), (b"$SYS/x", "broker's own")] {
        let refused = refusal(encoded(topic, nothing, None));
        assert!(refused.starts_with("row 1, topic") && refused.contains(reason), "{refused}");
    }
    let rules: &[(&str, bool)] = &[("a/#", true)];
    assert!(encoded(b"a/c", nothing, Some(rules)).is_ok());
    assert!(refusal(encoded(b"b", nothing, Some(rules))).contains("rules of access"));
    assert!(refusal(encoded(b"b", |columns| columns.qos = Some(&[0, 3]), None)).contains("qos"));
    assert!(refusal(encoded(&[b'x'; 95], nothing, None)).contains("100 are allowed"));
    let (names, values) = (column(&[b"payload_format_indicator"]), column(&[b"7"]));
    let counts: Vec<u8> = [0_u32, 0, 1].iter().flat_map(|count| count.to_le_bytes()).collect();
    let (names, values, counts) = (&names, &values, &counts);
    let (topics, payloads) = (column(&[b"a", b"b"]), column(&[b"", b""]));
    let columns = Columns {
        rows: 2,
        topic: Texts { offsets: &topics.0, data: &topics.1 },
        value: Texts { offsets: &payloads.0, data: &payloads.1 },
        properties: Some((
            counts,
            Texts { offsets: &names.0, data: &names.1 },
            Texts { offsets: &values.0, data: &values.1 },
        )),
        ..Columns::default()
    };
    let refused = columns.encode(&Bounds { publish: None, message_bytes_maximum: 100 }, &mut Vec::new());
    assert!(refused.unwrap_err().to_string().starts_with("row 1, topic 'b'"));
}

fn with_correlation_data(value: &[u8], properties_are_texts: bool) -> Result<Vec<u8>, Error> {
    let (topics, payloads) = (column(&[b"a"]), column(&[b""]));
    let (names, values) = (column(&[b"correlation_data"]), column(&[value]));
    let counts: Vec<u8> = [0_u32, 1].iter().flat_map(|count| count.to_le_bytes()).collect();
    let columns = Columns {
        rows: 1,
        topic: Texts { offsets: &topics.0, data: &topics.1 },
        value: Texts { offsets: &payloads.0, data: &payloads.1 },
        properties: Some((
            &counts,
            Texts { offsets: &names.0, data: &names.1 },
            Texts { offsets: &values.0, data: &values.1 },
        )),
        properties_are_texts,
        ..Columns::default()
    };
    let mut bytes = Vec::new();
    columns.encode(&Bounds { publish: None, message_bytes_maximum: 100 }, &mut bytes)?;
    Ok(Row::decode(&bytes).unwrap().0.properties.to_vec())
}

#[test]
fn what_is_binary_among_texts_is_in_hexadecimal() {
    assert_eq!(with_correlation_data(b"\xFF", false).unwrap(), b"\x09\x00\x01\xFF");
    assert_eq!(with_correlation_data(b"ff0A", true).unwrap(), b"\x09\x00\x02\xFF\x0A");
    for bad in [&b"f"[..], b"fg", b"\xFF\xFF"] {
        assert!(with_correlation_data(bad, true).is_err(), "{bad:?}");
    }
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(
        topic: Vec<u8>, key: Option<Vec<u8>>, properties: Vec<u8>, payload: Vec<u8>, qos in 0_u8..3, retain: bool,
        event_time: Option<u64>, expiry_interval_s: Option<u32>, cut in 1_usize..40,
    ) {
        let row = Row {
            topic: &topic, key: key.as_deref(), properties: &properties, payload: &payload, qos, retain,
            event_time: event_time.map(Timestamp), expiry_interval_s,
        };
        let mut bytes = Vec::new();
        row.encode(&mut bytes);
        let cut = &bytes[..bytes.len() - cut.min(bytes.len())];
        prop_assert_eq!(Row::decode(cut).map(|(row, _)| row), None);
        prop_assert_eq!(Row::decode(&bytes), Some((row, &[][..])));
    }

    #[test]
    fn any_bytes_are_rows_or_not(bytes: Vec<u8>) {
        let mut rows = Rows::new(bytes);
        let _ = Arrivals::default().put_rows(&rows, (BY, KeySlot(0)), 10, 1_000);
        let _ = rows.pass(10);
    }
}
