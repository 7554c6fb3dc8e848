//! How a group gives, case by case: by load, by staying, by key; what a slow key holds up, when a key moves, and what
//! an operator sees of that; how much of a window one group takes, and what has expired.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::as_conversions)]

mod delivery_support;

use delivery_support::{found, publish, reads, stored};
use holdfast_kernel::delivery::members::GroupAttachment;
use holdfast_kernel::delivery::{Attachment, Deliveries};
use holdfast_kernel::flow::state::State;
use holdfast_kernel::flow::{
    Acknowledgement, Arrivals, Departure, Found, NoticeKind, Outgoing, Publish, Step, Stored, Subscription, Target,
    Terms,
};
use holdfast_kernel::ids::{Connection, KeySlot, LogPosition, Offset, Party, Queue, Timestamp};
use holdfast_kernel::limits::{KEYS_WAITING_MAXIMUM, QUEUE_ENTRIES_MAXIMUM};
use holdfast_kernel::mqtt::exchange;
use holdfast_kernel::selection::{key_slot, Key, Owners, Selection};
use std::collections::VecDeque;
use std::sync::Arc;

const A: Connection = Connection(1);
const B: Connection = Connection(2);

/// A group whose messages are durable at once; a message's key is its slot.
struct World {
    deliveries: Deliveries,
    group: Queue,
    keys: Vec<u16>,
    /// What each of two members has, in order: packet identifier and offset.
    has: [VecDeque<(u16, u64)>; 2],
    now: u64,
}

impl World {
    fn new(selection: Selection<Connection>, receive_maximum: u16) -> World {
        let mut deliveries = Deliveries::default();
        for connection in [Connection(0), A, B] {
            let attachment = attachment(connection, Arc::from([]), receive_maximum);
            deliveries.attach(connection, attachment).unwrap();
        }
        let group = deliveries.open_group(group_of(Party(50)));
        deliveries.select(group, selection.among(|owner| deliveries.receiver_on(owner))).unwrap();
        let mut world = World { deliveries, group, keys: Vec::new(), has: Default::default(), now: 0 };
        world.join(A);
        world.join(B);
        world
    }

    fn join(&mut self, member: Connection) {
        self.deliveries
            .join(self.group, self.deliveries.receiver_on(member).unwrap(), Terms { qos: 1, ..Terms::default() })
            .unwrap();
    }

    /// One message of each key, and what is sent because of that: offsets for A and for B.
    fn publish(&mut self, keys: &[u16]) -> [Vec<u64>; 2] {
        let mut arrivals = Arrivals::default();
        for key in keys {
            let offset = self.keys.len() as u64;
            self.keys.push(*key);
            arrivals.publishes.push(published(self.group, offset, *key, None));
        }
        self.deliveries.admit(&arrivals, LogPosition(0), exchange::next);
        self.turn()
    }

    fn turn(&mut self) -> [Vec<u64>; 2] {
        self.now += 1;
        let (end, mut outgoing) = (self.keys.len() as u64, Outgoing::default());
        self.deliveries.settle(Offset(end), LogPosition(end), &mut outgoing);
        outgoing.departures.clear();
        let mut sent: [Vec<u64>; 2] = Default::default();
        // Until nothing more can be done: a queue reads the log page by page.
        for _ in 0..100 {
            let mut scans = self.deliveries.hungry(Offset(end));
            for scan in &mut scans {
                scan.found_owed = scan.owed.iter().map(|offset| Some(self.found(offset.0))).collect();
                scan.reached = Offset(end.min(scan.from.0 + u64::from(scan.records_maximum)));
                scan.found = (scan.from.0..scan.reached.0).map(|offset| self.found(offset)).collect();
            }
            self.deliveries.feed(&mut scans);
            self.deliveries.allot(&mut outgoing, Timestamp(self.now));
            for packet in outgoing.departures.drain(..) {
                let Departure::Sending(sending) = packet else { panic!("{packet:?}") };
                let (index, offset) = (sending.connection.0 as usize - 1, u64::from(sending.location.position));
                self.has[index].push_back((sending.packet_identifier, offset));
                sent[index].push(offset);
            }
            if !self.deliveries.is_waiting() {
                return sent;
            }
        }
        panic!("it says for ever that it has something to do");
    }

    /// The member acknowledges so many of the messages that it has, in order, and what is sent because of that.
    fn acknowledge(&mut self, member: Connection, count: usize) -> [Vec<u64>; 2] {
        let taken = self.has[member.0 as usize - 1].drain(..count);
        let acknowledgements = taken.map(|(packet_identifier, _)| Acknowledgement {
            connection: member,
            step: Step::Acknowledged,
            packet_identifier,
            refusal: None,
        });
        let arrivals = Arrivals { acknowledgements: acknowledgements.collect(), ..Arrivals::default() };
        self.deliveries.admit(&arrivals, LogPosition(0), exchange::next);
        self.turn()
    }

    fn found(&self, offset: u64) -> Found {
        found(offset, 1, self.keys[offset as usize], Terms { qos: 2, ..Terms::default() })
    }
}

fn attachment(connection: Connection, subscriptions: Arc<[Subscription]>, receive_maximum: u16) -> Attachment {
    Attachment {
        party: Party(Party::TRANSIENT.0 + connection.0),
        state: State::default(),
        subscriptions,
        receive_maximum,
        end: Offset(0),
        entries_maximum: 1,
        pack_maximum: 0,
    }
}

fn published(group: Queue, offset: u64, key: u16, expires_at: Option<u64>) -> Publish {
    let expires_at = expires_at.map(Timestamp);
    let message = publish(1, Some((group, Connection::GROUP)), Stored { expires_at, ..stored(offset, offset) });
    Publish { key_slot: KeySlot(key), ..message }
}

fn group_of(party: Party) -> GroupAttachment {
    GroupAttachment {
        party,
        owner: party,
        state: State::default(),
        subscriptions: reads(),
        end: Offset(0),
        sent_before: Offset(0),
        whole: false,
    }
}

/// Slots 0 to 99 and 100 to 199 with their owners.
fn by_key(low: Connection, high: Connection) -> Selection<Connection> {
    let owners = Owners::new(vec![(0, 100, low), (100, 200, high)]).unwrap();
    Selection::ByKey(Key::Publisher, Arc::new(owners))
}

#[test]
fn who_has_least_in_flight_gets_the_next() {
    let mut world = World::new(Selection::LeastLoaded, 10);
    assert_eq!(world.publish(&[0; 6]), [vec![0, 2, 4], vec![1, 3, 5]]);
    world.acknowledge(B, 3);
    assert_eq!(world.publish(&[0; 3]), [vec![], vec![6, 7, 8]], "until it has as many as the other");
    assert_eq!(world.publish(&[0; 2]), [vec![9], vec![10]]);
    let members = world.deliveries.members(world.group).unwrap().into_iter();
    let members =
        members.map(|(member, given, in_flight)| (world.deliveries.connection_of(member).unwrap(), given, in_flight));
    assert_eq!(members.collect::<Vec<_>>(), [(A, 4, 4), (B, 7, 4)]);
}

#[test]
fn a_member_is_at_rest_until_messages_of_the_group_wait_for_room() {
    let mut world = World::new(Selection::LeastLoaded, 2);
    assert_eq!(world.publish(&[0; 4]), [vec![0, 2], vec![1, 3]]);
    assert!(world.deliveries.is_at_rest(A) && world.deliveries.is_at_rest(B));
    assert_eq!(world.publish(&[0]), [vec![], vec![]]);
    assert!(!world.deliveries.is_at_rest(A) && !world.deliveries.is_at_rest(B));
    assert_eq!(world.acknowledge(A, 1), [vec![4], vec![]]);
    assert!(world.deliveries.is_at_rest(B));
}

#[test]
fn the_same_member_gets_all_as_long_as_it_has_room_and_is_there() {
    let mut world = World::new(Selection::Stay, 4);
    assert_eq!(world.publish(&[0; 3]), [vec![0, 1, 2], vec![]]);
    assert_eq!(world.publish(&[0; 3]), [vec![3], vec![4, 5]]);
    world.acknowledge(A, 4);
    assert_eq!(world.publish(&[0; 1]), [vec![], vec![6]], "it does not go back before it has to");
    world.deliveries.detach(world.deliveries.receiver_on(B).unwrap(), std::iter::empty()).unwrap();
    assert_eq!(world.publish(&[0; 1])[0], [4, 5, 6, 7]);
}

#[test]
fn each_key_goes_to_its_owner_and_only_there() {
    let mut world = World::new(by_key(A, B), 2);
    assert_eq!(world.publish(&[1, 150, 2, 150, 1]), [vec![0, 2], vec![1, 3]]);
    assert_eq!(world.publish(&[160, 1]), [vec![], vec![]], "B has no room, and A may not have what is B's");
    assert_eq!(world.acknowledge(B, 1), [vec![], vec![5]]);
    assert_eq!(world.acknowledge(A, 2), [vec![4, 6], vec![]]);
}

#[test]
fn a_member_that_stalls_holds_up_its_own_keys_alone_and_memory_is_bounded() {
    let mut world = World::new(by_key(A, B), 100);
    world.deliveries.set_writable(A, false);
    let (stalled, mut beside) = (KEYS_WAITING_MAXIMUM as u64, Vec::new());
    for _ in 0..stalled / 1_024 {
        beside.extend(world.publish(&[150])[1].clone());
        world.publish(&[7; 1_024]);
        let count = world.has[1].len();
        world.acknowledge(B, count);
    }
    assert_eq!(beside.len() as u64, stalled / 1_024, "all of B's keys went past");
    assert_eq!(world.deliveries.keys(world.group, 5).unwrap().0, KEYS_WAITING_MAXIMUM);
    assert_eq!(world.publish(&[150]), [vec![], vec![]], "no more wait in memory; what follows stays in the log");
    world.deliveries.set_writable(A, true);
    let mut order = Vec::new();
    loop {
        let count = world.has[0].len();
        order.extend(world.has[0].iter().map(|(_, offset)| *offset));
        if world.acknowledge(A, count)[0].is_empty() && world.has[0].is_empty() {
            break;
        }
    }
    order.extend(world.has[0].iter().map(|(_, offset)| *offset));
    assert_eq!(order.len() as u64, stalled);
    assert!(order.is_sorted());
    assert_eq!(world.has[1].len(), 1, "and B has the one that had to stay in the log");
}

#[test]
fn a_key_moves_when_what_is_in_flight_of_it_has_been_settled() {
    let mut world = World::new(by_key(A, A), 10);
    assert_eq!(world.publish(&[150, 1, 150]), [vec![0, 1, 2], vec![]]);
    world.deliveries.select(world.group, by_key(A, B).among(|owner| world.deliveries.receiver_on(owner))).unwrap();
    assert_eq!(world.publish(&[150, 1, 160]), [vec![4], vec![5]], "160 is at nobody, 150 at A still");
    let (waiting, holds) = world.deliveries.keys(world.group, 2).unwrap();
    let seen: Vec<_> = holds
        .iter()
        .map(|hold| {
            (
                hold.slot.0,
                world.deliveries.connection_of(hold.receiver).unwrap(),
                hold.in_flight,
                hold.moving,
                hold.since.0,
            )
        })
        .collect();
    assert_eq!((waiting, seen), (1, vec![(1, A, 2, 0, 1), (150, A, 2, 1, 1)]));
    assert_eq!(world.acknowledge(A, 1), [vec![], vec![]], "one of two");
    assert_eq!(world.acknowledge(A, 2), [vec![], vec![3]]);
    assert_eq!(world.publish(&[150, 1]), [vec![7], vec![6]]);
}

#[test]
fn what_a_holder_had_goes_before_what_waits_for_its_key_to_move() {
    let mut world = World::new(by_key(A, A), 10);
    world.publish(&[150, 1, 150]);
    world.deliveries.select(world.group, by_key(A, B).among(|owner| world.deliveries.receiver_on(owner))).unwrap();
    assert_eq!(world.publish(&[150, 150]), [vec![], vec![]]);
    world.deliveries.detach(world.deliveries.receiver_on(A).unwrap(), std::iter::empty()).unwrap();
    assert_eq!(world.turn(), [vec![], vec![0, 2, 3, 4]]);
}

#[test]
fn a_key_goes_over_when_its_holder_is_gone_with_what_it_held_first() {
    let mut world = World::new(by_key(A, B), 3);
    world.publish(&[1, 2, 1, 2, 1]);
    assert_eq!(world.has[0].iter().map(|(_, offset)| *offset).collect::<Vec<_>>(), [0, 1, 2]);
    world.acknowledge(A, 0);
    world.deliveries.detach(world.deliveries.receiver_on(A).unwrap(), std::iter::empty()).unwrap();
    world.deliveries.select(world.group, by_key(B, B).among(|owner| world.deliveries.receiver_on(owner))).unwrap();
    assert_eq!(world.publish(&[1]), [vec![], vec![0, 1, 2]]);
    assert_eq!(world.acknowledge(B, 3)[1], [3, 4, 5]);
}

#[test]
fn keys_begin_when_what_was_given_without_them_has_been_settled() {
    let mut world = World::new(Selection::Turns, 10);
    assert_eq!(world.publish(&[1, 1]), [vec![0], vec![1]]);
    world.deliveries.select(world.group, by_key(A, B).among(|owner| world.deliveries.receiver_on(owner))).unwrap();
    assert_eq!(world.publish(&[1]), [vec![], vec![]]);
    assert_eq!(world.acknowledge(A, 1), [vec![], vec![]]);
    assert_eq!(world.acknowledge(B, 1), [vec![2], vec![]]);
    world.deliveries.select(world.group, Selection::Turns).unwrap();
    assert_eq!(world.publish(&[1, 1]), [vec![3], vec![4]], "and no key holds anything any more");
}

#[test]
fn a_keyed_group_remembers_nothing_of_qos_0_that_another_queue_gets() {
    let mut deliveries = Deliveries::default();
    let keyed = deliveries.open_group(group_of(Party(50)));
    let whole = deliveries.open_group(GroupAttachment { whole: true, ..group_of(Party(51)) });
    deliveries.select(keyed, by_key(A, B).among(|_| None)).unwrap();
    let terms = Terms { qos: 2, ..Terms::default() };
    let both = [keyed, whole];
    let both = both.map(|queue| Target { queue, connection: Connection::GROUP, terms: terms.clone(), own: None });
    let targets: Arc<[Target]> = Arc::from(both);
    // What all of delivery holds, written out: once the other queue is full, nothing grows any more.
    let mut held = Vec::new();
    for part in 1..=3 {
        let end = part * 2 * QUEUE_ENTRIES_MAXIMUM as u64;
        let begin = end - 2 * QUEUE_ENTRIES_MAXIMUM as u64;
        let kept = |offset| Stored { is_kept: true, ..stored(offset, offset) };
        let message = |offset| Publish { targets: Some(Arc::clone(&targets)), ..publish(0, None, kept(offset)) };
        let arrivals = Arrivals { publishes: (begin..end).map(message).collect(), ..Arrivals::default() };
        deliveries.admit(&arrivals, LogPosition(end), exchange::next);
        deliveries.settle(Offset(end), LogPosition(end), &mut Outgoing::default());
        held.push(format!("{deliveries:?}").len());
    }
    assert!(held[0] > 1_000 * 10, "the other queue was offered them");
    assert!(held[2] < held[1] + 1_000, "{held:?}");
}

#[test]
fn a_key_is_taken_from_the_topic_the_publisher_or_a_user_property() {
    let text = |value: &[u8]| [&(value.len() as u16).to_be_bytes(), value].concat();
    let pair = |name: &[u8], value: &[u8]| [vec![0x26], text(name), text(value)].concat();
    let properties =
        [vec![0x01, 1, 0x03], text(b"reader"), pair(b"reader", b"7"), pair(b"other", b"x"), pair(b"reader", b"8")]
            .concat();
    let slot = |key: Key, properties: &[u8]| key.slot(b"a/b", properties, KeySlot(9));
    let reader = Key::UserProperty(Arc::from(*b"reader"));
    assert_eq!(slot(Key::Topic, &properties), key_slot(b"a/b"));
    assert_eq!(slot(Key::Publisher, &properties), KeySlot(9));
    assert_eq!(slot(reader.clone(), &properties), key_slot(b"7"));
    assert_eq!(slot(Key::UserProperty(Arc::from(*b"writer")), &properties), key_slot(b"a/b"));
    for end in 0..properties.len() {
        slot(reader.clone(), &properties[..end]);
    }
}

/// What two groups with one member give it, of ten messages for each.
fn allotted(receive_maximum: u16, has_own: bool, expires_at: Option<u64>) -> (Vec<usize>, Deliveries) {
    let mut deliveries = Deliveries::default();
    deliveries.attach(Connection(0), attachment(Connection(0), Arc::from([]), 1)).unwrap();
    let subscriptions = if has_own { reads() } else { Arc::from([]) };
    deliveries.attach(A, attachment(A, subscriptions, receive_maximum)).unwrap();
    let mut counts = Vec::new();
    for (number, party) in (0..).zip([Party(50), Party(51)]) {
        let group = deliveries.open_group(group_of(party));
        deliveries.join(group, deliveries.receiver_on(A).unwrap(), Terms { qos: 1, ..Terms::default() }).unwrap();
        let publishes = (number * 10..number * 10 + 10).map(|offset| published(group, offset, 0, expires_at)).collect();
        deliveries.admit(&Arrivals { publishes, ..Arrivals::default() }, LogPosition(30), exchange::next);
    }
    for end in [10, 20] {
        let mut outgoing = Outgoing::default();
        deliveries.settle(Offset(end), LogPosition(end - 1), &mut outgoing);
        deliveries.allot(&mut outgoing, Timestamp(5));
        let publishes = outgoing.departures.iter().filter(|packet| matches!(packet, Departure::Sending(_)));
        counts.push(publishes.count());
    }
    (counts, deliveries)
}

#[test]
fn a_group_takes_an_even_part_of_a_members_window() {
    assert_eq!(allotted(6, false, None).0, [3, 3]);
    assert_eq!(allotted(6, true, None).0, [2, 2]);
    assert_eq!(allotted(1, true, None).0, [1, 0], "a window of one cannot be divided");
}

#[test]
fn an_expired_message_of_a_group_is_noticed_and_given_to_nobody() {
    let (counts, mut deliveries) = allotted(6, false, Some(5));
    assert_eq!(counts, [0, 0]);
    let notices = deliveries.take_notices();
    let told: Vec<_> =
        notices.iter().map(|notice| (notice.party.0, notice.kind, notice.first.0, notice.end.0)).collect();
    assert_eq!(told, [(50, NoticeKind::Expired, 0, 10), (51, NoticeKind::Expired, 10, 20)]);
}
