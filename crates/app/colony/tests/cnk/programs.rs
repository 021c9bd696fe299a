// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that nobody here wrote run unmodified, and print what they print on Linux.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use colony_nodes::ciod::JobSpec;
use colony_nodes::{Machine, Partition};

use crate::common::{boot, folder, programs, run, spec};

/// Runs the same on Linux and on the node, each in a folder made by `prepare`; both outputs and exit codes must be
/// equal. The output.
pub(crate) fn same(
    partition: &mut Partition,
    program: &Path,
    arguments: &[&str],
    prepare: &dyn Fn(&Path),
) -> String {
    same_with(partition, program, arguments, &[], prepare)
}

/// The same with these variables in the environment.
pub(crate) fn same_with(
    partition: &mut Partition,
    program: &Path,
    arguments: &[&str],
    environment: &[(&str, &str)],
    prepare: &dyn Fn(&Path),
) -> String {
    let (here, there) = (folder(), folder());
    prepare(here.path());
    prepare(there.path());
    let mut linux = Command::new(program);
    let linux =
        linux.args(arguments).current_dir(here.path()).env_clear().env("TZ", "UTC").stdin(Stdio::null());
    let linux = linux.envs(environment.iter().copied()).output().expect("runs on Linux");
    let mut job: JobSpec = spec(program, there.path(), arguments);
    let variables = environment.iter().chain(&[("TZ", "UTC")]);
    job.environment.extend(variables.map(|&(name, value)| (name.to_owned(), value.to_owned())));
    let node = run(partition, job);
    let told = format!("{} {arguments:?}", program.display());
    assert_eq!(
        String::from_utf8_lossy(&linux.stdout),
        node.stdout,
        "{told}\n{}\n{}",
        node.outcome,
        node.stderr
    );
    assert_eq!(String::from_utf8_lossy(&linux.stderr), node.stderr, "{told}");
    assert_eq!(linux.status.code(), Some(node.outcome.code()), "{told}: {}", node.outcome);
    let listing = |folder: &Path| {
        let mut all: Vec<_> = std::fs::read_dir(folder)
            .expect("ours")
            .map(|e| {
                let e = e.expect("ours");
                (e.file_name(), std::fs::read(e.path()).ok())
            })
            .collect();
        all.sort();
        all
    };
    assert!(listing(here.path()) == listing(there.path()), "{told}: the files are the same");
    node.stdout.clone()
}

#[test]
fn busybox_applets() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let mut partition = boot(Machine::default(), 1);
    let prepare = |folder: &Path| {
        std::fs::write(folder.join("words"), "pear\napple\nfig\napple\n").expect("ours");
        std::fs::create_dir(folder.join("sub")).expect("ours");
    };
    let cases: &[&[&str]] = &[
        &["echo", "hello", "world"],
        &["cat", "words"],
        &["sort", "-u", "words"],
        &["grep", "-n", "p", "words"],
        &["sed", "s/p/P/g", "words"],
        &["awk", "{ n[$1]++ } END { for (w in n) print n[w], w | \"cat\" }", "missing"],
        &["awk", "{ n += length($1) } END { print n, NR }", "words"],
        &["wc", "words"],
        &["sha256sum", "words"],
        &["cp", "words", "copy"],
        &["mv", "words", "sub/moved"],
        &["rm", "-r", "sub"],
        &["ls", "-1"],
        &["find", ".", "-name", "w*"],
        &["tar", "cf", "words.tar", "--numeric-owner", "missing"],
        &["dd", "if=words", "of=part", "bs=3", "count=2", "skip=1", "status=none"],
        &["head", "-c", "6", "words"],
        &["od", "-c", "words"],
        &["bc", "-e", "1"],
        &["test", "-d", "sub"],
        &["false"],
        &["sh", "-c", "for i in 1 2 3; do echo $((i * i)); done; read a < words; echo $a; exit 3"],
        &["gzip", "-k", "-n", "words"],
        &["diff", "words", "missing"],
        &["stat", "-c", "%s %F", "words"],
    ];
    for case in cases {
        same(&mut partition, &busybox, case, &prepare);
    }
}

#[test]
fn lua_of_either_c_library() {
    let Some(both) = programs(["lua", "lua-musl"]) else { return };
    let mut partition = boot(Machine::default(), 1);
    let text = r#"
        local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
        print(_VERSION, fib(20), 2^53, string.format("%.17g", math.pi), #arg)
        local f = assert(io.open("out", "w"))
        for i = 1, 1000 do f:write(i, "\n") end
        f:close()
        local sum = 0
        for line in io.lines("out") do sum = sum + tonumber(line) end
        print(sum, pcall(error, "caught"))
        print(os.rename("out", "renamed"), io.open("missing"))
        collectgarbage()
        os.exit(5)
    "#;
    for lua in both {
        let out = same(&mut partition, &lua, &["program.lua", "a", "b"], &|folder| {
            std::fs::write(folder.join("program.lua"), text).expect("ours");
        });
        assert!(out.contains("6765") && out.contains("500500"), "{out}");
    }
}

/// A thread, its own variables, locks, a handler, memory given back and taken again: what a C library does beneath.
#[test]
fn threads_and_signals_of_either_c_library() {
    let Some([]) = programs([]) else { return };
    let mut partition = boot(Machine::default(), 1);
    for compiler in COMPILERS {
        let built = folder();
        let program = compiled(compiler, "threads", &[], built.path());
        let out = same(&mut partition, &program, &[], &|_| ());
        assert!(out.starts_with("200000 9 7\n"), "{out}");
        assert!(out.contains("robust: owner died, 0 0\n"), "{out}");
    }
}

/// QEMU 7.2 leaves the bits of the quotient zero (C0, C3 and C1 after `fprem1`): what musl's `remquol` is made of.
#[test]
fn long_numbers_of_either_c_library() {
    let Some([]) = programs([]) else { return };
    let mut partition = boot(Machine::default(), 1);
    for compiler in COMPILERS {
        let built = folder();
        let program = compiled(compiler, "numbers", &[], built.path());
        let linux = Command::new(&program).output().expect("runs on Linux").stdout;
        let linux = String::from_utf8(linux).expect("text");
        let node = run(&mut partition, spec(&program, built.path(), &[]));
        let lines = |text: &str| {
            let emulated = |line: &&str| compiler == "gcc" || !line.starts_with("remquol quotient");
            text.lines().filter(emulated).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(lines(&linux), lines(node.output()), "{compiler}");
    }
}

pub(crate) const COMPILERS: [&str; 2] = ["gcc", "musl-gcc"];

/// A static program of the C source `name` of this folder.
pub(crate) fn compiled(compiler: &str, name: &str, more: &[&str], folder: &Path) -> PathBuf {
    let program = folder.join(name);
    let source = format!("{}/tests/cnk/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let options = ["-O2", "-fno-builtin", "-static", "-pthread"];
    let compiled = Command::new(compiler)
        .args(options)
        .args(more)
        .arg(source)
        .arg("-o")
        .arg(&program)
        .arg("-lm")
        .status();
    assert!(compiled.is_ok_and(|c| c.success()), "{compiler} (gcc, musl-tools) compiles {name}.c");
    program
}

#[test]
fn sqlite_keeps_its_files_over_shipping() {
    let Some([sqlite]) = programs(["sqlite3"]) else { return };
    let mut partition = boot(Machine::default(), 1);
    let make = "create table t(a integer primary key, b text); \
                with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000) \
                insert into t select i, printf('row %d', i * i) from n; \
                create index by_b on t(b); \
                begin; delete from t where a % 3 = 0; rollback; \
                begin; delete from t where a % 7 = 0; commit; \
                select count(*), sum(a), max(b) from t; pragma integrity_check;";
    let out = same(&mut partition, &sqlite, &["data", make], &|_| ());
    assert!(out.ends_with("ok\n"), "{out}");
}

#[test]
fn zstd() {
    let Some([zstd]) = programs(["zstd"]) else { return };
    let mut partition = boot(Machine::default(), 1);
    let words: String = (0..40_000).map(|n| format!("{} line {n}\n", n * 7919 % 1009)).collect();
    let prepare = |folder: &Path| std::fs::write(folder.join("text"), &words).expect("ours");
    same(&mut partition, &zstd, &["-q", "-9", "text", "-o", "text.zst"], &prepare);
    let packed = |folder: &Path| {
        prepare(folder);
        let status =
            Command::new(&zstd).args(["-q", "--rm", "text", "-o", "text.zst"]).current_dir(folder).status();
        assert!(status.expect("runs").success());
    };
    same(&mut partition, &zstd, &["-q", "-d", "text.zst"], &packed);
}
