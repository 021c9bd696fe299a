// SPDX-License-Identifier: MIT OR Apache-2.0
//! The relay of a job: a process on the host that stands for the worker in a Linux I/O node. It is the user: with the
//! user's rights it reads the program and what is copied, and it owns the job's streams.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use colony_fship::Errno;
use colony_fship::layout::{PERSONALITY_AT, PERSONALITY_BYTES};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::Task;
use super::export::{self, Files};
use super::wire::{self, FileHead, Frame, Kind, MOST, PIECE, Seen, WINDOW, wrong};
use crate::control::{self, DRAIN, Order, Report, Setup};
use crate::worker::output::{Output, loses_nothing};
use crate::worker::{self, filter, identity, start};
use crate::{JobError, JobSpec, ProgramError, helper, spec};

/// Period of the looks at a reader that is slow, ms.
const SLOW: u16 = 5;
/// Output that comes in pieces below this was written at once, bytes: a line in it is whole.
const CUT: usize = 4096;

/// The program of a relay: what [`crate::Config::worker`] names calls this for [`crate::Config::relay_args`], with the
/// supervisor's socket as its standard input.
pub fn relay_main() -> ExitCode {
    let Ok(control) = helper::socket() else { return ExitCode::FAILURE };
    let last = match prepare(&control) {
        Ok(Some(mut relay)) => match relay.run(&control) {
            Ok(Some(last)) => last,
            // the supervisor is gone
            Ok(None) => return ExitCode::FAILURE,
            Err(_) => relay.abandoned(&control),
        },
        // the supervisor is gone, or this is not a relay at all
        Ok(None) => return ExitCode::FAILURE,
        Err(error) => Some(error),
    };
    match control::send(&control, &Report::Done(last)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// A job in its I/O node.
struct Relay {
    /// To the agent there.
    link: Arc<Link>,
    /// Files of the host that the programs have.
    files: Option<Files>,
    /// The places in the I/O node where they are seen.
    seen: Vec<Seen>,
    nodes: Vec<u32>,
    /// Standard input, until its end.
    stdin: Option<OwnedFd>,
    /// Bytes of it that the agent takes.
    credit: usize,
    outputs: [Stream; 2],
    /// Other I/O nodes write to the same output.
    shares_output: bool,
    /// The last report of the worker.
    last: Option<Option<JobError>>,
    /// Output of the job that was not stored, and why.
    lost: Option<JobError>,
}

/// The way to the agent, for the threads of a relay.
struct Link {
    stream: UnixStream,
    /// One frame at a time.
    writer: Mutex<()>,
}

impl Link {
    fn new(stream: UnixStream) -> Arc<Self> {
        Arc::new(Self { stream, writer: Mutex::default() })
    }

    fn send(&self, frame: &Frame) -> io::Result<()> {
        let _one = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        frame.write(&mut &self.stream)
    }
}

/// Standard output or standard error.
struct Stream {
    output: Output,
    /// The beginning of a line, whose end has not come.
    begun: Vec<u8>,
    /// Bytes that have come and of which the agent does not know that they were taken.
    untold: usize,
    is_closed: bool,
}

impl Stream {
    /// The error of the job because its output was refused; none if the reader has hung up.
    fn lost(&self, refused: Errno) -> Option<JobError> {
        let why = (!loses_nothing(refused)).then(|| self.output.describe_error(refused))?;
        Some(JobError::OutputLost { why })
    }
}

/// Hears what the job is, becomes the user, and sends the job's files and its description.
fn prepare(control: &UnixStream) -> Result<Option<Relay>, JobError> {
    let system = |e: io::Error| JobError::System(format!("the job's relay: {e}"));
    identity::limits();
    helper::ignore(&[libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTTOU, libc::SIGTTIN]);
    helper::ignore(&[libc::SIGPIPE, libc::SIGXFSZ]);
    let mut setup = match control::receive::<Order>(control).map_err(system)? {
        Some(Order::Setup(setup)) => *setup,
        _ => return Ok(None),
    };
    let [stdin, stdout, stderr] = control::receive_fds(control).map_err(system)?;
    let [first, second] = if setup.shares_output {
        control::receive_fds(control).map_err(system)?.map(|fd| Some(File::from(fd)))
    } else {
        [None, None]
    };
    let mut records = Vec::new();
    for _ in &setup.nodes {
        records.push(record(control).map_err(system)?);
    }
    let [link] = control::receive_fds(control).map_err(system)?;
    let stdin = worker::input(stdin);
    let outputs = [Output::new(stdout, first), Output::new(stderr, second)];
    identity::take(&setup.identity, &spec::Files::Host)?;
    place_streams(&mut setup.spec);
    let link = Link::new(link.into());
    let (opened, seen) = export::open(&mut setup)?;
    let replies = link.clone();
    let files = Files::start(opened, move |frame| replies.send(&frame)).map_err(system)?;
    filter::enter().map_err(|e| JobError::Identity(format!("the filter of system calls: {e}")))?;
    let stdin = worker::files::input(&setup.spec)?.unwrap_or(stdin).fd;
    let [stdout, stderr] = worker::files::outputs(&setup.spec, outputs)?;
    let spec = &mut setup.spec;
    spec.stdin = None;
    for of_all in [&mut spec.stdout, &mut spec.stderr] {
        // what is left is the I/O node's name for the files of the ranks
        of_all.take_if(|name| !name.contains(worker::files::RANK));
    }
    let stream = |output| Stream { output, begun: Vec::new(), untold: 0, is_closed: false };
    let relay = Relay {
        link,
        files,
        seen,
        nodes: setup.nodes.iter().map(|node| node.number).collect(),
        stdin: Some(stdin),
        credit: WINDOW,
        outputs: [stream(stdout), stream(stderr)],
        shares_output: setup.shares_output,
        last: None,
        lost: None,
    };
    let sent = relay.send_files(&setup).and_then(|()| {
        let seen = relay.seen.clone();
        relay.send_task(Task { setup, records, seen })
    });
    match sent {
        // what became of the I/O node is found when it is listened to
        Ok(()) | Err(Unsent::Link) => Ok(Some(relay)),
        Err(Unsent::Job(error)) => Err(error),
    }
}

/// Names the files for the job's streams from the root on: those of a relative name lie in the folder of the job.
fn place_streams(spec: &mut JobSpec) {
    spec.stdin = spec.stdin.take().map(|name| spec.directory.join(name));
    for stream in [&mut spec.stdout, &mut spec.stderr] {
        // what is text before is so afterwards, unless the folder is not
        let place = stream.take().map(|name| spec.directory.join(name));
        *stream = place.map(|place| place.to_string_lossy().into_owned());
    }
}

/// The personality that the supervisor has written into the window of a node. There is nothing else in it: the I/O node has
/// the memory.
fn record(control: &UnixStream) -> io::Result<Vec<u8>> {
    let [window, _bell]: [OwnedFd; 2] = control::receive_fds(control)?;
    let _: [OwnedFd; colony_fship::layout::CHANNELS] = control::receive_fds(control)?;
    let mut record = vec![0; PERSONALITY_BYTES];
    File::from(window).read_exact_at(&mut record, PERSONALITY_AT)?;
    Ok(record)
}

/// The reason why a job was not sent to its I/O node.
#[derive(Debug)]
enum Unsent {
    /// The I/O node takes nothing any more.
    Link,
    /// There is something wrong with the job.
    Job(JobError),
}

impl Relay {
    fn send(&self, frame: &Frame) -> io::Result<()> {
        self.link.send(frame)
    }

    /// As [`Relay::send`], of a job that has not begun.
    fn send_early(&self, frame: io::Result<Frame>) -> Result<(), Unsent> {
        let frame = frame.map_err(|e| Unsent::Job(JobError::System(format!("the job's relay: {e}"))))?;
        self.send(&frame).map_err(|_| Unsent::Link)
    }

    /// Sends the programs of these ranks, and what is copied.
    fn send_files(&self, setup: &Setup) -> Result<(), Unsent> {
        let spec = &setup.spec;
        let banks = u64::from(spec.mode.processes());
        let memory = setup.nodes.first().map_or(0, |node| node.memory / banks);
        for path in start::programs(setup) {
            let refused = |why| Unsent::Job(JobError::Program { path: path.clone(), why });
            let place = spec.directory.join(&path);
            if self.sees(&place) {
                continue;
            }
            let opened = start::open(&place, memory).map_err(refused)?;
            self.send_file(&place, opened.file, &|e| refused(ProgramError::Read(e.to_string())))?;
        }
        for path in &spec.copies {
            let refused = |e: io::Error| {
                let text = format!("{} cannot be copied into the I/O node: {e}", path.display());
                Unsent::Job(JobError::Spec(text))
            };
            let path = spec.directory.join(path);
            if !self.sees(&path) {
                self.copy(&path, &refused)?;
            }
        }
        Ok(())
    }

    /// Returns `true` if the I/O node sees a file of the host where it is, so that it needs no copy.
    fn sees(&self, path: &Path) -> bool {
        export::is_seen(path, self.seen.iter().map(|seen| seen.path.as_path()))
    }

    /// Sends a file; `refused` is the error if it cannot be read.
    fn send_file(
        &self,
        path: &Path,
        mut file: File,
        refused: &impl Fn(io::Error) -> Unsent,
    ) -> Result<(), Unsent> {
        let mode = Some(file.metadata().map_err(refused)?.permissions().mode() & 0o777);
        self.send_early(Frame::json(0, Kind::File, &FileHead { path: path.to_owned(), mode }))?;
        // who has looked at it before has read from it
        file.rewind().map_err(refused)?;
        let mut piece = vec![0; MOST];
        loop {
            match file.read(&mut piece).map_err(refused)? {
                0 => return Ok(()),
                count => self.send_early(Ok(Frame::new(0, Kind::Data, &piece[..count])))?,
            }
        }
    }

    /// Sends a file, or a folder with all that is in it.
    fn copy(&self, path: &Path, refused: &impl Fn(io::Error) -> Unsent) -> Result<(), Unsent> {
        let kind = fs::metadata(path).map_err(refused)?.file_type();
        if kind.is_file() {
            return self.send_file(path, File::open(path).map_err(refused)?, refused);
        }
        if !kind.is_dir() {
            return Err(refused(io::Error::other("it is neither a file nor a folder")));
        }
        let mut folders: Vec<PathBuf> = vec![path.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).map_err(refused)? {
                let path = entry.map_err(refused)?.path();
                match fs::symlink_metadata(&path).map_err(refused)?.file_type() {
                    kind if kind.is_dir() => folders.push(path),
                    kind if kind.is_file() => {
                        self.send_file(&path, File::open(&path).map_err(refused)?, refused)?;
                    }
                    _ => {}
                }
            }
            self.send_early(Frame::json(0, Kind::File, &FileHead { path: folder, mode: None }))?;
        }
        Ok(())
    }

    fn send_task(&self, task: Task) -> Result<(), Unsent> {
        let text = serde_json::to_vec(&task)
            .map_err(|e| Unsent::Job(JobError::System(format!("the job's relay: {e}"))))?;
        self.send_early(Ok(Frame::new(0, Kind::Task, [])))?;
        wire::data(0, &text, |frame| self.send(&frame)).map_err(|_| Unsent::Link)?;
        self.send_early(Ok(Frame::new(0, Kind::Launch, [])))
    }

    /// Passes orders, input, output and reports until the job has ended. Returns the last report, or none if the supervisor
    /// is gone.
    ///
    /// # Errors
    /// The I/O node has ended, or broken a rule.
    fn run(&mut self, control: &UnixStream) -> io::Result<Option<Option<JobError>>> {
        while self.step(control)? {
            if let Some(last) = self.last.take() {
                let last = self.drain(last);
                let unwritten =
                    || self.outputs.iter().find_map(|stream| stream.lost(stream.output.unreported_error()?));
                return Ok(Some(last.or_else(|| self.lost.clone()).or_else(unwritten)));
            }
        }
        Ok(None)
    }

    /// Waits for something, and does it. Returns `false` if the supervisor is gone.
    fn step(&mut self, control: &UnixStream) -> io::Result<bool> {
        let waits = self.outputs.iter().any(|stream| stream.output.waits());
        let limit = if waits { PollTimeout::from(SLOW) } else { PollTimeout::NONE };
        let stdin = self.stdin.as_ref().filter(|_| self.credit > 0);
        let all = [Some(control.as_fd()), Some(self.link.stream.as_fd()), stdin.map(|fd| fd.as_fd())];
        let mut fds: Vec<_> =
            all.into_iter().flatten().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match poll(&mut fds, limit) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any() == Some(true)).collect();
        if ready[0] {
            let Ok(Some(order)) = control::receive::<Order>(control) else { return Ok(false) };
            self.send(&Frame::json(0, Kind::Order, &order)?)?;
        }
        if ready[1] {
            let frame = Frame::read(&mut &self.link.stream)?.ok_or(io::ErrorKind::UnexpectedEof)?;
            self.hear(frame, control)?;
        }
        if ready.get(2) == Some(&true) {
            self.pass_input()?;
        }
        self.tell_taken()?;
        Ok(true)
    }

    fn hear(&mut self, frame: Frame, control: &UnixStream) -> io::Result<()> {
        match frame.kind {
            Kind::Stdout => self.put(0, &frame.bytes)?,
            Kind::Stderr => self.put(1, &frame.bytes)?,
            Kind::InputTaken => {
                let [more] = frame.get()?;
                self.credit = self.credit.saturating_add(more as usize).min(WINDOW);
            }
            Kind::FileCall => match &self.files {
                Some(files) => files.ask(frame.bytes)?,
                None => return Err(wrong("a request for files of a job that has none")),
            },
            Kind::Report => match frame.value()? {
                Report::Done(last) => self.last = Some(last),
                report => control::send(control, &report)?,
            },
            other => return Err(wrong(format!("{other:?} of a job"))),
        }
        Ok(())
    }

    /// Writes output, as far as its reader takes it. Where others write to it, a line is kept whole.
    fn put(&mut self, number: usize, bytes: &[u8]) -> io::Result<()> {
        let is_cut = self.shares_output && bytes.len() >= CUT;
        let stream = &mut self.outputs[number];
        stream.untold += bytes.len();
        if stream.untold > WINDOW {
            return Err(wrong("more output than it may send"));
        }
        stream.begun.extend_from_slice(bytes);
        let end = if is_cut { stream.begun.iter().rposition(|&byte| byte == b'\n') } else { None };
        let whole: Vec<u8> = match end {
            Some(end) => stream.begun.drain(..=end).collect(),
            None if is_cut && stream.begun.len() < PIECE => return Ok(()),
            None => std::mem::take(&mut stream.begun),
        };
        let refused = stream.output.put(&whole).err();
        if let Some(error) = refused.and_then(|error| stream.lost(error)) {
            self.lost.get_or_insert(error);
        }
        if refused.is_some() && !std::mem::replace(&mut stream.is_closed, true) {
            // so that the programs hear of it, too
            self.send(&Frame::numbers(0, Kind::Closed, &[number as u32]))?;
        }
        Ok(())
    }

    /// Tells the agent of output that its readers have taken.
    fn tell_taken(&mut self) -> io::Result<()> {
        let mut taken = [0; 2];
        for (stream, taken) in self.outputs.iter_mut().zip(&mut taken) {
            stream.output.flush();
            let left = (stream.output.waiting() + stream.begun.len()).min(stream.untold);
            *taken = (stream.untold - left) as u32;
            stream.untold = left;
        }
        if taken == [0; 2] { Ok(()) } else { self.send(&Frame::numbers(0, Kind::Taken, &taken)) }
    }

    fn pass_input(&mut self) -> io::Result<()> {
        let Some(stdin) = &self.stdin else { return Ok(()) };
        let mut piece = vec![0; self.credit.min(PIECE)];
        let count = match nix::unistd::read(stdin, &mut piece) {
            Ok(count) => count,
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => return Ok(()),
            // a terminal of another job, for example: there is no more
            Err(_) => 0,
        };
        if count == 0 {
            self.stdin = None;
        }
        self.credit -= count;
        self.send(&Frame::new(0, Kind::Input, &piece[..count]))
    }

    /// Waits until the readers have all output, no longer than a worker does.
    fn drain(&mut self, last: Option<JobError>) -> Option<JobError> {
        let limit = Instant::now() + DRAIN;
        for stream in &mut self.outputs {
            let rest = std::mem::take(&mut stream.begun);
            if let Some(error) = stream.output.put(&rest).err().and_then(|error| stream.lost(error)) {
                self.lost.get_or_insert(error);
            }
        }
        while self.outputs.iter().any(|stream| stream.output.waits()) {
            if Instant::now() > limit {
                let why = format!("the end of the output was not read within {} s", DRAIN.as_secs());
                return last.or(Some(JobError::System(why)));
            }
            std::thread::sleep(std::time::Duration::from_millis(SLOW.into()));
            self.outputs.iter_mut().for_each(|stream| stream.output.flush());
        }
        last
    }

    /// The I/O node has ended, and with it the worker.
    fn abandoned(&mut self, control: &UnixStream) -> Option<JobError> {
        for &node in &self.nodes {
            let _ = control::send(control, &Report::Lost { node });
        }
        self.drain(None);
        Some(JobError::WorkerDied("its Linux I/O node has ended".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A relay whose standard output is a pipe; the agent's end of its link, and the reader of the output.
    fn relay(shares_output: bool) -> (Relay, UnixStream, io::PipeReader) {
        let (link, agent) = UnixStream::pair().expect("sockets");
        let (reader, writer) = io::pipe().expect("a pipe");
        let null = File::create("/dev/null").expect("null");
        let stream = |fd: OwnedFd| Stream {
            output: Output::new(fd, None),
            begun: Vec::new(),
            untold: 0,
            is_closed: false,
        };
        let outputs = [stream(writer.into()), stream(null.into())];
        let (nodes, stdin, credit, last) = (vec![4], None, WINDOW, None);
        let (link, files, seen) = (Link::new(link), None, Vec::new());
        let lost = None;
        let relay = Relay { link, files, seen, nodes, stdin, credit, outputs, shares_output, last, lost };
        (relay, agent, reader)
    }

    fn read(reader: &mut io::PipeReader, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        reader.read_exact(&mut bytes).expect("it is there");
        bytes
    }

    #[test]
    fn a_line_that_came_in_pieces_is_written_whole_where_others_write() {
        let (mut relay, agent, mut reader) = relay(true);
        let piece = [b"a line\n".as_slice(), &[b'x'; CUT]].concat();
        relay.put(0, &piece).expect("taken");
        relay.tell_taken().expect("told");
        assert_eq!(read(&mut reader, 7), b"a line\n");
        let told = Frame::read(&mut &agent).expect("a frame").expect("one");
        assert_eq!((told.kind, told.get::<2>().expect("two")), (Kind::Taken, [7, 0]));
        relay.put(0, b"y\n").expect("taken");
        assert_eq!(read(&mut reader, CUT + 2), [&[b'x'; CUT], b"y\n".as_slice()].concat());
        // a prompt has no end of its line
        relay.put(0, b"> ").expect("taken");
        assert_eq!(read(&mut reader, 2), b"> ");
    }

    #[test]
    fn an_agent_that_sends_too_much_is_refused_and_one_without_a_reader_is_told() {
        let (mut relay, agent, reader) = relay(false);
        let piece = vec![0; PIECE];
        let taken = (0..WINDOW / PIECE + 1).map(|_| relay.put(0, &piece).is_ok()).filter(|ok| *ok).count();
        assert_eq!(taken, WINDOW / PIECE);
        drop(reader);
        relay.outputs[0].output.flush();
        relay.outputs[0].untold = 0;
        relay.put(0, b"lost").expect("taken all the same");
        let told = Frame::read(&mut &agent).expect("a frame").expect("one");
        assert_eq!((told.kind, told.get::<1>().expect("one")), (Kind::Closed, [0]));
    }

    #[test]
    fn a_relay_whose_io_node_has_ended_reports_its_nodes_as_lost() {
        let (mut relay, agent, _reader) = relay(false);
        let (control, supervisor) = UnixStream::pair().expect("sockets");
        drop(agent);
        assert!(relay.run(&control).is_err());
        let why = relay.abandoned(&control).expect("a reason");
        assert!(matches!(why, JobError::WorkerDied(_)));
        let report = control::receive::<Report>(&supervisor).expect("a report");
        assert!(matches!(report, Some(Report::Lost { node: 4 })));
    }
}
