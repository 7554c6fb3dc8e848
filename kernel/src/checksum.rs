//! Checksums of what is put together from parts whose checksums are known (CRC-32C).
//!
//! A checksum is the remainder of a polynomial, so that to put bytes behind others multiplies the remainder of these by
//! x to the power of as many bits. Polynomials have the highest power first: bit 31 is 1, bit 0 is x to the 31st.

/// Castagnoli's.
const POLYNOMIAL: u32 = 0x82f6_3b78;

const ONE: u32 = 1 << 31;

/// x to the power of a byte's bits.
const BYTE: u32 = ONE >> 8;

/// x to the power of the bits of 1, 2, 4, 8 and so on bytes.
const POWERS: [u32; 32] = powers();

/// The checksum of two parts together, of which the second has `second_bytes`, fewer than 4 GiB.
pub fn combine(first: u32, second: u32, second_bytes: usize) -> u32 {
    let mut shifted = first;
    for (place, power) in POWERS.iter().enumerate() {
        if second_bytes >> place & 1 == 1 {
            shifted = product(*power, shifted);
        }
    }
    shifted ^ second
}

const fn powers() -> [u32; 32] {
    let mut powers = [BYTE; 32];
    let mut left: &mut [u32] = &mut powers;
    let mut power = BYTE;
    while let Some((first, rest)) = left.split_first_mut() {
        (*first, left) = (power, rest);
        power = product(power, power);
    }
    powers
}

/// The product, modulo the polynomial.
const fn product(one: u32, other: u32) -> u32 {
    let (mut found, mut multiple, mut bit) = (0, other, ONE);
    while bit > 0 {
        if one & bit > 0 {
            found ^= multiple;
        }
        multiple = if multiple & 1 == 1 { (multiple >> 1) ^ POLYNOMIAL } else { multiple >> 1 };
        bit >>= 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_together_have_the_checksum_of_the_whole(
            first in proptest::collection::vec(any::<u8>(), 0..100),
            second in proptest::collection::vec(any::<u8>(), 0..5_000),
            salt: u32,
        ) {
            let parts = (crc32c::crc32c_append(salt, &first), crc32c::crc32c(&second));
            let whole = crc32c::crc32c_append(salt, &[first, second.clone()].concat());
            prop_assert_eq!(combine(parts.0, parts.1, second.len()), whole);
        }
    }
}
