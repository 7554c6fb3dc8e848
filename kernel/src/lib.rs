//! What Holdfast does once per message: decode, route, append, deliver, encode.
//!
//! Owns: the mechanism of each stage, working on batches. Never: a socket, a clock, a thread, randomness, or a
//! word of policy; time and seeds are arguments, and the disk is a trait.
//!
//! Invariants:
//! 1. `mqtt`, `pulsar`, `route`, `store` and `delivery` do not use one another. They meet in `flow`, the values that
//!    pass from stage to stage, and only the caller composes them. What several of them need of an entry is in `entry`.
//! 2. Nothing here panics on bytes from outside: every input is a value or an [`error::Error`].

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::as_conversions)
)]

pub mod checksum;
pub mod delivery;
pub mod disk;
pub mod entry;
pub mod error;
pub mod flow;
pub mod ids;
pub mod limits;
pub mod mqtt;
pub mod protobuf;
pub mod pulsar;
pub mod ranges;
pub mod route;
pub mod selection;
pub mod slots;
pub mod store;
pub mod topic;
pub mod varint;
pub mod wire;
