//! MQTT 3.1.1: packets, and the two clients that speak it.

pub mod packet;
mod publisher;
mod subscriber;

pub use publisher::Publisher;
pub use subscriber::Subscriber;

use crate::speech::Fault;
use packet::{Packet, PacketError};

/// The first packet of what a broker sent.
fn scan(bytes: &[u8]) -> Result<Option<(Packet<'_>, usize)>, Fault> {
    packet::scan(bytes).map_err(|error: PacketError| Fault::Nonsense(error.to_string()))
}

/// An answer that says no.
fn refused(what: &'static str, code: u8) -> Fault {
    Fault::Refused(what, format!("{code:#04x}"))
}
