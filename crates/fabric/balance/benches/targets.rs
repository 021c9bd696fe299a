// SPDX-License-Identifier: MIT OR Apache-2.0
//! The load balancer's targets, measured here: `./x bench balance`.

fn main() {}
