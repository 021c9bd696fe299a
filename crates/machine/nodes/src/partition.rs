// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nodes that run jobs together.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use colony_ciod::{Ciod, Config, JobError, JobOutcome, JobSpec, NodeState, Streams};
use colony_model::Block;
use colony_node::descriptor;
use colony_tlb::Counts;
use colony_vm::counting::CountingPlugin;
use colony_vm::qemu::memory_file;
use colony_vm::slots::Slots;

use crate::boot::Booter;
use crate::capture::{Capturing, appending};
use crate::io_nodes::LinuxIoNodes;
use crate::node::{self, Node};
use crate::shared::Shared;
use crate::torus::TorusWatch;
use crate::{Accel, Captured, CnkError, IoNodes, Link, Machine, Places, Running, programs};

/// Nodes that run jobs together, with the I/O daemon that serves them, and memory for messages.
///
/// Their emulators end with it, and with the process that owns it, however that ends.
#[derive(Debug)]
pub struct Partition {
    machine: Machine,
    ciod: Ciod,
    kernel: File,
    /// Places of its nodes, also of those that have not been started.
    places: Places,
    nodes: Vec<Node>,
    /// The memory that each node shares with others for messages, by number.
    shared: Vec<Option<Arc<Shared>>>,
    /// After the nodes, which are linked to them.
    io_nodes: LinuxIoNodes,
    /// After the nodes: it ends with the last of them.
    booter: Booter,
    boot_program: PathBuf,
    /// Released with the nodes.
    slots: Option<Slots>,
}

impl Partition {
    /// Boots the nodes at these places, or a number of them.
    ///
    /// # Errors
    /// A machine that cannot be, an emulator that does not start, a worker's program that is not there.
    pub fn boot(machine: Machine, places: impl Into<Places>, config: Config) -> Result<Self, CnkError> {
        Self::boot_telling(machine, places, config, |_| ())
    }

    /// As [`Partition::boot`]; tells through `notice` that it waits for other virtual machines of this user to end.
    ///
    /// # Errors
    /// As [`Partition::boot`].
    pub fn boot_telling(
        machine: Machine,
        places: impl Into<Places>,
        config: Config,
        notice: impl Fn(&str),
    ) -> Result<Self, CnkError> {
        let places = places.into();
        check(&machine, &places)?;
        let slots = match machine.accel {
            // counted time does not care who else computes
            Accel::Counted { .. } => Slots::take_telling(1, notice)?,
            _ => {
                let io_nodes = if machine.io_nodes == IoNodes::Linux { places.io_nodes() } else { 0 };
                let each = machine.accel.host_cpus(machine.cpus);
                let cpus = places.nodes().saturating_mul(each).saturating_add(io_nodes);
                Slots::take_telling(cpus as usize, notice)?
            }
        };
        let mut partition = Self::without_nodes(machine, places, config)?;
        partition.slots = Some(slots);
        while partition.start_next()? {}
        Ok(partition)
    }

    /// A partition for the nodes at these places, of which none has been started: [`start_next`](Self::start_next) does
    /// that. For callers that boot a bounded number of nodes at once, and keep them: it takes no [`Slots`], so other
    /// virtual machines do not wait for its end.
    ///
    /// # Errors
    /// As [`Partition::boot`].
    pub fn without_nodes(
        machine: Machine,
        places: impl Into<Places>,
        config: Config,
    ) -> Result<Self, CnkError> {
        let places = places.into();
        check(&machine, &places)?;
        if machine.is_counted() {
            CountingPlugin::check_emulator()?;
        }
        let boot_program = config.worker.with_file_name(programs::BOOT);
        let booter = Booter::start(&boot_program)?;
        let ciod = Ciod::new(config)?;
        let io_nodes = LinuxIoNodes::start(&machine, &places, &ciod)?;
        let shared = Shared::new(&machine, (0..places.nodes()).collect())?.map(Arc::new);
        let shared = vec![shared; places.nodes() as usize];
        let kernel = node::kernel()?;
        Ok(Self {
            machine,
            ciod,
            kernel,
            places,
            nodes: Vec::new(),
            shared,
            io_nodes,
            booter,
            boot_program,
            slots: None,
        })
    }

    /// Starts the emulator of the next node. Returns `false` if all have been started.
    ///
    /// # Errors
    /// An emulator that does not start.
    pub fn start_next(&mut self) -> Result<bool, CnkError> {
        let number = self.nodes.len() as u32;
        if number == self.places.nodes() {
            return Ok(false);
        }
        self.check_booter()?;
        let node = self.start(number, self.shared[number as usize].as_deref())?;
        self.nodes.push(node);
        Ok(true)
    }

    /// Starts a node anew that no job uses.
    ///
    /// # Errors
    /// A node that is in a job or was never started, an emulator that does not start.
    pub fn restart(&mut self, number: u32) -> Result<(), CnkError> {
        let Some(old) = self.nodes.get(number as usize) else { return Err(JobError::NoNode(number).into()) };
        if old.link().state() == NodeState::Busy {
            return Err(JobError::NodeBusy(number).into());
        }
        self.check_booter()?;
        self.replace(number, self.shared[number as usize].clone())
    }

    /// Starts a node anew that was started before, with this memory for messages.
    fn replace(&mut self, number: u32, shared: Option<Arc<Shared>>) -> Result<(), CnkError> {
        if self.io_nodes.of(number).is_some() {
            // there is one link, whose other end is a card of the I/O node
            self.nodes[number as usize].switch_off();
        }
        let node = self.start(number, shared.as_deref())?;
        self.nodes[number as usize] = node;
        self.shared[number as usize] = shared;
        Ok(())
    }

    fn start(&self, number: u32, shared: Option<&Shared>) -> Result<Node, CnkError> {
        let link = self.ciod.attach_with_room(number, self.machine.memory, self.machine.window())?;
        let is_first = self.nodes.len() <= number as usize;
        let wire = self.io_nodes.wire(&link, is_first)?;
        let torus = shared.map(|shared| (shared.file(), shared.bytes()));
        Node::boot(&self.booter, &self.machine, &self.kernel, &self.ciod, (link, wire), torus)
    }

    /// The number of Linux I/O nodes; 0 if its I/O nodes are processes.
    pub fn linux_io_nodes(&self) -> u32 {
        self.io_nodes.count()
    }

    /// Release of the kernel of its Linux I/O nodes, once one is ready.
    pub fn io_kernel(&self) -> Option<String> {
        self.io_nodes.kernel()
    }

    /// The way a Linux I/O node died, if it did. Its compute nodes cannot be used until [`Partition::restart_io_node`].
    pub fn io_node_death(&mut self, number: u32) -> Option<String> {
        self.io_nodes.death(number)
    }

    /// Process id of the emulator of a Linux I/O node, while it runs.
    pub fn io_node_pid(&self, number: u32) -> Option<u32> {
        self.io_nodes.pid(number)
    }

    /// The compute nodes of a Linux I/O node.
    pub fn nodes_of_io_node(&self, number: u32) -> Vec<u32> {
        self.io_nodes.nodes(number)
    }

    /// Starts a Linux I/O node anew, and those of its compute nodes that were started before.
    ///
    /// # Errors
    /// A compute node that is in a job, an emulator that does not start.
    pub fn restart_io_node(&mut self, number: u32) -> Result<(), CnkError> {
        let mut own: Vec<u32> = self.io_nodes.nodes(number);
        own.retain(|&node| (node as usize) < self.nodes.len());
        let is_busy = |node: &&u32| self.nodes[**node as usize].link().state() == NodeState::Busy;
        if let Some(&busy) = own.iter().find(is_busy) {
            return Err(JobError::NodeBusy(busy).into());
        }
        own.iter().for_each(|&node| self.nodes[node as usize].switch_off());
        self.io_nodes.restart(&self.machine, &self.places, &self.ciod, number)?;
        own.into_iter().try_for_each(|node| self.restart(node))
    }

    /// Starts a job on the nodes of all psets that it needs; those that were lost are started anew first.
    ///
    /// # Errors
    /// A mode that the machine has no CPUs for, a job that is under way, nodes that died, what the I/O daemon refuses.
    pub fn launch(&mut self, spec: JobSpec, streams: Streams) -> Result<Running, CnkError> {
        self.launch_in(None, spec, streams)
    }

    /// As [`Partition::launch`], on the nodes of a block of the machine inside the partition: they are wired as a partition of
    /// their own. Jobs on blocks that do not overlap run at the same time. Nodes that share memory with others than those of
    /// the block are started anew first, so that no job reaches the messages of another.
    ///
    /// # Errors
    /// As of [`Partition::launch`]; a block that is not inside the partition.
    pub fn launch_in(
        &mut self,
        block: Option<Block>,
        spec: JobSpec,
        streams: Streams,
    ) -> Result<Running, CnkError> {
        self.launch_marked(block, spec, streams, None)
    }

    /// As [`Partition::launch_in`]. `mark` is a file that is removed before the first program starts ([`Ciod::launch_marked`]).
    ///
    /// # Errors
    /// As of [`Partition::launch_in`].
    pub fn launch_marked(
        &mut self,
        block: Option<Block>,
        mut spec: JobSpec,
        streams: Streams,
        mark: Option<PathBuf>,
    ) -> Result<Running, CnkError> {
        self.machine.fits(spec.mode)?;
        let mut places = self.places.for_job(&mut spec, self.machine.memory, block)?;
        for place in &mut places {
            place.io_node = self.io_nodes.of(place.node).unwrap_or(place.io_node);
        }
        let numbers: Vec<u32> = places.iter().map(|place| place.node).collect();
        let nodes = places.len() as u32;
        let (size, held) = (spec.size(nodes)?, spec.mode.processes());
        self.restore(&numbers)?;
        let mut torus = None;
        if let Some(shared) = self.share(&numbers)? {
            spec.torus_bytes = Some(shared.bytes());
            let window = shared.format(spec.process_torus(nodes, size))?;
            torus = (!spec.go_on).then(|| TorusWatch::new(window));
        }
        let job = self.ciod.launch_marked(spec, &places, streams, mark)?;
        let own = job.nodes();
        let mut watched = Vec::new();
        for (n, number) in (0..).zip(numbers).filter(|(_, number)| own.contains(number)) {
            let Some(node) = self.nodes.get_mut(number as usize) else { continue };
            node.given_a_job();
            watched.push((node.life().clone(), (n * held..size.min((n + 1) * held)).collect()));
        }
        Ok(Running::new(job, watched, torus))
    }

    /// The memory that exactly these nodes share. Those that share it with others are started anew.
    fn share(&mut self, numbers: &[u32]) -> Result<Option<Arc<Shared>>, CnkError> {
        let of = |n: &u32| self.shared.get(*n as usize).cloned().flatten();
        let Some(first) = numbers.first().and_then(of) else { return Ok(None) };
        let is_same = |n: &u32| of(n).is_some_and(|shared| Arc::ptr_eq(&shared, &first));
        if first.nodes() == numbers && numbers.iter().all(is_same) {
            return Ok(Some(first));
        }
        let Some(shared) = Shared::new(&self.machine, numbers.to_vec())?.map(Arc::new) else {
            return Ok(None);
        };
        self.check_booter()?;
        for &number in numbers {
            self.replace(number, Some(shared.clone()))?;
        }
        Ok(Some(shared))
    }

    fn check_booter(&mut self) -> Result<(), CnkError> {
        if self.booter.is_over() {
            self.booter = Booter::start(&self.boot_program)?;
        }
        Ok(())
    }

    /// Runs a job to its end.
    ///
    /// # Errors
    /// As [`Partition::launch`]. What goes wrong later is in the outcome.
    pub fn run(&mut self, spec: JobSpec, streams: Streams) -> Result<JobOutcome, CnkError> {
        Ok(self.launch(spec, streams)?.wait())
    }

    /// Starts a job, and keeps what it prints.
    ///
    /// # Errors
    /// As [`Partition::launch`], and files in memory that the system refuses.
    pub fn launch_captured(&mut self, spec: JobSpec) -> Result<Capturing, CnkError> {
        let (stdout, stderr) = (memory_file("colony-stdout")?, memory_file("colony-stderr")?);
        let streams = appending(&stdout).and_then(|out| Streams::output(out, appending(&stderr)?));
        let job = self.launch(spec, streams.map_err(CnkError::io("the streams of a job"))?)?;
        Ok(Capturing { job, stdout, stderr })
    }

    /// Runs a job to its end, and keeps what it prints.
    ///
    /// # Errors
    /// As [`Partition::launch_captured`] and [`Capturing::end`].
    pub fn run_captured(&mut self, spec: JobSpec) -> Result<Captured, CnkError> {
        self.launch_captured(spec)?.end()
    }

    /// Process id of the process that boots the emulators if it has ended, and every emulator with it. The next start of a node
    /// starts another.
    pub fn ended_boot_process(&self) -> Option<u32> {
        self.booter.pid().filter(|_| self.booter.is_over())
    }

    /// Process id of the process that boots and ends the emulators.
    pub fn boot_pid(&self) -> Option<u32> {
        self.booter.pid()
    }

    /// Counts of the modelled TLBs of all nodes since these were started; `None` if the machine has none.
    ///
    /// # Errors
    /// A node whose emulator has not started the plugin that counts.
    pub fn tlb_counts(&self) -> Result<Option<Counts>, CnkError> {
        if self.machine.tlb.is_none() {
            return Ok(None);
        }
        let mut sum = Counts::default();
        self.counts()?.into_iter().for_each(|counts| sum += counts);
        Ok(Some(sum))
    }

    /// Counts of the user code of each node since it was started, by number of the node; empty if the machine counts nothing.
    ///
    /// # Errors
    /// As [`Partition::tlb_counts`].
    pub fn counts(&self) -> Result<Vec<Counts>, CnkError> {
        if !self.machine.is_counted() {
            return Ok(Vec::new());
        }
        let of = |(node, started): (u32, &Node)| started.counts().ok_or(CnkError::NoCounts { node });
        (0..).zip(&self.nodes).map(of).collect()
    }

    /// Its nodes, by number.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The places of its nodes.
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// The machine of its nodes.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Starts those of these nodes anew that were lost, or died between two jobs. One that died by itself before its first job
    /// is an error: so would the next. One in a job is an error, too.
    fn restore(&mut self, numbers: &[u32]) -> Result<(), CnkError> {
        let io_nodes = self.io_nodes.of_all(numbers);
        for &number in &io_nodes {
            if self.io_nodes.has_ended(number) {
                self.restart_io_node(number)?;
            }
        }
        self.io_nodes.wait_ready(&io_nodes)?;
        for &number in numbers {
            let node = self.nodes.get(number as usize).ok_or(JobError::NoNode(number))?;
            match (node.link().state(), node.check()) {
                (NodeState::Busy, _) => return Err(JobError::NodeBusy(number).into()),
                (NodeState::Free, Ok(())) => {}
                (NodeState::Free, Err(died)) if !node.had_a_job() && died.boot_process().is_none() => {
                    return Err(died);
                }
                _ => self.restart(number)?,
            }
        }
        Ok(())
    }
}

/// Refuses partitions that cannot be.
fn check(machine: &Machine, places: &Places) -> Result<(), CnkError> {
    machine.check()?;
    places.check()?;
    machine.check_pset(places.pset_nodes())?;
    check_descriptors(machine, places)
}

/// Raises the limit of descriptors as far as it goes, and refuses more nodes than it allows.
fn check_descriptors(machine: &Machine, places: &Places) -> Result<(), CnkError> {
    // window, a bell for each CPU and one for the daemon, socket, console, monitor; a proxy's socket; a worker's; what a start
    // takes for a moment
    const OF_A_NODE: u64 = 5 + colony_fship::layout::CHANNELS as u64;
    const OF_A_PROXY: u64 = 1;
    const OF_A_WORKER: u64 = 1;
    const SPARE: u64 = 32;
    let nodes = places.nodes();
    let limit = descriptor::raise_limit();
    let each = OF_A_NODE + if matches!(machine.link, Link::Network(_)) { OF_A_PROXY } else { 0 };
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, |all| all.count() as u64);
    let workers = u64::from(places.io_nodes()) * OF_A_WORKER;
    let needed = u64::from(nodes) * each + workers + open + SPARE;
    if needed > limit { Err(CnkError::Descriptors { nodes, needed, limit }) } else { Ok(()) }
}
