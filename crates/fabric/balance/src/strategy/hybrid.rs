// SPDX-License-Identifier: MIT OR Apache-2.0
use serde::Deserialize;

use super::domain::Domain;
use super::greedy::{fixed_times_s, ordered};
use super::options::{Checked, tolerance_problem};
use super::{Effort, Outcome, Strategy};
use crate::database::Database;
use crate::error::BalanceError;
use crate::generate::Generator;
use crate::topology::Topology;

/// A tree of domains: HybridLB of the Colony report (HPC-Colony progress report 2006, section 2.4; Zheng 2005). At level 1,
/// one PE of each domain balances the domain's PEs greedily. At level 2, the root sees nothing but the sum of each
/// domain, and refines: domains with too much give objects to others. No PE holds more than a domain's load database.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Hybrid {
    /// PEs of a domain, at most 65,536; the report has 1,024.
    pub domain: u32,
    /// Load of a domain that the root allows, over its share.
    pub tolerance: f64,
    /// True if objects that exchange messages are put together where loads allow it.
    pub communication: bool,
}

impl Default for Hybrid {
    fn default() -> Self {
        Self { domain: 1024, tolerance: 1.001, communication: true }
    }
}

impl Checked for Hybrid {
    fn problem(&self) -> Option<String> {
        let domain = self.domain;
        let problem = format!("the domain is {domain}; it must be a number from 1 to {}", Domain::MAX_PES);
        (domain == 0 || domain > Domain::MAX_PES)
            .then_some(problem)
            .or_else(|| tolerance_problem(self.tolerance))
    }
}

/// Loads of a domain's PEs and objects, from wherever they are.
trait Source {
    fn pes(&self) -> u32;

    /// The PE's time without the objects that can move, in seconds, and its speed.
    fn pe(&self, pe: u32) -> (f64, f64);

    /// Calls `each` with the number, PE and load of every object that can move, of these PEs, in the order of PEs.
    fn objects(&self, pes: std::ops::Range<u32>, each: impl FnMut(u32, u32, f64));

    /// Calls `each` with every pair of objects that exchange messages and are both on these PEs.
    fn pairs(&self, pes: std::ops::Range<u32>, each: impl FnMut(u32, u32, f32));
}

/// A domain as the root sees it: 32 bytes.
#[derive(Clone, Copy)]
struct Summary {
    speed: f64,
    /// Speed times floors.
    fixed: f64,
    work: f64,
    /// Work beyond the share, or below it.
    surplus: f64,
}

/// Work that one domain gives another.
struct Transfer {
    from: u32,
    to: u32,
    work: f64,
}

/// The effort of a run of the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TreeEffort {
    /// Bytes of load database on the PE that has most of it.
    pub database_bytes_one_pe: u64,
    /// Bytes of the root's database: summaries of the domains.
    pub root_bytes: u64,
    /// Number of domains.
    pub domains: u32,
    /// Objects that the root moved from one domain to another.
    pub between_domains: u64,
    /// Step time of the slowest PE over the ideal one, afterwards.
    pub imbalance: f64,
    /// Messages up and down the tree.
    pub messages: u64,
}

impl Hybrid {
    fn range(&self, domain: u32, pes: u32) -> std::ops::Range<u32> {
        domain * self.domain..(domain + 1).saturating_mul(self.domain).min(pes)
    }

    /// Balances a generated database domain by domain: in the memory of one domain, however many PEs there are.
    #[must_use]
    pub fn balance_generated(&self, generator: &Generator) -> TreeEffort {
        self.run(generator, |_, _| ()).0
    }

    /// Returns the effort, and the step time of each PE. Passes each decision to `decide`, as object and PE.
    fn run(&self, source: &impl Source, mut decide: impl FnMut(u32, u32)) -> (TreeEffort, Vec<f64>) {
        let pes = source.pes();
        let domains = pes.div_ceil(self.domain);
        let mut summaries: Vec<Summary> = (0..domains).map(|d| self.summary(source, d)).collect();
        let transfers = self.transfers(&mut summaries);
        let root_bytes = (size_of_val(&summaries[..]) + size_of_val(&transfers[..])) as u64;
        let (departures, mut arrivals) = self.departures(source, &transfers);
        let mut effort =
            TreeEffort { root_bytes, domains, messages: 2 * u64::from(pes - 1), ..TreeEffort::default() };
        effort.between_domains = departures.len() as u64;
        arrivals.sort_unstable_by_key(|a| (a.0, a.1));
        let mut times_s: Vec<f64> = (0..pes).map(|pe| source.pe(pe).0).collect();
        let (mut domain, mut numbers, mut pairs) = (Domain::default(), Vec::new(), Vec::new());
        for d in 0..domains {
            let range = self.range(d, pes);
            self.collect(source, range.clone(), &departures, &mut domain, &mut numbers, &mut pairs);
            let of_domain = arrivals.partition_point(|a| a.0 < d)..arrivals.partition_point(|a| a.0 <= d);
            for (i, &(_, number, load)) in arrivals[of_domain].iter().enumerate() {
                // where it was is not of this domain: it begins anywhere, and greedy moves it
                domain.push_object(i as u32 % (range.end - range.start), load);
                numbers.push((number, load));
            }
            domain.set_links(&mut pairs);
            domain.greedy();
            effort.database_bytes_one_pe = effort.database_bytes_one_pe.max(domain.memory_bytes());
            for (&(number, load), &pe) in numbers.iter().zip(domain.decisions()) {
                let pe = range.start + u32::from(pe);
                times_s[pe as usize] += load / source.pe(pe).1;
                decide(number, pe);
            }
        }
        effort.database_bytes_one_pe = effort.database_bytes_one_pe.max(root_bytes);
        let sums = |f: fn(&Summary) -> f64| summaries.iter().map(f).sum::<f64>();
        let floor = (0..pes).map(|pe| source.pe(pe).0).fold(0.0, f64::max);
        let ideal_s = (sums(|s| s.fixed + s.work) / sums(|s| s.speed)).max(floor);
        let max_s = times_s.iter().copied().fold(0.0, f64::max);
        effort.imbalance = if ideal_s > 0.0 { max_s / ideal_s } else { 1.0 };
        (effort, times_s)
    }

    fn summary(&self, source: &impl Source, domain: u32) -> Summary {
        let range = self.range(domain, source.pes());
        let mut summary = Summary { speed: 0.0, fixed: 0.0, work: 0.0, surplus: 0.0 };
        for (floor, speed) in range.clone().map(|pe| source.pe(pe)) {
            summary.speed += speed;
            summary.fixed += floor * speed;
        }
        source.objects(range, |_, _, load| summary.work += load);
        summary
    }

    /// The root's refinement: domains above their share, the fullest first, give to those with most room.
    fn transfers(&self, summaries: &mut [Summary]) -> Vec<Transfer> {
        let sums = |f: fn(&Summary) -> f64| summaries.iter().map(f).sum::<f64>();
        let level_s = sums(|s| s.fixed + s.work) / sums(|s| s.speed);
        let mut allowed = 0.0;
        for s in summaries.iter_mut() {
            // a domain can give no more than its movable objects
            s.surplus = (s.fixed + s.work - level_s * s.speed).min(s.work);
            allowed += (self.tolerance - 1.0) * level_s * s.speed;
        }
        allowed /= summaries.len() as f64;
        let sorted = |keep: &dyn Fn(f64) -> bool| {
            let mut chosen: Vec<(f64, u32)> =
                summaries.iter().zip(0..).map(|(s, d)| (s.surplus, d)).filter(|(s, _)| keep(*s)).collect();
            chosen.sort_unstable_by(|a, b| b.0.abs().total_cmp(&a.0.abs()).then(a.1.cmp(&b.1)));
            chosen
        };
        let mut takers = sorted(&|s| s < 0.0).into_iter();
        let mut taker = takers.next();
        let mut transfers = Vec::new();
        for (mut surplus, from) in sorted(&|s| s > allowed) {
            while surplus > allowed / 2.0 {
                let Some((room, to)) = taker.as_mut() else { return transfers };
                let work = surplus.min(-*room);
                if work > 0.0 {
                    transfers.push(Transfer { from, to: *to, work });
                }
                surplus -= work;
                *room += work;
                if *room >= 0.0 {
                    taker = takers.next();
                }
            }
        }
        transfers
    }

    /// The objects that leave their domains, sorted, and their new places: domain, object, load. Each domain chooses its
    /// heaviest objects that fit into the load that it has to give.
    fn departures(&self, source: &impl Source, transfers: &[Transfer]) -> (Vec<u32>, Vec<(u32, u32, f64)>) {
        let mut arrivals = Vec::new();
        for of_one in transfers.chunk_by(|a, b| a.from == b.from) {
            let mut objects = Vec::new();
            source.objects(self.range(of_one[0].from, source.pes()), |number, _, load| {
                objects.push((load, number))
            });
            objects.sort_unstable_by_key(|&(load, number)| (!ordered(load), number));
            let mut given = vec![false; objects.len()];
            for transfer in of_one {
                let mut left = transfer.work;
                let mut at = objects.partition_point(|(load, _)| *load > left);
                while at < objects.len() && objects[at].0 > 0.0 {
                    if !given[at] && objects[at].0 <= left {
                        given[at] = true;
                        left -= objects[at].0;
                        arrivals.push((transfer.to, objects[at].1, objects[at].0));
                        at = at.max(objects.partition_point(|(load, _)| *load > left));
                    } else {
                        at += 1;
                    }
                }
            }
        }
        let mut departures: Vec<u32> = arrivals.iter().map(|a| a.1).collect();
        departures.sort_unstable();
        (departures, arrivals)
    }

    /// Fills a domain's database with the objects that stay in it.
    fn collect(
        &self,
        source: &impl Source,
        range: std::ops::Range<u32>,
        departures: &[u32],
        domain: &mut Domain,
        numbers: &mut Vec<(u32, f64)>,
        pairs: &mut Vec<(u32, u32, f32)>,
    ) {
        domain.clear();
        numbers.clear();
        pairs.clear();
        for (floor, speed) in range.clone().map(|pe| source.pe(pe)) {
            domain.push_pe(floor, speed);
        }
        source.objects(range.clone(), |number, pe, load| {
            if departures.binary_search(&number).is_err() {
                domain.push_object(pe - range.start, load);
                numbers.push((number, load));
            }
        });
        if !self.communication {
            return;
        }
        // within the domain, objects have numbers of their own
        let mut local: Vec<(u32, u32)> = numbers.iter().zip(0..).map(|(n, i)| (n.0, i)).collect();
        local.sort_unstable();
        let dense = local.windows(2).all(|w| w[1].0 == w[0].0 + 1);
        let find = |number: u32| match dense {
            true => local.get(number.checked_sub(local.first()?.0)? as usize).map(|l| l.1),
            false => local.binary_search_by_key(&number, |l| l.0).ok().map(|at| local[at].1),
        };
        source.pairs(range, |a, b, bytes| {
            if let (Some(a), Some(b)) = (find(a), find(b)) {
                pairs.push((a, b, bytes));
            }
        });
    }
}

/// A database with its objects and edges in the order of domains.
struct Grouped<'a> {
    database: &'a Database,
    floors_s: Vec<f64>,
    starts: Vec<u32>,
    numbers: Vec<u32>,
    domain: u32,
    edge_starts: Vec<u32>,
    edges: Vec<u32>,
}

impl<'a> Grouped<'a> {
    fn new(database: &'a Database, domain: u32, communication: bool) -> Self {
        let all: Vec<u32> = (0..database.pes().len() as u32).collect();
        let (starts, numbers) = super::shed::Groups::of(database, database.placement(), &all).into_parts();
        let domains = database.pes().len().div_ceil(domain as usize);
        let mut edge_starts = vec![0u32; domains + 1];
        let of = |number: u32| database.placement()[number as usize] / domain;
        let inner = || {
            let edges = database.edges().iter().zip(0u32..).filter(|_| communication);
            edges.filter(move |(e, _)| of(e.from) == of(e.to)).map(move |(e, i)| (of(e.from) as usize, i))
        };
        inner().for_each(|(d, _)| edge_starts[d + 1] += 1);
        (1..=domains).for_each(|i| edge_starts[i] += edge_starts[i - 1]);
        let mut edges = vec![0u32; edge_starts[domains] as usize];
        let mut next = edge_starts.clone();
        for (d, i) in inner() {
            edges[next[d] as usize] = i;
            next[d] += 1;
        }
        let floors_s = fixed_times_s(database);
        Self { database, floors_s, starts, numbers, domain, edge_starts, edges }
    }
}

impl Source for Grouped<'_> {
    fn pes(&self) -> u32 {
        self.database.pes().len() as u32
    }

    fn pe(&self, pe: u32) -> (f64, f64) {
        (self.floors_s[pe as usize], self.database.pes()[pe as usize].speed)
    }

    fn objects(&self, pes: std::ops::Range<u32>, mut each: impl FnMut(u32, u32, f64)) {
        for pe in pes {
            let own = self.starts[pe as usize] as usize..self.starts[pe as usize + 1] as usize;
            self.numbers[own].iter().for_each(|&n| each(n, pe, self.database.loads_s()[n as usize]));
        }
    }

    fn pairs(&self, pes: std::ops::Range<u32>, mut each: impl FnMut(u32, u32, f32)) {
        let d = (pes.start / self.domain) as usize;
        let own = self.edge_starts[d] as usize..self.edge_starts[d + 1] as usize;
        for &i in &self.edges[own] {
            let edge = self.database.edges()[i as usize];
            each(edge.from, edge.to, edge.bytes as f32);
        }
    }
}

impl Source for Generator {
    fn pes(&self) -> u32 {
        Self::pes(self)
    }

    fn pe(&self, _: u32) -> (f64, f64) {
        (0.0, 1.0)
    }

    fn objects(&self, pes: std::ops::Range<u32>, mut each: impl FnMut(u32, u32, f64)) {
        for number in self.first_object(pes.start)..self.first_object(pes.end) {
            let object = self.object(number);
            each(number, object.pe, object.load_s);
        }
    }

    fn pairs(&self, pes: std::ops::Range<u32>, mut each: impl FnMut(u32, u32, f32)) {
        let own = self.first_object(pes.start)..self.first_object(pes.end);
        for edge in own.clone().flat_map(|n| self.edges(n)).filter(|e| own.contains(&e.to)) {
            each(edge.from, edge.to, edge.bytes as f32);
        }
    }
}

impl Strategy for Hybrid {
    fn name(&self) -> &'static str {
        "hybrid"
    }

    fn uses_communication(&self) -> bool {
        self.communication
    }

    fn assign(&self, database: &Database, _: &Topology) -> Result<Outcome, BalanceError> {
        let mut placement = database.placement().to_vec();
        let source = Grouped::new(database, self.domain, self.communication);
        let (tree, _) = self.run(&source, |number, pe| placement[number as usize] = pe);
        let TreeEffort { database_bytes_one_pe, messages, .. } = tree;
        Ok(Outcome { placement, effort: Effort { database_bytes_one_pe, messages } })
    }
}
