//! A queue that several sessions take from: the group has the backlog, a member only what is in flight to it.
//!
//! Owns: who is a member and on which terms, whose turn it is, and what comes back from a member that has gone.
//! Never: decides who may be a member, or how long a group without any is kept.
//!
//! Invariants:
//! 1. A message of a group is in flight to at most one member.
//! 2. What has come back goes out before what is new, in offset order.
//! 3. At QoS 2 sending is the hand-over: from then on the message is that member's session's and nobody else's
//!    [MQTT-4.8.2-4] [MQTT-4.8.2-5]. Both sides of it are durable before PUBLISH leaves.
//! 4. Of a member's window a group takes at most an even part, so that one that stalls does not stall the others.

use super::allotment::{has_expired, Turn};
use super::cursor::Holder;
use super::queue::{entry_of, Queue};
use super::selection::Round;
use super::{emit, no_session, put, slot, Dispatch, Session};
use crate::error::Result;
use crate::flow::state::{Changes, Flight, Phase, Source, State};
use crate::flow::{Delivery, Found, Notice, NoticeKind, Outgoing, Packet, Scan, Subscription, Terms};
use crate::ids::{self, Connection, Offset, Party, Timestamp};
use crate::limits;
use std::collections::VecDeque;
use std::sync::Arc;

/// What a queue has beside its cursor and entries if it is a group's.
#[derive(Debug, Default)]
pub struct Group {
    round: Round,
    /// Members have given these back; at hand again, in offset order.
    pub returned: VecDeque<Found>,
    is_changed: bool,
}

/// One session's part in one group.
#[derive(Debug)]
pub(super) struct Membership {
    pub group: ids::Queue,
    pub party: Party,
    pub terms: Terms,
    pub in_flight: usize,
    /// False once it has left, while it still has messages in flight: those it completes [MQTT-3.10.4-3].
    pub takes: bool,
}

/// How a group is attached.
#[derive(Debug)]
pub struct GroupAttachment {
    /// Whose queue it is: the group's own number.
    pub party: Party,
    /// What it has acknowledged.
    pub state: State,
    /// What it reads.
    pub subscriptions: Arc<[Subscription]>,
    /// The log's end: from here on the group is routed to directly.
    pub end: Offset,
}

impl Dispatch {
    /// The group's queue is there from now on; members may join it.
    pub fn open_group(&mut self, attachment: GroupAttachment) -> ids::Queue {
        let GroupAttachment { party, state, subscriptions, end } = attachment;
        let handle = self.take_handle();
        let mut queue = Queue::resume(party, Connection::GROUP, &state, subscriptions, end, 0);
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

    /// The session on `connection` takes its turn from now on, on these terms; they replace those it had.
    pub fn join(&mut self, handle: ids::Queue, connection: Connection, terms: Terms) -> Result<()> {
        let queue = self.queues.get_mut(slot(handle.0)).and_then(Option::as_mut);
        let Some((group, party)) = queue.and_then(|queue| Some((queue.group.as_mut()?, queue.party))) else {
            return Err(crate::error::Error::Invalid(format!("queue {} is no group's", handle.0)));
        };
        let session = self.sessions.get_mut(slot(connection.0)).and_then(Option::as_mut);
        let session = session.ok_or_else(|| no_session(connection))?;
        group.round.join(Holder(connection.0));
        match session.memberships.iter_mut().find(|membership| membership.group == handle) {
            Some(membership) => (membership.terms, membership.takes) = (terms, true),
            None => {
                let in_flight = session.window.flights().filter(|(_, flight)| flight.source == Source::Group(party));
                let in_flight = in_flight.count();
                session.memberships.push(Membership { group: handle, party, terms, in_flight, takes: true });
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
            group.round.leave(Holder(connection.0));
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
            group.round.leave(holder);
            if cursor.release(holder) > 0 {
                // Some of it may lie before what is at hand, so all of it is looked up again, in order.
                group.returned.clear();
            }
            self.make_ready(membership.group);
        }
        if session.party.is_durable() {
            return;
        }
        for (_, flight) in session.window.flights().filter(|(_, flight)| flight.phase == Phase::Published) {
            if let (Source::Group(party), 2) = (flight.source, flight.qos) {
                let end = Offset(flight.offset.0.saturating_add(1));
                let kind = NoticeKind::SessionEnded;
                self.notices.add(Notice { party, kind, first: flight.offset, end, count: 1 });
            }
        }
    }

    /// A member need not be sent a group's message again.
    pub(super) fn finish_shared(&mut self, connection: Connection, identifier: u16, flight: &Flight, party: Party) {
        if flight.qos == 2 {
            let handle = self.session(connection).map(|session| session.queue).unwrap_or_default();
            if let Ok(queue) = self.queue_mut(handle) {
                queue.handed.retain(|(other, _)| *other != identifier);
                queue.handed_entries.retain(|(_, other)| *other != identifier);
            }
            return;
        }
        let Some(handle) = self.groups.get(&party).copied() else { return };
        if self.queue_mut(handle).is_ok_and(|queue| queue.cursor.acknowledge(flight.offset).is_some()) {
            self.change_group(handle);
        }
    }

    /// An exchange is over: its group may take that much more of the window.
    pub(super) fn free_part(&mut self, connection: Connection, party: Party) {
        let Some(session) = self.session_mut(connection) else { return };
        if let Some(membership) = session.memberships.iter_mut().find(|membership| membership.party == party) {
            membership.in_flight = membership.in_flight.saturating_sub(1);
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
        let mut members = group.round.holders().iter();
        members
            .any(|holder| self.session(Connection(holder.0)).is_some_and(|session| session.takes_of(handle).is_some()))
    }

    /// Gives the group's messages to members that have room, each in its turn.
    pub(super) fn allot_group(&mut self, handle: ids::Queue, outgoing: &mut Outgoing, now: Timestamp) -> Turn {
        self.begin_turn(handle);
        loop {
            let queue = self.queues.get_mut(slot(handle.0)).and_then(Option::as_mut);
            let Some(queue) = queue else { return Turn::Rests };
            let Some(found) = next(queue) else { return Turn::Rests };
            let (offset, party) = (found.offset, queue.party);
            if has_expired(found, now) {
                self.give_up_shared(handle, party, offset, NoticeKind::Expired);
                continue;
            }
            let Queue { group: Some(group), .. } = queue else { return Turn::Rests };
            let sessions = &mut self.sessions;
            let chosen = group.round.next(|holder| {
                let session = sessions.get(slot(holder.0)).and_then(Option::as_ref);
                session.is_some_and(|session| !session.is_sated() && session.takes_of(handle).is_some())
            });
            let Some(holder) = chosen else { break };
            let session = sessions.get_mut(slot(holder.0)).and_then(Option::as_mut);
            let Some((session, found)) = session.and_then(|session| Some((session, take(queue, holder)?))) else {
                break;
            };
            let Some(delivery) = session.take_shared(handle, holder, &found) else { break };
            self.send_shared(handle, delivery, offset, party, outgoing);
        }
        // Whoever is only sated goes on in the next turn.
        let queue = self.queues.get(slot(handle.0)).and_then(Option::as_ref);
        let group = queue.and_then(|queue| queue.group.as_ref());
        if group.is_some_and(|group| self.has_taker(handle, group)) {
            return Turn::GoesOn;
        }
        Turn::Rests
    }

    /// The bytes that members may be sent count from here.
    fn begin_turn(&mut self, handle: ids::Queue) {
        let queue = self.queues.get(slot(handle.0)).and_then(Option::as_ref);
        let Some(group) = queue.and_then(|queue| queue.group.as_ref()) else { return };
        for holder in group.round.holders() {
            if let Some(session) = self.sessions.get_mut(slot(holder.0)).and_then(Option::as_mut) {
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
            return emit(outgoing, Packet::Publish(delivery));
        }
        if let Ok(queue) = self.queue_mut(handle) {
            queue.cursor.acknowledge(offset);
        }
        self.change_group(handle);
        if delivery.qos == 0 {
            return emit(outgoing, Packet::Publish(delivery));
        }
        let sent = (delivery.packet_identifier, offset, Source::Group(party));
        self.change(delivery.connection, |changes| changes.sent.push(sent));
        let serial = self.serial_of(delivery.connection);
        self.unpositioned.push((serial, Packet::Publish(delivery)));
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

    /// The membership, if the session would take another message of this group.
    fn takes_of(&self, handle: ids::Queue) -> Option<&Membership> {
        let membership = self.memberships.iter().find(|membership| membership.group == handle)?;
        let has_room = membership.terms.qos == 0 || membership.in_flight < self.part && self.window.has_room();
        (membership.takes && self.is_writable && has_room).then_some(membership)
    }

    /// True if it has been sent as much as one turn may.
    fn is_sated(&self) -> bool {
        self.allotted_bytes > limits::ALLOT_BYTES_MAXIMUM
    }

    /// Puts a group's message into the window; `None` without room.
    fn take_shared(&mut self, handle: ids::Queue, holder: Holder, found: &Found) -> Option<Delivery> {
        let membership = self.memberships.iter_mut().find(|membership| membership.group == handle)?;
        let qos = found.qos.min(membership.terms.qos);
        let mut packet_identifier = 0;
        if qos > 0 {
            let source = Source::Group(membership.party);
            packet_identifier =
                self.window.send(Flight { offset: found.offset, qos, phase: Phase::Published, source })?;
            membership.in_flight = membership.in_flight.saturating_add(1);
        }
        let size = usize::try_from(found.size_bytes).unwrap_or(usize::MAX);
        self.allotted_bytes = self.allotted_bytes.saturating_add(size);
        Some(Delivery {
            connection: Connection(holder.0),
            packet_identifier,
            qos,
            // To this client it is a first attempt, whoever had it before [MQTT-3.3.1-1].
            dup: false,
            retain: found.retain && membership.terms.retain_as_published,
            identifiers: membership.terms.identifiers.clone(),
            location: found.location,
        })
    }
}

/// The message that is next; `None` also while one that came back is still to be looked up.
fn next(queue: &Queue) -> Option<&Found> {
    let group = queue.group.as_ref()?;
    if queue.cursor.redelivery_count() > 0 {
        return group.returned.front();
    }
    queue.entries.front()
}

/// Takes that message for a holder.
fn take(queue: &mut Queue, holder: Holder) -> Option<Found> {
    let group = queue.group.as_mut()?;
    if queue.cursor.redelivery_count() > 0 {
        let found = group.returned.pop_front()?;
        queue.cursor.redeliver(found.offset, holder);
        return Some(found);
    }
    let found = queue.entries.pop_front()?;
    queue.cursor.deliver(entry_of(&found), holder);
    Some(found)
}
