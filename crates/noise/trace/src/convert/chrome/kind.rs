// SPDX-License-Identifier: MIT OR Apache-2.0
//! JSON files without trace events: results of Colony, and files with the loads of objects.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::trace::OtherFile;

/// Fields of a JSON object that tell its kind.
#[derive(Debug, Default)]
pub(super) struct Kind {
    /// Value of `schema`, which Colony's files have.
    schema: Option<String>,
    /// Value of `type`, of the object or of its `metadata`.
    of_type: Option<String>,
    /// True if the object has `phases`.
    has_phases: bool,
}

impl Kind {
    /// The fields whose value counts.
    pub(super) const KEYS: [&str; 3] = ["schema", "type", "metadata"];

    /// Takes a field in. `text` is its value, if the value is a string or an object with the string `type`.
    pub(super) fn field(&mut self, key: &str, text: Option<String>) {
        match key {
            "schema" => self.schema = text,
            "type" | "metadata" => self.of_type = self.of_type.take().or(text),
            "phases" => self.has_phases = true,
            _ => {}
        }
    }

    /// The kind of the file, if it is known.
    pub(super) fn name(&self) -> Option<OtherFile> {
        const LOADS: &str =
            "it holds the loads of objects, and no detours. Simulate how strategies would balance them: ";
        match (self.schema.as_deref(), self.of_type.as_deref()) {
            (Some(schema), _) if schema.starts_with("colony.loads/") => {
                let what = format!("a load file of Colony (`{}`)", shortened(schema));
                Some(OtherFile::new(what, format!("{LOADS}`colony lb replay FILE`")))
            }
            (Some(schema), _) => Some(OtherFile::new(
                format!("a result of Colony (`{}`), which has no single detours", shortened(schema)),
                "`colony measure --out FILE.parquet` keeps them",
            )),
            (None, Some("LBDatafile")) => Some(vt(LOADS)),
            // both of vt's fields are optional
            (None, None) if self.has_phases => Some(vt(LOADS)),
            (None, _) => None,
        }
    }
}

fn vt(loads: &str) -> OtherFile {
    OtherFile::new(
        "a load file of DARMA/vt (`LBDatafile`)",
        format!("{loads}`colony lb replay FOLDER`, with the folder that has the files of all ranks"),
    )
}

fn shortened(text: &str) -> String {
    text.chars().take(60).collect()
}

/// A value of JSON: the string, or the string `type` of an object; `None` for any other value.
pub(super) struct Text(pub(super) Option<String>);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Typed {
            r#type: String,
        }
        let value = Box::<RawValue>::deserialize(d)?;
        let string = serde_json::from_str::<String>(value.get()).ok();
        Ok(Self(string.or_else(|| Some(serde_json::from_str::<Typed>(value.get()).ok()?.r#type))))
    }
}
