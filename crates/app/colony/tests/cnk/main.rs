// SPDX-License-Identifier: MIT OR Apache-2.0
//! The compute node kernel and its I/O daemon, in virtual machines.

mod allocation;
mod boot;
mod common;
mod confinement;
mod conformance;
mod control;
mod counters;
mod doorbells;
mod drains;
mod extremes;
mod far;
mod fleet;
mod full_disk;
mod input;
mod io_nodes;
mod isolation;
mod jobs;
mod layouts;
mod linux_files;
mod linux_io;
mod linux_machine;
mod messages;
mod network;
mod noise;
mod objects;
mod personality;
mod programs;
mod queue;
mod storm;
mod streams;
mod threads;
mod tlb;
mod watch;
