// SPDX-License-Identifier: MIT OR Apache-2.0
//! The examples, compiled and run: their results are those of serial programs, bit by bit.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The crate.
pub(crate) fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The shared library that belongs to this test.
pub(crate) fn library() -> PathBuf {
    let here = std::env::current_exe().expect("Linux").parent().expect("a folder").to_owned();
    let file = here.join("libcolony_runtime_c.so");
    assert!(file.is_file(), "{} is not built", file.display());
    file
}

fn exists(compiler: &str) -> bool {
    Command::new(compiler).arg("--version").output().is_ok_and(|out| out.status.success())
}

/// Compiles a program and links it with the library. None if the compiler is missing, which is recorded.
pub(crate) fn compile(
    compiler: &str,
    flags: &[&str],
    sources: &[&Path],
    into: &Path,
    is_static: bool,
) -> Option<PathBuf> {
    if !exists(compiler) {
        colony_testing::skip(format_args!("{compiler} is not here"));
        return None;
    }
    let (program, library) = (into.join("program"), library());
    let folder_of_library = library.parent().expect("a folder");
    let mut command = Command::new(compiler);
    // contracted to one instruction, a product and a sum would have other bits
    command.args(flags).args(["-O1", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off"]);
    command.arg("-I").arg(folder().join("include")).args(sources).arg("-o").arg(&program);
    if is_static {
        command.arg(folder_of_library.join("libcolony_runtime_c.a"));
        command.args(["-lpthread", "-ldl", "-lm"]);
    } else {
        command.arg("-L").arg(folder_of_library).arg("-lcolony_runtime_c");
        command.arg(format!("-Wl,-rpath,{}", folder_of_library.display())).arg("-lm");
    }
    let out = command.current_dir(into).output().expect("the compiler runs");
    assert!(out.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&out.stderr));
    Some(program)
}

/// Runs a program; exit code, output, errors.
pub(crate) fn run(program: &Path, arguments: &[&str], threads: u32) -> (Option<i32>, String, String) {
    let out = Command::new(program).args(arguments).env("COLONY_THREADS", threads.to_string()).output();
    let out = out.expect("the program runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code(), text(&out.stdout), text(&out.stderr))
}

/// The stencil, serially: the same sums in the same order for each cell.
fn serial_stencil(n: usize, steps: usize) -> String {
    let m = n + 2;
    let cell = |x: usize, y: usize, z: usize| (x * m + y) * m + z;
    let all = || (0..n * n * n).map(|at| (at / n / n + 1, at / n % n + 1, at % n + 1));
    let mut old = vec![0.0f64; m * m * m];
    for (x, y, z) in all() {
        old[cell(x, y, z)] = (((x - 1) * 31 + (y - 1) * 17 + (z - 1) * 7) % 64) as f64 / 64.0;
    }
    let mut lines = String::new();
    for step in 1..=steps {
        let mut new = vec![0.0f64; m * m * m];
        let mut change = 0.0f64;
        for (x, y, z) in all() {
            let was = old[cell(x, y, z)];
            let sum = old[cell(x - 1, y, z)]
                + old[cell(x + 1, y, z)]
                + old[cell(x, y - 1, z)]
                + old[cell(x, y + 1, z)]
                + old[cell(x, y, z - 1)]
                + old[cell(x, y, z + 1)];
            let value = 0.5 * was + sum / 12.0;
            change = change.max((value - was).abs());
            new[cell(x, y, z)] = value;
        }
        old = new;
        lines += &format!("step {step}: largest change {change:?}\n");
    }
    let mut sum = 0u64;
    for (x, y, z) in all() {
        let place = ((x - 1) * n + y - 1) * n + z - 1;
        sum = sum.wrapping_add(old[cell(x, y, z)].to_bits().wrapping_mul(2 * place as u64 + 1));
    }
    lines + &format!("checksum {sum:016x}\n")
}

/// Lines of a stencil with their numbers as bits: C and Rust write them with different numbers of digits.
fn bits(lines: &str) -> Vec<String> {
    let read = |line: &str| match line.rsplit_once("change ") {
        Some((step, number)) => format!("{step}{:016x}", number.parse::<f64>().expect("a number").to_bits()),
        None => line.to_owned(),
    };
    lines.lines().map(read).collect()
}

#[test]
fn the_stencil_in_c_gives_the_bits_of_a_serial_program() {
    let temporary = tempfile::tempdir().expect("a folder");
    let source = folder().join("examples/stencil.c");
    let Some(program) = compile("cc", &["-std=c11", "-Wpedantic"], &[&source], temporary.path(), false)
    else {
        return;
    };
    let expected = bits(&serial_stencil(12, 11));
    for arguments in [
        &["12", "1", "11", "1"][..],
        &["12", "3", "11", "1"],
        &["12", "3", "11", "2"],
        &["12", "4", "11", "3", "rotate"],
        &["12", "2", "11", "4", "greedy"],
    ] {
        let (code, out, error) = run(&program, arguments, 1);
        assert_eq!((code, bits(&out), &*error), (Some(0), expected.clone(), ""), "{arguments:?}");
    }
    assert_eq!(
        run(&program, &["13", "2"], 2),
        (
            Some(1),
            String::new(),
            "error: `start`: N has to be a multiple of B, and STEPS at least 1\n".into()
        )
    );
    let (code, _, error) = run(&program, &["12", "2", "1", "1", "nonsense"], 1);
    assert!(code == Some(2) && error.contains("nonsense"), "{error}");
    let (code, _, error) = run(&program, &[], 0);
    assert!(code == Some(2) && error.contains("COLONY_THREADS is `0`"), "{error}");
}

/// The ring, serially.
fn serial_ring(members: u64, laps: u64) -> String {
    let (mut value, mut sum) = (1u64, 0u64);
    for hop in 0..members * laps {
        value = value
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(hop % members)
            .wrapping_add(1_442_695_040_888_963_407);
        sum = sum.wrapping_add(value);
    }
    format!("{} hops, checksum {sum:016x}\n", members * laps)
}

#[test]
fn the_ring_in_cpp_gives_the_bits_of_a_serial_program() {
    let temporary = tempfile::tempdir().expect("a folder");
    let source = folder().join("examples/ring.cpp");
    for is_static in [false, true] {
        let flags = ["-std=c++17", "-Wpedantic"];
        let Some(program) = compile("c++", &flags, &[&source], temporary.path(), is_static) else { return };
        for threads in [1, 2, 3] {
            let expected = (Some(0), serial_ring(7, 50), String::new());
            assert_eq!(run(&program, &["7", "50"], threads), expected, "{threads} PEs");
        }
        let (code, _, error) = run(&program, &["0"], 2);
        assert_eq!((code, &*error), (Some(1), "error: `start`: MEMBERS and LAPS have to be at least 1\n"));
    }
}

/// Fortran is not among the packages that Colony needs: without a compiler, nothing is tested and nothing is missing.
#[test]
fn the_ring_in_fortran_runs_if_a_compiler_is_here() {
    let Some(compiler) = ["gfortran", "gfortran-12"].into_iter().find(|name| exists(name)) else { return };
    let temporary = tempfile::tempdir().expect("a folder");
    let sources = [folder().join("include/colony.f90"), folder().join("examples/ring.f90")];
    let sources = [&*sources[0], &*sources[1]];
    let flags = ["-std=f2018", "-Wno-unused-dummy-argument"];
    let Some(program) = compile(compiler, &flags, &sources, temporary.path(), false) else { return };
    for threads in [1, 2] {
        let expected = "800 hops, 100 through the last object\n";
        assert_eq!(run(&program, &[], threads), (Some(0), expected.into(), String::new()));
    }
}

/// A program of C++ whose members throw, or whose objects unpack fewer bytes than they have packed.
#[test]
fn an_exception_in_cpp_ends_the_job_with_its_text() {
    let temporary = tempfile::tempdir().expect("a folder");
    let file = temporary.path().join("throws.cpp");
    let source = r#"
#include <colony.hpp>
struct Go { int what; };
struct Thrower : colony::Object<Thrower, Go> {
    static constexpr const char *name = "Thrower";
    using Init = int;
    Thrower(const Init &init, colony::Context &) { if (init == 0) throw std::runtime_error("no init"); }
    void call(const Go &go, colony::Context &context) {
        if (go.what == 1) throw 5;
        if (go.what == 2) context.migrateTo(1000);
        context.exit(0);
    }
};
int main(int argc, char **argv) {
    colony::Program program;
    program.add<Thrower>();
    return program.run(argc, argv, [](int, char **argv, colony::Context &context) {
        int what = argv[1][0] - '0';
        context.send(context.createOne<Thrower>(what), Go{what});
    });
}
"#;
    std::fs::write(&file, source).expect("a file");
    let Some(program) = compile("c++", &["-std=c++17"], &[&file], temporary.path(), false) else { return };
    for (what, code, error) in [
        ("0", 1, "error: `create` of Thrower 0: no init\n"),
        ("1", 1, "error: the entry method call of Thrower 0: an exception that is no std::exception\n"),
        (
            "2",
            1,
            "error: the entry method call of Thrower 0: PE 1000 does not exist: the job has 1, from 0\n",
        ),
        ("3", 0, ""),
    ] {
        assert_eq!(run(&program, &[what], 1), (Some(code), String::new(), error.to_owned()), "{what}");
    }
}

#[test]
fn the_program_of_the_page_runs() {
    let page = std::fs::read_to_string(folder().join("../../../docs/runtime-c.md")).expect("the page");
    let code = page.split_once("```cpp\n").and_then(|(_, rest)| rest.split_once("```")).expect("a program").0;
    let temporary = tempfile::tempdir().expect("a folder");
    let file = temporary.path().join("page.cpp");
    std::fs::write(&file, format!("#include <colony.hpp>\n{code}")).expect("a file");
    let Some(program) = compile("c++", &["-std=c++17"], &[&file], temporary.path(), false) else { return };
    for threads in [1, 3] {
        assert_eq!(run(&program, &[], threads), (Some(0), String::new(), String::new()), "{threads} PEs");
    }
}
