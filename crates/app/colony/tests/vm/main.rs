// SPDX-License-Identifier: MIT OR Apache-2.0
//! End-to-end tests in virtual nodes: what the kernel of this machine may not have, and what tests must not
//! do to it. Each start of a node costs seconds, so each proves several things.

mod common;
mod daemon;
mod doctor;
mod kernels;
mod lifecycle;
mod limits;
mod mpi;
mod pages;
mod shares;
mod spare;
mod study;
mod tune;
mod windows;
