//! A group against a log in memory: whatever is published, acknowledged, cut and crashed in whatever order, while
//! members come and go, every message reaches somebody; at QoS 2 once; what was acknowledged or handed over goes to
//! nobody else; what came back goes out first; and no window is exceeded.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::as_conversions)]

use holdfast_kernel::dispatch::group::GroupAttachment;
use holdfast_kernel::dispatch::{Attachment, Dispatch};
use holdfast_kernel::flow::state::State;
use holdfast_kernel::flow::{
    Acknowledgement, AcknowledgementKind, Arrivals, Fate, Found, NoticeKind, Outgoing, Packet, Publish, Span, Stored,
    Subscription, Target, Terms,
};
use holdfast_kernel::ids::{Connection, KeySlot, Location, LogPosition, Offset, Party, Queue, Timestamp};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const GROUP: Party = Party(50);
/// The second gets QoS 1 at most; the third's session ends with its connection.
const MEMBERS: [(Party, u8); 3] = [(Party(7), 2), (Party(8), 1), (Party(Party::TRANSIENT.0 + 1), 2)];

#[derive(Debug, Clone)]
enum Step {
    Publish { qos: u8, count: u8 },
    Commit,
    Turn,
    Acknowledge { member: usize, newest: bool, count: u8 },
    Connect { member: usize, receive_maximum: u8 },
    Disconnect { member: usize },
    Subscribe { member: usize },
    Unsubscribe { member: usize },
    Crash { torn: u8 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let member = 0..MEMBERS.len();
    let step = prop_oneof![
        4 => (1..=2_u8, 1..20_u8).prop_map(|(qos, count)| Step::Publish { qos, count }),
        5 => Just(Step::Commit),
        9 => Just(Step::Turn),
        9 => (member.clone(), any::<bool>(), 1..10_u8)
            .prop_map(|(member, newest, count)| Step::Acknowledge { member, newest, count }),
        4 => (member.clone(), 1..12_u8)
            .prop_map(|(member, receive_maximum)| Step::Connect { member, receive_maximum }),
        2 => member.clone().prop_map(|member| Step::Disconnect { member }),
        3 => member.clone().prop_map(|member| Step::Subscribe { member }),
        1 => member.prop_map(|member| Step::Unsubscribe { member }),
        1 => (0..4_u8).prop_map(|torn| Step::Crash { torn }),
    ];
    proptest::collection::vec(step, 1..150)
}

/// What is appended, in log order; its index + 1 is its position.
enum Record {
    Message { qos: u8 },
    State(Party, Vec<u8>),
}

#[derive(Default)]
struct Member {
    attached: bool,
    subscribed: bool,
    receive_maximum: usize,
    unanswered: Vec<(u16, AcknowledgementKind)>,
    open: BTreeSet<u16>,
    /// What it has by packet identifier: message and QoS. A persistent session keeps those of QoS 2.
    has: BTreeMap<u16, (u64, u8)>,
}

struct World {
    dispatch: Dispatch,
    log: Vec<Record>,
    durable: usize,
    published: u64,
    group: Option<Queue>,
    members: [Member; 3],
    sent: BTreeSet<u64>,
    /// Of those, since the group was attached: a queue that rests does not tell what was sent from what was not.
    lately: BTreeSet<u64>,
    handed: BTreeSet<u64>,
    /// By message: the log's size when its acknowledgement was in it; `usize::MAX` before.
    acknowledged: BTreeMap<u64, usize>,
    /// Handed to a session that has ended.
    excused: BTreeSet<u64>,
}

impl World {
    fn new() -> World {
        let mut dispatch = Dispatch::default();
        attach_publisher(&mut dispatch);
        let mut world = World {
            dispatch,
            log: Vec::new(),
            durable: 0,
            published: 0,
            group: None,
            members: Default::default(),
            sent: BTreeSet::new(),
            lately: BTreeSet::new(),
            handed: BTreeSet::new(),
            acknowledged: BTreeMap::new(),
            excused: BTreeSet::new(),
        };
        world.write(GROUP, &State::new(Offset(0)));
        world.durable = 1;
        world
    }

    fn messages(&self) -> impl Iterator<Item = (u64, usize, u8)> + '_ {
        let messages = self.log.iter().enumerate().filter_map(|(index, record)| match record {
            Record::Message { qos } => Some((index, *qos)),
            Record::State(..) => None,
        });
        messages.enumerate().map(|(offset, (index, qos))| (offset as u64, index, qos))
    }

    fn durable_offset(&self) -> Offset {
        Offset(self.messages().filter(|(_, index, _)| *index < self.durable).count() as u64)
    }

    fn write(&mut self, party: Party, state: &State) {
        let mut bytes = Vec::new();
        state.encode(&mut bytes);
        self.log.push(Record::State(party, bytes));
    }

    /// What the log says of every party, as recovery reads it.
    fn states(&self) -> BTreeMap<Party, State> {
        let mut states: BTreeMap<Party, State> = BTreeMap::new();
        for record in &self.log {
            if let Record::State(party, value) = record {
                for (offset, group) in states.entry(*party).or_default().apply(value).unwrap() {
                    states.get_mut(&group).unwrap().acknowledge(offset, Offset(offset.0 + 1));
                }
            }
        }
        states
    }

    fn publish(&mut self, qos: u8, count: u8) {
        let mut arrivals = Arrivals::default();
        for _ in 0..count {
            self.log.push(Record::Message { qos });
            let stored = Stored {
                offset: Offset(self.published),
                location: location(self.published),
                size_bytes: 100,
                expires_at: None,
                durable_at: LogPosition(self.log.len() as u64),
            };
            arrivals.publishes.push(publish(qos, self.group, stored));
            self.published += 1;
        }
        self.dispatch.admit(&arrivals, LogPosition(self.log.len() as u64));
    }

    /// A session is attached when the state that its last connection left is durable (CONNACK waits for that).
    fn connect(&mut self, index: usize, receive_maximum: u8) {
        self.disconnect(index);
        self.durable = self.log.len();
        let party = MEMBERS[index].0;
        let attachment = Attachment {
            party,
            state: self.states().remove(&party).unwrap_or_default(),
            subscriptions: Arc::from([]),
            receive_maximum: u16::from(receive_maximum),
            end: Offset(self.published),
            entries_maximum: usize::from(!party.is_durable()),
        };
        self.dispatch.attach(connection(index), attachment).unwrap();
        self.members[index].attached = true;
        self.members[index].receive_maximum = usize::from(receive_maximum);
        self.join(index);
    }

    fn join(&mut self, index: usize) {
        if !self.members[index].attached || !self.members[index].subscribed {
            return;
        }
        if self.group.is_none() {
            let state = self.states().remove(&GROUP).unwrap();
            let end = Offset(self.published);
            let attachment = GroupAttachment { party: GROUP, state, subscriptions: reads(), end };
            self.group = Some(self.dispatch.open_group(attachment));
        }
        let terms = Terms { qos: MEMBERS[index].1, ..Terms::default() };
        self.dispatch.join(self.group.unwrap(), connection(index), terms).unwrap();
    }

    fn disconnect(&mut self, index: usize) {
        if !std::mem::take(&mut self.members[index].attached) {
            return;
        }
        let state = self.dispatch.detach(connection(index), std::iter::empty()).unwrap();
        let party = MEMBERS[index].0;
        if party.is_durable() {
            self.write(party, &state);
        } else {
            self.members[index].subscribed = false;
        }
        self.note_ended();
        self.members[index].cut(party.is_durable());
        self.rest();
    }

    /// A group nobody takes from, and nobody has anything of, rests.
    fn rest(&mut self) {
        let Some(group) = self.group else { return };
        let taken = self.members.iter().any(|member| member.attached && member.subscribed);
        if !taken && self.dispatch.in_flight(group).unwrap() == 0 {
            let state = self.dispatch.close_group(group).unwrap();
            self.write(GROUP, &state);
            self.group = None;
            self.lately.clear();
        }
    }

    fn unsubscribe(&mut self, index: usize) {
        self.members[index].subscribed = false;
        if let Some(group) = self.group {
            self.dispatch.leave(group, connection(index));
        }
        self.rest();
    }

    fn note_ended(&mut self) {
        for notice in self.dispatch.take_notices() {
            assert_eq!((notice.party, notice.kind), (GROUP, NoticeKind::SessionEnded));
            self.excused.extend(notice.first.0..notice.end.0);
        }
    }

    fn crash(&mut self, torn: u8) {
        let transient = MEMBERS.iter().position(|(party, _)| !party.is_durable()).unwrap();
        if self.members[transient].attached {
            let state = self.dispatch.state(connection(transient), std::iter::empty()).unwrap();
            self.excused.extend(state.handed_over().map(|(offset, _)| offset.0));
            self.members[transient].subscribed = false;
        }
        self.log.truncate(self.durable + usize::from(torn));
        self.durable = self.log.len();
        self.published = self.messages().count() as u64;
        self.acknowledged.retain(|_, at| *at <= self.log.len());
        self.dispatch = Dispatch::default();
        attach_publisher(&mut self.dispatch);
        self.group = None;
        self.lately.clear();
        for (member, (party, _)) in self.members.iter_mut().zip(MEMBERS) {
            member.attached = false;
            member.cut(party.is_durable());
        }
    }

    fn turn(&mut self) {
        let mut outgoing = Outgoing::default();
        let durable = self.durable_offset();
        self.dispatch.settle(durable, LogPosition(self.durable as u64), &mut outgoing);
        let mut scans = self.dispatch.hungry(durable);
        for scan in &mut scans {
            scan.found_owed = scan.owed.iter().map(|offset| Some(self.found(offset.0))).collect();
            if scan.owner != GROUP {
                scan.reached = durable; // Members have no subscriptions of their own.
                continue;
            }
            for (offset, ..) in self.messages().filter(|(offset, ..)| (scan.from.0..durable.0).contains(offset)) {
                if scan.found.len() == 3.min(scan.records_maximum as usize) {
                    break;
                }
                scan.found.push(self.found(offset));
                scan.reached = Offset(offset + 1);
            }
        }
        self.dispatch.feed(&mut scans);
        let before = outgoing.packets.len();
        self.dispatch.allot(&mut outgoing, Timestamp(1));
        self.check_order(&outgoing.packets[before..]);
        for (party, value) in self.dispatch.take_progress() {
            self.log.push(Record::State(party, value));
        }
        let size = self.log.len();
        self.acknowledged.values_mut().for_each(|at| *at = size.min(*at));
        if self.dispatch.needs_progress() {
            self.dispatch.progressed(LogPosition(size as u64));
        }
        for packet in outgoing.packets {
            self.take(packet);
        }
        for member in &self.members {
            assert!(member.open.len() <= member.receive_maximum, "more outstanding than Receive Maximum");
        }
        self.rest();
    }

    /// What has been sent before comes before what has not, each in offset order.
    fn check_order(&self, packets: &[Packet]) {
        let deliveries = packets.iter().filter_map(|packet| match packet {
            Packet::Publish(delivery) if !delivery.dup => Some(u64::from(delivery.location.position)),
            _ => None,
        });
        let order: Vec<(bool, u64)> = deliveries.map(|offset| (!self.lately.contains(&offset), offset)).collect();
        assert!(order.is_sorted(), "{order:?}");
    }

    fn take(&mut self, packet: Packet) {
        match packet {
            Packet::Publish(delivery) => {
                let index = delivery.connection.0 as usize - 1;
                let (identifier, offset) = (delivery.packet_identifier, u64::from(delivery.location.position));
                let member = &mut self.members[index];
                let kind = if delivery.qos == 2 { AcknowledgementKind::Pubrec } else { AcknowledgementKind::Puback };
                member.open.insert(identifier);
                member.unanswered.push((identifier, kind));
                if delivery.dup {
                    assert_eq!(delivery.qos, 2, "only what was handed over is sent again to the same member");
                    if let Some(known) = member.has.get(&identifier) {
                        assert_eq!(*known, (offset, 2), "a packet identifier in use names another message");
                        return;
                    }
                }
                member.has.insert(identifier, (offset, delivery.qos));
                assert!(!self.handed.contains(&offset), "{offset} was handed over and sent to another");
                assert!(!self.acknowledged.contains_key(&offset), "{offset} was acknowledged and sent again");
                self.sent.insert(offset);
                self.lately.insert(offset);
                if delivery.qos == 2 {
                    self.handed.insert(offset);
                }
            }
            Packet::Acknowledgement(sent) if sent.connection != Connection(0) => {
                assert_eq!(sent.kind, AcknowledgementKind::Pubrel);
                let member = &mut self.members[sent.connection.0 as usize - 1];
                member.unanswered.push((sent.packet_identifier, AcknowledgementKind::Pubcomp));
            }
            Packet::Acknowledgement(_) | Packet::Encoded(..) => {}
        }
    }

    fn acknowledge(&mut self, index: usize, newest: bool, count: u8) {
        let mut arrivals = Arrivals::default();
        let member = &mut self.members[index];
        for _ in 0..count {
            let at = if newest { member.unanswered.len().wrapping_sub(1) } else { 0 };
            if at >= member.unanswered.len() {
                break;
            }
            let (packet_identifier, kind) = member.unanswered.remove(at);
            if matches!(kind, AcknowledgementKind::Puback | AcknowledgementKind::Pubcomp) {
                member.open.remove(&packet_identifier);
                if let Some((offset, 1)) = member.has.remove(&packet_identifier) {
                    self.acknowledged.insert(offset, usize::MAX);
                }
            }
            let connection = connection(index);
            arrivals.acknowledgements.push(Acknowledgement { connection, kind, packet_identifier, reason_code: 0 });
        }
        self.dispatch.admit(&arrivals, LogPosition(self.log.len() as u64));
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Publish { qos, count } => self.publish(qos, count),
            Step::Commit => self.durable = self.log.len(),
            Step::Turn => self.turn(),
            Step::Acknowledge { member, newest, count } => self.acknowledge(member, newest, count),
            Step::Connect { member, receive_maximum } => self.connect(member, receive_maximum),
            Step::Disconnect { member } => self.disconnect(member),
            Step::Subscribe { member } => {
                self.members[member].subscribed = true;
                self.join(member);
            }
            Step::Unsubscribe { member } => self.unsubscribe(member),
            Step::Crash { torn } => self.crash(torn),
        }
    }

    /// All who keep a session come back and answer everything; one of them is a member.
    fn drain(&mut self) {
        self.disconnect(2);
        self.members[0].subscribed = true;
        for index in 0..2 {
            self.connect(index, 8);
        }
        for _ in 0..self.published * 2 + 40 {
            self.durable = self.log.len();
            self.turn();
            for index in 0..2 {
                self.acknowledge(index, false, 100);
            }
        }
    }

    fn found(&self, offset: u64) -> Found {
        let (_, _, qos) = self.messages().nth(offset as usize).unwrap();
        Found {
            offset: Offset(offset),
            count: 1,
            location: location(offset),
            size_bytes: 100,
            qos,
            retain: false,
            expires_at: None,
            key_slot: KeySlot(0),
            terms: Terms { qos: 2, ..Terms::default() },
        }
    }
}

impl Member {
    /// The connection has ended; only a persistent session remembers what it received at QoS 2.
    fn cut(&mut self, is_kept: bool) {
        self.unanswered.clear();
        self.open.clear();
        self.has.retain(|_, (_, qos)| is_kept && *qos == 2);
    }
}

fn connection(index: usize) -> Connection {
    Connection(index as u32 + 1)
}

fn attach_publisher(dispatch: &mut Dispatch) {
    let attachment = Attachment {
        party: Party::TRANSIENT,
        state: State::default(),
        subscriptions: Arc::from([]),
        receive_maximum: 1,
        end: Offset(0),
        entries_maximum: 1,
    };
    dispatch.attach(Connection(0), attachment).unwrap();
}

fn publish(qos: u8, group: Option<Queue>, stored: Stored) -> Publish {
    let terms = Terms { qos: 2, ..Terms::default() };
    let target = |queue| Target { queue, connection: Connection::GROUP, terms, own: None };
    Publish {
        connection: Connection(0),
        publisher: Party(1),
        packet_identifier: 1,
        qos,
        retain: false,
        topic: Span::default(),
        properties: Span::default(),
        payload: Span::default(),
        expiry_interval_s: None,
        fate: Fate::Accepted,
        targets: group.map(|queue| Arc::from([target(queue)])),
        stored: Some(stored),
    }
}

fn reads() -> Arc<[Subscription]> {
    Arc::from([Subscription {
        filter: b"#".to_vec(),
        qos: 2,
        no_local: false,
        retain_as_published: true,
        identifier: None,
        from: Offset(0),
        until: Offset(u64::MAX),
    }])
}

fn location(offset: u64) -> Location {
    Location { segment: 0, position: offset as u32 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn every_durable_message_reaches_one_member_and_qos_2_once(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            world.run(step);
        }
        world.drain();
        for (offset, ..) in world.messages() {
            let arrived = world.sent.contains(&offset) || world.excused.contains(&offset);
            prop_assert!(arrived, "message {} was lost", offset);
        }
        let group = world.group.unwrap();
        prop_assert_eq!(world.dispatch.mark(group).unwrap(), Offset(world.published));
        prop_assert_eq!(world.dispatch.in_flight(group).unwrap(), 0);
        prop_assert_eq!(world.dispatch.backlog(group).unwrap(), (Offset(world.published), 0));
        prop_assert!(world.members.iter().all(|member| member.open.is_empty()));
    }
}

/// What two groups with one member give it, of ten messages for each.
fn allotted(receive_maximum: u16, has_own: bool, expires_at: Option<u64>) -> (Vec<usize>, Dispatch) {
    let mut dispatch = Dispatch::default();
    attach_publisher(&mut dispatch);
    let subscriptions = if has_own { reads() } else { Arc::from([]) };
    let (party, state, end) = (Party(7), State::default(), Offset(0));
    let attachment = Attachment { party, state, subscriptions, receive_maximum, end, entries_maximum: 0 };
    dispatch.attach(Connection(1), attachment).unwrap();
    let mut counts = Vec::new();
    for (number, party) in (0..).zip([GROUP, Party(51)]) {
        let attachment = GroupAttachment { party, state: State::default(), subscriptions: reads(), end: Offset(0) };
        let group = dispatch.open_group(attachment);
        dispatch.join(group, Connection(1), Terms { qos: 1, ..Terms::default() }).unwrap();
        let publishes = (number * 10..number * 10 + 10).map(|offset| {
            let durable_at = LogPosition(offset + 1);
            let expires_at = expires_at.map(Timestamp);
            let (offset, location) = (Offset(offset), location(offset));
            publish(1, Some(group), Stored { offset, location, size_bytes: 100, expires_at, durable_at })
        });
        let publishes = publishes.collect();
        dispatch.admit(&Arrivals { publishes, ..Arrivals::default() }, LogPosition(30));
    }
    for end in [10, 20] {
        let mut outgoing = Outgoing::default();
        dispatch.settle(Offset(end), LogPosition(end), &mut outgoing);
        dispatch.allot(&mut outgoing, Timestamp(5));
        let publishes = outgoing.packets.iter().filter(|packet| matches!(packet, Packet::Publish(_)));
        counts.push(publishes.count());
    }
    (counts, dispatch)
}

#[test]
fn a_group_takes_an_even_part_of_a_members_window() {
    assert_eq!(allotted(6, false, None).0, [3, 3]);
    assert_eq!(allotted(6, true, None).0, [2, 2]);
    assert_eq!(allotted(1, true, None).0, [1, 0], "a window of one cannot be divided");
}

#[test]
fn an_expired_message_of_a_group_is_noticed_and_given_to_nobody() {
    let (counts, mut dispatch) = allotted(6, false, Some(5));
    assert_eq!(counts, [0, 0]);
    let notices = dispatch.take_notices();
    let told: Vec<_> = notices.iter().map(|notice| (notice.party, notice.kind, notice.first.0, notice.end.0)).collect();
    assert_eq!(told, [(GROUP, NoticeKind::Expired, 0, 10), (Party(51), NoticeKind::Expired, 10, 20)]);
}
