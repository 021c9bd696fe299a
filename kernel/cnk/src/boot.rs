// SPDX-License-Identifier: MIT OR Apache-2.0
//! Brings the node up: clock, devices, windows, the second CPU.

use colony_fship::layout::{MAGIC, WINDOW_SIZES};

use crate::machine::area::{CPUS, STACK};
use crate::machine::console::debug;
use crate::machine::start::Boot;
use crate::machine::{devices, ops, paging, smp};
use crate::node::{self, Link, Node};
use crate::{network, process, time};

/// Brings the node up. What is missing ends it: there is nobody to tell but the serial line.
pub fn start(boot: &Boot) {
    time::calibrate();
    let found = devices::find();
    let memory = match (&found.shipping, &found.network) {
        (Some(device), _) => device.memory,
        (None, Some(_)) => boot.own_window(),
        (None, None) => panic!("neither an ivshmem-doorbell device nor a network device"),
    };
    let size = memory.size();
    assert!(WINDOW_SIZES.contains(&size), "window of {size} bytes");
    let torus = found.torus.map(|d| d.memory);
    let window = paging::map_windows(memory, torus).expect("window too large for this processor");
    let timeout_ns = if boot.hasty { 0 } else { smp::TIMEOUT_NS };
    let cpus = smp::start(boot.rsdp, time::rate(), timeout_ns);
    let link = match (found.shipping, found.network) {
        (Some(device), _) => {
            let apics = (0..cpus).filter_map(|cpu| Some((cpu, smp::apic_of(cpu)?)));
            apics.for_each(|(cpu, apic)| device.route(cpu, apic));
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
    let absent = ((CPUS - cpus) * STACK) as u64;
    let resident = boot.resident - absent - process::switch::spare_bytes(cpus);
    let (mhz, mib, kib) = (time::rate().hz() / 1_000_000, size >> 20, resident >> 10);
    let torus_mib = torus.map_or(0, |t| t.size() >> 20);
    debug!("cnk: {cpus} CPUs, {mhz} MHz, window {mib} MiB, {kib} KiB resident, torus {torus_mib} MiB");
    let weak_fences = cpus == 1 && ops::in_emulator();
    let channels = window.channels();
    node::set(Node { window, channels, link, cpus, spin: header.spin, weak_fences, resident });
}
