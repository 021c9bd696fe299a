// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine of a control system: partitions, nodes, jobs, events.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use colony_control_api::api::{
    Allocation, Drain, Event, Holder, IoNodeKind, Job, JobRequest, Machine, Node, NodeState, Partition, Rate,
    Threshold, Token, word,
};

use crate::table::{self, name, wrap};

/// Nodes of which each has a line; of larger partitions, nodes of the same state are counted by pset.
const LISTED: usize = 64;

fn counts(nodes: &BTreeMap<NodeState, u32>) -> String {
    let words: Vec<String> = nodes.iter().map(|(state, n)| format!("{n} {}", word(state))).collect();
    words.join(", ")
}

/// Partitions, with the nodes of each that jobs can have.
#[must_use]
pub fn partitions<'a>(all: impl IntoIterator<Item = &'a Partition>) -> String {
    let mut t = table::numbers(&["partition", "state", "nodes are", "shape", "I/O nodes"], 3);
    let mut errors = String::new();
    for p in all {
        t.add_row([
            p.name.clone(),
            word(p.state),
            counts(&p.nodes),
            p.shape.to_string(),
            match p.node.io_nodes {
                IoNodeKind::Process => p.io_nodes.to_string(),
                IoNodeKind::Linux => format!("{} (Linux)", p.io_nodes),
            },
        ]);
        if let Some(error) = &p.error {
            // writing to a String cannot fail
            let _ = writeln!(errors, "{}", wrap(&format!("{}: {error}", p.name)));
        }
        if let Some(usable) = &p.usable {
            let (nodes, all) = (usable.nodes, p.shape.nodes());
            let fits = usable
                .largest
                .map_or("no job fits".to_owned(), |shape| format!("a job of {shape} still fits"));
            let _ = writeln!(
                errors,
                "{}",
                wrap(&format!("{}: {nodes} of {all} nodes take jobs, {fits}", p.name))
            );
        }
        if let Some(free) = p.free.filter(|free| free.nodes < p.shape.nodes()) {
            let largest = free.largest.map_or("none".to_owned(), |shape| shape.to_string());
            let share = free.fragmentation * 100.0;
            let text = format!(
                "{}: {} of {} nodes are free for jobs, the largest block is {largest}, {share:.0} % are outside of it",
                p.name,
                free.nodes,
                p.shape.nodes()
            );
            let _ = writeln!(errors, "{}", wrap(&text));
        }
    }
    format!("{}\n{errors}", table::trimmed(&t))
}

/// A partition.
#[must_use]
pub fn partition(p: &Partition) -> String {
    let mut out = partitions([p]);
    if !p.allowed.is_empty() {
        let word = |holder: &Holder| match holder {
            Holder::User(name) => format!("user {name}"),
            Holder::Group(name) => format!("group {name}"),
        };
        let words: Vec<String> = p.allowed.iter().map(word).collect();
        let _ = writeln!(out, "{}", wrap(&format!("jobs are run by {}", words.join(", "))));
    }
    if let Some(seconds) = p.boot_s {
        let _ = writeln!(out, "booted in {seconds:.1} s");
    }
    out
}

/// The machine: its partitions, and the jobs that wait or run.
#[must_use]
pub fn machine(m: &Machine) -> String {
    let mut out = format!("machine of {} nodes, {}\n", m.shape.nodes(), m.shape);
    if let Some(own) = &m.allocation {
        out.push_str(&allocation(own, colony_control_api::api::now()));
    }
    if m.partitions.is_empty() {
        out.push_str("no partitions\n");
    } else {
        out.push_str(&partitions(&m.partitions));
    }
    out.push_str(&drains(&m.drains));
    if !m.jobs.is_empty() {
        out.push('\n');
        out.push_str(&jobs(&m.jobs));
    }
    if m.more_jobs > 0 {
        // writing to a String cannot fail
        let _ = writeln!(out, "and {} more jobs: `colony job list --limit N` lists them", m.more_jobs);
    }
    out
}

/// The allocation that a machine is a part of.
fn allocation(own: &Allocation, now: f64) -> String {
    let memory = own.memory_mib.map_or(String::new(), |mib| format!(", {mib} MiB"));
    let hosts = if own.hosts > 1 { format!(", one of {} hosts", own.hosts) } else { String::new() };
    let end = match own.stops {
        Some(stops) => {
            let left = (stops - now).max(0.0) as u64;
            let left = if left < 120 { format!("{left} s") } else { format!("{} min", left / 60) };
            format!("nodes are switched off in {left}, at {} UTC", time(stops))
        }
        None => "no end is known".to_owned(),
    };
    let cpus = if own.cpus == 1 { "1 CPU".to_owned() } else { format!("{} CPUs", own.cpus) };
    format!("{}\n", wrap(&format!("{own}: {cpus}{memory}{hosts}; {end}")))
}

/// Parts of the machine that get no new jobs.
#[must_use]
pub fn drains(all: &[Drain]) -> String {
    let line = |d: &Drain| wrap(&format!("{} is drained: {} ({})", d.location, d.reason, d.user));
    all.iter().map(|drain| format!("{}\n", line(drain))).collect()
}

/// Parts of the machine that get jobs again.
#[must_use]
pub fn undrained(all: &[String]) -> String {
    all.iter().map(|location| format!("{location} gets jobs again\n")).collect()
}

/// Events by location and code.
#[must_use]
pub fn rates(all: &[Rate]) -> String {
    let mut t = table::numbers(&["location", "code", "last", "events", "an hour"], 3);
    for r in all {
        let (events, per_hour) = (r.events.to_string(), format!("{:.1}", r.per_hour));
        t.add_row([name(&r.location, 31), r.code.clone(), time(r.last), events, per_hour]);
    }
    format!("{}\n", table::trimmed(&t))
}

/// Numbers of events that drain a node.
#[must_use]
pub fn thresholds(all: &[Threshold]) -> String {
    let mut t = table::numbers(&["code", "events", "within (s)"], 1);
    for threshold in all {
        let events = if threshold.events == 0 { "never".to_owned() } else { threshold.events.to_string() };
        t.add_row([threshold.code.clone(), events, threshold.within_s.to_string()]);
    }
    format!("{}\n", table::trimmed(&t))
}

/// The nodes of a partition.
#[must_use]
pub fn nodes(all: &[Node]) -> String {
    if all.len() > LISTED {
        return psets(all);
    }
    let mut t = table::numbers(&["location", "state", "x", "y", "z", "pset"], 2);
    for node in all {
        let [x, y, z] = node.coords.map(|c| c.to_string());
        let state = word(node.state);
        t.add_row([node.location.clone(), state, x, y, z, node.pset.to_string()]);
    }
    let mut out = format!("{}\n", table::trimmed(&t));
    for node in all {
        if let Some(reason) = &node.drained {
            // writing to a String cannot fail
            let _ = writeln!(out, "{}", wrap(&format!("{} is drained: {reason}", node.location)));
        }
    }
    out
}

fn psets(all: &[Node]) -> String {
    let mut by_pset = BTreeMap::<u32, (String, BTreeMap<NodeState, u32>)>::new();
    for node in all {
        let (_, states) =
            by_pset.entry(node.pset).or_insert_with(|| (node.location.clone(), BTreeMap::new()));
        *states.entry(node.state).or_default() += 1;
    }
    let mut t = table::numbers(&["first node", "nodes are", "pset"], 2);
    for (pset, (first, states)) in by_pset {
        t.add_row([first, counts(&states), pset.to_string()]);
    }
    format!("{}\n", table::trimmed(&t))
}

/// The program of a job, as its user has named it.
fn program(request: &JobRequest) -> String {
    request.name.clone().unwrap_or_else(|| request.executable.display().to_string())
}

/// The name of a program without its folder.
fn short(program: &str) -> String {
    Path::new(program).file_name().map_or_else(|| program.to_owned(), |name| name.display().to_string())
}

/// Jobs.
#[must_use]
pub fn jobs(all: &[Job]) -> String {
    let mut t = table::numbers(&["user", "partition", "program", "state", "code", "seconds", "job"], 4);
    for job in all {
        let code = job.code.map_or(String::new(), |code| code.to_string());
        let end = job.ended.or_else(|| job.started.map(|_| colony_control_api::api::now()));
        // the clock may have been set back meanwhile
        let seconds = end
            .zip(job.started)
            .map_or(String::new(), |(end, start)| format!("{:.1}", (end - start).max(0.0)));
        let r = &job.request;
        t.add_row([
            name(&job.user, 12),
            name(&r.partition, 20),
            name(&short(&program(r)), 20),
            word(job.state),
            code,
            seconds,
            job.id.to_string(),
        ]);
    }
    format!("{}\n", table::trimmed(&t))
}

/// A job.
#[must_use]
pub fn job(j: &Job) -> String {
    let mut out = jobs(std::slice::from_ref(j));
    let program = program(&j.request);
    if program.contains('/') {
        let _ = writeln!(out, "program: {}", wrap(&program));
    }
    if let Some(block) = &j.block {
        let [x, y, z] = block.origin;
        let _ = writeln!(out, "nodes: {} at {x},{y},{z}", block.shape);
    }
    if let Some(why) = &j.waits {
        let _ = writeln!(out, "{}", wrap(why));
    }
    if let Some(error) = &j.error {
        for line in error.lines() {
            let _ = writeln!(out, "{}", wrap(line));
        }
    }
    if j.is_output_removed {
        out.push_str("its output is removed, because later jobs of its user had too much\n");
    }
    out
}

/// Events, the oldest first.
#[must_use]
pub fn events(all: &[Event]) -> String {
    all.iter().map(event).collect()
}

/// An event in one paragraph.
#[must_use]
pub fn event(e: &Event) -> String {
    let severity = word(e.severity);
    let job = e.job.map(|job| format!(" (job {job})")).unwrap_or_default();
    let text = format!("{} {severity} {} {}: {}{job}", time(e.time), e.location, e.code, e.message);
    format!("{}\n", wrap(&text))
}

/// How to reach the web page of the machine, whose daemon listens on `socket`.
#[must_use]
pub fn web(access: &Token, socket: &str) -> String {
    let Some(network) = &access.network else {
        let text = "The machine listens on its local socket only. To see the page on another computer, run there (with the name \
                    of this host) the command below, and open http://localhost:8080/. `colony machine web --listen ADDR:PORT` \
                    opens a port with TLS instead.";
        return format!("{}\n\n  ssh -N -L 8080:{socket} HOST\n", wrap(text));
    };
    let text = format!(
        "The token in this link stands for user {}{}: keep it secret. The browser shows a certificate that it does not know if \
         the daemon has made it. Compare the SHA-256 fingerprint:",
        access.user,
        if access.read_only { ", and may only look" } else { "" }
    );
    // without colons, it is one word of a line: a double click takes it
    let fingerprint = network.fingerprint.replace(':', "");
    format!("{}#token={}\n\n{}\n\n  {fingerprint}\n", network.url, access.token, wrap(&text))
}

/// The UTC time of day of a time since 1970.
fn time(seconds: f64) -> String {
    let day = (seconds.max(0.0) as u64) % 86_400;
    format!("{:02}:{:02}:{:02}", day / 3600, day / 60 % 60, day % 60)
}

#[cfg(test)]
mod tests {
    use colony_control_api::api::{Network, Severity};

    use super::*;

    fn node(number: u32, state: NodeState) -> Node {
        Node {
            number,
            location: format!("R00-M0-N00-J{number:02}"),
            coords: [number, 0, 0],
            pset: number / 8,
            state,
            drained: None,
        }
    }

    #[test]
    fn the_way_to_the_page_is_a_link_with_its_fingerprint_or_a_command_for_ssh() {
        let network = Network {
            listen: ([192, 0, 2, 1], 8443).into(),
            url: "https://192.0.2.1:8443/".to_owned(),
            certificate: "/m/tls-cert.pem".into(),
            fingerprint: ["AB"; 32].join(":"),
        };
        let access =
            |network| Token { token: "12".repeat(32), user: "eve".to_owned(), read_only: false, network };
        let text = web(&access(Some(network)), "/m/api");
        assert!(text.starts_with("https://192.0.2.1:8443/#token=1212"), "{text}");
        assert!(text.lines().skip(1).all(|line| line.chars().count() <= 80), "{text}");
        assert_eq!(text.matches("AB").count(), 32);
        assert!(text.lines().any(|line| line.trim() == "AB".repeat(32)), "it is copied in one piece: {text}");
        assert!(text.contains("user eve: keep"));
        let text = web(&access(None), "/m/api");
        assert!(text.contains("ssh -N -L 8080:/m/api HOST") && !text.contains("1212"), "{text}");
    }

    #[test]
    fn an_allocation_tells_what_it_has_and_when_the_nodes_are_switched_off() {
        let own = serde_json::json!({ "scheduler": "slurm", "job": "77", "hosts": 3, "cpus": 1, "memory_mib": 2000,
            "ends": 4000.0, "stops": 3661.0 });
        let own: Allocation = serde_json::from_value(own).expect("an allocation");
        let text = allocation(&own, 61.0);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert_eq!(
            text.split_whitespace().collect::<Vec<_>>().join(" "),
            "Slurm job 77: 1 CPU, 2000 MiB, one of 3 hosts; nodes are switched off in 60 min, at 01:01:01 UTC"
        );
        assert!(allocation(&own, 3600.5).contains("in 60 s"));
        let endless = Allocation { stops: None, memory_mib: None, hosts: 1, cpus: 8, ..own };
        assert_eq!(allocation(&endless, 0.0), "Slurm job 77: 8 CPUs; no end is known\n");
    }

    #[test]
    fn a_job_is_listed_by_the_name_of_its_program_however_long_the_path() {
        let folder = "/home/eve/a/folder/with/a/long/name";
        let job = |name: &str| -> Job {
            let request = serde_json::json!({ "partition": "A", "executable": "/bin/x", "name": name, "directory": "/" });
            let job = serde_json::json!({ "id": 1, "user": "eve", "request": request, "state": "queued", "submitted": 0 });
            serde_json::from_value(job).expect("a job")
        };
        let all = [job(&format!("{folder}/allreduce")), job("busybox"), job("/"), job("a/..")];
        let text = jobs(&all);
        assert!(
            text.contains(" allreduce ") && text.contains(" busybox ") && !text.contains("home"),
            "{text}"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(super::job(&all[0]).contains(&format!("program: {folder}/allreduce\n")), "the whole of it");
        assert!(!super::job(&all[1]).contains("program: "));
    }

    #[test]
    fn no_duration_is_negative_although_the_clock_was_set_back() {
        let job = |times: serde_json::Value| -> Job {
            let request = serde_json::json!({ "partition": "A", "executable": "/bin/x", "directory": "/" });
            let mut job = serde_json::json!({ "id": 1, "user": "eve", "request": request, "state": "running", "submitted": 0 });
            job.as_object_mut().expect("an object").extend(times.as_object().expect("an object").clone());
            serde_json::from_value(job).expect("a job")
        };
        let ahead = colony_control_api::api::now() + 172_800.0;
        for job in [
            job(serde_json::json!({ "started": ahead })),
            job(serde_json::json!({ "started": ahead, "ended": 5.0 })),
        ] {
            let text = jobs(&[job]);
            assert!(text.contains(" 0.0 ") && !text.contains('-'), "{text}");
        }
    }

    #[test]
    fn a_degraded_partition_says_what_still_fits() {
        let partition = |usable: serde_json::Value| -> Partition {
            let node = serde_json::json!({ "pset": 8, "cpus": 1, "memory_mib": 16 });
            let all = serde_json::json!({ "name": "A", "shape": "4x2x2", "origin": [0, 0, 0], "node": node, "io_nodes": 2,
                "state": "degraded", "nodes": { "ready": 8, "drained": 8 }, "usable": usable });
            serde_json::from_value(all).expect("a partition")
        };
        let half = partition(serde_json::json!({ "nodes": 8, "largest": "2x2x2", "fragmentation": 0.0 }));
        let text = partitions([&half]);
        assert!(
            text.contains(" degraded ")
                && text.contains("A: 8 of 16 nodes take jobs, a job of 2x2x2 still fits"),
            "{text}"
        );
        let none = partition(serde_json::json!({ "nodes": 0, "largest": null, "fragmentation": 0.0 }));
        assert!(partitions([&none]).contains("A: 0 of 16 nodes take jobs, no job fits"));
    }

    #[test]
    fn nodes_of_large_partitions_are_counted_by_pset() {
        let few: Vec<Node> = (0..3).map(|n| node(n, NodeState::Ready)).collect();
        assert!(nodes(&few).contains("R00-M0-N00-J02"), "{}", nodes(&few));
        let many: Vec<Node> =
            (0..128).map(|n| node(n, if n == 9 { NodeState::Dead } else { NodeState::Busy })).collect();
        let text = nodes(&many);
        assert_eq!(text.lines().count(), 2 + 16, "{text}");
        assert!(
            text.contains("7 busy, 1 dead") && text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }

    #[test]
    fn an_event_is_a_paragraph_with_its_time_of_day() {
        let e = Event {
            id: 1,
            time: 86_400.0 + 3_661.5,
            severity: Severity::Error,
            location: "R00-M0-N00-J03".to_owned(),
            code: "node-died".to_owned(),
            message: "its emulator ended".to_owned(),
            job: Some(4),
        };
        assert_eq!(event(&e), "01:01:01 error R00-M0-N00-J03 node-died: its emulator ended (job 4)\n");
    }
}
