//! The last entry of which single messages were wanted: whoever wants one mostly wants those behind it too.

use crate::entry::{open, Closed, InnerMessage, Opened};
use crate::ids::Offset;

/// An entry that has been opened.
#[derive(Debug, Default)]
pub(super) struct Unpacked {
    opened: Opened,
    /// The first offset of it, and why it could not be, if it could not.
    of: Option<(Offset, Result<(), Closed>)>,
}

impl Unpacked {
    /// The messages of the entry that begins at `first`, or why they cannot be told apart.
    pub(super) fn messages(&mut self, first: Offset, tail: &[u8]) -> Result<&Opened, Closed> {
        let outcome = match self.of {
            Some((of, outcome)) if of == first => outcome,
            _ => open(tail, &mut self.opened),
        };
        self.of = Some((first, outcome));
        outcome.map(|()| &self.opened)
    }

    /// The message at this place of the entry that begins at `first`; `None` where it cannot be told apart.
    pub(super) fn message(&mut self, first: Offset, tail: &[u8], place: u64) -> Option<InnerMessage<'_>> {
        let place = usize::try_from(place).ok()?;
        self.messages(first, tail).ok().and_then(|opened| opened.message(place))
    }
}
