// SPDX-License-Identifier: MIT OR Apache-2.0
//! The choice of spare cores and windows in words: one table for terminals and pages.

use colony_project::choose::{Answer, Choice, Scale, Throughput};

use crate::format;

/// The best choice of spare cores and windows, and where it changes with scale: one sentence; `None` if nothing was
/// simulated.
#[must_use]
pub fn best(answer: &Answer) -> Option<String> {
    let last = answer.scales.last()?;
    let turns = answer.turns();
    let named = |place: usize| answer.choices.get(place).map_or(String::new(), ToString::to_string);
    let (_, first) = *turns.first()?;
    let mut text =
        format!("Best for throughput, of {}: {}", format::counted(answer.cores.into(), "core"), named(first));
    if turns.len() == 1 {
        text += &format!(", up to {}", format::counted(last.nodes.into(), "node"));
    }
    for &(nodes, place) in turns.iter().skip(1) {
        text += &format!("; from {} on: {}", format::counted(nodes.into(), "node"), named(place));
    }
    let alike = |scale: &Scale| !scale.alike.is_empty();
    if answer.scales.iter().any(alike) {
        text += "; other choices cannot be told from these on some node counts";
    }
    text += ".";
    if let Some(command) = turns.last().and_then(|&(_, place)| answer.choices.get(place)).and_then(command) {
        text += &format!(" On that many nodes: {command}");
    }
    Some(text)
}

/// The command that runs a program under a choice; `None` if nothing is to be changed.
fn command(choice: &Choice) -> Option<String> {
    let spare = (choice.spare > 0).then(|| format!(" --spare-cores {}", choice.spare));
    let windows = match choice.favored {
        Some(favored) => format!(" --duty {}%", (favored * 100.0).round()),
        None if spare.is_some() => " --backend none".into(),
        None => return None,
    };
    Some(format!("colony run{}{windows} -- CMD", spare.unwrap_or_default()))
}

/// Headings of [`rows`].
#[must_use]
pub fn headings(answer: &Answer) -> Vec<String> {
    let nodes = answer.scales.iter().map(|s| format::counted(s.nodes.into(), "node"));
    ["choice".to_owned()].into_iter().chain(nodes).collect()
}

/// One row a choice: its throughput on each node count in per cent, with its interval; `*` the best, `=` a choice that
/// cannot be told from it.
#[must_use]
pub fn rows(answer: &Answer) -> Vec<Vec<String>> {
    let cell = |scale: &Scale, place: usize| {
        let Some(Some(t)) = scale.throughput.get(place) else { return String::new() };
        let mark = match scale.best {
            Some(best) if best == place => "* ",
            _ if scale.alike.contains(&place) => "= ",
            _ => "",
        };
        format!("{mark}{}", share(t))
    };
    let row = |(place, choice): (usize, &Choice)| {
        let cells = answer.scales.iter().map(|s| cell(s, place));
        [choice.to_string()].into_iter().chain(cells).collect()
    };
    answer.choices.iter().enumerate().filter(|(_, c)| c.impossible.is_none()).map(row).collect()
}

/// A throughput in per cent, as far as it is known: `95.00 ± 0.20`, `81.7 (60.4–92.1)` where one side is longer than the other,
/// `≤ 92.1` without a lower end, `~81.7` without an interval.
fn share(t: &Throughput) -> String {
    let (share, percent) = (100.0 * t.share, |end: f64| 100.0 * end);
    match (t.low.map(percent), t.high.map(percent)) {
        (Some(low), Some(high)) if is_even(share - low, high - share) => {
            format!("{share:.2} ± {:.2}", (share - low).max(high - share))
        }
        (Some(low), Some(high)) => format!("{share:.1} ({low:.1}–{high:.1})"),
        (None, Some(high)) => format!("≤ {high:.1}"),
        (_, None) => format!("~{share:.1}"),
    }
}

/// Returns `true` if the two sides of an interval, in per cent, are nearly equal.
fn is_even(below: f64, above: f64) -> bool {
    (below - above).abs() <= f64::max(0.2 * below.max(above), 0.05)
}

/// Facts that a reader of [`rows`] needs, a line each.
#[must_use]
pub fn notes(answer: &Answer) -> Vec<String> {
    let mut notes = vec![
        "throughput: work that a node does for the job, in per cent of what all of its cores would do without noise, with its \
         95 % interval (± half of it, or both ends); * best, = cannot be told from the best"
            .to_owned(),
    ];
    if answer.choices.iter().any(|c| c.favored.is_some()) {
        notes.push(
            "windows: the job's time in regular windows is not counted, so their throughput is a lower bound"
                .into(),
        );
    }
    let spare = answer.choices.iter().filter(|c| c.spare > 0 && c.favored.is_none());
    let left = |c: &Choice| {
        let left: Vec<&str> =
            answer.movable.iter().filter(|s| !c.taken.contains(s)).map(String::as_str).collect();
        (!left.is_empty()).then(|| some(&left))
    };
    for (left, choices) in alike(spare, left) {
        notes.push(format!("{choices}: not enough for {left}"));
    }
    if !answer.bound.is_empty() {
        let bound: Vec<&str> = answer.bound.iter().map(String::as_str).collect();
        notes.push(format!(
            "neither spare cores nor windows move what is bound to its core: {}",
            some(&bound)
        ));
    }
    // with spare cores it is the same, as long as they leave threads
    let windows = answer.choices.iter().filter(|c| c.spare == 0);
    for (why, choices) in alike(windows, |c| c.impossible.clone()) {
        notes.push(format!("{choices}: not possible, {why}"));
    }
    let few = |s: &&Scale| s.ranks_per_node < answer.cores;
    if let Some(scale) = answer.scales.iter().find(few) {
        notes.push(format!(
            "from {} on, {} of {} of each node are simulated: more would be too many",
            format::counted(scale.nodes.into(), "node"),
            scale.ranks_per_node,
            format::counted(answer.cores.into(), "core")
        ));
    }
    let any = |of: fn(&Throughput) -> bool| {
        answer.scales.iter().flat_map(|s| s.throughput.iter().flatten()).any(of)
    };
    if any(|t| t.low.is_none() && t.high.is_some()) {
        notes.push(
            "≤ 90: the trace gives no lower end: its longest detours decide, and their lengths vary so much (tail index \
             about 2 or less) that longer ones are to be expected"
                .into(),
        );
    }
    if any(|t| t.high.is_none()) {
        notes.push(
            "~90: the trace is too short to tell how far the node may be from the figure, or the choice was simulated only \
             once"
                .into(),
        );
    }
    notes.extend(answer.warnings.iter().cloned());
    if answer.stopped {
        notes.push("the time for simulations ended before every node count was simulated".into());
    }
    notes
}

/// Groups choices by a remark: each remark, with the choices it holds for.
fn alike<'a>(
    choices: impl Iterator<Item = &'a Choice>,
    said: impl Fn(&Choice) -> Option<String>,
) -> Vec<(String, String)> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for choice in choices {
        let Some(text) = said(choice) else { continue };
        match groups.iter_mut().find(|(known, _)| *known == text) {
            Some((_, choices)) => choices.push(choice.to_string()),
            None => groups.push((text, vec![choice.to_string()])),
        }
    }
    let named = |(text, choices): (String, Vec<String>)| {
        let names: Vec<&str> = choices.iter().map(String::as_str).collect();
        (text, some(&names))
    };
    groups.into_iter().map(named).collect()
}

/// The first of some names.
fn some(names: &[&str]) -> String {
    const SHOWN: usize = 4;
    let shown = names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throughput_shows_both_sides_of_its_interval_and_an_end_that_is_missing() {
        let text = |share, low, high| {
            super::share(&Throughput { share, ci95: None, low, high, simulation_ci95: None })
        };
        assert_eq!(text(0.95, Some(0.948), Some(0.952)), "95.00 ± 0.20");
        assert_eq!(text(0.817, Some(0.604), Some(0.921)), "81.7 (60.4–92.1)");
        assert_eq!(text(0.817, None, Some(0.921)), "≤ 92.1");
        assert_eq!(text(0.817, None, None), "~81.7");
    }

    #[test]
    fn a_choice_is_a_command_of_colony_run() {
        let choice = |spare, favored| Choice {
            spare,
            favored,
            given: 1.0,
            taken: Vec::new(),
            held: Vec::new(),
            impossible: None,
        };
        for (spare, favored, wanted) in [
            (0, None, None),
            (1, None, Some("colony run --spare-cores 1 --backend none -- CMD")),
            (0, Some(0.95), Some("colony run --duty 95% -- CMD")),
            (2, Some(0.8), Some("colony run --spare-cores 2 --duty 80% -- CMD")),
        ] {
            assert_eq!(command(&choice(spare, favored)).as_deref(), wanted);
        }
    }
}
