// SPDX-License-Identifier: MIT OR Apache-2.0
//! The documentation, held against the programs: every command it shows runs, every link leads somewhere.
//!
//! A block ```` ```console ```` is run line by line where a line begins with `$ ` (a line that begins with `> `
//! goes on with it); what stands below is sample output, for readers. In a block ```` ```console exact ```` it must be
//! what the command prints ([`crate::samples`]): for figures that are the same everywhere. The commands of a page are one shell session
//! on a pseudo-terminal, in a folder of its own. A block that needs more than every machine has says so:
//! `needs-root`, `needs-mpi`, `needs-colonyd`, `needs-vm`, `needs-cnk`, `needs-static`, `needs-dropbear`, `needs-nas`, `needs-selfish`, `needs-bench-cnk`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use colony_node::privilege::Privileges;
use colony_nodes::programs::static_folder;

use crate::samples::{self, Sample};

/// Seconds that a page may take at most, for machines under load.
const PAGE_TIMEOUT_S: &str = "600";

/// A command of a page.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    line: usize,
    command: String,
    needs: Vec<String>,
    /// The output it must print, if that is the same everywhere.
    sample: Option<Sample>,
}

/// The commands that `page` shows, in order.
fn commands(page: &str) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    // what the block needs, inside one that is run; none in another block
    let mut block: Option<Option<Vec<String>>> = None;
    let mut exact = false;
    for (line, text) in (1..).zip(page.lines()) {
        match (&block, text.strip_prefix("```")) {
            (None, Some(head)) => {
                let mut words = head.split_whitespace();
                let run = words.next() == Some("console");
                let words: Vec<String> = words.map(str::to_owned).collect();
                exact = words.iter().any(|w| w == "exact");
                block = Some(run.then(|| words.into_iter().filter(|w| w != "exact").collect()));
            }
            (Some(_), Some(_)) => block = None,
            (Some(Some(needs)), None) => {
                if let Some(command) = text.strip_prefix("$ ") {
                    let sample = exact.then(|| Sample { first: line, lines: Vec::new() });
                    all.push(Shown { line, command: command.into(), needs: needs.clone(), sample });
                } else if let (Some(more), Some(last)) = (text.strip_prefix("> "), all.last_mut()) {
                    last.command.push('\n');
                    last.command.push_str(more);
                    if let Some(sample) = &mut last.sample {
                        sample.first = line;
                    }
                } else if let Some(sample) = all.last_mut().and_then(|last| last.sample.as_mut()) {
                    sample.lines.push(text.to_owned());
                }
            }
            _ => {}
        }
    }
    all
}

fn root_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().expect("the checkout")
}

/// README.md, ARCHITECTURE.md and the book, by path in the checkout.
pub(crate) fn pages() -> Vec<(String, String)> {
    let root = root_folder();
    let book = std::fs::read_dir(root.join("docs")).expect("docs/");
    let book = book.map(|e| format!("docs/{}", e.expect("readable").file_name().display()));
    let mut names: Vec<String> = book.filter(|n| n.ends_with(".md")).collect();
    names.sort();
    names.extend(
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "SPECIFICATION.md"]
            .map(str::to_owned),
    );
    let read = |name: String| {
        let text = std::fs::read_to_string(root.join(&name)).expect("a page");
        (name, text)
    };
    names.into_iter().map(read).collect()
}

/// The folder of the programs under test.
fn programs() -> &'static Path {
    assert_cmd::cargo::cargo_bin!("colony").parent().expect("a folder")
}

/// Reason why something that a block needs is missing here; `None` if it is present.
fn missing(need: &str) -> Option<String> {
    let on_path = |name: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
    };
    let built = |name: &str| programs().join(name).is_file();
    let p = Privileges::here();
    let root = is_root() && p.bpf && p.real_time;
    let (ok, why) = match need {
        "needs-root" => (root, "root with real-time classes and BPF"),
        "needs-mpi" => {
            (built("colony-bench") && (on_path("mpirun") || on_path("mpiexec")), "colony-bench and mpirun")
        }
        "needs-colonyd" => {
            (root && built("colonyd") && Path::new("/dev/fuse").exists(), "colonyd, root and /dev/fuse")
        }
        "needs-nas" => (built("colony-nas"), "colony-nas"),
        "needs-selfish" => (built("colony-selfish"), "colony-selfish"),
        "needs-bench-cnk" => (built("colony-bench-cnk"), "colony-bench-cnk"),
        "needs-vm" => {
            (on_path("qemu-system-x86_64") && on_path("busybox"), "qemu-system-x86 and busybox-static")
        }
        "needs-cnk" => (
            on_path("qemu-system-x86_64")
                && on_path("busybox")
                && built("ciod")
                && built("colony-boot")
                && built("colony-control"),
            "qemu-system-x86, busybox-static, ciod, colony-boot and colony-control",
        ),
        "needs-static" => (static_folder().is_some_and(|f| f.is_dir()), "the programs of ./x static"),
        "needs-dropbear" => (Path::new("/usr/sbin/dropbear").is_file(), "dropbear-bin"),
        other => panic!("`{other}` is nothing a block can need"),
    };
    (!ok).then(|| format!("{why} are not here"))
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|m| m.uid() == 0)
}

/// The page as a script that stops at the first command that fails; `None` where nothing can be run.
fn script(name: &str, shown: &[Shown]) -> Option<String> {
    // whatever happens, what the page started in the background ends with it
    let mut script = String::from("trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n");
    let mut any = false;
    for s in shown {
        if let Some(reason) = s.needs.iter().find_map(|n| missing(n)) {
            colony_testing::skip(format_args!("{name}:{}: `{}`: {reason}", s.line, s.command));
            continue;
        }
        any = true;
        writeln!(script, "trap 'echo \"FAILED: {name}:{}\"' ERR", s.line).expect("memory");
        match &s.sample {
            None => writeln!(script, "{}", s.command).expect("memory"),
            Some(sample) => {
                let file = format!("\"$SAMPLES/{}\"", sample.first);
                writeln!(script, "{{ {}\n}} > {file}\ncat {file}", s.command).expect("memory");
            }
        }
    }
    any.then_some(script)
}

/// A page that was run: how it ended, and what the commands with a sample printed.
struct Ran {
    out: Output,
    printed: BTreeMap<usize, String>,
}

fn run(script: &str) -> Ran {
    let folder = tempfile::tempdir().expect("a folder");
    let place = |file: &str| folder.path().join(file);
    std::fs::create_dir(place("bin")).expect("a folder");
    std::fs::create_dir(place("work")).expect("a folder");
    std::fs::create_dir(place("samples")).expect("a folder");
    // a program, not a function: what `sudo … &` starts must be the program itself
    std::fs::write(place("bin/sudo"), "#!/bin/sh\nexec \"$@\"\n").expect("a file");
    std::fs::set_permissions(place("bin/sudo"), PermissionsExt::from_mode(0o755)).expect("our file");
    std::fs::write(place("page.sh"), script).expect("a file");
    let path = format!(
        "{}:{}:{}",
        place("bin").display(),
        programs().display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let page = format!("timeout --foreground {PAGE_TIMEOUT_S} bash -e {}", place("page.sh").display());
    let out = Command::new("script")
        .args(["-qefc", &page, "/dev/null"])
        .current_dir(place("work"))
        .env("PATH", path)
        .env("TERM", "xterm-256color")
        .env("SAMPLES", place("samples"))
        .env("STATIC", static_folder().unwrap_or_default())
        .env("XDG_STATE_HOME", place("state"))
        .env("COLONY_BENCH", programs().join("colony-bench"))
        .env_remove("COLONY_MOUNT")
        .stdin(Stdio::null())
        .output()
        .expect("script, of util-linux, runs");
    let files = std::fs::read_dir(place("samples")).expect("a folder").map(|f| f.expect("readable"));
    let printed = files.filter_map(|f| {
        let line = f.file_name().to_str()?.parse().ok()?;
        Some((line, String::from_utf8_lossy(&std::fs::read(f.path()).ok()?).into_owned()))
    });
    let printed = printed.collect();
    Ran { out, printed }
}

/// Returns `true` if the page shows commands.
pub(crate) fn shows_commands(text: &str) -> bool {
    !commands(text).is_empty()
}

/// Whether a page may run beside other tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    /// The page's commands wait, or run in virtual machines, or compute.
    Others,
    /// The page loads CPUs and runs in real time, so it must not meet measurements of other tests.
    NoMeasurement,
}

/// Runs every command that the page `name` shows, in order.
pub(crate) fn every_command_runs(name: &str, beside: Beside) {
    let cpus = colony_node::cpu::usable().expect("linux");
    if !(cpus.contains(0) && cpus.contains(1)) {
        colony_testing::skip(format_args!("the pages name CPU 0 and 1, this process may use {cpus}"));
        return;
    }
    let update = std::env::var_os("COLONY_UPDATE_DOCS").is_some_and(|v| v == "1");
    let text = std::fs::read_to_string(root_folder().join(name)).expect("a page");
    let shown = commands(&text);
    let Some(script) = script(name, &shown) else { return };
    let _alone = (beside == Beside::NoMeasurement).then(crate::common::alone);
    let Ran { out, printed } = run(&script);
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{name}: {}\n{script}\n{text}", out.status);
    assert!(!text.contains("panicked at"), "{name}: {text}");
    let samples: Vec<Sample> = shown.into_iter().filter_map(|s| s.sample).collect();
    samples::check(name, &root_folder().join(name), &samples, &printed, update);
}

#[test]
fn every_link_between_pages_leads_somewhere() {
    for (name, text) in pages() {
        let folder = root_folder().join(&name);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            if file.contains("://") {
                continue;
            }
            let target = if file.is_empty() { folder.clone() } else { folder.with_file_name("").join(file) };
            assert!(target.exists(), "{name} links to {link}, which is not there");
            if !anchor.is_empty() {
                let page = std::fs::read_to_string(&target).expect("a page");
                assert!(
                    anchors(&page).any(|a| a == anchor),
                    "{name} links to {link}, a heading that is not there"
                );
            }
        }
    }
}

/// Anchor of a heading: the part of a link behind its `#`.
fn anchors(page: &str) -> impl Iterator<Item = String> {
    let headings = page.lines().filter(|l| l.starts_with('#')).map(|l| l.trim_start_matches('#').trim());
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    headings
        .map(move |h| h.to_lowercase().chars().filter(kept).map(|c| if c == ' ' { '-' } else { c }).collect())
}

#[test]
fn every_command_of_the_entry_script_that_is_named_exists() {
    let help = Command::new(root_folder().join("x")).arg("help").output().expect("bash");
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    for (name, text) in pages() {
        for word in text.split("./x ").skip(1) {
            let word: String = word.chars().take_while(char::is_ascii_lowercase).collect();
            let there = word == "help" || help.contains(&format!("./x {word}"));
            assert!(there, "{name} names ./x {word}");
        }
    }
}

#[test]
fn every_reproduced_figure_has_its_place_in_the_book_and_no_other_is_there() {
    let listed = crate::common::json(&["study", "--list", "--json"]);
    let listed: BTreeSet<String> = listed["experiments"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|e| Some(e["name"].as_str()?.to_owned()))
        .collect();
    let (_, page) = pages().into_iter().find(|(name, _)| name == "docs/seeds.md").expect("the page");
    let heads = page.lines().filter_map(|l| l.strip_prefix("## `")?.split('`').next());
    let in_book: BTreeSet<String> = heads.map(str::to_owned).collect();
    assert_eq!(listed, in_book);
}

#[test]
fn only_prompts_of_console_blocks_are_commands() {
    let page = "text\n$ no\n```console needs-mpi\n$ a \\\n>   b\noutput\n$ c\n```\n```toml\n$ no\n```\n";
    let needs = || vec!["needs-mpi".into()];
    let shown = |line, command: &str| Shown { line, command: command.into(), needs: needs(), sample: None };
    assert_eq!(commands(page), [shown(4, "a \\\n  b"), shown(7, "c")]);
    let exact = commands(&page.replace("console needs-mpi", "console exact needs-mpi"));
    assert_eq!((&exact[0].needs, &exact[0].command), (&needs(), &shown(4, "a \\\n  b").command));
    let sample =
        |first, lines: &[&str]| Some(Sample { first, lines: lines.iter().map(|&l| l.into()).collect() });
    assert_eq!(exact[0].sample, sample(5, &["output"]));
    assert_eq!(exact[1].sample, sample(7, &[]));
}

#[test]
fn a_page_ends_at_the_first_command_that_fails() {
    let page = "```console\n$ true\n$ sudo sh -c 'exit 3'\n$ echo went on\n```\n";
    let Ran { out, .. } = run(&script("page.md", &commands(page)).expect("commands"));
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(!out.status.success() && text.contains("FAILED: page.md:3"), "{text}");
    assert!(!text.contains("went on"), "{text}");
}

#[test]
fn a_command_with_a_sample_is_recorded_as_it_prints() {
    let page = "```console exact\n$ echo one \\\n>   two\none two\n$ printf 'a\\nb\\n'\n…\nb\n```\n";
    let shown = commands(page);
    let ran = run(&script("page.md", &shown).expect("commands"));
    assert!(ran.out.status.success(), "{:?}", ran.out);
    assert_eq!(ran.printed, BTreeMap::from([(3, "one two\n".to_owned()), (5, "a\nb\n".to_owned())]));
}
