// SPDX-License-Identifier: MIT OR Apache-2.0
//! The layout of a type, as its `Deserialize` asks for it.
//!
//! A packed state has no names: its `Deserialize` reads value after value. [`Tracer`] is a format without bytes that answers with
//! samples and notes each question, so nested types are seen, too. An enum is read once for each variant.

use std::any::type_name;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::de::value::U32Deserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, Visitor};

/// The name under which [`Tracked`](crate::Tracked) reads its value: its form in an image differs from that of the value.
pub(crate) const TRACKED: &str = "colony_runtime::Tracked";
/// The most values in each other. A type that contains itself ends earlier, at an option, a sequence or another variant.
const DEEPEST: usize = 64;
/// The most questions of one type, so that enums in enums cannot take for ever.
const MOST_QUESTIONS: usize = 1 << 18;

/// The kind of each value of a type, by its path.
pub(super) type Fields = BTreeMap<String, String>;

/// The layout of `T`, and whether all of it has been seen.
pub(super) fn trace<T: DeserializeOwned>() -> (Fields, bool) {
    let mut most = Fields::new();
    // types that check what they read refuse a sample: `NonZero` takes 1 only, others an empty string
    for sample in [Sample::One, Sample::Empty] {
        let mut tracer = Tracer::new(sample);
        if tracer.read_all_variants::<T>() {
            return (tracer.fields, true);
        }
        if tracer.fields.len() > most.len() {
            most = tracer.fields;
        }
    }
    (most, false)
}

/// The values that a type reads.
#[derive(Clone, Copy, PartialEq)]
enum Sample {
    One,
    Empty,
}

/// Why a type cannot be read from samples.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Unseen(String);

impl de::Error for Unseen {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self(text.to_string())
    }
}

struct Tracer {
    sample: Sample,
    fields: Fields,
    /// The next variant of each enum, by its path.
    variants: HashMap<String, u32>,
    /// Enums of which variants are left.
    left: usize,
    questions: usize,
    /// The types around the value that is read, and the variants of those that are enums.
    around: Vec<(&'static str, u32)>,
}

impl Tracer {
    fn new(sample: Sample) -> Self {
        let (fields, variants) = (Fields::new(), HashMap::new());
        Self { sample, fields, variants, left: 0, questions: 0, around: Vec::new() }
    }

    /// Reads the type as often as its enums have variants. Returns `true` if each time succeeded.
    fn read_all_variants<T: DeserializeOwned>(&mut self) -> bool {
        let mut is_whole = true;
        loop {
            (self.left, self.around) = (0, Vec::new());
            let at = AssertUnwindSafe(At { tracer: self, path: String::new() });
            // a `Deserialize` of the program's own can take a sample for something that no object packs
            is_whole &= catch_unwind(move || T::deserialize({ at }.0).is_ok()).unwrap_or(false);
            if self.left == 0 || self.questions > MOST_QUESTIONS {
                return is_whole && self.left == 0;
            }
        }
    }
}

/// A value at a path.
struct At<'t> {
    tracer: &'t mut Tracer,
    path: String,
}

impl At<'_> {
    fn note(&mut self, kind: impl Into<String>) -> Result<(), Unseen> {
        self.tracer.questions += 1;
        if self.tracer.questions > MOST_QUESTIONS {
            return Err(Unseen("has too many variants".to_owned()));
        }
        self.tracer.fields.insert(self.path.clone(), kind.into());
        Ok(())
    }

    fn inside(&mut self, name: &str) -> At<'_> {
        let path = match (self.path.as_str(), name) {
            ("", name) => name.to_owned(),
            (path, name) if name.starts_with('[') => format!("{path}{name}"),
            (path, name) => format!("{path}.{name}"),
        };
        At { tracer: &mut *self.tracer, path }
    }

    /// The variants of each `V` around this value: some if the type `V` is read inside of itself.
    fn variants_around<V>(&self) -> Vec<u32> {
        let around = self.tracer.around.iter().filter(|(name, _)| *name == type_name::<V>());
        around.map(|(_, variant)| *variant).collect()
    }

    fn is_recursive<V>(&self) -> bool {
        !self.variants_around::<V>().is_empty()
    }

    /// Reads with the type `V` around.
    fn read_in<V>(self, read: impl FnOnce(At<'_>) -> Result<V, Unseen>) -> Result<V, Unseen> {
        self.read_variant(0, read)
    }

    /// Reads with a variant of the enum `V` around.
    fn read_variant<V>(
        self,
        variant: u32,
        read: impl FnOnce(At<'_>) -> Result<V, Unseen>,
    ) -> Result<V, Unseen> {
        let Self { tracer, path } = self;
        if tracer.around.len() >= DEEPEST {
            return Err(Unseen("contains itself".to_owned()));
        }
        tracer.around.push((type_name::<V>(), variant));
        let value = read(At { tracer: &mut *tracer, path });
        tracer.around.pop();
        value
    }

    /// Reads values of these names in turn.
    fn read_each<'de, V: Visitor<'de>>(
        self,
        names: impl Iterator<Item = String>,
        visitor: V,
    ) -> Result<V::Value, Unseen> {
        self.read_in::<V::Value>(|at| visitor.visit_seq(Each { at, names }))
    }
}

/// Values in turn: the fields of a struct, or the one element of a sequence or map.
struct Each<'t, I> {
    at: At<'t>,
    names: I,
}

impl<'de, I: Iterator<Item = String>> de::SeqAccess<'de> for Each<'_, I> {
    type Error = Unseen;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Unseen> {
        let Some(name) = self.names.next() else { return Ok(None) };
        seed.deserialize(self.at.inside(&name)).map(Some)
    }
}

impl<'de, I: Iterator<Item = String>> de::MapAccess<'de> for Each<'_, I> {
    type Error = Unseen;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Unseen> {
        let Some(name) = self.names.next() else { return Ok(None) };
        seed.deserialize(self.at.inside(&name)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Unseen> {
        seed.deserialize(self.at.inside("[value]"))
    }
}

/// A variant of an enum.
struct Variant<'t> {
    at: At<'t>,
    number: u32,
}

impl<'de, 't> de::EnumAccess<'de> for Variant<'t> {
    type Error = Unseen;
    type Variant = At<'t>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, At<'t>), Unseen> {
        let number: U32Deserializer<Unseen> = self.number.into_deserializer();
        Ok((seed.deserialize(number)?, self.at))
    }
}

impl<'de> de::VariantAccess<'de> for At<'_> {
    type Error = Unseen;

    fn unit_variant(mut self) -> Result<(), Unseen> {
        self.note("nothing")
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Unseen> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Unseen> {
        self.deserialize_tuple(length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unseen> {
        self.deserialize_struct("", fields, visitor)
    }
}

/// Methods that note a kind and answer with a sample.
macro_rules! samples {
    ($($method:ident, $kind:literal, $visit:ident($one:expr, $empty:expr);)*) => {
        $(fn $method<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Unseen> {
            self.note($kind)?;
            visitor.$visit(if self.tracer.sample == Sample::One { $one } else { $empty })
        })*
    };
}

impl<'de> Deserializer<'de> for At<'_> {
    type Error = Unseen;

    samples! {
        deserialize_bool, "bool", visit_bool(true, false);
        deserialize_i8, "i8", visit_i8(1, 0);
        deserialize_i16, "i16", visit_i16(1, 0);
        deserialize_i32, "i32", visit_i32(1, 0);
        deserialize_i64, "i64", visit_i64(1, 0);
        deserialize_i128, "i128", visit_i128(1, 0);
        deserialize_u8, "u8", visit_u8(1, 0);
        deserialize_u16, "u16", visit_u16(1, 0);
        deserialize_u32, "u32", visit_u32(1, 0);
        deserialize_u64, "u64", visit_u64(1, 0);
        deserialize_u128, "u128", visit_u128(1, 0);
        deserialize_f32, "f32", visit_f32(1.0, 0.0);
        deserialize_f64, "f64", visit_f64(1.0, 0.0);
        deserialize_char, "char", visit_char('1', 'a');
        deserialize_str, "text", visit_borrowed_str("1", "");
        deserialize_string, "text", visit_borrowed_str("1", "");
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Unseen> {
        Err(Unseen("asks the format for the type".to_owned()))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unseen> {
        self.deserialize_any(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unseen> {
        self.deserialize_any(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Unseen> {
        // the plain values of a `Bulk` have no other sign than its type
        let bulk = type_name::<V::Value>().split_once("Bulk<").and_then(|(_, of)| of.strip_suffix('>'));
        self.note(bulk.map_or_else(|| "bytes".to_owned(), |of| format!("bytes of {of}")))?;
        visitor.visit_borrowed_bytes(&[])
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unseen> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Unseen> {
        self.note("option")?;
        if self.is_recursive::<V::Value>() {
            return visitor.visit_none();
        }
        self.read_in::<V::Value>(|mut at| visitor.visit_some(at.inside("[some]")))
    }

    fn deserialize_unit<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Unseen> {
        self.note("nothing")?;
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Unseen> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        mut self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Unseen> {
        if name == TRACKED {
            self.note("tracked")?;
            return self.read_in::<V::Value>(|mut at| visitor.visit_newtype_struct(at.inside("[tracked]")));
        }
        self.read_in::<V::Value>(|at| visitor.visit_newtype_struct(at))
    }

    fn deserialize_seq<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Unseen> {
        self.note("sequence")?;
        let names = if self.is_recursive::<V::Value>() { None } else { Some("[element]".to_owned()) };
        self.read_each(names.into_iter(), visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Unseen> {
        self.note("map")?;
        let names = if self.is_recursive::<V::Value>() { None } else { Some("[key]".to_owned()) };
        self.read_in::<V::Value>(|at| visitor.visit_map(Each { at, names: names.into_iter() }))
    }

    fn deserialize_tuple<V: Visitor<'de>>(mut self, length: usize, visitor: V) -> Result<V::Value, Unseen> {
        self.note(format!("tuple of {length}"))?;
        self.read_each((0..length).map(|at| at.to_string()), visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Unseen> {
        self.deserialize_tuple(length, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        mut self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unseen> {
        self.note(format!("struct of {}", fields.join(", ")))?;
        self.read_each(fields.iter().map(|&field| field.to_owned()), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        mut self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unseen> {
        self.note(format!("one of {}", variants.join(", ")))?;
        let count = variants.len() as u32;
        let around = self.variants_around::<V::Value>();
        let next = *self.tracer.variants.entry(self.path.clone()).or_default();
        // inside of itself, an enum ends with a variant that is not around
        let number = match around.is_empty() {
            true => next.min(count.saturating_sub(1)),
            false => (0..count).find(|number| !around.contains(number)).unwrap_or(count),
        };
        let Some(name) = variants.get(number as usize) else {
            return Err(Unseen("has no variant that ends".to_owned()));
        };
        let At { tracer, path } = self;
        let before = tracer.left;
        let at = At { tracer: &mut *tracer, path: path.clone() };
        let read = at.read_variant::<V::Value>(number, |mut at| {
            visitor.visit_enum(Variant { at: at.inside(name), number })
        });
        // the next reading takes the next variant once all enums inside of this one have been read
        if around.is_empty() && tracer.left == before && next < count {
            tracer.variants.insert(path, next + 1);
            tracer.left += usize::from(next + 1 < count);
        }
        read
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}
