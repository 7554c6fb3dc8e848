//! What the tests of the log share.
#![allow(dead_code)] // Each test uses its part.

use holdfast_kernel::disk::fake::FakeDisk;
use holdfast_kernel::disk::Disk;
use holdfast_kernel::error::Result;
use holdfast_kernel::flow::{Arrivals, Fate, Messages, Publish, Scan, Span, Subscription};
use holdfast_kernel::ids::{Connection, KeySlot, Offset, Party, Queue, Timestamp};
use holdfast_kernel::store::{Durability, Log, Loss, Options, Question, Recovery, RetentionCursor, Wanted};
use std::sync::Arc;

pub const TOPICS: [&str; 6] = ["a", "a/b", "a/b/c", "b/x", "b/y", "z"];

#[derive(Clone, PartialEq)]
pub struct Stored {
    pub topic: &'static str,
    pub qos: u8,
    pub retain: bool,
    pub payload: Vec<u8>,
}

impl std::fmt::Debug for Stored {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Stored { topic, qos, retain, payload } = self;
        write!(formatter, "{topic} qos {qos} retain {retain} {} x {:?}", payload.len(), payload.first())
    }
}

pub fn options() -> Options {
    Options { segment_bytes: 16_384, cache_bytes: 20_000, reserve_bytes: 0, durability: Durability::Fsync, seed: 9 }
}

pub fn open(disk: &FakeDisk, options: Options) -> (Log, Recovery) {
    Log::open(Arc::new(disk.clone()), options, Timestamp(1_000)).unwrap()
}

pub fn arrivals(messages: &[Stored]) -> Arrivals {
    let mut arrivals = Arrivals::default();
    for (number, message) in messages.iter().enumerate() {
        let mut span = |bytes: &[u8]| {
            let start = arrivals.bytes.len() as u32;
            arrivals.bytes.extend_from_slice(bytes);
            Span { start, size_bytes: bytes.len() as u32 }
        };
        let (topic, payload) = (span(message.topic.as_bytes()), span(&message.payload));
        arrivals.publishes.push(Publish {
            connection: Connection(1),
            publisher: Party(7),
            key_slot: KeySlot(0),
            packet_identifier: number as u16 + 1,
            qos: message.qos,
            retain: message.retain,
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

pub fn subscription(filter: &str, from: u64, until: u64) -> Subscription {
    Subscription {
        filter: filter.as_bytes().to_vec(),
        qos: 1,
        no_local: false,
        keeps_all: false,
        retain_as_published: false,
        identifier: None,
        from: Offset(from),
        until: Offset(until),
    }
}

/// The same files without checkpoints: all state comes from the records then.
pub fn without_checkpoints(disk: &FakeDisk) -> FakeDisk {
    let copy = FakeDisk::new(1, 1 << 30);
    for name in disk.list().unwrap().into_iter().filter(|name| !name.starts_with("checkpoint-")) {
        let file = disk.open(&name, false).unwrap();
        let mut bytes = vec![0; file.size().unwrap() as usize];
        file.read_at(0, &mut bytes).unwrap();
        copy.create(&name, 0).unwrap().write_at(0, &bytes).unwrap();
    }
    copy
}

/// What a run of retention did.
#[derive(Debug, Default)]
pub struct Retention {
    pub removed_segments: u64,
    pub carried_records: u64,
    pub losses: Vec<Loss>,
}

/// One whole run of retention here and now: of what is past it, else of a carry segment.
pub fn retain(log: &mut Log, age_us: u64, bytes: u64, cursors: &[RetentionCursor], now: u64) -> Result<Retention> {
    retain_seen(log, (age_us, bytes), cursors, now, &mut || {})
}

/// The same; `seen` is called after each step beside the loop.
pub fn retain_seen(
    log: &mut Log,
    (age_us, bytes): (u64, u64),
    cursors: &[RetentionCursor],
    now: u64,
    seen: &mut dyn FnMut(),
) -> Result<Retention> {
    let now = Timestamp(now);
    let mut done = Retention::default();
    if !log.begin_retention(age_us, bytes, now)? && !log.begin_thinning(now)? {
        return Ok(done);
    }
    while !log.renew_piece(5, now)? {}
    log.commit()?;
    let mut survey = log.survey_job().unwrap();
    while survey.step() {}
    log.finish(survey)?;
    if !log.retention_may_go_on() {
        log.checkpoint(now)?;
    }
    assert!(log.retention_may_go_on());
    if !cursors.is_empty() {
        log.visit(cursors.to_vec());
    }
    loop {
        let (losses, all) = log.visit_piece(1)?;
        done.losses.extend(losses);
        if all {
            break;
        }
    }
    while !log.find_piece(1)? {}
    carry(log, &mut done, now, seen)?;
    Ok(done)
}

fn carry(log: &mut Log, done: &mut Retention, now: Timestamp, seen: &mut dyn FnMut()) -> Result<()> {
    let mut next = log.carry_job(now);
    while let Some(mut job) = next {
        while job.step() {
            seen();
        }
        let finished = log.finish(job)?;
        done.removed_segments += finished.removed_segments;
        done.carried_records += finished.carried_records;
        next = finished.next;
    }
    Ok(())
}

/// Questions that are answered here and now.
pub trait Asking {
    fn ask(&mut self, subscriptions: &[Subscription], range: (Offset, Offset), at: Timestamp, wanted: Wanted) -> u64;

    fn count(&mut self, subscriptions: &[Subscription], range: (Offset, Offset), at: Timestamp) -> u64 {
        self.ask(subscriptions, range, at, Wanted::Count)
    }

    fn offset_of_newest(&mut self, subscriptions: &[Subscription], from: Offset, messages: u64, at: Timestamp) -> u64 {
        self.ask(subscriptions, (from, Offset(u64::MAX)), at, Wanted::Newest(messages))
    }
}

impl Asking for Log {
    fn ask(&mut self, subscriptions: &[Subscription], range: (Offset, Offset), at: Timestamp, wanted: Wanted) -> u64 {
        let mut question = Question::new(subscriptions.into(), Party(3), range, at, wanted);
        loop {
            if let Some(answer) = self.answer(&mut question, u64::MAX).unwrap() {
                return answer;
            }
        }
    }
}

/// A request for everything that one subscription matches.
pub fn scan_of(filter: &str, from: u64) -> Scan {
    Scan {
        whole: false,
        queue: Queue(3),
        owner: Party(3),
        subscriptions: vec![subscription(filter, 0, u64::MAX)].into(),
        receive: None,
        key: None,
        from: Offset(from),
        owed: Vec::new(),
        retained: None,
        records_maximum: 1_000,
        bytes_maximum: 1 << 20,
        found: Vec::new(),
        found_owed: Vec::new(),
        reached: Offset(0),
        missing: None,
    }
}

/// Everything a queue with one subscription finds, in several scans.
pub fn scan_all(log: &mut Log, filter: &str, from: u64, page: u32) -> Vec<(u64, Stored)> {
    let mut scan = Scan { records_maximum: page, bytes_maximum: 5_000, ..scan_of(filter, from) };
    let mut all = Vec::new();
    loop {
        log.scan(std::slice::from_mut(&mut scan)).unwrap();
        assert_eq!(scan.missing, None);
        for found in &scan.found {
            let message =
                log.message(found.location, found.offset).unwrap().expect("a message that was found can be read");
            let topic = *TOPICS.iter().find(|topic| topic.as_bytes() == message.topic).unwrap();
            assert_eq!((message.qos, message.retain), (found.qos, found.retain));
            all.push((
                found.offset.0,
                Stored { topic, qos: message.qos, retain: message.retain, payload: message.payload.to_vec() },
            ));
        }
        let end = log.durable_offset();
        assert!(
            scan.reached <= end.max(scan.from) && (scan.reached > scan.from || scan.from >= end),
            "a scan moves on"
        );
        if scan.reached >= end {
            return all;
        }
        scan.from = scan.reached;
    }
}

pub fn message(topic: &'static str, payload: &[u8]) -> Stored {
    Stored { topic, qos: 1, retain: false, payload: payload.to_vec() }
}
