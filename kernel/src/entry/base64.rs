//! Base64 (RFC 4648 section 4), in which bytes stand where a text is asked for.

use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::Engine;

/// A text is written padded and read padded or not; bits behind the last byte would be lost, and are refused.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The text for `bytes`.
pub(super) fn encode(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// The bytes that a text stands for; `None` if it is no such text.
pub(super) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    BASE64.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(bytes: Vec<u8>) {
            let text = encode(&bytes);
            prop_assert_eq!(decode(text.as_bytes()), Some(bytes.clone()));
            prop_assert_eq!(decode(text.trim_end_matches('=').as_bytes()), Some(bytes));
        }

        #[test]
        fn one_text_stands_for_some_bytes(text in "[AQgwBfz/=]{0,9}") {
            if let Some(bytes) = decode(text.as_bytes()) {
                let again = encode(&bytes);
                prop_assert_eq!(text.trim_end_matches('='), again.trim_end_matches('='));
            }
        }
    }

    #[test]
    fn the_examples_of_the_specification_hold() {
        for (bytes, expected) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(encode(bytes.as_bytes()), expected);
        }
        for refused in ["Z", "Zg===", "Zh==", "Zm9=", "Z=", "Zm8=Zm8=", "Zm-v"] {
            assert_eq!(decode(refused.as_bytes()), None, "{refused}");
        }
    }
}
