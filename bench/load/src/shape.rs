//! What the messages of one publisher have in common, whichever protocol they are sent in.

/// The largest payload that can be asked for: a frame stays far below a socket's buffer.
pub const PAYLOAD_BYTES_MAXIMUM: usize = 65_536;

/// What the messages of one publisher have in common.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'a> {
    /// The topic, or with more than one of them what they begin with.
    pub topic: &'a str,
    /// How many topics are taken in turn.
    pub topics: u64,
    /// 0, 1 or 2.
    pub qos: u8,
    /// Whether each message is to be kept as its topic's last one.
    pub retain: bool,
    /// At least the stamp's size.
    pub payload_bytes: usize,
    /// How many messages are sent in one entry; 0 if each is sent by itself.
    pub batch: u64,
}
