// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of results.

/// A target of a measure.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    None,
    /// In the measure's unit.
    AtMost(f64),
    /// As a multiple of plain MPI.
    TimesPlain(f64),
}

/// A measure, with the values of all repetitions.
pub(crate) struct Row {
    name: String,
    unit: &'static str,
    target: Target,
    pub(crate) ours: Vec<f64>,
    /// Of plain MPI in C.
    pub(crate) plain: Vec<f64>,
    pub(crate) charm4py: Vec<f64>,
}

/// The least value.
fn least(values: &[f64]) -> Option<f64> {
    values.iter().copied().min_by(f64::total_cmp)
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

/// A number with three digits.
fn short(value: f64) -> String {
    match value {
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// The least value and the median.
fn both(values: &[f64]) -> String {
    match (least(values), median(values)) {
        (Some(least), Some(_)) if values.len() == 1 => short(least),
        (Some(least), Some(median)) => format!("{}/{}", short(least), short(median)),
        _ => String::new(),
    }
}

impl Row {
    pub(crate) fn new(name: &str, unit: &'static str, target: Target) -> Self {
        let name = format!("{name}, {unit}");
        Self { name, unit, target, ours: Vec::new(), plain: Vec::new(), charm4py: Vec::new() }
    }

    /// Our least value over that of plain MPI.
    fn ratio(&self) -> Option<f64> {
        Some(least(&self.ours)? / least(&self.plain)?)
    }

    /// Our least value over the target.
    fn over_target(&self) -> Option<f64> {
        match self.target {
            Target::None => None,
            Target::AtMost(most) => Some(least(&self.ours)? / most),
            Target::TimesPlain(most) => Some(self.ratio()? / most),
        }
    }
}

/// The table, at most 80 columns wide. `charm4py` stands in its column where nothing was measured with it.
pub(crate) fn text(rows: &[Row], charm4py: &str) -> String {
    let line = |cells: [&str; 7]| {
        let [name, ours, plain, ratio, other, target, result] = cells;
        let line = format!("{name:25} {ours:>11} {plain:>11} {ratio:>5} {other:>13} {target:>5} {result:>4}");
        format!("{}\n", line.trim_end())
    };
    let mut all = line(["least/median", "Colony", "MPI in C", "ratio", "charm4py", "goal", ""]);
    for row in rows {
        let target = match row.target {
            Target::None => String::new(),
            Target::AtMost(most) => most.to_string(),
            Target::TimesPlain(most) => format!("{most}x"),
        };
        let result = row.over_target().map_or(String::new(), |over| match over {
            o if o <= 1.0 => "met".to_owned(),
            o => format!("+{:.0}%", (o - 1.0) * 100.0),
        });
        let ratio = row.ratio().map_or(String::new(), |r| format!("{r:.2}"));
        let other = if row.charm4py.is_empty() && row.name.starts_with("round trip, Python") {
            charm4py.to_owned()
        } else {
            both(&row.charm4py)
        };
        all.push_str(&line([
            &row.name,
            &both(&row.ours),
            &both(&row.plain),
            &ratio,
            &other,
            &target,
            &result,
        ]));
    }
    all.push_str("+N%: the least value misses the goal by so much. ratio: Colony over MPI in C.\n");
    all
}

/// All values as JSON.
pub(crate) fn json(rows: &[Row]) -> String {
    let target = |target| match target {
        Target::None => "null".to_owned(),
        Target::AtMost(most) => most.to_string(),
        Target::TimesPlain(most) => format!("\"{most} of plain MPI\""),
    };
    let rows = rows.iter().map(|row| {
        format!(
            r#"{{"measure": "{}", "unit": "{}", "target": {}, "colony": {:?}, "mpi_c": {:?}, "charm4py": {:?}}}"#,
            row.name, row.unit, target(row.target), row.ours, row.plain, row.charm4py
        )
    });
    format!("[\n  {}\n]\n", rows.collect::<Vec<_>>().join(",\n  "))
}
