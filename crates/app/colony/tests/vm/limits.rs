// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits and weights of cgroups hold under the scheduler in the kernel, and names give no privileges.

use colony_client::ExtStats;
use colony_vm::Outcome;

use crate::common::{collecting, counted, node_with, report, sh};

/// A program that never sleeps, cgroups, and the CPU time that a process gets of what passes meanwhile, in percent.
const FUNCTIONS: &str = r#"
hog='while :; do :; done'
cpu_time() { set -- $(cat /proc/$1/stat); echo ${14}; }
up() { set -- $(tr -d . < /proc/uptime); echo $1; }
share() {
    name=$1; a=$(cpu_time $2); from=$(up); sleep $3
    echo $name $((100 * ($(cpu_time $2) - a) / ($(up) - from)))
}
cg=/sys/fs/cgroup; echo +cpu > $cg/cgroup.subtree_control
group() { mkdir $cg/$1; echo "$2" > $cg/$1/cpu.max; }
running() { until test $(state) = enabled; do sleep 0.1; done; }
"#;

#[test]
fn a_cgroup_gets_no_more_than_its_cpu_max() {
    let Some(vm) = node_with(&[]) else { return };
    let out = sh(
        &collecting(counted(vm, 3), &["rival", "job"]),
        &format!(
            r#"{FUNCTIONS}
        # a limit above it holds for a cgroup without one
        group outer '20000 100000'; echo +cpu > $cg/outer/cgroup.subtree_control; mkdir $cg/outer/inner
        (run rival --backend sched-ext -- sleep 16) & R=$!; running
        sh -c "echo \$\$ > $cg/outer/inner/cgroup.procs; $hog" & H=$!
        sleep 1; share alone $H 5
        # two of them share it, beside a task without a limit
        sh -c "echo \$\$ > $cg/outer/inner/cgroup.procs; $hog" & I=$!
        sh -c "$hog" & F=$!
        sleep 1; (share second $I 4) & S=$!; share first $H 4; wait $S
        kill $I $F
        # lifted, it holds no more
        echo max > $cg/outer/cpu.max; sleep 0.5; share lifted $H 2
        kill $H; wait $R
        # the job itself, which never sleeps and has the CPU to itself
        group job '30000 100000'
        (run job --backend sched-ext -- sh -c "echo \$\$ > $cg/job/cgroup.procs; $hog") & R=$!; running; sleep 1
        for J in $(cat $cg/job/cgroup.procs); do share job $J 5; kill $J; done; wait $R || true
        "#
        ),
    );
    let [rival, job] = ["rival", "job"].map(|name| report(&out, name).sched_ext.expect("it ran"));
    assert_eq!((&rival.stopped, &job.stopped), (&None, &None));
    let percent = |name| number(&out, name);
    eprintln!("{}", out.text());
    assert!((17..=23).contains(&percent("alone")), "{}", out.text());
    assert!((17..=23).contains(&(percent("first") + percent("second"))), "{}", out.text());
    assert!(percent("first").abs_diff(percent("second")) <= 4, "{}", out.text());
    assert!(percent("lifted") > 90, "{}", out.text());
    assert!((27..=33).contains(&percent("job")), "{}", out.text());
    assert!(rival.throttled > 20 && job.throttled > 20, "{} {}", rival.throttled, job.throttled);
}

#[test]
fn the_agent_does_not_favor_a_job_beyond_its_cpu_max() {
    let Some(vm) = node_with(&[]) else { return };
    let out = sh(
        &collecting(counted(vm, 3), &["moved", "inside", "free"]),
        &format!(
            r#"{FUNCTIONS}
        group lim '20000 100000'; group free '100000 100000'
        written() {{ until test -s /tmp/pid; do sleep 0.1; done; }}
        # one that is moved into the cgroup while it runs, and one that is there before it joins
        (run moved --backend agent -- sh -c "echo \$\$ > /tmp/pid; $hog") & R=$!
        written; sleep 1; J=$(cat /tmp/pid); echo $J > $cg/lim/cgroup.procs; sleep 2.5; share moved $J 4; kill $J; wait $R || true
        for name in inside free; do
            rm /tmp/pid; to=$cg/lim; test $name = inside || to=$cg/free
            (echo 0 > $to/cgroup.procs; exec colony run --cpus 0 --period 200ms --duty 80% --backend agent \
                --out /tmp/$name.json -- sh -c "echo \$\$ > /tmp/pid; $hog" 2> /dev/null) & R=$!
            written; sleep 2; J=$(cat /tmp/pid); share $name $J 4; kill $J; wait $R || true
        done
        "#
        ),
    );
    eprintln!("{}", out.text());
    let warned = |name| {
        let warnings = report(&out, name).warnings;
        warnings.iter().any(|w| w.contains("cgroup /lim may use 0.20 CPUs"))
    };
    assert!(warned("moved") && warned("inside") && !warned("free"));
    assert!((17..=24).contains(&number(&out, "moved")), "{}", out.text());
    assert!(number(&out, "inside") <= 24 && number(&out, "free") > 90, "{}", out.text());
}

#[test]
fn a_cgroups_weight_counts() {
    let Some(vm) = node_with(&[]) else { return };
    let out = sh(
        &collecting(counted(vm, 3), &["weight"]),
        &format!(
            r#"{FUNCTIONS}
        group heavy max; group light max; echo 400 > $cg/heavy/cpu.weight
        (run weight --backend sched-ext -- sleep 9) & R=$!; running
        for name in heavy light heavy light; do sh -c "echo \$\$ > $cg/$name/cgroup.procs; $hog" & done
        of() {{ sum=0; for p in $(cat $cg/$1/cgroup.procs); do sum=$((sum + $(cpu_time $p))); done; echo $sum; }}
        sleep 1; h=$(of heavy); l=$(of light); sleep 5
        echo heavy $(($(of heavy) - h)); echo light $(($(of light) - l))
        kill $(cat $cg/heavy/cgroup.procs $cg/light/cgroup.procs); wait $R
        "#
        ),
    );
    let ratio = number(&out, "heavy") as f64 / number(&out, "light") as f64;
    eprintln!("{ratio:.2} times the CPU time for 4 times the weight");
    assert!((2.0..5.0).contains(&ratio), "{}", out.text());
}

#[test]
fn only_roots_tasks_are_exempt_by_name() {
    let Some(vm) = node_with(&[]) else { return };
    let out = sh(
        &collecting(counted(vm, 3), &["user", "root"]),
        r#"
        mkdir -p /etc; printf 'root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n' > /etc/passwd
        cp /bin/busybox /tmp/ash
        cat > /tmp/daemon <<'D'
printf mmfsd1 > /proc/self/comm
while :; do i=0; while [ $i -lt $noise_loops ]; do i=$((i+1)); done; usleep 80000; done
D
        chmod 755 /tmp /tmp/ash /tmp/daemon
        as() { start-stop-daemon -S -b -m -p /tmp/$1.pid -c $2 -x /tmp/ash -- /tmp/daemon; sleep 0.3
            grep -q mmfsd1 /proc/$(cat /tmp/$1.pid)/comm
            run $1 --backend sched-ext --exempt 'mmfsd*' --exempt usleep -- sh -c "$job"; kill $(cat /tmp/$1.pid); }
        as user 65534:65534
        as root 0:0
        "#,
    );
    let [user, root] = ["user", "root"].map(|name| report(&out, name).sched_ext.expect("it ran"));
    let exempt = |ext: &ExtStats| ext.favored.exempt_ns;
    assert!(exempt(&root) > 20 * exempt(&user).max(1), "{:?} {:?}", root.favored, user.favored);
    let held = |ext: &ExtStats| ext.deferred.iter().any(|d| d.comm == "usleep");
    assert!(held(&user) && !held(&root), "{:?} {:?}", user.deferred, root.deferred);
}

/// The number in the line of the output that begins with `word`.
fn number(out: &Outcome, word: &str) -> u64 {
    let text = out.text();
    let line = text.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
    line.and_then(|n| n.trim().parse().ok()).unwrap_or_else(|| panic!("{word} in {text}"))
}
