//! What a client says and hears, whichever protocol it speaks.
//!
//! Owns: the words that `publisher` and `subscriber` share with `mqtt` and `pulsar`.
//! Never: a socket; bytes come in, and answers are appended to what will be written.

use crate::stamp::Stamp;

/// What the first frame of some bytes said.
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    /// Nothing that has to be known; an answer may have been appended.
    Nothing,
    /// The broker takes what is published, or lets subscribe.
    Ready,
    /// The subscription is there.
    Subscribed,
    /// So many messages have had their last acknowledgement.
    Acknowledged(u64),
    /// So many messages came, of which this is the first one's stamp.
    Came(Stamp, u64),
}

/// Why what a broker sent ends the run.
#[derive(Debug, PartialEq, Eq)]
pub enum Fault {
    /// It cannot be understood: a sentence that begins with what was sent.
    Nonsense(String),
    /// It refuses a command: which one, and how it says so.
    Refused(&'static str, String),
    /// It is nothing that this run could have caused.
    Foreign,
}

/// The news of the first frame and how many bytes it takes; nothing if it is not whole yet.
pub type Taken = Result<Option<(News, usize)>, Fault>;

/// A client that publishes numbered messages.
pub trait Publishes {
    /// The size on the wire of what is sent at once.
    fn size_bytes(&self) -> usize;

    /// How many messages are in that.
    fn messages(&self) -> u64;

    /// Appends as many messages, of which the first has this number.
    fn encode(&mut self, number: u64, sent_ns: u64, outbox: &mut Vec<u8>);

    /// Takes the first frame of what the broker sent.
    fn take(&mut self, bytes: &[u8], outbox: &mut Vec<u8>) -> Taken;
}

/// A client that subscribes.
pub trait Subscribes {
    /// Asks for these topics.
    fn subscribe(&mut self, topic_filters: &[String], qos: u8, outbox: &mut Vec<u8>);

    /// Takes the first frame of what the broker sent.
    fn take(&mut self, bytes: &[u8], outbox: &mut Vec<u8>) -> Taken;

    /// Appends acknowledgements that have waited for company until now.
    fn acknowledge(&mut self, outbox: &mut Vec<u8>);

    /// Says that the client leaves; the broker then closes.
    fn leave(&mut self, outbox: &mut Vec<u8>);
}

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// MQTT 3.1.1.
    Mqtt,
    /// Pulsar's binary protocol.
    Pulsar,
}
