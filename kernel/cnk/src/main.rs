// SPDX-License-Identifier: MIT OR Apache-2.0
//! The compute node kernel: one program a CPU or one on both, a static map, no scheduler, no files.
//!
//! "A lightweight kernel that loads one program, maps its memory statically and stays out of the way" (Designing a
//! Highly-Scalable Operating System: The Blue Gene/L Story, SC06, 3). What needs a file is shipped to the I/O daemon.
//!
//! Where things are:
//! * `machine/` has all code that the compiler cannot check: first instructions, entry, page tables, devices;
//! * `logic/` is the other extreme: pure decisions, also built and tested as a library on any Linux;
//! * [`boot`] brings the node up, [`job`] takes a job, runs it, ends it;
//! * [`calls`] does system calls, a file a family; [`shipping`] sends those it does not do itself to the daemon;
//! * [`process`] has the state of a process and its threads, [`traps`] exceptions and interrupts, [`time`] the clock.
#![no_std]
#![no_main]

#[forbid(unsafe_code)]
mod boot;
#[forbid(unsafe_code)]
mod calls;
#[forbid(unsafe_code)]
mod cpu;
#[forbid(unsafe_code)]
mod job;
mod machine;
#[forbid(unsafe_code)]
mod network;
#[forbid(unsafe_code)]
mod process;
#[forbid(unsafe_code)]
mod shipping;
#[forbid(unsafe_code)]
mod time;
#[forbid(unsafe_code)]
mod traps;
