//! What a peer did wrong, and what it is to be told.

use super::{reason_code, Version};

/// The peer broke the protocol: its connection has to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The MQTT 5 reason code that says so.
    pub reason_code: u8,
    /// What it did, with the number of the statement it broke.
    pub reason: &'static str,
    /// The version in which the peer can be told; `None` while it is not known.
    pub version: Option<Version>,
}

/// What was decoded, or what the peer did wrong.
pub type Decoded<T> = Result<T, Fault>;

impl Fault {
    /// A fault with a reason code of its own.
    pub fn new(reason_code: u8, reason: &'static str) -> Fault {
        Fault { reason_code, reason, version: None }
    }

    /// Bytes that cannot be parsed according to the specification (MQTT 5 section 4.13).
    pub fn malformed(reason: &'static str) -> Fault {
        Fault::new(reason_code::MALFORMED_PACKET, reason)
    }

    /// A packet that can be parsed and is not allowed (MQTT 5 section 4.13).
    pub fn protocol(reason: &'static str) -> Fault {
        Fault::new(reason_code::PROTOCOL_ERROR, reason)
    }

    /// The same fault, of a peer whose version is known.
    pub fn in_version(self, version: Version) -> Fault {
        Fault { version: Some(self.version.unwrap_or(version)), ..self }
    }
}
