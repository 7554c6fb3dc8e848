//! What a stored message costs: append, commit, scan and read, columns, recovery. Run with `cargo bench --bench log`.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::as_conversions)]

use holdfast_kernel::disk::os::OsDisk;
use holdfast_kernel::flow::{Arrivals, Fate, Messages, Publish, Scan, Span, Subscription};
use holdfast_kernel::ids::{Connection, KeySlot, Offset, Party, Queue, Timestamp};
use holdfast_kernel::store::{ColumnSet, Criteria, Durability, Limits, Log, LogReader, Options};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

const TOPICS: usize = 1_000;
const TURN: usize = 1_000;
/// As many as may be appended without a commit.
const TURNS: usize = 900;

fn turn() -> Arrivals {
    let mut arrivals = Arrivals::default();
    for number in 0..TURN {
        let mut span = |bytes: &[u8]| {
            let start = arrivals.bytes.len() as u32;
            arrivals.bytes.extend_from_slice(bytes);
            Span { start, size_bytes: bytes.len() as u32 }
        };
        let (topic, payload) = (span(format!("plant/{}/reads", number % TOPICS).as_bytes()), span(&[7; 64]));
        arrivals.publishes.push(Publish {
            connection: Connection(1),
            publisher: Party(7),
            key_slot: KeySlot(0),
            packet_identifier: 1,
            qos: 1,
            retain: false,
            topic,
            properties: Span::default(),
            payload,
            expiry_interval_s: None,
            fate: Fate::Accepted,
            row: None,
            entry: None,
            targets: None,
            stored: None,
        });
    }
    arrivals
}

fn scan(filter: &str) -> Scan {
    let subscription = Subscription {
        filter: filter.as_bytes().to_vec(),
        qos: 1,
        no_local: false,
        keeps_all: false,
        retain_as_published: false,
        identifier: None,
        from: Offset(0),
        until: Offset(u64::MAX),
    };
    Scan {
        whole: false,
        queue: Queue(1),
        owner: Party(1),
        subscriptions: vec![subscription].into(),
        receive: None,
        key: None,
        from: Offset(0),
        owed: Vec::new(),
        retained: None,
        records_maximum: 2_000,
        bytes_maximum: 4 << 20,
        found: Vec::new(),
        found_owed: Vec::new(),
        reached: Offset(0),
        missing: None,
    }
}

fn measure<Value>(name: &str, count: usize, action: impl FnOnce() -> Value) -> Value {
    let (began, busy) = (Instant::now(), processor_ns());
    let value = action();
    let (took, busy) = (began.elapsed().as_secs_f64() * 1e3, processor_ns() - busy);
    println!("{name:<44} {:>9.1} ns of processor time each, {took:>8.1} ms in all", busy as f64 / count as f64);
    value
}

/// Processor time of this thread, which a busy machine does not stretch.
fn processor_ns() -> u64 {
    let schedule = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    schedule.split(' ').next().unwrap().parse().unwrap()
}

fn drain(log: &mut Log, filter: &str) -> usize {
    let (mut scan, mut found, mut bytes) = (scan(filter), 0, 0);
    while scan.from < log.durable_offset() {
        log.scan(std::slice::from_mut(&mut scan)).unwrap();
        for record in &scan.found {
            bytes += log.message(record.location, record.offset).unwrap().unwrap().payload.len();
        }
        found += scan.found.len();
        scan.from = scan.reached;
    }
    black_box(bytes);
    found
}

fn main() {
    let directory = std::env::temp_dir().join(format!("holdfast-bench-{}", std::process::id()));
    let options = Options {
        segment_bytes: 64 << 20,
        cache_bytes: 32 << 20,
        reserve_bytes: 0,
        durability: Durability::Fsync,
        seed: 1,
    };
    let open = || Log::open(Arc::new(OsDisk::create(&directory).unwrap()), options, Timestamp(1)).unwrap();
    let (mut log, _) = open();
    let mut arrivals = turn();
    let messages = TURN * TURNS;
    measure("append, 64 bytes", messages, || {
        for number in 0..TURNS {
            log.append(&mut arrivals, &[""; 0], Timestamp(number as u64)).unwrap();
        }
    });
    measure("commit all of it", messages, || log.commit().unwrap());
    measure("commit one message", 1_000, || {
        arrivals.publishes.truncate(1);
        for number in 0..1_000 {
            log.append(&mut arrivals, &[""; 0], Timestamp(number)).unwrap();
            log.commit().unwrap();
        }
    });
    measure("drain everything", messages, || drain(&mut log, "#"));
    measure("drain one topic of 1 000", messages / TOPICS, || drain(&mut log, "plant/5/reads"));
    measure("scan a queue that matches nothing", 1, || drain(&mut log, "nobody/#"));
    measure("recover without a checkpoint", messages, || drop(open()));
    log.close().unwrap();
    let (_, recovery) = measure("recover with a checkpoint", 1, open);
    assert!(recovery.from_checkpoint);
    let mut reader = LogReader::open(Arc::new(OsDisk::open(&directory).unwrap())).unwrap();
    measure("open a reader", 1, || reader.refresh(None, false).unwrap());
    measure("read columns", messages, || {
        let (mut from, end) = (Offset(0), reader.end_offset());
        while from < end {
            let limits = Limits { from, to: end, rows: 65_536, bytes: 16 << 20 };
            let (columns, reached) = reader.read(&Criteria::default(), ColumnSet::ALL, &limits).unwrap();
            black_box(columns.rows);
            from = reached;
        }
    });
    std::fs::remove_dir_all(&directory).unwrap();
}
