// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a checkpoint on disk says of the classes that are in it, so that another build of the program can read it.
//!
//! A packed state is a row of values without names. Another build reads the same values if its class asks for values of the same
//! kinds in the same order: that is what a [`Schema`] has. The meaning of a value is in none.

mod trace;

use std::collections::BTreeMap;
use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use trace::{Fields, trace};

pub(crate) use trace::TRACKED;

/// Kinds of values that a description of a class has at most. Further ones are compared by one number.
const MOST_FIELDS: usize = 1000;

/// The layout of the packed state of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    fields: Fields,
    is_whole: bool,
}

impl Schema {
    /// The layout of a type, as its `Deserialize` reads it: names and order of fields, names of variants, and the kinds of all
    /// values, also of nested types. Types whose `Deserialize` refuses sample values (ones, empty strings and sequences of one
    /// element) are not seen in full. One that panics is not, either, and its message is printed.
    #[must_use]
    pub fn of<T: DeserializeOwned>() -> Self {
        let (fields, is_whole) = trace::<T>();
        Self { fields, is_whole }
    }

    /// A layout that nothing is known of: without a [`VERSION`](crate::Object::VERSION), checkpoints are read by the build
    /// that has written them.
    #[must_use]
    pub fn unknown() -> Self {
        Self::default()
    }

    /// Adds something that has to be the same when a checkpoint is read.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, kind: impl Into<String>) -> Self {
        self.fields.insert(name.into(), kind.into());
        self
    }

    /// A number that differs if the layout does.
    pub(crate) fn digest(&self) -> u32 {
        digest(self.fields.iter())
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Fields for a description, which is bounded.
    pub(crate) fn into_fields(self) -> Vec<(String, String)> {
        let mut fields: Vec<_> = self.fields.into_iter().collect();
        if fields.len() > MOST_FIELDS {
            let rest = fields.split_off(MOST_FIELDS);
            let digest = digest(rest.iter().map(|(path, kind)| (path, kind)));
            fields.push(("[the rest]".to_owned(), format!("{} values {digest:08x}", rest.len())));
        }
        fields
    }
}

fn digest<'a>(fields: impl Iterator<Item = (&'a String, &'a String)>) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for text in fields.flat_map(|(path, kind)| [path, kind]) {
        hasher.update(text.as_bytes());
        hasher.update(&[0]);
    }
    hasher.finalize()
}

/// What a checkpoint says of a class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClassSchema {
    /// Its number in the image.
    pub(crate) number: u16,
    pub(crate) name: String,
    /// Classes of the same name that the program has before it.
    pub(crate) namesakes: u16,
    pub(crate) version: u32,
    /// The type of its indices.
    pub(crate) index: String,
    /// Names of its entry methods, whose numbers are in callbacks of objects and reductions.
    pub(crate) entries: Vec<String>,
    pub(crate) fields: Vec<(String, String)>,
    /// The layout has been seen in full.
    pub(crate) is_whole: bool,
}

/// What a file of a checkpoint says of the program that has written it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Description {
    /// The build of the program.
    pub(crate) build: String,
    /// The layout of what the runtime keeps for the objects.
    pub(crate) runtime: u32,
    pub(crate) classes: Vec<ClassSchema>,
}

/// A checkpoint that the program cannot read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Difference {
    /// What the runtime keeps for objects has another layout.
    #[error("was written by another version of Colony's runtime; restart with the build that has written it")]
    Runtime,
    /// A class differs.
    #[error(
        "the class {class} of the checkpoint differs from that of this program: {difference}; restart with a program \
         in which it is the same"
    )]
    Class {
        /// The class.
        class: String,
        /// The first difference.
        difference: String,
    },
}

/// The numbers that the classes of a checkpoint have in a program, by those in the checkpoint.
pub(crate) type ClassNumbers = BTreeMap<u16, u16>;

impl Description {
    /// The numbers that the classes of a checkpoint have in this program, which describes itself by `now`.
    pub(crate) fn match_classes(&self, now: &Self) -> Result<ClassNumbers, Difference> {
        if self.runtime != now.runtime {
            return Err(Difference::Runtime);
        }
        let match_class = |then: &ClassSchema| {
            let mut all = now.classes.iter();
            let same = all.find(|one| (&one.name, one.namesakes) == (&then.name, then.namesakes));
            let same = same.ok_or_else(|| then.difference("this program does not have it".to_owned()))?;
            then.check(same, self.build == now.build).map(|()| (then.number, same.number))
        };
        self.classes.iter().map(match_class).collect()
    }
}

impl ClassSchema {
    /// Compares a class of a checkpoint with that of the program. `is_same_build`: the program has written the checkpoint.
    pub(crate) fn check(&self, now: &Self, is_same_build: bool) -> Result<(), Difference> {
        let differs = |what: &dyn fmt::Display, then: &str, now: &str| {
            Err(self.difference(format!("{what} was {then}, and is {now}")))
        };
        if self.version != now.version {
            return differs(&"its version", &self.version.to_string(), &now.version.to_string());
        }
        if self.index != now.index {
            return differs(&"the type of its indices", &self.index, &now.index);
        }
        for (number, then) in self.entries.iter().enumerate() {
            let now = now.entries.get(number).map_or("none", String::as_str);
            if then != now {
                return differs(&format_args!("its entry method {number}"), then, now);
            }
        }
        if let Some((path, then, now)) = first_difference(&self.fields, &now.fields) {
            let what =
                if path.is_empty() { "its state".to_owned() } else { format!("`{path}` of its state") };
            return differs(&what, then, now);
        }
        if !(self.is_whole && now.is_whole || is_same_build || now.version > 0) {
            return Err(self.difference(
                "the layout of its state is not seen in full, so only the build that has written it reads it; a class \
                 with a VERSION is read by all builds with the same one"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    pub(crate) fn difference(&self, difference: String) -> Difference {
        Difference::Class { class: self.name.clone(), difference }
    }
}

/// The first path whose kinds differ, with both kinds.
fn first_difference<'a>(
    then: &'a [(String, String)],
    now: &'a [(String, String)],
) -> Option<(&'a str, &'a str, &'a str)> {
    let kind_of = |fields: &'a [(String, String)], path: &str| {
        fields.iter().find(|(one, _)| one == path).map_or("not there", |(_, kind)| kind.as_str())
    };
    // a path that is new is inside of a value whose kind has changed, or is of no object of the checkpoint
    let all = then.iter().map(|(path, kind)| (path.as_str(), kind.as_str(), kind_of(now, path)));
    all.into_iter().find(|(_, then, now)| then != now)
}

#[cfg(test)]
mod tests;
