// SPDX-License-Identifier: MIT OR Apache-2.0
//! Contexts: handles that are valid until their callback returns, on its thread, outside nested callbacks.
//!
//! A handle is a number, unique in the process, and never dereferenced. A number is valid if it is that of the innermost
//! callback on the thread's stack of callbacks.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::abi::{ColonyContext, ColonyElement};
use crate::calls::Calls;
use crate::status::{self, Refusal};
use crate::table::{Class, Table, keep_failure};

/// The object and the callback that run.
pub(crate) struct Who<'a> {
    /// The classes of the program.
    pub(crate) table: &'a Table,
    /// None in `start`.
    pub(crate) object: Option<(&'a Class, ColonyElement)>,
    /// The callback as people read it, such as ``entry method `step` ``.
    pub(crate) callback: Callback<'a>,
}

/// The callback that runs.
#[derive(Clone, Copy)]
pub(crate) enum Callback<'a> {
    Entry(&'a str),
    Named(&'static str),
}

impl Who<'_> {
    /// The running callback, for an error message.
    pub(crate) fn show(&self) -> String {
        let callback = match self.callback {
            Callback::Entry(name) => format!("the entry method {name}"),
            Callback::Named(name) => format!("`{name}`"),
        };
        match &self.object {
            Some((class, element)) => format!("{callback} of {}", show(class, element)),
            None => callback,
        }
    }
}

/// An element as people read it.
pub(crate) fn show(class: &Class, element: &ColonyElement) -> String {
    match usize::from(element.array.dimensions) {
        1 => format!("{} {}", class.name, element.index.at[0]),
        dimensions => format!("{} {:?}", class.name, &element.index.at[..dimensions.min(6)]),
    }
}

struct Frame {
    handle: usize,
    calls: *mut (dyn Calls + 'static),
    who: *const Who<'static>,
    /// A function uses the context.
    is_busy: bool,
}

thread_local! {
    static FRAMES: RefCell<Vec<Frame>> = const { RefCell::new(Vec::new()) };
    static NEXT: Cell<usize> = Cell::new({
        // every thread has numbers of its own; 0 is NULL, which no handle is
        static THREADS: AtomicUsize = AtomicUsize::new(1);
        THREADS.fetch_add(1, Ordering::Relaxed) << (usize::BITS / 4 * 3)
    });
    static FAILED: Cell<bool> = const { Cell::new(false) };
}

/// Removes the innermost frame when its callback has ended, in whatever way.
struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        FRAMES.with_borrow_mut(|frames| frames.pop());
    }
}

/// Runs a callback with a context, and returns the callback's result.
pub(crate) fn enter<R>(
    calls: &mut dyn Calls,
    who: &Who<'_>,
    callback: impl FnOnce(*mut ColonyContext) -> R,
) -> R {
    let handle = NEXT.replace(NEXT.get().wrapping_add(1));
    let calls: *mut dyn Calls = calls;
    // SAFETY: only the lifetime changes. The frame is removed before this function returns, while `calls` and `who` live.
    let calls: *mut (dyn Calls + 'static) = unsafe { std::mem::transmute(calls) };
    let who = std::ptr::from_ref(who).cast::<Who<'static>>();
    FRAMES.with_borrow_mut(|frames| frames.push(Frame { handle, calls, who, is_busy: false }));
    let _leave = Leave;
    status::begin_callback();
    callback(std::ptr::without_provenance_mut(handle))
}

/// Frees the context of a frame for the next function.
struct Idle;

impl Drop for Idle {
    fn drop(&mut self) {
        FRAMES.with_borrow_mut(|frames| {
            if let Some(frame) = frames.last_mut() {
                frame.is_busy = false;
            }
        });
    }
}

/// Uses a context, if it is valid here.
pub(crate) fn with<R>(
    context: *const ColonyContext,
    body: impl FnOnce(&mut dyn Calls, &Who<'_>) -> Result<R, Refusal>,
) -> Result<R, Refusal> {
    if context.is_null() {
        return Err(Refusal::Invalid("the context is NULL".to_owned()));
    }
    let found = FRAMES.with_borrow_mut(|frames| match frames.last_mut() {
        Some(frame) if frame.handle == context.addr() && !frame.is_busy => {
            frame.is_busy = true;
            Some((frame.calls, frame.who))
        }
        _ => None,
    });
    let (calls, who) = found.ok_or(Refusal::Context(
        "the context is not valid here: its callback has returned, another callback runs inside it, or this is another thread",
    ))?;
    let _idle = Idle;
    // SAFETY: the frame is on the stack, so `enter` has not returned, and both pointers are valid. `is_busy` and the
    // rule of the innermost frame keep a second reference from being made until `body` returns.
    let (calls, who) = unsafe { (&mut *calls, &*who) };
    let result = catch_unwind(AssertUnwindSafe(|| body(calls, who)));
    result.unwrap_or_else(|panic| {
        // the PE may be left in any state: it must not go on
        let text = status::panic_text(&*panic);
        fail(&format!("{}: {text}: this is a fault of the runtime", who.show()));
        Err(Refusal::Panic(text))
    })
}

/// The program fails because of a callback of this thread.
pub(crate) fn fail(text: &str) {
    keep_failure(text);
    FAILED.set(true);
}

/// The program has failed because of a callback of this thread.
pub(crate) fn has_failed() -> bool {
    FAILED.get()
}

/// Leaves the scheduler if a callback of this thread has failed and no callback runs around this one: the runtime
/// takes an unwinding object for one that has failed. It passes no frame of C, and no panic is reported.
pub(crate) fn end_if_failed() {
    if FAILED.get() && FRAMES.with_borrow(Vec::is_empty) {
        FAILED.set(false);
        std::panic::resume_unwind(Box::new("the program failed".to_owned()));
    }
}

/// A run begins on this thread.
pub(crate) fn begin_run() {
    FAILED.set(false);
}
