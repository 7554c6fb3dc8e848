//! Reason codes (MQTT 5 section 2.4), where they may stand, and the return codes of older versions.

use super::kind::Kind;
use super::Role;
use crate::flow::Refusal;

#[allow(missing_docs)]
mod codes {
    pub const SUCCESS: u8 = 0x00;
    pub const DISCONNECT_WITH_WILL: u8 = 0x04;
    pub const NO_MATCHING_SUBSCRIBERS: u8 = 0x10;
    pub const NO_SUBSCRIPTION_EXISTED: u8 = 0x11;
    pub const CONTINUE_AUTHENTICATION: u8 = 0x18;
    pub const REAUTHENTICATE: u8 = 0x19;
    pub const UNSPECIFIED_ERROR: u8 = 0x80;
    pub const MALFORMED_PACKET: u8 = 0x81;
    pub const PROTOCOL_ERROR: u8 = 0x82;
    pub const IMPLEMENTATION_SPECIFIC_ERROR: u8 = 0x83;
    pub const UNSUPPORTED_PROTOCOL_VERSION: u8 = 0x84;
    pub const CLIENT_IDENTIFIER_NOT_VALID: u8 = 0x85;
    pub const BAD_USER_NAME_OR_PASSWORD: u8 = 0x86;
    pub const NOT_AUTHORIZED: u8 = 0x87;
    pub const SERVER_UNAVAILABLE: u8 = 0x88;
    pub const BANNED: u8 = 0x8A;
    pub const BAD_AUTHENTICATION_METHOD: u8 = 0x8C;
    pub const TOPIC_FILTER_INVALID: u8 = 0x8F;
    pub const TOPIC_NAME_INVALID: u8 = 0x90;
    pub const PACKET_IDENTIFIER_IN_USE: u8 = 0x91;
    pub const PACKET_IDENTIFIER_NOT_FOUND: u8 = 0x92;
    pub const RECEIVE_MAXIMUM_EXCEEDED: u8 = 0x93;
    pub const TOPIC_ALIAS_INVALID: u8 = 0x94;
    pub const PACKET_TOO_LARGE: u8 = 0x95;
    pub const MESSAGE_RATE_TOO_HIGH: u8 = 0x96;
    pub const QUOTA_EXCEEDED: u8 = 0x97;
    pub const PAYLOAD_FORMAT_INVALID: u8 = 0x99;
}
pub use codes::*;

/// The reason code that says why a message was not taken.
pub fn of(refusal: Refusal) -> u8 {
    match refusal {
        Refusal::NotAuthorized => NOT_AUTHORIZED,
        Refusal::NoRoom | Refusal::TooManyTopics => QUOTA_EXCEEDED,
        Refusal::NotInFlight => PACKET_IDENTIFIER_NOT_FOUND,
        Refusal::ByPeer | Refusal::Damaged => UNSPECIFIED_ERROR,
    }
}

/// Why a message was not taken, as a reason code says; `None` if it was. What the peer means by it is its own affair.
pub fn refusal_of(code: u8) -> Option<Refusal> {
    (code >= UNSPECIFIED_ERROR).then_some(Refusal::ByPeer)
}

/// True if a packet of this kind may carry this reason code, for who reads it in this role.
pub fn is_allowed(kind: Kind, code: u8, role: Role) -> bool {
    match kind {
        // Servers refuse messages with other packets' codes, too: Mosquitto says 0x95 of one that is too large for it.
        // Ending the connection would bring the same message and the same answer again, for ever.
        Kind::Puback | Kind::Pubrec if role == Role::Client && code >= UNSPECIFIED_ERROR => true,
        // [MQTT-3.2.2-8]
        Kind::Connack => matches!(code, 0x00 | 0x80..=0x8A | 0x8C | 0x90 | 0x95 | 0x97 | 0x99..=0x9D | 0x9F),
        // [MQTT-3.4.2-1] [MQTT-3.5.2-1]
        Kind::Puback | Kind::Pubrec => matches!(
            code,
            SUCCESS
                | NO_MATCHING_SUBSCRIBERS
                | UNSPECIFIED_ERROR
                | IMPLEMENTATION_SPECIFIC_ERROR
                | NOT_AUTHORIZED
                | TOPIC_NAME_INVALID
                | PACKET_IDENTIFIER_IN_USE
                | QUOTA_EXCEEDED
                | PAYLOAD_FORMAT_INVALID
        ),
        // [MQTT-3.6.2-1] [MQTT-3.7.2-1]
        Kind::Pubrel | Kind::Pubcomp => matches!(code, SUCCESS | PACKET_IDENTIFIER_NOT_FOUND),
        // [MQTT-3.9.3-2]
        Kind::Suback => matches!(code, 0x00..=0x02 | 0x80 | 0x83 | 0x87 | 0x8F | 0x91 | 0x97 | 0x9E | 0xA1 | 0xA2),
        // [MQTT-3.11.3-2]
        Kind::Unsuback => matches!(
            code,
            SUCCESS | NO_SUBSCRIPTION_EXISTED | 0x80 | 0x83 | NOT_AUTHORIZED | TOPIC_FILTER_INVALID | 0x91
        ),
        // [MQTT-3.14.2-1]
        Kind::Disconnect => matches!(
            code,
            SUCCESS | DISCONNECT_WITH_WILL | 0x80..=0x83 | 0x87 | 0x89 | 0x8B | 0x8D..=0x90 | 0x93..=0xA2
        ),
        // [MQTT-3.15.2-1]
        Kind::Auth => matches!(code, SUCCESS | CONTINUE_AUTHENTICATION | REAUTHENTICATE),
        _ => false,
    }
}

/// The CONNACK return code of 3.1 and 3.1.1 for a reason code of MQTT 5 (MQTT 3.1.1 section 3.2.2.3).
pub fn connack_return_code(code: u8) -> u8 {
    match code {
        SUCCESS => 0,
        UNSUPPORTED_PROTOCOL_VERSION => 1,
        CLIENT_IDENTIFIER_NOT_VALID => 2,
        BAD_USER_NAME_OR_PASSWORD => 4,
        // What the client may not do; everything else is the server's state, which may pass.
        NOT_AUTHORIZED | BANNED | BAD_AUTHENTICATION_METHOD | TOPIC_NAME_INVALID | 0x99..=0x9B => 5,
        _ => 3,
    }
}

/// The reason code of MQTT 5 for a CONNACK return code of 3.1 and 3.1.1, if it is one.
pub fn from_connack_return_code(return_code: u8) -> Option<u8> {
    match return_code {
        0 => Some(SUCCESS),
        1 => Some(UNSUPPORTED_PROTOCOL_VERSION),
        2 => Some(CLIENT_IDENTIFIER_NOT_VALID),
        3 => Some(SERVER_UNAVAILABLE),
        4 => Some(BAD_USER_NAME_OR_PASSWORD),
        5 => Some(NOT_AUTHORIZED),
        _ => None,
    }
}
