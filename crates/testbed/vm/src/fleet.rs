// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several machines on one network, each with the same program, as a cluster's nodes.

use std::net::Ipv4Addr;
use std::sync::mpsc;

use colony_init::job::Interface;

use crate::machine::{Boot, Event};
use crate::net::{Link, Network};
use crate::{Cause, Outcome, Running, Vm, VmError};

/// The most nodes a fleet may have: a machine is a process of a hundred megabytes and more.
const MOST: u32 = 250;

/// An event of a node of a fleet.
#[derive(Debug)]
pub enum NodeEvent {
    /// Its program starts.
    Started(Boot),
    /// Its program wrote to standard output.
    Stdout(Vec<u8>),
    /// Its program wrote to standard error.
    Stderr(Vec<u8>),
}

/// The address of a node on its fleet's network: 10.0.0.1 for node 0.
#[must_use]
pub fn address(node: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 0, 0, 1)).saturating_add(node))
}

/// The name of a node: `n0`, `n1` …
#[must_use]
pub fn name(node: u32) -> String {
    format!("n{node}")
}

/// Runs `argv` on `nodes` machines like `vm`, on one network with this `link`. Each knows all others by name, and has its own
/// number in `COLONY_NODE` and the number of all in `COLONY_NODES`. A node stays on the network until the programs of all
/// have ended. Outcomes are in the order of nodes.
///
/// # Errors
/// The first machine that did not come to its program's end; the others are stopped then. A program that fails is
/// no error.
pub fn run<S: AsRef<str>>(
    vm: &Vm,
    nodes: u32,
    link: Link,
    argv: &[S],
    mut listen: impl FnMut(u32, NodeEvent),
) -> Result<Vec<Outcome>, VmError> {
    if nodes == 0 || nodes > MOST {
        return Err(VmError::Wrong(format!("{nodes} nodes: give 1 to {MOST}")));
    }
    colony_node::descriptor::raise_limit();
    let network = Network::new(link)?;
    let _slots = vm.slots(nodes)?;
    let (tell, told) = mpsc::channel();
    let mut running: Vec<Running> = Vec::new();
    // nothing is ever sent: nodes go when the senders do
    let mut stay: Vec<mpsc::Sender<()>> = Vec::new();
    for node in 0..nodes {
        let tell = tell.clone();
        let mut machine = vm
            .clone()
            .name(name(node))
            .network(&network, Interface { address: address(node), prefix: 24 })
            .env("COLONY_NODE", node.to_string())
            .env("COLONY_NODES", nodes.to_string());
        for other in 0..nodes {
            machine = machine.host(address(other), name(other));
        }
        // a listener that has gone wants to hear nothing
        let listener = tell.clone();
        let listener = move |event: Event<'_>| drop(listener.send((node, Told::Event(event.into()))));
        let (sender, may_go) = mpsc::channel();
        stay.push(sender);
        let ended = move |ok| {
            drop(tell.send((node, Told::Ended(ok))));
            drop(tell);
            let _ = may_go.recv();
        };
        match machine.spawn_then(argv, listener, ended) {
            Ok(machine) => running.push(machine),
            Err(e) => {
                running.iter().for_each(Running::stop);
                return Err(e);
            }
        }
    }
    drop(tell);
    for (node, what) in told {
        match what {
            Told::Event(event) => listen(node, event),
            Told::Ended(true) => {}
            Told::Ended(false) => running.iter().for_each(Running::stop),
        }
    }
    drop(stay);
    first_failure(running.into_iter().map(Running::wait).collect())
}

/// A message from the thread of a machine.
enum Told {
    Event(NodeEvent),
    /// The machine has ended; whether it came to its program's end.
    Ended(bool),
}

impl From<Event<'_>> for NodeEvent {
    fn from(event: Event<'_>) -> Self {
        match event {
            Event::Started(boot) => Self::Started(boot),
            Event::Stdout(bytes) => Self::Stdout(bytes.into()),
            Event::Stderr(bytes) => Self::Stderr(bytes.into()),
        }
    }
}

/// All outcomes, or what went wrong first: a machine that was stopped was stopped because of another.
fn first_failure(results: Vec<Result<Outcome, VmError>>) -> Result<Vec<Outcome>, VmError> {
    let stopped = |e: &VmError| matches!(e, VmError::Failed(f) if f.cause == Cause::Stopped);
    let (mut outcomes, mut failure) = (Vec::new(), None);
    for result in results {
        match result {
            Ok(outcome) => outcomes.push(outcome),
            Err(e) => {
                if failure.as_ref().is_none_or(stopped) {
                    failure = Some(e);
                }
            }
        }
    }
    failure.map_or(Ok(outcomes), Err)
}
