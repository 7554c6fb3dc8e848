//! Bytes of all connections, whatever protocol they speak.
//!
//! Owns: what waits for each socket and where it is cut, and how fast may be read. Never: knows what the bytes mean.

pub mod buffers;
mod pieces;
pub mod rate;
