// SPDX-License-Identifier: MIT OR Apache-2.0
//! The noise of a scenario: models and traces.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::SpecError;
use crate::source::{Class, Dist, MeasuredSource, Model, Noise as _, Phase, Placement, Source, Trace};
use crate::{CpuNoise, NodeNoise, SimError};

/// A source of noise on every node: exactly one of `trace`, `traces`, `model`, `leibniz`, `periodic` and `poisson`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SourceSpec {
    /// Name in results.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// File of a trace, replayed by every node from another instant: all its sources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// Files of traces, one of which each node replays, any with equal probability.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub traces: Vec<String>,
    /// Sources of the trace to leave out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub leave_out: Vec<String>,
    /// Any model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Model>,
    /// The noise daemon of the Colony report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leibniz: Option<Leibniz>,
    /// A detour in regular intervals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub periodic: Option<Repeated>,
    /// A detour at any instant with equal probability.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub poisson: Option<Repeated>,
    /// The class of the source. Default: `task`; for a trace, the class that the trace gives each of its sources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// Phase of the nodes.
    #[serde(skip_serializing_if = "is_default")]
    pub phase: Phase,
    /// The cores that have it.
    #[serde(skip_serializing_if = "is_default")]
    pub placement: Placement,
}

fn is_default<T: Default + PartialEq>(x: &T) -> bool {
    *x == T::default()
}

/// Calculations of random length, at most twice the mean, and a sleep after each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Leibniz {
    /// Mean calculation.
    #[serde(with = "colony_time::notation::ns", rename = "mean")]
    pub mean_ns: u64,
    /// Sleep.
    #[serde(with = "colony_time::notation::ns", rename = "sleep")]
    pub sleep_ns: u64,
}

/// Detours of one length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repeated {
    /// From one to the next; the mean, where they are random.
    #[serde(with = "colony_time::notation::ns", rename = "every")]
    pub every_ns: u64,
    /// Length of each.
    #[serde(with = "colony_time::notation::ns", rename = "length")]
    pub length_ns: u64,
}

/// The noise measured on one node, by source.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The sources, on one timeline.
    pub sources: Vec<MeasuredSource>,
}

/// Traces by the names of their files.
pub type Traces = BTreeMap<String, Arc<Measured>>;

impl Measured {
    /// A number that differs between different traces: FNV-1a over all their figures, and over the classes that
    /// overrule names.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        let mut add = |bytes: &[u8]| {
            for b in bytes {
                hash = (hash ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        for source in &self.sources {
            add(source.name.as_bytes());
            if source.overrules_name() {
                add(&[0]);
                add(source.class.name().as_bytes());
            }
            for cpu in source.noise.cpus() {
                add(&cpu.span_ns().to_le_bytes());
                for d in cpu.detours() {
                    add(&d.start_ns.to_le_bytes());
                    add(&d.duration_ns.to_le_bytes());
                }
            }
        }
        hash
    }

    /// The same without the sources that `leave_out` names.
    #[must_use]
    pub fn without(&self, leave_out: &[String]) -> Self {
        let kept = self.sources.iter().filter(|s| !leave_out.contains(&s.name)).cloned();
        Self { sources: kept.collect() }
    }

    fn has(&self, source: &str) -> bool {
        self.sources.iter().any(|s| s.name == source)
    }
}

impl Measured {
    /// The sources as they replay: one for each class, for what is in one class is dealt with alike. They keep
    /// their places in time to one another, as part `group` of all that is measured.
    ///
    /// # Errors
    /// [`SimError`] where the sources were not observed together, or leave a CPU no time.
    pub fn sources(&self, group: u32) -> Result<Vec<Source>, SimError> {
        Self::sources_of(&[self], group)
    }

    /// The same of several nodes measured, of which every simulated node replays one, any with equal
    /// probability.
    ///
    /// # Errors
    /// As [`Measured::sources`].
    pub fn sources_of(nodes: &[&Self], group: u32) -> Result<Vec<Source>, SimError> {
        let mut merged = Vec::new();
        for class in [Class::Local, Class::Irq, Class::Task] {
            let of_class: Vec<Option<NodeNoise>> =
                nodes.iter().map(|n| n.merged(|c| c == class)).collect::<Result<_, _>>()?;
            if of_class.iter().all(Option::is_none) {
                continue;
            }
            // a node without any is quiet
            let noise = of_class.into_iter().map(|n| n.unwrap_or_else(NodeNoise::quiet)).collect();
            let name = format!("trace:{class:?}").to_lowercase();
            merged.push(Source::new(name, Trace::of_nodes(noise)?).class(class).group(group));
        }
        Ok(merged)
    }

    /// All sources as one, for a scheduler that treats all alike: less to simulate.
    ///
    /// # Errors
    /// As [`Measured::sources`].
    pub(crate) fn one_source(nodes: &[&Self], group: u32) -> Result<Vec<Source>, SimError> {
        let merged = nodes.iter().map(|n| n.merged(|_| true)).collect::<Result<Vec<_>, _>>()?;
        if merged.iter().all(Option::is_none) {
            return Ok(Vec::new());
        }
        let noise = merged.into_iter().map(|n| n.unwrap_or_else(NodeNoise::quiet)).collect();
        Ok(vec![Source::new("trace", Trace::of_nodes(noise)?).group(group)])
    }

    /// All of some classes together; `None` where there is none.
    fn merged(&self, of: impl Fn(Class) -> bool) -> Result<Option<NodeNoise>, SimError> {
        let of_class = || self.sources.iter().filter(|s| of(s.class)).map(|s| &s.noise);
        let Some(first) = of_class().next() else { return Ok(None) };
        let cpus = (0..first.cpus().len()).map(|c| {
            let all = of_class().filter_map(|noise| noise.cpus().get(c));
            CpuNoise::new(first.span_ns(), all.flat_map(|cpu| cpu.detours().iter().copied()))
        });
        NodeNoise::new(cpus.collect::<Result<_, _>>()?).map(Some)
    }

    /// CPUs measured.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.sources.first().map_or(0, |s| s.noise.cpus().len())
    }

    /// The node as nodes of `cores` CPUs, which together have all of its noise: for simulations of fewer
    /// cores than were measured. The last begins again with the first CPU where they do not come out even.
    ///
    /// # Errors
    /// [`SimError`] where sources were not observed together.
    pub fn in_parts(&self, cores: usize) -> Result<Vec<Self>, SimError> {
        let cpus = self.cpus();
        if cores == 0 || cores >= cpus {
            return Ok(vec![self.clone()]);
        }
        let part = |first: usize| {
            let of = |noise: &NodeNoise| {
                NodeNoise::new((first..first + cores).map(|c| noise.cpus()[c % cpus].clone()).collect())
            };
            let source = |s: &MeasuredSource| Ok(MeasuredSource { noise: of(&s.noise)?, ..s.clone() });
            let sources = self.sources.iter().map(source);
            Ok(Self { sources: sources.collect::<Result<_, SimError>>()? })
        };
        (0..cpus).step_by(cores).map(part).collect()
    }
}

impl SourceSpec {
    /// Files of its traces.
    pub fn files(&self) -> impl Iterator<Item = &String> {
        self.trace.iter().chain(&self.traces)
    }

    /// The model, with what it is called unless it has a name.
    fn given_model(&self) -> Option<(&'static str, Model)> {
        let model = self.model.as_ref().map(|m| ("model", m.clone()));
        let leibniz =
            || Some(("leibniz", self.leibniz.as_ref().map(|l| Model::leibniz(l.mean_ns, l.sleep_ns))?));
        let periodic =
            || Some(("periodic", self.periodic.as_ref().map(|p| Model::periodic(p.every_ns, p.length_ns))?));
        let poisson = || {
            let model = |p: &Repeated| Model::poisson(p.every_ns as f64, Dist::Fixed(p.length_ns));
            Some(("poisson", self.poisson.as_ref().map(model)?))
        };
        model.or_else(leibniz).or_else(periodic).or_else(poisson)
    }

    pub(super) fn check(&self) -> Result<(), SpecError> {
        let given = [
            ("trace", self.trace.is_some()),
            ("traces", !self.traces.is_empty()),
            ("model", self.model.is_some()),
            ("leibniz", self.leibniz.is_some()),
            ("periodic", self.periodic.is_some()),
            ("poisson", self.poisson.is_some()),
        ];
        let mut given = given.into_iter().filter_map(|(name, given)| given.then_some(name));
        let Some(one) = given.next() else {
            return Err(SpecError::value(
                "name",
                "noise of what? give a trace, traces, a model, leibniz, periodic or poisson",
            ));
        };
        if let Some(other) = given.next() {
            return Err(SpecError::value(
                other,
                format!("a source has one origin, this one has `{one}` too"),
            ));
        }
        let traced = matches!(one, "trace" | "traces");
        if traced && self.placement != Placement::default() {
            return Err(SpecError::value("placement", "a trace says itself which CPU had which noise"));
        }
        if !traced && !self.leave_out.is_empty() {
            return Err(SpecError::value("leave_out", "only a trace has sources to leave out"));
        }
        match self.given_model() {
            Some((_, model)) => model.check().map_err(|e| SpecError::value(one, e)),
            None => Ok(()),
        }
    }

    /// The sources themselves.
    /// Number `number` of the scenario: what was measured together stays together.
    /// On nodes of fewer `cores` than a trace has CPUs, each node replays as many of the CPUs, any with equal probability.
    pub(super) fn sources(&self, number: u32, cores: u32, traces: &Traces) -> Result<Vec<Source>, SpecError> {
        self.check()?;
        if let Some((kind, model)) = self.given_model() {
            let name = self.name.clone().unwrap_or_else(|| kind.into());
            let class = self.class.unwrap_or_default();
            let source = Source::new(name, model).class(class).phase(self.phase).placement(self.placement);
            return Ok(vec![source]);
        }
        let measured = self
            .files()
            .map(|file| traces.get(file).ok_or_else(|| SpecError::Trace(file.clone())))
            .collect::<Result<Vec<_>, _>>()?;
        if let Some(name) = self.leave_out.iter().find(|n| !measured.iter().any(|m| m.has(n))) {
            let mut names: Vec<&str> =
                measured.iter().flat_map(|m| &m.sources).map(|s| s.name.as_str()).collect();
            names.sort_unstable();
            names.dedup();
            let names = names.join(", ");
            let fault = format!("the trace has no source `{name}`; it has: {names}");
            return Err(SpecError::value("leave_out", fault));
        }
        let kept = measured.iter().map(|m| m.without(&self.leave_out).in_parts(cores as usize));
        let kept: Vec<Measured> = kept.collect::<Result<Vec<_>, _>>()?.concat();
        let kept: Vec<&Measured> = kept.iter().collect();
        let sources = Measured::sources_of(&kept, number)?.into_iter().map(|s| match self.class {
            Some(class) => s.class(class),
            None => s,
        });
        Ok(sources.map(|s| s.phase(self.phase)).collect())
    }
}
