// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Arrow schema in the metadata of a Parquet file.
//!
//! Parquet has no type for durations: data tools write a number, and only the Arrow schema beside it (key `ARROW:schema`) says its unit.
//! The schema is a Flatbuffers message in base64 (Arrow's `Schema.fbs`, `Message.fbs`), of which this module reads the names and the
//! types of the columns.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// The key of the schema in the file's metadata.
pub(super) const KEY: &str = "ARROW:schema";

/// The unit of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Millis,
    Micros,
    Nanos,
}

impl Unit {
    /// Nanoseconds of one.
    pub(super) const fn ns(self) -> i64 {
        match self {
            Self::Seconds => 1_000_000_000,
            Self::Millis => 1_000_000,
            Self::Micros => 1_000,
            Self::Nanos => 1,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Seconds => "s",
            Self::Millis => "ms",
            Self::Micros => "µs",
            Self::Nanos => "ns",
        }
    }
}

/// The columns that hold durations, by name, and their units. `None` if this is no schema of Arrow.
pub(super) fn durations(schema: &str) -> Option<BTreeMap<String, Unit>> {
    const SCHEMA: u8 = 1;
    const DURATION: u8 = 18;
    let bytes = BASE64_STANDARD.decode(schema.trim()).ok()?;
    // the length of the message, after a mark that older files do not have
    let message = Bytes(bytes.strip_prefix(&[0xff; 4]).unwrap_or(&bytes).get(4..)?);
    let root = message.table(0)?;
    if root.byte(message, 1)? != SCHEMA {
        return None;
    }
    let fields = root.target(message, 2).and_then(|at| message.table_at(at))?.target(message, 1)?;
    let mut found = BTreeMap::new();
    for i in 0..message.u32(fields)? as usize {
        let field = message.table(fields.checked_add(4 + 4 * i)?)?;
        let name = message.text(field.target(message, 0)?)?;
        if field.byte(message, 2)? == DURATION {
            let duration = message.table_at(field.target(message, 3)?)?;
            let unit = match duration.place(message, 0) {
                // the default of the schema
                None => Unit::Millis,
                Some(at) => match message.u16(at)? {
                    0 => Unit::Seconds,
                    1 => Unit::Millis,
                    2 => Unit::Micros,
                    3 => Unit::Nanos,
                    _ => return None,
                },
            };
            found.insert(name.to_owned(), unit);
        }
    }
    Some(found)
}

/// Bytes of a Flatbuffers message. Nothing beyond their end is read.
#[derive(Clone, Copy)]
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn array<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..at.checked_add(N)?)?.try_into().ok()
    }

    fn u16(self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_le_bytes)
    }

    fn u32(self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_le_bytes)
    }

    /// The place that the offset at `at` points to.
    fn follow(self, at: usize) -> Option<usize> {
        at.checked_add(self.u32(at)? as usize)
    }

    /// The table that the offset at `at` points to.
    fn table(self, at: usize) -> Option<Table> {
        self.table_at(self.follow(at)?)
    }

    fn table_at(self, at: usize) -> Option<Table> {
        let back = i64::from(i32::from_le_bytes(self.array(at)?));
        let places = usize::try_from(i64::try_from(at).ok()?.checked_sub(back)?).ok()?;
        Some(Table { at, places })
    }

    fn text(self, at: usize) -> Option<&'a str> {
        let from = at.checked_add(4)?;
        let to = from.checked_add(self.u32(at)? as usize)?;
        std::str::from_utf8(self.0.get(from..to)?).ok()
    }
}

/// A Flatbuffers table: its place, and that of the list that says where its fields are.
#[derive(Clone, Copy)]
struct Table {
    at: usize,
    places: usize,
}

impl Table {
    /// The place of field `number`; `None` if it has its default.
    fn place(self, bytes: Bytes<'_>, number: usize) -> Option<usize> {
        let entry = 4 + 2 * number;
        let offset = match usize::from(bytes.u16(self.places)?) {
            length if length >= entry + 2 => usize::from(bytes.u16(self.places.checked_add(entry)?)?),
            _ => 0,
        };
        (offset > 0).then(|| self.at.checked_add(offset))?
    }

    /// The place that the offset in field `number` points to.
    fn target(self, bytes: Bytes<'_>, number: usize) -> Option<usize> {
        bytes.follow(self.place(bytes, number)?)
    }

    /// The byte in field `number`, 0 by default.
    fn byte(self, bytes: Bytes<'_>, number: usize) -> Option<u8> {
        match self.place(bytes, number) {
            None => Some(0),
            Some(at) => bytes.0.get(at).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The columns `cpu` (int64), `start_ns` (duration, ms), `duration_ns` (duration, µs) and `source` (text view), by pyarrow 26.
    const SCHEMA: &str = "/////xgBAAAQAAAAAAAKAAwABgAFAAgACgAAAAABBAAMAAAACAAIAAAABAAIAAAABAAAAAQAAACwAAAAbAAAADAAAAAEAAAAcP///wAAARgQAAAAGAAAAAQA\
        AAAAAAAABgAAAHNvdXJjZQAAnP///5j///8AAAESEAAAACQAAAAEAAAAAAAAAAsAAABkdXJhdGlvbl9ucwAAAAYACAAGAAYAAAAAAAIA0P///wAAARIQAAAA\
        IAAAAAQAAAAAAAAACAAAAHN0YXJ0X25zAAAAAAQABAAEAAAAEAAUAAgABgAHAAwAAAAQABAAAAAAAAECEAAAABwAAAAEAAAAAAAAAAMAAABjcHUACAAMAAgA\
        BwAIAAAAAAAAAUAAAAAAAAAA";

    #[test]
    fn durations_have_the_units_that_the_schema_says() {
        let found = durations(SCHEMA).expect("a schema");
        let expected = [("duration_ns", Unit::Micros), ("start_ns", Unit::Millis)];
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            expected.map(|(name, unit)| (name.to_owned(), unit))
        );
        assert_eq!(durations("no base64"), None);
        assert_eq!(durations(&SCHEMA[..40]), None);
    }

    proptest! {
        #[test]
        fn no_schema_panics(at in any::<prop::sample::Index>(), byte: u8, cut in any::<prop::sample::Index>()) {
            let mut bytes = BASE64_STANDARD.decode(SCHEMA).expect("base64");
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = durations(&BASE64_STANDARD.encode(&bytes));
            bytes.truncate(cut.index(bytes.len()));
            let _ = durations(&BASE64_STANDARD.encode(&bytes));
        }
    }
}
