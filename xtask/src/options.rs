// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of `./x test`.

use anyhow::{Result, bail};

/// What `./x test` is asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Without end-to-end tests and documentation.
    pub(crate) quick: bool,
    /// A skipped test does not fail the run.
    pub(crate) allow_skip: bool,
    /// Only the packages that a change can break, and the commit that the change is compared with, if it is named.
    pub(crate) changed: Option<Option<String>>,
}

impl Options {
    /// # Errors
    /// A word that is none of the options.
    pub(crate) fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let mut options = Self::default();
        for word in words {
            match (word, word.strip_prefix("--changed=")) {
                ("--quick", _) => options.quick = true,
                ("--allow-skip", _) => options.allow_skip = true,
                ("--changed", _) => options.changed = Some(None),
                (_, Some(commit)) if !commit.is_empty() => options.changed = Some(Some(commit.to_owned())),
                _ => bail!("./x test takes --quick, --changed[=COMMIT] and --allow-skip, not {word}"),
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_other_words_are_errors() {
        let parse = |words: &str| Options::parse(words.split_whitespace());
        assert_eq!(parse("").expect("nothing"), Options::default());
        let all = Options { quick: true, allow_skip: true, changed: Some(Some("main".into())) };
        assert_eq!(parse("--quick --changed=main --allow-skip").expect("options"), all);
        assert_eq!(parse("--changed").expect("an option").changed, Some(None));
        for wrong in ["--fast", "quick", "--changed="] {
            assert!(parse(wrong).is_err_and(|e| e.to_string().contains(wrong)), "{wrong}");
        }
    }
}
