// SPDX-License-Identifier: MIT OR Apache-2.0
//! The skeleton of `bpf/attrib.bpf.c`, generated when this crate is built; its `types` are those of the kernel side.
#![allow(missing_docs, unreachable_pub, clippy::all, clippy::undocumented_unsafe_blocks, clippy::unwrap_used)]

include!(concat!(env!("OUT_DIR"), "/attrib.skel.rs"));
