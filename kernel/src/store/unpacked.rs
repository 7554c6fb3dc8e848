//! The last entry of which a single message was wanted: whoever wants one mostly wants those behind it too.

use crate::entry::{open, InnerMessage, Opened};
use crate::ids::Offset;

/// An entry that has been opened.
#[derive(Debug, Default)]
pub(super) struct Unpacked {
    opened: Opened,
    /// The first offset of it, and whether it could be.
    of: Option<(Offset, bool)>,
}

impl Unpacked {
    /// The message at this place of the entry that begins at `first`; `None` where it cannot be told apart.
    pub(super) fn message(&mut self, first: Offset, tail: &[u8], place: u64) -> Option<InnerMessage<'_>> {
        let is_open = match self.of {
            Some((of, is_open)) if of == first => is_open,
            _ => {
                let is_open = open(tail, &mut self.opened).is_ok();
                self.of = Some((first, is_open));
                is_open
            }
        };
        if !is_open {
            return None;
        }
        self.opened.message(usize::try_from(place).ok()?)
    }
}
