//! The kinds of commands: the number that a command says it is, and that of the field it stands in.

use super::fault::Fault;

/// The first command of a client.
pub const CONNECT: u8 = 2;
/// A producer's entry.
pub const SEND: u8 = 6;
/// The answer to it.
pub const SEND_RECEIPT: u8 = 7;
/// The answer to one that was not taken.
pub const SEND_ERROR: u8 = 8;
/// An entry for a consumer.
pub const MESSAGE: u8 = 9;
/// A consumer is done with entries.
pub const ACK: u8 = 10;
/// A consumer takes more messages.
pub const FLOW: u8 = 11;
/// Is anybody there?
pub const PING: u8 = 18;
/// The answer to that.
pub const PONG: u8 = 19;
/// A consumer wants entries again.
pub const REDELIVER_UNACKNOWLEDGED_MESSAGES: u8 = 20;
/// What a consumer was done with is durable.
pub const ACK_RESPONSE: u8 = 38;

/// The kind with this number; a fault if there is none, or only brokers send it.
#[inline]
pub fn of_client(number: u64) -> Result<u8, Fault> {
    match u8::try_from(number) {
        Ok(
            kind @ (CONNECT
            | 4..=SEND
            | ACK..=12
            | 15
            | 16
            | PING..=21
            | 23
            | 25
            | 28
            | 29
            | 32
            | 34
            | 37
            | 39
            | 50
            | 52
            | 54
            | 56
            | 62
            | 64
            | 67),
        ) => Ok(kind),
        Ok(
            3 | SEND_RECEIPT..=MESSAGE | 13 | 14 | 17 | 22 | 24 | 26 | 27 | 30 | 31 | 33 | 35 | 36 | ACK_RESPONSE | 40,
        )
        | Ok(51 | 53 | 55 | 57..=61 | 63 | 65 | 66 | 68) => Err(Fault::new("a command that only brokers send")),
        _ => Err(Fault::new("a command of a kind that there is not")),
    }
}
