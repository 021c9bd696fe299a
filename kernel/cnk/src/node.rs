// SPDX-License-Identifier: MIT OR Apache-2.0
//! The node: its window, its link to the daemon, its CPUs. Known once it is up.

use crate::machine::CPUS;
use crate::machine::devices::Device;
use crate::machine::window::{Channel, Window};
use spin::Once;

/// The parts of the node.
pub struct Node {
    /// The window that it shares with the daemon.
    pub window: Window,
    /// Its rings, one pair a CPU.
    pub channels: [Channel; CPUS],
    /// The way to the daemon.
    pub link: Link,
    /// CPUs that run.
    pub cpus: usize,
    /// Number of looks for a reply before halting.
    pub spin: u64,
    /// Fences order nothing against the daemon: see [`apic::fence`](crate::machine::apic::fence).
    pub weak_fences: bool,
    /// Bytes that the kernel takes.
    pub resident: u64,
}

/// The way to the daemon.
pub enum Link {
    /// It shares the window, which is the memory of this device; the device has the bells.
    Bells(Device),
    /// By frames; the window is memory of the node's own.
    Frames,
}

static NODE: Once<Node> = Once::new();

/// The node.
///
/// # Panics
/// Before [`set`].
pub fn node() -> &'static Node {
    NODE.get().expect("the node is up before anything asks")
}

/// Returns `true` if the node is up.
pub fn is_up() -> bool {
    NODE.get().is_some()
}

/// The node is up.
pub fn set(node: Node) {
    NODE.call_once(|| node);
}
