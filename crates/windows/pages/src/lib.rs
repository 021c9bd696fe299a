// SPDX-License-Identifier: MIT OR Apache-2.0
//! Large pages for an unmodified program, and the proof that it has them.
//!
//! [`Launch`] starts a program under a [`PagePolicy`]. The program, dynamic or static, is stopped before its first
//! instruction, and makes the system calls that put its segments on large pages. Then it runs untraced. Its heap gets
//! large pages from the C library's own setting in the environment.
//!
//! [`Watch`] looks at `/proc/PID/smaps` while the job runs. [`PagesReport`] tells each segment's bytes by page size, page faults, and
//! misses of the data TLB where the machine counts them.
//!
//! [`Watch::check_headroom`] looks at the memory that is left to the job. When large pages could exceed a limit, the job goes on with base
//! pages.
//!
//! A kernel that refuses something makes a warning in the report, never a failed job.

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("colony-pages knows the system call instruction of x86-64 and 64-bit ARM only");

mod base_pages;
mod fallbacks;
mod folios;
mod headroom;
mod image;
mod launch;
mod libraries;
mod misses;
mod place;
mod policy;
mod processor;
mod report;
mod room;
mod sample;
mod smaps;
mod support;
mod symbols;
mod tracee;
mod watch;

pub use image::Segment;
pub use launch::{Launch, Watch};
pub use place::{How, Moved};
pub use policy::PagePolicy;
pub use report::{Counted, Faults, PagesReport, Shortage};
pub use sample::{Sample, SegmentBytes};
pub use support::{Mode, Request, Support};
