// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any bytes as an encoded personality, also behind a right checksum. What is decoded is encoded the same.
#![no_main]

use colony_model::{DecodeError, Personality};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut bytes = bytes.to_vec();
    if let Err(DecodeError::Checksum { expected, .. }) = Personality::decode(&bytes) {
        bytes[12..16].copy_from_slice(&expected.to_le_bytes());
    }
    if let Ok(personality) = Personality::decode(&bytes) {
        let again = personality.encode();
        // what an older version has written is written anew in this one
        if bytes[8..10] == again[8..10] {
            assert_eq!(again[..], bytes[..]);
        }
        assert_eq!(Personality::decode(&again), Ok(personality));
    }
});
