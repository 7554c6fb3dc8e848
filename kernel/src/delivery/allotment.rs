//! Queued messages are given to receivers that have room.
//!
//! A queue gives what it has at hand to its one receiver, or to a member of its group whom its selection chooses; what
//! follows is the same for both.

use super::consumer::Consumer;
use super::members::Group;
use super::queue::{entry_of, Queue};
use super::queues::Turn;
use super::receiver::Receiver;
use super::receivers::Receivers;
use super::Deliveries;
use crate::flow::state::{Flight, Owed, Phase, Source};
use crate::flow::{Departure, Found, Notice, NoticeKind, Outgoing, Sending};
use crate::ids::{self, Offset, Timestamp};

/// What becomes of a queue's next message.
enum Next {
    /// It leaves for a receiver.
    Leaves(ids::Receiver, Sending, Source),
    /// It leaves for a receiver by permits; so many messages.
    Given(Sending, u32),
    /// Its Message Expiry Interval has passed: it is not sent.
    Expired(Found, Source),
    /// It was acknowledged while it was looked up, or waits for its key: what is behind it may go.
    Passed,
    /// Nobody has room for it.
    Waits,
    /// Whoever has room has been sent as much as one turn may.
    Sated,
    /// There is none at hand.
    Nothing,
}

impl Deliveries {
    /// Gives every ready queue one turn. A message whose Message Expiry Interval has passed is not sent and takes no
    /// packet identifier; one in flight since an earlier connection is sent again under its own, with DUP.
    pub fn allot(&mut self, outgoing: &mut Outgoing, now: Timestamp) {
        for _ in 0..self.queues.ready_count() {
            let Some(handle) = self.queues.begin_turn() else { break };
            let turn = self.allot_queue(handle, outgoing, now);
            self.queues.end_turn(handle, turn);
        }
    }

    fn allot_queue(&mut self, handle: ids::Queue, outgoing: &mut Outgoing, now: Timestamp) -> Turn {
        let Deliveries { receivers, queues, held, notices, reports, keeps_unreceived } = self;
        let Some(queue) = queues.get_mut(handle) else { return Turn::Rests };
        receivers.begin_turn(queue);
        let (party, is_group, mut is_changed) = (queue.party, queue.group.is_some(), false);
        let turn = loop {
            let next = match queue.receiver {
                Some(only) => {
                    receivers.get_mut(only).map_or(Next::Nothing, |receiver| next(queue, only, receiver, now))
                }
                None => next_shared(handle, queue, receivers, now),
            };
            match next {
                Next::Leaves(receiver, sending, source) => {
                    reports.deliver(sending.dup);
                    let is_kept =
                        sending.qos == 1 || sending.qos == 2 && *keeps_unreceived && !receivers.is_durable(receiver);
                    if is_group && !is_kept {
                        // The group is done with it.
                        queue.cursor.acknowledge(sending.offset);
                        is_changed = true;
                    }
                    let is_new = sending.qos == 2 && !sending.dup;
                    if is_new && (is_group && !is_kept || receivers.is_durable(receiver)) {
                        // The packet identifier, and what a group hands over, has to be durable before the message
                        // leaves (docs/adr/0002-one-log.md).
                        let sent = (sending.packet_identifier, sending.offset, source);
                        receivers.change(receiver, |changes| changes.sent.push(sent));
                        held.until_progress(receivers.serial_of(sending.connection), Departure::Sending(sending));
                    } else {
                        outgoing.departures.push(Departure::Sending(sending));
                    }
                }
                Next::Given(sending, messages) => {
                    reports.give(messages, sending.redeliveries > 0);
                    outgoing.departures.push(Departure::Sending(sending));
                }
                Next::Expired(found, source) => {
                    let (first, end) = (found.offset, entry_of(&found).end());
                    notices.add(Notice { party, kind: NoticeKind::Expired, first, end, count: u64::from(found.count) });
                    is_changed = true;
                    if let Some(receiver) = queue.receiver {
                        receivers.change(receiver, |changes| {
                            changes.owed_done.extend((source == Source::Retained).then_some(first));
                        });
                    }
                }
                Next::Passed => {}
                Next::Waits => break Turn::Rests,
                Next::Sated => break Turn::GoesOn,
                Next::Nothing => {
                    receivers.close_packs(handle, queue);
                    break Turn::Rests;
                }
            }
        };
        if is_group && is_changed {
            queues.change_group(handle);
        }
        turn
    }
}

/// Who has room.
impl Receivers {
    /// True if somebody has room for what the queue has.
    pub(super) fn have_room_for(&self, handle: ids::Queue, queue: &Queue, durable: Offset) -> bool {
        if let Some(group) = &queue.group {
            return group.looks_on() && group.round.members().iter().any(|member| self.takes_of(handle, *member));
        }
        let receiver = queue.receiver.and_then(|receiver| self.get(receiver)).filter(|receiver| receiver.is_writable);
        receiver.is_some_and(|receiver| match receiver.window.has_room() {
            true => receiver.takes_new() || queue.has_beside(durable),
            false => receiver.window.has_quota() && queue.goes_on_again(),
        })
    }

    /// True if a member would take what waits for room at it.
    pub(super) fn are_waited_for(&self, handle: ids::Queue, queue: &Queue) -> bool {
        let keys = queue.group.as_ref().and_then(|group| group.keys.as_ref());
        keys.is_some_and(|keys| keys.waited_for().any(|member| self.takes_of(handle, member)))
    }

    fn takes_of(&self, handle: ids::Queue, member: ids::Receiver) -> bool {
        match self.get(member) {
            Some(receiver) => receiver.takes_of(handle).is_some(),
            None => self.consumer(member).is_some_and(|consumer| consumer.takes_of(handle)),
        }
    }

    /// What a member that has room, in this turn too, has in flight from the group.
    fn load(&self, handle: ids::Queue, member: ids::Receiver) -> Option<usize> {
        match self.get(member) {
            Some(receiver) if receiver.is_sated() => None,
            Some(receiver) => receiver.takes_of(handle).map(|membership| membership.in_flight),
            None => {
                let consumer = self.consumer(member).filter(|consumer| !consumer.is_sated())?;
                consumer.takes_of(handle).then(|| consumer.load())
            }
        }
    }

    fn is_sated(&self, member: ids::Receiver) -> bool {
        match self.get(member) {
            Some(receiver) => receiver.is_sated(),
            None => self.consumer(member).is_some_and(Consumer::is_sated),
        }
    }

    fn is_durable(&self, handle: ids::Receiver) -> bool {
        self.get(handle).is_some_and(|receiver| receiver.party.is_durable())
    }

    /// The bytes that may be sent of the queue count from here.
    fn begin_turn(&mut self, queue: &Queue) {
        let members = queue.group.iter().flat_map(|group| group.round.members());
        for member in members.chain(&queue.receiver) {
            if let Some(receiver) = self.get_mut(*member) {
                receiver.allotted_bytes = 0;
            } else if let Some(consumer) = self.consumer_mut(*member) {
                consumer.allotted_bytes = 0;
            }
        }
    }

    /// Where nothing more is at hand, what has been given of the queue is all that its receivers wait for.
    fn close_packs(&mut self, handle: ids::Queue, queue: &Queue) {
        if queue.reads_on() {
            return;
        }
        let members = queue.group.iter().flat_map(|group| group.round.members());
        for member in members {
            let membership = self.get_mut(*member).and_then(|receiver| receiver.membership_of(handle));
            if let Some(pack) = membership.and_then(|membership| membership.pack.as_mut()) {
                pack.close();
            }
        }
        let own = queue.receiver.and_then(|receiver| self.get_mut(receiver));
        if let Some(pack) = own.and_then(|receiver| receiver.pack.as_mut()) {
            pack.close();
        }
    }
}

/// Takes the next message of a queue with one receiver: what groups handed over and retained messages first, then in
/// offset order.
fn next(queue: &mut Queue, handle: ids::Receiver, receiver: &mut Receiver, now: Timestamp) -> Next {
    if !queue.has_entries() {
        return Next::Nothing;
    }
    if receiver.is_sated() {
        return Next::Sated;
    }
    if !receiver.is_writable {
        return Next::Waits;
    }
    if let Some((found, packet_identifier)) = queue.handed_entries.pop_front() {
        return next_handed(found, packet_identifier, queue, handle, receiver, now);
    }
    if let Some((found, owed)) = queue.owed_entries.pop_front() {
        return next_owed(found, owed, queue, handle, receiver, now);
    }
    match queue.entries.pop_front() {
        Some(found) => next_entry(found, queue, handle, receiver, now),
        None => Next::Nothing,
    }
}

fn next_handed(
    found: Found,
    packet_identifier: u16,
    queue: &mut Queue,
    handle: ids::Receiver,
    receiver: &mut Receiver,
    now: Timestamp,
) -> Next {
    let flight = receiver.window.awaited(packet_identifier).filter(|flight| flight.offset == found.offset);
    let Some(Flight { qos, source, .. }) = flight else { return Next::Passed };
    if !receiver.window.has_quota() {
        queue.handed_entries.push_front((found, packet_identifier));
        return Next::Waits;
    }
    receiver.window.send_again(packet_identifier, now);
    let first = receiver.send(handle, &found, packet_identifier, qos);
    let membership = receiver.memberships.iter_mut().find(|known| source == Source::Group(known.party));
    let terms = membership.as_ref().map(|membership| membership.terms.clone()).unwrap_or_default();
    if let Some(pack) = membership.and_then(|membership| membership.pack.as_mut()) {
        pack.send_again(now);
    }
    let retain = found.retain && terms.retain_as_published;
    let sending = Sending { dup: true, retain, identifiers: terms.identifiers, ..first };
    Next::Leaves(handle, sending, source)
}

fn next_owed(
    found: Found,
    owed: Owed,
    queue: &mut Queue,
    handle: ids::Receiver,
    receiver: &mut Receiver,
    now: Timestamp,
) -> Next {
    let (again, source) = (queue.resumed_owed.get(&owed.offset).copied(), Source::Retained);
    if again.is_none() && found.has_expired(now) {
        return Next::Expired(found, source);
    }
    let qos = found.qos.min(owed.qos);
    let flight = Flight { offset: found.offset, qos, phase: Phase::Sent, source };
    let Some(packet_identifier) = receiver.identifier(again, flight, now) else {
        queue.owed_entries.push_front((found, owed));
        return Next::Waits;
    };
    queue.resumed_owed.remove(&owed.offset);
    let sending = Sending {
        dup: again.is_some(),
        retain: true,
        identifiers: owed.identifier.map(|identifier| [identifier].into()),
        ..receiver.send(handle, &found, packet_identifier, qos)
    };
    Next::Leaves(handle, sending, source)
}

fn next_entry(found: Found, queue: &mut Queue, handle: ids::Receiver, receiver: &mut Receiver, now: Timestamp) -> Next {
    let (again, source) = (queue.resumed.get(&found.offset).copied(), Source::Queue);
    // Until everything is sent again that was in flight, whatever lies in between goes with it.
    if !receiver.takes_new() && again.is_none() && queue.resumed.is_empty() {
        queue.entries.push_front(found);
        return Next::Waits;
    }
    if again.is_none() && found.has_expired(now) {
        // Not only passed by: it would be found, and told, again if what lies before it is not acknowledged.
        queue.cursor.acknowledge_ahead(&entry_of(&found));
        queue.cursor.pass(entry_of(&found).end());
        return Next::Expired(found, source);
    }
    let qos = again.map_or(found.qos.min(found.terms.qos), |resumed| resumed.qos);
    let flight = Flight { offset: found.offset, qos, phase: Phase::Sent, source };
    let identifier = receiver.identifier(again.map(|resumed| resumed.packet_identifier), flight, now);
    let Some(packet_identifier) = identifier else {
        queue.entries.push_front(found);
        return Next::Waits;
    };
    match &mut receiver.pack {
        Some(pack) if again.is_some() => pack.send_again(now),
        Some(pack) => pack.give(found.offset, now),
        None => {}
    }
    if again.is_some() {
        queue.resumed.remove(&found.offset);
    }
    queue.cursor.deliver(entry_of(&found), handle);
    let first = receiver.send(handle, &found, packet_identifier, qos);
    let sending = Sending {
        // At QoS 2 what was sent is on record (docs/adr/0002-one-log.md), so everything else goes for the first time.
        dup: again.is_some() || qos == 1 && found.offset < queue.sent_before,
        retain: found.retain && found.terms.retain_as_published,
        identifiers: found.terms.identifiers,
        ..first
    };
    Next::Leaves(handle, sending, source)
}

/// Takes the next message of a group's queue for a member that has room, as its selection says.
fn next_shared(handle: ids::Queue, queue: &mut Queue, receivers: &mut Receivers, now: Timestamp) -> Next {
    match choose(handle, queue, receivers, now) {
        Chosen::Member(found, member, attempts) => {
            let again = attempts > 1 || found.offset < queue.sent_before;
            if let Some(consumer) = receivers.consumer_mut(member) {
                let again_by = (attempts > 1).then(|| queue.cursor.delivery(found.offset)).flatten();
                let redeliveries = again_by.map_or(0, |delivery| delivery.redeliveries);
                let sending = consumer.take(member, &found, redeliveries, again);
                if let Some(keys) = queue.keys() {
                    keys.sent(&found, member, now);
                }
                return Next::Given(sending, found.count);
            }
            let receiver = receivers.get_mut(member);
            let taken = receiver.and_then(|receiver| receiver.take_shared(member, handle, &found, again, now));
            let Some((sending, source)) = taken else { return Next::Waits };
            if let Some(keys) = queue.keys().filter(|_| sending.qos > 0) {
                keys.sent(&found, member, now);
            }
            Next::Leaves(member, sending, source)
        }
        Chosen::Expired(found) => {
            if queue.cursor.acknowledge(found.offset).is_none() {
                queue.cursor.pass(entry_of(&found).end());
            }
            Next::Expired(found, Source::Group(queue.party))
        }
        Chosen::Waits => Next::Passed,
        Chosen::Nobody => {
            let is_sated = receivers.are_waited_for(handle, queue) || receivers.have_room_for(handle, queue, Offset(0));
            if is_sated {
                Next::Sated
            } else {
                Next::Waits
            }
        }
        Chosen::Nothing => Next::Nothing,
    }
}

/// What becomes of a group's next message.
enum Chosen {
    /// It goes to this member, as such an attempt; the cursor knows.
    Member(Found, ids::Receiver, u16),
    /// It is not sent any more.
    Expired(Found),
    /// It waits for its key; what is behind it may go past.
    Waits,
    /// Nobody has room for it now.
    Nobody,
    /// There is none at hand.
    Nothing,
}

fn choose(handle: ids::Queue, queue: &mut Queue, receivers: &Receivers, now: Timestamp) -> Chosen {
    let is_back = queue.has_returned();
    let Queue { group: Some(group), cursor, entries, .. } = queue else { return Chosen::Nothing };
    let Group { round, selection, keys, returned, .. } = group;
    let has_room = |member: ids::Receiver| receivers.load(handle, member).is_some();
    if let Some(keys) = keys {
        let waited_for = keys.waited_for().find(|owner| has_room(*owner));
        if let Some((found, owner)) = waited_for.and_then(|owner| Some((keys.take(owner)?, owner))) {
            if found.has_expired(now) {
                return Chosen::Expired(found);
            }
            let attempts = cursor.redeliver(found.offset, owner);
            return Chosen::Member(found, owner, attempts.unwrap_or_default());
        }
        if !keys.looks_on() || !round.members().iter().any(|member| has_room(*member)) {
            return Chosen::Nobody;
        }
    }
    // What came back is next, also while it is still to be looked up.
    let at_hand = if is_back { returned } else { entries };
    let Some(found) = at_hand.pop_front() else { return Chosen::Nothing };
    if found.has_expired(now) {
        return Chosen::Expired(found);
    }
    let member = match keys {
        None => round.next(selection, |member| receivers.load(handle, *member)).copied(),
        Some(keys) => {
            let owner = keys.owner(found.key_slot);
            if owner.is_some_and(|owner| receivers.is_sated(owner)) {
                at_hand.push_front(found);
                return Chosen::Nobody;
            }
            let free = owner.filter(|owner| keys.is_clear(*owner) && has_room(*owner));
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
    let attempts = if is_back { cursor.redeliver(found.offset, member) } else { None };
    if !is_back {
        cursor.deliver(entry_of(&found), member);
    }
    Chosen::Member(found, member, attempts.unwrap_or_default())
}
