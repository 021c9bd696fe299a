// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs of many threads: runtimes and programs that nobody here wrote do on a node what they do on Linux.

use colony_nodes::ciod::{Mode, Network};
use colony_nodes::{Link, Machine};

use crate::common::{boot, folder, programs, run, spec};
use crate::programs::{COMPILERS, compiled, same, same_with};

fn machine(cpus: u32) -> Machine {
    Machine { cpus, ..Machine::default() }
}

#[test]
fn many_threads_of_either_c_library() {
    let Some([]) = programs([]) else { return };
    let built = folder();
    // on a busy host, a change from one emulated CPU to another takes milliseconds
    for (cpus, rounds) in [(1, "1000"), (2, "100"), (4, "20")] {
        let mut partition = boot(machine(cpus), 1);
        for compiler in COMPILERS {
            let program = compiled(compiler, "stress", &[], built.path());
            let out = same(&mut partition, &program, &[rounds], &|_| ());
            assert!(out.starts_with("spun 28\n") && out.ends_with("computed 24\n"), "{out}");
        }
    }
}

/// A node has 256 threads; two processes have half of them each.
#[test]
fn threads_beyond_the_limit_are_refused() {
    let Some([]) = programs([]) else { return };
    let built = folder();
    let program = compiled("gcc", "limit", &[], built.path());
    let mut partition = boot(machine(2), 1);
    for (mode, most) in [(Mode::Coprocessor, 256), (Mode::VirtualNode, 128)] {
        let mut job = spec(&program, built.path(), &[]);
        job.mode = mode;
        let ran = run(&mut partition, job);
        let line = format!("{most} threads, then Resource temporarily unavailable");
        assert!(ran.output().lines().all(|l| l == line), "{}", ran.stdout);
        assert_eq!(ran.stdout.lines().count(), ran.outcome.processes.len());
    }
}

/// A timer interrupts threads only while more of them want a CPU than there are.
#[test]
fn threads_with_a_cpu_each_are_not_interrupted() {
    let Some([]) = programs([]) else { return };
    let built = folder();
    let program = compiled("gcc", "spin", &[], built.path());
    for cpus in [1u32, 2, 4] {
        let mut partition = boot(machine(cpus), 1);
        for threads in [cpus, cpus + 1] {
            let number = threads.to_string();
            let ran = run(&mut partition, spec(&program, built.path(), &[&number]));
            assert_eq!(ran.output(), format!("{number}\n"));
            let ticks = ran.outcome.processes[0].counters.timer_interrupts;
            assert_eq!(ticks == 0, threads == cpus, "{threads} threads on {cpus} CPUs: {ticks} interrupts");
        }
    }
}

#[test]
fn openmp_kernels_are_verified() {
    let Some([]) = programs([]) else { return };
    let built = folder();
    let program = compiled("gcc", "openmp", &["-fopenmp"], built.path());
    let mut partition = boot(machine(2), 1);
    for (threads, kernel) in [("4", "ep"), ("4", "cg"), ("2", "cg")] {
        let environment = [("OMP_NUM_THREADS", threads)];
        let out = same_with(&mut partition, &program, &[kernel], &environment, &|_| ());
        assert_eq!(out, format!("{threads} threads\n{kernel} class S: VERIFIED\n"));
    }
}

#[test]
fn programs_of_openmp_go_and_threads_that_nobody_here_wrote() {
    let Some([fasttree, gofmt, xz]) = programs(["fasttree", "gofmt", "xz"]) else { return };
    let mut partition = boot(Machine { memory: 256 << 20, ..machine(2) }, 1);
    // 24 sequences that differ by a few letters, each from the one before
    let letters = |n: usize| -> String {
        (0..120)
            .map(|at| {
                char::from(b"ACGT"[(at * 7 + at / 11 + (0..n).filter(|k| at == k * 5 % 120).count()) % 4])
            })
            .collect()
    };
    let sequences: String = (0..24).map(|n| format!(">s{n}\n{}\n", letters(n))).collect();
    let tree = same_with(
        &mut partition,
        &fasttree,
        &["-nt", "-quiet", "sequences"],
        &[("OMP_NUM_THREADS", "4")],
        &|folder| std::fs::write(folder.join("sequences"), &sequences).expect("ours"),
    );
    assert!(tree.contains("s23"), "{tree}");
    let source = "package main\nimport(\"fmt\";\"os\")\nfunc  main( ){x:=map[string]int{\"a\":1,\n\"bcd\":2};fmt.Println(x);os.Exit(3)}\n";
    let prepare = |folder: &std::path::Path| {
        for n in 0..20 {
            std::fs::write(folder.join(format!("{n:02}.go")), source).expect("ours");
        }
    };
    let listed = same(&mut partition, &gofmt, &["-l", "."], &prepare);
    assert_eq!(listed.lines().count(), 20, "{listed}");
    same(&mut partition, &gofmt, &["-w", "."], &prepare);
    let words: String = (0..40_000).map(|n| format!("{} line {n}\n", n * 7919 % 1009)).collect();
    let prepare = |folder: &std::path::Path| std::fs::write(folder.join("text"), &words).expect("ours");
    same(&mut partition, &xz, &["-k", "-3", "-T4", "--block-size=100KiB", "text"], &prepare);
}

#[test]
fn goroutines_have_their_turns() {
    let Some([program]) = programs(["goroutines"]) else { return };
    for cpus in [1, 2, 4] {
        let mut partition = boot(machine(cpus), 1);
        let out = same(&mut partition, &program, &[], &|_| ());
        assert!(out.contains("channel 499500") && out.ends_with("recovered true\n"), "{out}");
    }
}

#[test]
fn tasks_of_tokio_have_their_turns() {
    let Some([program]) = programs(["colony-tokio"]) else { return };
    for cpus in [1, 2, 4] {
        let mut partition = boot(machine(cpus), 1);
        for workers in ["1", "4", "16"] {
            let out = same(&mut partition, &program, &[".", workers], &|_| ());
            assert!(out.ends_with("sockets 100\n"), "{out}");
        }
    }
}

#[test]
fn many_threads_over_a_network() {
    let Some([tokio]) = programs(["colony-tokio"]) else { return };
    let built = folder();
    let link = Link::Network(Network::default());
    let mut partition = boot(Machine { link, ..machine(2) }, 1);
    let program = compiled("gcc", "stress", &[], built.path());
    same(&mut partition, &program, &["20"], &|_| ());
    same(&mut partition, &tokio, &[".", "4"], &|_| ());
}
