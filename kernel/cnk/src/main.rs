// SPDX-License-Identifier: MIT OR Apache-2.0
//! The compute node kernel: one program on all CPUs or two on half of them, a static map, no ticks, no files.
//!
//! "A lightweight kernel that loads one program, maps its memory statically and stays out of the way" (Designing a
//! Highly-Scalable Operating System: The Blue Gene/L Story, SC06, 3). What needs a file is shipped to the I/O daemon.
//!
//! Modules:
//! * `machine/` has all code that the compiler cannot check: first instructions, entry, page tables, devices;
//! * `logic/` is the other extreme: pure decisions, also built and tested as a library on any Linux;
//! * [`boot`] brings the node up, which [`node`] describes; [`job`] takes a job, runs it, ends it;
//! * [`calls`] does system calls, a file a family; [`shipping`] sends those it does not do itself to the daemon;
//! * [`process`] has the state of a process and its threads, [`delivery`] calls the handlers of signals, [`traps`]
//!   handles exceptions and interrupts, [`idle`] gives a CPU its next thread, [`time`] is the clock.
//!
//! A file uses only files of lower layers: the idle loop, calls and traps, delivery of signals, jobs, shipping, processes, the node,
//! the machine. The entry code of the machine reaches the top by the functions named below.
#![no_std]
#![no_main]

#[forbid(unsafe_code)]
mod boot;
#[forbid(unsafe_code)]
mod calls;
#[forbid(unsafe_code)]
mod cpu;
#[forbid(unsafe_code)]
mod delivery;
#[forbid(unsafe_code)]
mod idle;
#[forbid(unsafe_code)]
mod job;
mod machine;
#[forbid(unsafe_code)]
mod network;
#[forbid(unsafe_code)]
mod node;
#[forbid(unsafe_code)]
mod process;
#[forbid(unsafe_code)]
mod shipping;
#[forbid(unsafe_code)]
mod time;
#[forbid(unsafe_code)]
mod traps;

machine::start::entry_points! {
    boot: crate::boot::start,
    idle: crate::idle::idle,
    call: crate::calls::dispatch,
    trap: crate::traps::dispatch,
}
