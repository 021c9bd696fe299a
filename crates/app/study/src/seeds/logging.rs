// SPDX-License-Identifier: MIT OR Apache-2.0
//! HPC-Colony progress report 2006: what a log of messages costs a stencil, by the time that it computes.

use colony_sim::event::{Progress, run};
use colony_sim::goal::{BuildError, Builder, Kind, Operation, Schedule};
use colony_sim::network::cube;
use colony_sim::node::Node;
use colony_sim::rng::Key;
use rayon::prelude::*;

use super::{Context, Document, Experiment, Method, Ours, settings};
use crate::results::Published;
use crate::{StudyError, format, project, simulated};

pub(super) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "message-logging",
    document: Document::Progress2006,
    place: "Section 2.3, Fig. 1",
    what: "a 7-point stencil with a log of its messages on 4096, 8192 and 20,480 nodes: the time of an iteration by the \
           time that a task computes in it (its granularity)",
    published: &[
        "In the ideal case, with no extra penalty for communication or fault tolerance protocol, the iteration time \
         would be the same as the granularity.",
        "our protocol scales to a large number of processors for applications with large granularity",
        "When the granularity is smaller, there is a significant performance penalty on larger numbers of processors.",
    ],
    method: Method::Projection,
    settings: settings::RANDOM,
    run: message_logging,
}];

/// "four, eight and twenty thousand processors, using one processor per node".
const NODES: [u32; 3] = [4096, 8192, 20_480];
const GRANULARITIES_NS: [u64; 3] = [100_000, 1_000_000, 10_000_000];
/// The granularity that is simulated: messages take the same time beside any other, since all of them wait for the work
/// before them.
const SIMULATED_NS: u64 = 1_000_000;
const ITERATIONS: u32 = 3;
/// A face of 10 × 10 numbers. The report does not say how long its messages were.
const FACE_BYTES: u64 = 800;
/// A request of a ticket, or a ticket: two numbers of parcels and a rank.
const TICKET_BYTES: u64 = 24;
/// Six determinants, with what the format needs beside them.
const DETERMINANTS_BYTES: u64 = 32;
/// The copy of a message and its checksum.
const KEEP_NS_PER_BYTE: u64 = 1;

/// What is done for a log on the way of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Log {
    /// Nothing.
    None,
    /// The sender keeps the message, which has the sender's determinants: the log of `colony-runtime`.
    Causal,
    /// The sender keeps the message. It asks the receiver for the place of the message in its order (a ticket), and sends
    /// the message with it (Chakravorty, Kalé, IPDPS 2004).
    Pessimistic,
}

/// Where the neighbours of a task are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placed {
    /// On neighbours in the torus.
    Near,
    /// On any nodes.
    Anywhere,
}

fn message_logging(e: &Experiment, c: &mut Context<'_>) -> Result<Vec<Published>, StudyError> {
    let (placed, logs) = ([Placed::Near, Placed::Anywhere], [Log::None, Log::Causal, Log::Pessimistic]);
    let mut runs = Vec::new();
    for nodes in NODES {
        runs.extend(placed.iter().flat_map(|&place| logs.map(|log| (nodes, place, log))));
    }
    let seed = c.params.seed;
    let rows = |&(nodes, place, log): &(u32, Placed, Log)| {
        let messages_ns = iteration(nodes, SIMULATED_NS, place, log, seed)? - SIMULATED_NS as f64;
        let what = match log {
            Log::None => "without a log",
            Log::Causal => "log of colony-runtime",
            Log::Pessimistic => "pessimistic log",
        };
        let place = if place == Placed::Near { "near" } else { "anywhere" };
        Ok(GRANULARITIES_NS.map(|work_ns| {
            let (nodes, work) = (format::count(nodes.into()), format::time(work_ns as f64));
            e.row(
                format!("{nodes} nodes, neighbours {place}, {work}, {what}"),
                Ours::Ns(work_ns as f64 + messages_ns),
                "simulated on `bgl`; messages of 800 bytes, which the report does not give",
            )
        }))
    };
    let rows: Vec<[Published; 3]> = runs.par_iter().map(rows).collect::<Result<_, StudyError>>()?;
    Ok(rows.into_iter().flatten().collect())
}

/// Mean time of an iteration, nanoseconds.
fn iteration(nodes: u32, compute_ns: u64, placed: Placed, log: Log, seed: u64) -> Result<f64, StudyError> {
    simulated::of(&("message-logging", nodes, compute_ns, placed, log, seed), || {
        simulated_iteration(nodes, compute_ns, placed, log, seed)
    })
}

fn simulated_iteration(
    nodes: u32,
    compute_ns: u64,
    placed: Placed,
    log: Log,
    seed: u64,
) -> Result<f64, StudyError> {
    let wrong = |e: &dyn std::fmt::Display| StudyError::Params(e.to_string());
    let schedule = schedule(nodes, compute_ns, placed, log, seed).map_err(|e| wrong(&e))?;
    let network = project::blue_gene(1)?.network(nodes)?;
    let outcome = run(&schedule, &network, &Node::quiet(), Progress::ProgramOrder, Key::new(seed), 0);
    Ok(outcome.map_err(|e| wrong(&e))?.total_ns() as f64 / f64::from(ITERATIONS))
}

fn schedule(
    nodes: u32,
    compute_ns: u64,
    placed: Placed,
    log: Log,
    seed: u64,
) -> Result<Schedule, BuildError> {
    let node_of = places(nodes, placed, seed);
    let mut task_of = vec![0; nodes as usize];
    (0..nodes).for_each(|task| task_of[node_of[task as usize] as usize] = task);
    let mut builder = Builder::new(nodes);
    for node in 0..nodes {
        let neighbours = neighbours(task_of[node as usize], nodes).map(|task| node_of[task as usize]);
        let mut task = Task { builder: &mut builder, before: Vec::new() };
        for number in 0..ITERATIONS {
            task.iteration(number, &neighbours, compute_ns, log)?;
        }
        if node + 1 < nodes {
            builder.next_rank()?;
        }
    }
    builder.finish()
}

/// The node of each task.
fn places(nodes: u32, placed: Placed, seed: u64) -> Vec<u32> {
    let mut places: Vec<u32> = (0..nodes).collect();
    if placed == Placed::Anywhere {
        let key = Key::new(seed);
        places.sort_by_key(|&node| key.bits(node.into()));
    }
    places
}

/// The six neighbours of a task in a periodic grid, down and up in x, y and z.
fn neighbours(task: u32, tasks: u32) -> [u32; 6] {
    let [x, y, z] = cube(tasks);
    let at = [task % x, task / x % y, task / (x * y)];
    let number = |[a, b, c]: [u32; 3]| (c * y + b) * x + a;
    let mut found = [0; 6];
    for (i, size) in [x, y, z].into_iter().enumerate() {
        for (j, step) in [size - 1, 1].into_iter().enumerate() {
            let mut other = at;
            other[i] = (at[i] + step) % size;
            found[2 * i + j] = number(other);
        }
    }
    found
}

/// A task as it is written down.
struct Task<'a> {
    builder: &'a mut Builder,
    /// What the next iteration waits for.
    before: Vec<u32>,
}

impl Task<'_> {
    /// Messages to all neighbours and from all of them, then work.
    fn iteration(
        &mut self,
        number: u32,
        neighbours: &[u32; 6],
        compute_ns: u64,
        log: Log,
    ) -> Result<(), BuildError> {
        let before = std::mem::take(&mut self.before);
        let bytes = FACE_BYTES + if log == Log::Causal { DETERMINANTS_BYTES } else { 0 };
        let keep_ns = if log == Log::None { 0 } else { FACE_BYTES * KEEP_NS_PER_BYTE };
        let [requests, tickets, faces] = [0, 1, 2].map(|kind| 3 * number + kind);
        let mut done = Vec::new();
        let mut may_send = [const { Vec::new() }; 6];
        for (ready, &peer) in may_send.iter_mut().zip(neighbours) {
            *ready = before.clone();
            if keep_ns > 0 {
                *ready = vec![self.add(Kind::Calc, keep_ns, 0, 0, ready)?];
            }
            if log == Log::Pessimistic {
                self.add(Kind::Send, TICKET_BYTES, peer, requests, ready)?;
            }
        }
        if log == Log::Pessimistic {
            for &peer in neighbours {
                let asked = self.add(Kind::Recv, TICKET_BYTES, peer, requests, &before)?;
                self.add(Kind::Send, TICKET_BYTES, peer, tickets, &[asked])?;
            }
            for (ready, &peer) in may_send.iter_mut().zip(neighbours) {
                *ready = vec![self.add(Kind::Recv, TICKET_BYTES, peer, tickets, ready)?];
            }
        }
        for (ready, &peer) in may_send.iter().zip(neighbours) {
            done.push(self.add(Kind::Send, bytes, peer, faces, ready)?);
            done.push(self.add(Kind::Recv, bytes, peer, faces, &before)?);
        }
        self.before = vec![self.add(Kind::Calc, compute_ns, 0, 0, &done)?];
        Ok(())
    }

    fn add(&mut self, kind: Kind, size: u64, peer: u32, tag: u32, after: &[u32]) -> Result<u32, BuildError> {
        let number = self.builder.add(Operation { kind, size, peer, tag, cpu: 0, nic: 0 })?;
        after.iter().try_for_each(|&on| self.builder.require(number, on, false))?;
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_those_of_a_periodic_grid() {
        // 4 × 4 × 4
        assert_eq!(neighbours(0, 64), [3, 1, 12, 4, 48, 16]);
        for task in 0..64 {
            for other in neighbours(task, 64) {
                assert!(neighbours(other, 64).contains(&task), "{task} {other}");
            }
        }
    }

    #[test]
    fn messages_are_as_many_as_the_protocol_says() {
        for (log, each) in [(Log::None, 1), (Log::Causal, 1), (Log::Pessimistic, 3)] {
            let made = schedule(64, 1000, Placed::Anywhere, log, 3).expect("a schedule");
            assert_eq!(made.messages(), 64 * 6 * u64::from(ITERATIONS) * each, "{log:?}");
        }
    }

    #[test]
    fn an_iteration_takes_its_work_and_what_the_messages_cost() {
        let took = |ns, log| iteration(512, ns, Placed::Anywhere, log, 3).expect("a run");
        for log in [Log::None, Log::Causal, Log::Pessimistic] {
            let (short, long) = (took(100_000, log) - 1e5, took(10_000_000, log) - 1e7);
            assert!(short > 0.0 && (short - long).abs() < 1.0, "{log:?}: {short} and {long}");
        }
        let [none, causal, pessimistic] =
            [Log::None, Log::Causal, Log::Pessimistic].map(|log| took(100_000, log));
        assert!(none < causal && causal < pessimistic, "{none} {causal} {pessimistic}");
    }
}
