// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process of the job: its PEs in one generation after the other.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::checkpoint::buddies::buddies;
use crate::checkpoint::disk::{Complete, DiskError, Folder};
use crate::checkpoint::options::{CheckpointOptions, RESTART};
use crate::checkpoint::recovery::{Agreed, Layout, Origin, agree};
use crate::checkpoint::store::Store;
use crate::class::Classes;
use crate::core::{Checkpoints, Core, Failure, describe_program};
use crate::generation::{Ended, Start, end_pe, run_pe};
use crate::job::ranks::{AGAIN, RESIZED};
use crate::logging::log::Log;
use crate::options::Options;
use crate::outcome::{Outcome, RunError};
use crate::port::{Mail, Port, Remote};
use crate::report::report_line;
use crate::scheduler;
use crate::track::{Shared, Track};
use crate::transport::{Single, Transport, TransportError};

/// The system refuses a thread. A compute node has two at most, of which one is for the network; nodes are alike, so
/// that rank 0 reports it for all.
fn no_thread((local, threads): (usize, u32), error: &std::io::Error, transport: &dyn Transport) -> Failure {
    let text = format!(
        "cannot start thread {local} of {threads}: {error}; use fewer threads, and on compute nodes one \
         (`colony cnk run --mode virtual-node` runs two processes on a node)"
    );
    if transport.name() == "torus" && transport.rank() > 0 {
        Failure::Lost(text)
    } else {
        Failure::Program(text)
    }
}

/// Tells the user how the job goes on.
fn report_recovery(agreed: &Agreed) {
    let how = match (&agreed.origin, agreed.repeats) {
        (Origin::Log(number), Some(rank)) => {
            format!("rank {rank} runs again from checkpoint {number}, and the others go on")
        }
        (Origin::Log(_), None) => "all ranks go on".to_owned(),
        (Origin::Memory(number), _) => format!("all ranks go back to checkpoint {number}"),
        (Origin::Disk(from), _) => format!("all ranks go back to checkpoint {} on disk", from.number),
        (Origin::Anew, _) => "the program begins anew".to_owned(),
    };
    match agreed.why {
        Some(why) => report_line!("{how}: {why}"),
        None => report_line!("{how}"),
    }
}

/// Tells the user from which checkpoint a job begins, unless that is the last one.
fn report_restart(checkpoints: &Folder, chosen: Option<&Complete>) -> Result<(), DiskError> {
    let folder = checkpoints.0.display();
    match (chosen, checkpoints.last_number()?) {
        (None, _) => {
            report_line!("warning: {RESTART}: {folder} has no complete checkpoint; the program begins");
        }
        (Some(chosen), Some(last)) if chosen.number < last => report_line!(
            "warning: {RESTART}: checkpoint {last} in {folder} is not complete; the program goes on from checkpoint {}",
            chosen.number
        ),
        (Some(_), _) => {}
    }
    Ok(())
}

/// The outcome of one generation.
pub(crate) enum Conclusion {
    /// The program has ended, or has failed.
    Ended(Vec<Ended>),
    /// A rank has died, and is replaced. The PE of this process may go on.
    Died(Option<Box<Core>>),
}

/// How the PEs of a process stopped.
pub(crate) enum Stopped {
    Ended(Vec<Ended>),
    /// Another process has died, and the PE may go on.
    Lost(Box<Core>),
}

/// A process of the job.
pub(crate) struct Process {
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    pub(crate) options: Options,
    pub(crate) classes: &'static Classes<Core>,
    pub(crate) recording: Option<Arc<Shared>>,
    pub(crate) store: Store,
    /// The buddy of each rank. Empty if there are no checkpoints in memory.
    pub(crate) buddies: Vec<u32>,
    /// The checkpoint on disk from which the job begins.
    pub(crate) restart: Option<Complete>,
}

impl Process {
    pub(crate) fn new(
        options: &Options,
        classes: &'static Classes<Core>,
        transport: &dyn Transport,
    ) -> Result<Self, String> {
        let (rank, ranks) = (transport.rank(), transport.size());
        let options = options.with_environment(ranks * options.threads.max(1))?;
        let options = Options { threads: options.threads.max(1), ..options };
        if options.threads > 1 && options.checkpoint.as_ref().is_some_and(|options| options.log.is_some()) {
            return Err(format!(
                "a log of messages needs one PE a process, and this program has {}: start more processes with one thread, \
                 or leave `log` out of COLONY_CHECKPOINT",
                options.threads
            ));
        }
        let recording = options.timeline.clone().map(Shared::begin);
        let (store, buddies) = (Store::default(), Vec::new());
        let mut process = Self { rank, ranks, options, classes, recording, store, buddies, restart: None };
        process.choose_buddies(transport)?;
        if transport.generation() == 0 {
            process.look_for_checkpoint()?;
        }
        Ok(process)
    }

    /// The folder of the second level.
    fn folder(&self) -> Option<Folder> {
        self.options.checkpoint.as_ref()?.disk.clone().map(Folder)
    }

    /// Looks for the checkpoint from which the job begins. A job that begins anew does not write among the checkpoints of
    /// another.
    fn look_for_checkpoint(&mut self) -> Result<(), String> {
        if let Some(folder) = &self.options.restart {
            let checkpoints = Folder(folder.clone());
            let wrong = |e: DiskError| format!("{RESTART}: {e}");
            self.restart = checkpoints.newest().map_err(wrong)?;
            if let Some(checkpoint) = &self.restart {
                checkpoint.check(&describe_program(self.classes)).map_err(wrong)?;
            }
            if self.rank == 0 {
                report_restart(&checkpoints, self.restart.as_ref()).map_err(wrong)?;
            }
        }
        let Some(Folder(disk)) = self.folder() else { return Ok(()) };
        if self.options.restart.as_ref() != Some(&disk)
            && !Folder(disk.clone()).is_empty().map_err(|e| e.to_string())?
        {
            return Err(format!(
                "{} has checkpoints of another job; restart from them by {RESTART}={0}, or use another folder",
                disk.display()
            ));
        }
        Ok(())
    }

    /// Chooses the buddies of a generation: a replacement may be on another machine.
    fn choose_buddies(&mut self, transport: &dyn Transport) -> Result<(), String> {
        self.buddies = match &self.options.checkpoint {
            Some(options) if options.memory && transport.can_rejoin() => {
                buddies(transport.places(), options.same_machine).map_err(|e| e.to_string())?
            }
            Some(options) if options.memory && CheckpointOptions::are_in_environment() => {
                return Err(
                    "COLONY_CHECKPOINT: ranks that die are not replaced, so checkpoints would be of no use: start the \
                     program with `colony launch --restarts N`"
                        .to_owned(),
                );
            }
            _ => Vec::new(),
        };
        Ok(())
    }

    fn threads(&self) -> u32 {
        self.options.threads
    }

    fn pes(&self) -> u32 {
        self.ranks * self.threads()
    }

    /// Agrees with the other ranks on the checkpoint from which the job goes on, also if further ranks die meanwhile.
    pub(crate) fn recover(
        &mut self,
        transport: &mut dyn Transport,
        has_died: bool,
        core: Option<&Core>,
    ) -> Result<Agreed, TransportError> {
        let mut rejoins = has_died;
        loop {
            if rejoins {
                transport.rejoin()?;
                // all ranks find that, and rank 0 reports it
                let refused = if self.rank == 0 { TransportError::Environment } else { TransportError::Lost };
                self.choose_buddies(transport).map_err(refused)?;
            }
            let layout = Layout { threads: self.threads(), buddies: &self.buddies };
            let disk = || self.newest_on_disk().or_else(|| self.restart.clone());
            let survivor = core.and_then(|core| Some((core.survivor()?, core.port.log.as_deref()?)));
            match agree(transport, &self.store, layout, &disk, survivor) {
                Err(TransportError::Died(_)) => rejoins = true,
                Ok(agreed) => {
                    // to begin anew, rank 0 needs a new process, which says so
                    if self.rank == 0 && !(has_died && agreed.origin == Origin::Anew) {
                        report_recovery(&agreed);
                    }
                    return Ok(agreed);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The newest checkpoint of this job on disk. A folder that cannot be read has none to go on from.
    fn newest_on_disk(&self) -> Option<Complete> {
        self.folder()?.newest().unwrap_or_else(|error| {
            report_line!("warning: no checkpoint on disk can be used: {error}");
            None
        })
    }

    /// The buddy of a PE.
    fn buddy(&self, pe: u32) -> Option<u32> {
        self.buddies.get(self.rank as usize).map(|rank| rank * self.threads() + pe % self.threads())
    }

    /// A PE of this process, which has not begun.
    fn new_pe(&self, mut port: Port) -> Core {
        let (pe, is_first) = (port.pe, port.pe.is_multiple_of(port.threads));
        let options = self.options.checkpoint.as_ref();
        let limit = options.and_then(|options| options.log).filter(|_| !self.buddies.is_empty());
        port.log = limit.map(|limit| Box::new(Log::new(self.pes(), limit)));
        let track = Track::new(self.recording.clone(), pe, is_first, self.classes);
        let checkpoints = Checkpoints::new(options, self.store.clone(), self.buddy(pe));
        Core::new(port, self.classes, &self.options, checkpoints, track)
    }

    /// Runs the PEs of this process until the program ends, or a rank fails.
    pub(crate) fn run_generation(
        &self,
        transport: Box<dyn Transport>,
        start: Start,
        survivor: Option<Box<Core>>,
    ) -> (Stopped, Box<dyn Transport>) {
        if self.threads() > 1 {
            let mut transport = transport;
            return (Stopped::Ended(self.run_threads(&mut *transport, start)), transport);
        }
        let mut core = match survivor {
            Some(mut core) => {
                core.port.remote = Remote::Own(transport);
                core.checkpoints.go_on_with(self.buddy(self.rank));
                core
            }
            None => {
                let remote = Remote::Own(transport);
                Box::new(self.new_pe(Port::new(self.rank, (self.pes(), 1), Vec::new(), None, remote)))
            }
        };
        run_pe(&mut core, start);
        if core.has_lost && core.exit.is_none() && core.failure.is_none() {
            let transport = core.port.take_transport();
            return (Stopped::Lost(core), transport.unwrap_or_else(|| Box::new(Single)));
        }
        match end_pe(*core) {
            (ended, Remote::Own(transport)) => (Stopped::Ended(vec![ended]), transport),
            (ended, Remote::Thread(_)) => (Stopped::Ended(vec![ended]), Box::new(Single)),
        }
    }

    fn run_threads(&self, transport: &mut dyn Transport, start: Start) -> Vec<Ended> {
        let threads = self.threads();
        let (senders, receivers): (Vec<Sender<Mail>>, Vec<Receiver<Mail>>) =
            (0..threads).map(|_| channel()).unzip();
        let (frames, outgoing) = channel();
        let Start { mut begin, origin, early, .. } = start;
        std::thread::scope(|scope| {
            let mut handles = Vec::new();
            let mut refused = None;
            for (local, inbox) in receivers.into_iter().enumerate() {
                let (siblings, frames) = (senders.clone(), frames.clone());
                let pe = self.rank * threads + local as u32;
                let start = Start { begin: begin.take(), ..Start::new(origin.clone()) };
                let run = move || {
                    let remote = Remote::Thread(frames);
                    let port = Port::new(pe, (self.pes(), threads), siblings, Some(inbox), remote);
                    let mut core = self.new_pe(port);
                    run_pe(&mut core, start);
                    end_pe(core).0
                };
                match std::thread::Builder::new().spawn_scoped(scope, run) {
                    Ok(handle) => handles.push(handle),
                    Err(error) => {
                        refused = Some(no_thread((local, threads), &error, &*transport));
                        break;
                    }
                }
            }
            drop(frames);
            let network = match refused {
                None => scheduler::run_transport(&mut *transport, early, &outgoing, &senders),
                Some(failure) => Err(failure),
            };
            if network.is_err() {
                for sender in &senders {
                    let _ = sender.send(Mail::Stop);
                }
            }
            drop(outgoing);
            let mut ended: Vec<Ended> = handles.into_iter().filter_map(|h| h.join().ok()).collect();
            if let Err(failure) = network {
                ended.insert(0, Ended::failed(failure));
            }
            ended
        })
    }

    /// Leaves the job, if the program has ended.
    pub(crate) fn conclude(&self, stopped: Stopped, transport: &mut dyn Transport) -> Conclusion {
        let mut ended = match stopped {
            Stopped::Ended(ended) => ended,
            Stopped::Lost(core) => return Conclusion::Died(Some(core)),
        };
        let is_failure = |f: &Failure| matches!(f, Failure::Program(_));
        let has_failed = ended.iter().any(|e| e.failure.as_ref().is_some_and(is_failure));
        let has_died = ended.iter().any(|e| matches!(e.failure, Some(Failure::Died(_))));
        if has_died && !has_failed {
            return Conclusion::Died(None);
        }
        if ended.iter().all(|e| e.failure.is_none()) {
            match transport.finish() {
                Ok(()) => {}
                Err(TransportError::Died(_)) => return Conclusion::Died(None),
                Err(error) => ended.push(Ended::failed(Failure::Lost(error.to_string()))),
            }
        }
        Conclusion::Ended(ended)
    }

    /// Ends the process's part of the job.
    pub(crate) fn end(
        self,
        mut ended: Vec<Ended>,
        transport: &mut dyn Transport,
        report: impl FnOnce(&str),
    ) -> Result<Outcome, RunError> {
        let tracks = ended.iter_mut().filter_map(|ended| ended.track.take()).collect();
        // the first program failure says more than those that follow from it
        let failures = || ended.iter().filter_map(|e| e.failure.clone());
        let failure = failures().find(|f| matches!(f, Failure::Program(_))).or_else(|| failures().next());
        if let Some(failure) = failure {
            if let Failure::Program(text) = &failure {
                report(text);
            }
            // the time line shows what came before the failure; if it cannot be written, the failure says more
            let _ = self.write(tracks);
            return Err(match failure {
                Failure::Program(text) => {
                    transport.abort(1);
                    RunError::Program(text)
                }
                Failure::Lost(text) | Failure::Died(text) => RunError::Lost(text),
                Failure::Again => RunError::Again(AGAIN),
            });
        }
        if let Err(text) = self.write(tracks) {
            report(&text);
            return Err(RunError::Program(text));
        }
        if ended.iter().any(|e| e.has_left) {
            return Err(RunError::Again(RESIZED));
        }
        Ok(Outcome {
            code: ended.iter().find_map(|e| e.exit).unwrap_or(0),
            counts: ended.iter().map(|e| e.counts).collect(),
            balance: ended.iter_mut().flat_map(|e| std::mem::take(&mut e.balance)).collect(),
            checkpoints: ended.into_iter().flat_map(|e| e.checkpoints).collect(),
            generation: transport.generation(),
        })
    }

    /// Writes the time line, if there is one.
    fn write(self, tracks: Vec<Track>) -> Result<(), String> {
        let (rank, pes, classes) = (self.rank, self.pes(), self.classes);
        self.recording.map_or(Ok(()), |recording| Shared::write(recording, (rank, pes), classes, tracks))
    }
}
