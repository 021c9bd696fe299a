// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony.loads/1`: one file for all PEs, made to be written and read in one pass.

use std::io::Write;

use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::FileError;
use super::number::Bytes;
use crate::database::{Database, Edge, Object, Pe};
use crate::generate::Generator;

/// Schema of our load files.
pub const SCHEMA: &str = "colony.loads/1";

/// Reads a file of ours.
pub(super) fn read(content: &[u8]) -> Result<Database, FileError> {
    let mut json = serde_json::Deserializer::from_slice(content);
    let database = Document.deserialize(&mut json)?;
    json.end()?;
    database.check_ids()?;
    Ok(database)
}

struct Document;

impl<'de> DeserializeSeed<'de> for Document {
    type Value = Database;

    fn deserialize<D: serde::Deserializer<'de>>(self, d: D) -> Result<Database, D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Document {
    type Value = Database;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a load file: an object with the fields schema, pes, objects and edges")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Database, A::Error> {
        let mut database: Option<Database> = None;
        let mut seen = Vec::new();
        let mut has_schema = false;
        while let Some(key) = map.next_key::<String>()? {
            if seen.contains(&key) {
                return Err(A::Error::custom(format!("the field `{key}` is there twice")));
            }
            let known = ["pes", "objects", "edges"].contains(&key.as_str());
            match (key.as_str(), database.as_mut()) {
                ("schema", _) => {
                    let schema: String = map.next_value()?;
                    if schema != SCHEMA {
                        return Err(A::Error::custom(format!("the schema is not `{SCHEMA}`")));
                    }
                    has_schema = true;
                }
                ("pes", None) => database = Some(pes(map.next_value()?).map_err(A::Error::custom)?),
                ("objects", Some(database)) => map.next_value_seed(Rows { database, objects: true })?,
                ("edges", Some(database)) if seen.iter().any(|k| k == "objects") => {
                    map.next_value_seed(Rows { database, objects: false })?;
                }
                _ if known => {
                    return Err(A::Error::custom("the fields must come in the order pes, objects, edges"));
                }
                ("comment", _) => {
                    map.next_value::<IgnoredAny>()?;
                }
                _ => {
                    let key: String = key.chars().take(60).collect();
                    let text =
                        format!("unknown field `{key}`; known are schema, comment, pes, objects, edges");
                    return Err(A::Error::custom(text));
                }
            }
            seen.push(key);
        }
        if !has_schema {
            return Err(A::Error::custom("the field `schema` is missing"));
        }
        database.ok_or_else(|| A::Error::custom("the field `pes` is missing"))
    }
}

/// Equal PEs as their number, or each with its background and speed.
#[derive(serde::Deserialize)]
#[serde(untagged, expecting = "`pes` must be the number of PEs, or a list of [background in seconds, speed]")]
enum Pes {
    Equal(u32),
    Each(Vec<(f64, f64)>),
}

fn pes(pes: Pes) -> Result<Database, crate::error::BalanceError> {
    match pes {
        Pes::Equal(number) => Database::of_equal_pes(number),
        Pes::Each(each) => {
            Database::new(each.into_iter().map(|(background_s, speed)| Pe { background_s, speed }).collect())
        }
    }
}

/// Rows of objects or edges, added to the database as they are read.
struct Rows<'a> {
    database: &'a mut Database,
    objects: bool,
}

impl<'de> DeserializeSeed<'de> for Rows<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Rows<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.objects {
            "rows [id, PE, load in seconds, bytes or null, 1 if it may move else 0]"
        } else {
            "rows [number of the sender, number of the receiver, bytes, messages]"
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut rows: A) -> Result<(), A::Error> {
        if self.objects {
            while let Some((id, pe, load_s, bytes, migratable)) =
                rows.next_element::<(u64, u32, f64, Option<Bytes>, u8)>()?
            {
                if migratable > 1 {
                    return Err(A::Error::custom(format!("object {id}: the last value must be 0 or 1")));
                }
                let known = bytes.map_or(0, |b| b.0);
                let object = Object { id, pe, load_s, bytes: known, migratable: migratable == 1 };
                let number = self.database.push_object(object).map_err(A::Error::custom)?;
                if bytes.is_none() {
                    self.database.forget_bytes(number).map_err(A::Error::custom)?;
                }
            }
        } else {
            while let Some((from, to, Bytes(bytes), messages)) =
                rows.next_element::<(u32, u32, Bytes, u64)>()?
            {
                self.database.push_edge(Edge { from, to, bytes, messages }).map_err(A::Error::custom)?;
            }
        }
        Ok(())
    }
}

/// Writes a database as a file of ours.
///
/// # Errors
/// Errors of the writer.
pub fn write(database: &Database, mut to: impl Write) -> std::io::Result<()> {
    let equal = database.pes().iter().all(|p| *p == Pe::default());
    let pes = if equal {
        database.pes().len().to_string()
    } else {
        let each = database.pes().iter().map(|p| format!("[{},{}]", p.background_s, p.speed));
        format!("[{}]", each.collect::<Vec<_>>().join(","))
    };
    let objects = (0..database.objects()).map(|i| (database.object(i), database.known_bytes(i)));
    write_parts(&pes, objects, database.edges().iter().copied(), &mut to)
}

/// Writes a generated database, in the memory of its PEs. `progress` is told each object's number.
///
/// # Errors
/// Errors of the writer.
pub fn write_generated(
    generator: &Generator,
    mut to: impl Write,
    mut progress: impl FnMut(u32),
) -> std::io::Result<()> {
    let objects = (0..generator.objects()).map(|n| {
        let object = generator.object(n);
        (object, Some(object.bytes))
    });
    let edges = (0..generator.objects()).flat_map(|n| {
        progress(n);
        generator.edges(n)
    });
    write_parts(&generator.pes().to_string(), objects, edges, &mut to)
}

fn write_parts(
    pes: &str,
    objects: impl Iterator<Item = (Object, Option<u64>)>,
    edges: impl Iterator<Item = Edge>,
    to: &mut impl Write,
) -> std::io::Result<()> {
    write!(to, "{{\"schema\":\"{SCHEMA}\",\"pes\":{pes},\n\"objects\":[")?;
    for (i, (object, known)) in objects.enumerate() {
        let comma = if i == 0 { "" } else { "," };
        let Object { id, pe, load_s, migratable, .. } = object;
        let bytes = known.map_or_else(|| "null".to_owned(), |b| b.to_string());
        write!(to, "{comma}\n[{id},{pe},{load_s},{bytes},{}]", u8::from(migratable))?;
    }
    write!(to, "],\n\"edges\":[")?;
    for (i, Edge { from, to: target, bytes, messages }) in edges.enumerate() {
        let comma = if i == 0 { "" } else { "," };
        write!(to, "{comma}\n[{from},{target},{bytes},{messages}]")?;
    }
    writeln!(to, "]}}")
}
