//! What will not be delivered, range-coded until the caller collects it.

use crate::flow::{Notice, NoticeKind};
use crate::ids::{Offset, Party};
use crate::limits;
use std::collections::BTreeMap;

/// Notices since the last collection; adjoining ranges of one party and reason are one.
#[derive(Debug, Default)]
pub struct Notices {
    by_reason: BTreeMap<(Party, NoticeKind), Vec<Notice>>,
}

impl Notices {
    /// Adds a notice: it extends the last one of its kind where it adjoins, or where there are too many.
    pub fn add(&mut self, notice: Notice) {
        let ranges = self.by_reason.entry((notice.party, notice.kind)).or_default();
        let is_full = ranges.len() >= limits::NOTICE_RANGES_MAXIMUM;
        match ranges.last_mut() {
            Some(last) if is_full || last.end == notice.first => {
                last.end = last.end.max(notice.end);
                last.count = last.count.saturating_add(notice.count);
            }
            _ => ranges.push(notice),
        }
    }

    /// The same of one message.
    pub fn add_one(&mut self, party: Party, kind: NoticeKind, first: Offset) {
        self.add(Notice { party, kind, first, end: Offset(first.0.saturating_add(1)), count: 1 });
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.by_reason.is_empty()
    }

    /// All of them; none are left.
    pub fn take(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.by_reason).into_values().flatten().collect()
    }
}
