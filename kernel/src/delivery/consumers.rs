//! Receivers by permits: which queue each takes from, and what they say of the entries that they were given.
//!
//! Owns: that what one of them says counts for its queue, whoever of that queue has the entry. Never: decides who may
//! take from a queue.
//!
//! Invariants:
//! 1. What a receiver has no more, because it wants it again or has gone, goes out ahead of what is new, in offset
//!    order.
//! 2. What is said of a number that is not outstanding changes nothing, and costs one look-up.

use super::consumer::Consumer;
use super::queue::Queue;
use super::receivers::Receivers;
use super::Deliveries;
use crate::error::{Error, Result};
use crate::flow::entry::{Permits, Reply, Says, Settlement};
use crate::flow::{Arrivals, Departure, Notice, NoticeKind};
use crate::ids::{self, Connection, Offset, Timestamp};

/// One of the receivers by permits that take from a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Consuming {
    /// Who.
    pub receiver: ids::Receiver,
    /// How many messages it has been given since it was attached.
    pub given: u64,
    /// How many of them it has.
    pub in_flight: u64,
    /// How many more it may be given; below zero if the last entry had more than that.
    pub permits: i64,
}

impl Deliveries {
    /// A receiver by permits is on `connection` from now on, which may have others; it may be given nothing yet.
    pub fn attach_consumer(&mut self, connection: Connection) -> Result<ids::Receiver> {
        connection.check()?;
        Ok(self.receivers.add_consumer(connection))
    }

    /// The receiver by permits is gone; what it had goes back to its queue, and is not counted as wanted again.
    pub fn detach_consumer(&mut self, handle: ids::Receiver) -> Result<()> {
        if let Some(queue) = self.receivers.find_consumer(handle)?.queue {
            self.leave_consumer(queue, handle);
        }
        self.receivers.remove_consumer(handle);
        Ok(())
    }

    /// The connection is known from now on, before it has a receiver: what is held for it is its own.
    pub fn open(&mut self, connection: Connection) {
        self.receivers.begin(connection);
    }

    /// The connection has ended, its receivers by permits with it; nothing that waits for it leaves any more.
    pub fn close(&mut self, connection: Connection) -> Result<()> {
        for handle in self.receivers.consumers_on(connection).to_vec() {
            self.detach_consumer(handle)?;
        }
        self.receivers.close(connection);
        self.reports.forget(connection);
        Ok(())
    }

    /// The receiver takes its turn at a queue that is given entries whole. With `counts_redeliveries` it is told how
    /// often an entry was wanted again, and each entry is wanted by itself; without, wanting one again is wanting all.
    pub fn join_consumer(
        &mut self,
        handle: ids::Queue,
        member: ids::Receiver,
        counts_redeliveries: bool,
    ) -> Result<()> {
        let group = self.queues.find(handle)?.group.as_mut().filter(|group| group.is_whole);
        let Some(group) = group else {
            return Err(Error::Invalid(format!("queue {} is not for receivers by permits", handle.0)));
        };
        let consumer = self.receivers.find_consumer(member)?;
        if consumer.takes && consumer.queue != Some(handle) {
            return Err(Error::Invalid(format!("receiver {} takes from another queue", member.0)));
        }
        (consumer.queue, consumer.takes, consumer.counts_redeliveries) = (Some(handle), true, counts_redeliveries);
        group.round.join(member);
        self.queues.make_ready(handle);
        Ok(())
    }

    /// The receiver gets nothing more from the queue; what it had goes back, and is not counted as wanted again.
    pub fn leave_consumer(&mut self, handle: ids::Queue, member: ids::Receiver) {
        let Some(consumer) = self.receivers.consumer_mut(member).filter(|known| known.queue == Some(handle)) else {
            return;
        };
        consumer.takes = false;
        let Some(queue) = self.queues.get_mut(handle) else { return };
        if let Some(group) = &mut queue.group {
            group.round.leave(&member);
        }
        take_back(queue, consumer, &held_by(queue, member), false);
        self.queues.make_ready(handle);
    }

    /// The receivers that take from the queue, in the order in which they joined.
    pub fn consumers(&mut self, handle: ids::Queue) -> Result<Vec<Consuming>> {
        let members = self.queues.find(handle)?.group.iter().flat_map(|group| group.round.members());
        let row = |receiver: &ids::Receiver| {
            let Consumer { given, unsettled: in_flight, permits, .. } = *self.receivers.consumer(*receiver)?;
            Some(Consuming { receiver: *receiver, given, in_flight, permits })
        };
        Ok(members.filter_map(row).collect())
    }

    /// An entry that encode could not send is done with, and has cost its receiver nothing.
    pub fn refuse_entry(&mut self, member: ids::Receiver, offset: Offset, kind: NoticeKind) {
        let Deliveries { receivers, queues, notices, .. } = self;
        let Some(handle) = receivers.consumer(member).and_then(|consumer| consumer.queue) else { return };
        let Some(queue) = queues.get_mut(handle) else { return };
        let Some(gone) = queue.cursor.delivery(offset).filter(|known| known.holder == member).cloned() else { return };
        finish(queue, receivers, gone.entry.number);
        if let Some(consumer) = receivers.consumer_mut(member) {
            consumer.permit(gone.entry.count);
        }
        let (first, end, count) = (gone.entry.offset, gone.entry.end(), gone.remaining());
        notices.add(Notice { party: queue.party, kind, first, end, count });
        queues.change_group(handle);
        queues.make_ready(handle);
    }

    /// A receiver takes more messages than before.
    pub(super) fn permit(&mut self, permits: &Permits) {
        let Some(consumer) = self.receivers.consumer_mut(permits.receiver) else { return };
        consumer.permit(permits.messages);
        if let Some(queue) = consumer.queue {
            self.queues.make_ready(queue);
        }
    }

    /// A receiver says something of its entries; where it asks for that, it is told when that is durable.
    pub(super) fn hear(&mut self, arrivals: &Arrivals, settlement: &Settlement) {
        let Settlement { connection, receiver, says, ref numbers, request } = *settlement;
        let numbers = arrivals.numbers.get(numbers.clone()).unwrap_or_default();
        let Some(consumer) = self.receivers.consumer(receiver).filter(|known| known.connection == connection) else {
            return;
        };
        if let Some(queue) = consumer.queue {
            match says {
                Says::Done | Says::DoneUpTo => self.done(queue, says, numbers),
                Says::Again if consumer.counts_redeliveries => self.again(queue, receiver, Some(numbers)),
                Says::Again | Says::AllAgain => self.again(queue, receiver, None),
            }
        }
        if let Some(request) = request {
            let serial = self.receivers.serial_of(connection);
            self.held.until_progress(serial, Departure::Reply(Reply { connection, receiver, request }));
        }
    }

    /// These entries, or all up to and including the highest of them, need not be given out again.
    fn done(&mut self, handle: ids::Queue, says: Says, numbers: &[u64]) {
        let Deliveries { receivers, queues, reports, .. } = self;
        let Some(queue) = queues.get_mut(handle) else { return };
        let mut messages = 0_u64;
        if says == Says::DoneUpTo {
            let last = numbers.iter().copied().max();
            while let Some(first) = queue.cursor.first().filter(|first| Some(first.entry.number) <= last) {
                let number = first.entry.number;
                messages = messages.saturating_add(finish(queue, receivers, number));
            }
        } else {
            for number in numbers {
                messages = messages.saturating_add(finish(queue, receivers, *number));
            }
        }
        if messages > 0 {
            reports.settle(messages);
            queues.change_group(handle);
            queues.make_ready(handle);
        }
    }

    /// What a receiver has goes back to its queue, since it wants it again: all, or what has these numbers.
    fn again(&mut self, handle: ids::Queue, member: ids::Receiver, numbers: Option<&[u64]>) {
        let Deliveries { receivers, queues, .. } = self;
        let Some(consumer) = receivers.consumer_mut(member).filter(|consumer| consumer.unsettled > 0) else { return };
        let Some(queue) = queues.get_mut(handle) else { return };
        let held = match numbers {
            Some(numbers) => {
                let known = numbers.iter().filter_map(|number| queue.cursor.numbered(*number));
                known.filter(|known| known.holder == member).map(|known| known.entry.offset).collect()
            }
            None => held_by(queue, member),
        };
        let counts = consumer.counts_redeliveries;
        take_back(queue, consumer, &held, counts);
        queues.make_ready(handle);
    }
}

/// What a receiver has of a queue, in offset order.
fn held_by(queue: &Queue, member: ids::Receiver) -> Vec<Offset> {
    let held = queue.cursor.deliveries().filter(|held| held.holder == member);
    held.map(|held| held.entry.offset).collect()
}

/// These entries wait to be given out again, as far as the receiver still has them.
fn take_back(queue: &mut Queue, consumer: &mut Consumer, offsets: &[Offset], counts: bool) {
    let Queue { group: Some(group), cursor, .. } = queue else { return };
    let mut is_any = false;
    for offset in offsets.iter().copied() {
        if !cursor.give_back(offset, Timestamp(0)) {
            continue;
        }
        is_any = true;
        if counts {
            cursor.count_redelivery(offset);
        }
        consumer.let_go(cursor.delivery(offset).map_or(0, |back| back.entry.count));
        if let Some(keys) = &mut group.keys {
            keys.ended(offset, true);
        }
    }
    if is_any {
        // Some of it may lie before what is at hand, so all of it is looked up again, in order.
        group.look_again();
    }
}

/// An entry need not be given out again, whoever has it and also while it waits; returns its messages.
#[inline]
fn finish(queue: &mut Queue, receivers: &mut Receivers, number: u64) -> u64 {
    let Queue { group: Some(group), cursor, .. } = queue else { return 0 };
    let held_before = cursor.in_flight_count();
    let Some(known) = cursor.acknowledge_numbered(number) else { return 0 };
    if cursor.in_flight_count() == held_before {
        // It may be at hand to be given out again.
        group.look_again();
        return known.remaining();
    }
    if let Some(keys) = &mut group.keys {
        keys.ended(known.entry.offset, true);
    }
    if let Some(consumer) = receivers.consumer_mut(known.holder) {
        consumer.let_go(known.entry.count);
    }
    known.remaining()
}
