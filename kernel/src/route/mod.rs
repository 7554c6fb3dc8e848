//! Which attached queues get a message: filters in a trie, and a memory of what each topic matched.
//!
//! Flow: decode -> **route** -> append. Route fills `Publish::targets` and touches nothing else.

pub mod memory;
pub mod routes;
pub mod trie;

pub use routes::{Routes, Subscription};
