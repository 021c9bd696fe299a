// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of `./x test` and `./x soak`.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};

/// The options of `./x test`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Run both tiers of tests instead of the first tier only.
    pub(crate) all: bool,
    /// Without end-to-end tests and documentation.
    pub(crate) quick: bool,
    /// A skipped test does not fail the run.
    pub(crate) allow_skip: bool,
    /// The times of the steps become the last figures, which later runs are compared with.
    pub(crate) record: bool,
    /// Only the packages that a change can break, and the commit that the change is compared with, if it is named.
    pub(crate) changed: Option<Option<String>>,
    /// Only these test programs; all if empty.
    pub(crate) programs: Vec<String>,
    /// Only tests with one of these words in their names, of both tiers; all if empty.
    pub(crate) tests: Vec<String>,
    /// The folder for logs and results instead of `target/test`. Two runs that have one folder wait for each other.
    pub(crate) results: Option<PathBuf>,
}

/// The options of `./x soak`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Soak {
    /// The tests to repeat.
    pub(crate) tests: Options,
    /// Number of rounds: each test runs once a round.
    pub(crate) times: usize,
    /// Number of busy loops that run while the tests run.
    pub(crate) busy: usize,
}

impl Options {
    /// # Errors
    /// A word that is none of the options, an option without its value, or two that exclude each other.
    pub(crate) fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let mut options = Self::default();
        let mut words = Words(words.into_iter());
        while let Some((option, value)) = words.next_option() {
            match option {
                "--quick" if value.is_none() => options.quick = true,
                "--record" if value.is_none() => options.record = true,
                "--allow-skip" if value.is_none() => options.allow_skip = true,
                "--changed" if value != Some("") => options.changed = Some(value.map(str::to_owned)),
                _ if options.parse_selection(option, value, &mut words)? => {}
                _ => bail!(
                    "./x test takes --all, --quick, --changed[=COMMIT], --program P, --test NAME, --results FOLDER, \
                     --record and --allow-skip, not {}",
                    shown(option, value)
                ),
            }
        }
        ensure!(
            !(options.quick && options.all),
            "--quick leaves tests out, and --all adds some: give one of them"
        );
        ensure!(
            !(options.is_narrow() && (options.quick || options.changed.is_some())),
            "--program and --test select tests by name: give them without --quick and --changed"
        );
        let part = options.is_narrow() || options.quick || options.changed.is_some();
        ensure!(
            !(options.record && part),
            "--record keeps the figures of a whole run: give it alone or with --all"
        );
        Ok(options)
    }

    /// Reads an option that selects tests. Returns `false` for any other option.
    fn parse_selection<'a>(
        &mut self,
        option: &str,
        value: Option<&'a str>,
        words: &mut Words<impl Iterator<Item = &'a str>>,
    ) -> Result<bool> {
        match option {
            "--all" if value.is_none() => self.all = true,
            "--program" => self.programs.push(words.value_of(option, value)?.to_owned()),
            "--test" => self.tests.push(words.value_of(option, value)?.to_owned()),
            "--results" => self.results = Some(words.value_of(option, value)?.into()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns `true` if a step of this name was asked for.
    pub(crate) fn names(&self, step: &str) -> bool {
        self.programs.iter().any(|program| program == step)
    }

    /// Returns `true` if tests are selected by name, so nothing but test programs runs.
    pub(crate) fn is_narrow(&self) -> bool {
        !self.programs.is_empty() || !self.tests.is_empty()
    }
}

impl Soak {
    /// # Errors
    /// As [`Options::parse`], and a number that is none, or no round at all.
    pub(crate) fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let mut soak = Self { tests: Options { allow_skip: true, ..Options::default() }, times: 20, busy: 2 };
        let mut words = Words(words.into_iter());
        while let Some((option, value)) = words.next_option() {
            match option {
                "--times" => soak.times = words.number_of(option, value)?,
                "--busy" => soak.busy = words.number_of(option, value)?,
                _ if soak.tests.parse_selection(option, value, &mut words)? => {}
                _ => bail!(
                    "./x soak takes --all, --program P, --test NAME, --results FOLDER, --times N and --busy K, \
                     not {}",
                    shown(option, value)
                ),
            }
        }
        ensure!(soak.times > 0, "--times 0 runs nothing");
        Ok(soak)
    }
}

/// An option as it was written.
fn shown(option: &str, value: Option<&str>) -> String {
    value.map_or_else(|| option.to_owned(), |value| format!("{option}={value}"))
}

/// The words of a command line.
struct Words<I>(I);

impl<'a, I: Iterator<Item = &'a str>> Words<I> {
    /// The next option, and the value behind its `=`.
    fn next_option(&mut self) -> Option<(&'a str, Option<&'a str>)> {
        let word = self.0.next()?;
        Some(word.split_once('=').map_or((word, None), |(option, value)| (option, Some(value))))
    }

    /// The value of an option: behind its `=`, or the next word.
    fn value_of(&mut self, option: &str, value: Option<&'a str>) -> Result<&'a str> {
        let value = value.or_else(|| self.0.next()).filter(|value| !value.is_empty());
        value.with_context(|| format!("{option} needs a value"))
    }

    fn number_of(&mut self, option: &str, value: Option<&'a str>) -> Result<usize> {
        let value = self.value_of(option, value)?;
        value.parse().with_context(|| format!("{option} needs a number, not {value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Options> {
        Options::parse(words.split_whitespace())
    }

    fn says(words: &str, error: &str) -> bool {
        parse(words).is_err_and(|e| e.to_string().contains(error))
    }

    #[test]
    fn options_are_read_and_other_words_are_errors() {
        assert_eq!(parse("").expect("nothing"), Options::default());
        let most = Options {
            quick: true,
            allow_skip: true,
            changed: Some(Some("main".into())),
            ..Options::default()
        };
        assert_eq!(parse("--quick --changed=main --allow-skip").expect("options"), most);
        assert_eq!(parse("--changed").expect("an option").changed, Some(None));
        for wrong in ["--fast", "quick", "--changed=", "--quick=yes"] {
            assert!(says(wrong, wrong), "{wrong}");
        }
    }

    #[test]
    fn a_program_and_a_test_are_named_by_the_next_word_or_behind_a_sign() {
        let one = Options { programs: vec!["vm".into()], tests: vec!["boot".into()], ..Options::default() };
        assert_eq!(parse("--program vm --test=boot").expect("options"), one);
        assert_eq!(parse("--results=out").expect("an option").results, Some("out".into()));
        assert_eq!(parse("--program vm --program=cnk").expect("options").programs, ["vm", "cnk"]);
        assert_eq!(parse("--test boot --test=ends").expect("options").tests, ["boot", "ends"]);
        assert!(one.is_narrow() && !Options::default().is_narrow());
        assert!(says("--program", "--program needs a value") && says("--test=", "--test needs a value"));
    }

    #[test]
    fn options_that_exclude_each_other_are_errors() {
        assert!(says("--quick --all", "give one of them"));
        assert!(says("--program vm --changed", "without --quick and --changed"));
        assert!(says("--quick --record", "a whole run") && parse("--all --record").is_ok_and(|o| o.record));
    }

    #[test]
    fn a_soak_has_rounds_and_busy_loops() {
        let soak = |words: &str| Soak::parse(words.split_whitespace());
        let default = soak("").expect("nothing");
        assert_eq!((default.times, default.busy, default.tests.all), (20, 2, false));
        let five = soak("--all --times 5 --busy=0 --program vm").expect("options");
        assert_eq!((five.times, five.busy, five.tests.all), (5, 0, true));
        assert_eq!(five.tests.programs, ["vm"]);
        for wrong in ["--times 0", "--times many", "--busy", "--quick"] {
            assert!(soak(wrong).is_err(), "{wrong}");
        }
    }
}
