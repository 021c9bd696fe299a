// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queue of a partition: the nodes that its jobs ask for, and the jobs that begin.

use colony_model::{
    Block, Fragmentation, FreeMap, Machine, ModelError, Partition as ModelPartition, Request,
};

use super::control::{Control, wrong};
use super::status::StatusAnswer;
use crate::ControlError;
use crate::api::{FreeNodes, Job, JobBlock, JobRequest, NodeState, PartitionState};
use crate::schedule::{self, Holding, Plan, Waiting};
use crate::store::{LONGEST_PAUSE_S, Row};

/// The nodes of a partition as a machine of their own: blocks of jobs are placed in it.
struct Room {
    model: ModelPartition,
    empty: FreeMap,
    /// The nodes that get no new jobs, each with its neighbors in a box of 2x2x2, the smallest block.
    unusable: Vec<Block>,
    /// When jobs without a time limit end at the latest, seconds since 1970: with the allocation, if it has an end.
    stops: Option<f64>,
}

impl Room {
    fn new(model: ModelPartition, is_unusable: impl Fn(u32) -> bool) -> Result<Self, ModelError> {
        let own = Machine::new(model.block().shape())?;
        let cell = colony_model::Shape::new([2; 3])?;
        let block = |node: u32| {
            let at = model.block().shape().coords(node).map(|at| at / 2 * 2);
            Block::new(own, at, cell)
        };
        let unusable = (0..model.nodes()).filter(|node| is_unusable(*node)).map(block);
        let unusable = unusable.collect::<Result<_, _>>()?;
        Ok(Self { unusable, empty: FreeMap::new(own), model, stops: None })
    }

    /// The nodes that a request asks for.
    fn request(&self, job: &JobRequest) -> Result<Request, ControlError> {
        let (all, held) = (self.model.nodes(), job.mode.processes());
        let least = self.model.psets().size().nodes();
        let asked = job.nodes.or_else(|| job.processes.map(|processes| processes.div_ceil(held)));
        let (request, nodes) = match (job.shape, asked) {
            (Some(_), _) if job.nodes.is_some() => {
                return Err(wrong("a job has a number of nodes or a shape: leave one out"));
            }
            (Some(shape), _) if shape.nodes() < least => {
                return Err(wrong(format!(
                    "a job has one pset at least, which has {least} nodes here: {shape} are {}",
                    shape.nodes()
                )));
            }
            (Some(shape), _) => (Request::Shape(shape), shape.nodes()),
            (None, Some(nodes)) => (Request::Nodes(nodes.max(least)), nodes),
            (None, None) => (Request::Shape(self.model.block().shape()), all),
        };
        let refused = |what: String| {
            let name = self.model.name();
            Err(wrong(format!("{what}: partition {name} has {all} nodes, {}", self.model.block().shape())))
        };
        if nodes == 0 || job.processes == Some(0) {
            return Err(wrong("a job has one node and one process at least"));
        }
        if let Err(error) = self.empty.check(request) {
            return refused(error.to_string());
        }
        match job.processes {
            Some(processes) if processes > nodes.saturating_mul(held) => {
                refused(format!("{processes} processes do not fit on {nodes} nodes"))
            }
            _ => Ok(request),
        }
    }

    /// The place of a job in the partition; all of it for jobs of older versions, which had no place.
    fn inside(&self, block: Option<&JobBlock>) -> Block {
        let (own, origin) = (self.empty.machine(), self.model.block().origin());
        let inside = block.and_then(|block| {
            let at = [0, 1, 2].map(|axis: usize| block.origin[axis].checked_sub(origin[axis]));
            Block::new(own, [at[0]?, at[1]?, at[2]?], block.shape).ok()
        });
        inside.unwrap_or(Block::whole(own))
    }

    /// The same nodes as a block of the machine.
    fn outside(&self, block: Block) -> JobBlock {
        let (origin, at) = (self.model.block().origin(), block.origin());
        JobBlock { origin: [0, 1, 2].map(|axis: usize| origin[axis] + at[axis]), shape: block.shape() }
    }

    fn plan(&self, begun: &[Job], queued: &[Job], now: f64) -> Plan {
        let limit = |job: &Job| Some(job.started? + job.request.timeout_s?);
        let end = |job: &Job| limit(job).or(self.stops);
        let holding: Vec<Holding> = begun
            .iter()
            .map(|job| Holding { block: self.inside(job.block.as_ref()), end: end(job) })
            .collect();
        // a job that does not fit any more, after the partition was made anew, is refused when it begins
        let request = |job: &Job| self.request(&job.request).unwrap_or(Request::Nodes(1));
        let waiting: Vec<Waiting> = queued
            .iter()
            .filter(|job| pause_s(job, now).is_none())
            .map(|job| Waiting { id: job.id, request: request(job), limit: job.request.timeout_s })
            .collect();
        schedule::plan(&self.empty, &self.unusable, &holding, &waiting, now)
    }

    fn fragmentation(&self, begun: &[Job]) -> Fragmentation {
        let mut free = self.empty.clone();
        let held: Vec<Block> = begun.iter().map(|job| self.inside(job.block.as_ref())).collect();
        self.unusable.iter().chain(&held).for_each(|block| free.take(block));
        free.fragmentation()
    }
}

fn as_free_nodes(found: &Fragmentation) -> FreeNodes {
    FreeNodes { nodes: found.free, largest: found.largest, fragmentation: found.fragmentation }
}

/// The time until a job begins again that the machine has failed, seconds. One that is longer than any pause comes of a clock
/// that was set meanwhile, and counts as over.
fn pause_s(job: &Job, now: f64) -> Option<f64> {
    job.not_before.map(|time| time - now).filter(|left| *left > 0.0 && *left <= LONGEST_PAUSE_S)
}

impl Control {
    fn room(&self, row: &Row, states: &[NodeState]) -> Result<Room, ControlError> {
        let drained = self.drained(row)?;
        let is_unusable = |node: u32| {
            // a dead node is started again or drained soon: until then it is no place for a job
            let is_lost = matches!(states.get(node as usize), Some(NodeState::Lost | NodeState::Dead));
            is_lost || drained.get(node as usize).is_some_and(Option::is_some)
        };
        let stops = self.store().allocation()?.and_then(|own| own.stops);
        let room = Room::new(self.model(row)?, is_unusable).map_err(wrong)?;
        Ok(Room { stops, ..room })
    }

    /// Refuses a job that does not fit on its partition even if that is empty.
    pub(super) fn check_fits(&self, row: &Row, request: &JobRequest) -> Result<(), ControlError> {
        Room::new(self.model(row)?, |_| false).map_err(wrong)?.request(request).map(drop)
    }

    /// Takes the jobs from the queue of a partition that begin now, each with its nodes. `states` are those of the nodes.
    pub(super) fn take_jobs(&self, name: &str, states: &[NodeState]) -> Result<Vec<Job>, ControlError> {
        let room = self.room(&self.row(name)?, states)?;
        let now = crate::api::now();
        self.store().take_jobs(name, |begun, queued| {
            let starts = room.plan(begun, queued, now).starts;
            starts.into_iter().map(|(id, block)| (id, room.outside(block))).collect()
        })
    }

    /// What a job in the queue waits for; nothing if it is about to begin.
    pub(super) fn waits_for(&self, job: &Job) -> Result<Option<String>, ControlError> {
        let row = self.row(&job.request.partition)?;
        if row.state != PartitionState::Ready {
            return Ok(Some("its partition is not ready".to_owned()));
        }
        let status = self.query_status(&row);
        if let StatusAnswer::Unresponsive(why) = status {
            return Ok(Some(format!("its partition does not answer: {why}")));
        }
        let room = self.room(&row, &status.nodes(row.shape.nodes()))?;
        let begun = self.store().begun(&row.name)?;
        let queued = self.store().queued(&row.name)?;
        let now = crate::api::now();
        if let Some(left) = pause_s(job, now) {
            return Ok(Some(format!(
                "the machine has failed it, and it begins again in {left:.0} s at the earliest"
            )));
        }
        let plan = room.plan(&begun, &queued, now);
        Ok(match plan.head {
            _ if plan.starts.iter().any(|(id, _)| *id == job.id) => None,
            _ if plan.stuck.contains(&job.id) => Some(self.missing_nodes(&row)?),
            Some(head) if head.id == job.id => Some(match head.time {
                Some(time) if Some(time) != room.stops => {
                    format!("it is the first in the queue, and begins in {:.0} s at the latest", time - now)
                }
                _ => "it is the first in the queue, and waits for a job without a time limit".to_owned(),
            }),
            Some(head) => Some(format!("it waits for job {}", head.id)),
            None => None,
        })
    }

    /// The text for a job that does not fit on the nodes that are in use.
    fn missing_nodes(&self, row: &Row) -> Result<String, ControlError> {
        let (usable, all) = (self.usable_nodes(row)?, row.shape.nodes());
        let fits = match usable.largest {
            _ if usable.nodes == all => String::new(),
            Some(shape) => {
                format!("; {} of {all} nodes take jobs, and a job of {shape} still fits", usable.nodes)
            }
            None => "; no node takes jobs".to_owned(),
        };
        Ok(format!(
            "it waits for nodes that are drained, lost or dead: `colony machine status` shows them{fits}"
        ))
    }

    /// The nodes of a partition that jobs could have if none ran: those that are not drained.
    pub(super) fn usable_nodes(&self, row: &Row) -> Result<FreeNodes, ControlError> {
        Ok(as_free_nodes(&self.room(row, &[])?.fragmentation(&[])))
    }

    /// The nodes of a partition that jobs can have.
    pub(super) fn free_nodes(&self, row: &Row, states: &[NodeState]) -> Result<FreeNodes, ControlError> {
        let begun = self.store().begun(&row.name)?;
        Ok(as_free_nodes(&self.room(row, states)?.fragmentation(&begun)))
    }
}
