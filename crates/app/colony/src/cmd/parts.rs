// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs of a job on a command line, as those of `mpirun`: `-n 2 A x : -n 6 B y`.

use crate::exit::WrongUse;

/// Between two programs.
const BETWEEN: &str = ":";
/// Number of processes of a program.
const COUNT: [&str; 3] = ["-n", "-np", "--processes"];

/// A program of a job.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Number of its processes, if it is given.
    pub(crate) processes: Option<u32>,
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
}

/// The programs of a command line. Of several, each has a number of processes.
pub(crate) fn parts(words: &[String]) -> Result<Vec<Part>, WrongUse> {
    let parts: Vec<Part> = words.split(|word| word == BETWEEN).map(part).collect::<Result<_, _>>()?;
    match parts.iter().find(|part| part.processes.is_none()) {
        Some(part) if parts.len() > 1 => Err(WrongUse(format!(
            "a job of several programs needs the number of processes of `{0}`: write -n N {0}",
            part.program
        ))),
        _ => Ok(parts),
    }
}

fn part(words: &[String]) -> Result<Part, WrongUse> {
    let missing = || WrongUse("a program is missing before or after `:`: write -n 2 A : -n 6 B".to_owned());
    let (processes, rest) = match words {
        [option, count, rest @ ..] if COUNT.contains(&option.as_str()) => {
            let number = count.parse().ok().filter(|number| *number > 0);
            let wrong = || WrongUse(format!("`{count}` is no number of processes: write {option} 2"));
            (Some(number.ok_or_else(wrong)?), rest)
        }
        _ => (None, words),
    };
    let (program, arguments) = rest.split_first().ok_or_else(missing)?;
    Ok(Part { processes, program: program.clone(), arguments: arguments.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<Part>, String> {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        parts(&words).map_err(|error| error.0)
    }

    fn of(processes: Option<u32>, program: &str, arguments: &[&str]) -> Part {
        let arguments = arguments.iter().map(|&word| word.to_owned()).collect();
        Part { processes, program: program.to_owned(), arguments }
    }

    #[test]
    fn programs_are_divided_as_by_mpirun() {
        assert_eq!(parsed("a -n 3"), Ok(vec![of(None, "a", &["-n", "3"])]));
        assert_eq!(parsed("-np 2 a x"), Ok(vec![of(Some(2), "a", &["x"])]));
        let two = vec![of(Some(2), "a", &["x:y"]), of(Some(6), "b", &[])];
        assert_eq!(parsed("-n 2 a x:y : --processes 6 b"), Ok(two));
    }

    #[test]
    fn what_is_missing_is_named() {
        for (text, said) in [
            ("-n 2 a :", "missing"),
            (": -n 2 a", "missing"),
            ("-n 2", "missing"),
            ("-n 2 a : b", "number of processes of `b`"),
            ("-n 0 a", "`0`"),
            ("-n x a", "`x`"),
        ] {
            let error = parsed(text).expect_err("refused");
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
