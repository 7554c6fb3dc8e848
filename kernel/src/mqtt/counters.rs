//! What the sending side counts: what it sent, and what it dropped, for whom and why.

use crate::flow::NoticeKind;
use crate::ids::Party;
use std::collections::BTreeMap;

/// What was sent and dropped since the start.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub publishes_sent: u64,
    pub payload_bytes_sent: u64,
    pub acknowledgements_sent: u64,
    pub pings_answered: u64,
    pub bytes_encoded: u64,
    pub dropped_slow_reader: u64,
    pub dropped_too_large: u64,
    pub dropped_expired: u64,
    pub dropped_retention: u64,
    pub dropped_carrying: u64,
    pub dropped_closed: u64,
}

impl Counters {
    /// So many messages more were dropped.
    pub(super) fn count_dropped(&mut self, kind: NoticeKind, count: u64) {
        let counter = match kind {
            NoticeKind::Expired => &mut self.dropped_expired,
            NoticeKind::TooLarge => &mut self.dropped_too_large,
            NoticeKind::SlowReader | NoticeKind::Overflow => &mut self.dropped_slow_reader,
            NoticeKind::Retention => &mut self.dropped_retention,
            NoticeKind::Closed => &mut self.dropped_closed,
            _ => &mut self.dropped_carrying,
        };
        *counter += count;
    }
}

/// What was dropped, for whom and why.
pub(super) type Dropped = BTreeMap<(Party, NoticeKind), u64>;

/// So many messages are not sent to somebody, who is told why.
pub(super) fn drop_messages(into: &mut Dropped, counters: &mut Counters, party: Party, kind: NoticeKind, count: u64) {
    if count > 0 {
        *into.entry((party, kind)).or_default() += count;
        counters.count_dropped(kind, count);
    }
}
