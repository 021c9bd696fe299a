// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arrays of numbers that messages carry as plain bytes.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A vector of plain values (numbers, arrays of numbers) that is packed by one copy of its bytes, in the byte order of
/// the machine. Between objects of one process it moves without a copy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bulk<T>(pub Vec<T>);

impl<T> Deref for Bulk<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T> DerefMut for Bulk<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.0
    }
}

impl<T> From<Vec<T>> for Bulk<T> {
    fn from(values: Vec<T>) -> Self {
        Self(values)
    }
}

impl<T: IntoBytes + Immutable> Serialize for Bulk<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0.as_bytes())
    }
}

struct Bytes<T>(PhantomData<T>);

impl<'de, T: FromBytes + IntoBytes + Clone> Visitor<'de> for Bytes<T> {
    type Value = Bulk<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the bytes of values of {} bytes", size_of::<T>())
    }

    fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Bulk<T>, E> {
        let size = size_of::<T>();
        if size == 0 || !bytes.len().is_multiple_of(size) {
            return Err(E::invalid_length(bytes.len(), &self));
        }
        let mut values = vec![T::new_zeroed(); bytes.len() / size];
        values.as_mut_slice().as_mut_bytes().copy_from_slice(bytes);
        Ok(Bulk(values))
    }

    // formats without bytes of their own, such as JSON, give a sequence
    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Bulk<T>, A::Error> {
        let mut bytes = Vec::new();
        while let Some(byte) = sequence.next_element::<u8>()? {
            bytes.push(byte);
        }
        self.visit_bytes(&bytes).map_err(|e: A::Error| A::Error::custom(e))
    }
}

impl<'de, T: FromBytes + IntoBytes + Clone> Deserialize<'de> for Bulk<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(Bytes(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn values_are_unpacked_as_they_were_packed(values in prop::collection::vec(any::<u64>(), 0..50)) {
            let bulk = Bulk(values.iter().map(|v| f64::from_bits(*v)).collect::<Vec<_>>());
            let packed = postcard::to_allocvec(&bulk).expect("packs");
            let again: Bulk<f64> = postcard::from_bytes(&packed).expect("unpacks");
            let bits = |b: &Bulk<f64>| b.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&again), bits(&bulk));
            prop_assert!(packed.len() <= bulk.len() * 8 + 5);
        }

        #[test]
        fn no_input_panics(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = postcard::from_bytes::<Bulk<[f64; 3]>>(&bytes);
        }
    }
}
