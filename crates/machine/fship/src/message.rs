// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two messages: a request from the node, a reply from the daemon.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A call to be done by the daemon.
///
/// `call` is a Linux x86-64 system call number, or one of [`own`]. Addresses among `args` are those of the calling
/// process: offsets in its bank (see [`crate::layout`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Request {
    /// Counts the requests of a channel; the reply repeats it.
    pub seq: u32,
    /// The call: its Linux number, or one of [`own`].
    pub call: u32,
    /// The arguments, as the program gave them.
    pub args: [u64; 6],
    /// Zero; room to grow.
    pub reserved: u64,
}

/// The daemon's answer. Every request gets one, but [`own::EXIT`], [`own::FAULT`], [`own::LOG`] and [`own::CANCEL`];
/// in any order where a channel has several under way. A successful `execve` is answered by 0 when the new image is in
/// place; the node enters it instead of returning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Reply {
    /// That of the request.
    pub seq: u32,
    /// Zero; room to grow.
    pub flags: u32,
    /// As a Linux system call returns it: negative error number, or the result.
    pub result: i64,
}

/// Requests that are no Linux system calls. A program cannot send one: the kernel refuses numbers beyond the table.
pub mod own {
    /// The node is up, or has ended a job, and waits for work: the reply (result 0) comes when the job block
    /// ([`crate::layout::JobBlock`]) and the images of the processes are in place. Channel 0 only.
    /// Arguments: version, CPUs, time stamp counter in Hz, kernel bytes resident, ns from reset to here.
    pub const NEXT_JOB: u32 = 0x8000;
    /// The process on this channel has ended. Arguments: wait status as of `waitpid` (code << 8, or the signal),
    /// timer interrupts, other interrupts, local calls, shipped calls, faults of its whole run. Calls of the process
    /// that still wait (on either channel, in coprocessor mode) are dropped. The kernel does not wait for a reply, and
    /// ignores every reply whose number it does not wait for.
    pub const EXIT: u32 = 0x8001;
    /// The process on this channel has ended by a fault or signal, whose record is in
    /// [`crate::layout::CrashRecord`] of this channel. Arguments as of [`EXIT`].
    pub const FAULT: u32 = 0x8002;
    /// A word of the kernel for the daemon's log. Arguments: offset in the window's log area, length. The kernel does
    /// not wait for a reply.
    pub const LOG: u32 = 0x8003;
    /// Nothing; to measure the way there and back. A program reaches it by the system call of this number.
    pub const NOP: u32 = 0x8004;
    /// A signal has come while the process waits: the call of this channel that has the sequence number of argument 0
    /// is answered with `EINTR` now, or with what it has moved so far, if it still waits. This request itself gets no reply.
    pub const CANCEL: u32 = 0x8005;

    /// Returns `true` if a request with this number is answered.
    pub const fn has_reply(call: u32) -> bool {
        !matches!(call, EXIT | FAULT | LOG | CANCEL)
    }
}
