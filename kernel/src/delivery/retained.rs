//! Retained messages that new subscriptions are owed, beside a queue's own order.
//!
//! Owns: which filters have how much still to be looked up, and the one page that is at hand. Never: knows what is
//! retained; the log looks it up.
//!
//! Invariants:
//! 1. However much a queue is owed, it holds its filters and [`crate::limits::OWED_PAGE_MAXIMUM`] messages.
//! 2. A filter is owed once: subscribing to it again begins again.
//! 3. What a durable party is owed at QoS 1 and 2 outlives its connection, and so does what it has of it.

use super::queue::Queue;
use super::Deliveries;
use crate::error::Result;
use crate::flow::state::{Changes, Owed, OwedFilter};
use crate::flow::Scan;
use crate::ids::{self, Offset};
use std::collections::{BTreeMap, BTreeSet};

impl Deliveries {
    /// The queue gets the retained messages that the filter matches, with RETAIN set, before new ones.
    pub fn owe(&mut self, handle: ids::Queue, filter: Vec<u8>, owed: OwedFilter) -> Result<()> {
        let queue = self.queues.find(handle)?;
        let receiver = queue.receiver;
        queue.owed_filters.insert(filter.clone(), owed.clone());
        if let Some(receiver) = receiver {
            self.receivers.change(receiver, |changes| remember(changes, filter, owed));
        }
        self.queues.make_ready(handle);
        Ok(())
    }

    /// Takes the page of retained messages that the log has looked up.
    pub(super) fn feed_retained(&mut self, scan: &mut Scan) {
        let Some((filter, owed)) = scan.retained.take() else { return };
        let Some(queue) = self.queues.get_mut(scan.queue) else { return };
        let receiver = queue.receiver;
        let mut page = Vec::new();
        for found in scan.found_owed.drain(..).flatten() {
            let one = Owed { offset: found.offset, qos: owed.qos, identifier: owed.identifier };
            page.extend((one.qos > 0).then(|| one.clone()));
            queue.owed_entries.push_back((found, one));
        }
        match owed.from < owed.until {
            true => queue.owed_filters.insert(filter.clone(), owed.clone()),
            false => queue.owed_filters.remove(&filter),
        };
        if let Some(receiver) = receiver {
            self.receivers.change(receiver, |changes| {
                changes.owed.extend(page);
                remember(changes, filter, owed);
            });
        }
    }

    /// What its queue does not subscribe to any more it is not owed any more [MQTT-3.10.4-2].
    pub(super) fn forget_owed(&mut self, receiver: Option<ids::Receiver>, dropped: BTreeMap<Vec<u8>, OwedFilter>) {
        if let Some(receiver) = receiver.filter(|_| !dropped.is_empty()) {
            self.receivers.change(receiver, |changes| {
                for (filter, owed) in dropped {
                    remember(changes, filter, OwedFilter { from: owed.until, ..owed });
                }
            });
        }
    }
}

impl Queue {
    /// The offset of the next retained message, or from which the next is to be looked for.
    pub(super) fn next_owed(&self) -> Option<Offset> {
        let single = self.owed.front().map(|owed| owed.offset);
        single.or_else(|| self.owed_filters.values().next().map(|owed| owed.from))
    }

    /// What the log is to look up of retained messages, where no single ones are known.
    pub(super) fn next_owed_filter(&self) -> Option<(Vec<u8>, OwedFilter)> {
        let first = self.owed_filters.iter().next().filter(|_| self.owed.is_empty());
        first.map(|(filter, owed)| (filter.clone(), owed.clone()))
    }

    /// What is owed for filters that are not in force is dropped, and handed out.
    pub(super) fn drop_unsubscribed(&mut self) -> BTreeMap<Vec<u8>, OwedFilter> {
        if self.owed_filters.is_empty() {
            return BTreeMap::new();
        }
        let in_force = self.subscriptions.iter().filter(|subscription| subscription.until == Offset(u64::MAX));
        let filters: BTreeSet<&[u8]> = in_force.map(|subscription| subscription.filter.as_slice()).collect();
        let owed = std::mem::take(&mut self.owed_filters).into_iter();
        let (kept, dropped) = owed.partition(|(filter, _)| filters.contains(filter.as_slice()));
        self.owed_filters = kept;
        dropped
    }
}

/// At QoS 0 nothing is owed once the connection has ended; what was before at another QoS is not any more.
fn remember(changes: &mut Changes, filter: Vec<u8>, owed: OwedFilter) {
    let from = if owed.qos == 0 { owed.until } else { owed.from };
    changes.owed_filters.push((filter, OwedFilter { from, ..owed }));
}
