// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processes of a machine that root runs: what confines them, and whose the output is that they keep.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use colony_node::task;
use nix::unistd::geteuid;

use crate::common::folder_for_all;
use crate::control::{Machine, is_named};

/// A user without an account.
const USER: u32 = 1234;

/// Capabilities by number, as docs/users.md lists them: CAP_KILL, CAP_SETGID and CAP_SETUID.
const BOOT: u64 = 1 << 5 | 1 << 6 | 1 << 7;
/// Also CAP_CHOWN, CAP_DAC_READ_SEARCH and CAP_SETPCAP.
const PARTITION: u64 = BOOT | 1 | 1 << 2 | 1 << 8;
/// Also CAP_NET_BIND_SERVICE.
const CONTROL: u64 = PARTITION | 1 << 10;

fn status(pid: i32, field: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(":\t"));
    line.expect("a field").to_owned()
}

/// Checks the processes of a machine that is up.
fn check_processes(machine: &Machine) {
    let owner = machine.owner();
    let boot = task::tree(owner).into_iter().find(|pid| is_named(*pid, "colony-boot"));
    for (name, pid, capabilities) in [
        ("colony-control", machine.daemon(), CONTROL),
        ("colony-partition", Some(owner), PARTITION),
        ("colony-boot", boot, BOOT),
    ] {
        let pid = pid.expect(name);
        let field = |field| status(pid, field);
        assert_eq!([field("NoNewPrivs"), field("Seccomp")], ["1", "2"], "{name}");
        if geteuid().is_root() {
            let (own, none) = (format!("{capabilities:016x}"), format!("{:016x}", 0));
            let sets = ["CapPrm", "CapEff", "CapBnd", "CapInh", "CapAmb"].map(field);
            assert_eq!(sets.each_ref(), [&own, &own, &own, &none, &none], "{name}");
        }
    }
    let warnings = machine.json(&["ras", "list", "--limit", "1000"]).to_string();
    assert!(!warnings.contains("\"confinement\""), "{warnings}");
}

/// Checks the output that root's machine keeps of a job of another user.
fn check_kept_output(machine: &Machine) {
    if !geteuid().is_root() {
        return;
    }
    let Some(place) = folder_for_all() else { return };
    let busybox = place.path().join("busybox");
    std::fs::copy(&machine.busybox, &busybox).expect("ours");
    for path in [place.path(), &busybox] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("ours");
    }
    let (user, program) = (USER.to_string(), busybox.to_str().expect("a path"));
    let said = ["sh", "-c", "echo words; echo errors >&2"];
    let words =
        [&["job", "submit", "--processes", "1", "--user", &user, "--dir", "/", "--", program][..], &said]
            .concat();
    let job = machine.done(&words).trim().to_owned();
    assert_eq!(machine.ended(&job)["code"], 0, "{}", machine.job(&job));
    let folder = machine.path().join("m/jobs").join(&job);
    for (name, text) in [("stdout", "words\n"), ("stderr", "errors\n")] {
        let about = std::fs::metadata(folder.join(name)).expect("it is kept");
        assert_eq!((about.uid(), about.gid(), about.mode() & 0o777), (USER, USER, 0o600), "{name}");
        assert_eq!(std::fs::read_to_string(folder.join(name)).expect("root may"), text);
    }
    let about = std::fs::metadata(&folder).expect("it is there");
    assert_eq!((about.uid(), about.mode() & 0o777), (0, 0o700), "its user cannot swap the files");
    assert_eq!(machine.done(&["job", "output", &job]), "words\n");
}

#[test]
fn processes_of_a_machine_are_confined_and_kept_output_is_its_user_s() {
    let Some(machine) = Machine::new() else { return };
    machine.done(&["machine", "up", "--shape", "2x2x2"]);
    check_kept_output(&machine);
    check_processes(&machine);
}
