// SPDX-License-Identifier: MIT OR Apache-2.0
//! HPC-Colony progress report 2006: memory and time of the hybrid load balancer.

use colony_balance::database::Database;
use colony_balance::generate::{Generator, Shape};
use colony_balance::strategy::Hybrid;
use colony_sim::event::{Progress, run};
use colony_sim::goal::{Builder, Kind, Operation};
use colony_sim::node::Node;
use colony_sim::rng::Key;

use super::{Cited, Context, Document, Experiment, Method, Ours, settings};
use crate::results::{Basis, Published};
use crate::{StudyError, project};

pub(super) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "hybrid-lb",
    document: Document::Progress2006,
    place: "Section 2.4, Tables 2 and 3",
    what: "HybridLB on 4096 to 16,384 PEs: domains of 1024 PEs, greedy below and refinement above; the load database of \
           the fullest PE, and the multicast of the decisions",
    published: &[
        "Number of Processors 4096 8192 16384; Memory Used (MB) 6.8 22.57 22.63",
        "Number of Processors 8192 16384; LB Time 14.70s 23.16s",
        "Indeed, the centralized scheme ran out of memory when constructing the global load database.",
        "the multicast—sending 1024 messages down a hierarchical tree—is responsible for most of the overhead",
    ],
    method: Method::Projection,
    settings: settings::RANDOM,
    run: hybrid_lb,
}];

/// Processors, and the published memory.
const SIZES: [(u32, Cited); 3] = [
    (4096, Cited::value("6.8 MB", 6.8e6, Basis::Predicted)),
    (8192, Cited::value("22.57 MB", 22.57e6, Basis::Predicted)),
    (16_384, Cited::value("22.63 MB", 22.63e6, Basis::Predicted)),
];
/// Objects a PE. The report does not say how many there were.
const OBJECTS: u32 = 64;
/// Messages to other objects of each object: the mesh has two dimensions.
const PARTNERS: u32 = 4;
/// Bytes of an object in Charm++'s load database, on a processor of 32 bits: handle with an id of four integers, two
/// times, flags, and the PEs before and after (`LDObjData` and two numbers in its public header `lbdb.h`).
const CHARM_OBJECT_BYTES: u64 = 56 + 2 * 4;
/// Bytes of the messages of one object to another there (`LDCommData`): both ids, their hashes, messages and bytes.
const CHARM_MESSAGES_BYTES: u64 = 68;
/// Bytes of a decision: an object's id and its PE.
const DECISION_BYTES: u64 = 12;
/// Bytes of a node's memory on Blue Gene/L.
const NODE_BYTES: f64 = 512e6;

fn hybrid_lb(e: &Experiment, c: &mut Context<'_>) -> Result<Vec<Published>, StudyError> {
    let hybrid = Hybrid::default();
    let wrong = |e: colony_balance::BalanceError| StudyError::Params(e.to_string());
    let mut rows = Vec::new();
    for (pes, memory) in SIZES {
        let objects = pes * OBJECTS;
        let shape = Shape { seed: c.params.seed, ..Shape::lb_test(pes, objects) };
        let tree = hybrid.balance_generated(&Generator::new(shape).map_err(wrong)?);
        let name = |what: &str| format!("{pes} PEs, {what}");
        rows.push(e.beside(
            name("memory of the load balancer: a domain's load database with the records of Charm++, bytes"),
            memory,
            Ours::Count(charm_bytes(hybrid.domain)),
            "arithmetic from the sizes of Charm++'s records; the report does not say how many objects there were: 64 a PE were \
             chosen before",
        ));
        let mut row = |what: &str, ours, note: &str| rows.push(e.row(name(what), ours, note));
        row(
            "our load database on the fullest PE, bytes",
            Ours::Count(tree.database_bytes_one_pe),
            "the load database of Colony: 27 bytes an object, the links to its partners included",
        );
        // a mesh: four messages an object, less those at its sides
        let central =
            Database::bytes_for(pes.into(), objects.into(), u64::from(PARTNERS) * u64::from(objects));
        row(
            "central load database, bytes",
            Ours::Count(central),
            "computed from the sizes of its parts; the published one ran out of memory",
        );
        row("share of a node's 512 MB, central", Ours::Share(central as f64 / NODE_BYTES), "");
        row("imbalance before", Ours::Times(shape.imbalance), "put in");
        row("imbalance after", Ours::Times(tree.imbalance), "");
        let own = multicast(pes, hybrid.domain, u64::from(OBJECTS) * DECISION_BYTES)?;
        row(
            "multicast, each PE its own decisions",
            Ours::Ns(own),
            "simulated on `bgl`; the published time, 14.70 s on 8192 and 23.16 s on 16,384 PEs, is that of all load balancing",
        );
        let all = multicast(pes, hybrid.domain, u64::from(hybrid.domain * OBJECTS) * DECISION_BYTES)?;
        row(
            "multicast, each PE its domain's decisions",
            Ours::Ns(all),
            "simulated on `bgl`; the published time, 14.70 s on 8192 and 23.16 s on 16,384 PEs, is that of all load balancing",
        );
    }
    Ok(rows)
}

/// Bytes of the load database of a domain of `pes` PEs with the records of Charm++.
fn charm_bytes(pes: u32) -> u64 {
    let object = CHARM_OBJECT_BYTES + u64::from(PARTNERS) * CHARM_MESSAGES_BYTES;
    u64::from(pes) * u64::from(OBJECTS) * object
}

/// Time in which the root tells each domain's first PE, and this one its 1,023 others, one message each of `bytes`.
fn multicast(pes: u32, domain: u32, bytes: u64) -> Result<f64, StudyError> {
    let failed = |e: &dyn std::fmt::Display| StudyError::Params(e.to_string());
    let message = |kind, peer| Operation { kind, size: bytes, peer, tag: 0, cpu: 0, nic: 0 };
    let mut schedule = Builder::new(pes);
    for pe in 0..pes {
        let leader = pe - pe % domain;
        let mut last = None;
        let mut add = |operation| -> Result<(), StudyError> {
            let number = schedule.add(operation).map_err(|e| failed(&e))?;
            if let Some(on) = last.replace(number) {
                schedule.require(number, on, false).map_err(|e| failed(&e))?;
            }
            Ok(())
        };
        if pe != 0 {
            add(message(Kind::Recv, if pe == leader { 0 } else { leader }))?;
        }
        if pe == 0 {
            (domain..pes).step_by(domain as usize).try_for_each(|to| add(message(Kind::Send, to)))?;
        }
        if pe == leader {
            (pe + 1..(pe + domain).min(pes)).try_for_each(|to| add(message(Kind::Send, to)))?;
        }
        if pe + 1 < pes {
            schedule.next_rank().map_err(|e| failed(&e))?;
        }
    }
    let schedule = schedule.finish().map_err(|e| failed(&e))?;
    let network = project::blue_gene(1)?.network(pes)?;
    let outcome = run(&schedule, &network, &Node::quiet(), Progress::ProgramOrder, Key::new(1), 0);
    Ok(outcome.map_err(|e| failed(&e))?.total_ns() as f64)
}
