// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages and packed states: bytes at addresses that are multiples of 16, so that C reads numbers in place.

use std::ffi::c_void;
use std::fmt;

use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::status::Refusal;

/// The alignment of messages and states.
pub(crate) const ALIGNMENT: usize = size_of::<Chunk>();

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(16))]
struct Chunk([u8; 16]);

/// Aligned bytes. The bytes beyond `length` are 0.
#[derive(Clone, Default)]
pub(crate) struct Bytes {
    chunks: Vec<Chunk>,
    length: usize,
}

impl Bytes {
    /// Copies bytes of C.
    ///
    /// # Safety
    /// `bytes` is null or points to `length` bytes.
    pub(crate) unsafe fn from_raw(bytes: *const c_void, length: usize, what: &str) -> Result<Self, Refusal> {
        let mut copy = Self::default();
        if length == 0 {
            return Ok(copy);
        }
        if bytes.is_null() {
            return Err(Refusal::Invalid(format!("{what} is NULL, and its length is {length}")));
        }
        let to = copy.extend(length)?;
        // SAFETY: the caller's promise; isize::MAX bounds `length`, because `extend` has found memory for it.
        to.copy_from_slice(unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) });
        Ok(copy)
    }

    /// Adds bytes of value 0 and returns them.
    pub(crate) fn extend(&mut self, length: usize) -> Result<&mut [u8], Refusal> {
        let begin = self.length;
        let no_memory = || Refusal::Invalid(format!("there is no memory for {length} more bytes"));
        let end = begin.checked_add(length).ok_or_else(no_memory)?;
        let chunks = end.div_ceil(ALIGNMENT);
        self.chunks.try_reserve(chunks - self.chunks.len()).map_err(|_| no_memory())?;
        self.chunks.resize(chunks, Chunk([0; 16]));
        self.length = end;
        Ok(&mut self.chunks.as_mut_slice().as_mut_bytes()[begin..end])
    }

    fn reserve(&mut self, capacity: usize) -> bool {
        self.chunks.try_reserve(capacity.div_ceil(ALIGNMENT)).is_ok()
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.chunks.as_slice().as_bytes()[..self.length]
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// For C: null if there are none.
    pub(crate) fn as_ptr(&self) -> *const c_void {
        if self.length == 0 { std::ptr::null() } else { self.chunks.as_ptr().cast() }
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.length)
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.as_slice())
    }
}

struct Aligned;

impl Visitor<'_> for Aligned {
    type Value = Bytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
        let mut copy = Bytes::default();
        copy.extend(bytes.len()).map_err(E::custom)?.copy_from_slice(bytes);
        Ok(copy)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(Aligned).map_err(D::Error::custom)
    }
}

/// `colony_buffer`.
#[derive(Debug, Default)]
pub struct Buffer {
    pub(crate) bytes: Bytes,
    /// `true` if the buffer belongs to the runtime, which has passed it to `pack`.
    pub(crate) is_lent: bool,
}

impl Buffer {
    pub(crate) fn with_capacity(capacity: usize) -> Option<Self> {
        let mut buffer = Self::default();
        buffer.bytes.reserve(capacity).then_some(buffer)
    }

    pub(crate) fn lent() -> Self {
        Self { bytes: Bytes::default(), is_lent: true }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_are_aligned_and_unpacked_as_they_were_packed(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6)) {
            let mut bytes = Bytes::default();
            for part in &parts {
                bytes.extend(part.len()).expect("memory").copy_from_slice(part);
            }
            prop_assert_eq!(bytes.as_slice(), parts.concat());
            let packed = postcard::to_allocvec(&bytes).expect("packs");
            let again: Bytes = postcard::from_bytes(&packed).expect("unpacks");
            prop_assert_eq!(again.as_slice(), parts.concat());
            prop_assert!(again.as_ptr().is_null() == (again.len() == 0) && again.as_ptr().addr().is_multiple_of(ALIGNMENT));
        }

        #[test]
        fn no_input_panics(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = postcard::from_bytes::<Bytes>(&bytes);
        }
    }

    #[test]
    fn a_length_beyond_all_memory_is_refused() {
        let mut bytes = Bytes::default();
        bytes.extend(3).expect("memory");
        for length in [usize::MAX, usize::MAX - 3, isize::MAX as usize] {
            assert!(bytes.extend(length).is_err());
        }
        assert_eq!(bytes.len(), 3);
    }
}
