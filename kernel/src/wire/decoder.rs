//! What bytes need of a protocol to become messages.
//!
//! Owns: the question. Never: an answer; each protocol has its own.

use super::rate::Rate;
use crate::flow::Arrivals;
use crate::ids::Connection;

/// What a protocol knows of one connection: where a frame ends, what it says, and what may come next.
pub trait Decoder {
    /// The start of a frame, read as far as says where the frame ends.
    type Header;
    /// A frame that the caller decides on; the connection is held until it has.
    type Control;
    /// What the peer did wrong.
    type Fault;
    /// True if `take` has who sends faster than it may held for a time; else that is a [`Breach`].
    const HOLDS_WHO_IS_TOO_FAST: bool;

    /// Nothing has come on the connection yet.
    fn new(connection: Connection) -> Self;

    /// Reads the header at the start of `bytes`; `None` if it is not complete. Refuses as early as can be seen what is
    /// not allowed next.
    fn header(&self, bytes: &[u8]) -> Result<Option<Self::Header>, Self::Fault>;

    /// Bytes of the whole frame, its header included.
    fn size_bytes(header: &Self::Header) -> usize;

    /// A larger frame is a [`Breach`].
    fn frame_bytes_maximum(&self) -> usize;

    /// The peer is silent if nothing comes for longer than this; `None` if it may say nothing for ever.
    fn silence_us(&self) -> Option<u64>;

    /// Takes the whole frame at `start` of the arena: into the batch, or returned for the caller to decide on. Whoever
    /// puts a message into the batch takes it from `rate`.
    fn take(
        &mut self,
        header: &Self::Header,
        start: usize,
        arrivals: &mut Arrivals,
        rate: Option<&mut Rate>,
    ) -> Result<Option<Self::Control>, Self::Fault>;

    /// What the peer is told of a breach.
    fn fault(&self, breach: Breach) -> Self::Fault;

    /// The fault as this peer can be told it.
    fn addressed(&self, fault: Self::Fault) -> Self::Fault;
}

/// What decode tells the caller about a connection: what is to be decided on, or that the peer broke the protocol.
pub type Event<D> = Result<<D as Decoder>::Control, <D as Decoder>::Fault>;

/// What a peer may do in no protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breach {
    /// A frame above the maximum.
    FrameTooLarge,
    /// More bytes than may wait undecoded.
    TooMuchWaits,
    /// More in a second than this connection may send.
    TooFast,
}
