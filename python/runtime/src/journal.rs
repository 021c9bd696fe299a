// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `main` has done and awaited, so that it can run again up to the `await` at which a checkpoint was made.
//!
//! A coroutine of Python cannot be packed. `main` depends on the values that it awaits, so these are kept, in the order of what
//! `main` did meanwhile. After a recovery `main` runs again from its beginning: it gets the values that it had, the arrays that
//! it created, and sends nothing again.

use colony_runtime::ArrayId;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};

/// The most bytes of values and requests that are kept.
const MOST_BYTES: usize = 64 << 20;

/// A request to the runtime that is made once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    Send,
    SendLater,
    Multicast,
    Insert,
    WhenQuiet,
    Exit,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Event {
    /// So many requests of a kind in turn.
    Made(Request, u32),
    /// An array of this number was created.
    Created(u32),
    /// The future of this number got a value, which is pickled.
    Given(u64, Vec<u8>),
    /// `main` went on after an `await`.
    WentOn,
}

impl Event {
    fn bytes(&self) -> usize {
        let of_value = if let Self::Given(_, pickled) = self { pickled.len() } else { 0 };
        size_of::<Self>() + of_value
    }
}

/// What `main` does when it runs again and waits.
pub(crate) enum Repeated {
    /// The future of this number gets a pickled value.
    Given(u64, Vec<u8>),
    WentOn,
    /// It waited here when the checkpoint was made.
    Waits,
}

/// The events of `main` from its beginning.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Journal {
    events: Vec<Event>,
    #[serde(skip)]
    bytes: usize,
    /// While `main` runs again: the next event, and how often it has been repeated.
    #[serde(skip)]
    next: Option<(usize, u32)>,
    /// Not all is kept, so `main` could not run again.
    #[serde(skip)]
    is_broken: bool,
}

/// `main` does not do what it did before.
fn differs(what: &str) -> PyErr {
    PyRuntimeError::new_err(format!(
        "main runs again up to the await at which the checkpoint was made, and {what}: until then, it may depend on nothing but \
         the values that it awaits"
    ))
}

impl Journal {
    /// Returns `true` if `main` could run again.
    pub(crate) fn is_usable(&self) -> bool {
        !self.is_broken
    }

    pub(crate) fn is_repeating(&self) -> bool {
        self.next.is_some()
    }

    /// `main` begins to run again.
    pub(crate) fn begin_repeating(&mut self) {
        self.next = Some((0, 0));
        self.bytes = self.events.iter().map(Event::bytes).sum();
    }

    /// From here on, what `main` does is new.
    pub(crate) fn end_repeating(&mut self) {
        self.next = None;
    }

    fn record(&mut self, event: Event) {
        if self.is_broken {
            return;
        }
        self.bytes += event.bytes();
        if self.bytes > MOST_BYTES {
            return self.give_up(&format!("main has awaited more than {} MiB", MOST_BYTES >> 20));
        }
        self.events.push(event);
    }

    /// Keeps nothing any more: no checkpoint is made while `main` waits.
    pub(crate) fn give_up(&mut self, why: &str) {
        self.is_broken = true;
        self.events = Vec::new();
        eprintln!("warning: no checkpoints are made while main waits: {why}");
    }

    /// `main` makes a request. Returns `true` if it has made it before.
    pub(crate) fn make(&mut self, request: Request) -> PyResult<bool> {
        let Some((at, times)) = &mut self.next else {
            match self.events.last_mut() {
                Some(Event::Made(last, times)) if *last == request && *times < u32::MAX => *times += 1,
                _ => self.record(Event::Made(request, 1)),
            }
            return Ok(false);
        };
        match self.events.get(*at) {
            Some(Event::Made(before, count)) if *before == request => {
                *times += 1;
                if times == count {
                    (*at, *times) = (*at + 1, 0);
                }
                Ok(true)
            }
            _ => Err(differs(&format!("makes another request ({request:?})"))),
        }
    }

    /// `main` creates an array. Returns the one that it has created before.
    pub(crate) fn create(&mut self) -> PyResult<Option<ArrayId>> {
        let Some((at, times)) = &mut self.next else { return Ok(None) };
        match self.events.get(*at) {
            Some(Event::Created(id)) if *times == 0 => {
                *at += 1;
                Ok(Some(ArrayId(*id)))
            }
            _ => Err(differs("creates another array")),
        }
    }

    /// `main` has created an array.
    pub(crate) fn created(&mut self, id: ArrayId) {
        self.record(Event::Created(id.0));
    }

    /// A future of `main` gets a value.
    pub(crate) fn given(&mut self, future: u64, pickled: Vec<u8>) {
        self.record(Event::Given(future, pickled));
    }

    /// `main` goes on.
    pub(crate) fn went_on(&mut self) {
        self.record(Event::WentOn);
    }

    /// The next event while `main`, which runs again, waits.
    pub(crate) fn repeat_wait(&mut self) -> PyResult<Repeated> {
        let Some((at, times)) = &mut self.next else { return Ok(Repeated::Waits) };
        if *times > 0 {
            return Err(differs("waits before it has made all requests"));
        }
        let repeated = match self.events.get(*at) {
            None => return Ok(Repeated::Waits),
            Some(Event::Given(future, pickled)) => Repeated::Given(*future, pickled.clone()),
            Some(Event::WentOn) => Repeated::WentOn,
            Some(_) => return Err(differs("waits where it did not wait")),
        };
        *at += 1;
        Ok(repeated)
    }

    /// `main` has ended while it runs again.
    pub(crate) fn ended() -> PyErr {
        differs("ends")
    }
}
