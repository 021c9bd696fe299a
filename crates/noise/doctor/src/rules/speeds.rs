// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPUs of unequal speed: performance and efficiency cores, and cores with different highest frequencies.

use std::collections::BTreeMap;

use colony_node::cpu::CpuSet;

use crate::finding::{Finding, Level};
use crate::node::Node;
use crate::outcome::{Checked, Outcome};
use crate::root::Unread;

const CPU: &str = "/sys/devices/system/cpu";

/// Kinds of cores of Intel's hybrid processors (`intel_pmu_init`, `arch/x86/events/intel/core.c`).
const KINDS: [(&str, &str); 3] = [
    ("/sys/devices/cpu_core/cpus", "performance cores"),
    ("/sys/devices/cpu_atom/cpus", "efficiency cores"),
    ("/sys/devices/cpu_lowpower/cpus", "low-power cores"),
];

/// Files in the folder of each CPU whose number grows with its speed, the most telling first.
const FIGURES: [Figure; 3] = [
    // relative to the fastest CPU, 1024 (Documentation/devicetree/bindings/cpu/cpu-capacity.txt; on x86 since Linux 6.12)
    Figure { file: "cpu_capacity", level: Level::Medium },
    // of one core while the others idle
    Figure { file: "acpi_cppc/highest_perf", level: Level::Low },
    Figure { file: "cpufreq/cpuinfo_max_freq", level: Level::Low },
];

/// Most classes that are named.
const NAMED: usize = 6;

struct Figure {
    file: &'static str,
    level: Level,
}

/// CPUs of the job that are alike.
struct Class {
    file: String,
    value: String,
    cpus: CpuSet,
    /// The figure of the file; `None` if the class is a name.
    speed: Option<u64>,
}

/// All CPUs of a bulk-synchronous job wait for the slowest one in each iteration.
pub(super) fn unequal(node: &Node) -> Checked {
    let kinds = kinds(node)?;
    if kinds.len() > 1 {
        return report(Level::Medium, kinds).into();
    }
    let mut same = None;
    for figure in FIGURES {
        let Some(mut classes) = classes(node, figure.file)? else { continue };
        if classes.len() > 1 {
            return report(figure.level, classes).into();
        }
        same = same.or_else(|| classes.pop());
    }
    match same {
        Some(class) => {
            Outcome::passed(class.file, format!("{}, the same on each of {}", class.value, node.job.named()))
        }
        None => Outcome::undecided(node.why_missing(
            &format!("{CPU}/cpu*/{}", FIGURES[0].file),
            "the kernel knows neither capacity nor highest performance nor highest frequency of its CPUs",
        )),
    }
}

/// The kinds of cores that the job has.
fn kinds(node: &Node) -> Result<Vec<Class>, Unread> {
    let (mut found, mut in_kinds) = (Vec::new(), CpuSet::default());
    for (file, name) in KINDS {
        let cpus = match node.cpus(file) {
            Err(e) if e.is_missing() => continue,
            other => other?,
        };
        if cpus.iter().any(|cpu| in_kinds.contains(cpu)) {
            return Err(Unread::value(file, &format!("{cpus}, also of another kind of core")));
        }
        in_kinds = in_kinds.iter().chain(cpus.iter()).collect();
        let cpus = node.hit(&cpus);
        if !cpus.is_empty() {
            found.push(Class {
                file: file.into(),
                value: format!("{name}: {}", cpus.named()),
                cpus,
                speed: None,
            });
        }
    }
    Ok(found)
}

/// The job's CPUs by the number in a file, the fastest first; `None` if no CPU has the file.
fn classes(node: &Node, file: &str) -> Result<Option<Vec<Class>>, Unread> {
    let path = |cpu: usize| format!("{CPU}/cpu{cpu}/{file}");
    let mut by_speed: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    let mut missing = None;
    for cpu in node.job.iter() {
        let number = match node.root.number(&path(cpu)) {
            Err(e) if e.is_missing() => {
                missing.get_or_insert(e);
                continue;
            }
            other => other?,
        };
        // a CPU without any speed does not run: firmware that knows nothing writes 0
        let speed = u64::try_from(number).ok().filter(|&speed| speed > 0);
        let speed = speed.ok_or_else(|| Unread::value(&path(cpu), &number.to_string()))?;
        by_speed.entry(speed).or_default().push(cpu);
    }
    match (missing, by_speed.is_empty()) {
        (Some(_), true) => return Ok(None),
        // those of some CPUs say nothing about the others
        (Some(missing), false) => return Err(missing),
        (None, _) => {}
    }
    let class = |(speed, cpus): (u64, Vec<usize>)| {
        let cpus: CpuSet = cpus.into_iter().collect();
        let first = cpus.first()?;
        Some(Class {
            file: path(first),
            value: format!("{speed} on {}", cpus.named()),
            cpus,
            speed: Some(speed),
        })
    };
    Ok(Some(by_speed.into_iter().rev().filter_map(class).collect()))
}

fn report(level: Level, classes: Vec<Class>) -> Finding {
    let title = format!(
        "The job's CPUs are of {} speeds: a bulk-synchronous job runs at the speed of the slowest.",
        classes.len()
    );
    let advice = advice(&classes);
    let more = classes.len().saturating_sub(NAMED);
    let finding =
        classes.into_iter().take(NAMED).fold(Finding::new(level, title), |f, c| f.seen(c.file, c.value));
    let finding = if more > 0 {
        finding.seen(CPU, format!("{more} more {} of CPUs", if more == 1 { "class" } else { "classes" }))
    } else {
        finding
    };
    finding.advice(advice)
}

/// If each CPU has the same share of the work, CPUs do their number times the speed of the slowest of them.
fn advice(classes: &[Class]) -> String {
    let Some(fastest) = classes.first() else { return String::new() };
    let one_class = format!(
        "A job that must not wait for slower CPUs takes {} (--cpus {}).",
        fastest.cpus.named(),
        fastest.cpus
    );
    let (mut count, mut best, mut best_work) = (0u64, 0, 0u64);
    for (place, class) in classes.iter().enumerate() {
        let Some(speed) = class.speed else { return one_class };
        count += class.cpus.len() as u64;
        let work = count.saturating_mul(speed);
        if work > best_work {
            (best, best_work) = (place, work);
        }
    }
    let cpus: CpuSet = classes.iter().take(best + 1).flat_map(|class| class.cpus.iter()).collect();
    match best + 1 == classes.len() {
        true => format!(
            "By these figures, equal shares of work are done soonest on all of the job's CPUs, and shares in proportion to the \
             speeds sooner still. {one_class}"
        ),
        false => {
            format!(
                "By these figures, equal shares of work are done soonest on {} (--cpus {cpus}).",
                cpus.named()
            )
        }
    }
}
