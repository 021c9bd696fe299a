// SPDX-License-Identifier: MIT OR Apache-2.0
//! The decoder's errors about wrong values, in the words of scenarios instead of Rust's.

use toml::de::{DeTable, DeValue};

/// Longest piece of a user's text that a message repeats.
const SHOWN: usize = 60;

/// `message` of a decoder, in the words of scenarios; `path` is the value's place, as `program.bytes`, if known.
///
/// ```
/// use colony_sim::spec::plain;
/// let said = plain("invalid type: string \"ten\", expected u64", Some("seed"));
/// assert_eq!(said, "`seed` is the text \"ten\"; give a whole number of 0 or more");
/// ```
#[must_use]
pub fn plain(message: &str, path: Option<&str>) -> String {
    let message = message.trim().replace('\n', "; ");
    let said = translated(&message, path);
    match has_jargon(&said) {
        false => said,
        true => format!(
            "{}: the value cannot be used here; `colony sim --print-scenario` shows the form of a scenario",
            path.map_or_else(|| "wrong value".into(), |p| format!("`{p}`"))
        ),
    }
}

fn translated(message: &str, path: Option<&str>) -> String {
    let it = path.map_or_else(|| "a value".into(), |p| format!("`{p}`"));
    if let Some(rest) = message.strip_prefix("invalid type: ").or(message.strip_prefix("invalid value: "))
        && let Some((found, expected)) = rest.rsplit_once(", expected ")
    {
        let give = match expected_words(expected) {
            // a number that no form has room for
            any if any == "any value" => "a smaller number".into(),
            give => give,
        };
        return format!("{it} is {}; give {give}", found_words(found));
    }
    if let Some(rest) = message.strip_prefix("invalid length ")
        && let Some((count, expected)) = rest.split_once(", expected ")
    {
        let values = if count == "1" { "value" } else { "values" };
        return format!("{it} has {count} {values}; give {}", expected_words(expected));
    }
    if let Some((name, choice)) = unknown(message, "unknown variant ") {
        // the name may be the last part of the path itself, as in `model.length.fixeds`
        let place = path.and_then(|p| p.strip_suffix(name.trim_matches('`'))?.strip_suffix('.'));
        return format!("{} has no {name}; {choice}", place.map_or(it, |p| format!("`{p}`")));
    }
    if let Some((name, choice)) = unknown(message, "unknown field ") {
        return format!("unknown field {name}; {choice}");
    }
    if let Some(name) = message.strip_prefix("missing field ") {
        return path.map_or_else(|| format!("{name} is missing"), |p| format!("{name} is missing in `{p}`"));
    }
    match message {
        "wanted string or table" => format!("{it} is neither a name nor a table; give one of these"),
        "integer number overflowed" => format!("{it} is too large; {} is the largest number", i64::MAX),
        m if m.starts_with("expected table with exactly 1 entry") || m.starts_with("wanted exactly 1") => {
            format!("{it} needs exactly one entry")
        }
        m => {
            let m = m.replace("expected tuple with length", "expected a list of length");
            path.map_or(m.clone(), |p| format!("`{p}`: {m}"))
        }
    }
}

/// The name in backticks and what there is to choose from.
fn unknown<'a>(message: &'a str, prefix: &str) -> Option<(&'a str, String)> {
    let rest = message.strip_prefix(prefix)?;
    let (name, known) = rest.rsplit_once(", expected ").or_else(|| rest.rsplit_once(", there are no "))?;
    Some(match known {
        "fields" | "variants" => (name, "nothing can be given here".into()),
        known if known.starts_with("one of ") => (name, format!("choose {known}")),
        known => (name, format!("there is {known}")),
    })
}

/// `string "ten"` as `the text "ten"`.
fn found_words(found: &str) -> String {
    let (kind, value) = found.split_once(' ').unwrap_or((found, ""));
    // `3` as i128
    let value = match kind {
        "string" => value,
        _ => value.split('`').nth(1).unwrap_or(value),
    };
    let short: String = value.chars().take(SHOWN).collect();
    let dots = if short.len() < value.len() { "…\"" } else { "" };
    match kind {
        "string" => format!("the text {short}{dots}"),
        "integer" | "floating" | "boolean" | "character" => short,
        "map" | "newtype" => "a table".into(),
        "sequence" => "a list".into(),
        "datetime" => "a date".into(),
        "unit" | "Option" | "null" => "nothing".into(),
        _ => format!("of another kind ({})", found.chars().take(SHOWN).collect::<String>()),
    }
}

/// `u32` as `a whole number from 0 to 4294967295`.
fn expected_words(expected: &str) -> String {
    let list = |rest: &str| {
        let count = rest.trim_start_matches(|c: char| !c.is_ascii_digit());
        let count = count.split_whitespace().next().unwrap_or("some").to_owned();
        format!("a list of {count} values")
    };
    let word = expected.trim_start_matches("a ").trim_start_matches("an ");
    match word {
        "u8" => "a whole number from 0 to 255".into(),
        "u16" => "a whole number from 0 to 65535".into(),
        "u32" => format!("a whole number from 0 to {}", u32::MAX),
        "u64" | "usize" => "a whole number of 0 or more".into(),
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number".into(),
        "f32" | "f64" => "a number".into(),
        "bool" | "boolean" => "true or false".into(),
        "string" | "str" | "borrowed string" | "character" => "a text in quotes".into(),
        "sequence" => "a list, as [1, 2]".into(),
        "map" | "table" => "a table".into(),
        "string or table" | "string or map" => "a name or a table".into(),
        "map with a single key" => "a table with one entry".into(),
        w if w.starts_with("array of length")
            || w.starts_with("tuple") && !w.starts_with("tuple variant") =>
        {
            list(w)
        }
        w if w.starts_with("internally tagged enum") => "a table with its `kind`".into(),
        w if w.starts_with("variant") => "the name of one of its kinds".into(),
        w if w.starts_with("enum") || w.starts_with("unit variant") => {
            "the name of one of the forms it has, or a table of one".into()
        }
        w if w.starts_with("struct") || w.contains(" variant") || w.starts_with("field") => "a table".into(),
        _ => expected.into(),
    }
}

/// Words of Rust that no user of a scenario knows.
const JARGON: [&str; 27] = [
    "u8",
    "u16",
    "u32",
    "u64",
    "usize",
    "i8",
    "i16",
    "i32",
    "i64",
    "isize",
    "f32",
    "f64",
    "bool",
    "str",
    "enum",
    "struct",
    "variant",
    "variants",
    "tuple",
    "Option",
    "newtype",
    "i128",
    "u128",
    "map",
    "sequence",
    "identifier",
    "untagged",
];

/// True if `text` has a word of Rust, apart from the user's words (in quotes).
fn has_jargon(text: &str) -> bool {
    let plain: String = text.split(['`', '"']).step_by(2).collect::<Vec<_>>().join(" ");
    plain.split(|c: char| !c.is_alphanumeric()).any(|word| JARGON.contains(&word))
        || plain.contains("invalid type")
}

/// The path of the value at `byte` of `text`, as `noise.0.periodic.every`.
pub(crate) fn path_at(text: &str, byte: usize) -> Option<String> {
    let table = DeTable::parse(text).ok()?;
    deepest(table.get_ref(), byte).map(|parts| parts.join("."))
}

fn deepest(table: &DeTable<'_>, byte: usize) -> Option<Vec<String>> {
    let inside = |span: std::ops::Range<usize>| span.contains(&byte);
    let of = |(key, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
        let key_span = inside(key.span());
        let name: &std::borrow::Cow<'_, str> = key.get_ref();
        below(value, byte)
            .or((key_span || inside(value.span())).then(Vec::new))
            .map(|rest| [vec![name.to_string()], rest].concat())
    };
    table.iter().filter_map(of).max_by_key(Vec::len)
}

fn below(value: &toml::Spanned<DeValue<'_>>, byte: usize) -> Option<Vec<String>> {
    match value.get_ref() {
        DeValue::Table(table) => deepest(table, byte),
        DeValue::Array(all) => all.iter().enumerate().find_map(|(i, v)| {
            let rest = below(v, byte).or_else(|| v.span().contains(&byte).then(Vec::new))?;
            Some([vec![i.to_string()], rest].concat())
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::spec::{Scenario, SpecError};

    /// A scenario in which every value has a line of its own.
    const EVERYTHING: &str = r#"
nodes = [2, 4]
seed = 7
repetitions = 2
ranks_per_node = 2
begin = "2s"
schedulers = ["preempt", { fair = { noise_slice = "1ms", job_slice = "2ms" } }, { coordinated = {} }]
machine.name = "mine"
machine.sources = ["chosen"]
machine.ranks_per_node = 2
machine.inside_ns = 5
machine.topology.torus.dims = [0, 0, 0]
machine.topology.torus.hop_ns = 5
machine.loggops.latency_ns = 1000
machine.loggops.overhead_ns = 300
machine.loggops.gap_ns = 100
machine.loggops.gap_per_byte_ps = 80
machine.loggops.overhead_per_byte_ps = 0
machine.loggops.eager_bytes = 4096
machine.hardware_barrier.phases = 1
machine.hardware_barrier.cpu_ns = 10
machine.hardware_barrier.time.measured = [[2, 1000.0], [16, 1300.0]]
machine.hardware_reduce.phases = 2
machine.hardware_reduce.cpu_ns = 10
machine.hardware_reduce.time.log2.fixed_ns = 500.0
machine.hardware_reduce.time.log2.level_ns = 60.0
[program]
name = "x"
iterations = 10
[[program.step]]
kind = "compute"
ns = 1000
imbalance = 0.1
[[program.step]]
kind = "collective"
operation = "allreduce"
algorithm = "ring"
bytes = 8
ranks = 2
[[program.step]]
kind = "repeat"
times = 2
step = [{ kind = "halo", bytes = 8, dims = 3 }]
[[noise]]
name = "tick"
periodic.every = "1ms"
periodic.length = "2us"
class = "local"
phase = "aligned"
placement = { core = 1 }
[[noise]]
model.arrivals.every.exponential.mean_ns = 1e6
model.length.fixed = "3us"
phase.skewed.spread_ns = 5
[[noise]]
model.arrivals.after_sleep.quantiles = [1000000, 2000000]
model.length.uniform.from_ns = 1
model.length.uniform.to_ns = 2
placement = "any_core"
[[noise]]
model.arrivals.every.pareto.least_ns = 1e6
model.arrivals.every.pareto.shape = 2.0
model.arrivals.every.pareto.most_ns = 1e8
model.length.log_normal.median_ns = 50
model.length.log_normal.sigma = 0.5
[[noise]]
leibniz = { mean = "1ms", sleep = "90ms" }
[[noise]]
poisson = { every = "10ms", length = "2us" }
[[noise]]
trace = "node.parquet"
leave_out = ["nmi"]
[sweep]
seed = [1, 2]
"#;

    const VALUES: [&str; 18] = [
        "3",
        "-3",
        "3.5",
        "nan",
        "99999999999999999999999",
        "9000000000000000000",
        "\"word\"",
        "\"\"",
        "true",
        "1979-05-27",
        "[]",
        "[1, 2, 3]",
        "[\"a\"]",
        "[[]]",
        "{}",
        "{ a = 1 }",
        "{ fixed = [] }",
        "[{ none = 3 }]",
    ];

    /// Every scenario that differs from [`EVERYTHING`] in one place.
    fn mutated() -> Vec<String> {
        let lines: Vec<&str> = EVERYTHING.lines().collect();
        let with = |i: usize, line: &str| {
            let mut all = lines.clone();
            all[i] = line;
            all.join("\n")
        };
        let mut all = Vec::new();
        for (i, line) in lines.iter().enumerate().filter(|(_, l)| !l.is_empty()) {
            all.push(with(i, ""));
            all.push(with(i, &format!("{line}\n{line}")));
            all.push(with(i, &line[..line.len() - 1]));
            let Some((key, value)) = line.split_once(" = ") else { continue };
            all.extend(VALUES.map(|v| with(i, &format!("{key} = {v}"))));
            all.push(with(i, &format!("{key}s = {value}")));
            all.push(with(i, &format!("{key}.a.b = {value}")));
            let sweep =
                |path: &str, v: &str| EVERYTHING.replace("seed = [1, 2]", &format!("\"{path}\" = [{v}]"));
            for v in VALUES {
                all.push(sweep(key, v));
                all.push(sweep(&format!("program.{key}"), v));
                all.push(sweep(&format!("noise.tick.{key}"), v));
            }
        }
        // inside of lists and tables in one line
        for (from, to) in [
            ("[2, 4]", "[2, \"4\"]"),
            ("[0, 0, 0]", "[0, 0]"),
            ("[0, 0, 0]", "[0, 0, 0, 0]"),
            ("[[2, 1000.0], [16, 1300.0]]", "[[2, 1000.0, 3]]"),
            ("[[2, 1000.0], [16, 1300.0]]", "[[\"a\", 1]]"),
            ("\"1ms\", job_slice", "5, job_slice"),
            ("{ coordinated = {} }", "{ coordinated = { duty_cycle = 5 } }"),
            ("{ coordinated = {} }", "{ coordinated = { clocks = [{ offset_ns = \"a\" }] } }"),
            ("{ coordinated = {} }", "{ coordinated = { clocks = [3] } }"),
            ("{ coordinated = {} }", "{ coordinated = { edge_lateness_ns = [\"a\"] } }"),
            ("{ core = 1 }", "{ core = -1 }"),
            ("{ core = 1 }", "{ core = 1, any = 2 }"),
            ("\"preempt\"", "3"),
            ("kind = \"halo\"", "kind = 3"),
            ("dims = 3", "dims = \"3\""),
            ("mean = \"1ms\"", "mean = 1"),
        ] {
            assert!(EVERYTHING.contains(from), "{from}");
            all.push(EVERYTHING.replace(from, to));
        }
        all
    }

    #[test]
    fn no_error_about_a_scenario_has_words_of_rust() {
        Scenario::parse(EVERYTHING).expect("right as it stands");
        let (mut wrong, mut vague) = (0, Vec::new());
        for text in mutated() {
            let Err(e) = Scenario::parse(&text) else { continue };
            wrong += 1;
            assert!(matches!(e, SpecError::Line { .. }), "{text}\n{e:?}");
            let said = e.to_string();
            assert!(!has_jargon(&said), "{said}\n{text}");
            if said.contains("--print-scenario") || said.contains("another kind") {
                vague.push(said);
            }
        }
        assert!(wrong > 1000, "{wrong}");
        assert!(vague.is_empty(), "{vague:#?}");
    }

    #[test]
    fn no_error_about_a_profile_has_words_of_rust() {
        let profile: String =
            EVERYTHING.lines().filter_map(|l| l.strip_prefix("machine.")).map(|l| format!("{l}\n")).collect();
        Machine::from_toml(&profile, "m.toml").expect("right as it stands");
        for line in profile.lines() {
            let (key, _) = line.split_once(" = ").expect("a value");
            for value in VALUES {
                let text = profile.replace(line, &format!("{key} = {value}"));
                let Err(e) = Machine::from_toml(&text, "m.toml") else { continue };
                assert!(!has_jargon(&e.to_string()), "{e}\n{text}");
            }
        }
    }

    #[test]
    fn an_error_names_the_value_and_the_remedy() {
        for (text, says) in [
            ("seed = \"ten\"", "line 1: `seed` is the text \"ten\"; give a whole number of 0 or more"),
            (
                "nodes = [1, \"4\"]",
                "line 1: `nodes.1` is the text \"4\"; give a whole number from 0 to 4294967295",
            ),
            ("begin = 5", "line 1: `begin` is 5; give a time with its unit, as \"100ms\""),
            (
                "[[noise]]\nperiodic = { every = \"1ms\", length = \"2us\" }\nclass = \"soft\"",
                "line 3: `noise.0.class` has no `soft`; choose one of `local`, `irq`, `task`",
            ),
            ("[program]\nbytes = 8", "`name` is missing"),
            ("nodes = 3", "line 1: `nodes` is 3; give a list, as [1, 2]"),
            ("begin = \"soon\"", "line 1: `begin`: `soon` is no time: "),
            (
                "seed = 99999999999999999999999",
                "`seed` is 99999999999999999999999; give a whole number of 0 or more",
            ),
            (
                "[[noise]]\nmodel.length.fixeds = 3\nmodel.arrivals.every.fixed = 3",
                "line 2: `noise.0.model.length` has no `fixeds`; choose one of `fixed`, ",
            ),
            (
                "[program]\nname = \"x\"\n[[program.step]]\nkind = \"collective\"\noperation = 3",
                "line 5: `program.step.0.operation` is 3; give a name or a table",
            ),
            (
                "machine = { name = \"m\", ranks_per_node = 1, loggops = 3 }",
                "line 1: `machine.loggops` is 3; give a table",
            ),
            ("schedulers = [{ coordinated = { duty_cycle = 80 } }]", "give a duty cycle, as \"80%\""),
            (
                "[program]\nname = \"bsp\"\nimbalance = \"x\"",
                "line 3: `program.imbalance` is the text \"x\"; give a number",
            ),
        ] {
            let said = Scenario::parse(text).expect_err("wrong").to_string();
            assert!(said.contains(says), "{said}");
        }
    }

    #[test]
    fn a_number_in_quotes_of_a_user_is_no_word_of_rust() {
        assert!(has_jargon("expected u64") && !has_jargon("the text \"u64\"") && !has_jargon("`enum` is 3"));
    }
}
