// SPDX-License-Identifier: MIT OR Apache-2.0
//! The PE of an object that runs: requests of Python code become calls of the runtime.

use std::time::Duration;

use colony_runtime::{Address, ArrayId, ArrayIndex, Callback, Context, Index, Op, Values};
use pyo3::prelude::*;

use crate::array::{Array, Destination, Form, Place, by_dimensions};
use crate::call::{Call, Init};
use crate::held::{Held, State};
use crate::journal::{Journal, Request};
use crate::scope::{Kind, Pe};
use crate::session;

/// An object that runs.
pub(crate) struct Running<'a, 'b, const N: usize> {
    pub(crate) cx: &'a mut Context<'b, Held<N>>,
    pub(crate) state: &'a mut State,
    pub(crate) object: Py<PyAny>,
    pub(crate) array: Array,
    pub(crate) address: Address,
}

/// An element of an array of Python objects.
pub(crate) fn element<const D: usize>(address: Address) -> colony_runtime::Element<Held<D>>
where
    [i32; D]: ArrayIndex,
    Held<D>: colony_runtime::Object<Index = [i32; D]>,
{
    array::<D>(address.array).at(<[i32; D]>::unpack(address.index))
}

fn array<const D: usize>(id: ArrayId) -> colony_runtime::Array<Held<D>>
where
    Held<D>: colony_runtime::Object,
{
    colony_runtime::Array::from_id(id)
}

/// Sends a call, from any context.
pub(crate) fn send<T>(cx: &mut Context<'_, T>, place: Place, dimensions: u8, call: Call) {
    by_dimensions!(dimensions, D => match place {
        Place::Element(address) => cx.send(element::<D>(address), call),
        Place::Array(id) => cx.broadcast(array::<D>(id), call),
    });
}

impl<const N: usize> Running<'_, '_, N> {
    /// Returns `true` if `main`, which runs again, has made this request before the checkpoint.
    fn has_made(&mut self, request: Request) -> bool {
        let made = self.state.journal.as_mut().map_or(Ok(false), |journal| journal.make(request));
        made.unwrap_or_else(|error| {
            session::keep(error);
            true
        })
    }
}

impl<const N: usize> Pe for Running<'_, '_, N>
where
    [i32; N]: ArrayIndex,
    Held<N>: colony_runtime::Object<Index = [i32; N]> + colony_runtime::Entry<colony_runtime::Quiet>,
{
    fn pe(&self) -> u32 {
        self.cx.pe()
    }

    fn pes(&self) -> u32 {
        self.cx.pes()
    }

    fn object(&self) -> &Py<PyAny> {
        &self.object
    }

    fn array(&self) -> &Array {
        &self.array
    }

    fn address(&self) -> Address {
        self.address
    }

    fn send(&mut self, place: Place, dimensions: u8, call: Call) {
        if self.has_made(Request::Send) {
            return;
        }
        send(self.cx, place, dimensions, call);
    }

    fn send_later(&mut self, seconds: f64, to: Address, dimensions: u8, call: Call) {
        if self.has_made(Request::SendLater) {
            return;
        }
        let delay = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX / 4);
        by_dimensions!(dimensions, D => self.cx.send_after(delay, element::<D>(to), call));
    }

    fn multicast(&mut self, to: &Array, indices: &[Index], call: Call) {
        if self.has_made(Request::Multicast) {
            return;
        }
        by_dimensions!(to.form.dimensions, D => {
            let section = array::<D>(to.id).section(indices.iter().map(|&i| <[i32; D]>::unpack(i)));
            self.cx.multicast(&section, call);
        });
    }

    fn create(&mut self, kind: Kind, form: Form, init: Init) -> ArrayId {
        let journal = self.state.journal.as_mut();
        match journal.map_or(Ok(None), Journal::create) {
            Ok(None) => {}
            Ok(Some(id)) => return id,
            Err(error) => {
                session::keep(error);
                return ArrayId(0);
            }
        }
        let extents = &form.extents.unwrap_or_default()[..usize::from(form.dimensions)];
        let id = by_dimensions!(form.dimensions, D => match kind {
            Kind::Dense(map) => self.cx.create_mapped::<Held<D>>(extents, map, init).id(),
            Kind::Sparse => self.cx.create_sparse::<Held<D>>(init).id(),
            Kind::Group => self.cx.create_group::<Held<D>>(init).id(),
            Kind::One => self.cx.create_one::<Held<D>>(init).address().array,
        });
        if let Some(journal) = &mut self.state.journal {
            journal.created(id);
        }
        id
    }

    fn insert(&mut self, to: Address, dimensions: u8, init: Init) {
        if self.has_made(Request::Insert) {
            return;
        }
        by_dimensions!(dimensions, D => self.cx.insert(element::<D>(to), init));
    }

    fn contribute(&mut self, values: Values, op: Op, to: Destination) {
        let callback: Callback = by_dimensions!(to.dimensions, D => match to.place {
            Place::Element(address) => self.cx.reply_to(element::<D>(address)),
            Place::Array(id) => self.cx.reply_to_all(array::<D>(id)),
        });
        self.cx.contribute(values, op, callback);
    }

    fn when_quiet(&mut self, to: Destination) {
        if self.has_made(Request::WhenQuiet) {
            return;
        }
        self.state.quiet.push_back(to);
        let this = self.cx.this();
        self.cx.when_quiet(this);
    }

    fn migrate(&mut self, pe: u32) {
        self.cx.migrate_to(pe);
    }

    fn at_sync(&mut self) {
        self.cx.at_sync();
    }

    fn remove(&mut self) {
        self.cx.remove();
    }

    fn exit(&mut self, code: u8) {
        if !self.has_made(Request::Exit) {
            self.cx.exit(code);
        }
    }

    fn is_repeating(&self) -> bool {
        self.state.journal.as_ref().is_some_and(Journal::is_repeating)
    }

    fn open_future(&mut self, future: Py<PyAny>) -> u64 {
        self.state.open(future)
    }
}
