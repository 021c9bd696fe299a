// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine: described, started, listened to, switched off.

mod emulator;
mod running;
mod session;

use std::collections::BTreeMap;
use std::io::BufWriter;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use colony_init::job::{Interface, Job};
use colony_init::wire::{Exit, Finished};
use nix::sys::eventfd::{EfdFlags, EventFd};

pub use self::running::{Running, Stopper};
use crate::net::Network;
use crate::qemu;
use crate::slots::Slots;
use crate::{Accel, Image, Kernel, VmError};

/// The most cards without a network: functions of the slots that are left for them.
const MOST_CARDS: usize = 128;

/// A machine to be started.
#[derive(Debug, Clone)]
pub struct Vm {
    kernel: Kernel,
    image: Arc<Image>,
    name: String,
    cpus: u32,
    sockets: u32,
    numa_nodes: u32,
    memory_mib: Option<u32>,
    accel: Accel,
    append: String,
    timeout: Duration,
    silence: Duration,
    job: Job,
    files: Vec<(PathBuf, Vec<u8>)>,
    networks: Vec<Network>,
    cards: Vec<Card>,
    ports: Vec<(String, Arc<OwnedFd>)>,
    has_own_group: bool,
    notice: fn(&str),
}

/// A network card whose frames are the datagrams of a socket.
#[derive(Debug, Clone)]
struct Card {
    socket: Arc<OwnedFd>,
    address: [u8; 6],
    mtu: u16,
}

/// The outcome of a machine's program.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Its end.
    pub exit: Exit,
    /// All it wrote to standard output.
    pub stdout: Vec<u8>,
    /// All it wrote to standard error.
    pub stderr: Vec<u8>,
    /// The collected files by their path in the guest; an error says why one could not be had.
    pub files: BTreeMap<PathBuf, Result<Vec<u8>, String>>,
    /// The end of the guest's console.
    pub console: String,
    /// The kernel's release.
    pub kernel: String,
    /// The guest's own account of the program.
    pub guest: Finished,
    /// Times until the start of the program.
    pub boot: Boot,
    /// Processor time of the host, all in all, ns.
    pub host_cpu_ns: u64,
    /// Bytes of the image, job included.
    pub image_bytes: u64,
}

/// Times of a start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Boot {
    /// Time of the guest since its kernel began, ns.
    pub uptime_ns: u64,
    /// Processor time of the host, ns.
    pub host_cpu_ns: u64,
}

impl Outcome {
    /// Standard output as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text.
    #[must_use]
    pub fn error_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

/// An event of a running machine.
#[derive(Debug)]
pub enum Event<'a> {
    /// The program starts.
    Started(Boot),
    /// The program wrote to standard output.
    Stdout(&'a [u8]),
    /// The program wrote to standard error.
    Stderr(&'a [u8]),
}

impl Vm {
    /// A machine of one CPU, emulated at the host's time, with 512 MiB of memory or what its image needs.
    #[must_use]
    pub fn new(kernel: &Kernel, image: &Image) -> Self {
        Self {
            kernel: kernel.clone(),
            image: Arc::new(image.clone()),
            name: String::new(),
            cpus: 1,
            sockets: 1,
            numa_nodes: 1,
            memory_mib: None,
            accel: Accel::Emulated,
            append: String::new(),
            timeout: Duration::from_secs(300),
            silence: Duration::from_secs(120),
            job: Job { cwd: "/root".into(), hostname: "node".into(), ..Job::default() },
            files: Vec::new(),
            networks: Vec::new(),
            cards: Vec::new(),
            ports: Vec::new(),
            has_own_group: false,
            notice: |text| tracing::info!("{text}"),
        }
    }

    /// The guest's host name, which also tells machines apart in errors.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self.job.hostname.clone_from(&self.name);
        self
    }

    /// Virtual CPUs.
    #[must_use]
    pub const fn cpus(mut self, cpus: u32) -> Self {
        self.cpus = cpus;
        self
    }

    /// Divides the CPUs among this many sockets, 1 by default. [`Self::start`] refuses a number that does not divide the number of CPUs.
    #[must_use]
    pub const fn sockets(mut self, sockets: u32) -> Self {
        self.sockets = sockets;
        self
    }

    /// Divides CPUs and memory among this many NUMA nodes, 1 by default. [`Self::start`] refuses a number that does not divide the number of
    /// CPUs.
    #[must_use]
    pub const fn numa_nodes(mut self, numa_nodes: u32) -> Self {
        self.numa_nodes = numa_nodes;
        self
    }

    /// Memory, MiB.
    #[must_use]
    pub const fn memory_mib(mut self, memory_mib: u32) -> Self {
        self.memory_mib = Some(memory_mib);
        self
    }

    /// Execution of the machine's instructions. Where several CPUs of an emulated machine run at a time, Linux's code patching
    /// kills some guests (`Oops: int3`): [`Accel::SingleThread`] avoids that.
    #[must_use]
    pub const fn accel(mut self, accel: Accel) -> Self {
        self.accel = accel;
        self
    }

    /// [`Accel::Counted`]: each instruction takes `1 << shift` ns of the guest's time. One CPU only.
    #[must_use]
    pub const fn icount(self, shift: u8) -> Self {
        self.accel(Accel::Counted { shift })
    }

    /// Adds to the kernel's command line.
    #[must_use]
    pub fn append(mut self, words: &str) -> Self {
        self.append.push(' ');
        self.append.push_str(words);
        self
    }

    /// A variable of the program's environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.job.env.push((name.into(), value.into()));
        self
    }

    /// The folder the program starts in (`/root` unless told).
    #[must_use]
    pub fn cwd(mut self, folder: impl Into<PathBuf>) -> Self {
        self.job.cwd = folder.into();
        self
    }

    /// Adds a file for this machine only.
    #[must_use]
    pub fn file(mut self, guest: impl Into<PathBuf>, data: impl Into<Vec<u8>>) -> Self {
        self.files.push((guest.into(), data.into()));
        self
    }

    /// Gives the machine a card on `network`, with this address. The first is `eth0`, the second `eth1`.
    #[must_use]
    pub fn network(mut self, network: &Network, interface: Interface) -> Self {
        self.networks.push(network.clone());
        self.job.interfaces.push(interface);
        Arc::make_mut(&mut self.image).module("virtio_net");
        self
    }

    /// Gives the machine a card with this Ethernet address and MTU, whose frames are the datagrams of `socket`. It is not
    /// switched on and has no IP address. It follows the cards on [networks](Vm::network); 128 at most.
    #[must_use]
    pub fn card(mut self, socket: OwnedFd, address: [u8; 6], mtu: u16) -> Self {
        self.cards.push(Card { socket: Arc::new(socket), address, mtu });
        Arc::make_mut(&mut self.image).module("virtio_net");
        self
    }

    /// Gives the machine a virtual serial port of this name, whose other end is that of `socket`, a stream. The machine's
    /// programs find it by `/sys/class/virtio-ports`.
    #[must_use]
    pub fn port(mut self, name: impl Into<String>, socket: OwnedFd) -> Self {
        self.ports.push((name.into(), Arc::new(socket)));
        self
    }

    /// Runs the emulator in a process group of its own: an interrupt from the terminal does not end it.
    #[must_use]
    pub const fn own_group(mut self) -> Self {
        self.has_own_group = true;
        self
    }

    /// Names an address for the machine's programs.
    #[must_use]
    pub fn host(mut self, address: Ipv4Addr, name: impl Into<String>) -> Self {
        self.job.hosts.push((address, name.into()));
        self
    }

    /// Brings a file back to the host when the program has ended.
    #[must_use]
    pub fn collect(mut self, guest: impl Into<PathBuf>) -> Self {
        self.job.collect.push(guest.into());
        self
    }

    /// The longest the machine may take, start included (300 s unless told).
    #[must_use]
    pub const fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// The longest the machine may say nothing (120 s unless told).
    #[must_use]
    pub const fn silence(mut self, limit: Duration) -> Self {
        self.silence = limit;
        self
    }

    /// Receiver of notices about delays before the start, such as waiting for other machines to end.
    #[must_use]
    pub const fn notice(mut self, notice: fn(&str)) -> Self {
        self.notice = notice;
        self
    }

    /// Runs `argv` in the machine and waits for its end. Waits first until enough CPUs of the host are free.
    ///
    /// # Errors
    /// A wish that cannot be, something missing on the host, or a machine that did not come to the program's end
    /// ([`VmError::Failed`]). A program that fails is no error: see [`Outcome::exit`].
    pub fn run<S: AsRef<str>>(&self, argv: &[S]) -> Result<Outcome, VmError> {
        self.run_with(argv, |_| {})
    }

    /// As [`Vm::run`], telling what happens as it happens.
    ///
    /// # Errors
    /// As [`Vm::run`].
    pub fn run_with<S: AsRef<str>>(
        &self,
        argv: &[S],
        mut listen: impl FnMut(Event<'_>),
    ) -> Result<Outcome, VmError> {
        let prepared = self.prepare(argv)?;
        let _slots = self.slots(1)?;
        session::run(prepared, None, &mut listen).map(|(outcome, _emulator)| outcome)
    }

    /// Starts `argv` in the machine and returns at once. Takes no slots: whoever starts several machines that need
    /// each other takes [`Slots`] for all of them before.
    ///
    /// # Errors
    /// As [`Vm::run`], where it shows before the start.
    pub fn spawn<S: AsRef<str>>(
        &self,
        argv: &[S],
        listen: impl FnMut(Event<'_>) + Send + 'static,
    ) -> Result<Running, VmError> {
        self.spawn_then(argv, listen, |_| {})
    }

    /// As [`Vm::spawn`]; `ended` hears whether the program came to its end, after the last event, and while it has not
    /// returned the machine stays.
    pub(crate) fn spawn_then<S: AsRef<str>>(
        &self,
        argv: &[S],
        mut listen: impl FnMut(Event<'_>) + Send + 'static,
        ended: impl FnOnce(bool) + Send + 'static,
    ) -> Result<Running, VmError> {
        let prepared = self.prepare(argv)?;
        let stop = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(VmError::os("an event of the system"))?;
        let stop = Arc::new(stop);
        let (heard, pid) = (Arc::clone(&stop), Arc::clone(&prepared.pid));
        // the emulator dies with the thread that started it, so that thread stays to the end
        let thread = std::thread::Builder::new()
            .name(format!("vm {}", self.name))
            .spawn(move || {
                let result = session::run(prepared, Some(&heard), &mut listen);
                // whoever is told of the end may wait for the last listener to go
                drop(listen);
                ended(result.is_ok());
                result.map(|(outcome, _emulator)| outcome)
            })
            .map_err(VmError::io("a thread"))?;
        Ok(Running { stop, thread, pid })
    }

    fn prepare<S: AsRef<str>>(&self, argv: &[S]) -> Result<Prepared, VmError> {
        self.check()?;
        let job = Job { argv: argv.iter().map(|s| s.as_ref().to_owned()).collect(), ..self.job.clone() };
        if job.argv.is_empty() {
            return Err(VmError::Wrong("no program was named that the machine should run".into()));
        }
        let memory = BufWriter::with_capacity(1 << 20, qemu::memory_file("colony-image")?);
        let memory = self.image.write(&self.kernel, memory)?;
        let memory = crate::image::job_archive(&job, &self.files, memory)?;
        let initrd = memory.into_inner().map_err(|e| VmError::io("writing an image")(e.into_error()))?;
        qemu::seal(&initrd, qemu::Seal::Content)?;
        let image_bytes = initrd.metadata().map_err(VmError::io("an image"))?.len();
        let memory_mib = self.memory_for(image_bytes)?;
        let mut cards = self.networks.iter().map(Network::plug).collect::<Result<Vec<_>, _>>()?;
        for card in &self.cards {
            cards.push(card.socket.try_clone().map_err(VmError::io("a network card"))?);
        }
        let own = |(_, socket): &(String, Arc<OwnedFd>)| socket.try_clone();
        let ports = self.ports.iter().map(own).collect::<Result<_, _>>();
        let ports = ports.map_err(VmError::io("a serial port"))?;
        let kernel = self.kernel.bootable()?;
        let (vm, initrd, pid) = (self.clone(), initrd.into(), Arc::default());
        Ok(Prepared { vm, kernel, initrd, image_bytes, memory_mib, cards, ports, pid })
    }

    /// Memory of the machine, MiB: the image lies in it twice while it is unpacked, into a file system that may
    /// have half of the rest.
    fn memory_for(&self, image_bytes: u64) -> Result<u32, VmError> {
        let needed = u32::try_from(image_bytes.div_ceil(1 << 20))
            .unwrap_or(u32::MAX)
            .saturating_mul(3)
            .saturating_add(128);
        match self.memory_mib {
            None => Ok(needed.next_multiple_of(64).max(512)),
            Some(given) if given >= needed => Ok(given),
            Some(given) => Err(VmError::Wrong(format!(
                "{given} MiB of memory are too little for this image; give {needed} or more, or leave it out"
            ))),
        }
    }

    /// Waits for the CPUs of so many machines like this.
    pub(crate) fn slots(&self, machines: u32) -> Result<Slots, VmError> {
        let each = self.accel.host_cpus(self.cpus) as usize;
        Slots::take_telling(each.saturating_mul(machines as usize), self.notice)
    }

    fn check(&self) -> Result<(), VmError> {
        self.accel.check(self.cpus)?;
        if self.cards.len() > MOST_CARDS {
            return Err(VmError::Wrong(format!("{} cards: give {MOST_CARDS} at most", self.cards.len())));
        }
        for (parts, name) in [(self.sockets, "sockets"), (self.numa_nodes, "NUMA nodes")] {
            if parts == 0 || !self.cpus.is_multiple_of(parts) {
                return Err(VmError::Wrong(format!(
                    "{} CPUs on {parts} {name}: give each as many CPUs as the others",
                    self.cpus
                )));
            }
        }
        if self.cpus == 0 || self.cpus > 255 {
            return Err(VmError::Wrong(format!("{} CPUs: give 1 to 255", self.cpus)));
        }
        Ok(())
    }
}

/// All that is needed to start.
#[derive(Debug)]
struct Prepared {
    vm: Vm,
    kernel: PathBuf,
    initrd: OwnedFd,
    image_bytes: u64,
    memory_mib: u32,
    /// The machine's ends of its networks, in the order of its interfaces, and those of its other cards.
    cards: Vec<OwnedFd>,
    /// The machine's ends of its serial ports.
    ports: Vec<OwnedFd>,
    /// Process id of the emulator, once it was started.
    pid: Arc<AtomicU32>,
}
