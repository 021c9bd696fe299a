// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pset whose I/O node is a virtual Linux machine: the image `io-node`, with the I/O daemon as its only program, and a
//! network card for each compute node. It runs one job. The job's files are those of the I/O node, not of this machine.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use colony_ciod::{JobOutcome, JobSpec, Network, PROXY_ADDRESS, Pset};
use colony_vm::slots::Slots;
use colony_vm::{Event, Kernel, Recipe, Vm, VmError};

use crate::boot::{Booter, Emulator};
use crate::emulator::{self, Parts};
use crate::life::Life;
use crate::{CnkError, Death, Link, Machine, node};

/// Name of the image's recipe.
const IMAGE: &str = "io-node";
/// The most compute nodes: functions of the slots that are left for cards.
const MOST: u32 = 64;
/// The description of the pset in the I/O node.
const DESCRIPTION: &str = "/etc/colony/pset.json";
/// The outcome that the I/O daemon leaves there.
const OUTCOME: &str = "/run/outcome.json";
/// Period of the checks of compute nodes.
const CHECK_PERIOD: Duration = Duration::from_millis(100);
/// A year: the job's own limit is the I/O daemon's to keep.
const NO_LIMIT: Duration = Duration::from_secs(365 * 86_400);

/// A job on a pset with a Linux I/O node.
#[derive(Clone, Debug)]
pub struct LinuxJob {
    /// The compute nodes; their link is a network.
    pub machine: Machine,
    /// Their number.
    pub nodes: u32,
    /// The job. Its program is copied into the I/O node.
    pub spec: JobSpec,
    /// Files and folders of this machine that are copied into the I/O node, at their own paths.
    pub files: Vec<PathBuf>,
}

/// The end of a job on a pset with a Linux I/O node.
#[derive(Clone, Debug)]
pub struct LinuxOutcome {
    /// The outcome of the job, as the I/O daemon has written it.
    pub outcome: JobOutcome,
    /// Compute nodes that have died meanwhile.
    pub deaths: Vec<Death>,
    /// Release of the I/O node's kernel.
    pub kernel: String,
    /// From the start of the emulators until the I/O daemon started.
    pub boot: Duration,
    /// From then until the end of the job.
    pub run: Duration,
}

impl LinuxJob {
    /// Refuses what no such pset can be. Returns the properties of the links.
    ///
    /// # Errors
    /// [`CnkError::Machine`].
    pub fn check(&self) -> Result<Network, CnkError> {
        let refuse = |text: String| Err(CnkError::Machine(text));
        self.machine.check()?;
        if self.nodes == 0 || self.nodes > MOST {
            return refuse(format!("a Linux I/O node has 1 to {MOST} compute nodes, not {}", self.nodes));
        }
        match self.machine.link {
            Link::Network(network) => Ok(network),
            Link::Window => refuse(
                "a Linux I/O node shares no memory with its compute nodes: its link is a network".into(),
            ),
        }
    }

    /// Boots all nodes, runs the job to its end, and switches them off. `boot_program` is `colony-boot`; `notice` hears of
    /// delays, and `listen` what the job prints.
    ///
    /// # Errors
    /// A pset that cannot be, an emulator or an I/O daemon that does not start, an I/O node that ended by itself.
    pub fn run(
        &self,
        boot_program: &Path,
        notice: fn(&str),
        mut listen: impl FnMut(Event<'_>) + Send + 'static,
    ) -> Result<LinuxOutcome, CnkError> {
        let network = self.check()?;
        let _slots = Slots::take_telling((self.nodes * self.machine.cpus + 1) as usize, notice)?;
        let mut vm = self.io_node(network, notice)?;
        let booter = Booter::start(boot_program)?;
        let kernel = node::kernel()?;
        let start = Instant::now();
        let mut nodes = Vec::new();
        for number in 0..self.nodes {
            let (near, far) = UnixDatagram::pair().map_err(CnkError::io("the link of a node"))?;
            vm = vm.card(near.into(), PROXY_ADDRESS, network.mtu);
            let kernel = kernel.try_clone().map_err(CnkError::io("the files of a node"))?;
            let parts = Parts { kernel, link: far.into(), torus: None };
            let (emulator, console) = emulator::start(&booter, &self.machine, parts)?;
            let life = Life::new(number, emulator.clone(), console, None);
            nodes.push(Switched { emulator, life });
        }
        let started = std::sync::Arc::new(Mutex::new(None));
        let seen = started.clone();
        let listener = move |event: Event<'_>| {
            if matches!(event, Event::Started(_)) {
                *seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
            }
            listen(event);
        };
        let running = vm.spawn(&["ciod", "pset", DESCRIPTION, "--outcome", OUTCOME], listener)?;
        let (result, deaths) = watched(running, &nodes);
        let ended = Instant::now();
        let out = match (result, deaths.first()) {
            (Ok(out), _) => out,
            // the I/O node was switched off because of it
            (Err(_), Some(death)) => return Err(death.clone().into()),
            (Err(e), None) => return Err(e.into()),
        };
        let ran = started.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or(ended);
        Ok(LinuxOutcome {
            outcome: outcome(&out)?,
            deaths,
            kernel: out.kernel,
            boot: ran.duration_since(start),
            run: ended.duration_since(ran),
        })
    }

    /// The I/O node, without its cards.
    fn io_node(&self, network: Network, notice: fn(&str)) -> Result<Vm, CnkError> {
        let mut image = Recipe::find(IMAGE)?.image()?;
        image.file(&self.spec.executable, &self.spec.executable);
        for path in &self.files {
            if path.is_dir() {
                image.tree(path)?
            } else {
                image.file(path, path)
            };
        }
        image.folder(&self.spec.directory);
        let pset = Pset {
            cards: (0..self.nodes).map(|n| format!("eth{n}")).collect(),
            memory: self.machine.memory,
            network,
            job: self.spec.clone(),
        };
        let text = serde_json::to_vec(&pset)
            .map_err(|e| CnkError::Machine(format!("the pset's description: {e}")))?;
        let vm = Vm::new(&Kernel::find("")?, &image).name("io").file(DESCRIPTION, text).collect(OUTCOME);
        Ok(vm.timeout(NO_LIMIT).silence(NO_LIMIT).notice(notice))
    }
}

/// A compute node that is switched off when dropped.
struct Switched {
    emulator: Emulator,
    life: Life,
}

impl Drop for Switched {
    fn drop(&mut self) {
        self.emulator.kill();
    }
}

/// Waits for the end of the I/O node's program; if a compute node dies meanwhile, the I/O node is switched off.
fn watched(
    running: colony_vm::Running,
    nodes: &[Switched],
) -> (Result<colony_vm::Outcome, VmError>, Vec<Death>) {
    let stopper = running.stopper();
    let (stop, stopped) = channel::<()>();
    std::thread::scope(|scope| {
        let watch = scope.spawn(move || {
            while stopped.recv_timeout(CHECK_PERIOD) == Err(RecvTimeoutError::Timeout) {
                let deaths: Vec<Death> = nodes.iter().filter_map(|n| n.life.death()).collect();
                if !deaths.is_empty() {
                    stopper.stop();
                    return deaths;
                }
            }
            Vec::new()
        });
        let result = running.wait();
        drop(stop);
        (result, watch.join().unwrap_or_default())
    })
}

/// The outcome that the I/O daemon has written.
fn outcome(out: &colony_vm::Outcome) -> Result<JobOutcome, CnkError> {
    let failed = |why: String| {
        let said = out.error_text();
        CnkError::IoNode(if said.trim().is_empty() { why } else { said.trim().to_owned() })
    };
    let file = out.files.get(Path::new(OUTCOME)).ok_or_else(|| failed("it has left no outcome".into()))?;
    let bytes = file.as_ref().map_err(|e| failed(e.clone()))?;
    serde_json::from_slice(bytes).map_err(|e| failed(format!("its outcome: {e}")))
}
