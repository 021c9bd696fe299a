// SPDX-License-Identifier: MIT OR Apache-2.0
//! The points of a scenario: one node count, one scheduler, one value of everything that is swept.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use toml::Value;

use super::{Scenario, SchedulerSpec, Settings, SpecError, Traces};
use crate::node::Node;
use crate::simulate::Simulation;

/// One simulation of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Nodes.
    pub nodes: u32,
    /// The scheduler.
    pub scheduler: SchedulerSpec,
    /// The values that the sweep set for it.
    #[serde(default, skip_serializing_if = "Settings::is_empty")]
    pub set: Settings,
    /// The scenario with these values.
    #[serde(skip)]
    pub scenario: Arc<Scenario>,
}

impl Scenario {
    /// All its points: by node count, then by scheduler, then by what is swept. A value that does not concern
    /// a point's scheduler makes no further point.
    ///
    /// # Errors
    /// [`SpecError::Value`] where the sweep names what is not there, or makes a scenario that makes no sense.
    pub fn points(&self) -> Result<Vec<Point>, SpecError> {
        let sizes =
            [self.nodes.len(), self.schedulers.len()].into_iter().chain(self.sweep.values().map(Vec::len));
        let count = sizes.fold(1usize, |n, size| n.saturating_mul(size));
        if count > Self::MOST_POINTS {
            let fault = format!("{count} combinations are more than {}", Self::MOST_POINTS);
            return Err(SpecError::value("sweep", fault));
        }
        let cases = self.cases()?;
        let (most_nodes, most_schedulers) =
            cases.iter().fold((0, 0), |(n, s), (_, c)| (n.max(c.nodes.len()), s.max(c.schedulers.len())));
        let mut points: Vec<Point> = Vec::with_capacity(count);
        for n in 0..most_nodes {
            for s in 0..most_schedulers {
                let begun = points.len();
                for (set, scenario) in &cases {
                    let (Some(&nodes), Some(scheduler)) = (scenario.nodes.get(n), scenario.schedulers.get(s))
                    else {
                        continue;
                    };
                    let concerns = |path: &String| concerns(path, self, scheduler, s);
                    let set =
                        set.iter().filter(|(path, _)| concerns(path)).map(|(p, v)| (p.clone(), v.clone()));
                    let point = Point {
                        nodes,
                        scheduler: scheduler.clone(),
                        set: set.collect(),
                        scenario: Arc::clone(scenario),
                    };
                    let same =
                        |p: &Point| (p.nodes, &p.scheduler, &p.set) == (nodes, &point.scheduler, &point.set);
                    if !points[begun..].iter().any(same) {
                        points.push(point);
                    }
                }
            }
        }
        Ok(points)
    }

    /// The scenario for each combination of the values swept.
    fn cases(&self) -> Result<Vec<(Settings, Arc<Self>)>, SpecError> {
        let one = Self { sweep: std::collections::BTreeMap::new(), ..self.clone() };
        let mut cases = vec![Settings::new()];
        for (path, values) in &self.sweep {
            if values.is_empty() {
                return Err(SpecError::value(format!("sweep.{path}"), "give one value at least"));
            }
            let with = |case: &Settings, value: &Value| {
                let mut case = case.clone();
                case.insert(path.clone(), value.clone());
                case
            };
            cases = cases
                .iter()
                .flat_map(|case| values.iter().map(|v| with(case, v)).collect::<Vec<_>>())
                .collect();
        }
        if self.sweep.is_empty() {
            return Ok(vec![(Settings::new(), Arc::new(one))]);
        }
        let table = toml::Table::try_from(&one).map_err(|_| super::unwritable())?;
        cases.into_iter().map(|set| Ok((set.clone(), Arc::new(Self::with(&table, &set)?)))).collect()
    }

    /// The scenario `table` with the values of `set`.
    fn with(table: &toml::Table, set: &Settings) -> Result<Self, SpecError> {
        let mut tree = Value::Table(table.clone());
        for (path, value) in set {
            let parts: Vec<&str> = path.split('.').collect();
            put(&mut tree, &parts, value)
                .map_err(|fault| SpecError::value(format!("sweep.{path}"), fault))?;
        }
        let made = tree.try_into().map_err(|e: toml::de::Error| super::plain(e.message(), None));
        let checked = made.and_then(|scenario: Self| match scenario.check() {
            Ok(()) => Ok(scenario),
            Err(e) => Err(e.to_string()),
        });
        checked.map_err(|fault| {
            let one = |(path, value): (&String, &Value)| Settings::from([(path.clone(), value.clone())]);
            let place = match set.keys().next() {
                Some(path) if set.len() == 1 => format!("sweep.{path}"),
                _ => match set.iter().find_map(|value| Self::with(table, &one(value)).err()) {
                    // a value that is wrong by itself
                    Some(alone) => return alone,
                    None => "sweep".into(),
                },
            };
            let tried: Vec<String> = set.iter().map(|(p, v)| format!("{p} = {v}")).collect();
            SpecError::value(place, format!("with {}: {fault}", tried.join(", ")))
        })
    }
}

/// True if the value at `path` concerns `scheduler`, number `number` of the scenario.
fn concerns(path: &str, scenario: &Scenario, scheduler: &SchedulerSpec, number: usize) -> bool {
    match path.strip_prefix("schedulers.").and_then(|rest| rest.split('.').next()) {
        None => true,
        Some(part) => match part.parse::<usize>() {
            Ok(n) => n == number || n >= scenario.schedulers.len(),
            Err(_) => part == scheduler.name(),
        },
    }
}

/// Puts `value` at `path`. A part of it is a key, the number of an element, or what an element is called:
/// `schedulers.coordinated.period`, `noise.daemon.leibniz.mean`.
fn put(tree: &mut Value, path: &[&str], value: &Value) -> Result<(), String> {
    let Some((part, rest)) = path.split_first() else {
        *tree = value.clone();
        return Ok(());
    };
    match tree {
        Value::Table(table) if rest.is_empty() => {
            table.insert((*part).into(), value.clone());
            Ok(())
        }
        Value::Table(table) => match table.get_mut(*part) {
            Some(inner) => put(inner, rest, value),
            None => {
                let keys = table.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                Err(format!("there is no `{part}` in the scenario; there are: {keys}"))
            }
        },
        Value::Array(elements) => {
            if let Some(element) = part.parse::<usize>().ok().and_then(|i| elements.get_mut(i)) {
                return put(element, rest, value);
            }
            let mut found = false;
            for element in elements {
                let Value::Table(t) = element else { continue };
                if t.get("name").and_then(Value::as_str) == Some(part) {
                    put(element, rest, value)?;
                } else if t.contains_key(*part) {
                    put(element, path, value)?;
                } else {
                    continue;
                }
                found = true;
            }
            if found { Ok(()) } else { Err(format!("nothing in that list is called `{part}`")) }
        }
        other => Err(format!("`{part}` is looked for in {other}, which has no parts")),
    }
}

impl Point {
    /// The simulation of this point.
    ///
    /// # Errors
    /// [`SpecError::Trace`] for a trace that is not among `traces`, else as [`Scenario::check`].
    pub fn simulation(&self, traces: &Traces) -> Result<Simulation, SpecError> {
        let scenario = &self.scenario;
        let machine = scenario.machine()?;
        let layout = machine.layout(self.nodes)?;
        let program = scenario.program.program(layout.ranks())?;
        let mut sources = Vec::new();
        for (i, source) in (0u32..).zip(&scenario.noise) {
            let found = source.sources(i, machine.ranks_per_node, traces);
            sources.extend(found.map_err(|e| e.inside(&format!("noise.{i}")))?);
        }
        let node = Node { sources, scheduler: self.scheduler.scheduler()? };
        node.check(layout)?;
        Ok(Simulation {
            program,
            machine,
            node,
            nodes: self.nodes,
            begin_ns: scenario.begin_ns,
            repetitions: scenario.repetitions,
            seed: scenario.seed,
        })
    }
}
