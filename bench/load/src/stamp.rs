//! What is new in each payload: whose it is, its number, and when it was sent.

/// Bytes at the front of each payload: publisher (4), number of the message (8), time of sending (8).
pub const STAMP_BYTES: usize = 20;

/// What is new in each message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The publisher's index.
    pub publisher: u32,
    /// The number of the message among those of its publisher, from 0.
    pub number: u64,
    /// Nanoseconds since the generator started.
    pub sent_ns: u64,
}

impl Stamp {
    /// The bytes at the front of a payload.
    pub fn encode(&self) -> [u8; STAMP_BYTES] {
        let mut bytes = [0; STAMP_BYTES];
        bytes[..4].copy_from_slice(&self.publisher.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.number.to_le_bytes());
        bytes[12..].copy_from_slice(&self.sent_ns.to_le_bytes());
        bytes
    }

    /// Reads the stamp of a payload; nothing if the payload is too short to be ours.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let (publisher, rest) = payload.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (sent_ns, _) = rest.split_first_chunk()?;
        Some(Self {
            publisher: u32::from_le_bytes(*publisher),
            number: u64::from_le_bytes(*number),
            sent_ns: u64::from_le_bytes(*sent_ns),
        })
    }
}
