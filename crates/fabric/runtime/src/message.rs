// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages: what an entry method takes.

use std::any::Any;

use postcard::ser_flavors::{ExtendFlavor, Flavor};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::address::Address;

/// Anything that an entry method can take. Between PEs of one process a message moves as it is; to other processes it
/// is packed with `serde`. Wrap long arrays of numbers into [`Bulk`](crate::Bulk).
pub trait Message: Serialize + DeserializeOwned + Send + 'static {}

impl<T: Serialize + DeserializeOwned + Send + 'static> Message for T {}

/// Packed bytes that are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {reason}")]
pub struct Malformed {
    /// The value that was packed or unpacked.
    pub what: String,
    /// The problem.
    pub reason: String,
}

impl Malformed {
    pub(crate) fn new(what: impl Into<String>, reason: impl ToString) -> Self {
        Self { what: what.into(), reason: reason.to_string() }
    }
}

/// Packs a value behind the bytes of `into`, which stay as they are if the value cannot be packed.
pub(crate) fn pack<T: Serialize>(value: &T, into: &mut Vec<u8>) -> Result<(), Malformed> {
    let before = into.len();
    // postcard's own functions drop the bytes of a value that cannot be packed, and all before them
    let mut serializer = postcard::Serializer { output: ExtendFlavor::new(std::mem::take(into)) };
    let packed = value.serialize(&mut serializer);
    *into = serializer.output.finalize().map_err(|e| cannot_pack::<T>(&e))?;
    packed.map_err(|e| {
        into.truncate(before);
        cannot_pack::<T>(&e)
    })
}

fn cannot_pack<T>(error: &postcard::Error) -> Malformed {
    Malformed::new(std::any::type_name::<T>(), format!("cannot be packed: {error}"))
}

/// The bytes of a value when it is packed; 0 if it cannot be.
pub(crate) fn packed_size<T: Serialize>(value: &T) -> usize {
    postcard::serialize_with_flavor(value, postcard::ser_flavors::Size::default()).unwrap_or(0)
}

/// Unpacks a value that takes all the bytes.
pub(crate) fn unpack<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Malformed> {
    let wrong = |reason: String| Malformed::new(std::any::type_name::<T>(), reason);
    let (value, rest) = postcard::take_from_bytes(bytes)
        .map_err(|e| wrong(format!("cannot be unpacked from {} bytes: {e}", bytes.len())))?;
    match rest.len() {
        0 => Ok(value),
        left => Err(wrong(format!(
            "unpacks {} of the {} bytes that were packed: its Serialize and Deserialize differ",
            bytes.len() - left,
            bytes.len()
        ))),
    }
}

/// The content of a message.
#[derive(Debug)]
pub(crate) enum Payload {
    /// The message itself.
    Typed(Box<dyn Any + Send>),
    /// Its bytes.
    Packed(Vec<u8>),
}

impl Payload {
    /// Bytes of the content: packed, or without what it points to.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Typed(message) => size_of_val(&**message),
            Self::Packed(bytes) => bytes.len(),
        }
    }
}

/// A message on its way to an object.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Envelope<P = Payload> {
    pub(crate) to: Address,
    pub(crate) from: Address,
    /// The message's number among those of this sender to this receiver.
    pub(crate) number: u64,
    /// The sender's request that waits for a reply; 0 is none.
    pub(crate) reply: u32,
    /// The PE that sent it, which is told if the message had to be forwarded.
    pub(crate) origin: u32,
    /// Messages of lower priority values go first.
    pub(crate) priority: i32,
    /// The entry method, a number of the receiver's class.
    pub(crate) entry: u16,
    /// The epoch of the place that it was sent to; 0 if that was not known.
    pub(crate) epoch: u32,
    /// The message in the time line.
    pub(crate) id: u64,
    pub(crate) payload: P,
}

impl<P> Envelope<P> {
    /// The same message with its content in another form.
    pub(crate) fn map<Q>(self, f: impl FnOnce(P) -> Q) -> Envelope<Q> {
        let Self { to, from, number, reply, origin, priority, entry, epoch, id, payload } = self;
        Envelope { to, from, number, reply, origin, priority, entry, epoch, id, payload: f(payload) }
    }
}

#[cfg(test)]
mod tests {
    use serde::Serializer;

    use super::*;

    /// A value of which the first half can be packed.
    struct Half;

    impl Serialize for Half {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            use serde::ser::{Error, SerializeTuple};
            let mut tuple = serializer.serialize_tuple(2)?;
            tuple.serialize_element(&7u8)?;
            Err(S::Error::custom("no second half"))
        }
    }

    #[test]
    fn a_value_that_cannot_be_packed_leaves_what_was_packed_before() {
        let mut bytes = vec![1, 2, 3];
        let error = pack(&Half, &mut bytes).expect_err("half a value");
        assert!(error.to_string().contains("Half: cannot be packed"), "{error}");
        assert_eq!(bytes, [1, 2, 3]);
        pack(&4u8, &mut bytes).expect("a number");
        assert_eq!(bytes, [1, 2, 3, 4]);
    }
}
