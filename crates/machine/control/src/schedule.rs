// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which jobs of a partition begin now, and on which nodes: first come, first served, with EASY backfill (Lifka: The ANL/IBM SP
//! Scheduling System, 1995; Mu'alem and Feitelson: IEEE TPDS 12(6), 2001). Pure functions.
//!
//! The first job that does not fit, the head, gets a reservation: the time at which enough running jobs have ended by their time
//! limits, and the block that is free then. A later job begins before the head if it ends by its time limit before that time, or
//! if it has nodes outside of that block. So no job that overtakes delays the head beyond its reservation.

use colony_model::{Block, FreeMap, Request};

/// A job that waits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Waiting {
    pub(crate) id: u64,
    pub(crate) request: Request,
    /// Longest time that it takes, seconds.
    pub(crate) limit: Option<f64>,
}

/// A job that has nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Holding {
    pub(crate) block: Block,
    /// When it ends at the latest, seconds; `None` without a time limit.
    pub(crate) end: Option<f64>,
}

/// The nodes that the head waits for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reservation {
    pub(crate) id: u64,
    pub(crate) block: Block,
    /// When they are free at the latest; `None` if one of the jobs before has no time limit.
    pub(crate) time: Option<f64>,
}

/// Decisions.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// The jobs that begin now, and their nodes.
    pub(crate) starts: Vec<(u64, Block)>,
    pub(crate) head: Option<Reservation>,
    /// Jobs that would not fit if all others had ended: they wait for nodes that are out of use, and hold nobody up.
    pub(crate) stuck: Vec<u64>,
}

/// The nodes of a partition: those that jobs have, and those out of use.
#[derive(Clone, Debug)]
struct Nodes<'a> {
    free: FreeMap,
    holding: Vec<Holding>,
    unusable: &'a [Block],
}

impl Nodes<'_> {
    fn give(&mut self, job: &Waiting, block: Block, now: f64) {
        self.free.take(&block);
        self.holding.push(Holding { block, end: job.limit.map(|limit| now + limit) });
    }

    /// When and where a job fits that does not fit now; `None` if it never does.
    fn reservation(&self, job: &Waiting, now: f64) -> Option<Reservation> {
        let mut free = self.free.clone();
        let mut holding = self.holding.clone();
        // the sort is stable: jobs without a limit are released in the order of their start
        holding.sort_by(|a, b| a.end.unwrap_or(f64::INFINITY).total_cmp(&b.end.unwrap_or(f64::INFINITY)));
        holding.iter().find_map(|held| {
            free.release(&held.block);
            self.unusable.iter().for_each(|block| free.take(block));
            let block = free.first_fit(job.request)?;
            Some(Reservation { id: job.id, block, time: held.end.map(|end| end.max(now)) })
        })
    }
}

/// Decides which jobs begin. `empty` has the nodes of the partition, all of them free; `waiting` is in the order of the queue.
pub(crate) fn plan(
    empty: &FreeMap,
    unusable: &[Block],
    holding: &[Holding],
    waiting: &[Waiting],
    now: f64,
) -> Plan {
    let mut free = empty.clone();
    unusable.iter().chain(holding.iter().map(|held| &held.block)).for_each(|block| free.take(block));
    let mut nodes = Nodes { free, holding: holding.to_vec(), unusable };
    let mut plan = Plan::default();
    // nodes are only taken here: a request that has failed fails again
    let (mut failed, mut failed_outside) = (Vec::new(), Vec::new());
    for job in waiting {
        let fits = if failed.contains(&job.request) { None } else { nodes.free.first_fit(job.request) };
        let Some(anywhere) = fits else {
            failed.push(job.request);
            if plan.head.is_none() {
                plan.head = nodes.reservation(job, now);
                plan.stuck.extend(plan.head.is_none().then_some(job.id));
            }
            continue;
        };
        let Some(head) = &plan.head else {
            nodes.give(job, anywhere, now);
            plan.starts.push((job.id, anywhere));
            continue;
        };
        let ends_before = job.limit.zip(head.time).is_some_and(|(limit, time)| now + limit <= time);
        let block = if ends_before {
            Some(anywhere)
        } else if failed_outside.contains(&job.request) {
            None
        } else {
            let mut outside = nodes.free.clone();
            outside.take(&head.block);
            outside.first_fit(job.request)
        };
        match block {
            Some(block) => {
                nodes.give(job, block, now);
                plan.starts.push((job.id, block));
            }
            None => failed_outside.push(job.request),
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use colony_model::{Machine, Shape};
    use proptest::prelude::*;

    use super::*;

    fn empty(shape: &str) -> FreeMap {
        FreeMap::new(Machine::new(shape.parse().expect("a shape")).expect("a machine"))
    }

    fn job(id: u64, nodes: u32, limit: impl Into<Option<f64>>) -> Waiting {
        Waiting { id, request: Request::Nodes(nodes), limit: limit.into() }
    }

    fn started(plan: &Plan) -> Vec<u64> {
        plan.starts.iter().map(|(id, _)| *id).collect()
    }

    #[test]
    fn a_short_job_overtakes_one_that_waits_and_a_long_one_does_not() {
        let free = empty("4x4x2");
        let first = plan(&free, &[], &[], &[job(1, 16, 100.0), job(2, 32, 10.0)], 0.0);
        assert_eq!(started(&first), [1]);
        let holding = [Holding { block: first.starts[0].1, end: Some(100.0) }];
        let head = first.head.expect("job 2 waits");
        assert_eq!((head.id, head.time, head.block.shape().nodes()), (2, Some(100.0), 32));
        let later = [job(2, 32, 10.0), job(3, 8, 91.0), job(4, 8, None), job(5, 8, 90.0), job(6, 8, 50.0)];
        assert_eq!(started(&plan(&free, &[], &holding, &later, 10.0)), [5, 6]);
    }

    #[test]
    fn a_job_without_a_limit_overtakes_only_beside_the_reserved_nodes() {
        let free = empty("4x4x2");
        let running = plan(&free, &[], &[], &[job(1, 16, None), job(2, 8, None)], 0.0);
        let holding: Vec<Holding> =
            running.starts.iter().map(|(_, block)| Holding { block: *block, end: None }).collect();
        let next = plan(&free, &[], &holding, &[job(3, 16, None), job(4, 8, None), job(5, 8, 1.0)], 0.0);
        let head = next.head.expect("job 3 waits");
        assert_eq!(head.time, None);
        assert_eq!(started(&next), [4], "one has room beside the nodes of the first job");
        assert_eq!(head.block.overlap(next.starts[0].1), None);
    }

    #[test]
    fn a_job_that_waits_for_nodes_out_of_use_holds_nobody_up() {
        let free = empty("4x2x2");
        let cell = Block::new(free.machine(), [2, 0, 0], "2x2x2".parse().expect("a shape")).expect("a block");
        let next = plan(&free, &[cell], &[], &[job(1, 16, None), job(2, 8, None), job(3, 8, 1.0)], 0.0);
        assert_eq!((next.stuck.as_slice(), started(&next)), (&[1][..], vec![2]));
        assert_eq!(next.head.map(|head| head.id), Some(3));
        // nodes that were drained while a job has them are not given out when it ends
        let holding = [Holding { block: Block::whole(free.machine()), end: Some(5.0) }];
        assert_eq!(plan(&free, &[cell], &holding, &[job(1, 16, None)], 0.0).stuck, [1]);
    }

    /// A job of a simulation: when it comes, its request, its limit, and the share of the limit that it takes.
    type Coming = (u32, Request, u32, f64);

    fn request() -> impl Strategy<Value = Request> {
        let shapes = ["2x2x2", "4x2x2", "4x4x2", "2x8x2", "4x4x4", "8x4x4", "8x8x4", "8x8x8"];
        let shape = |text: &str| Request::Shape(text.parse::<Shape>().expect("a shape"));
        prop_oneof![(1u32..512).prop_map(Request::Nodes), prop::sample::select(shapes.map(shape).to_vec())]
    }

    fn coming() -> impl Strategy<Value = Vec<Coming>> {
        prop::collection::vec((0u32..300, request(), 1u32..100, 0.01f64..1.0), 1..60)
    }

    /// Runs all jobs, and holds what is promised at each step. Returns the time at which the last has ended.
    fn simulate(mut all: Vec<Coming>) -> Result<f64, TestCaseError> {
        all.sort_by_key(|job| job.0);
        let free = empty("8x8x8");
        let mut queue: Vec<Waiting> = Vec::new();
        let mut running: Vec<(Holding, f64)> = Vec::new();
        let mut promised: Option<Reservation> = None;
        let (mut next, mut now, mut begun) = (0, 0.0f64, 0);
        loop {
            running.retain(|(_, end)| *end > now);
            while let Some((_, request, limit, _)) = all.get(next).filter(|job| f64::from(job.0) <= now) {
                queue.push(Waiting { id: next as u64, request: *request, limit: Some(f64::from(*limit)) });
                next += 1;
            }
            let holding: Vec<Holding> = running.iter().map(|(held, _)| *held).collect();
            let decided = plan(&free, &[], &holding, &queue, now);
            prop_assert!(decided.stuck.is_empty());
            for (id, block) in &decided.starts {
                prop_assert!(running.iter().all(|(held, _)| held.block.overlap(*block).is_none()), "overlap");
                let (_, request, limit, share) = all[*id as usize];
                match request {
                    Request::Nodes(nodes) => prop_assert!(block.shape().nodes() >= nodes),
                    Request::Shape(shape) => prop_assert_eq!(block.shape().sorted(), shape.sorted()),
                }
                let end = now + f64::from(limit);
                running.push((Holding { block: *block, end: Some(end) }, now + f64::from(limit) * share));
                begun += 1;
            }
            let has_begun = |id: u64| decided.starts.iter().any(|(other, _)| *other == id);
            queue.retain(|job| !has_begun(job.id));
            prop_assert_eq!(queue.first().map(|job| job.id), decided.head.map(|head| head.id));
            if let Some(old) = promised.filter(|old| !has_begun(old.id)) {
                let head = decided.head.expect("it has not begun");
                prop_assert_eq!(head.id, old.id, "nobody becomes first before it");
                prop_assert!(head.time <= old.time, "the first job was delayed: {:?} {:?}", old, head);
                prop_assert!(old.time > Some(now), "it should have begun: {:?}", old);
            }
            promised = decided.head;
            let ends = running.iter().map(|(_, end)| *end);
            let comes = all.get(next).map(|job| f64::from(job.0));
            match ends.chain(comes).min_by(f64::total_cmp) {
                Some(time) => now = time,
                None => break,
            }
        }
        prop_assert_eq!((begun, queue.len()), (all.len(), 0), "every job has begun");
        Ok(now)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_first_job_is_never_delayed_no_job_starves_and_no_nodes_are_given_twice(all in coming()) {
            simulate(all)?;
        }

        #[test]
        fn without_limits_no_job_takes_nodes_that_the_first_one_waits_for(
            all in prop::collection::vec(request(), 1..40),
        ) {
            let free = empty("8x8x8");
            let queue: Vec<Waiting> =
                (0..).zip(all).map(|(id, request)| Waiting { id, request, limit: None }).collect();
            let decided = plan(&free, &[], &[], &queue, 0.0);
            let Some(head) = decided.head else { return Ok(()) };
            for (id, block) in decided.starts {
                prop_assert!(id < head.id || head.block.overlap(block).is_none());
            }
        }
    }
}
