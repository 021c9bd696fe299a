// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classes of objects as tables of functions, so that the scheduler knows no types.

use std::any::{Any, TypeId};
use std::sync::OnceLock;

use crate::address::{Address, ArrayId};
use crate::index::Index;
use crate::message::{Malformed, Payload};
use crate::schema::{ClassSchema, Schema};
use crate::shape::{Map, Shape};

/// Any object.
pub(crate) type AnyObject = Box<dyn Any + Send>;

/// Runs an entry method on an object in a slot; returns the reply, if it has one.
pub(crate) type Call<C> =
    fn(&mut (dyn Any + Send), Payload, &mut C, u32) -> Result<Option<Payload>, Malformed>;

/// Calls a function with each index of an array whose home is the first PE, of the second number of PEs.
pub(crate) type ForEachAt = fn(Map, Shape, ArrayId, (u32, u32), &mut dyn FnMut(Index));

/// An entry method.
pub(crate) struct EntryInfo<C> {
    pub(crate) name: &'static str,
    /// The type of the message it takes.
    pub(crate) message: TypeId,
    pub(crate) call: Call<C>,
    /// Packs a message behind other bytes.
    pub(crate) pack: fn(&(dyn Any + Send), &mut Vec<u8>) -> Result<(), Malformed>,
    pub(crate) unpack: fn(&[u8]) -> Result<AnyObject, Malformed>,
    /// Bytes of a message when it is packed.
    pub(crate) size: fn(&(dyn Any + Send)) -> usize,
    /// Packs a reply.
    pub(crate) pack_reply: fn(&(dyn Any + Send), &mut Vec<u8>) -> Result<(), Malformed>,
}

/// A class of objects.
pub(crate) struct ClassInfo<C> {
    pub(crate) name: &'static str,
    pub(crate) id: TypeId,
    /// `Object::VERSION` and `Object::schema`, and the type of the indices.
    pub(crate) version: u32,
    pub(crate) schema: fn() -> Schema,
    pub(crate) index: &'static str,
    /// Makes the object in a slot, from packed arguments.
    pub(crate) create: fn(&[u8], Address, &mut C, u32) -> Result<AnyObject, Malformed>,
    pub(crate) pack: fn(&(dyn Any + Send), &mut Vec<u8>) -> Result<(), Malformed>,
    pub(crate) unpack: fn(&[u8]) -> Result<AnyObject, Malformed>,
    /// Runs `Object::arrived`.
    pub(crate) arrived: fn(&mut (dyn Any + Send), &mut C, u32),
    /// `Object::restores_futures`.
    pub(crate) restores_futures: fn(&(dyn Any + Send)) -> bool,
    /// Runs `Object::restored`.
    pub(crate) restored: fn(&mut (dyn Any + Send), &mut C, u32),
    /// Runs `Object::resume`.
    pub(crate) resume: fn(&mut (dyn Any + Send), &mut C, u32),
    /// Bytes of an object's state, about.
    pub(crate) bytes: fn(&(dyn Any + Send)) -> u64,
    /// The home PE of an element, on this number of PEs.
    pub(crate) home: fn(Map, Shape, Address, u32) -> u32,
    /// Calls a function with each index whose home is the first PE, of the second number of PEs.
    pub(crate) for_each_at: ForEachAt,
    /// An index in the form that people read.
    pub(crate) show: fn(Index) -> String,
    pub(crate) entries: Vec<EntryInfo<C>>,
}

/// All classes of a program, the same in every process.
pub(crate) struct Classes<C>(pub(crate) Vec<ClassInfo<C>>, OnceLock<Vec<ClassSchema>>);

impl<C> Classes<C> {
    pub(crate) fn new(classes: Vec<ClassInfo<C>>) -> Self {
        Self(classes, OnceLock::new())
    }

    /// What checkpoints on disk say of the classes. Their layouts are looked at once.
    pub(crate) fn schemas(&self) -> &[ClassSchema] {
        self.1.get_or_init(|| (0..self.0.len()).map(|at| self.schema(at)).collect())
    }

    fn schema(&self, at: usize) -> ClassSchema {
        let class = &self.0[at];
        let schema = (class.schema)();
        ClassSchema {
            number: at as u16,
            name: class.name.to_owned(),
            namesakes: self.0[..at].iter().filter(|before| before.name == class.name).count() as u16,
            version: class.version,
            index: class.index.to_owned(),
            entries: class.entries.iter().map(|entry| entry.name.to_owned()).collect(),
            is_whole: schema.is_whole(),
            fields: schema.into_fields(),
        }
    }

    /// The number of a class.
    #[inline]
    pub(crate) fn class_of(&self, object: TypeId) -> Option<u16> {
        self.0.iter().position(|class| class.id == object).map(|at| at as u16)
    }

    /// The number of the entry method of a class that takes a message.
    #[inline]
    pub(crate) fn entry_of(&self, object: TypeId, message: TypeId) -> Option<(u16, u16)> {
        let class = self.class_of(object)?;
        let entries = &self.0[class as usize].entries;
        entries.iter().position(|entry| entry.message == message).map(|at| (class, at as u16))
    }

    /// The class of a number.
    #[inline]
    pub(crate) fn get(&self, class: u16) -> Option<&ClassInfo<C>> {
        self.0.get(class as usize)
    }

    /// An entry method by the numbers of its class and its own.
    #[inline]
    pub(crate) fn entry(&self, class: u16, entry: u16) -> Result<&EntryInfo<C>, Malformed> {
        self.get(class).and_then(|c| c.entries.get(entry as usize)).ok_or_else(|| {
            Malformed::new(
                "a message",
                format!("names the entry method {entry} of class {class}, which this program lacks"),
            )
        })
    }
}
