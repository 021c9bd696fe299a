// SPDX-License-Identifier: MIT OR Apache-2.0
//! The launcher's connections to its agents: processes that `mpirun` starts instead of the ranks, each of which starts its
//! rank. So `mpirun` sees no death of a rank, and a replacement runs on the host of the rank that has died. The output of
//! ranks comes by the agents, too: `mpirun` drops what a rank has printed just before it ended without finalizing MPI.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use super::error::{LaunchError, system};
use super::orders::{AgentHello, EVENT, Event, Order, Output};
use crate::transport::sockets::admission::Admission;
use crate::transport::sockets::stream::{Stream, write_value};

/// The longest wait for all agents.
const START: Duration = Duration::from_secs(60);
/// The longest wait for one agent's message.
const MESSAGE: Duration = Duration::from_secs(5);
/// The time from one look to the next.
const LOOK: Duration = Duration::from_millis(1);

/// A rank's process, as its agent has described it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    None,
    Starting,
    Running(u32),
    Ended(ExitStatus),
}

/// The connection to an agent, and the process of its rank.
pub(crate) struct Agent {
    stream: Stream,
    hello: AgentHello,
    /// It runs on the launcher's machine.
    is_local: bool,
    /// Bytes of an event that has arrived in part.
    input: Vec<u8>,
    state: State,
    refused: Option<i32>,
    is_lost: bool,
}

impl Agent {
    pub(crate) fn new(stream: Stream, hello: AgentHello, machine: &str) -> Self {
        let is_local = hello.machine == machine;
        Self { stream, hello, is_local, input: Vec::new(), state: State::None, refused: None, is_lost: false }
    }

    /// The name of the agent's host.
    pub(crate) fn host(&self) -> &str {
        &self.hello.host
    }

    pub(crate) fn is_local(&self) -> bool {
        self.is_local
    }

    /// Returns `true` if the agent has ended.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Starts the rank with these variables.
    pub(crate) fn start(&mut self, variables: Vec<(String, String)>) {
        self.state = State::Starting;
        self.order(&Order::Start(variables));
    }

    /// Kills the rank, if it runs.
    pub(crate) fn kill(&mut self) {
        if matches!(self.state, State::Starting | State::Running(_)) {
            self.order(&Order::Kill);
        }
    }

    /// An agent that takes no order has ended.
    fn order(&mut self, order: &Order) {
        let sent = (self.stream.set_nonblocking(false))
            .and_then(|()| write_value(&mut self.stream, order))
            .and_then(|()| self.stream.set_nonblocking(true));
        self.is_lost |= sent.is_err();
    }

    /// Waits for the end of a rank that was killed.
    pub(crate) fn wait(&mut self) {
        let began = Instant::now();
        while matches!(self.state, State::Starting | State::Running(_))
            && !self.is_lost
            && began.elapsed() < MESSAGE
        {
            if !self.read() {
                std::thread::sleep(LOOK);
            }
        }
    }

    /// The rank's exit status, if it has ended.
    pub(crate) fn status(&mut self) -> io::Result<Option<ExitStatus>> {
        self.read();
        match (self.refused, self.state) {
            (Some(error), _) => Err(io::Error::from_raw_os_error(error)),
            (None, State::Ended(status)) => Ok(Some(status)),
            (None, _) => Ok(None),
        }
    }

    /// The rank's process id, if it runs on the launcher's machine.
    pub(crate) fn local_id(&self) -> Option<u32> {
        match self.state {
            State::Running(pid) if self.is_local => Some(pid),
            _ => None,
        }
    }

    /// Reads the events that have arrived, and prints output. Returns `false` if there was nothing.
    fn read(&mut self) -> bool {
        let (mut bytes, mut any) = ([0; 4096], false);
        while !self.is_lost {
            match self.stream.read(&mut bytes) {
                Ok(0) => self.is_lost = true,
                Ok(read) => {
                    any = true;
                    self.input.extend_from_slice(&bytes[..read]);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.is_lost = true,
            }
        }
        let input = std::mem::take(&mut self.input);
        let mut rest = input.as_slice();
        while let Some((event, behind)) = rest.split_first_chunk::<EVENT>() {
            let mut behind = behind;
            match Event::from_bytes(*event) {
                Some(Event::Started(pid)) => self.state = State::Running(pid.unsigned_abs()),
                Some(Event::Ended(status)) => self.state = State::Ended(ExitStatus::from_raw(status)),
                Some(Event::Refused(error)) => self.refused = Some(error),
                Some(Event::Printed(output, length)) => {
                    let Some((text, after)) = behind.split_at_checked(length.unsigned_abs() as usize) else {
                        break;
                    };
                    print(output, text);
                    behind = after;
                }
                None => self.is_lost = true,
            }
            rest = behind;
        }
        self.input = rest.to_vec();
        any
    }
}

/// Prints what a rank has printed.
fn print(output: Output, text: &[u8]) {
    // there is nobody else to tell
    let _ = match output {
        Output::Out => {
            let mut out = io::stdout().lock();
            out.write_all(text).and_then(|()| out.flush())
        }
        Output::Error => io::stderr().write_all(text),
    };
}

/// Waits until `mpirun` has started all agents. `Err` in the result is the status of `mpirun`, if it has ended before.
pub(crate) fn gather(
    admission: &mut Admission,
    machine: &str,
    ranks: u32,
    mpirun: &mut Child,
) -> Result<Result<Vec<Agent>, ExitStatus>, LaunchError> {
    let mut agents: Vec<Option<Agent>> = (0..ranks).map(|_| None).collect();
    let began = Instant::now();
    while agents.iter().any(Option::is_none) {
        let admitted = admission.admit::<AgentHello>();
        if let Some((hello, stream)) = admitted.map_err(system("taking an agent's connection"))? {
            if let Some(place) = agents.get_mut(hello.rank as usize) {
                *place = Some(Agent::new(stream, hello, machine));
            }
            continue;
        }
        if let Some(status) = mpirun.try_wait().map_err(system("waiting for mpirun"))? {
            return Ok(Err(status));
        }
        if began.elapsed() > START {
            return Err(LaunchError::Wrong(
                "mpirun has not started all ranks within a minute; if it has hosts of its own, give the name of this one by \
                 --this-host"
                    .to_owned(),
            ));
        }
        std::thread::sleep(LOOK);
    }
    Ok(Ok(agents.into_iter().flatten().collect()))
}
