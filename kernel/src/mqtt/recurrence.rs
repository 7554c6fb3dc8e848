//! Whether a message that is carried on has been carried on lately: the same topic with the same payload.
//!
//! Owns: marks of what went by. Never: keeps a message, or judges: what comes again may go round in a circle, or say
//! the same as before.
//!
//! Each of its levels is for half as many contents as the one before, so that some are recognised however many there
//! are: where a few come again nearly all of them are, and of a hundred thousand those of the last levels.

use ahash::RandomState;

const LEVELS: u32 = 8;

/// Places of a level; a mark goes when another content takes its place.
const PLACES: u64 = 1_024;

/// Who makes two contents collide makes his own look like one, so the seeds need not be secret.
const HASHING: RandomState = RandomState::with_seeds(71, 72, 73, 74);

/// What went by.
#[derive(Debug, Default)]
pub struct Recurrence {
    /// By level and place; empty until it is needed.
    marks: Vec<u16>,
}

impl Recurrence {
    /// Notes a message; true if it was noted before, and not too many others since.
    pub fn is_again(&mut self, topic: &[u8], payload: &[u8]) -> bool {
        let hash = HASHING.hash_one((topic, payload));
        let level = u64::from((hash / PLACES).trailing_zeros().min(LEVELS - 1));
        let place = usize::try_from(level * PLACES + hash % PLACES).unwrap_or_default();
        // An empty place has the mark 0, which none may have.
        let mark = u16::try_from(hash >> 48).unwrap_or_default() | 1;
        self.marks.resize(usize::try_from(u64::from(LEVELS) * PLACES).unwrap_or_default(), 0);
        self.marks.get_mut(place).is_some_and(|known| std::mem::replace(known, mark) == mark)
    }
}

#[cfg(test)]
mod tests {
    use super::Recurrence;

    /// Of so many contents that go round, how many are recognised in the second round.
    fn recognised(contents: u32) -> usize {
        let mut recurrence = Recurrence::default();
        let mut round = || (0..contents).filter(|content| recurrence.is_again(b"t", &content.to_be_bytes())).count();
        assert!(round() < 1 + usize::try_from(contents / 1_000).unwrap_or_default(), "none has been there before");
        round()
    }

    #[test]
    fn what_comes_again_is_recognised_however_much_goes_round() {
        assert_eq!(recognised(1), 1);
        assert!(recognised(100) > 80);
        assert!(recognised(10_000) > 1_000);
        assert!(recognised(100_000) > 500);
    }

    #[test]
    fn a_payload_on_another_topic_is_another_content() {
        let mut recurrence = Recurrence::default();
        assert!(!recurrence.is_again(b"a", b"bc"));
        assert!(!recurrence.is_again(b"ab", b"c"));
        assert!(recurrence.is_again(b"a", b"bc"));
    }
}
