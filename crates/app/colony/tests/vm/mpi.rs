// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs of real MPI over two nodes: their windows hold on both, and nothing is left of them however they end.

use std::path::{Path, PathBuf};

use colony_bench::BenchResult;
use colony_client::Backend;
use colony_sched::proof::WindowTimes;
use colony_sched::run::RunReport;
use colony_vm::testing::missing;
use colony_vm::{Exit, Kernel, Link, Outcome, Recipe, Vm, fleet};

const NODES: u32 = 2;

/// Shell functions of node 0. `way NAME PROGRAM FLAGS…` runs a job on both nodes that leaves its reports in /tmp, and
/// checks that it left nothing else.
const FUNCTIONS: &str = r#"
hosts="-n 2 --host n0,n1"
windows="--period 200ms --duty 80%"
way() {
    name=$1 program=$2; shift 2
    mpirun $hosts colony run $windows --out /tmp/$name.json "$@" -- \
        colony-bench $program --seconds 1 --warmup 10 --out /tmp/$name-result.json > /tmp/$name.log 2>&1 || { cat /tmp/$name.log; exit 1; }
    untouched; ssh n1 untouched
}
daemon() { killall housekeeper 2> /dev/null || true; housekeeper $1 < /dev/null > /dev/null 2>&1 & }
daemons() { daemon $1; ssh n1 "killall housekeeper 2> /dev/null; housekeeper $1 < /dev/null > /dev/null 2>&1 &"; sleep 1; }
"#;

/// Two nodes with MPI; `None`, with the reason printed, where they cannot be had.
fn cluster() -> Option<Vm> {
    let ours = ["colonyd", "colony-bench"].map(|p| assert_cmd::cargo::cargo_bin!("colony").with_file_name(p));
    let programs = ["/usr/bin/mpirun", "/usr/bin/orted", "/usr/sbin/dropbear"].map(PathBuf::from);
    let absent = programs.into_iter().chain(ours).find(|p| !p.is_file());
    let absent = absent.map(|p| format!("{} is not here", p.display()));
    if let Some(reason) = missing().or(absent) {
        colony_testing::skip(reason);
        return None;
    }
    let image = Recipe::find("compute-linux").and_then(|r| r.image()).expect("an image");
    let vm = Vm::new(&Kernel::find("").expect("a kernel"), &image);
    Some(
        vm.file("/usr/bin/untouched", include_str!("untouched.sh"))
            .file("/usr/bin/held", include_str!("held.sh"))
            .file("/usr/bin/serve", include_str!("serve.sh")),
    )
}

/// Runs a script on node 0 after the functions above, while the other serves; it must succeed.
fn sh(vm: &Vm, text: &str) -> Vec<Outcome> {
    let text = format!("{FUNCTIONS}\n{text}");
    let out = fleet::run(vm, NODES, Link::default(), &["cluster", "sh", "-euc", &text], |_, _| {})
        .expect("the nodes run");
    for node in &out {
        assert_eq!(node.exit, Exit::Code(0), "{}\n{}\n{}", node.text(), node.error_text(), node.console);
    }
    out
}

fn json<T: serde::de::DeserializeOwned>(out: &Outcome, name: &str) -> T {
    let file = &out.files[Path::new(&format!("/tmp/{name}.json"))];
    let bytes = file.as_ref().unwrap_or_else(|e| panic!("{name}: {e}; {}", out.error_text()));
    serde_json::from_slice(bytes).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Reports and times of one way of running.
struct Way {
    nodes: Vec<RunReport>,
    result: BenchResult,
}

impl Way {
    fn of(out: &[Outcome], name: &str) -> Self {
        let nodes = out.iter().map(|o| json(o, name)).collect();
        let way = Self { nodes, result: json(&out[0], &format!("{name}-result")) };
        let all = &way.result.results[0].all;
        let shares: Vec<String> =
            way.nodes.iter().map(|n| format!("{:.2} %", 100.0 * share(&n.proof.favored))).collect();
        eprintln!(
            "{name}: operation {:.0} us in the mean, {:.0} us at 99 %; stolen in favored windows {}",
            all.mean_ns / 1e3,
            all.p99_ns as f64 / 1e3,
            shares.join(", ")
        );
        way
    }

    /// The share of favored windows that was stolen, in the mean of the nodes.
    fn stolen(&self) -> f64 {
        self.nodes.iter().map(|n| share(&n.proof.favored)).sum::<f64>() / self.nodes.len() as f64
    }

    /// Asserts that both nodes took part, by `backend`, met their edges, and that MPI's results are right.
    fn is_complete(&self, backend: Backend) {
        assert!(self.nodes.iter().all(|n| n.backend == backend && n.schema == "colony.run/1"));
        let result = &self.result;
        assert_eq!((result.ranks, &result.hosts[..]), (2, &["n0".to_owned(), "n1".into()][..]));
        let measured = &result.results[0];
        assert!(measured.wrong == 0 && measured.ops > 0, "{measured:?}");
        for node in self.nodes.iter().filter(|_| backend != Backend::None) {
            let edges = node.agent.as_ref().map(|a| a.edges).or(node.sched_ext.as_ref().map(|s| s.edges));
            assert!(edges > Some(node.wall_ns / 200_000_000), "two a period: {edges:?}");
        }
    }

    /// Returns `true` if regular windows lost at least twice the share that favored windows lost.
    fn daemons_have_their_window(&self) -> bool {
        self.nodes.iter().all(|n| share(&n.proof.regular) > 2.0 * share(&n.proof.favored))
    }
}

/// Share of windows in which something else ran while the job waited.
fn share(times: &WindowTimes) -> f64 {
    times.stolen_ns as f64 / times.observed_ns as f64
}

#[test]
fn windows_hold_daemons_back_on_all_nodes_of_an_mpi_job() {
    let Some(vm) = cluster() else { return };
    // how late an emulated CPU meets an edge is up to this host, and a bad minute of it says nothing of Colony
    assert!((0..3).any(|_| daemons_are_held_back(vm.clone())), "in none of three runs");
}

/// Runs every way on the nodes of `vm`; whether the windows held daemons back in each.
fn daemons_are_held_back(mut vm: Vm) -> bool {
    let ways = ["none", "agent", "sched-ext", "none-bsp", "agent-bsp", "sched-ext-bsp"];
    for name in ways {
        vm = vm.collect(format!("/tmp/{name}.json")).collect(format!("/tmp/{name}-result.json"));
    }
    let out = sh(
        &vm,
        r#"
        daemons random
        for backend in none agent sched-ext; do way $backend allreduce --backend $backend; done
        daemons together
        for backend in none agent sched-ext; do way $backend-bsp bsp --backend $backend; done
        "#,
    );
    let cost: u64 = out.iter().map(|o| o.host_cpu_ns).sum();
    eprintln!("{:.0} s of the host's processors", cost as f64 / 1e9);
    [&ways[..3], &ways[3..]].iter().all(|names| {
        let [none, agent, ext] = [0, 1, 2].map(|i| Way::of(&out, names[i]));
        for (way, backend) in [(&none, Backend::None), (&agent, Backend::Agent), (&ext, Backend::SchedExt)] {
            way.is_complete(backend);
        }
        assert!(none.stolen() > 0.1, "the daemons are there: {}", none.stolen());
        // so which of the two is better is not asked
        [&agent, &ext].iter().all(|way| none.stolen() > 1.5 * way.stolen() && way.daemons_have_their_window())
    })
}

#[test]
fn nothing_is_left_on_any_node_whoever_is_killed() {
    let Some(vm) = cluster() else { return };
    let out = sh(&vm.collect("/tmp/clock.json"), include_str!("killed.sh"));
    for node in &out {
        let clock: serde_json::Value = json(node, "clock");
        assert_eq!(clock["coordination"]["mode"], "coordinated", "{clock}");
    }
}
