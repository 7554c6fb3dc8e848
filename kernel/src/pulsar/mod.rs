//! The protocol of Pulsar, as far as it comes once for each entry; all of it without I/O.
//!
//! Owns: frames, the commands that carry entries and speak of them, and what answers those. Never: decides anything by
//! a command that comes once in the life of a producer or a consumer: those are handed out as they came.
//!
//! Flow: sockets -> inbox -> route; delivery -> outbox -> sockets.

mod command;
pub mod encode;
mod frame;
pub mod inbox;
pub mod outbox;
pub mod peer;

pub use inbox::Inbox;
pub use outbox::Outboxes;
