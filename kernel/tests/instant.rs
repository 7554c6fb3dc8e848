//! What is copied of one moment is of that moment, whatever changes while it is copied.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions
)]

mod delivery_support;
mod log_support;

use delivery_support::{publish, stored};
use holdfast_kernel::delivery::{Attachment, Deliveries};
use holdfast_kernel::disk::fake::FakeDisk;
use holdfast_kernel::flow::moment::InFlight;
use holdfast_kernel::flow::state::State;
use holdfast_kernel::flow::{Acknowledgement, Arrivals, Outgoing, Step};
use holdfast_kernel::ids::{Connection, LogPosition, Offset, Party, Queue, Timestamp};
use holdfast_kernel::mqtt::exchange;
use holdfast_kernel::store::Log;
use log_support::{arrivals, open, options, Stored, TOPICS};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const RECEIVERS: u32 = 6;

#[derive(Debug, Clone)]
enum Change {
    Deliver(u32, u8),
    Acknowledge(u32, u16),
    Return(u32),
    Piece,
}

fn change() -> impl Strategy<Value = Change> {
    let receiver = 0..RECEIVERS;
    prop_oneof![
        4 => (receiver.clone(), 1..=2_u8).prop_map(|(receiver, qos)| Change::Deliver(receiver, qos)),
        3 => (receiver.clone(), 1..6_u16).prop_map(|(receiver, identifier)| Change::Acknowledge(receiver, identifier)),
        1 => receiver.prop_map(Change::Return),
        2 => Just(Change::Piece),
    ]
}

/// Some receivers, and what each has in flight by what it was sent and has acknowledged.
struct Crowd {
    deliveries: Deliveries,
    queues: Vec<Queue>,
    offset: u64,
}

impl Crowd {
    fn new() -> Crowd {
        let mut crowd = Crowd { deliveries: Deliveries::default(), queues: Vec::new(), offset: 0 };
        for receiver in 0..RECEIVERS {
            let queue = crowd.attach(receiver, State::default());
            crowd.queues.push(queue);
        }
        crowd
    }

    fn attach(&mut self, receiver: u32, state: State) -> Queue {
        let attachment = Attachment {
            party: Party(receiver + 1),
            state,
            subscriptions: Arc::from([]),
            receive_maximum: 5,
            end: Offset(self.offset),
            entries_maximum: 0,
            pack_maximum: 0,
        };
        self.deliveries.attach(Connection(receiver), attachment).unwrap().1
    }

    fn apply(&mut self, change: &Change) {
        match *change {
            Change::Deliver(receiver, qos) => {
                let target = Some((self.queues[receiver as usize], Connection(receiver)));
                let publishes = vec![publish(qos, target, stored(self.offset, self.offset + 1))];
                self.offset += 1;
                let end = LogPosition(self.offset);
                self.deliveries.admit(&Arrivals { publishes, ..Arrivals::default() }, end, exchange::next);
                let mut outgoing = Outgoing::default();
                self.deliveries.settle(Offset(self.offset), end, &mut outgoing);
                self.deliveries.allot(&mut outgoing, Timestamp(self.offset));
            }
            Change::Acknowledge(receiver, packet_identifier) => {
                let (connection, step) = (Connection(receiver), Step::Acknowledged);
                let acknowledgements = vec![Acknowledgement { connection, step, packet_identifier, refusal: None }];
                let arrivals = Arrivals { acknowledgements, ..Arrivals::default() };
                self.deliveries.admit(&arrivals, LogPosition(0), exchange::next);
            }
            Change::Return(receiver) => {
                let handle = self.deliveries.receiver_on(Connection(receiver)).unwrap();
                let state = self.deliveries.detach(handle, std::iter::empty()).unwrap();
                self.queues[receiver as usize] = self.attach(receiver, state);
            }
            Change::Piece => {}
        }
    }

    /// What a copy made at one go holds.
    fn whole(&mut self) -> BTreeSet<Row> {
        self.deliveries.begin_instant();
        let (rows, is_all) = self.deliveries.instant_piece(usize::MAX);
        assert!(is_all);
        rows.iter().map(row).collect()
    }
}

type Row = (u32, u16, u64, u8, u16, u64);

fn row(row: &InFlight) -> Row {
    (row.party.0, row.packet_identifier, row.flight.offset.0, row.flight.qos, row.attempts, row.since.0)
}

proptest! {
    #[test]
    fn what_was_in_flight_at_a_moment_is_copied_while_it_changes(
        before in proptest::collection::vec(change(), 0..40),
        after in proptest::collection::vec(change(), 0..40),
    ) {
        let mut crowd = Crowd::new();
        before.iter().for_each(|change| crowd.apply(change));
        let wanted = crowd.whole();
        crowd.deliveries.begin_instant();
        let (mut found, mut rows) = (BTreeSet::new(), 0);
        for change in after.iter().chain(std::iter::repeat_n(&Change::Piece, 100)) {
            crowd.apply(change);
            if matches!(change, Change::Piece) {
                let (piece, _) = crowd.deliveries.instant_piece(1);
                prop_assert!(piece.len() <= 1);
                rows += piece.len();
                found.extend(piece.iter().map(row));
            }
        }
        prop_assert_eq!(rows, found.len());
        prop_assert_eq!(found, wanted);
    }

    #[test]
    fn states_and_retained_messages_of_a_moment_are_copied_while_they_change(
        before in proptest::collection::vec((0..3_u8, 0..6_u32), 0..40),
        after in proptest::collection::vec((0..5_u8, 0..6_u32), 0..40),
    ) {
        let (mut log, _) = open(&FakeDisk::new(3, 1 << 30), options());
        before.iter().for_each(|change| alter(&mut log, *change));
        log.begin_instant();
        let wanted = taken(&mut log, u64::MAX, &[]);
        log.begin_instant();
        prop_assert_eq!(taken(&mut log, 1, &after), wanted);
    }
}

/// A delivery state moves, or goes; a retained message comes, or goes.
fn alter(log: &mut Log, (kind, which): (u8, u32)) {
    let (now, end) = (Timestamp(7), log.end_offset());
    let key = (which + 1).to_le_bytes();
    match kind {
        0 => {
            let mut state = State::new(end);
            state.acknowledge(Offset(end.0 + 2), Offset(end.0 + 4));
            let mut value = Vec::new();
            state.encode(&mut value);
            log.append_control(0, &key, &value, now).unwrap();
        }
        1 => drop(log.append_control(0, &key, &[2], now).unwrap()),
        _ => {
            let payload = if kind == 4 { Vec::new() } else { b"x".to_vec() };
            let stored = Stored { topic: TOPICS[which as usize], qos: 1, retain: true, payload };
            log.append::<&[u8]>(&mut arrivals(&[stored]), &[], now).unwrap();
        }
    }
}

type Ranges = BTreeSet<(u32, u64, u64)>;
type Names = BTreeMap<Vec<u8>, u64>;

/// All that is copied in pieces of this effort, with changes between them.
fn taken(log: &mut Log, effort: u64, changes: &[(u8, u32)]) -> (Ranges, Names) {
    let (mut ranges, mut names, mut after, mut is_all) = (Ranges::new(), Names::new(), None, false);
    let mut changes = changes.iter();
    for _ in 0..200 {
        changes.by_ref().take(1).for_each(|change| alter(log, *change));
        let (states, reached) = if is_all { Default::default() } else { log.states_piece(after, effort) };
        is_all |= reached.is_none();
        after = reached;
        ranges.extend(states.acknowledged.iter().map(|(party, first, end)| (party.0, first.0, end.0)));
        for (name, offset, _) in log.retained_piece(effort).0 {
            assert!(names.insert(name.to_vec(), offset.0).is_none());
        }
    }
    (ranges, names)
}
