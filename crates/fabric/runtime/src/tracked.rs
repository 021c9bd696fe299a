// SPDX-License-Identifier: MIT OR Apache-2.0
//! A value that notices its changes, for checkpoints.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::de::{DeserializeOwned, Error as _, Visitor};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::bulk::Bulk;
use crate::checkpoint::fields::{Field, pack_field, unpack_field};
use crate::message::{pack, packed_size, unpack};
use crate::schema::TRACKED;

/// The versions that have been drawn in this process.
static DRAWN: AtomicU64 = AtomicU64::new(0);

/// A part of an object that seldom changes. A checkpoint packs it, and sends it to the buddy, only if it has been accessed
/// mutably since the last complete checkpoint, or has come from another process since. Otherwise the checkpoint uses the
/// bytes of the last one again.
///
/// Wrap what is large and seldom changes. Each wrapped value is kept by itself, so a `Vec<Tracked<Block>>` sends those
/// blocks again that have changed. A value that is packed into less than 4 KiB, or is part of another `Tracked`, is packed
/// with what contains it. In messages and migrations, the wrapped value is packed as the value alone.
///
/// Every mutable access counts as a change, whatever it does. Changes behind a shared reference (`Cell`, `Mutex`, atomics)
/// are not noticed, and a recovery brings the old value back: debug builds compare the values and end the program.
///
/// ```
/// # use colony_runtime::{Context, Object, Tracked};
/// # use serde::{Deserialize, Serialize};
/// #[derive(Serialize, Deserialize)]
/// struct Solver {
///     step: u64,
///     matrix: Tracked<Vec<f64>>,
/// }
///
/// impl Object for Solver {
///     type Index = i64;
///     type Init = ();
///
///     fn new((): (), _: &mut Context<'_, Self>) -> Self {
///         Self { step: 0, matrix: vec![1.0; 1_000_000].into() }
///     }
///
///     fn resume(&mut self, cx: &mut Context<'_, Self>) {
///         // sends the matrix again only every hundredth time
///         self.step += 1;
///         if self.step.is_multiple_of(100) {
///             self.matrix[0] += 1.0;
///         }
///         cx.at_sync();
///     }
/// }
/// ```
#[derive(Clone)]
pub struct Tracked<T> {
    value: T,
    /// 0: no version has been drawn since the last mutable access.
    version: Cell<u64>,
    /// Bytes of the value when it was packed last; 0 if it was not.
    packed: Cell<usize>,
}

impl<T> Tracked<T> {
    /// A value that has changed.
    pub const fn new(value: T) -> Self {
        Self { value, version: Cell::new(0), packed: Cell::new(0) }
    }

    /// The version: the same number only as long as the value is not accessed mutably. No other values of this process have
    /// it but clones that have not changed.
    fn version(&self) -> u64 {
        if self.version.get() == 0 {
            self.version.set(DRAWN.fetch_add(1, Ordering::Relaxed) + 1);
        }
        self.version.get()
    }

    /// The value alone.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.value
    }
}

impl<T> Deref for Tracked<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Tracked<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.version.set(0);
        &mut self.value
    }
}

impl<T> From<T> for Tracked<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: Default> Default for Tracked<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: PartialEq> PartialEq for Tracked<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Tracked<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<T: Serialize> Tracked<T> {
    /// Bytes of the packed value, about.
    fn expected(&self) -> usize {
        match self.packed.get() {
            0 => packed_size(&self.value),
            packed => packed + (packed >> 6),
        }
    }

    fn pack(&self) -> Option<Field> {
        pack_field(
            self.version(),
            || self.expected(),
            |into| {
                let before = into.len();
                pack(&self.value, into)?;
                self.packed.set(into.len() - before);
                Ok(())
            },
        )
    }
}

// In an image, the form of a field is an option: its bytes, or none if they are a piece of their own. Text formats, in which
// an object may pack a part of itself, are not the image.

impl<T: Serialize> Serialize for Tracked<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let field = if serializer.is_human_readable() { None } else { self.pack() };
        match field {
            None => self.value.serialize(serializer),
            Some(Field::Apart) => serializer.serialize_none(),
            Some(Field::Short(bytes)) => serializer.serialize_some(&Bulk(bytes)),
            Some(Field::Failed) => Err(S::Error::custom("a field cannot be packed")),
        }
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Tracked<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            return T::deserialize(deserializer).map(Self::new);
        }
        let mut deserializer = Some(deserializer);
        let field = unpack_field(|fields| {
            let Some(deserializer) = deserializer.take() else { return Err(missing()) };
            let short = Option::<Bulk<u8>>::deserialize(deserializer)?;
            let bytes = short.map(|Bulk(bytes)| bytes).or_else(|| fields.pop_front()).ok_or_else(missing)?;
            unpack::<T>(&bytes).map_err(D::Error::custom)
        });
        let value = match (field, deserializer) {
            (Some(field), _) => field?,
            (None, Some(deserializer)) => {
                deserializer.deserialize_newtype_struct(TRACKED, Alone(PhantomData))?
            }
            (None, None) => return Err(missing()),
        };
        Ok(Self::new(value))
    }
}

/// Reads a value that is of no image. A schema finds it by the name; in packed bytes, it is the value alone.
struct Alone<T>(PhantomData<T>);

impl<'de, T: DeserializeOwned> Visitor<'de> for Alone<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        T::deserialize(deserializer)
    }
}

fn missing<E: serde::de::Error>() -> E {
    E::custom("a field of the image is missing")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::checkpoint::draft::{Draft, History};
    use crate::checkpoint::fields::{LEAST, NotPacked, with_fields};
    use crate::checkpoint::pieces::Sending;
    use crate::checkpoint::store::Store;

    #[test]
    fn a_version_is_that_of_one_value_until_it_is_accessed_mutably() {
        let mut one = Tracked::new(vec![1, 2]);
        let first = one.version();
        assert_eq!((one.len(), one.version()), (2, first));
        one[0] = 1;
        let second = one.version();
        assert_ne!(first, second);
        let mut other = one.clone();
        assert_eq!(other.version(), second);
        other.push(3);
        // values that change places, and new ones in their place, have their own versions
        std::mem::swap(&mut one, &mut other);
        assert!(![first, second].contains(&one.version()));
        assert_eq!((other.version(), other.into_inner()), (second, vec![1, 2]));
        one = Tracked::new(vec![1, 2]);
        assert!(![first, second].contains(&one.version()));
    }

    #[test]
    fn without_an_image_a_tracked_value_is_packed_as_the_value_alone() {
        let value = Tracked::new("text".to_owned());
        let packed = postcard::to_allocvec(&value).expect("packs");
        assert_eq!(packed, postcard::to_allocvec("text").expect("packs"));
        let again: Tracked<String> = postcard::from_bytes(&packed).expect("unpacks");
        assert_eq!(again, value);
        assert_ne!(again.version(), value.version());
    }

    /// Fields of all kinds.
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Mixed {
        before: u32,
        long: Tracked<Vec<u16>>,
        short: Tracked<String>,
        several: Vec<Tracked<Bulk<u8>>>,
        named: BTreeMap<u8, Option<Tracked<Vec<u8>>>>,
        nested: Tracked<(Tracked<Vec<u8>>, u8)>,
        after: String,
    }

    fn mixed() -> Mixed {
        let long = |byte: u8| vec![byte; LEAST];
        Mixed {
            before: 7,
            long: vec![9; LEAST].into(),
            short: "short".to_owned().into(),
            several: vec![Bulk(long(1)).into(), Bulk(vec![2]).into(), Bulk(long(3)).into()],
            named: [(4, None), (5, Some(long(5).into()))].into(),
            nested: (long(6).into(), 8).into(),
            after: "after".to_owned(),
        }
    }

    fn draft() -> Draft {
        History::default().draft((0, 0), &Store::default(), 0).expect("memory")
    }

    #[test]
    fn fields_of_an_image_are_unpacked_as_they_were_packed() {
        let object = mixed();
        let mut draft = draft();
        let added = draft.add(|into| pack(&object, into)).expect("packs");
        assert_eq!((added.fields.len(), added.bytes < 100), (5, true), "{added:?}");
        let bytes = Sending::new((0, 0), draft.finish(&mut History::default()).0).into_image();
        let bytes = bytes.bytes();
        let (fields, state) = bytes.split_at(added.fields.iter().sum::<u64>() as usize);
        assert_eq!(with_fields(fields, &added.fields, || unpack::<Mixed>(state)), Ok(object));
        // an object that is not of the image is not taken for one
        let alone = postcard::to_allocvec(&mixed()).expect("packs");
        assert_eq!(unpack::<Mixed>(&alone), Ok(mixed()));
        for lengths in [&added.fields[..4], &[&added.fields[..], &[0]].concat(), &[u64::MAX]] {
            assert!(with_fields(fields, lengths, || unpack::<Mixed>(state)).is_err(), "{lengths:?}");
        }
        assert!(unpack::<Mixed>(state).is_err() && unpack::<Mixed>(&alone).is_ok());
    }

    /// A value that no `serde` format packs, and one that changes unseen.
    #[derive(Clone)]
    struct Strange(Cell<u8>);

    impl Serialize for Strange {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            match self.0.get() {
                0 => Err(S::Error::custom("refused")),
                byte => vec![byte; LEAST].serialize(serializer),
            }
        }
    }

    #[test]
    fn fields_that_cannot_be_packed_or_have_changed_unseen_are_errors() {
        let failed = draft().add(|into| pack(&Tracked::new(Strange(Cell::new(0))), into));
        assert!(matches!(failed, Err(NotPacked::Malformed(_))), "{failed:?}");
        let (mut history, store) = (History::default(), Store::default());
        let field = Tracked::new(Strange(Cell::new(1)));
        for number in 0..2 {
            let mut draft = history.draft((number, 0), &store, 0).expect("memory");
            let added = draft.add(|into| pack(&field, into));
            if number == 1 && cfg!(debug_assertions) {
                assert!(
                    matches!(&added, Err(NotPacked::Malformed(error)) if error.reason.contains("has changed"))
                );
                return;
            }
            let (pieces, _) = draft.finish(&mut history);
            store.put((number, 0), Sending::new((number, 0), pieces).into_image());
            history.commit(number);
            field.0.set(2);
        }
    }

    #[test]
    fn a_panic_while_an_object_is_packed_leaves_nothing_behind() {
        let panicked = std::panic::catch_unwind(|| draft().add(|_| panic!("as asked")));
        assert!(panicked.is_err());
        assert!(Tracked::new(1u8).pack().is_none());
    }
}
