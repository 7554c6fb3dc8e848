//! Bytes of all connections, whatever protocol they speak.
//!
//! Owns: what has come on each connection and is not decoded, and who is held; what waits for each socket and where it
//! is cut; how fast may be read. Never: knows what the bytes mean; a protocol says so by its [`decoder::Decoder`].

mod arena;
mod backlog;
mod budget;
pub mod buffers;
pub mod decoder;
pub mod inbox;
mod pieces;
pub mod rate;
pub mod reception;
