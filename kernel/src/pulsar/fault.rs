//! What a peer did wrong.

use crate::protobuf::Malformed;

/// The peer broke the protocol: its connection has to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What it sent.
    pub reason: &'static str,
}

impl Fault {
    /// A fault for this reason.
    pub fn new(reason: &'static str) -> Fault {
        Fault { reason }
    }
}

impl From<Malformed> for Fault {
    fn from(_: Malformed) -> Fault {
        Fault::new("a command that is no Protobuf")
    }
}
