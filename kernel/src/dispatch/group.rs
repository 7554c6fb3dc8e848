//! A queue that several sessions take from: the group has the backlog, a member only what is in flight to it.
//!
//! Owns: who is a member and on which terms, whose turn it is, and what comes back from a member that has gone.
//! Never: decides who may be a member, or how long a group without any is kept.
//!
//! Invariants:
//! 1. A message of a group is in flight to at most one member.
//! 2. What has come back goes out before what is new, in offset order.
//! 3. At QoS 2 sending is the hand-over: from then on the message is that member's session's and nobody else's
//!    [MQTT-4.8.2-4] [MQTT-4.8.2-5]. Both sides of it are durable before it leaves.
//! 4. Of a member's window a group takes at most an even part, so that one that stalls does not stall the others.

use super::cursor::Holder;
use super::keys::{Hold, Keys};
use super::members::{Group, GroupAttachment, Membership};
use super::pack::Pack;
use super::queue::{entry_of, Queue, Turn};
use super::{emit, no_session, put, slot, Dispatch, Session};
use crate::error::{Error, Result};
use crate::flow::state::{Changes, Flight, Phase, Source, State};
use crate::flow::{Arrivals, Delivery, Departure, Found, Notice, NoticeKind, Outgoing, Publish, Scan, Terms};
use crate::ids::{self, Connection, Offset, Party, Timestamp};
use crate::limits;
use crate::selection::Selection;
use std::sync::Arc;

impl Dispatch {
    /// The group's queue is there from now on; members may join it.
    pub fn open_group(&mut self, attachment: GroupAttachment) -> ids::Queue {
        let GroupAttachment { party, owner, state, subscriptions, end } = attachment;
        let handle = self.take_handle();
        let mut queue = Queue::resume(party, Connection::GROUP, &state, subscriptions, end, 0);
        queue.owner = owner;
        queue.group = Some(Group::default());
        put(&mut self.queues, slot(handle.0), queue);
        self.groups.insert(party, handle);
        self.make_ready(handle);
        handle
    }

    /// The group's queue is gone; returns its delivery state. Nothing that members have in flight from it is
    /// acknowledged by that.
    pub fn close_group(&mut self, handle: ids::Queue) -> Result<State> {
        let state = self.group_state(handle)?;
        if let Some(queue) = self.queues.get_mut(slot(handle.0)).and_then(Option::take) {
            self.groups.remove(&queue.party);
        }
        for session in self.sessions.iter_mut().flatten() {
            session.memberships.retain(|membership| membership.group != handle);
            session.divide();
        }
        self.freed.push_back((handle, self.arrived_total));
        self.ready.retain(|ready| *ready != handle);
        Ok(state)
    }

    /// The group's whole delivery state while it stays attached.
    pub fn group_state(&mut self, handle: ids::Queue) -> Result<State> {
        let durable = self.durable;
        let queue = self.queue_mut(handle)?;
        queue.catch_up_mark(durable);
        let acknowledged = queue.cursor.acknowledged().clone();
        Ok(State { mark: queue.cursor.mark(), acknowledged, ..State::default() })
    }

    /// How the group's next member is chosen from now on. Keys that are others than before are given to nobody until
    /// what is in flight has been settled.
    pub fn select(&mut self, handle: ids::Queue, selection: Selection) -> Result<()> {
        let end = self.arrived.back().map_or(self.durable, |arrived| Offset(arrived.found.offset.0.saturating_add(1)));
        let queue = self.queue_mut(handle)?;
        let Some(group) = queue.group.as_mut() else { return Err(no_group(handle)) };
        group.returned.clear();
        match (&selection, &mut group.keys) {
            (Selection::ByKey(key, owners), Some(keys)) if keys.key == *key => keys.divide(Arc::clone(owners)),
            (Selection::ByKey(key, owners), keys) => {
                *keys = Some(Keys::new(key.clone(), Arc::clone(owners), queue.cursor.in_flight_count()));
                group.selection = selection;
                // What is at hand, or on its way, has the slot of another key.
                queue.read_from_log(end);
            }
            (_, keys) => (*keys, group.selection) = (None, selection),
        }
        self.make_ready(handle);
        Ok(())
    }

    /// The slot of a message's key, for a group that asks for it: kept until the message is durable.
    pub(super) fn expect_key(&mut self, handle: ids::Queue, arrivals: &Arrivals, publish: &Publish, offset: Offset) {
        let queue = self.queues.get_mut(slot(handle.0)).and_then(Option::as_mut);
        if let Some(keys) = queue.and_then(Queue::keys) {
            let (topic, properties) = (arrivals.span(publish.topic), arrivals.span(publish.properties));
            keys.expect(offset, keys.key.slot(topic, properties, publish.key_slot));
        }
    }

    /// The members in their order: how many messages each has been given of the group, and how many are in flight.
    pub fn members(&mut self, handle: ids::Queue) -> Result<Vec<(Connection, u64, usize)>> {
        let group = self.queue_mut(handle)?.group.as_ref().ok_or_else(|| no_group(handle))?;
        let members = group.round.members().to_vec().into_iter();
        let part = |member| self.session(member)?.memberships.iter().find(|membership| membership.group == handle);
        Ok(members.filter_map(|member| part(member).map(|part| (member, part.given, part.in_flight))).collect())
    }

    /// Where keys are: messages that wait because of theirs, and of the slots with messages in flight, those held
    /// longest first, at most so many.
    pub fn keys(&mut self, handle: ids::Queue, maximum: usize) -> Result<(usize, Vec<Hold>)> {
        let keys = self.queue_mut(handle)?.keys();
        Ok(keys.map_or((0, Vec::new()), |keys| (keys.waiting(), keys.holds(maximum))))
    }

    /// The session on `connection` takes its turn from now on, on these terms; they replace those it had.
    pub fn join(&mut self, handle: ids::Queue, connection: Connection, terms: Terms) -> Result<()> {
        let queue = self.queues.get_mut(slot(handle.0)).and_then(Option::as_mut);
        let Some((group, party)) = queue.and_then(|queue| Some((queue.group.as_mut()?, queue.party))) else {
            return Err(no_group(handle));
        };
        let session = self.sessions.get_mut(slot(connection.0)).and_then(Option::as_mut);
        let session = session.ok_or_else(|| no_session(connection))?;
        group.round.join(connection);
        match session.memberships.iter_mut().find(|membership| membership.group == handle) {
            Some(membership) => (membership.terms, membership.takes) = (terms, true),
            None => {
                let flights = session.window.flights().filter(|(_, flight)| flight.source == Source::Group(party));
                let offsets: Vec<Offset> = flights.map(|(_, flight)| flight.offset).collect();
                let in_flight = offsets.len();
                let pack = session.pack.as_ref().map(|own| Pack::resume(own.maximum(), offsets.into_iter()));
                let membership = Membership { group: handle, party, terms, in_flight, pack, given: 0, takes: true };
                session.memberships.push(membership);
            }
        }
        session.divide();
        self.make_ready(handle);
        Ok(())
    }

    /// The session on `connection` gets nothing more from the group; what it has in flight it completes.
    pub fn leave(&mut self, handle: ids::Queue, connection: Connection) {
        let queue = self.queues.get_mut(slot(handle.0)).and_then(Option::as_mut);
        if let Some(group) = queue.and_then(|queue| queue.group.as_mut()) {
            group.round.leave(&connection);
        }
        let Some(session) = self.session_mut(connection) else { return };
        for membership in session.memberships.iter_mut().filter(|membership| membership.group == handle) {
            membership.takes = false;
        }
        session.memberships.retain(|membership| membership.takes || membership.in_flight > 0);
        session.divide();
    }

    /// Where the group reads on, and how many messages before that wait to be given out again.
    pub fn backlog(&mut self, handle: ids::Queue) -> Result<(Offset, usize)> {
        let queue = self.queue_mut(handle)?;
        Ok((queue.cursor.read(), queue.cursor.redelivery_count()))
    }

    /// A session has gone: what it had in flight at QoS 1 goes back to its groups at once.
    pub(super) fn give_all_back(&mut self, connection: Connection, session: &Session) {
        let holder = Holder(connection.0);
        for membership in &session.memberships {
            let queue = self.queues.get_mut(slot(membership.group.0)).and_then(Option::as_mut);
            let Some((group, cursor)) = queue.and_then(|queue| Some((queue.group.as_mut()?, &mut queue.cursor))) else {
                continue;
            };
            group.round.leave(&connection);
            if cursor.release(holder) > 0 || group.keys.is_some() {
                // Some of it may lie before what is at hand, so all of it is looked up again, in order.
                group.returned.clear();
            }
            if let Some(keys) = &mut group.keys {
                let source = Source::Group(membership.party);
                let pending = session.window.pending().map(|(_, flight)| flight);
                pending.filter(|flight| flight.source == source).for_each(|flight| keys.settled(&flight));
                keys.forget();
            }
            self.make_ready(membership.group);
        }
        if session.party.is_durable() {
            return;
        }
        for (_, flight) in session.window.flights().filter(|(_, flight)| flight.phase == Phase::Sent) {
            if let (Source::Group(party), 2) = (flight.source, flight.qos) {
                let end = Offset(flight.offset.0.saturating_add(1));
                let kind = NoticeKind::SessionEnded;
                self.notices.add(Notice { party, kind, first: flight.offset, end, count: 1 });
            }
        }
    }

    /// A member need not be sent a group's message again.
    pub(super) fn finish_shared(&mut self, flight: &Flight, party: Party) {
        let Some(handle) = self.groups.get(&party).copied() else { return };
        let Ok(queue) = self.queue_mut(handle) else { return };
        if let Some(keys) = queue.keys() {
            keys.settled(flight);
        }
        if flight.qos == 1 && queue.cursor.acknowledge(flight.offset).is_some() {
            self.change_group(handle);
        }
    }

    /// The session has room again: the groups that it takes from may have something for it.
    pub(super) fn make_groups_ready(&mut self, connection: Connection) {
        for index in 0.. {
            let Some(group) = self.session(connection).and_then(|session| session.memberships.get(index)) else {
                break;
            };
            let handle = group.group;
            self.make_ready(handle);
        }
    }

    /// Takes what the log found of what came back; the rest is gone.
    pub(super) fn feed_returned(&mut self, scan: &mut Scan) {
        let Ok(queue) = self.queue_mut(scan.queue) else { return };
        let (party, mut gone) = (queue.party, Vec::new());
        let Some(group) = queue.group.as_mut() else { return };
        for (offset, found) in scan.owed.iter().copied().zip(scan.found_owed.drain(..)) {
            match found {
                Some(found) => group.returned.push_back(found),
                None => gone.push(offset),
            }
        }
        for first in gone {
            self.give_up_shared(scan.queue, party, first, NoticeKind::Retention);
        }
    }

    /// Encoded progress of the groups that have any.
    pub(super) fn take_group_progress(&mut self, progress: &mut Vec<(Party, Vec<u8>)>) {
        for handle in std::mem::take(&mut self.changed_groups) {
            let Ok(queue) = self.queue_mut(handle) else { continue };
            if let Some(group) = &mut queue.group {
                group.is_changed = false;
            }
            let Some(made) = queue.cursor.take_progress() else { continue };
            let acknowledged = made.ranges.iter().map(|(first, end)| (Offset(first), Offset(end))).collect();
            let changes = Changes { mark: Some(made.mark), acknowledged, ..Changes::default() };
            let mut value = Vec::new();
            changes.encode(&mut value);
            progress.push((queue.party, value));
        }
    }

    /// True if some member would take a message.
    pub(super) fn has_taker(&self, handle: ids::Queue, group: &Group) -> bool {
        group.round.members().iter().any(|member| self.takes_of(handle, *member))
    }

    /// True if a member would take what waits for room at it.
    pub(super) fn is_waited_for(&self, handle: ids::Queue, queue: &Queue) -> bool {
        let keys = queue.group.as_ref().and_then(|group| group.keys.as_ref());
        keys.is_some_and(|keys| keys.waited_for().any(|member| self.takes_of(handle, member)))
    }

    fn takes_of(&self, handle: ids::Queue, member: Connection) -> bool {
        self.session(member).is_some_and(|session| session.takes_of(handle).is_some())
    }

    /// Gives the group's messages to members that have room, as its selection says.
    pub(super) fn allot_group(&mut self, handle: ids::Queue, outgoing: &mut Outgoing, now: Timestamp) -> Turn {
        self.begin_turn(handle);
        loop {
            let queue = self.queues.get_mut(slot(handle.0)).and_then(Option::as_mut);
            let Some(queue) = queue else { return Turn::Rests };
            let party = queue.party;
            let (found, connection) = match choose(queue, &Members { sessions: &self.sessions, group: handle }, now) {
                Chosen::Member(found, connection) => (found, connection),
                Chosen::Expired(offset) => {
                    self.give_up_shared(handle, party, offset, NoticeKind::Expired);
                    continue;
                }
                Chosen::Waits => continue,
                Chosen::Nobody => break,
                Chosen::Nothing => {
                    self.close_packs(handle);
                    return Turn::Rests;
                }
            };
            let session = self.sessions.get_mut(slot(connection.0)).and_then(Option::as_mut);
            let Some(delivery) = session.and_then(|session| session.take_shared(handle, connection, &found, now))
            else {
                break;
            };
            if let Some(keys) = queue.keys().filter(|_| delivery.qos > 0) {
                keys.sent(&found, connection, now);
            }
            self.send_shared(handle, delivery, found.offset, party, outgoing);
        }
        // Whoever is only sated goes on in the next turn.
        let queue = self.queues.get(slot(handle.0)).and_then(Option::as_ref);
        if queue.is_some_and(|queue| self.is_waited_for(handle, queue) || self.can_send(handle, queue)) {
            return Turn::GoesOn;
        }
        Turn::Rests
    }

    /// Where nothing more is at hand, what members have been given of the group is all that they wait for.
    fn close_packs(&mut self, handle: ids::Queue) {
        let queue = self.queues.get(slot(handle.0)).and_then(Option::as_ref);
        let Some(group) = queue.filter(|queue| !queue.reads_on()).and_then(|queue| queue.group.as_ref()) else {
            return;
        };
        for member in group.round.members() {
            let session = self.sessions.get_mut(slot(member.0)).and_then(Option::as_mut);
            let membership = session.and_then(|session| session.membership_mut(handle));
            if let Some(pack) = membership.and_then(|membership| membership.pack.as_mut()) {
                pack.close();
            }
        }
    }

    /// The bytes that members may be sent count from here.
    fn begin_turn(&mut self, handle: ids::Queue) {
        let queue = self.queues.get(slot(handle.0)).and_then(Option::as_ref);
        let Some(group) = queue.and_then(|queue| queue.group.as_ref()) else { return };
        for member in group.round.members() {
            if let Some(session) = self.sessions.get_mut(slot(member.0)).and_then(Option::as_mut) {
                session.allotted_bytes = 0;
            }
        }
    }

    /// One message leaves for a member. At QoS 0 and 2 the group is done with it; at QoS 2 it leaves when that, and
    /// that the member has it, is durable.
    fn send_shared(
        &mut self,
        handle: ids::Queue,
        delivery: Delivery,
        offset: Offset,
        party: Party,
        outgoing: &mut Outgoing,
    ) {
        self.counters.deliveries = self.counters.deliveries.wrapping_add(1);
        if delivery.qos == 1 {
            return emit(outgoing, Departure::Delivery(delivery));
        }
        if let Ok(queue) = self.queue_mut(handle) {
            queue.cursor.acknowledge(offset);
        }
        self.change_group(handle);
        if delivery.qos == 0 {
            return emit(outgoing, Departure::Delivery(delivery));
        }
        let sent = (delivery.packet_identifier, offset, Source::Group(party));
        self.change(delivery.connection, |changes| changes.sent.push(sent));
        let serial = self.serial_of(delivery.connection);
        self.unpositioned.push((serial, Departure::Delivery(delivery)));
    }

    /// The group's next message, or one that waits, will not be delivered.
    fn give_up_shared(&mut self, handle: ids::Queue, party: Party, first: Offset, kind: NoticeKind) {
        let Ok(queue) = self.queue_mut(handle) else { return };
        if queue.cursor.acknowledge(first).is_some() {
            if let Some(group) = &mut queue.group {
                group.returned.retain(|found| found.offset != first);
            }
        } else if let Some(found) = queue.entries.pop_front() {
            queue.cursor.pass(entry_of(&found).end());
        }
        self.change_group(handle);
        self.notices.add(Notice { party, kind, first, end: Offset(first.0.saturating_add(1)), count: 1 });
    }

    fn change_group(&mut self, handle: ids::Queue) {
        let Ok(queue) = self.queue_mut(handle) else { return };
        let Some(group) = &mut queue.group else { return };
        if !group.is_changed {
            group.is_changed = true;
            self.changed_groups.push(handle);
        }
    }
}

impl Session {
    /// Divides the window evenly among the groups and the session's own queue, if that gets anything.
    pub(super) fn divide(&mut self) {
        let groups = self.memberships.iter().filter(|membership| membership.takes).count();
        let parts = groups.saturating_add(usize::from(self.has_own));
        self.part = self.window.receive_maximum().checked_div(parts).unwrap_or_default().max(1);
    }

    fn membership_mut(&mut self, handle: ids::Queue) -> Option<&mut Membership> {
        self.memberships.iter_mut().find(|membership| membership.group == handle)
    }

    /// The membership, if the session would take another message of this group.
    fn takes_of(&self, handle: ids::Queue) -> Option<&Membership> {
        let membership = self.memberships.iter().find(|membership| membership.group == handle)?;
        let takes_new = membership.pack.as_ref().is_none_or(Pack::is_open);
        let has_part = takes_new && membership.in_flight < self.part && self.window.has_room();
        let has_room = membership.terms.qos == 0 || has_part;
        (membership.takes && self.is_writable && has_room).then_some(membership)
    }

    /// True if it has been sent as much as one turn may.
    fn is_sated(&self) -> bool {
        self.allotted_bytes > limits::ALLOT_BYTES_MAXIMUM
    }

    /// Puts a group's message into the window; `None` without room.
    fn take_shared(
        &mut self,
        handle: ids::Queue,
        connection: Connection,
        found: &Found,
        now: Timestamp,
    ) -> Option<Delivery> {
        let membership = self.memberships.iter_mut().find(|membership| membership.group == handle)?;
        let qos = found.qos.min(membership.terms.qos);
        let mut packet_identifier = 0;
        if qos > 0 {
            let source = Source::Group(membership.party);
            packet_identifier = self.window.send(Flight { offset: found.offset, qos, phase: Phase::Sent, source })?;
            membership.in_flight = membership.in_flight.saturating_add(1);
            if let Some(pack) = &mut membership.pack {
                pack.give(found.offset, now);
            }
        }
        membership.given = membership.given.wrapping_add(1);
        let size = usize::try_from(found.size_bytes).unwrap_or(usize::MAX);
        self.allotted_bytes = self.allotted_bytes.saturating_add(size);
        Some(Delivery {
            connection,
            packet_identifier,
            qos,
            // To this client it is a first attempt, whoever had it before [MQTT-3.3.1-1].
            dup: false,
            retain: found.retain && membership.terms.retain_as_published,
            identifiers: membership.terms.identifiers.clone(),
            offset: found.offset,
            location: found.location,
        })
    }
}

fn no_group(handle: ids::Queue) -> Error {
    Error::Invalid(format!("queue {} is no group's", handle.0))
}

/// The members of a group with their sessions.
struct Members<'a> {
    sessions: &'a [Option<Session>],
    group: ids::Queue,
}

impl Members<'_> {
    /// What a member that has room has in flight from the group.
    fn load(&self, member: Connection) -> Option<usize> {
        let session = self.sessions.get(slot(member.0))?.as_ref()?;
        session.takes_of(self.group).filter(|_| !session.is_sated()).map(|membership| membership.in_flight)
    }

    fn has_room(&self, member: &Connection) -> bool {
        self.load(*member).is_some()
    }

    fn is_sated(&self, member: Connection) -> bool {
        self.sessions.get(slot(member.0)).and_then(Option::as_ref).is_some_and(Session::is_sated)
    }
}

/// What becomes of a group's next message.
enum Chosen {
    /// It goes to this member; the cursor knows.
    Member(Found, Connection),
    /// It is not sent any more.
    Expired(Offset),
    /// It waits for its key; what is behind it may go past.
    Waits,
    /// Nobody has room for it now.
    Nobody,
    /// There is none at hand.
    Nothing,
}

fn choose(queue: &mut Queue, members: &Members<'_>, now: Timestamp) -> Chosen {
    let is_back = queue.has_returned();
    let Queue { group: Some(group), cursor, entries, .. } = queue else { return Chosen::Nothing };
    let Group { round, selection, keys, returned, .. } = group;
    if let Some(keys) = keys {
        let waited_for = keys.waited_for().find(|owner| members.has_room(owner));
        if let Some((found, owner)) = waited_for.and_then(|owner| Some((keys.take(owner)?, owner))) {
            if found.has_expired(now) {
                return Chosen::Expired(found.offset);
            }
            cursor.redeliver(found.offset, Holder(owner.0));
            return Chosen::Member(found, owner);
        }
        if !keys.looks_on() || !round.members().iter().any(|member| members.has_room(member)) {
            return Chosen::Nobody;
        }
    }
    // What came back is next, also while it is still to be looked up.
    let at_hand = if is_back { returned } else { entries };
    let Some(found) = at_hand.pop_front() else { return Chosen::Nothing };
    if found.has_expired(now) {
        let offset = found.offset;
        at_hand.push_front(found);
        return Chosen::Expired(offset);
    }
    let member = match keys {
        None => round.next(selection, |member| members.load(*member)).copied(),
        Some(keys) => {
            let owner = keys.owner(found.key_slot);
            if owner.is_some_and(|owner| members.is_sated(owner)) {
                at_hand.push_front(found);
                return Chosen::Nobody;
            }
            let free = owner.filter(|owner| keys.is_clear(*owner) && members.has_room(owner));
            if free.is_none() {
                if is_back || cursor.delay(entry_of(&found)) {
                    keys.wait(owner, found);
                }
                return Chosen::Waits;
            }
            free
        }
    };
    let Some(member) = member else {
        at_hand.push_front(found);
        return Chosen::Nobody;
    };
    if is_back {
        cursor.redeliver(found.offset, Holder(member.0));
    } else {
        cursor.deliver(entry_of(&found), Holder(member.0));
    }
    Chosen::Member(found, member)
}
