// SPDX-License-Identifier: MIT OR Apache-2.0
//! Brings the node up: clock, devices, windows, the second CPU.

use colony_fship::layout::{MAGIC, WINDOW_SIZES};

use crate::debug;
use crate::machine::lock::Once;
use crate::machine::pci::{self, Device};
use crate::machine::start::Boot;
use crate::machine::window::Window;
use crate::machine::{ops, paging, smp};
use crate::{network, time};

/// What the node has.
pub struct Node {
    /// The window that it shares with the daemon.
    pub window: Window,
    /// How the daemon is reached.
    pub link: Link,
    /// CPUs that run.
    pub cpus: usize,
    /// How often to look for a reply before halting.
    pub spin: u64,
    /// Fences order nothing against the daemon: see [`apic::fence`](crate::machine::apic::fence).
    pub weak_fences: bool,
    /// Bytes that the kernel takes.
    pub resident: u64,
}

/// How the daemon is reached.
pub enum Link {
    /// It shares the window, which is the memory of this device; the device has the bells.
    Bells(Device),
    /// By frames; the window is memory of the node's own.
    Frames,
}

static NODE: Once<Node> = Once::new();

/// What the node has.
pub fn node() -> &'static Node {
    NODE.get().expect("the node is up before anything asks")
}

/// Brings the node up. What is missing ends it: there is nobody to tell but the serial line.
pub fn start(boot: &Boot) {
    time::calibrate();
    let found = pci::find();
    let memory = match (&found.shipping, &found.network) {
        (Some(device), _) => device.memory(),
        (None, Some(_)) => boot.own_window(),
        (None, None) => panic!("neither an ivshmem-doorbell device nor a network device"),
    };
    let size = memory.size();
    assert!(WINDOW_SIZES.contains(&size), "window of {size} bytes");
    let torus = found.torus.map(|d| d.memory());
    let window = paging::map_windows(memory, torus).expect("window too large for this processor");
    let patience_ns = if boot.hasty { 0 } else { smp::PATIENCE_NS };
    let cpus = smp::start(boot.rsdp, time::rate(), patience_ns);
    let link = match (found.shipping, found.network) {
        (Some(device), _) => {
            for cpu in 0..cpus {
                if let Some(apic) = smp::apic_of(cpu) {
                    device.route(cpu, apic);
                }
            }
            Link::Bells(device)
        }
        (None, network) => {
            if let Some(registers) = network {
                network::start(&registers, window);
            }
            Link::Frames
        }
    };
    let header = window.header();
    assert_eq!(header.magic, MAGIC, "the window is not the daemon's");
    assert_eq!(header.version, colony_fship::VERSION, "another version of the contract");
    assert_eq!(header.window, size, "the daemon has another idea of the window's size");
    paging::forget_start();
    debug!(
        "cnk: {} CPUs, {} MHz, window {} MiB, {} KiB resident, torus {} MiB",
        cpus,
        time::rate().hz() / 1_000_000,
        size >> 20,
        boot.resident >> 10,
        torus.map_or(0, |t| t.size() >> 20),
    );
    let weak_fences = cpus == 1 && ops::in_emulator();
    NODE.set(Node { window, link, cpus, spin: header.spin, weak_fences, resident: boot.resident });
}
