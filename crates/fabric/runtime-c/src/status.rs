// SPDX-License-Identifier: MIT OR Apache-2.0
//! Error codes, and the last error of each thread.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A call that was refused, as `colony_status`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// `COLONY_INVALID`.
    #[error("{0}")]
    Invalid(String),
    /// `COLONY_UNKNOWN`.
    #[error("{0}")]
    Unknown(String),
    /// `COLONY_DIMENSIONS`.
    #[error("{0}")]
    Dimensions(String),
    /// `COLONY_CONTEXT`.
    #[error("{0}")]
    Context(&'static str),
    /// `COLONY_FAILED`.
    #[error("{0}")]
    Failed(String),
    /// `COLONY_PANIC`.
    #[error("{0}: this is a fault of the runtime")]
    Panic(String),
}

impl Refusal {
    /// The value of `colony_status`.
    pub(crate) const fn code(&self) -> i32 {
        match self {
            Self::Invalid(_) => -1,
            Self::Unknown(_) => -2,
            Self::Dimensions(_) => -3,
            Self::Context(_) => -4,
            Self::Failed(_) => -5,
            Self::Panic(_) => -6,
        }
    }
}

#[derive(Default)]
struct Last {
    text: CString,
    /// `true` if the error occurred after the running callback began.
    is_new: bool,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

/// Text for C: without the bytes that end it.
fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

/// Keeps the text of a failed call.
pub(crate) fn keep(text: &str) {
    LAST.with_borrow_mut(|last| *last = Last { text: c_text(text), is_new: true });
}

/// The text of the last failed call of this thread.
pub(crate) fn last() -> *const c_char {
    // the thread's destructors may run already
    LAST.try_with(|last| last.borrow().text.as_ptr()).unwrap_or(c"".as_ptr())
}

/// A callback begins.
pub(crate) fn begin_callback() {
    LAST.with_borrow_mut(|last| last.is_new = false);
}

/// The text of the last call that failed since the callback began.
pub(crate) fn of_callback() -> Option<String> {
    LAST.with_borrow(|last| last.is_new.then(|| last.text.to_string_lossy().into_owned()))
}

/// The text of a panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic").to_owned()
}

/// Runs the body of an exported function: a panic becomes an error, and the text of an error is kept.
pub(crate) fn guard<T>(body: impl FnOnce() -> Result<T, Refusal>) -> Result<T, i32> {
    let result = catch_unwind(AssertUnwindSafe(body));
    let result = result.unwrap_or_else(|panic| Err(Refusal::Panic(panic_text(&*panic))));
    result.map_err(|refusal| {
        keep(&refusal.to_string());
        refusal.code()
    })
}

/// The same, for functions that return a status.
pub(crate) fn status(body: impl FnOnce() -> Result<(), Refusal>) -> i32 {
    guard(body).map_or_else(|code| code, |()| 0)
}

/// Text of C.
///
/// # Safety
/// `text` is null or a string that ends with a byte 0.
pub(crate) unsafe fn text_of(text: *const c_char, what: &str) -> Result<String, Refusal> {
    if text.is_null() {
        return Err(Refusal::Invalid(format!("{what} is NULL")));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    let text = text.to_str().map_err(|_| Refusal::Invalid(format!("{what} is not UTF-8: {text:?}")))?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_with_its_text() {
        let code = status(|| panic!("on\0purpose"));
        assert_eq!(code, -6);
        // SAFETY: a string of this thread.
        let text = unsafe { CStr::from_ptr(last()) }.to_str().expect("UTF-8");
        assert_eq!(text, "on purpose: this is a fault of the runtime");
    }
}
