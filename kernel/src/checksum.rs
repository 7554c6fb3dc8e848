//! CRC-32C: of bytes, and of what is put together from parts whose checksums are known.
//!
//! A checksum is the remainder of a polynomial, so that to put bytes behind others multiplies the remainder of these by
//! x to the power of as many bits. Polynomials have the highest power first: bit 31 is 1, bit 0 is x to the 31st.

#[cfg(all(target_arch = "x86_64", target_feature = "sse4.2"))]
mod words;

#[cfg(not(all(target_arch = "x86_64", target_feature = "sse4.2")))]
pub use crc32c::crc32c_append as append;
#[cfg(all(target_arch = "x86_64", target_feature = "sse4.2"))]
pub use words::append;

/// Castagnoli's, which is x to the 32nd too.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// x to the power of a byte's bits.
const BYTE: u32 = 1 << 31 >> 8;

/// The products of a polynomial with each one that has only its four lowest powers.
type Multiples = [u32; 16];

/// Those of x to the power of the bits of 1, 2, 4, 8 and so on bytes.
const POWERS: [Multiples; 32] = powers();

/// What the four highest powers become when they are multiplied by x to the fourth.
const REDUCED: Multiples = multiples(POLYNOMIAL);

/// The checksum of these bytes.
#[inline]
pub fn of(bytes: &[u8]) -> u32 {
    append(0, bytes)
}

/// The checksum of two parts together, of which the second has `second_bytes`, fewer than 4 GiB.
pub fn combine(first: u32, second: u32, second_bytes: usize) -> u32 {
    let (mut shifted, mut left) = (first, u32::try_from(second_bytes).unwrap_or(u32::MAX));
    while let Some(power) = usize::try_from(left.trailing_zeros()).ok().and_then(|place| POWERS.get(place)) {
        shifted = times(shifted, power);
        left &= left - 1;
    }
    shifted ^ second
}

/// The product with a polynomial of which these are the multiples, modulo the polynomial: four powers at a time.
#[inline]
fn times(one: u32, multiples: &Multiples) -> u32 {
    let of = |multiples: &Multiples, powers: u32| {
        let place = usize::try_from(powers & 15).unwrap_or_default();
        multiples.get(place).copied().unwrap_or_default()
    };
    let places = (0..u32::BITS).step_by(4);
    places.fold(0, |found, place| (found >> 4) ^ of(&REDUCED, found) ^ of(multiples, one >> place))
}

const fn powers() -> [Multiples; 32] {
    let mut powers = [[0; 16]; 32];
    let mut left: &mut [Multiples] = &mut powers;
    let mut power = BYTE;
    while let Some((first, rest)) = left.split_first_mut() {
        (*first, left) = (multiples(power), rest);
        power = product(power, power);
    }
    powers
}

const fn multiples(of: u32) -> Multiples {
    let mut multiples = [0; 16];
    let mut left: &mut [u32] = &mut multiples;
    let mut powers = 0;
    while let Some((first, rest)) = left.split_first_mut() {
        (*first, left) = (product(powers << 28, of), rest);
        powers += 1;
    }
    multiples
}

/// The product, modulo the polynomial, one power at a time.
const fn product(one: u32, other: u32) -> u32 {
    let (mut found, mut multiple, mut bit) = (0, other, 1 << 31);
    while bit > 0 {
        found ^= if one & bit > 0 { multiple } else { 0 };
        multiple = if multiple & 1 == 1 { (multiple >> 1) ^ POLYNOMIAL } else { multiple >> 1 };
        bit >>= 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bit by bit, as the polynomial says.
    fn plainly(before: u32, bytes: &[u8]) -> u32 {
        let remainder = |remainder: u32, byte: &u8| product(remainder ^ u32::from(*byte), BYTE);
        !bytes.iter().fold(!before, remainder)
    }

    #[test]
    fn a_checksum_is_what_the_standard_has_as_an_example() {
        // RFC 3720, B.4.
        assert_eq!(of(&[0; 32]), 0x8a91_36aa);
        assert_eq!(of(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(of(&(0..32).collect::<Vec<u8>>()), 0x46dd_794e);
    }

    proptest! {
        #[test]
        fn a_checksum_is_the_remainder(before: u32, bytes in proptest::collection::vec(any::<u8>(), 0..5_000)) {
            prop_assert_eq!(append(before, &bytes), plainly(before, &bytes));
            prop_assert_eq!(append(before, &bytes), crc32c::crc32c_append(before, &bytes));
        }

        #[test]
        fn parts_together_have_the_checksum_of_the_whole(
            first in proptest::collection::vec(any::<u8>(), 0..100),
            second in proptest::collection::vec(any::<u8>(), 0..5_000),
            salt: u32,
        ) {
            let parts = (append(salt, &first), of(&second));
            let whole = append(salt, &[first, second.clone()].concat());
            prop_assert_eq!(combine(parts.0, parts.1, second.len()), whole);
        }
    }
}
