//! How fast may be read: token buckets, filled by the time that is handed in.
//!
//! Owns: what is left of an allowance. Never: decides what follows when nothing is (a connection's own limit is a
//! fault, the limit of all slows reading down).
//!
//! A bucket holds one second's worth, so that what arrives in one piece after a pause of the network is taken; and
//! beyond that what would have been taken while it was us who did not read, since a peer that goes on sending then is
//! not to blame. What is taken may leave a debt: a packet is taken whole or not at all.

use crate::ids::Timestamp;
use crate::limits::TURN_CONNECTION_BYTES_MAXIMUM;

/// Tokens are counted in millionths, since time is counted in microseconds.
const WHOLE: i64 = 1_000_000;

/// More tokens a second than this are as good as no limit; the product with [`WHOLE`] stays within 63 bits.
const PER_SECOND_MAXIMUM: u64 = 1 << 40;

/// How long somebody who waits for tokens waits at least: waking for each single one would cost more than it gives.
const WAIT_MINIMUM_US: i64 = 10_000;

#[derive(Debug)]
struct Bucket {
    per_second: i64,
    /// In millionths; below 0 is a debt.
    tokens: i64,
}

impl Bucket {
    fn new(per_second: u64) -> Option<Bucket> {
        let per_second = i64::try_from(per_second.min(PER_SECOND_MAXIMUM)).unwrap_or_default();
        (per_second > 0).then_some(Bucket { per_second, tokens: per_second * WHOLE })
    }

    /// Up to one second's worth, or without end while we did not read.
    fn fill(&mut self, elapsed_us: i64, unread: bool) {
        let filled = self.tokens.saturating_add(self.per_second.saturating_mul(elapsed_us));
        let full = if unread { filled } else { self.per_second * WHOLE };
        self.tokens = filled.min(full.max(self.tokens));
    }

    fn take(&mut self, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.tokens = self.tokens.saturating_sub(count.saturating_mul(WHOLE));
    }

    /// Whole tokens.
    fn left(&self) -> usize {
        usize::try_from(self.tokens / WHOLE).unwrap_or_default()
    }

    /// How long until there is a token, or more if they come fast.
    fn wait_us(&self) -> i64 {
        let wanted = WHOLE.max(self.per_second * WAIT_MINIMUM_US);
        let missing = wanted.saturating_sub(self.tokens).max(0);
        missing.saturating_add(self.per_second - 1) / self.per_second
    }
}

/// Limits in messages and in bytes a second.
#[derive(Debug)]
pub struct Rate {
    messages: Option<Bucket>,
    bytes: Option<Bucket>,
    at: Timestamp,
}

impl Rate {
    /// A rate with a full second to spend; 0 is no limit, and `None` if neither is one.
    pub fn new(messages_per_second: u64, bytes_per_second: u64) -> Option<Rate> {
        let (messages, bytes) = (Bucket::new(messages_per_second), Bucket::new(bytes_per_second));
        (messages.is_some() || bytes.is_some()).then_some(Rate { messages, bytes, at: Timestamp(0) })
    }

    /// It is `now`; a clock that goes back fills nothing.
    pub fn advance(&mut self, now: Timestamp) {
        self.pass(now, false);
    }

    /// It is `now`, and what the peer sent since the last time it was told we had not read, or not yet decoded.
    pub fn advance_unread(&mut self, now: Timestamp) {
        self.pass(now, true);
    }

    fn pass(&mut self, now: Timestamp, unread: bool) {
        let elapsed_us = i64::try_from(now.0.saturating_sub(self.at.0)).unwrap_or(i64::MAX);
        self.at = self.at.max(now);
        for bucket in self.buckets() {
            bucket.fill(elapsed_us, unread);
        }
    }

    /// Takes messages and bytes, into debt if need be.
    pub fn take(&mut self, messages: usize, bytes: usize) {
        if let Some(bucket) = &mut self.messages {
            bucket.take(messages);
        }
        if let Some(bucket) = &mut self.bytes {
            bucket.take(bytes);
        }
    }

    /// The same for a connection's own limit, which allows no debt: false if there is one.
    pub fn spend(&mut self, messages: usize, bytes: usize) -> bool {
        self.take(messages, bytes);
        !self.buckets().any(|bucket| bucket.tokens < 0)
    }

    /// What the limit of all leaves to the connection that is decoded next, after so many `messages`.
    pub fn allowance(&self, messages: u64) -> Allowance {
        let left = |bucket: &Option<Bucket>| bucket.as_ref().map_or(usize::MAX, Bucket::left);
        Allowance {
            messages: messages.saturating_add(u64::try_from(left(&self.messages)).unwrap_or(u64::MAX)),
            bytes: left(&self.bytes).min(TURN_CONNECTION_BYTES_MAXIMUM),
        }
    }

    /// True if nothing is left.
    pub fn is_spent(&self) -> bool {
        let spent = |bucket: &Option<Bucket>| bucket.as_ref().is_some_and(|bucket| bucket.tokens < WHOLE);
        spent(&self.messages) || spent(&self.bytes)
    }

    /// When there will be something again.
    pub fn next_at(&self) -> Timestamp {
        let wait_us = self.messages.iter().chain(&self.bytes).map(Bucket::wait_us).max().unwrap_or_default();
        Timestamp(self.at.0.saturating_add(u64::try_from(wait_us).unwrap_or_default()))
    }

    fn buckets(&mut self) -> impl Iterator<Item = &mut Bucket> {
        self.messages.iter_mut().chain(&mut self.bytes)
    }
}

/// How much of one connection is decoded in one turn.
#[derive(Debug, Clone, Copy)]
pub struct Allowance {
    /// Decoding stops when so many messages have come in all turns.
    pub messages: u64,
    /// Decoding stops after so many bytes.
    pub bytes: usize,
}

impl Allowance {
    /// What a connection gets where there is no limit.
    pub const WHOLE_TURN: Allowance = Allowance { messages: u64::MAX, bytes: TURN_CONNECTION_BYTES_MAXIMUM };

    /// True if nothing may be decoded of it, with so many messages in all turns and bytes of this connection taken.
    #[inline]
    pub fn is_spent(&self, messages: u64, bytes: usize) -> bool {
        bytes >= self.bytes || messages >= self.messages
    }
}
