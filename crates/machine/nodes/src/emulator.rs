// SPDX-License-Identifier: MIT OR Apache-2.0
//! The emulator of a compute node: its command line, and the start of it.

use std::fs::File;
use std::io::PipeReader;
use std::os::fd::OwnedFd;

use colony_vm::counting::CountingPlugin;
use colony_vm::{Accel, qemu};

use crate::boot::{Booter, Emulator};
use crate::hang::Watch;
use crate::monitor::Monitor;
use crate::{CnkError, Link, Machine};

/// Descriptors of the emulator: the kernel, the link to the I/O daemon, the memory shared by the nodes.
const KERNEL_FD: i32 = qemu::FIRST_FD;
const LINK_FD: i32 = KERNEL_FD + 1;
const TORUS_FD: i32 = LINK_FD + 1;
/// Memory for the kernel alone, MiB: the user's is in the window.
const KERNEL_MIB: u64 = 16;
/// Memory behind a window of the node's own, MiB: the firmware keeps its tables at the end.
const FIRMWARE_MIB: u64 = 2;

/// Memory for translated code, MiB.
const TRANSLATED_MIB: u32 = 32;

/// Descriptors that an emulator inherits.
pub(crate) struct Parts {
    pub kernel: File,
    pub link: OwnedFd,
    pub torus: Option<(File, u64)>,
}

/// An emulator that was started.
pub(crate) struct Started {
    pub emulator: Emulator,
    /// What it writes on its console.
    pub console: PipeReader,
    /// Sees if the kernel hangs. A machine whose time is counted in instructions has none: questions to its emulator might
    /// change their number.
    pub watch: Option<Watch>,
    /// The plugin that counts, if the machine asks for one.
    pub plugin: Option<CountingPlugin>,
}

/// Starts the emulator, by the boot process.
///
/// # Errors
/// As [`Booter::boot`].
pub(crate) fn start(booter: &Booter, machine: &Machine, parts: Parts) -> Result<Started, CnkError> {
    let mut arguments = arguments(machine, parts.torus.as_ref().map(|(_, bytes)| *bytes));
    let torus = parts.torus.map(|(file, _)| OwnedFd::from(file));
    let mut fds: Vec<OwnedFd> = [parts.kernel.into(), parts.link].into_iter().chain(torus).collect();
    let mut monitor = None;
    if !matches!(machine.accel, Accel::Counted { .. }) {
        let (ours, theirs) = Monitor::pair().map_err(CnkError::io("the monitor of a node"))?;
        let fd = KERNEL_FD + fds.len() as i32;
        let words =
            ["-chardev", &format!("socket,id=monitor,fd={fd}"), "-mon", "chardev=monitor,mode=control"];
        arguments.extend(words.map(str::to_owned));
        fds.push(theirs);
        monitor = Some(ours);
    }
    let mut plugin = None;
    if machine.is_counted() {
        let (started, plugged) =
            CountingPlugin::new(machine.tlb.as_ref(), machine.cpus, KERNEL_FD + fds.len() as i32)?;
        arguments.extend(plugged.arguments);
        fds.extend(plugged.fds);
        plugin = Some(started);
    }
    let (emulator, console) = booter.boot(arguments, fds)?;
    let watch = monitor.map(|monitor| Watch::new(monitor, emulator.pid(), machine.cpus));
    Ok(Started { emulator, console, watch, plugin })
}

/// The value of `-smp`. QEMU translates locked instructions without atomicity and barrier if a machine can have one CPU
/// only; it has to keep both, since other processes share the memory of a node. So an emulated machine of one CPU has
/// room for a second, which is never there.
fn processors(machine: &Machine) -> String {
    match (machine.accel, machine.cpus) {
        (Accel::Emulated, 1) => "1,maxcpus=2".into(),
        (_, cpus) => cpus.to_string(),
    }
}

fn arguments(machine: &Machine, torus: Option<u64>) -> Vec<String> {
    let mut all = machine.accel.options(Some(TRANSLATED_MIB));
    let mut add = |words: &[&str]| all.extend(words.iter().map(|&w| w.to_owned()));
    add(&["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    // no firmware, no legacy devices: nothing that the kernel would have to probe
    add(&["-machine", "microvm,acpi=on,pic=off,rtc=off,pcie=on"]);
    let own_mib = match machine.link {
        Link::Window => 0,
        Link::Network(_) => (machine.memory >> 20) + FIRMWARE_MIB,
    };
    add(&["-m", &format!("{}M", KERNEL_MIB + own_mib), "-smp", &processors(machine)]);
    add(&["-kernel", &format!("/proc/self/fd/{KERNEL_FD}")]);
    let word = if machine.debug { "debug" } else { "quiet" };
    let words: Vec<&str> =
        std::iter::once(word).chain(machine.kernel_words.iter().map(String::as_str)).collect();
    add(&["-append", &words.join(" ")]);
    add(&["-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"]);
    match machine.link {
        Link::Window => {
            let vectors = colony_fship::layout::CHANNELS;
            add(&["-chardev", &format!("socket,id=link,fd={LINK_FD}")]);
            add(&["-device", &format!("ivshmem-doorbell,vectors={vectors},chardev=link")]);
        }
        Link::Network(network) => {
            let mtu = network.mtu;
            add(&["-netdev", &format!("dgram,id=link,local.type=fd,local.str={LINK_FD}")]);
            let device = "virtio-net-pci,disable-legacy=on,romfile=,mac=02:63:6e:6b:00:01";
            add(&["-device", &format!("{device},netdev=link,host_mtu={mtu}")]);
        }
    }
    if let Some(bytes) = torus {
        let path = format!("/proc/self/fd/{TORUS_FD}");
        add(&["-object", &format!("memory-backend-file,id=torus,share=on,size={bytes},mem-path={path}")]);
        add(&["-device", "ivshmem-plain,memdev=torus"]);
    }
    all
}

#[cfg(test)]
mod tests {
    use colony_ciod::Network;

    use super::*;

    fn smp(machine: &Machine) -> String {
        let words = arguments(machine, None);
        let at = words.iter().position(|w| w == "-smp").expect("there is one");
        words[at + 1].clone()
    }

    #[test]
    fn an_emulated_machine_keeps_its_locks() {
        let machine = |cpus, accel| Machine { cpus, accel, ..Machine::default() };
        assert_eq!(smp(&machine(1, Accel::Emulated)), "1,maxcpus=2");
        assert_eq!(smp(&machine(2, Accel::Emulated)), "2");
        assert_eq!(smp(&machine(1, Accel::Kvm)), "1");
        // QEMU counts instructions in one thread, without atomicity: the kernel knows (its `weak_fences`)
        assert_eq!(smp(&machine(1, Accel::Counted { shift: 0 })), "1");
    }

    #[test]
    fn a_node_is_not_backed_by_huge_pages() {
        if let Some(reason) = colony_vm::testing::missing() {
            return colony_testing::skip(reason);
        }
        let machine = Machine { link: Link::Network(Network::default()), ..Machine::default() };
        let (link, _other) = std::os::unix::net::UnixDatagram::pair().expect("a pair of sockets");
        // for ever
        let kernel = crate::life::tests::kernel(&[0xeb, 0xfe]);
        let (booter, parts) = (Booter::in_thread(), Parts { kernel, link: link.into(), torus: None });
        let started = start(&booter, &machine, parts).expect("the emulator is here");
        let status = std::fs::read_to_string(format!("/proc/{}/status", started.emulator.pid()));
        started.emulator.kill();
        let status = status.unwrap_or_default();
        assert!(status.lines().any(|l| l.split_whitespace().eq(["THP_enabled:", "0"])), "{status}");
    }

    #[test]
    fn words_for_the_kernel_follow_each_other() {
        let machine = Machine { kernel_words: vec!["hasty".into()], debug: true, ..Machine::default() };
        let words = arguments(&machine, None);
        assert!(words.windows(2).any(|w| w == ["-append", "debug hasty"]), "{words:?}");
    }
}
