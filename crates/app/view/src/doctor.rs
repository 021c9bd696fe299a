// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings about a node, their costs, and what to change.

use std::fmt::Write;

use colony_doctor::Finding;
use colony_doctor::remedy::quote;
use colony_project::changes::Added;
use colony_study::advice::{Advice, Cost, Costed, Noise};
use colony_study::format::NOT_SEEN;

use crate::command::{self, Shown};
use crate::table::{self, broken, broken_at_blanks, clipped, name, wrap};
use crate::units::{count, percent, time};

/// Columns of the words before a line of a finding.
const WORD: usize = 8;
/// Columns behind such a word.
const ROOM: usize = table::WIDTH as usize - WORD - 1;
/// Stands for a figure that the time did not suffice for.
pub(crate) const NOT_SIMULATED: &str = "?";
/// Evidence, and commands, that are shown unless the finding is explained.
const SHOWN: usize = 3;
/// Most characters of a text unless the finding is explained.
const TEXT: usize = 400;

/// Everything, in tables and text of at most 80 columns.
#[must_use]
pub fn advice(a: &Advice) -> String {
    let mut out = head(a);
    if !a.findings.is_empty() {
        let cost =
            a.noise.as_ref().map_or("cost".into(), |n| format!("cost on {} nodes", count(n.nodes.into())));
        let mut t = table::new(["finding", "level", cost.as_str(), "remedy"]);
        for f in &a.findings {
            t.add_row([
                name(&f.finding.id, 30),
                f.finding.level.name().into(),
                self::cost(&f.cost),
                when(&f.finding).into(),
            ]);
        }
        let _ = writeln!(out, "\n{t}");
    }
    out.push_str(&sequence(a));
    if !a.no_remedy.is_empty() {
        let _ = write!(out, "\n{}", no_remedy(a));
    }
    for f in &a.findings {
        let _ = write!(out, "\n{}", finding(f, false));
    }
    if !a.undecided.is_empty() {
        let _ = writeln!(out, "\nundecided:");
        for u in &a.undecided {
            let _ = writeln!(out, "{}", indented(&u.id, 26, &clipped(&u.reason, TEXT)));
        }
    }
    if a.findings.is_empty() {
        out.push_str("\nno finding\n");
    }
    for note in notes(a) {
        let _ = writeln!(out, "{}", wrap(&format!("note: {note}")));
    }
    out
}

fn head(a: &Advice) -> String {
    let host = name(a.host.as_deref().unwrap_or("node"), 30);
    let kernel = a.kernel.as_deref().map_or(String::new(), |k| format!(" · Linux {}", name(k, 30)));
    let mut out = format!("{}\n", wrap(&format!("{host}{kernel} · job on {}", a.cpus.named())));
    if let Some(noise) = &a.noise {
        let _ = writeln!(out, "{}", wrap(&measured(noise)));
    }
    out
}

/// The noise of the job's CPUs in a sentence.
#[must_use]
pub fn measured(n: &Noise) -> String {
    if n.stolen_share == 0.0 {
        return "stolen: the trace has no detour on the job's CPUs, so the cost of noise is not known; a longer trace may have some"
            .into();
    }
    let worst = n.worst.as_ref().map_or(String::new(), |(source, share)| {
        format!(", most by {} ({})", name(source, 30), percent(*share))
    });
    format!(
        "stolen: {}{worst}; on {} nodes this noise adds {} to a step of {}",
        percent(n.stolen_share),
        count(n.nodes.into()),
        added(&n.all),
        time(n.quiet_ns)
    )
}

/// The changes in order, with what each leaves.
fn sequence(a: &Advice) -> String {
    let Some(noise) = a.noise.as_ref().filter(|_| !a.sequence.is_empty()) else { return String::new() };
    let mut t = table::new(["What to change, in this order", "noise left adds", "remedy"]);
    t.add_row(["(nothing)".to_owned(), added(&noise.all), String::new()]);
    for (number, step) in a.sequence.iter().enumerate() {
        let remedy = a.finding(&step.finding).and_then(|f| f.finding.remedies.get(step.remedy));
        let effort = remedy.map_or("", |r| r.effort.name());
        t.add_row([format!("{}. {}", number + 1, name(&step.finding, 40)), added(&step.left), effort.into()]);
    }
    let mut out = format!("\n{}\n", table::trimmed(&t));
    for (number, step) in a.sequence.iter().enumerate() {
        if let Some(f) = a.finding(&step.finding) {
            out.push_str(&commands_of_step(&format!("  {}.", number + 1), f, step.remedy));
        }
    }
    out
}

/// The sources that no change takes away, a line each.
pub(crate) fn no_remedy(a: &Advice) -> String {
    let mut out = String::new();
    for line in a.no_remedy_lines(|s| format!("{} ({})", name(&s.source, 40), added(&s.added))) {
        let _ = writeln!(out, "{}", wrap(&clipped(&format!("no remedy: {line}"), 600)));
    }
    out
}

fn notes(a: &Advice) -> Vec<String> {
    let mut notes = a.notes.clone();
    match &a.noise {
        Some(n) => notes.push(format!(
            "cost: time that the sources of this finding alone add to a step of {} (work and an allreduce), with its 95 % \
             interval; costs do not add up; ≤: the remedy takes a part of these sources; {NOT_SEEN}: the trace has none of \
             them; –: no trace can show them",
            time(n.quiet_ns)
        )),
        None if a.notes.is_empty() => {
            notes.push("no trace: `colony measure` makes one, then this command shows costs".into());
        }
        None => {}
    }
    if !a.findings.is_empty() {
        notes.push("--explain FINDING prints all commands of a finding, unbroken".into());
    }
    notes
}

pub(crate) fn when(f: &Finding) -> &'static str {
    f.remedies.first().map_or("advice", |r| r.effort.name())
}

/// A cost with its interval.
pub(crate) fn cost(c: &Cost) -> String {
    match c {
        Cost::NoTrace | Cost::NoSource => "–".into(),
        Cost::NotSeen => NOT_SEEN.into(),
        Cost::NotSimulated => NOT_SIMULATED.into(),
        Cost::Simulated { added: a, at_most, .. } => {
            match added(a) {
                text if !at_most || text.starts_with('≤') => text,
                // no less than this by the trace, and only a part of it by the change: nothing is known
                text if text.starts_with('≥') => "–".into(),
                text => format!("≤ {text}"),
            }
        }
    }
}

/// A share of an iteration as far as it is known: `212 % ± 8 %`, `40–310 %`.
#[must_use]
pub fn added(a: &Added) -> String {
    colony_study::format::added(a, percent)
}

/// A finding: title, evidence, remedies with risk and undo. `whole`: nothing is shortened.
#[must_use]
pub fn finding(f: &Costed, whole: bool) -> String {
    let mut out = Paragraphs { text: String::new(), whole, is_cut: false };
    out.title(&format!("{}: {}", name(&f.finding.id, 40), f.finding.title));
    let most = if whole { usize::MAX } else { SHOWN };
    for e in f.finding.evidence.iter().take(most) {
        out.add("  seen", &format!("{}: {}", e.file, e.value));
    }
    out.more(f.finding.evidence.len(), most);
    if !f.finding.owners.is_empty() {
        out.add("  owner", &f.finding.owners.join(", "));
    }
    for remedy in &f.finding.remedies {
        out.commands("  do", &remedy.commands());
        out.commands("  undo", &remedy.undo_commands());
        out.add("  risk", &remedy.risk);
        if let Some(keep) = &remedy.keep {
            out.keep(keep);
        }
    }
    if out.is_cut {
        out.add("  whole", &format!("{}, with the other options of this run", explain(f)));
    }
    if let Some(advice) = &f.finding.advice {
        out.add("  advice", advice);
    }
    out.text
}

/// The command that prints a finding whole.
fn explain(f: &Costed) -> String {
    format!("colony doctor --explain {}", quote(&f.finding.id))
}

/// The commands of one of a finding's remedies below `what`, shortened.
#[must_use]
pub(crate) fn remedy_of_step(what: &str, f: &Costed, remedy: usize) -> String {
    format!("{what}\n{}", commands_of_step("  do", f, remedy))
}

/// The commands of one of a finding's remedies behind a word, shortened.
fn commands_of_step(word: &str, f: &Costed, remedy: usize) -> String {
    let mut out = Paragraphs { text: String::new(), whole: false, is_cut: false };
    out.commands(word, &f.commands_of(remedy));
    if out.is_cut {
        out.add("  whole", &explain(f));
    }
    out.text
}

/// The paragraphs of a finding.
struct Paragraphs {
    text: String,
    /// `true` if nothing is shortened: lines may be longer than 80 columns then.
    whole: bool,
    /// `true` if something that is there to be copied is not whole.
    is_cut: bool,
}

impl Paragraphs {
    fn title(&mut self, title: &str) {
        let room = usize::from(table::WIDTH) - 2;
        let lines = match self.whole {
            true => broken_at_blanks(&clean(title), room),
            false => broken(&clipped(title, TEXT), room),
        };
        let _ = writeln!(self.text, "{}", lines.join("\n  "));
    }

    /// A text behind a word.
    fn add(&mut self, word: &str, text: &str) {
        let lines = match self.whole {
            true => broken_at_blanks(&clean(text), ROOM),
            false => broken(&clipped(text, TEXT), ROOM),
        };
        self.lines(word, &lines);
    }

    /// The number of further ones, if only `most` of `all` were shown.
    fn more(&mut self, all: usize, most: usize) {
        if all > most {
            self.lines("", &[format!("… {} more", all - most)]);
        }
    }

    /// Commands behind a word, each on a line of its own.
    fn commands(&mut self, word: &str, all: &[String]) {
        let most = if self.whole { usize::MAX } else { SHOWN };
        for command in all.iter().take(most) {
            let Shown { lines, is_cut } = match self.whole {
                true => Shown { lines: vec![clean(command)], is_cut: false },
                false => command::shown(command, ROOM),
            };
            self.is_cut |= is_cut;
            self.lines(word, &lines);
        }
        self.more(all.len(), most);
    }

    /// A sentence with settings to be copied: one that is too long for a line is cut behind a comma.
    fn keep(&mut self, keep: &str) {
        let is_long = |word: &str| word.chars().count() > ROOM;
        if self.whole || !keep.split(' ').any(is_long) {
            self.add("  keep", keep);
            return;
        }
        self.is_cut = true;
        let words: Vec<String> = keep.split(' ').map(|word| clipped(word, ROOM)).collect();
        self.add("  keep", &words.join(" "));
    }

    fn lines(&mut self, word: &str, lines: &[String]) {
        for (number, line) in lines.iter().enumerate() {
            let word = if number == 0 { word } else { "" };
            let _ = writeln!(self.text, "{word:WORD$} {line}");
        }
    }
}

/// Text from elsewhere without control characters.
fn clean(text: &str) -> String {
    name(text, usize::MAX - 1)
}

/// Text of at most 80 columns behind a word; its further lines are as far in.
pub(crate) fn indented(word: &str, width: usize, text: &str) -> String {
    let room = usize::from(table::WIDTH) - width - 1;
    let lines = broken(text, room);
    let mut out = String::new();
    for (number, line) in lines.iter().enumerate() {
        let word = if number == 0 { word } else { "" };
        let _ = write!(out, "{}{word:width$} {line}", if number == 0 { "" } else { "\n" });
    }
    out
}
