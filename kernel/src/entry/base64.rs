//! Base64 (RFC 4648 section 4), in which bytes stand where a text is asked for.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends the text for `bytes`, padded.
pub(super) fn encode(bytes: &[u8], into: &mut Vec<u8>) {
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            let digit = ALPHABET.get(bits >> (18 - 6 * place) & 63).copied().unwrap_or_default();
            into.push(if place <= group.len() { digit } else { b'=' });
        }
    }
}

/// The bytes that a text stands for, padded or not; `None` if it is no such text.
pub(super) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let padded = text.len() % 4 == 0;
    let text = match text {
        [digits @ .., b'=', b'='] | [digits @ .., b'='] if padded => digits,
        digits => digits,
    };
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for group in text.chunks(4) {
        let mut bits = 0_u32;
        for digit in group {
            bits = bits << 6 | value(*digit)?;
        }
        let [_, first, second, third] = (bits << (6 * (4 - group.len()))).to_be_bytes();
        let whole = [first, second, third];
        bytes.extend_from_slice(whole.get(..group.len() * 3 / 4)?);
        // One digit is less than a byte, and bits behind the last byte would be lost.
        if group.len() == 1 || whole.get(group.len() * 3 / 4..)?.iter().any(|byte| *byte != 0) {
            return None;
        }
    }
    Some(bytes)
}

fn value(digit: u8) -> Option<u32> {
    match digit {
        b'A'..=b'Z' => Some(u32::from(digit - b'A')),
        b'a'..=b'z' => Some(u32::from(digit - b'a') + 26),
        b'0'..=b'9' => Some(u32::from(digit - b'0') + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(bytes: Vec<u8>) {
            let mut text = Vec::new();
            encode(&bytes, &mut text);
            prop_assert_eq!(decode(&text), Some(bytes.clone()));
            let unpadded: Vec<u8> = text.into_iter().filter(|digit| *digit != b'=').collect();
            prop_assert_eq!(decode(&unpadded), Some(bytes));
        }

        #[test]
        fn one_text_stands_for_some_bytes(text in "[AQgwBfz/=]{0,9}") {
            if let Some(bytes) = decode(text.as_bytes()) {
                let mut again = Vec::new();
                encode(&bytes, &mut again);
                let again = String::from_utf8(again).unwrap();
                prop_assert_eq!(text.trim_end_matches('='), again.trim_end_matches('='));
            }
        }
    }

    #[test]
    fn the_examples_of_the_specification_hold() {
        let mut text = Vec::new();
        for (bytes, expected) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")]
        {
            text.clear();
            encode(bytes.as_bytes(), &mut text);
            assert_eq!(text, expected.as_bytes());
        }
        for refused in ["Z", "Zg===", "Zh==", "Zm9=", "Z=", "Zm8=Zm8=", "Zm-v"] {
            assert_eq!(decode(refused.as_bytes()), None, "{refused}");
        }
    }
}
