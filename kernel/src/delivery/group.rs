//! A queue that several receivers take from: the group has the backlog, a member only what is in flight to it.
//!
//! Owns: who is a member and on which terms, whose turn it is, and what comes back from a member that has gone.
//! Never: decides who may be a member, or how long a group without any is kept.
//!
//! Invariants:
//! 1. A message of a group is in flight to at most one member.
//! 2. What has come back goes out before what is new, in offset order.
//! 3. At QoS 2 sending is the hand-over: from then on the message is that member's and nobody else's
//!    [MQTT-4.8.2-4] [MQTT-4.8.2-5]. Both sides of it are durable before it leaves.
//! 4. Of a member's window a group takes at most an even part, so that one that stalls does not stall the others.

use super::keys::{Hold, Keys};
use super::members::{Group, GroupAttachment, Membership};
use super::pack::Pack;
use super::queue::{entry_of, Queue};
use super::receiver::Receiver;
use super::Deliveries;
use crate::error::{Error, Result};
use crate::flow::state::{Changes, Flight, Phase, Source, State};
use crate::flow::{Arrivals, Found, Notice, NoticeKind, Publish, Scan, Terms};
use crate::ids::{self, Connection, Offset, Party};
use crate::selection::Selection;
use std::sync::Arc;

impl Deliveries {
    /// The group's queue is there from now on; members may join it.
    pub fn open_group(&mut self, attachment: GroupAttachment) -> ids::Queue {
        let GroupAttachment { party, owner, state, subscriptions, end, sent_before, whole } = attachment;
        let mut queue = Queue::resume(party, Connection::GROUP, &state, subscriptions, end, 0);
        queue.owner = owner;
        queue.group = Some(Group { is_whole: whole, ..Group::default() });
        queue.sent_before = sent_before;
        self.queues.add(queue, self.held.settled_total())
    }

    /// The group's queue is gone; returns its delivery state. Nothing that members have in flight from it is
    /// acknowledged by that.
    pub fn close_group(&mut self, handle: ids::Queue) -> Result<State> {
        let state = self.group_state(handle)?;
        self.queues.remove(handle, self.held.arrived_total());
        for (_, receiver) in self.receivers.iter_mut() {
            receiver.memberships.retain(|membership| membership.group != handle);
            receiver.divide();
        }
        self.receivers.forget_queue(handle);
        Ok(state)
    }

    /// The group's whole delivery state while it stays attached.
    pub fn group_state(&mut self, handle: ids::Queue) -> Result<State> {
        let queue = self.queues.find(handle)?;
        queue.catch_up_mark(self.held.durable());
        let acknowledged = queue.cursor.acknowledged().clone();
        Ok(State { mark: queue.cursor.mark(), acknowledged, ..State::default() })
    }

    /// Whether a message of a group that was sent at QoS 2 stays the group's until it is received, where the session of
    /// who has it ends with the connection: then it goes back to the group. A durable session takes it along.
    pub fn keep_unreceived(&mut self, keeps: bool) {
        self.keeps_unreceived = keeps;
    }

    /// How the group's next member is chosen from now on. Keys that are others than before are given to nobody until
    /// what is in flight has been settled.
    pub fn select(&mut self, handle: ids::Queue, selection: Selection<ids::Receiver>) -> Result<()> {
        let end = self.held.end();
        let queue = self.queues.find(handle)?;
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
        self.queues.make_ready(handle);
        Ok(())
    }

    /// The slot of a message's key, for a group that asks for it: kept until the message is durable. The keys of an
    /// entry's messages are in it: it is read from the log, which looks there.
    pub(super) fn expect_key(&mut self, handle: ids::Queue, arrivals: &Arrivals, publish: &Publish, found: &Found) {
        let Some(queue) = self.queues.get_mut(handle) else { return };
        // What it is not offered would be expected for ever.
        if found.qos == 0 && !queue.is_whole() {
            return;
        }
        let Some(keys) = queue.keys() else { return };
        if publish.entry.is_some() {
            return queue.read_up_to(entry_of(found).end());
        }
        let (topic, properties) = (arrivals.span(publish.topic), arrivals.span(publish.properties));
        keys.expect(found.offset, keys.key.slot(topic, properties, publish.key_slot));
    }

    /// The members in their order: how many messages each has been given of the group, and how many are in flight.
    pub fn members(&mut self, handle: ids::Queue) -> Result<Vec<(ids::Receiver, u64, usize)>> {
        let group = self.queues.find(handle)?.group.as_ref().ok_or_else(|| no_group(handle))?;
        let members = group.round.members().iter().copied();
        let receivers = &mut self.receivers;
        let row = |member| {
            let part = receivers.get_mut(member)?.membership_of(handle)?;
            Some((member, part.given, part.in_flight))
        };
        Ok(members.filter_map(row).collect())
    }

    /// Where keys are: messages that wait because of theirs, and of the slots with messages in flight, those held
    /// longest first, at most so many.
    pub fn keys(&mut self, handle: ids::Queue, maximum: usize) -> Result<(usize, Vec<Hold>)> {
        let keys = self.queues.find(handle)?.keys();
        Ok(keys.map_or((0, Vec::new()), |keys| (keys.waiting(), keys.holds(maximum))))
    }

    /// The receiver takes its turn from now on, on these terms; they replace those it had.
    pub fn join(&mut self, handle: ids::Queue, member: ids::Receiver, terms: Terms) -> Result<()> {
        let queue = self.queues.get_mut(handle);
        let Some((group, party)) = queue.and_then(|queue| Some((queue.group.as_mut()?, queue.party))) else {
            return Err(no_group(handle));
        };
        if group.is_whole {
            return Err(Error::Invalid(format!("queue {} is for receivers by permits", handle.0)));
        }
        let receiver = self.receivers.find(member)?;
        group.round.join(member);
        match receiver.membership_of(handle) {
            Some(membership) => (membership.terms, membership.takes) = (terms, true),
            None => {
                let flights = receiver.window.flights().filter(|(_, flight)| flight.source == Source::Group(party));
                let offsets: Vec<Offset> = flights.map(|(_, flight)| flight.offset).collect();
                let in_flight = offsets.len();
                let pack = receiver.pack.as_ref().map(|own| Pack::resume(own.maximum(), offsets.into_iter()));
                let membership = Membership { group: handle, party, terms, in_flight, pack, given: 0, takes: true };
                receiver.memberships.push(membership);
            }
        }
        receiver.divide();
        self.queues.make_ready(handle);
        Ok(())
    }

    /// The receiver gets nothing more from the group; what it has in flight it completes.
    pub fn leave(&mut self, handle: ids::Queue, member: ids::Receiver) {
        if let Some(group) = self.queues.get_mut(handle).and_then(|queue| queue.group.as_mut()) {
            group.round.leave(&member);
        }
        let Some(receiver) = self.receivers.get_mut(member) else { return };
        for membership in receiver.memberships.iter_mut().filter(|membership| membership.group == handle) {
            membership.takes = false;
        }
        receiver.memberships.retain(|membership| membership.takes || membership.in_flight > 0);
        receiver.divide();
    }

    /// Where the group reads on, and how many messages before that wait to be given out again.
    pub fn backlog(&mut self, handle: ids::Queue) -> Result<(Offset, usize)> {
        let queue = self.queues.find(handle)?;
        let returned = match queue.is_whole() {
            true => usize::try_from(queue.cursor.waiting_messages()).unwrap_or(usize::MAX),
            false => queue.cursor.redelivery_count(),
        };
        Ok((queue.cursor.read(), returned))
    }

    /// A receiver has gone: what it had in flight at QoS 1 goes back to its groups at once.
    pub(super) fn give_all_back(&mut self, handle: ids::Receiver, receiver: &Receiver) {
        for membership in &receiver.memberships {
            let Some(queue) = self.queues.get_mut(membership.group) else { continue };
            let Queue { group: Some(group), cursor, .. } = queue else { continue };
            group.round.leave(&handle);
            if cursor.release(handle) > 0 || group.keys.is_some() {
                // Some of it may lie before what is at hand, so all of it is looked up again, in order.
                group.returned.clear();
            }
            if let Some(keys) = &mut group.keys {
                let source = Source::Group(membership.party);
                let pending = receiver.window.pending().map(|(_, flight)| flight);
                let of_group = pending.filter(|flight| flight.source == source);
                of_group.for_each(|flight| keys.ended(flight.offset, cursor.delivery(flight.offset).is_some()));
                keys.forget();
            }
            self.queues.make_ready(membership.group);
        }
        if receiver.party.is_durable() {
            return;
        }
        for (_, flight) in receiver.window.flights().filter(|(_, flight)| flight.phase == Phase::Sent) {
            let (Source::Group(party), 2) = (flight.source, flight.qos) else { continue };
            let queue = self.queues.of_group(party).and_then(|handle| self.queues.get_mut(handle));
            // Where it is the group's until it is received, it has gone back.
            if queue.is_none_or(|queue| queue.cursor.delivery(flight.offset).is_none()) {
                self.notices.add_one(party, NoticeKind::SessionEnded, flight.offset);
            }
        }
    }

    /// A member need not be sent a group's message again.
    pub(super) fn finish_shared(&mut self, flight: &Flight, party: Party) {
        let Some(handle) = self.queues.of_group(party) else { return };
        let Some(queue) = self.queues.get_mut(handle) else { return };
        let was_held = queue.cursor.acknowledge(flight.offset).is_some();
        if let Some(keys) = queue.keys() {
            keys.ended(flight.offset, was_held);
        }
        if was_held {
            self.queues.change_group(handle);
        }
    }

    /// Takes what the log found of what came back; the rest is gone.
    pub(super) fn feed_returned(&mut self, scan: &mut Scan) {
        let Some(queue) = self.queues.get_mut(scan.queue) else { return };
        let Queue { group: Some(group), cursor, party, .. } = queue else { return };
        let mut is_any_gone = false;
        for (first, found) in scan.owed.iter().copied().zip(scan.found_owed.drain(..)) {
            match found {
                Some(found) => group.returned.push_back(found),
                None => {
                    // Whoever had it may have acknowledged it while it was looked up.
                    let Some(gone) = cursor.acknowledge(first) else { continue };
                    let (kind, end, count) = (NoticeKind::Retention, gone.entry.end(), gone.remaining());
                    self.notices.add(Notice { party: *party, kind, first, end, count });
                    is_any_gone = true;
                }
            }
        }
        if is_any_gone {
            self.queues.change_group(scan.queue);
        }
    }

    /// Encoded progress of the groups that have any.
    pub(super) fn take_group_progress(&mut self, progress: &mut Vec<(Party, Vec<u8>)>) {
        for handle in self.queues.take_changed_groups() {
            let Some(queue) = self.queues.get_mut(handle) else { continue };
            if let Some(group) = &mut queue.group {
                group.is_changed = false;
            }
            let made = queue.cursor.take_progress().filter(|_| queue.party.is_durable());
            let Some(made) = made else { continue };
            let acknowledged = made.ranges.iter().map(|(first, end)| (Offset(first), Offset(end))).collect();
            let changes = Changes { mark: Some(made.mark), acknowledged, ..Changes::default() };
            let mut value = Vec::new();
            changes.encode(&mut value);
            progress.push((queue.party, value));
        }
    }
}

fn no_group(handle: ids::Queue) -> Error {
    Error::Invalid(format!("queue {} is no group's", handle.0))
}
