//! Consumers of one topic's entries against a log in memory, as the loop drives them.
#![allow(dead_code)] // Each test uses its part.

use crate::delivery_support::{found, publish, reads, stored};
use holdfast_kernel::delivery::members::GroupAttachment;
use holdfast_kernel::delivery::{Attachment, Deliveries};
use holdfast_kernel::flow::entry::{EntryParts, Permits, Says, Settlement};
use holdfast_kernel::flow::state::State;
use holdfast_kernel::flow::{
    Arrivals, Departure, Found, Outgoing, Publish, Refusal, Scan, Sending, Stored, Subscription, Target, Terms,
};
use holdfast_kernel::ids::{Connection, LogPosition, Offset, Party, Queue, Receiver, Timestamp};
use holdfast_kernel::mqtt::exchange;
use std::collections::BTreeSet;
use std::sync::Arc;

pub const QUEUE: Party = Party(50);
pub const PRODUCER: Connection = Connection(9);

/// An entry of the log: its number is its index, its position in the log the index + 1.
#[derive(Debug, Clone, Copy)]
pub struct Record {
    pub offset: u64,
    pub count: u32,
}

/// A log with one topic, and what takes from it.
pub struct World {
    pub deliveries: Deliveries,
    pub records: Vec<Record>,
    pub queue: Queue,
    /// The queue is routed to.
    pub is_target: bool,
    /// Whoever else is routed to.
    pub others: Vec<(Queue, Connection)>,
    /// So many records are durable.
    pub durable: usize,
    /// Bytes of each record.
    pub size_bytes: u32,
    /// A scan finds no more records than this.
    pub page: usize,
    /// The numbers of entries that retention has taken.
    pub lost: BTreeSet<u64>,
    /// What has left and is no message.
    pub told: Vec<Departure>,
    /// The encoded progress of the queue, in order.
    pub progress: Vec<(Party, Vec<u8>)>,
}

/// The slot of an entry's key, as the log has it.
pub fn key_of(number: u64) -> u16 {
    (number % 2) as u16
}

/// What differs between sessions.
struct Attached {
    state: State,
    subscriptions: Arc<[Subscription]>,
    receive_maximum: u16,
    entries_maximum: usize,
}

pub fn whole(party: Party, state: State, end: u64) -> GroupAttachment {
    let subscriptions = reads();
    let (end, sent_before) = (Offset(end), Offset(0));
    GroupAttachment { party, owner: party, state, subscriptions, end, sent_before, whole: true }
}

impl World {
    pub fn new() -> World {
        let mut deliveries = Deliveries::default();
        let queue = deliveries.open_group(whole(QUEUE, State::default(), 0));
        World {
            deliveries,
            records: Vec::new(),
            queue,
            is_target: true,
            others: Vec::new(),
            durable: 0,
            size_bytes: 100,
            page: usize::MAX,
            lost: BTreeSet::new(),
            told: Vec::new(),
            progress: Vec::new(),
        }
    }

    /// A session on a connection that reads everything from now on.
    pub fn session(&mut self, connection: Connection, receive_maximum: u16, entries_maximum: usize) -> Queue {
        let state = State::new(self.end());
        self.attach(connection, Party(7), Attached { state, subscriptions: reads(), receive_maximum, entries_maximum })
    }

    /// A session that reads everything from an offset on, and falls behind.
    pub fn session_at(&mut self, connection: Connection, party: Party, mark: Offset, receive_maximum: u16) {
        let (state, subscriptions) = (State::new(mark), reads());
        self.attach(connection, party, Attached { state, subscriptions, receive_maximum, entries_maximum: 0 });
    }

    /// A session that reads nothing by itself.
    pub fn reader_of_groups(&mut self, connection: Connection, party: Party, receive_maximum: u16) {
        let (state, subscriptions) = (State::new(self.end()), Arc::from([]));
        self.attach(connection, party, Attached { state, subscriptions, receive_maximum, entries_maximum: 0 });
    }

    fn attach(&mut self, connection: Connection, party: Party, attached: Attached) -> Queue {
        let Attached { state, subscriptions, receive_maximum, entries_maximum } = attached;
        let (end, pack_maximum, reads) = (self.end(), 0, !subscriptions.is_empty());
        let attachment =
            Attachment { party, state, subscriptions, receive_maximum, end, entries_maximum, pack_maximum };
        let (_, queue) = self.deliveries.attach(connection, attachment).unwrap();
        self.others.extend(reads.then_some((queue, connection)));
        queue
    }

    /// A consumer that takes from the queue and may be given so many messages.
    pub fn consumer(&mut self, connection: u32, permits: u32) -> Receiver {
        let receiver = self.deliveries.attach_consumer(Connection(connection)).unwrap();
        self.deliveries.join_consumer(self.queue, receiver, true).unwrap();
        self.permit(receiver, permits);
        receiver
    }

    /// The offset behind the last record.
    pub fn end(&self) -> Offset {
        Offset(self.records.last().map_or(0, |last| last.offset + u64::from(last.count)))
    }

    /// The offset behind the last durable record.
    pub fn durable_end(&self) -> Offset {
        let last = self.durable.checked_sub(1).map(|index| self.records[index]);
        Offset(last.map_or(0, |last| last.offset + u64::from(last.count)))
    }

    fn admit(&mut self, arrivals: &Arrivals) {
        self.deliveries.admit(arrivals, LogPosition(self.records.len() as u64), exchange::next);
    }

    pub fn permit(&mut self, receiver: Receiver, messages: u32) {
        let mut arrivals = Arrivals::default();
        arrivals.permits.push(Permits { receiver, messages });
        self.admit(&arrivals);
    }

    /// Entries with so many messages each are appended and admitted.
    pub fn publish(&mut self, counts: &[u32]) {
        let mut arrivals = Arrivals::default();
        for count in counts {
            let number = self.records.len() as u64;
            let size_bytes = self.size_bytes;
            let place = Stored { entry: number, size_bytes, ..stored(self.end().0, number + 1) };
            self.records.push(Record { offset: self.end().0, count: *count });
            let publish = self.entry(&mut arrivals, number, *count);
            arrivals.publishes.push(Publish { stored: Some(place), ..publish });
        }
        self.admit(&arrivals);
    }

    fn entry(&self, arrivals: &mut Arrivals, number: u64, count: u32) -> Publish {
        let terms = Terms { qos: 2, ..Terms::default() };
        let queue = self.is_target.then_some((self.queue, Connection::GROUP));
        let all = queue.into_iter().chain(self.others.iter().copied());
        let targets = all.map(|(queue, connection)| Target { queue, connection, terms: terms.clone(), own: None });
        let parts = EntryParts {
            producer: 3,
            sequence_first: number * 10,
            sequence_last: number * 10 + 9,
            count,
            key_hash: None,
            not_before: None,
            opened_bytes: 0,
            checksum: 0,
        };
        let entry = Some(arrivals.entries.len() as u32);
        arrivals.entries.push(parts);
        let message = publish(1, None, stored(0, 0));
        Publish { connection: PRODUCER, entry, targets: Some(targets.collect::<Arc<[_]>>()), stored: None, ..message }
    }

    /// An entry that is not stored, for this reason.
    pub fn refuse(&mut self, refusal: Refusal) {
        let mut arrivals = Arrivals::default();
        let publish = self.entry(&mut arrivals, 77, 5);
        let fate = holdfast_kernel::flow::Fate::Refused(refusal);
        arrivals.publishes.push(Publish { fate, ..publish });
        self.admit(&arrivals);
    }

    pub fn say(&mut self, connection: u32, receiver: Receiver, says: Says, numbers: &[u64], request: Option<u64>) {
        // Other numbers stand in front of these.
        let mut arrivals = Arrivals { numbers: [&[12_345], numbers].concat(), ..Arrivals::default() };
        let numbers = 1..arrivals.numbers.len();
        let connection = Connection(connection);
        arrivals.settlements.push(Settlement { connection, receiver, says, numbers, request });
        self.admit(&arrivals);
    }

    pub fn commit(&mut self) {
        self.durable = self.records.len();
    }

    /// One turn behind admission; returns the messages that leave. Progress is durable with the next one.
    pub fn turn(&mut self) -> Vec<Sending> {
        let (durable, position) = (self.durable_end(), LogPosition(self.durable as u64));
        let mut outgoing = Outgoing::default();
        self.deliveries.settle(durable, position, &mut outgoing);
        let mut scans = self.deliveries.hungry(durable);
        scans.iter_mut().for_each(|scan| self.scan(scan));
        self.deliveries.feed(&mut scans);
        self.deliveries.allot(&mut outgoing, Timestamp(1));
        let progress = self.deliveries.take_progress();
        if !progress.is_empty() || self.deliveries.needs_progress() {
            self.deliveries.progressed(position);
        }
        self.progress.extend(progress);
        let mut sent = Vec::new();
        for departure in outgoing.departures {
            match departure {
                Departure::Sending(sending) => sent.push(sending),
                other => self.told.push(other),
            }
        }
        sent
    }

    /// Turns until nothing more is to be done without somebody else.
    pub fn turns(&mut self) -> Vec<Sending> {
        let mut sent = Vec::new();
        for _ in 0..10_000 {
            sent.extend(self.turn());
            if !self.deliveries.is_waiting() {
                sent.extend(self.turn());
                return sent;
            }
        }
        panic!("it goes round for ever");
    }

    /// The number of the entry with a message at this offset.
    pub fn number_at(&self, offset: Offset) -> u64 {
        self.records.partition_point(|record| record.offset <= offset.0) as u64 - 1
    }

    pub fn numbers_of(&self, sent: &[Sending], receiver: Receiver) -> Vec<u64> {
        let of = sent.iter().filter(|sending| sending.receiver == receiver);
        of.map(|sending| self.number_at(sending.offset)).collect()
    }

    /// What the log does.
    fn scan(&self, scan: &mut Scan) {
        let durable = self.durable_end();
        let terms = Terms { qos: 2, ..Terms::default() };
        let of = |number: u64, offset: u64, count: u32| {
            let size_bytes = self.size_bytes;
            Found { entry: number, count, size_bytes, ..found(offset, 1, key_of(number), terms.clone()) }
        };
        for owed in scan.owed.clone() {
            let number = self.number_at(owed);
            let record = self.records[number as usize];
            let count = if scan.whole { record.count } else { 1 };
            scan.found_owed.push((owed < durable && !self.lost.contains(&number)).then(|| of(number, owed.0, count)));
        }
        scan.reached = scan.from;
        if scan.subscriptions.is_empty() || scan.from >= durable {
            return;
        }
        let first = self.number_at(scan.from);
        let records = self.records.iter().enumerate().skip(first as usize).take(self.durable - first as usize);
        for (number, record) in records {
            let end = record.offset + u64::from(record.count);
            let messages = match scan.whole {
                true => vec![(record.offset, record.count)],
                false => (record.offset.max(scan.from.0)..end).map(|offset| (offset, 1)).collect(),
            };
            for (offset, count) in messages {
                if scan.found.len() == self.page.min(scan.records_maximum as usize) {
                    return;
                }
                scan.found.push(of(number as u64, offset, count));
                scan.reached = Offset(offset + u64::from(count));
            }
        }
    }
}
