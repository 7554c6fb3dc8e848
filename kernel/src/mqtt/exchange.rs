//! The exchanges of QoS 1 and 2 as one table, as seen by the sender of a message (MQTT 5 section 4.3).
//!
//! Owns: what may come next in an exchange, and what follows from it. Never: knows a message, or remembers how far an
//! exchange is; whoever keeps what is in flight asks for each step. `docs/exchanges.md` is drawn from this file.

use super::kind::AcknowledgementKind;
use crate::flow::exchange::Follows::{self, Done, Fault, Lost, Nothing, Tell};
use crate::flow::exchange::State::{self, Free, Unacknowledged, Uncompleted, Unreceived};
use crate::flow::Refusal::NotInFlight;
use crate::flow::Step::{self, Acknowledged, Completed, Received, Released};

impl From<AcknowledgementKind> for Step {
    fn from(kind: AcknowledgementKind) -> Step {
        match kind {
            AcknowledgementKind::Puback => Acknowledged,
            AcknowledgementKind::Pubrec => Received,
            AcknowledgementKind::Pubrel => Released,
            AcknowledgementKind::Pubcomp => Completed,
        }
    }
}

/// A reason code below 0x80.
const TAKEN: bool = false;
/// A reason code of 0x80 or more.
const REFUSED: bool = true;

/// What becomes of an exchange after a packet, and what follows. A message that was given up goes the same way; only is
/// nothing lost with it any more.
#[inline]
pub fn next(state: State, step: Step, is_refused: bool) -> (State, Follows) {
    match (state, step, is_refused) {
        // PUBLISH of QoS 1 was sent, and PUBACK ends the exchange [MQTT-4.3.2-3].
        (Unacknowledged, Acknowledged, TAKEN) => (Free, Done),
        (Unacknowledged, Acknowledged, REFUSED) => (Free, Lost),
        (Unacknowledged, Received | Completed, _) => (Unacknowledged, Fault),
        // PUBLISH of QoS 2 was sent, and PUBREL follows PUBREC [MQTT-4.3.3-4] unless that refuses [MQTT-4.3.3-9].
        (Unreceived, Received, TAKEN) => (Uncompleted, Tell(Released, None)),
        (Unreceived, Received, REFUSED) => (Free, Lost),
        (Unreceived, Acknowledged | Completed, _) => (Unreceived, Fault),
        // PUBCOMP ends the exchange [MQTT-4.3.3-5]. A client that has not seen PUBREL may send PUBREC again.
        (Uncompleted, Received, TAKEN) => (Uncompleted, Tell(Released, None)),
        (Uncompleted, Received, REFUSED) => (Free, Lost),
        (Uncompleted, Completed, _) => (Free, Done),
        (Uncompleted, Acknowledged, _) => (Uncompleted, Fault),
        // Nothing is in flight: the packet may belong to an exchange that has ended. PUBREC is answered all the same,
        // so that the exchange ends at its other side too [MQTT-4.3.3-4].
        (Free, Received, TAKEN) => (Free, Tell(Released, Some(NotInFlight))),
        (Free, Received, REFUSED) => (Free, Nothing),
        (Free, Acknowledged | Completed, _) => (Free, Nothing),
        // It ends an exchange in the other direction [MQTT-4.3.3-11], whose identifiers are others. PUBCOMP says that
        // nothing is held under the identifier, also where nothing was: after a connection broke it may have been
        // released before, which is no error (MQTT 5 section 3.7.2.1), but clients take 0x92 for a failure and publish
        // the message again.
        (state, Released, _) => (state, Tell(Completed, None)),
    }
}
