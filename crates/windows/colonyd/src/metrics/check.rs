// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reader of OpenMetrics text for tests, as strict as the specification where that is easy.

use std::collections::{BTreeMap, BTreeSet};

/// A name, and labels in their order: `name{a="b"}`.
pub(crate) type Series = (String, Vec<(String, String)>);
/// Every series with its value.
pub(crate) type Samples = BTreeMap<Series, f64>;

/// The samples of `text`; what is wrong with it where it is no OpenMetrics.
pub(crate) fn read(text: &str) -> Result<Samples, String> {
    let body = text.strip_suffix("# EOF\n").ok_or("the last line is not # EOF")?;
    let mut samples = Samples::new();
    let mut families = BTreeSet::new();
    let (mut family, mut kind) = (String::new(), String::new());
    // a name may stand in many lines; only \n ends one
    for line in body.split_terminator('\n') {
        let wrong = |what: &str| format!("{what}: {line:?}");
        if let Some(meta) = line.strip_prefix("# ") {
            let mut words = meta.splitn(3, ' ');
            let (Some(word), Some(name), Some(rest)) = (words.next(), words.next(), words.next()) else {
                return Err(wrong("half a line about a family"));
            };
            if name != family {
                family = name.to_owned();
                kind.clear();
                if !families.insert(family.clone()) {
                    return Err(wrong("a family twice"));
                }
            }
            match word {
                "TYPE" => kind = rest.to_owned(),
                "UNIT" if !name.ends_with(&format!("_{rest}")) => {
                    return Err(wrong("a name without its unit"));
                }
                "UNIT" | "HELP" => {}
                _ => return Err(wrong("an unknown line")),
            }
            continue;
        }
        let ((name, labels), value) = sample(line).ok_or_else(|| wrong("no sample"))?;
        let suffix = name.strip_prefix(&family).ok_or_else(|| wrong("a sample outside its family"))?;
        let fits: &[&str] = match kind.as_str() {
            "gauge" => &[""],
            "counter" => &["_total"],
            "info" => &["_info"],
            "histogram" => &["_sum", "_count", "_bucket"],
            _ => return Err(wrong("a type that is not ours")),
        };
        if !fits.contains(&suffix) || (kind != "gauge" && !(0.0..f64::INFINITY).contains(&value)) {
            return Err(wrong("not as its type demands"));
        }
        if samples.insert((name, labels), value).is_some() {
            return Err(wrong("a sample twice"));
        }
    }
    histograms(&samples)?;
    Ok(samples)
}

/// Buckets count up, to the bucket without a bound, which is the count.
fn histograms(samples: &Samples) -> Result<(), String> {
    for ((name, labels), count) in samples {
        let Some(family) = name.strip_suffix("_count") else { continue };
        let mut buckets: Vec<(f64, f64)> = samples
            .iter()
            .filter(|((n, l), _)| {
                *n == format!("{family}_bucket") && labels.iter().all(|label| l.contains(label))
            })
            .filter_map(|((_, l), value)| {
                let le = &l.iter().find(|(key, _)| key == "le")?.1;
                Some((le.replace("+Inf", "inf").parse().ok()?, *value))
            })
            .collect();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let up = buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1);
        if !up || buckets.last() != Some(&(f64::INFINITY, *count)) {
            return Err(format!("{name} {labels:?} is not what its buckets count: {buckets:?}"));
        }
    }
    Ok(())
}

/// Name, labels, value.
fn sample(line: &str) -> Option<(Series, f64)> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let named = |n: &str| {
        !n.is_empty()
            && n.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !n.starts_with(|c: char| c.is_ascii_digit())
    };
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (key, after) = rest.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            labels.push((key.to_owned(), value));
            rest = match after.strip_prefix(',') {
                Some(next) => next,
                None => break rest = after.strip_prefix('}')?,
            }
        }
    }
    let ok = named(name) && labels.iter().all(|(key, _)| named(key));
    let value = rest.strip_prefix(' ')?.parse().ok()?;
    ok.then(|| ((name.to_owned(), labels), value))
}

/// A value up to its closing quote, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                c @ ('\\' | '"') => c,
                _ => return None,
            }),
            c => value.push(c),
        }
    }
    None
}

#[test]
fn text_that_is_no_open_metrics_is_refused() {
    let good = "# HELP a_seconds x.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\na_seconds_total{k=\"v\"} 1\n# EOF\n";
    assert_eq!(read(good).expect("good").len(), 1);
    for (from, to) in [
        ("# EOF\n", "# EOF"),
        ("_total", ""),
        ("UNIT a_seconds seconds", "UNIT a_seconds bytes"),
        ("{k=\"v\"} 1", "{k=\"v\"} -1"),
        ("{k=\"v\"}", "{k=\"v}"),
        ("counter", "counte"),
        ("a_seconds_total", "b_total"),
    ] {
        assert!(read(&good.replacen(from, to, 1)).is_err(), "{from:?} as {to:?}");
    }
}
