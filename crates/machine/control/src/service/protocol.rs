// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages between the control daemon and a partition service: lines of JSON on a local socket.

use std::io::{self, BufRead, BufReader, Read as _, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use colony_ciod::JobSpec;
use colony_model::{Block, Machine, ModelError, Partition, PsetSize, Shape};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::api::{InputTaken, JobBlock, NodeRequest, NodeState, PartitionState};

/// Bytes of a line at most: a job has its environment.
const LINE: u64 = 16 << 20;
/// Bytes of a part of a job's standard input at most.
pub(crate) const PART: usize = 1 << 20;

/// The partition that a service owns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) name: String,
    /// The socket at which the daemon finds the service.
    pub(crate) socket: PathBuf,
    /// Extent of the machine.
    pub(crate) machine: Shape,
    /// First of its nodes in the machine.
    pub(crate) origin: [u32; 3],
    pub(crate) shape: Shape,
    pub(crate) node: NodeRequest,
}

impl Setup {
    /// The partition in its machine.
    ///
    /// # Errors
    /// A partition that cannot be.
    pub(crate) fn model(&self) -> Result<Partition, ModelError> {
        let machine = Machine::new(self.machine)?;
        let block = Block::new(machine, self.origin, self.shape)?;
        Partition::new(machine, &self.name, block, PsetSize::new(self.node.pset)?)
    }
}

/// A request of the daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Ask {
    /// The state of nodes and jobs.
    Status,
    /// Start a job. A job whose number is known is not started again.
    Launch {
        job: u64,
        spec: Box<JobSpec>,
        stdout: PathBuf,
        stderr: PathBuf,
        /// Its nodes; without them, those of the partition.
        #[serde(default)]
        block: Option<JobBlock>,
        /// Its standard input comes by [`Ask::Input`].
        #[serde(default)]
        sends_stdin: bool,
        /// A file that is removed before its ranks begin.
        #[serde(default)]
        mark: Option<PathBuf>,
    },
    /// A part of the standard input of a job. So many bytes follow the line.
    Input { job: u64, from: u64, length: usize, is_last: bool },
    /// Start a node again that has died too often.
    Mend { node: u32 },
    /// Send a signal to a job.
    Signal { job: u64, signal: i32 },
    /// From now on, this connection is told news, from the one after this number.
    Listen { after: u64 },
    /// The news up to this number have been stored.
    Stored { news: u64 },
    /// Switch the nodes off, and end.
    Shutdown,
}

/// An answer to the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    Done,
    Refused(String),
    Status(Status),
    Input(InputTaken),
}

/// State of a partition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) state: PartitionState,
    pub(crate) error: Option<String>,
    pub(crate) boot_s: Option<f64>,
    pub(crate) nodes: Vec<NodeState>,
    /// Jobs that run, or whose end has not been stored.
    pub(crate) jobs: Vec<u64>,
}

/// A connection of lines.
#[derive(Debug)]
pub(crate) struct Lines {
    reader: BufReader<UnixStream>,
}

impl Lines {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self { reader: BufReader::new(stream) }
    }

    pub(crate) fn stream(&self) -> &UnixStream {
        self.reader.get_ref()
    }

    /// Returns `true` if a part of the next line has been read already.
    pub(crate) fn has_read_ahead(&self) -> bool {
        !self.reader.buffer().is_empty()
    }

    /// The next message; `None` at the end of the connection.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let mut line = Vec::new();
        let read = self.reader.by_ref().take(LINE).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(None);
        }
        if line.last() != Some(&b'\n') {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a line that does not end"));
        }
        Ok(Some(serde_json::from_slice(&line)?))
    }

    /// The bytes that follow a line.
    pub(crate) fn bytes(&mut self, length: usize) -> io::Result<Vec<u8>> {
        if length > PART {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a part that is too long"));
        }
        let mut bytes = vec![0; length];
        self.reader.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn say(&self, message: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.stream().write_all(&line)
    }
}

/// Gives a service a part of the standard input of a job.
pub(crate) fn give(lines: &mut Lines, job: u64, from: u64, part: &[u8], is_last: bool) -> io::Result<Answer> {
    lines.say(&Ask::Input { job, from, length: part.len(), is_last })?;
    lines.stream().write_all(part)?;
    lines.next()?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// Asks a service one question.
pub(crate) fn ask(lines: &mut Lines, question: &Ask) -> io::Result<Answer> {
    lines.say(question)?;
    lines.next()?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::IoNodeKind;

    #[test]
    fn a_partition_is_at_its_place_in_the_machine() {
        let setup = Setup {
            name: "test".to_owned(),
            socket: PathBuf::new(),
            machine: Shape::MIDPLANE,
            origin: [4, 4, 2],
            shape: Shape::NODE_CARD,
            node: NodeRequest {
                pset: 8,
                cpus: 1,
                memory_mib: 16,
                io_nodes: IoNodeKind::Process,
                io_exports: vec![],
            },
        };
        let text = serde_json::to_string(&setup).expect("JSON");
        let setup: Setup = serde_json::from_str(&text).expect("JSON");
        let model = setup.model().expect("a partition");
        assert_eq!((model.nodes(), model.psets().count()), (32, 4));
        assert_eq!(model.location(0).to_string(), "R00-M0-N07-J00");
        assert!(Setup { origin: [6, 4, 2], ..setup }.model().is_err(), "outside of the machine");
    }

    #[test]
    fn messages_arrive_whole_and_the_end_is_seen() {
        let (one, other) = UnixStream::pair().expect("sockets");
        let (one, mut other) = (Lines::new(one), Lines::new(other));
        one.say(&Ask::Signal { job: 3, signal: 15 }).expect("sent");
        one.say(&Ask::Listen { after: 7 }).expect("sent");
        assert!(matches!(other.next::<Ask>(), Ok(Some(Ask::Signal { job: 3, signal: 15 }))));
        assert!(other.has_read_ahead());
        assert!(matches!(other.next::<Ask>(), Ok(Some(Ask::Listen { after: 7 }))));
        one.stream().write_all(b"{\"forget\"").expect("sent");
        drop(one);
        assert!(other.next::<Ask>().is_err(), "a part of a line is no message");
        assert!(matches!(other.next::<Ask>(), Ok(None)));
    }
}
