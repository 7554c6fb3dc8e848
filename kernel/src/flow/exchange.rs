//! The words for how the exchange about one message in flight goes on.
//!
//! Owns: the words. Never: says what follows from what; that is a protocol's table, which whoever keeps what is in
//! flight is handed.

use super::{Refusal, Step};

/// How far the exchange under one packet identifier is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// There is none: the identifier is free.
    Free,
    /// A message of QoS 1 was sent and is to be acknowledged.
    Unacknowledged,
    /// A message of QoS 2 was sent and is to be received.
    Unreceived,
    /// A message of QoS 2 was received; its identifier is to be free again.
    Uncompleted,
}

/// What follows from a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follows {
    /// Nothing.
    Nothing,
    /// The exchange is over.
    Done,
    /// The exchange is over, and its receiver has not taken the message.
    Lost,
    /// The peer is told this step, and with it what was wrong with its own.
    Tell(Step, Option<Refusal>),
    /// The peer may not take this step now.
    Fault,
}

/// Says how the exchange goes on after a step of the peer, which refuses the message or not.
pub type Next = fn(State, Step, bool) -> (State, Follows);
