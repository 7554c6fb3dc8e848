//! The receiving side of all connections that speak the protocol.

use super::peer::Peer;
use crate::wire;

/// All of them.
pub type Inbox = wire::inbox::Inbox<Peer>;

/// What decode tells the caller about a connection: a command to decide on, or that the peer broke the protocol.
pub type Event = wire::decoder::Event<Peer>;
