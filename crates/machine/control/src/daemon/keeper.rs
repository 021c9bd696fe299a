// SPDX-License-Identifier: MIT OR Apache-2.0
//! The keeper of a partition: a thread of the daemon that starts its jobs, stores its news, and sees the end of its process.

use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use colony_ciod::{JobSpec, Program};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;

use super::control::Control;
use super::outputs::STREAM;
use super::owner::Process;
use super::requeue::Over;
use super::unresponsive::{connect_within, is_timeout};
use crate::ControlError;
use crate::api::{Job, JobRequest, JobState, PartitionState, ProgramOfRanks, Severity};
use crate::service::protocol::{Answer, Ask, Lines, Status, ask};
use crate::service::{News, Numbered};
use crate::store::{Change, NewEvent};

/// Longest wait for an answer of a service.
const ANSWER: Duration = Duration::from_secs(10);
/// Period of looks at what needs none of the descriptors.
const LOOK: Duration = Duration::from_secs(1);
/// Longest time from the request to end to the end of a service.
const END: Duration = Duration::from_secs(20);

/// Connects to a service, which may just be starting.
pub(super) fn connect(socket: &Path, process: Option<&Process>) -> io::Result<Lines> {
    let began = Instant::now();
    loop {
        match connect_within(socket, ANSWER) {
            Ok(stream) => return Ok(Lines::new(stream)),
            Err(error) if process.is_none_or(Process::has_ended) || began.elapsed() > ANSWER => {
                return Err(error);
            }
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn limit() -> PollTimeout {
    PollTimeout::try_from(LOOK).unwrap_or(PollTimeout::ZERO)
}

/// The keeper of one partition.
pub(super) struct Keeper {
    pub(super) control: Arc<Control>,
    pub(super) name: String,
    pub(super) process: Process,
    /// Rung when there is something to do.
    pub(super) bell: Arc<EventFd>,
}

impl Keeper {
    /// Keeps the partition until its process ends. Returns how it ended.
    pub(super) fn run(mut self) -> String {
        let mut trouble = None;
        while let Err(error) = self.keep(&mut trouble) {
            if self.process.has_ended() {
                break;
            }
            if self.is_freeing() {
                // it cannot be told to end
                self.process.kill();
            }
            // the database, or a service that does not answer: one event, however long it lasts
            let text = error.to_string();
            if trouble.as_ref() != Some(&text) {
                self.report(Severity::Error, "partition-service", text.clone());
                trouble = Some(text);
            }
            self.wait_end();
        }
        self.process.end()
    }

    fn report(&self, severity: Severity, code: &str, text: String) {
        self.control.report(severity, &self.name, code, text, None);
    }

    /// The partition is to be switched off.
    fn is_freeing(&self) -> bool {
        let row = self.control.store().partition(&self.name);
        matches!(row, Ok(Some(row)) if row.state == PartitionState::Freeing)
    }

    /// A service that is stopped is not asked.
    fn check_running(&self) -> Result<(), ControlError> {
        self.process.stopped_reason().map_or(Ok(()), |why| Err(self.service()(io::Error::other(why))))
    }

    fn service(&self) -> impl Fn(io::Error) -> ControlError + use<> {
        let name = self.name.clone();
        move |source| ControlError::Service { name: name.clone(), source }
    }

    /// Keeps the partition until its process ends, or until something fails. `trouble` is what failed last.
    fn keep(&self, trouble: &mut Option<String>) -> Result<(), ControlError> {
        self.check_running()?;
        let socket = self.control.socket(&self.name);
        let mut asks = connect(&socket, Some(&self.process)).map_err(self.service())?;
        let mut news = connect(&socket, Some(&self.process)).map_err(self.service())?;
        news.stream().set_read_timeout(None).map_err(self.service())?;
        let after = self.control.store().partition(&self.name)?.map_or(0, |row| row.news);
        self.reconcile(&mut asks)?;
        // the service forgets jobs that went back into the queue with these news, so that it does not ignore their next start
        self.ask(&mut asks, &Ask::Stored { news: after })?;
        news.say(&Ask::Listen { after }).map_err(self.service())?;
        if trouble.take().is_some() {
            self.report(Severity::Info, "partition-service", "it answers again".to_owned());
        }
        let mut freeing = None;
        loop {
            self.check_running()?;
            let state = self.control.store().partition(&self.name)?.map(|row| row.state);
            match state {
                Some(PartitionState::Ready) => self.start_jobs(&mut asks)?,
                Some(PartitionState::Freeing) => self.free(&mut asks, &mut freeing),
                _ => {}
            }
            if !news.has_read_ahead() && !self.wait(&news)? {
                if self.process.has_ended() {
                    return Ok(());
                }
                continue;
            }
            match news.next::<Numbered>().map_err(self.service())? {
                Some(numbered) => self.take(&mut asks, numbered)?,
                None if self.process.has_ended() => return Ok(()),
                // its last news has been told; its process is about to end
                None => self.wait_end(),
            }
        }
    }

    /// Waits for news. Returns `false` if there is something else.
    fn wait(&self, news: &Lines) -> Result<bool, ControlError> {
        let mut fds = [news.stream().as_fd(), self.bell.as_fd(), self.process.as_fd()]
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match poll(&mut fds, limit()) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(ControlError::io("waiting for a partition")(error.into())),
        }
        let [has_news, bell, _] = fds.map(|fd| fd.any() == Some(true));
        if bell {
            let _ = self.bell.read();
        }
        Ok(has_news)
    }

    /// Waits a moment for the end of the process.
    fn wait_end(&self) {
        let _ = poll(&mut [PollFd::new(self.process.as_fd(), PollFlags::POLLIN)], limit());
    }

    fn ask(&self, asks: &mut Lines, question: &Ask) -> Result<Answer, ControlError> {
        ask(asks, question).map_err(self.service())
    }

    /// After a restart of the daemon: a job that was about to start and is unknown to the service goes back into the queue. The
    /// news of the service have the state of the others.
    fn reconcile(&self, asks: &mut Lines) -> Result<(), ControlError> {
        let Answer::Status(Status { jobs, .. }) = self.ask(asks, &Ask::Status)? else { return Ok(()) };
        let begun = self.control.store().begun(&self.name)?;
        for job in begun.iter().filter(|job| !jobs.contains(&job.id)) {
            self.control.store().set_job(job.id, JobState::Queued)?;
        }
        Ok(())
    }

    /// Starts the jobs of the queue that begin now.
    fn start_jobs(&self, asks: &mut Lines) -> Result<(), ControlError> {
        if !self.control.store().has_queued(&self.name)? {
            return Ok(());
        }
        self.control.end_late_jobs(&self.name)?;
        let Answer::Status(status) = self.ask(asks, &Ask::Status)? else { return Ok(()) };
        let jobs = self.control.take_jobs(&self.name, &status.nodes)?;
        jobs.iter().try_for_each(|job| self.start_job(asks, job))
    }

    fn start_job(&self, asks: &mut Lines, job: &Job) -> Result<(), ControlError> {
        let id = job.id;
        self.control.job_changed(id);
        let [stdout, stderr] = self.control.outputs(id)?;
        let (spec, mark) = (Box::new(spec(job)), self.control.mark(id));
        let (block, sends_stdin) = (job.block, job.request.sends_stdin);
        match self.ask(asks, &Ask::Launch { job: id, spec, stdout, stderr, block, sends_stdin, mark })? {
            Answer::Refused(why) => self.control.job_over(&self.name, None, Over::by_machine(id, false, why)),
            // it is running once the service reports that its ranks have begun
            _ => Ok(()),
        }
    }

    /// Tells the service to end, and kills it if it does not.
    fn free(&self, asks: &mut Lines, since: &mut Option<Instant>) {
        match since {
            None => {
                // one that ends by itself has closed the connection; one that hangs is killed
                if let Err(ControlError::Service { source, .. }) = self.ask(asks, &Ask::Shutdown)
                    && is_timeout(&source)
                {
                    self.process.kill();
                }
                *since = Some(Instant::now());
            }
            Some(began) if began.elapsed() > END => self.process.kill(),
            Some(_) => {}
        }
    }

    /// Stores news, and then lets the service forget them.
    fn take(&self, asks: &mut Lines, numbered: Numbered) -> Result<(), ControlError> {
        let news = numbered.number;
        self.store(numbered)?;
        self.ask(asks, &Ask::Stored { news }).map(drop)
    }

    fn store(&self, numbered: Numbered) -> Result<(), ControlError> {
        let Numbered { number, time, news } = numbered;
        match news {
            News::State { state, error, boot_s } => {
                self.control.partition_changed(&self.name, &Change { state, error, boot_s })?;
            }
            News::Ras { severity, node, location, code, message, job } => {
                let location = match location {
                    Some(location) => location,
                    None => self.control.location(&self.name, node)?,
                };
                let new = NewEvent { time, severity, location, code, message, job };
                return self.control.take_event((&self.name, number), new);
            }
            News::JobBegan { job } => {
                self.control.store().begin_job(job)?;
                self.control.job_changed(job);
            }
            News::JobEnded { job, code, error, has_begun, by_machine } => {
                let over = Over { job, code, error, has_begun, by_machine };
                self.control.job_over(&self.name, Some(number), over)?;
            }
        }
        self.control.store().taken(&self.name, number)
    }
}

/// The description of a job for the I/O daemon. The owner of the partition adds the places of its nodes.
fn spec(job: &Job) -> JobSpec {
    let request = job.request.clone();
    let JobRequest { executable, name, arguments, programs, environment, directory, .. } = request;
    let JobRequest { stdin, stdout, stderr, copies, .. } = job.request.clone();
    let mut spec = JobSpec::new(executable);
    (spec.name, spec.arguments, spec.environment, spec.directory) = (name, arguments, environment, directory);
    let program = |p: ProgramOfRanks| {
        let ProgramOfRanks { first, last, executable, arguments } = p;
        Program { first, last, executable, arguments }
    };
    let file = |name: Option<String>| name.map(|name| name.replace("%j", &job.id.to_string()));
    (spec.stdin, spec.stdout, spec.stderr, spec.copies) = (stdin, file(stdout), file(stderr), copies);
    spec.programs = programs.into_iter().map(program).collect();
    let wanted = job.request.nodes.map(|nodes| nodes.saturating_mul(job.request.mode.processes()));
    (spec.mode, spec.processes, spec.labels) =
        (job.request.mode, job.request.processes.or(wanted), job.request.labels);
    spec.stream_limit = Some(STREAM);
    (spec.go_on, spec.timeout_s, spec.user) =
        (job.request.go_on, job.request.timeout_s, job.request.user.clone());
    spec
}
