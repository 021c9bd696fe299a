// SPDX-License-Identifier: MIT OR Apache-2.0
//! The entrance from the network and the web page. No node is booted here: the tests play the nodes.

mod events;
mod far;
mod jobs;
mod network;
mod page;
mod read_only;
mod stub;
