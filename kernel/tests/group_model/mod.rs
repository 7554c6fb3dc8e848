//! What the model of a group is made of: what is done to it, its members as they see themselves, what is published,
//! and how members are chosen.

use holdfast_kernel::delivery::{Attachment, Deliveries};
use holdfast_kernel::flow::state::State;
use holdfast_kernel::flow::Step;
use holdfast_kernel::ids::{Connection, Offset, Party};
use holdfast_kernel::selection::{Key, Owners, Selection};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub const KEYS: u16 = 4;
/// The second gets QoS 1 at most; the third's session ends with its connection.
pub const MEMBERS: [(Party, u8); 3] = [(Party(7), 2), (Party(8), 1), (Party(Party::TRANSIENT.0 + 1), 2)];

#[derive(Debug, Clone)]
pub enum Act {
    Publish { qos: u8, count: u8 },
    Commit,
    Turn,
    Acknowledge { member: usize, newest: bool, count: u8 },
    Connect { member: usize, receive_maximum: u8 },
    Disconnect { member: usize },
    Subscribe { member: usize },
    Unsubscribe { member: usize },
    Retry { member: usize },
    GiveUp { member: usize, keeps_identifiers: bool },
    Crash { torn: u8 },
}

pub fn steps() -> impl Strategy<Value = Vec<Act>> {
    let member = 0..MEMBERS.len();
    let step = prop_oneof![
        4 => (1..=2_u8, 1..20_u8).prop_map(|(qos, count)| Act::Publish { qos, count }),
        5 => Just(Act::Commit),
        9 => Just(Act::Turn),
        9 => (member.clone(), any::<bool>(), 1..10_u8)
            .prop_map(|(member, newest, count)| Act::Acknowledge { member, newest, count }),
        4 => (member.clone(), 1..12_u8)
            .prop_map(|(member, receive_maximum)| Act::Connect { member, receive_maximum }),
        2 => member.clone().prop_map(|member| Act::Disconnect { member }),
        3 => member.clone().prop_map(|member| Act::Subscribe { member }),
        1 => member.clone().prop_map(|member| Act::Unsubscribe { member }),
        2 => member.clone().prop_map(|member| Act::Retry { member }),
        1 => (member, any::<bool>())
            .prop_map(|(member, keeps_identifiers)| Act::GiveUp { member, keeps_identifiers }),
        1 => (0..4_u8).prop_map(|torn| Act::Crash { torn }),
    ];
    proptest::collection::vec(step, 1..150)
}

#[derive(Default)]
pub struct Member {
    pub attached: bool,
    pub subscribed: bool,
    pub receive_maximum: usize,
    pub unanswered: Vec<(u16, Step)>,
    pub open: BTreeSet<u16>,
    /// What it has by packet identifier: message and QoS. A persistent session keeps those of QoS 2.
    pub has: BTreeMap<u16, (u64, u8)>,
    /// Of its pack: how many messages it was given, which of them are pending, and of those the ones that must come
    /// again before anything new.
    pub taken: usize,
    pub pending: BTreeMap<u16, u64>,
    pub again: BTreeSet<u16>,
    /// Nothing is added to the pack.
    pub is_closed: bool,
    /// Of that, what was sent on this connection and is neither acknowledged nor received.
    pub unreceived: BTreeSet<u64>,
}

impl Member {
    /// A connection begins with this in flight: it is the first pack.
    pub fn resume(&mut self, pending: BTreeMap<u16, u64>) {
        (self.taken, self.is_closed) = (pending.len(), !pending.is_empty());
        self.pending = pending;
    }

    pub fn finish(&mut self, packet_identifier: u16) {
        if self.pending.remove(&packet_identifier).is_some() && self.pending.is_empty() {
            self.commit();
        }
    }

    pub fn commit(&mut self) {
        (self.taken, self.is_closed) = (0, false);
        self.pending.clear();
        self.again.clear();
    }

    /// The connection has ended; only a persistent session remembers what it received at QoS 2.
    pub fn cut(&mut self, is_kept: bool) {
        self.unanswered.clear();
        self.unreceived.clear();
        self.open.clear();
        self.commit();
        self.has.retain(|_, (_, qos)| is_kept && *qos == 2);
    }
}

pub fn turns(_: &[Connection]) -> Selection<Connection> {
    Selection::Turns
}

pub fn least_loaded(_: &[Connection]) -> Selection<Connection> {
    Selection::LeastLoaded
}

pub fn stay(_: &[Connection]) -> Selection<Connection> {
    Selection::Stay
}

pub fn by_key(members: &[Connection]) -> Selection<Connection> {
    let slots = (0..u32::from(KEYS)).zip(members.iter().cycle());
    let ranges = slots.map(|(slot, member)| (slot, slot + 1, *member)).collect();
    Selection::ByKey(Key::Publisher, Arc::new(Owners::new(ranges).unwrap()))
}

pub fn attach_publisher(deliveries: &mut Deliveries) {
    let attachment = Attachment {
        party: Party::TRANSIENT,
        state: State::default(),
        subscriptions: Arc::from([]),
        receive_maximum: 1,
        end: Offset(0),
        entries_maximum: 1,
        pack_maximum: 0,
    };
    deliveries.attach(Connection(0), attachment).unwrap();
}

/// Messages have few keys, in no order.
pub fn key_of(offset: u64) -> u16 {
    (offset * offset / 3 % u64::from(KEYS)) as u16
}
