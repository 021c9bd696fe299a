// SPDX-License-Identifier: MIT OR Apache-2.0
//! The emulator of a Linux node: its command line, and the start of it.

use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use colony_init::PORT;
use colony_time::tsc::{Calibration, CounterKind};

use super::Prepared;
use crate::{Accel, VmError, net, qemu};

/// Descriptors of the emulator: the kernel, the image, the port to the guest, the first network card.
const KERNEL_FD: i32 = qemu::FIRST_FD;
const INITRD: i32 = KERNEL_FD + 1;
const PORT_FD: i32 = INITRD + 1;
const FIRST_CARD: i32 = PORT_FD + 1;

/// The first PCI slot of cards without a network.
const FIRST_SLOT: usize = 0xe;

/// The command line of every guest. Self-tests of ciphers take a second without acceleration; addresses are not
/// random, so that runs are alike; a panic ends the machine. The timer is not tried out at the start: on a busy host its
/// interrupts come late, and the kernel would take it for broken and panic.
const COMMAND_LINE: &str = "console=ttyS0 quiet panic=-1 cryptomgr.notests nokaslr norandmaps tsc=reliable \
                            no_timer_check random.trust_bootloader=off sysrq_always_enabled";

/// What the kernel of a silent guest is asked over its console, a key each: to show all messages, the states of all
/// tasks, those that wait and take no signal, what its CPUs run (Documentation/admin-guide/sysrq.rst).
pub(super) const QUESTIONS: &[u8] = b"9twl";

/// An emulator that runs.
pub(super) struct Emulator {
    pub child: Child,
    /// Our end of the guest's port.
    pub port: UnixStream,
}

impl Emulator {
    /// Asks the guest's kernel one of the [`QUESTIONS`]; it answers on the console, if it still runs. A break is
    /// Ctrl-A `b` to the emulator, and the key after it is for the kernel.
    pub(super) fn ask(&mut self, question: u8) {
        if let Some(keys) = &mut self.child.stdin {
            // an emulator that has ended is told by its console
            let _ = keys.write_all(&[1, b'b', question]);
        }
    }
}

/// Starts the emulator; it is killed when the calling thread ends.
pub(super) fn start(prepared: Prepared) -> Result<Emulator, VmError> {
    let (ours, theirs) = UnixStream::pair().map_err(VmError::io("a pair of sockets"))?;
    let arguments = arguments(&prepared);
    let kernel = qemu::readable(&prepared.kernel)?;
    let fds = [kernel.into(), prepared.initrd, OwnedFd::from(theirs)].into_iter().chain(prepared.cards);
    let fds = fds.chain(prepared.ports);
    let (pid, has_own_group) = (prepared.pid, prepared.vm.has_own_group);
    let mut command = qemu::command(arguments, fds)?;
    if has_own_group {
        command.process_group(0);
    }
    command.stdin(Stdio::piped());
    let child = qemu::spawn(command)?;
    pid.store(child.id(), Ordering::Relaxed);
    Ok(Emulator { child, port: ours })
}

/// The rate of the guest's time-stamp counter, for its command line. Emulation gives the guest the counter of this machine. If the host
/// is busy, a guest that measures the rate itself is wrong by 20 % and more, and its clocks are wrong by as much.
fn counter_rate(accel: Accel) -> String {
    static RATE: OnceLock<Option<f64>> = OnceLock::new();
    if !matches!(accel, Accel::Emulated | Accel::SingleThread) {
        return String::new();
    }
    let measure = || Some(Calibration::measure()).filter(|found| found.kind == CounterKind::Tsc);
    let hz = RATE.get_or_init(|| measure().map(|found| found.hz));
    hz.map_or(String::new(), |hz| format!(" tsc_early_khz={:.0}", hz / 1e3))
}

fn arguments(prepared: &Prepared) -> Vec<String> {
    let vm = &prepared.vm;
    let mut all = vm.accel.options(None);
    let mut add = |words: &[&str]| all.extend(words.iter().map(|&w| w.to_owned()));
    add(&["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    add(&["-machine", "pc-q35-7.0", "-m", &prepared.memory_mib.to_string()]);
    add(&["-smp", &format!("{},sockets={}", vm.cpus, vm.sockets)]);
    for words in numa_nodes(vm.numa_nodes, vm.cpus, prepared.memory_mib) {
        add(&words.each_ref().map(String::as_str));
    }
    if matches!(vm.accel, Accel::Counted { .. }) {
        // always the same date
        add(&["-rtc", "base=2026-01-01T00:00:00,clock=vm"]);
    }
    add(&["-kernel", &format!("/proc/self/fd/{KERNEL_FD}"), "-initrd", &format!("/proc/self/fd/{INITRD}")]);
    add(&["-append", &format!("{COMMAND_LINE}{}{}", counter_rate(vm.accel), vm.append)]);
    add(&["-chardev", "stdio,id=console,signal=off,mux=on", "-serial", "chardev:console"]);
    // the first is a console's
    let most = 2 + vm.ports.len();
    add(&["-device", &format!("virtio-serial-pci,max_ports={most}")]);
    add(&["-chardev", &format!("socket,id=job,fd={PORT_FD}")]);
    add(&["-device", &format!("virtserialport,chardev=job,name={PORT}")]);
    for (fd, (name, _)) in (FIRST_CARD + prepared.cards.len() as i32..).zip(&vm.ports) {
        add(&["-chardev", &format!("socket,id=port{fd},fd={fd}")]);
        add(&["-device", &format!("virtserialport,chardev=port{fd},name={name}")]);
    }
    for (n, card) in vm.cards.iter().enumerate() {
        // eight functions a slot, behind the devices that QEMU places itself
        let (slot, function) = (FIRST_SLOT + n / 8, n % 8);
        let several = if function == 0 { ",multifunction=on" } else { "" };
        let fd = FIRST_CARD + (vm.networks.len() + n) as i32;
        let address = card.address.map(|byte| format!("{byte:02x}")).join(":");
        add(&["-netdev", &format!("dgram,id=net{fd},local.type=fd,local.str={fd}")]);
        // one for both directions: a CPU has some 200 interrupt vectors
        let vectors = "vectors=2";
        let device =
            format!("virtio-net-pci,disable-legacy=on,netdev=net{fd},mac={address},romfile=,{vectors}");
        add(&["-device", &format!("{device},host_mtu={},addr={slot:x}.{function}{several}", card.mtu)]);
    }
    for (fd, interface) in (FIRST_CARD..).zip(&vm.job.interfaces) {
        let address = net::hardware_address(interface.address);
        add(&["-netdev", &format!("socket,id=net{fd},fd={fd}")]);
        add(&["-device", &format!("virtio-net-pci,netdev=net{fd},mac={address},romfile=")]);
    }
    all
}

/// The options that divide CPUs and memory among several NUMA nodes. The last node has the memory that cannot be divided.
fn numa_nodes(nodes: u32, cpus: u32, memory_mib: u32) -> Vec<[String; 4]> {
    if nodes < 2 {
        return Vec::new();
    }
    let (each_cpus, each_mib) = (cpus / nodes, memory_mib / nodes);
    let option = |node: u32| {
        let mib = if node + 1 == nodes { memory_mib - node * each_mib } else { each_mib };
        let (first, last) = (node * each_cpus, (node + 1) * each_cpus - 1);
        [
            "-object".into(),
            format!("memory-backend-ram,id=numa{node},size={mib}M"),
            "-numa".into(),
            format!("node,nodeid={node},cpus={first}-{last},memdev=numa{node}"),
        ]
    };
    (0..nodes).map(option).collect()
}

/// Processor time that the emulator has used so far, ns; 0 if it has ended.
pub(super) fn cpu_ns(child: &Child) -> u64 {
    colony_node::task::cpu_ns(child.id().cast_signed()).unwrap_or(0)
}

/// Reads what is there without waiting; `None` at the end.
pub(super) fn read_now(fd: impl AsFd, into: &mut [u8]) -> Option<usize> {
    match nix::unistd::read(fd, into) {
        Ok(0) => None,
        Ok(n) => Some(n),
        Err(nix::Error::EAGAIN | nix::Error::EINTR) => Some(0),
        Err(_) => None,
    }
}
