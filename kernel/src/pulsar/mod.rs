//! The codec of Pulsar's binary protocol: what has arrived, and what waits to be sent.
//!
//! Owns: turning bytes into entries, settlements and permits ([`frame`], [`command`], [`tail`]), what may come next on
//! a connection and who its producers and consumers are ([`peer`]), writing what answers them ([`outbox`]).
//! Never: decides what a command means. What does not come once for each entry is handed out as bytes.
//!
//! Invariants:
//! 1. No input panics, and none makes the codec allocate more than a bounded multiple of the bytes that came.
//! 2. What is decoded depends on the bytes only, never on how they were split.
//! 3. After a fault nothing more is decoded from its connection.
//! 4. The checksum of each entry is computed once, on arrival.
//!
//! Flow: sockets -> [`inbox`] -> route ... delivery -> [`outbox`] -> sockets.

pub mod command;
pub mod encode;
pub mod fault;
pub mod frame;
pub mod inbox;
pub mod kind;
pub mod outbox;
pub mod peer;
pub mod tail;
