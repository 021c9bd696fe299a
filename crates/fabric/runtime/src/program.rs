// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program: its classes and their entry methods.

use std::any::{Any, TypeId};
use std::marker::PhantomData;

use crate::address::Address;
use crate::class::{AnyObject, ClassInfo, Classes, EntryInfo};
use crate::core::Core;
use crate::index::ArrayIndex;
use crate::message::{Malformed, Message, Payload, pack, packed_size, unpack};
use crate::object::{Context, Entry, Object, Respond};

/// The classes of a program, in the same order in every process.
#[derive(Default)]
pub struct Program {
    classes: Vec<ClassInfo<Core>>,
}

/// The last part of a type's path.
fn short_name<T>(given: &'static str) -> &'static str {
    if !given.is_empty() {
        return given;
    }
    let full = std::any::type_name::<T>();
    let generics = full.find('<').unwrap_or(full.len());
    full[..generics].rfind("::").map_or(full, |at| &full[at + 2..])
}

/// The message itself, unpacked if it came as bytes.
#[inline]
fn message<M: Message>(payload: Payload) -> Result<M, Malformed> {
    match payload {
        Payload::Packed(bytes) => unpack(&bytes),
        Payload::Typed(message) => message.downcast::<M>().map(|m| *m).map_err(|_| {
            Malformed::new(std::any::type_name::<M>(), "was expected, and a message of another type came")
        }),
    }
}

fn wrong_type<T>() -> Malformed {
    Malformed::new(std::any::type_name::<T>(), "was expected, and a value of another type came")
}

fn pack_any<T: Message>(value: &(dyn Any + Send), into: &mut Vec<u8>) -> Result<(), Malformed> {
    pack(value.downcast_ref::<T>().ok_or_else(wrong_type::<T>)?, into)
}

fn size_any<T: Message>(value: &(dyn Any + Send)) -> usize {
    value.downcast_ref::<T>().map_or(0, packed_size)
}

fn unpack_any<T: Message>(bytes: &[u8]) -> Result<AnyObject, Malformed> {
    unpack::<T>(bytes).map(|value| Box::new(value) as AnyObject)
}

fn object_of<T: Object>(object: &mut (dyn Any + Send)) -> Result<&mut T, Malformed> {
    object.downcast_mut::<T>().ok_or_else(wrong_type::<T>)
}

impl Program {
    /// A program without classes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a class and its entry methods.
    ///
    /// ```ignore
    /// Program::new().class::<Cell>(|cell| cell.entry::<Ghost>().entry::<Start>())
    /// ```
    #[must_use]
    pub fn class<T: Object>(mut self, entries: impl FnOnce(Class<T>) -> Class<T>) -> Self {
        let class = entries(Class { entries: Vec::new(), object: PhantomData });
        self.classes.push(ClassInfo {
            name: short_name::<T>(T::NAME),
            id: TypeId::of::<T>(),
            version: T::VERSION,
            schema: T::schema,
            index: std::any::type_name::<T::Index>(),
            create: |init, _, core, slot| {
                let init: T::Init = unpack(init)?;
                Ok(Box::new(T::new(init, &mut Context::new(core, Some(slot)))))
            },
            pack: |object, into| pack(object.downcast_ref::<T>().ok_or_else(wrong_type::<T>)?, into),
            unpack: |bytes| unpack::<T>(bytes).map(|object| Box::new(object) as AnyObject),
            arrived: |object, core, slot| {
                if let Ok(object) = object_of::<T>(object) {
                    object.arrived(&mut Context::new(core, Some(slot)));
                }
            },
            restores_futures: |object| object.downcast_ref::<T>().is_some_and(Object::restores_futures),
            restored: |object, core, slot| {
                if let Ok(object) = object_of::<T>(object) {
                    object.restored(&mut Context::new(core, Some(slot)));
                }
            },
            resume: |object, core, slot| {
                if let Ok(object) = object_of::<T>(object) {
                    object.resume(&mut Context::new(core, Some(slot)));
                }
            },
            bytes: |object| object.downcast_ref::<T>().map_or(0, Object::state_bytes),
            home: |map, shape, address: Address, pes| {
                map.home(shape, address, T::Index::unpack(address.index), pes)
            },
            for_each_at: |map, shape, array, (pe, pes), f| {
                map.for_each_at(shape, array, pe, pes, |index: T::Index| f(index.pack()));
            },
            show: |index| format!("{:?}", T::Index::unpack(index)),
            entries: class.entries,
        });
        self
    }

    pub(crate) fn into_classes(self) -> Classes<Core> {
        Classes::new(self.classes)
    }
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.classes.iter().map(|c| c.name)).finish()
    }
}

/// A class and its entry methods.
pub struct Class<T> {
    entries: Vec<EntryInfo<Core>>,
    object: PhantomData<fn() -> T>,
}

impl<T> std::fmt::Debug for Class<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.entries.iter().map(|e| e.name)).finish()
    }
}

impl<T: Object> Class<T> {
    /// Adds the entry method that takes messages of type `M`.
    #[must_use]
    pub fn entry<M: Message>(mut self) -> Self
    where
        T: Entry<M>,
    {
        self.entries.push(EntryInfo {
            name: short_name::<M>(<T as Entry<M>>::NAME),
            message: TypeId::of::<M>(),
            call: |object, payload, core, slot| {
                let message = message::<M>(payload)?;
                object_of::<T>(object)?.call(message, &mut Context::new(core, Some(slot)));
                Ok(None)
            },
            pack: pack_any::<M>,
            size: size_any::<M>,
            unpack: unpack_any::<M>,
            pack_reply: |_, _| Ok(()),
        });
        self
    }

    /// Adds the entry method that replies to messages of type `M`.
    #[must_use]
    pub fn respond<M: Message>(mut self) -> Self
    where
        T: Respond<M>,
    {
        self.entries.push(EntryInfo {
            name: short_name::<M>(""),
            message: TypeId::of::<M>(),
            call: |object, payload, core, slot| {
                let message = message::<M>(payload)?;
                let reply = object_of::<T>(object)?.respond(message, &mut Context::new(core, Some(slot)));
                Ok(Some(Payload::Typed(Box::new(reply))))
            },
            pack: pack_any::<M>,
            size: size_any::<M>,
            unpack: unpack_any::<M>,
            pack_reply: pack_any::<T::Reply>,
        });
        self
    }
}
