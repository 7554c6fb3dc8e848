//! Where the bytes of an outbox are cut, so that a write has at most so many messages.
//!
//! Owns: the ends of full pieces. Never: holds a byte, or back what is not full; that leaves with the rest.

/// The cuts in one outbox.
#[derive(Debug)]
pub(super) struct Pieces {
    messages_maximum: usize,
    /// Messages behind the last cut.
    messages: usize,
    ends: Vec<usize>,
}

impl Pieces {
    /// At most so many messages are one piece.
    pub fn new(messages_maximum: usize) -> Pieces {
        Pieces { messages_maximum, messages: 0, ends: Vec::new() }
    }

    /// A message ends here.
    pub fn note(&mut self, end: usize) {
        self.messages = self.messages.saturating_add(1);
        if self.messages >= self.messages_maximum {
            self.messages = 0;
            self.ends.push(end);
        }
    }

    /// Hands the bytes to `send`, piece by piece.
    pub fn cut(&mut self, bytes: &[u8], mut send: impl FnMut(&[u8])) {
        let mut start = 0;
        for end in self.ends.drain(..).chain([bytes.len()]) {
            let piece = bytes.get(start..end).unwrap_or_default();
            if !piece.is_empty() {
                send(piece);
            }
            start = end;
        }
        self.messages = 0;
    }
}
