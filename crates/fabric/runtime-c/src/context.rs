// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls of callbacks, as those of the Rust interface's contexts.

use std::time::Duration;

use colony_runtime::{
    Array, ArrayId, ArrayIndex, Callback, Context, Element, Entry, Main, Object, Op, Quiet, Reduced, Values,
};

use crate::calls::{At, Calls, Elements, Init, ObjectCalls, Of, Packet, Target};
use crate::foreign::{Foreign, for_each_dimension};

/// Whose context it is: an object's, or the program's beginning.
trait Owner: Sized {
    fn object<'c>(cx: &'c mut Context<'_, Self>) -> Option<&'c mut dyn ObjectCalls>;
}

impl Owner for Main {
    fn object<'c>(_: &'c mut Context<'_, Self>) -> Option<&'c mut dyn ObjectCalls> {
        None
    }
}

impl<T: Object> ObjectCalls for Context<'_, T> {
    fn load(&self) -> f64 {
        Context::load(self)
    }

    fn contribute(&mut self, values: Values, op: Op, to: Callback) {
        Context::contribute(self, values, op, to);
    }

    fn migrate_to(&mut self, pe: u32) {
        Context::migrate_to(self, pe);
    }

    fn at_sync(&mut self) {
        Context::at_sync(self);
    }

    fn remove(&mut self) {
        Context::remove(self);
    }
}

/// The element of an address of C.
fn element<U: Object>(at: At) -> Element<U> {
    Array::from_id(at.of.array).at(U::Index::from_coordinates(at.index))
}

fn create<T, U: Object<Init = Init>>(cx: &mut Context<'_, T>, elements: Elements, init: Init) -> ArrayId {
    let array: Array<U> = match elements {
        Elements::Dense(extents, map) => cx.create_mapped(&extents[..U::Index::DIMENSIONS], map, init),
        Elements::Sparse => cx.create_sparse(init),
        Elements::Group => cx.create_group(init),
    };
    array.id()
}

fn multicast<T, U: Entry<Packet>>(
    cx: &mut Context<'_, T>,
    to: ArrayId,
    indices: &[[i64; 6]],
    packet: Packet,
) {
    let indices = indices.iter().map(|index| U::Index::from_coordinates(*index));
    cx.multicast(&Array::<U>::from_id(to).section(indices), packet);
}

fn callback<T, U: Entry<Reduced>>(cx: &mut Context<'_, T>, target: Target) -> Callback {
    match target {
        Target::Element(at) => cx.reply_to(element::<U>(at)),
        Target::Array(of) => cx.reply_to_all(Array::<U>::from_id(of.array)),
        Target::Exit => Callback::Exit,
    }
}

fn when_quiet<T, U: Entry<Quiet>>(cx: &mut Context<'_, T>, at: At) {
    cx.when_quiet(element::<U>(at));
}

macro_rules! contexts {
    ($($d:literal => $index:ty),*) => {
        $(
            impl Owner for Foreign<$d> {
                fn object<'c>(cx: &'c mut Context<'_, Self>) -> Option<&'c mut dyn ObjectCalls> {
                    Some(cx)
                }
            }
        )*

        /// Runs an expression for the Rust class of a number of dimensions, which the exported functions have checked.
        macro_rules! by_dimensions {
            ($dimensions:expr, $class:ident => $body:expr) => {
                match $dimensions {
                    $($d => {
                        type $class = Foreign<$d>;
                        $body
                    })*
                    other => unreachable!("{other} dimensions"),
                }
            };
        }
    };
}
for_each_dimension!(contexts);

impl<T: Owner> Calls for Context<'_, T> {
    fn pe(&self) -> u32 {
        Context::pe(self)
    }

    fn pes(&self) -> u32 {
        Context::pes(self)
    }

    fn create(&mut self, elements: Elements, dimensions: u8, init: Init) -> ArrayId {
        by_dimensions!(dimensions, U => create::<T, U>(self, elements, init))
    }

    fn insert(&mut self, at: At, init: Init) {
        by_dimensions!(at.of.dimensions, U => Context::insert(self, element::<U>(at), init));
    }

    fn send(&mut self, to: At, packet: Packet, priority: i32) {
        by_dimensions!(to.of.dimensions, U => self.send_with_priority(element::<U>(to), packet, priority));
    }

    fn send_after(&mut self, delay: Duration, to: At, packet: Packet) {
        by_dimensions!(to.of.dimensions, U => Context::send_after(self, delay, element::<U>(to), packet));
    }

    fn broadcast(&mut self, to: Of, packet: Packet) {
        by_dimensions!(to.dimensions, U => Context::broadcast(self, Array::<U>::from_id(to.array), packet));
    }

    fn multicast(&mut self, to: Of, indices: &[[i64; 6]], packet: Packet) {
        by_dimensions!(to.dimensions, U => multicast::<T, U>(self, to.array, indices, packet));
    }

    fn when_quiet(&mut self, to: At) {
        by_dimensions!(to.of.dimensions, U => when_quiet::<T, U>(self, to));
    }

    fn exit(&mut self, code: u8) {
        Context::exit(self, code);
    }

    fn callback(&mut self, target: Target) -> Callback {
        let dimensions = match target {
            Target::Element(at) => at.of.dimensions,
            Target::Array(of) => of.dimensions,
            Target::Exit => 1,
        };
        by_dimensions!(dimensions, U => callback::<T, U>(self, target))
    }

    fn object(&mut self) -> Option<&mut dyn ObjectCalls> {
        T::object(self)
    }
}
