//! A group against a log in memory: whatever is published, acknowledged, cut and crashed in whatever order, while
//! members come and go, every message reaches somebody; at QoS 2 once; what was acknowledged or handed over goes to
//! nobody else; what came back goes out first; and no window is exceeded. By key, besides: what is in flight of a key
//! is at one member, and each key goes out in order.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::as_conversions)]

mod delivery_support;
mod group_model;

use delivery_support::{found, publish, reads, stored};
use group_model::{attach_publisher, by_key, key_of, least_loaded, stay, steps, turns, Act, Member, MEMBERS};
use holdfast_kernel::delivery::members::GroupAttachment;
use holdfast_kernel::delivery::{Attachment, Deliveries};
use holdfast_kernel::flow::state::State;
use holdfast_kernel::flow::{Acknowledgement, Arrivals, Departure, Found, NoticeKind, Outgoing, Publish, Step, Terms};
use holdfast_kernel::ids::{Connection, KeySlot, LogPosition, Offset, Party, Queue, Timestamp};
use holdfast_kernel::mqtt::exchange;
use holdfast_kernel::selection::Selection;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const GROUP: Party = Party(50);
/// What is appended, in log order; its index + 1 is its position.
enum Record {
    Message { qos: u8 },
    State(Party, Vec<u8>),
}

struct World {
    selection: fn(&[Connection]) -> Selection<Connection>,
    deliveries: Deliveries,
    log: Vec<Record>,
    durable: usize,
    published: u64,
    group: Option<Queue>,
    members: [Member; 3],
    /// Sent to somebody, without what comes back for good.
    sent: BTreeSet<u64>,
    ever: BTreeSet<u64>,
    /// Of those, since the group was attached: a queue that rests does not tell what was sent from what was not.
    lately: BTreeSet<u64>,
    handed: BTreeSet<u64>,
    /// By message: the log's size when its acknowledgement was in it; `usize::MAX` before.
    acknowledged: BTreeMap<u64, usize>,
    /// Handed to a session that has ended, or given up.
    excused: BTreeSet<u64>,
    pack_maximum: usize,
    /// What a session that ends with its connection has not received goes back to the group at QoS 2 too.
    keeps: bool,
}

impl World {
    fn new(selection: fn(&[Connection]) -> Selection<Connection>, pack_maximum: usize, keeps: bool) -> World {
        let mut deliveries = Deliveries::default();
        deliveries.keep_unreceived(keeps);
        attach_publisher(&mut deliveries);
        let mut world = World {
            selection,
            deliveries,
            log: Vec::new(),
            durable: 0,
            published: 0,
            group: None,
            members: Default::default(),
            sent: BTreeSet::new(),
            ever: BTreeSet::new(),
            lately: BTreeSet::new(),
            handed: BTreeSet::new(),
            acknowledged: BTreeMap::new(),
            excused: BTreeSet::new(),
            pack_maximum,
            keeps,
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
            let target = self.group.map(|group| (group, Connection::GROUP));
            let message = publish(qos, target, stored(self.published, self.log.len() as u64));
            arrivals.publishes.push(Publish { key_slot: KeySlot(key_of(self.published)), ..message });
            self.published += 1;
        }
        self.deliveries.admit(&arrivals, LogPosition(self.log.len() as u64), exchange::next);
    }

    /// A session is attached when the state that its last connection left is durable (CONNACK waits for that).
    fn connect(&mut self, index: usize, receive_maximum: u8) {
        self.disconnect(index);
        self.durable = self.log.len();
        let party = MEMBERS[index].0;
        let state = self.states().remove(&party).unwrap_or_default();
        let flights = state.flights.iter().map(|(identifier, flight)| (*identifier, flight.offset.0));
        self.members[index].resume(flights.collect());
        let attachment = Attachment {
            party,
            state,
            subscriptions: Arc::from([]),
            receive_maximum: u16::from(receive_maximum),
            end: Offset(self.published),
            entries_maximum: usize::from(!party.is_durable()),
            pack_maximum: if party.is_durable() { self.pack_maximum } else { 0 },
        };
        self.deliveries.attach(connection(index), attachment).unwrap();
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
            let attachment = GroupAttachment {
                party: GROUP,
                owner: GROUP,
                state,
                subscriptions: reads(),
                end,
                sent_before: Offset(0),
                whole: false,
            };
            self.group = Some(self.deliveries.open_group(attachment));
        }
        let terms = Terms { qos: MEMBERS[index].1, ..Terms::default() };
        self.deliveries
            .join(self.group.unwrap(), self.deliveries.receiver_on(connection(index)).unwrap(), terms)
            .unwrap();
        self.select();
    }

    /// Who takes from the group decides who owns which keys.
    fn select(&mut self) {
        let members = (0..3).filter(|index| self.members[*index].attached && self.members[*index].subscribed);
        let members: Vec<Connection> = members.map(connection).collect();
        if let Some(group) = self.group {
            self.deliveries
                .select(group, (self.selection)(&members).among(|owner| self.deliveries.receiver_on(owner)))
                .unwrap();
        }
    }

    fn disconnect(&mut self, index: usize) {
        if !std::mem::take(&mut self.members[index].attached) {
            return;
        }
        let state = self
            .deliveries
            .detach(self.deliveries.receiver_on(connection(index)).unwrap(), std::iter::empty())
            .unwrap();
        let party = MEMBERS[index].0;
        if party.is_durable() {
            self.write(party, &state);
        } else {
            self.members[index].subscribed = false;
            self.comes_back(index);
        }
        self.note_ended();
        self.members[index].cut(party.is_durable());
        self.select();
        self.rest();
    }

    /// A group nobody takes from, and nobody has anything of, rests.
    fn rest(&mut self) {
        let Some(group) = self.group else { return };
        let taken = self.members.iter().any(|member| member.attached && member.subscribed);
        if !taken && self.deliveries.in_flight(group).unwrap() == 0 {
            let state = self.deliveries.close_group(group).unwrap();
            self.write(GROUP, &state);
            let size = self.log.len();
            self.acknowledged.values_mut().for_each(|at| *at = size.min(*at));
            self.group = None;
            self.lately.clear();
        }
    }

    fn unsubscribe(&mut self, index: usize) {
        self.members[index].subscribed = false;
        if let Some(group) = self.group {
            if let Some(receiver) = self.deliveries.receiver_on(connection(index)) {
                self.deliveries.leave(group, receiver);
            }
        }
        self.select();
        self.rest();
    }

    /// What this member has not received is still to reach somebody.
    fn comes_back(&mut self, index: usize) {
        if self.keeps {
            self.sent.retain(|offset| !self.members[index].unreceived.contains(offset));
        }
    }

    fn note_ended(&mut self) {
        for notice in self.deliveries.take_notices() {
            assert!(!self.keeps, "what has gone back is no loss");
            assert_eq!((notice.party, notice.kind), (GROUP, NoticeKind::SessionEnded));
            self.excused.extend(notice.first.0..notice.end.0);
        }
    }

    fn crash(&mut self, torn: u8) {
        let transient = MEMBERS.iter().position(|(party, _)| !party.is_durable()).unwrap();
        if self.members[transient].attached {
            let state = self
                .deliveries
                .state(self.deliveries.receiver_on(connection(transient)).unwrap(), std::iter::empty())
                .unwrap();
            if !self.keeps {
                self.excused.extend(state.handed_over().map(|(offset, _)| offset.0));
            }
            self.comes_back(transient);
            self.members[transient].subscribed = false;
        }
        self.log.truncate(self.durable + usize::from(torn));
        self.durable = self.log.len();
        self.published = self.messages().count() as u64;
        self.acknowledged.retain(|_, at| *at <= self.log.len());
        self.deliveries = Deliveries::default();
        self.deliveries.keep_unreceived(self.keeps);
        attach_publisher(&mut self.deliveries);
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
        self.deliveries.settle(durable, LogPosition(self.durable as u64), &mut outgoing);
        let mut scans = self.deliveries.hungry(durable);
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
        self.deliveries.feed(&mut scans);
        let before = outgoing.departures.len();
        self.deliveries.allot(&mut outgoing, Timestamp(1));
        self.check_order(&outgoing.departures[before..]);
        for (party, value) in self.deliveries.take_progress() {
            self.log.push(Record::State(party, value));
        }
        let size = self.log.len();
        self.acknowledged.values_mut().for_each(|at| *at = size.min(*at));
        if self.deliveries.needs_progress() {
            self.deliveries.progressed(LogPosition(size as u64));
        }
        for packet in outgoing.departures {
            self.take(packet);
        }
        for member in &self.members {
            assert!(member.open.len() <= member.receive_maximum, "more outstanding than Receive Maximum");
        }
        self.rest();
    }

    /// What has been sent before comes before what has not, each in offset order.
    fn check_order(&self, packets: &[Departure]) {
        let deliveries = packets.iter().filter_map(|packet| match packet {
            Departure::Sending(sending) if !sending.dup => Some(u64::from(sending.location.position)),
            _ => None,
        });
        let mut order: Vec<(u16, bool, u64)> =
            deliveries.map(|offset| (0, !self.lately.contains(&offset), offset)).collect();
        if self.is_by_key() {
            order.iter_mut().for_each(|(key, _, offset)| *key = key_of(*offset));
            order.sort_by_key(|(key, ..)| *key);
        }
        assert!(order.is_sorted(), "{order:?}");
    }

    /// True if the log says that some session has it, which may not have been sent it yet.
    fn is_handed_over(&self, offset: u64) -> bool {
        self.states().values().any(|state| state.handed_over().any(|(handed, _)| handed.0 == offset))
    }

    fn is_by_key(&self) -> bool {
        matches!((self.selection)(&[]), Selection::ByKey(..))
    }

    /// Whatever there is of a key before this message is done with, or at the same member; nothing is at another.
    ///
    /// What leaves at QoS 1 does not wait for a packet identifier of QoS 2 to become durable: order is kept for
    /// each QoS [MQTT-4.6.0-6].
    fn check_key(&self, index: usize, offset: u64, qos: u8) {
        let has = &self.members[index].has;
        let before = self.messages().filter(|(before, _, published)| *before < offset && qos.max(*published) == qos);
        for (before, ..) in before.filter(|(before, ..)| key_of(*before) == key_of(offset)) {
            let is_settled = self.acknowledged.contains_key(&before) || self.handed.contains(&before);
            let is_here = has.values().any(|(other, _)| *other == before);
            let is_settled = is_settled || is_here || self.excused.contains(&before);
            assert!(is_settled || self.is_handed_over(before), "{offset} goes before {before}");
        }
        for (other, member) in
            self.members.iter().enumerate().filter(|(other, member)| *other != index && member.attached)
        {
            let elsewhere = member.unreceived.iter().find(|other| key_of(**other) == key_of(offset));
            assert_eq!(elsewhere, None, "of the key of {offset}, sent to {index}, member {other} has some in flight");
        }
    }

    fn take(&mut self, packet: Departure) {
        match packet {
            Departure::Sending(sending) => {
                let index = sending.connection.0 as usize - 1;
                let (identifier, offset) = (sending.packet_identifier, u64::from(sending.location.position));
                let member = &mut self.members[index];
                let step = if sending.qos == 2 { Step::Received } else { Step::Acknowledged };
                member.open.insert(identifier);
                member.unanswered.push((identifier, step));
                if sending.dup {
                    let is_asked_for = member.again.remove(&identifier);
                    assert!(sending.qos == 2 || is_asked_for, "only what was handed over or asked for is sent again");
                    if let Some(known) = member.has.get(&identifier) {
                        let expected = (offset, sending.qos);
                        assert_eq!(*known, expected, "a packet identifier in use names another message");
                        return;
                    }
                } else if self.pack_maximum > 0 && MEMBERS[index].0.is_durable() {
                    assert!(!member.is_closed && member.taken < self.pack_maximum, "{offset} is beyond an open pack");
                    member.taken += 1;
                    member.pending.insert(identifier, offset);
                }
                member.has.insert(identifier, (offset, sending.qos));
                // What was handed over on an earlier connection is that session's: its key has gone on without it.
                if !sending.dup {
                    member.unreceived.insert(offset);
                }
                assert!(!self.handed.contains(&offset), "{offset} was handed over and sent to another");
                assert!(!self.acknowledged.contains_key(&offset), "{offset} was acknowledged and sent again");
                if self.is_by_key() && !sending.dup {
                    self.check_key(index, offset, sending.qos);
                }
                let came_back = !sending.dup && self.lately.contains(&offset);
                assert!(sending.again || !came_back, "{offset}: somebody else may have it");
                assert!(!sending.again || self.ever.contains(&offset), "{offset}: nobody else may have it");
                self.sent.insert(offset);
                self.ever.insert(offset);
                self.lately.insert(offset);
                if sending.qos == 2 && !(self.keeps && is_transient(index)) {
                    self.handed.insert(offset);
                }
            }
            Departure::Acknowledgement(sent) if sent.connection != Connection(0) => {
                assert_eq!(sent.step, Step::Released);
                let member = &mut self.members[sent.connection.0 as usize - 1];
                member.unanswered.push((sent.packet_identifier, Step::Completed));
            }
            Departure::Acknowledgement(_) | Departure::Receipt(_) | Departure::Reply(_) | Departure::Encoded(..) => {}
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
            let (packet_identifier, step) = member.unanswered.remove(at);
            if let Some((offset, _)) = member.has.get(&packet_identifier) {
                member.unreceived.remove(offset);
                if self.keeps && is_transient(index) && step == Step::Received {
                    self.acknowledged.insert(*offset, usize::MAX);
                }
            }
            if matches!(step, Step::Acknowledged | Step::Completed) {
                member.open.remove(&packet_identifier);
                if let Some((offset, 1)) = member.has.remove(&packet_identifier) {
                    self.acknowledged.insert(offset, usize::MAX);
                }
                member.finish(packet_identifier);
            }
            member.again.remove(&packet_identifier);
            let connection = connection(index);
            arrivals.acknowledgements.push(Acknowledgement { connection, step, packet_identifier, refusal: None });
        }
        self.deliveries.admit(&arrivals, LogPosition(self.log.len() as u64), exchange::next);
    }

    /// True if something is pending of the member's pack, and none of it waits for the disk.
    fn is_overdue(&mut self, index: usize) -> bool {
        let connection = connection(index);
        let mut overdue = self.deliveries.packs_overdue(Timestamp(1), 0).into_iter();
        overdue.any(|found| {
            assert_eq!(found.group, GROUP);
            found.connection == connection && found.pending == self.members[index].pending.len()
        })
    }

    fn retry(&mut self, index: usize) {
        if self.is_overdue(index) {
            self.deliveries
                .retry_pack(self.deliveries.receiver_on(connection(index)).unwrap(), GROUP, true, Timestamp(1))
                .unwrap();
            let member = &mut self.members[index];
            let is_received = |identifier: &u16| !member.has.contains_key(identifier);
            member.again = member.pending.keys().filter(|identifier| !is_received(identifier)).copied().collect();
            member.is_closed = true;
        }
    }

    fn give_up(&mut self, index: usize, keeps_identifiers: bool) {
        if !self.is_overdue(index) {
            return;
        }
        let given_up = self
            .deliveries
            .give_up_pack(self.deliveries.receiver_on(connection(index)).unwrap(), GROUP, keeps_identifiers)
            .unwrap();
        let offsets: BTreeSet<u64> = given_up.iter().flat_map(|(first, end)| first..end).collect();
        let member = &mut self.members[index];
        assert!(offsets.iter().all(|offset| member.pending.values().any(|pending| pending == offset)));
        for (identifier, offset) in std::mem::take(&mut member.pending) {
            if offsets.contains(&offset) {
                let is_handed = member.has.get(&identifier).is_none_or(|(_, qos)| *qos == 2);
                if !is_handed {
                    self.acknowledged.insert(offset, usize::MAX);
                }
                member.unreceived.remove(&offset);
                if !keeps_identifiers {
                    // The receiver is taken to have forgotten it.
                    member.has.remove(&identifier);
                    member.open.remove(&identifier);
                    self.handed.remove(&offset);
                }
            }
        }
        member.commit();
        self.excused.extend(offsets);
        assert!(self
            .deliveries
            .pack(self.deliveries.receiver_on(connection(index)).unwrap(), GROUP)
            .is_none_or(|pack| pack.content().is_none()));
    }

    fn run(&mut self, step: &Act) {
        match *step {
            Act::Publish { qos, count } => self.publish(qos, count),
            Act::Commit => self.durable = self.log.len(),
            Act::Turn => self.turn(),
            Act::Acknowledge { member, newest, count } => self.acknowledge(member, newest, count),
            Act::Connect { member, receive_maximum } => self.connect(member, receive_maximum),
            Act::Disconnect { member } => self.disconnect(member),
            Act::Subscribe { member } => {
                self.members[member].subscribed = true;
                self.join(member);
            }
            Act::Unsubscribe { member } => self.unsubscribe(member),
            Act::Retry { member } => self.retry(member),
            Act::GiveUp { member, keeps_identifiers } => self.give_up(member, keeps_identifiers),
            Act::Crash { torn } => self.crash(torn),
        }
    }

    /// All who keep a session come back and answer everything; one of them is a member.
    fn drain(&mut self) {
        self.disconnect(2);
        self.members[0].subscribed = true;
        for index in 0..2 {
            self.connect(index, 8);
        }
        for _ in 0..self.published * 4 + 40 {
            self.durable = self.log.len();
            self.turn();
            for index in 0..2 {
                self.acknowledge(index, false, 100);
            }
        }
    }

    fn found(&self, offset: u64) -> Found {
        let (_, _, qos) = self.messages().nth(offset as usize).unwrap();
        found(offset, qos, key_of(offset), Terms { qos: 2, ..Terms::default() })
    }
}

fn is_transient(index: usize) -> bool {
    !MEMBERS[index].0.is_durable()
}

fn connection(index: usize) -> Connection {
    Connection(index as u32 + 1)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn every_durable_message_reaches_one_member_and_qos_2_once(
        selection in prop::sample::select(vec![turns, least_loaded, stay, by_key, by_key, by_key]),
        pack_maximum in prop_oneof![Just(0), 1..20_usize],
        keeps in any::<bool>(),
        steps in steps(),
    ) {
        let mut world = World::new(selection, pack_maximum, keeps);
        for step in &steps {
            world.run(step);
        }
        world.drain();
        for (offset, ..) in world.messages() {
            let arrived = world.sent.contains(&offset) || world.excused.contains(&offset);
            prop_assert!(arrived, "message {} was lost", offset);
        }
        let group = world.group.unwrap();
        prop_assert_eq!(world.deliveries.mark(group).unwrap(), Offset(world.published));
        prop_assert_eq!(world.deliveries.in_flight(group).unwrap(), 0);
        prop_assert_eq!(world.deliveries.backlog(group).unwrap(), (Offset(world.published), 0));
        prop_assert!(world.members.iter().all(|member| member.open.is_empty()));
    }
}
