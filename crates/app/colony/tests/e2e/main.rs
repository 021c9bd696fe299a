// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `colony` command as its users run it. One program, so that it is linked once.

mod bench;
mod bench_checkpoint;
mod bench_lb;
mod clock;
mod cnk;
mod common;
mod das_boot;
mod docs;
mod doctor;
mod fault_tolerance;
mod headroom;
mod inject;
mod io_node;
mod io_scaling;
mod io_sockets;
mod lb;
mod machine;
mod measure;
mod measure_until;
mod measure_wakeups;
mod noise;
mod pages;
mod pages_of_the_book;
mod run;
mod runtime;
mod samples;
mod signals;
mod sim;
mod study;
mod timeline;
mod top;
mod traces;
mod tune;
mod vm;
mod wrong_use;
