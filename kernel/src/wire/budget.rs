//! How fast all connections together are read, whatever protocol they speak: one rate for the inboxes of all of them.
//!
//! Owns: what is left, and which inbox has to let another one go first. Never: decides what is decoded for it.
//!
//! Invariants:
//! 1. What one inbox takes is gone for the others.
//! 2. The inbox that took last takes nothing while another one waits: a protocol does not starve beside another.

use super::rate::Rate;
use crate::ids::Timestamp;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One inbox's part in it; without others beside it, all of it.
#[derive(Debug, Default)]
pub struct Budget {
    of_all: Arc<Mutex<OfAll>>,
    number: usize,
}

#[derive(Debug, Default)]
struct OfAll {
    /// `None` while an inbox decodes with it, and where there is no limit.
    rate: Option<Rate>,
    /// Nothing is left.
    is_spent: bool,
    /// Inboxes that have more to decode than they could.
    waiting: BTreeSet<usize>,
    /// The inbox that took last.
    last: usize,
}

impl Budget {
    /// For another inbox, the next one behind this: both take from the same.
    pub fn beside(&self) -> Budget {
        Budget { of_all: Arc::clone(&self.of_all), number: self.number.saturating_add(1) }
    }

    /// So much may be taken by all from now on.
    pub fn set(&self, rate: Option<Rate>) {
        *self.of_all() = OfAll { rate, ..OfAll::default() };
    }

    /// It is `now`, and this inbox decodes: hands out what it takes from, without anything where nothing is limited.
    /// `None`: it is another one's turn.
    pub fn begin(&self, now: Timestamp) -> Option<Option<Rate>> {
        let mut of_all = self.of_all();
        let others_wait = of_all.waiting.iter().any(|number| *number != self.number);
        if of_all.rate.is_some() && of_all.last == self.number && others_wait {
            return None;
        }
        if let Some(rate) = &mut of_all.rate {
            rate.advance(now);
        }
        Some(of_all.rate.take())
    }

    /// It has decoded, and taken something or not, and has more to decode or not.
    pub fn end(&self, rate: Option<Rate>, has_taken: bool, waits: bool) {
        let mut of_all = self.of_all();
        of_all.is_spent = rate.as_ref().is_some_and(Rate::is_spent);
        if has_taken {
            of_all.last = self.number;
        }
        if waits && rate.is_some() {
            of_all.waiting.insert(self.number);
        } else {
            of_all.waiting.remove(&self.number);
        }
        of_all.rate = rate;
    }

    /// True if nothing is left: who waits, waits for the time.
    pub fn is_spent(&self) -> bool {
        self.of_all().is_spent
    }

    /// When there will be something again, if nothing is left.
    pub fn next_at(&self) -> Option<Timestamp> {
        let of_all = self.of_all();
        of_all.rate.as_ref().filter(|_| of_all.is_spent).map(Rate::next_at)
    }

    fn of_all(&self) -> MutexGuard<'_, OfAll> {
        self.of_all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
