//! One attached queue: its cursor, and the entries it has at hand.
//!
//! Owns: which record comes next. Never: packet identifiers, sockets, or record bytes.
//!
//! A queue has everything below `listed` at hand (or behind it) and is *behind* while `listed < behind_until`: then it
//! reads the log. Otherwise it is at the tail and new messages are offered to it as they become durable. When its
//! entries are full it falls behind again: the log keeps what memory does not.

use super::cursor::{Cursor, Entry};
use super::keys::Keys;
use super::members::Group;
use crate::error::{Error, Result};
use crate::flow::state::{Flight, Owed, OwedFilter, Phase, Source, State};
use crate::flow::{Found, NoticeKind, Scan, Subscription};
use crate::ids::{self, Connection, Offset, Party, Timestamp};
use crate::limits;
use crate::topic::grant::Grant;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// What became of an offered record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offered {
    /// It is at hand.
    Taken,
    /// The queue is behind and will read it from the log.
    Later,
    /// The queue does not read again and is full: it is skipped.
    Skipped,
}

/// One attached queue.
#[derive(Debug)]
pub struct Queue {
    /// Whose queue.
    pub party: Party,
    /// Whose own messages No Local leaves out: the party's, or of those whose queue this stands in for.
    pub owner: Party,
    /// Where what is routed to it at QoS 0 goes; [`Connection::GROUP`] for a group's.
    pub connection: Connection,
    /// Who takes from it; nobody if it is a group's, whose members do.
    pub receiver: Option<ids::Receiver>,
    /// Positions, acknowledgements.
    pub cursor: Cursor,
    /// Records at hand, in offset order.
    pub entries: VecDeque<Found>,
    /// Retained messages to look up.
    pub owed: VecDeque<Owed>,
    /// Further ones, by the filters that the log is to look them up with.
    pub owed_filters: BTreeMap<Vec<u8>, OwedFilter>,
    /// Retained messages at hand; their terms come from the subscription that asked for them.
    pub owed_entries: VecDeque<(Found, Owed)>,
    /// Offsets that are in flight since an earlier connection: their packet identifiers, and whether found again.
    pub resumed: BTreeMap<Offset, Resumed>,
    /// The same for retained messages.
    pub resumed_owed: BTreeMap<Offset, u16>,
    /// What groups have given to this receiver and is to be sent again, to be looked up: packet identifier, offset.
    pub handed: VecDeque<(u16, Offset)>,
    /// The same at hand.
    pub handed_entries: VecDeque<(Found, u16)>,
    /// What it has beside this if several receivers take from it.
    pub group: Option<Group>,
    /// True while it is on the list of those that get a turn.
    pub is_ready: bool,
    /// What lies below may have been sent, if it is a group's at all, else at QoS 1.
    pub(super) sent_before: Offset,
    pub(super) subscriptions: Arc<[Subscription]>,
    receive: Option<Grant>,
    listed: Offset,
    behind_until: Offset,
    entries_maximum: usize,
    reads_again: bool,
}

/// A message in flight since an earlier connection.
#[derive(Debug, Clone, Copy)]
pub struct Resumed {
    /// Its packet identifier.
    pub packet_identifier: u16,
    /// Its QoS then.
    pub qos: u8,
    /// True once the log has given the record again.
    pub is_found: bool,
}

impl Queue {
    /// The queue of `party` as `state` left it, with everything up to `end` still to be read. With `entries_maximum` 0
    /// the queue reads the log again when it falls behind; else it keeps that many entries and skips what is beyond.
    pub fn resume(
        party: Party,
        connection: Connection,
        state: &State,
        subscriptions: Arc<[Subscription]>,
        end: Offset,
        entries_maximum: usize,
    ) -> Queue {
        let published = || state.flights.iter().filter(|(_, flight)| flight.phase == Phase::Sent);
        Queue {
            party,
            owner: party,
            connection,
            receiver: None,
            cursor: Cursor::restore(state.mark, state.acknowledged.clone()),
            entries: VecDeque::new(),
            owed: state.owed.iter().cloned().collect(),
            owed_filters: state.owed_filters.clone(),
            owed_entries: VecDeque::new(),
            resumed: published()
                .filter(|(_, flight)| flight.source == Source::Queue)
                .map(|(identifier, flight)| {
                    (flight.offset, Resumed { packet_identifier: *identifier, qos: flight.qos, is_found: false })
                })
                .collect(),
            resumed_owed: published()
                .filter(|(_, flight)| flight.source == Source::Retained)
                .map(|(identifier, flight)| (flight.offset, *identifier))
                .collect(),
            handed: published()
                .filter(|(_, flight)| matches!(flight.source, Source::Group(_)) && flight.qos == 2)
                .map(|(identifier, flight)| (*identifier, flight.offset))
                .collect(),
            handed_entries: VecDeque::new(),
            group: None,
            is_ready: false,
            sent_before: Offset(0),
            subscriptions,
            receive: None,
            listed: state.mark,
            behind_until: end.max(state.mark),
            entries_maximum: if entries_maximum == 0 { limits::QUEUE_ENTRIES_MAXIMUM } else { entries_maximum },
            reads_again: entries_maximum == 0,
        }
    }

    /// Replaces the subscriptions that reading the log goes by, the first `kept` apart; what is not owed any more.
    pub fn set_subscriptions(&mut self, kept: usize, others: &[Subscription]) -> Result<BTreeMap<Vec<u8>, OwedFilter>> {
        let all = self.subscriptions.len();
        let first = self.subscriptions.get(..kept).ok_or_else(|| Error::Invalid(format!("{kept} kept of {all}")))?;
        self.subscriptions = [first, others].concat().into();
        Ok(if kept == all { BTreeMap::new() } else { self.drop_unsubscribed() })
    }

    /// Replaces what the queue may get; what is at hand and not sent is read again by that.
    pub fn grant(&mut self, receive: Option<Grant>) {
        self.receive = receive;
        if let Some(first) = self.entries.front().map(|found| found.offset) {
            self.read_again(first);
        }
        for (_, owed) in self.owed_entries.drain(..).rev() {
            self.owed.push_front(owed);
        }
    }

    /// These messages are sent again under their packet identifiers, before anything new.
    pub fn send_again(&mut self, flights: &[(u16, Flight)]) {
        for (packet_identifier, flight) in flights.iter().copied() {
            if flight.source == Source::Queue {
                let resumed = Resumed { packet_identifier, qos: flight.qos, is_found: false };
                self.resumed.insert(flight.offset, resumed);
            } else {
                self.handed.retain(|(known, _)| *known != packet_identifier);
                self.handed_entries.retain(|(_, known)| *known != packet_identifier);
                self.handed.push_back((packet_identifier, flight.offset));
            }
        }
        if let Some((first, _)) = self.resumed.first_key_value() {
            let at_hand = self.entries.front().map_or(*first, |found| found.offset);
            self.read_again(at_hand.min(*first));
        }
    }

    /// What is at hand, and what is stored before `end`, is read from the log.
    pub fn read_from_log(&mut self, end: Offset) {
        self.read_again(self.entries.front().map_or(self.listed, |found| found.offset));
        self.behind_until = self.behind_until.max(end);
    }

    fn read_again(&mut self, first: Offset) {
        self.behind_until = self.behind_until.max(self.listed);
        self.listed = first;
        self.entries.clear();
        self.resumed.values_mut().for_each(|resumed| resumed.is_found = false);
    }

    /// Why a message that was in flight is not in the log: its grant tells, where there is one.
    pub fn gone_because(&self) -> NoticeKind {
        if self.receive.is_some() {
            NoticeKind::Denied
        } else {
            NoticeKind::Retention
        }
    }

    /// A record that has become durable and that a subscription wants.
    pub fn offer(&mut self, found: Found) -> Offered {
        let end = Offset(found.offset.0.saturating_add(u64::from(found.count)));
        if self.is_behind() {
            self.behind_until = self.behind_until.max(end);
            return Offered::Later;
        }
        if self.entries.len() < self.entries_maximum {
            self.listed = end;
            self.entries.push_back(found);
            return Offered::Taken;
        }
        if self.reads_again {
            self.behind_until = end;
            return Offered::Later;
        }
        Offered::Skipped
    }

    /// What is stored before `end` is read from the log, as is what comes before it.
    pub fn read_up_to(&mut self, end: Offset) {
        self.behind_until = self.behind_until.max(end);
    }

    /// Below it everything that it wants has been read from the log.
    pub fn polled_to(&self) -> Offset {
        self.listed
    }

    /// True while records below `behind_until` have to be read from the log.
    pub fn is_behind(&self) -> bool {
        self.listed < self.behind_until
    }

    /// True if the queue needs anything of the log that is durable.
    pub fn needs_log(&self, durable: Offset) -> bool {
        self.reads(durable) || self.looks_up(durable)
    }

    /// What to ask the log for.
    pub fn scan(&self, handle: ids::Queue, durable: Offset) -> Scan {
        let reads = self.reads(durable);
        let room = self.entries_maximum.saturating_sub(self.entries.len());
        Scan {
            queue: handle,
            owner: self.owner,
            subscriptions: if reads { Arc::clone(&self.subscriptions) } else { Arc::from([]) },
            receive: self.receive.clone(),
            whole: self.is_whole(),
            key: self.group.as_ref().and_then(|group| Some(group.keys.as_ref()?.key.clone())),
            from: self.listed,
            owed: self.singles(durable),
            retained: if self.looks_up_retained(durable) { self.next_owed_filter() } else { None },
            records_maximum: if reads { u32::try_from(room).unwrap_or(u32::MAX) } else { 0 },
            bytes_maximum: limits::SCAN_BYTES_MAXIMUM,
            found: Vec::new(),
            found_owed: Vec::new(),
            reached: self.listed,
            missing: None,
        }
    }

    fn reads(&self, durable: Offset) -> bool {
        self.is_behind() && self.listed < durable && self.entries.len() < self.entries_maximum / 2
    }

    fn looks_up(&self, durable: Offset) -> bool {
        let returned = self.group.as_ref().is_some_and(|group| group.returned.is_empty() && group.looks_on());
        self.looks_up_handed() || self.looks_up_retained(durable) || returned && self.has_returned()
    }

    fn looks_up_retained(&self, durable: Offset) -> bool {
        let is_free = self.owed_entries.is_empty() && !self.looks_up_handed();
        is_free && self.next_owed().is_some_and(|offset| offset < durable)
    }

    fn looks_up_handed(&self) -> bool {
        self.handed_entries.is_empty() && !self.handed.is_empty()
    }

    /// True if the next retained message is not durable yet: the log does not give it before.
    pub fn owes_beyond(&self, durable: Offset) -> bool {
        self.next_owed().is_some_and(|offset| offset >= durable)
    }

    /// Single records to look up next, of one kind.
    fn singles(&self, durable: Offset) -> Vec<Offset> {
        if !self.looks_up(durable) {
            Vec::new()
        } else if self.looks_up_handed() {
            self.handed.iter().map(|(_, offset)| *offset).take(limits::OWED_PAGE_MAXIMUM).collect()
        } else if let Some(group) = &self.group {
            self.cursor.redeliveries().skip(group.waiting()).take(limits::OWED_PAGE_MAXIMUM).collect()
        } else {
            let owed = self.owed.iter().map(|owed| owed.offset);
            owed.take_while(|offset| *offset < durable).take(limits::OWED_PAGE_MAXIMUM).collect()
        }
    }

    /// True if it is given entries as they are; else each of their messages by itself.
    pub fn is_whole(&self) -> bool {
        self.group.as_ref().is_some_and(|group| group.is_whole)
    }

    /// True if a record is at hand.
    pub fn has_entries(&self) -> bool {
        let returned = self.group.as_ref().is_some_and(|group| !group.returned.is_empty());
        !self.entries.is_empty() || !self.owed_entries.is_empty() || !self.handed_entries.is_empty() || returned
    }

    /// True if there is something for the receiver beside what is new: messages to be sent again, retained ones.
    pub fn has_beside(&self, durable: Offset) -> bool {
        let at_hand = !self.owed_entries.is_empty() || !self.handed_entries.is_empty();
        at_hand || !self.resumed.is_empty() || self.looks_up(durable)
    }

    /// True if what comes next is a message in flight since an earlier connection, at hand or still to be found.
    pub fn goes_on_again(&self) -> bool {
        if !self.handed_entries.is_empty() || !self.handed.is_empty() {
            return true;
        }
        if let Some((_, owed)) = self.owed_entries.front() {
            return self.resumed_owed.contains_key(&owed.offset);
        }
        match self.entries.front() {
            Some(found) => self.resumed.contains_key(&found.offset),
            None => !self.resumed.is_empty() || !self.resumed_owed.is_empty(),
        }
    }

    /// True if the log has, or may have, more for it.
    pub fn reads_on(&self) -> bool {
        self.is_behind() || self.next_owed().is_some() || !self.handed.is_empty() || self.has_returned()
    }

    /// True if something of what came back to a group is neither sent again nor waits at hand for its key.
    pub fn has_returned(&self) -> bool {
        self.group.as_ref().is_some_and(|group| self.cursor.redelivery_count() > group.waiting())
    }

    /// Where the keys are, if it is a group's that gives each key to one member.
    pub fn keys(&mut self) -> Option<&mut Keys> {
        self.group.as_mut().and_then(|group| group.keys.as_mut())
    }

    /// Takes what the log found. Returns the packet identifiers of resumed messages that are gone from the log, with
    /// their offsets.
    pub fn feed(&mut self, scan: &mut Scan) -> Vec<(u16, Offset)> {
        for found in scan.found.drain(..) {
            let resumed = self.resumed.get_mut(&found.offset);
            let is_resumed = resumed.is_some();
            if let Some(resumed) = resumed {
                resumed.is_found = true;
            }
            if is_resumed || found.qos.min(found.terms.qos) > 0 && self.cursor.wants(&entry_of(&found)) {
                self.entries.push_back(found);
            }
        }
        self.listed = self.listed.max(scan.reached);
        let mut gone = Vec::new();
        for (offset, resumed) in &self.resumed {
            if *offset < self.listed && !resumed.is_found {
                gone.push((resumed.packet_identifier, *offset));
            }
        }
        for (_, offset) in &gone {
            self.resumed.remove(offset);
        }
        if self.looks_up_handed() {
            for found in scan.found_owed.drain(..) {
                let Some((identifier, offset)) = self.handed.pop_front() else { break };
                match found {
                    Some(found) => self.handed_entries.push_back((found, identifier)),
                    None => gone.push((identifier, offset)),
                }
            }
        }
        for found in scan.found_owed.drain(..) {
            let Some(owed) = self.owed.pop_front() else { break };
            match (found, self.resumed_owed.get(&owed.offset)) {
                (Some(found), _) => self.owed_entries.push_back((found, owed)),
                (None, Some(identifier)) => gone.push((*identifier, owed.offset)),
                (None, None) => {}
            }
        }
        gone
    }

    /// Nothing that the queue wants lies between its entries and `durable`, if it is at the tail: its mark may follow.
    pub fn catch_up_mark(&mut self, durable: Offset) {
        if !self.is_behind() && self.entries.is_empty() {
            self.listed = self.listed.max(durable);
            self.behind_until = self.behind_until.max(durable);
            self.cursor.pass(durable);
        }
    }
}

/// The record as the cursor sees it.
pub fn entry_of(found: &Found) -> Entry {
    let Found { offset, count, entry: number, key_slot, .. } = *found;
    Entry { offset, count, number, key_slot, not_before: Timestamp(0) }
}
