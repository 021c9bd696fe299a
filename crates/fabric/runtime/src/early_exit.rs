// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that end by `exit` while their program runs. Without a launcher, which sees how its ranks end, the process
//! prints that itself.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::report::report_line;
use crate::transport::sockets::Sockets;

/// The runs that have begun and not ended.
static RUNNING: AtomicU32 = AtomicU32::new(0);

/// A run of a program in this process, until it is dropped.
pub(crate) struct Running(());

impl Running {
    pub(crate) fn begin() -> Self {
        static REGISTERED: Once = Once::new();
        if !Sockets::is_launched() {
            // without the function, an early end is not reported
            REGISTERED.call_once(|| {
                // SAFETY: the function takes nothing, returns nothing and does not panic. It stays in memory until the process
                // ends: libraries with Rust code are not unloaded.
                let _ = unsafe { nix::libc::atexit(report_early_exit) };
            });
        }
        RUNNING.fetch_add(1, Relaxed);
        Self(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Relaxed);
    }
}

extern "C" fn report_early_exit() {
    if RUNNING.load(Relaxed) > 0 {
        report_line!(
            "error: the process called exit before its program had ended; to end a program, call the runtime's exit"
        );
    }
}
