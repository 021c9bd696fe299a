// SPDX-License-Identifier: MIT OR Apache-2.0
//! A part of an image on its way to the buddy. Its bytes go from an image into a frame, and from a frame into an image.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::store::Name;
use crate::message::Malformed;
use crate::parcel::{PART, head};

/// A part of an image, for the buddy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part<'a> {
    pub(crate) name: Name,
    /// The part's place among the bytes that are sent.
    pub(crate) at: u64,
    /// The checksum of the piece that the part belongs to, up to the end of the part.
    pub(crate) checksum: u32,
    pub(crate) bytes: &'a [u8],
}

/// The bytes of a [`Part`] before those of the image.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawPart {
    number: U64,
    pe: U32,
    at: U64,
    checksum: U32,
}

impl Part<'_> {
    /// Appends the part to a frame, for a PE of the process that it goes to.
    pub(crate) fn encode(&self, local: u16, into: &mut Vec<u8>) -> Result<(), Malformed> {
        let Self { name: (number, pe), at, checksum, bytes } = *self;
        let part = RawPart { number: number.into(), pe: pe.into(), at: at.into(), checksum: checksum.into() };
        let size = size_of::<RawPart>() + bytes.len();
        let size = u32::try_from(size).map_err(|_| Malformed::new("a part of an image", "is too long"))?;
        let head = head(size, local, PART);
        into.reserve(head.len() + size as usize);
        into.extend_from_slice(&head);
        into.extend_from_slice(part.as_bytes());
        into.extend_from_slice(bytes);
        Ok(())
    }

    /// The part in the bytes of a parcel of kind [`PART`].
    pub(crate) fn decode(bytes: &[u8]) -> Result<Part<'_>, Malformed> {
        let (head, bytes) = RawPart::ref_from_prefix(bytes)
            .map_err(|_| Malformed::new("a part of an image", "ends inside its head"))?;
        Ok(Part {
            name: (head.number.get(), head.pe.get()),
            at: head.at.get(),
            checksum: head.checksum.get(),
            bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::parcel::split;

    proptest! {
        #[test]
        fn a_part_of_an_image_is_decoded_as_it_was_encoded(
            name: Name, at: u64, checksum: u32, bytes in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let part = Part { name, at, checksum, bytes: &bytes };
            let mut frame = vec![];
            part.encode(3, &mut frame).expect("short");
            part.encode(4, &mut frame).expect("short");
            let (local, encoded, rest) = split(&frame).expect("whole");
            prop_assert_eq!((local, encoded.kind), (3, PART));
            prop_assert_eq!(Part::decode(encoded.bytes), Ok(part));
            prop_assert_eq!(split(rest).map(|(local, _, rest)| (local, rest.len())), Ok((4, 0)));
        }

        #[test]
        fn no_bytes_of_a_part_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = Part::decode(&bytes);
        }
    }
}
