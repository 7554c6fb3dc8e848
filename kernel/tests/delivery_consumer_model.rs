//! Receivers by permits against a model: whatever is published, said, permitted, left, detached and crashed in whatever
//! order, no entry is lost, none is at two of them, none is given without a permit, what came back goes first and in
//! order with its count right, what was done is done for good, and sessions and groups beside them get each message of
//! each entry once and in order.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::as_conversions, clippy::panic, missing_docs)]

mod consumer_world;
mod delivery_support;

use consumer_world::{whole, World, QUEUE};
use delivery_support::reads;
use holdfast_kernel::delivery::members::GroupAttachment;
use holdfast_kernel::delivery::Deliveries;
use holdfast_kernel::flow::entry::{Receipt, Reply, Says};
use holdfast_kernel::flow::state::State;
use holdfast_kernel::flow::{Acknowledgement, Arrivals, Departure, Sending, Step, Terms};
use holdfast_kernel::ids::{Connection, LogPosition, Offset, Party, Receiver};
use holdfast_kernel::mqtt::exchange;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The consumers; the first two share a connection, and the last does not count redeliveries.
const CONNECTIONS: [u32; 4] = [1, 1, 2, 3];
/// One with a queue of its own, on a connection that consumers are on too, and a member of a group.
const SESSIONS: [Connection; 2] = [Connection(1), Connection(4)];

#[derive(Debug, Clone)]
enum Act {
    Publish(Vec<u32>),
    Commit,
    Turn,
    Permit(usize, u32),
    /// Numbers choose among those of the log, and a few behind them.
    Say(usize, Says, Vec<u64>),
    Attach(usize),
    Join(usize),
    Leave(usize),
    Detach(usize),
    SetWritable(u32, bool),
    Crash(usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let who = 0..CONNECTIONS.len();
    let count = prop_oneof![6 => 1..4_u32, 3 => 4..60_u32, 1 => 60..=1_000_u32];
    let says = prop_oneof![
        5 => Just(Says::Done),
        1 => Just(Says::DoneUpTo),
        3 => Just(Says::Again),
        1 => Just(Says::AllAgain),
    ];
    let numbers = proptest::collection::vec(any::<u64>(), 0..8);
    let act = prop_oneof![
        6 => proptest::collection::vec(count, 1..6).prop_map(Act::Publish),
        6 => Just(Act::Commit),
        9 => Just(Act::Turn),
        6 => (who.clone(), 0..80_u32).prop_map(|(who, messages)| Act::Permit(who, messages)),
        9 => (who.clone(), says, numbers).prop_map(|(who, says, numbers)| Act::Say(who, says, numbers)),
        4 => who.clone().prop_map(Act::Attach),
        5 => who.clone().prop_map(Act::Join),
        1 => who.clone().prop_map(Act::Leave),
        1 => who.prop_map(Act::Detach),
        1 => (1..4_u32, any::<bool>()).prop_map(|(connection, takes)| Act::SetWritable(connection, takes)),
        1 => any::<usize>().prop_map(Act::Crash),
    ];
    proptest::collection::vec(act, 1..150)
}

#[derive(Debug, Clone, Copy)]
struct Consumer {
    receiver: Receiver,
    permits: i64,
    has_joined: bool,
    takes: bool,
}

struct Model {
    world: World,
    consumers: [Option<Consumer>; 4],
    unwritable: BTreeSet<u32>,
    /// Who has an entry.
    held: BTreeMap<u64, Receiver>,
    waiting: BTreeSet<u64>,
    /// How often an entry was wanted again.
    again: BTreeMap<u64, u16>,
    done: BTreeSet<u64>,
    /// Everything below was given to somebody since the queue was attached.
    fresh: u64,
    /// What of the queue's progress is durable.
    durable_progress: usize,
    /// The next message of each session.
    next: [u64; 2],
    sessions: [Receiver; 2],
    replies: VecDeque<(Receiver, u64)>,
    requests: u64,
    receipts: u64,
}

impl Model {
    fn new() -> Model {
        let mut model = Model {
            world: World::new(),
            consumers: Default::default(),
            unwritable: BTreeSet::new(),
            held: BTreeMap::new(),
            waiting: BTreeSet::new(),
            again: BTreeMap::new(),
            done: BTreeSet::new(),
            fresh: 0,
            durable_progress: 0,
            next: [0; 2],
            sessions: Default::default(),
            replies: VecDeque::new(),
            requests: 0,
            receipts: 0,
        };
        model.attach_sessions();
        model
    }

    /// They go on where they were.
    fn attach_sessions(&mut self) {
        let world = &mut self.world;
        world.others.clear();
        world.session_at(SESSIONS[0], Party(7), Offset(self.next[0]), 50);
        let (subscriptions, end) = (reads(), world.end());
        let (party, state) = (Party(60), State::new(Offset(self.next[1])));
        let group =
            GroupAttachment { party, owner: party, state, subscriptions, end, sent_before: Offset(0), whole: false };
        let group = world.deliveries.open_group(group);
        world.reader_of_groups(SESSIONS[1], Party(8), 50);
        self.sessions = SESSIONS.map(|connection| world.deliveries.receiver_on(connection).unwrap());
        world.deliveries.join(group, self.sessions[1], Terms { qos: 1, ..Terms::default() }).unwrap();
        world.others.push((group, Connection::GROUP));
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Publish(counts) => self.world.publish(counts),
            Act::Commit => {
                self.world.commit();
                self.durable_progress = self.world.progress.len();
            }
            Act::Turn => self.turn(),
            Act::Permit(who, messages) => self.permit(*who, *messages),
            Act::Say(who, says, chosen) => {
                let all = self.world.records.len() as u64 + 3;
                let numbers: Vec<u64> = chosen.iter().map(|choice| choice % all).collect();
                self.say(*who, *says, &numbers);
            }
            Act::Attach(who) if self.consumers[*who].is_none() => {
                let receiver = self.world.deliveries.attach_consumer(Connection(CONNECTIONS[*who])).unwrap();
                let others = self.consumers.iter().flatten();
                assert!(others.map(|other| other.receiver).chain(self.sessions).all(|other| other != receiver));
                self.consumers[*who] = Some(Consumer { receiver, permits: 0, has_joined: false, takes: false });
            }
            Act::Join(who) => self.join(*who),
            Act::Leave(who) => self.leave(*who),
            Act::Detach(who) => {
                self.leave(*who);
                if let Some(gone) = self.consumers[*who].take() {
                    self.world.deliveries.detach_consumer(gone.receiver).unwrap();
                    assert!(self.world.deliveries.detach_consumer(gone.receiver).is_err());
                }
            }
            Act::SetWritable(connection, takes) => {
                // Of a connection that nobody is on nothing is known.
                if CONNECTIONS.iter().zip(&self.consumers).any(|(on, who)| on == connection && who.is_some()) {
                    self.world.deliveries.set_writable(Connection(*connection), *takes);
                    match takes {
                        true => self.unwritable.remove(connection),
                        false => self.unwritable.insert(*connection),
                    };
                }
            }
            Act::Crash(choice) => self.crash(*choice),
            Act::Attach(_) => {}
        }
    }

    fn permit(&mut self, who: usize, messages: u32) {
        let Some(consumer) = &mut self.consumers[who] else { return };
        consumer.permits += i64::from(messages);
        self.world.permit(consumer.receiver, messages);
    }

    fn join(&mut self, who: usize) {
        let Some(consumer) = &mut self.consumers[who] else { return };
        (consumer.has_joined, consumer.takes) = (true, true);
        self.world.deliveries.join_consumer(self.world.queue, consumer.receiver, counts(who)).unwrap();
    }

    fn leave(&mut self, who: usize) {
        let Some(consumer) = &mut self.consumers[who] else { return };
        consumer.takes = false;
        let receiver = consumer.receiver;
        self.world.deliveries.leave_consumer(self.world.queue, receiver);
        self.back(receiver, |_| true);
    }

    /// What somebody has, and is chosen, waits from now on; returns it.
    fn back(&mut self, from: Receiver, is_chosen: impl Fn(u64) -> bool) -> Vec<u64> {
        let held = self.held.iter().filter(|(number, holder)| **holder == from && is_chosen(**number));
        let numbers: Vec<u64> = held.map(|(number, _)| *number).collect();
        for number in &numbers {
            self.held.remove(number);
            self.waiting.insert(*number);
        }
        numbers
    }

    fn say(&mut self, who: usize, says: Says, numbers: &[u64]) {
        let Some(Consumer { receiver, has_joined, .. }) = self.consumers[who] else { return };
        self.requests += 1;
        self.replies.push_back((receiver, self.requests));
        self.world.say(CONNECTIONS[who], receiver, says, numbers, Some(self.requests));
        if !has_joined {
            return;
        }
        match says {
            Says::Done => numbers.iter().for_each(|number| self.finish(*number)),
            Says::DoneUpTo => {
                let end = numbers.iter().max().map_or(0, |last| last + 1);
                (0..end).for_each(|number| self.finish(number));
            }
            Says::Again | Says::AllAgain => {
                let is_all = says == Says::AllAgain || !counts(who);
                let back = self.back(receiver, |number| is_all || numbers.contains(&number));
                for number in back.into_iter().filter(|_| counts(who)) {
                    *self.again.entry(number).or_default() += 1;
                }
            }
        }
    }

    fn finish(&mut self, number: u64) {
        if self.held.remove(&number).is_some() || self.waiting.remove(&number) {
            self.done.insert(number);
        }
    }

    fn turn(&mut self) {
        for sending in self.world.turn() {
            match self.sessions.iter().position(|session| *session == sending.receiver) {
                Some(session) => self.read(session, &sending),
                None => self.given(&sending),
            }
        }
        for told in std::mem::take(&mut self.world.told) {
            match told {
                Departure::Reply(Reply { receiver, request, .. }) => {
                    assert_eq!(self.replies.pop_front(), Some((receiver, request)));
                }
                Departure::Receipt(Receipt { entry, .. }) => {
                    assert_eq!(entry, self.receipts);
                    assert!(entry < self.world.durable as u64);
                    self.receipts += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        self.check();
    }

    /// A session is sent a message, and acknowledges it.
    fn read(&mut self, session: usize, sending: &Sending) {
        assert_eq!(sending.offset.0, self.next[session]);
        assert!(sending.offset < self.world.durable_end());
        self.next[session] += 1;
        let (connection, packet_identifier) = (SESSIONS[session], sending.packet_identifier);
        let step = Step::Acknowledged;
        let mut arrivals = Arrivals::default();
        arrivals.acknowledgements.push(Acknowledgement { connection, step, packet_identifier, refusal: None });
        self.world.deliveries.admit(&arrivals, LogPosition(0), exchange::next);
    }

    /// A consumer is given an entry.
    fn given(&mut self, sending: &Sending) {
        let number = self.world.number_at(sending.offset);
        let record = self.world.records[number as usize];
        assert_eq!(sending.offset.0, record.offset, "an entry is given whole");
        assert!(number < self.world.durable as u64);
        assert!(!self.done.contains(&number) && !self.held.contains_key(&number));
        let comes_back = self.waiting.pop_first();
        let next = (self.fresh..).find(|number| !self.done.contains(number)).unwrap();
        assert_eq!(number, comes_back.unwrap_or(next), "what came back goes first, and all in order");
        if comes_back.is_none() {
            self.fresh = number + 1;
        }
        let who = self.consumers.iter().position(|who| who.is_some_and(|who| who.receiver == sending.receiver));
        let who = who.unwrap();
        let consumer = self.consumers[who].as_mut().unwrap();
        assert!(consumer.takes && consumer.permits > 0 && !self.unwritable.contains(&CONNECTIONS[who]));
        assert_eq!(sending.connection, Connection(CONNECTIONS[who]));
        let wanted = self.again.get(&number).copied().unwrap_or_default();
        assert_eq!(sending.redeliveries, if counts(who) { wanted } else { 0 });
        consumer.permits -= i64::from(record.count);
        self.held.insert(number, sending.receiver);
    }

    fn messages_of(&self, numbers: impl Iterator<Item = u64>) -> u64 {
        numbers.map(|number| u64::from(self.world.records[number as usize].count)).sum()
    }

    fn check(&mut self) {
        let state = self.world.deliveries.group_state(self.world.queue).unwrap();
        let covers = |offset: u64| offset < state.mark.0 || state.acknowledged.contains(offset);
        for (number, record) in self.world.records.iter().enumerate() {
            let is_done = self.done.contains(&(number as u64));
            assert_eq!(covers(record.offset), is_done, "entry {number}");
            assert_eq!(covers(record.offset + u64::from(record.count) - 1), is_done, "entry {number}");
        }
        let rows = self.world.deliveries.consumers(self.world.queue).unwrap();
        for consumer in self.consumers.iter().flatten().filter(|consumer| consumer.takes) {
            let row = rows.iter().find(|row| row.receiver == consumer.receiver).unwrap();
            let held = self.held.iter().filter(|(_, holder)| **holder == consumer.receiver);
            assert_eq!(row.permits, consumer.permits);
            assert_eq!(row.in_flight, self.messages_of(held.map(|(number, _)| *number)));
        }
        let (_, waiting) = self.world.deliveries.backlog(self.world.queue).unwrap();
        assert_eq!(waiting as u64, self.messages_of(self.waiting.iter().copied()));
    }

    /// What is not durable is lost, and of the progress behind the last commit any part; whoever was there is gone.
    fn crash(&mut self, choice: usize) {
        let world = &mut self.world;
        world.records.truncate(world.durable);
        let doubtful = world.progress.len() - self.durable_progress;
        world.progress.truncate(self.durable_progress + choice % (doubtful + 1));
        self.durable_progress = world.progress.len();
        let mut state = State::default();
        world.progress.iter().filter(|(party, _)| *party == QUEUE).for_each(|(_, value)| {
            state.apply(value).unwrap();
        });
        let covers = |offset: u64| offset < state.mark.0 || state.acknowledged.contains(offset);
        let records = world.records.iter().enumerate();
        let done: BTreeSet<u64> =
            records.filter(|(_, record)| covers(record.offset)).map(|(number, _)| number as u64).collect();
        assert!(done.is_subset(&self.done), "what nobody is done with is not done");
        self.done = done;
        world.deliveries = Deliveries::default();
        world.queue = world.deliveries.open_group(whole(QUEUE, state, world.end().0));
        self.consumers = Default::default();
        self.receipts = self.world.durable as u64;
        self.fresh = 0;
        self.unwritable.clear();
        self.held.clear();
        self.waiting.clear();
        self.again.clear();
        self.replies.clear();
        self.attach_sessions();
    }

    /// Everybody takes all there is and is done with it.
    fn finish_all(&mut self) {
        for connection in CONNECTIONS {
            self.world.deliveries.set_writable(Connection(connection), true);
        }
        self.unwritable.clear();
        self.act(&Act::Attach(0));
        self.act(&Act::Join(0));
        self.act(&Act::Commit);
        for _ in 0..20_000 {
            if let Some(consumer) = self.consumers[0].filter(|consumer| consumer.permits <= 0) {
                self.permit(0, consumer.permits.unsigned_abs() as u32 + 1_000);
            }
            self.turn();
            let held: Vec<u64> = self.held.keys().copied().collect();
            self.say(0, Says::Done, &held);
            if self.next == [self.world.end().0; 2] && self.done.len() == self.world.records.len() {
                break;
            }
        }
        self.turn();
        self.turn();
        assert_eq!(self.done.len(), self.world.records.len(), "nothing is lost");
        assert_eq!(self.world.deliveries.mark(self.world.queue).unwrap(), self.world.end());
        assert_eq!(self.next, [self.world.end().0; 2]);
        assert_eq!(self.receipts, self.world.records.len() as u64);
        assert!(self.replies.is_empty() && !self.world.deliveries.is_waiting());
    }
}

fn counts(who: usize) -> bool {
    who + 1 < CONNECTIONS.len()
}

proptest! {
    #[test]
    fn entries_are_each_at_one_receiver_until_they_are_done(acts in acts()) {
        let mut model = Model::new();
        for act in &acts {
            model.act(act);
        }
        model.finish_all();
    }
}

#[test]
fn a_connection_is_at_rest_until_something_waits_for_room_that_it_frees() {
    let mut world = World::new();
    let one = world.consumer(1, 3);
    let is_at_rest = |world: &World| world.deliveries.is_at_rest(Connection(1));
    assert!(is_at_rest(&world));
    world.publish(&[3, 4]);
    assert!(is_at_rest(&world), "what is not durable waits for the disk");
    world.commit();
    assert_eq!(world.turns().len(), 1);
    assert!(!is_at_rest(&world), "the second entry waits for permits");
    assert!(world.deliveries.is_at_rest(Connection(2)), "of another connection nobody wants an answer");
    world.permit(one, 1);
    assert_eq!(world.turns().len(), 1);
    assert!(is_at_rest(&world));
    world.say(1, one, Says::AllAgain, &[], None);
    assert!(!is_at_rest(&world), "what has come back waits");
}
