// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of classes, entry methods and the program's own events.

use serde::{Deserialize, Serialize};

/// The names behind the numbers of a record. The runtime makes the table while it registers the program's classes: the same
/// on every process of one program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// Classes of objects.
    pub classes: Vec<String>,
    /// Entry methods.
    pub entries: Vec<EntryName>,
    /// The program's own events.
    #[serde(default)]
    pub events: Vec<String>,
}

/// The name of an entry method.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryName {
    /// Its class, an index into [`Names::classes`].
    pub class: u16,
    /// Its name.
    pub name: String,
}

/// There is no number left for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a program has at most {} names of one kind", Names::MAX)]
pub struct NoNumberLeft;

impl Names {
    /// The most names of one kind.
    pub const MAX: usize = u16::MAX as usize;

    /// Adds a class: returns its number.
    ///
    /// # Errors
    /// [`NoNumberLeft`] after [`Names::MAX`] classes.
    pub fn class(&mut self, name: impl Into<String>) -> Result<u16, NoNumberLeft> {
        add(&mut self.classes, name.into())
    }

    /// Adds an entry method of a class: returns its number.
    ///
    /// # Errors
    /// [`NoNumberLeft`] after [`Names::MAX`] entry methods.
    pub fn entry(&mut self, class: u16, name: impl Into<String>) -> Result<u16, NoNumberLeft> {
        add(&mut self.entries, EntryName { class, name: name.into() })
    }

    /// Adds an event of the program: returns its number.
    ///
    /// # Errors
    /// [`NoNumberLeft`] after [`Names::MAX`] events.
    pub fn event(&mut self, name: impl Into<String>) -> Result<u16, NoNumberLeft> {
        add(&mut self.events, name.into())
    }

    /// `Class::method` of an entry method; `entry 7` for one without a name.
    #[must_use]
    pub fn of_entry(&self, entry: u16) -> String {
        let Some(found) = self.entries.get(usize::from(entry)) else { return format!("entry {entry}") };
        match self.classes.get(usize::from(found.class)) {
            Some(class) => format!("{class}::{}", found.name),
            None => found.name.clone(),
        }
    }

    /// The name of a class; `class 7` for one without a name.
    #[must_use]
    pub fn of_class(&self, class: u16) -> String {
        self.classes.get(usize::from(class)).cloned().unwrap_or_else(|| format!("class {class}"))
    }

    /// The name of an event of the program; `event 7` for one without a name.
    #[must_use]
    pub fn of_event(&self, event: u16) -> String {
        self.events.get(usize::from(event)).cloned().unwrap_or_else(|| format!("event {event}"))
    }
}

fn add<T>(list: &mut Vec<T>, value: T) -> Result<u16, NoNumberLeft> {
    if list.len() >= Names::MAX {
        return Err(NoNumberLeft);
    }
    list.push(value);
    Ok((list.len() - 1) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_without_a_name_still_has_a_text() {
        let mut names = Names::default();
        let block = names.class("Block").expect("room");
        let ghost = names.entry(block, "ghost").expect("room");
        let lost = names.entry(9, "lost").expect("room");
        let step = names.event("step").expect("room");
        assert_eq!(
            [names.of_entry(ghost), names.of_entry(lost), names.of_entry(7)],
            ["Block::ghost", "lost", "entry 7"]
        );
        assert_eq!(
            [names.of_event(step), names.of_event(4), names.of_class(3)],
            ["step", "event 4", "class 3"]
        );
    }

    #[test]
    fn names_have_a_bound() {
        let mut names = Names::default();
        (0..Names::MAX).for_each(|_| {
            names.class("x").expect("room");
        });
        assert_eq!(names.class("x"), Err(NoNumberLeft));
    }
}
