//! Wrong use: one clear error, exit code 2 (1 where the words were right and the run failed).

use crate::common::{colony, last_cpu};

/// Runs `colony ARGS`, which must fail with `code` and one error that contains `part`.
fn fails(args: &[&str], code: i32, part: &str) {
    let out = colony().args(args).output().expect("runs");
    let error = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(code), "{args:?}: {error}");
    assert!(error.contains(part), "{args:?}: `{part}` is not in: {error}");
    assert_eq!(error.matches("error:").count(), 1, "{args:?}: {error}");
    assert!(out.stdout.is_empty(), "{args:?}");
    assert!(!error.contains("panicked"), "{error}");
}

#[test]
fn unknown_flags_and_values_are_explained() {
    fails(&["measure", "--nonsense"], 2, "--nonsense");
    fails(&["measure", "--duration", "5"], 2, "use ns, us, ms, s, min or h");
    fails(&["measure", "--threshold", "10ns"], 2, "50 ns or more");
    fails(&["measure", "--cpus", "3-1"], 2, "runs backwards");
    fails(&["measure", "--cpus", "900"], 2, "no such CPU");
    fails(&["measure", "--fifo", "99", "--cpus", &last_cpu()], 2, "1 to 90");
    fails(&["measure", "--ring", "0"], 2, "ring");
    fails(&["measure", "--all-cpus"], 2, "--fifo");
}

#[test]
fn top_without_a_terminal_says_what_to_use_instead() {
    fails(&["top"], 2, "colony measure");
}
