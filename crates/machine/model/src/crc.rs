// SPDX-License-Identifier: MIT OR Apache-2.0
//! CRC-32 (IEEE 802.3), without a library, so that a kernel can use it.

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut rest = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            rest = if rest & 1 == 1 { rest >> 1 ^ 0xedb8_8320 } else { rest >> 1 };
            bit += 1;
        }
        table[byte] = rest;
        byte += 1;
    }
    table
};

/// The checksum of bytes that come in several parts.
pub(crate) fn crc32<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let bytes = parts.into_iter().flatten();
    !bytes.fold(!0, |crc: u32, &byte| TABLE[(crc as u8 ^ byte) as usize] ^ crc >> 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_standard() {
        assert_eq!(crc32([&b"1234"[..], b"56789"]), 0xcbf4_3926);
        assert_eq!(crc32([]), 0);
    }
}
