//! Which attached queues get a message: filters in a trie, a memory of what each topic matched, and who may.
//!
//! Flow: decode -> **route** -> append. Route fills `Publish::targets`, denies what may not be published, and
//! touches nothing else.

pub mod grants;
pub mod memory;
pub mod routes;
pub mod trie;

pub use routes::{Routes, Subscription};
