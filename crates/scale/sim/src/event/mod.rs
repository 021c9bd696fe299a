// SPDX-License-Identifier: MIT OR Apache-2.0
//! The event engine: any schedule of sends, receives and computing, under LogGOPS and noise.
//!
//! Each rank's CPUs and interfaces serve what is ready in the order it became ready (at one instant: local
//! operations first, by number, then messages), one after the other. Only messages pass between ranks, and
//! none is faster than the latency and the overhead: so time is cut into windows of that length, in which
//! ranks go ahead one by one without a look at the others. Where a rendezvous is possible windows are an
//! instant long, as the beginning of a receive frees its sender at once.

mod engine;
mod loggopsim;
mod matching;
mod order;
mod queue;
mod queues;
mod repeat;
#[cfg(test)]
mod tests;
mod waiting;

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

pub use self::repeat::Runs;

use self::matching::Open;
use crate::MessageCost;
use crate::goal::{Kind, Packed, Schedule, Shape};
use crate::network::{MachineNetwork, Network};
use crate::node::Node;
use crate::rng::Key;
use crate::words::number_of;

/// The instant at which a rank's CPU takes the overhead of a receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Progress {
    /// The program has reached the receive and the message has arrived: an MPI library that works in calls only.
    /// The level engine's rule.
    #[default]
    ProgramOrder,
    /// The message arrives, even if the program has not reached its receive, on the CPU and the interface of the
    /// numbers that its send names: a progress thread. LogGOPSim's rule.
    Asynchronous,
}

/// The rule by which a CPU and an interface select the operation or message to serve next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Queue {
    /// The one that has been ready longest, of those whose CPU and interface are both free.
    #[default]
    FirstReady,
    /// The one that LogGOPSim serves, which is the one inserted first into its queue: `docs/goal.md` has the
    /// rule. Progress is asynchronous, whatever [`Rules::progress`] says.
    Loggopsim,
}

/// The rules of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rules {
    /// The instant at which a rank's CPU takes the overhead of a receive.
    pub progress: Progress,
    /// The rule that selects the next operation or message.
    pub queue: Queue,
}

impl Rules {
    /// LogGOPSim's: its queue, and asynchronous progress.
    pub const LOGGOPSIM: Self = Self { progress: Progress::Asynchronous, queue: Queue::Loggopsim };
}

impl From<Progress> for Rules {
    fn from(progress: Progress) -> Self {
        Self { progress, queue: Queue::FirstReady }
    }
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The end of each rank's last work on its CPUs, nanoseconds after the job began.
    pub ends_ns: Vec<u64>,
    /// Operations and messages, counted as LogGOPSim does.
    pub events: u64,
}

impl Outcome {
    /// From the beginning to the end of the last rank.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.ends_ns.iter().copied().max().unwrap_or(0)
    }
}

/// A rank that waits for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The rank.
    pub rank: u32,
    /// Number of its operation that waits, from 0.
    pub operation: u32,
    /// A send that no receive begins for, or a receive that no message comes for.
    pub kind: Kind,
    /// The other rank, or [`ANY`](crate::goal::ANY).
    pub peer: u32,
    /// The tag, or [`ANY`](crate::goal::ANY).
    pub tag: u32,
}

/// A message that nobody received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreceived {
    /// Sender.
    pub from: u32,
    /// Receiver.
    pub to: u32,
    /// Tag.
    pub tag: u32,
}

/// A schedule that cannot run to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// The machine has not as many ranks as the schedule.
    #[error("the schedule has {} and the machine {machine}; give it as many", number_of((*schedule).into(), "rank"))]
    Ranks {
        /// Ranks of the schedule.
        schedule: u32,
        /// Ranks of the machine.
        machine: u32,
    },
    /// Ranks wait for one another, or for messages that nobody sends.
    #[error("deadlock: {} for ever: {}", wait(*ranks), list(first, *ranks, waits))]
    Deadlock {
        /// Ranks that wait.
        ranks: u32,
        /// The operations for which the first ten of them wait.
        first: Vec<Waiting>,
    },
    /// Messages were left over.
    #[error("{} never received: {}", were(*messages), list(first, *messages, goes))]
    Unreceived {
        /// Number of messages.
        messages: u32,
        /// The first ten of them.
        first: Vec<Unreceived>,
    },
    /// A message is longer than the receive that takes it.
    #[error(
        "rank {to} receives at most {received} bytes in operation {operation}, and the message from rank {from} with \
         tag {tag} has {sent}: MPI would truncate the message; make the receive as large"
    )]
    Sizes {
        /// Sender.
        from: u32,
        /// Receiver.
        to: u32,
        /// Tag of the message.
        tag: u32,
        /// Number of the receive among the operations of its rank, from 0.
        operation: u32,
        /// Bytes of the message.
        sent: u64,
        /// Bytes of the receive.
        received: u64,
    },
    /// A rank that noise leaves no time to.
    #[error("rank {rank} never gets its CPU: noise takes all of its time under this scheduler")]
    Starved {
        /// The rank.
        rank: u32,
    },
    /// The schedule's times add up to more than can be counted.
    #[error("the schedule takes too long to be counted in nanoseconds: over {} years", u64::MAX / 8 / 31_557_600_000_000_000)]
    TooLong,
}

fn wait(ranks: u32) -> String {
    format!("{} {}", number_of(ranks.into(), "rank"), if ranks == 1 { "waits" } else { "wait" })
}

fn were(messages: u32) -> String {
    format!("{} {}", number_of(messages.into(), "message"), if messages == 1 { "was" } else { "were" })
}

/// Most entries in a list of what went wrong.
const LISTED: usize = 10;

fn list<T>(first: &[T], all: u32, show: impl Fn(&T) -> String) -> String {
    let shown: Vec<String> = first.iter().map(show).collect();
    let more = all as usize - first.len().min(all as usize);
    let rest = if more > 0 { format!("; and {more} more") } else { String::new() };
    shown.join("; ") + &rest
}

fn waits(w: &Waiting) -> String {
    let any = |n: u32| if n == crate::goal::ANY { "any".into() } else { n.to_string() };
    let Waiting { rank, operation, .. } = w;
    let (peer, tag) = (any(w.peer), any(w.tag));
    match w.kind {
        Kind::Send => {
            format!("rank {rank} in operation {operation} for rank {peer} to receive with tag {tag}")
        }
        _ => format!("rank {rank} in operation {operation} for a message from rank {peer} with tag {tag}"),
    }
}

fn goes(u: &Unreceived) -> String {
    format!("from rank {} to rank {} with tag {}", u.from, u.to, u.tag)
}

/// Runs `schedule` on the ranks of `network`, with the noise of `node` on each rank's CPU 0 (its other
/// CPUs have none); the job begins `begin_ns` after boot. A schedule without noise is one on
/// [`Node::quiet`].
///
/// # Errors
/// [`EventError`] where it cannot run to its end.
///
/// ```
/// use colony_sim::event::{Progress, run};
/// use colony_sim::{goal, machine::Machine, node::Node, rng::Key};
/// let goal = "num_ranks 2\n rank 0 {\n send 8b to 1\n }\n rank 1 {\n recv 8b from 0\n }\n";
/// let schedule = goal::read_text(goal.as_bytes(), "example")?;
/// let network = Machine::loggopsim().network(2)?;
/// let outcome = run(&schedule, &network, &Node::quiet(), Progress::ProgramOrder, Key::new(1), 0)?;
/// assert_eq!(outcome.ends_ns, [1500, 1500 + 2500 + 7 * 6 + 1500]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn run(
    schedule: &Schedule,
    network: &MachineNetwork,
    node: &Node,
    rules: impl Into<Rules>,
    seed: Key,
    begin_ns: u64,
) -> Result<Outcome, EventError> {
    let machine = network.layout().ranks();
    if machine != schedule.ranks() {
        return Err(EventError::Ranks { schedule: schedule.ranks(), machine });
    }
    // a message costs what its send says: a receive with room for more than any message has must not count as one
    let sends = schedule.shapes.iter().filter(|s| s.kind == Kind::Send);
    let longest = sends.map(|s| s.bytes).max().unwrap_or(0);
    let cost = |s: &Shape| network.loggops().cost(s.bytes.min(longest));
    let costs: Vec<MessageCost> = schedule.shapes.iter().map(cost).collect();
    check_length(schedule, network, &costs, begin_ns)?;
    let Rules { progress, queue } = rules.into();
    match queue {
        Queue::FirstReady => {
            engine::Engine::new(schedule, network, node, progress, seed, begin_ns, costs).run()
        }
        Queue::Loggopsim => loggopsim::LogGopsim::new(schedule, network, node, seed, begin_ns, &costs).run(),
    }
}

/// Checks that a message fits into the receive that takes it; both by their numbers among all operations. LogGOPSim does
/// not check this. In MPI a receive may be larger than its message, and a smaller one is an error.
fn check_sizes(schedule: &Schedule, receive: u32, send: u32) -> Result<(), EventError> {
    let operation = |i: u32| &schedule.operations[i as usize];
    let bytes = |i: u32| schedule.shapes[operation(i).shape()].bytes;
    let (sent, received) = (bytes(send), bytes(receive));
    if sent <= received {
        return Ok(());
    }
    let &Packed { peer: to, tag, .. } = operation(send);
    let operation = receive - schedule.first[to as usize];
    Err(EventError::Sizes { from: schedule.rank_of(send), to, tag, operation, sent, received })
}

/// The ranks in which an operation has begun and waits.
fn deadlock(schedule: &Schedule, waits: impl Fn(usize) -> bool) -> EventError {
    let (mut ranks, mut first) = (0, Vec::new());
    for rank in 0..schedule.ranks() {
        let Some(i) = schedule.range(rank).find(|&i| waits(i)) else { continue };
        ranks += 1;
        if first.len() < LISTED {
            let o = schedule.unpack(&schedule.operations[i]);
            let operation = (i - schedule.range(rank).start) as u32;
            first.push(Waiting { rank, operation, kind: o.kind, peer: o.peer, tag: o.tag });
        }
    }
    EventError::Deadlock { ranks, first }
}

/// Checks that ranks with open receives have received all messages.
fn unreceived(open: &HashMap<u32, Open>) -> Result<(), EventError> {
    let mut left: Vec<(u32, &Open)> = open.iter().map(|(&rank, open)| (rank, open)).collect();
    left.sort_unstable_by_key(|(rank, _)| *rank);
    let mut messages = left.into_iter().flat_map(|(to, open)| {
        open.messages().into_iter().map(move |l| Unreceived { from: l.from, to, tag: l.tag })
    });
    let first: Vec<Unreceived> = messages.by_ref().take(LISTED).collect();
    if first.is_empty() {
        return Ok(());
    }
    Err(EventError::Unreceived { messages: (first.len() + messages.count()) as u32, first })
}

/// Adds up all that a schedule can take one after the other: no time may come near the end of the count.
fn check_length(
    schedule: &Schedule,
    network: &MachineNetwork,
    costs: &[MessageCost],
    begin_ns: u64,
) -> Result<(), EventError> {
    let latency = network.latency_ns_at_most();
    let of_shape: Vec<u128> = costs
        .iter()
        .zip(&schedule.shapes)
        .map(|(c, s)| match s.kind {
            Kind::Calc => 0,
            _ => [c.overhead_ns, c.send_more_ns, c.gap_ns, c.transfer_ns, c.recv_ns, latency]
                .into_iter()
                .map(u128::from)
                .sum(),
        })
        .collect();
    let all = schedule.operations[..schedule.operations() as usize].iter().map(|o| {
        let calc = if schedule.shapes[o.shape()].kind == Kind::Calc { o.calc_ns() } else { 0 };
        of_shape[o.shape()] + u128::from(calc)
    });
    if all.sum::<u128>() + u128::from(begin_ns) > u128::from(u64::MAX / 8) {
        Err(EventError::TooLong)
    } else {
        Ok(())
    }
}
