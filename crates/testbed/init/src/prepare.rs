// SPDX-License-Identifier: MIT OR Apache-2.0
//! Before the program starts: file systems, modules, names, the port to the host.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt, symlink};
use std::path::Path;

use colony_init::job::Job;
use colony_init::{JOB_PATH, MODULES_PATH, PORT};
use nix::kmod::{ModuleInitFlags, finit_module};
use nix::mount::{MsFlags, mount};

use crate::{Failed, Port, network};

/// File system, where, options; those marked optional are missing from some kernels.
const MOUNTS: [(&str, &str, &str, bool); 12] = [
    ("proc", "/proc", "", true),
    ("sysfs", "/sys", "", true),
    ("devtmpfs", "/dev", "", true),
    ("tmpfs", "/dev/shm", "mode=1777", true),
    ("devpts", "/dev/pts", "gid=5,mode=620,ptmxmode=666", false),
    ("tmpfs", "/run", "mode=755", true),
    ("tmpfs", "/tmp", "mode=1777", true),
    ("cgroup2", "/sys/fs/cgroup", "", false),
    ("bpf", "/sys/fs/bpf", "", false),
    ("debugfs", "/sys/kernel/debug", "", false),
    ("tracefs", "/sys/kernel/tracing", "", false),
    ("mqueue", "/dev/mqueue", "", false),
];

/// Mounts what programs expect of a Linux system.
pub(crate) fn mounts() -> Result<(), Failed> {
    for (kind, place, options, needed) in MOUNTS {
        // a program of the host may lie in a temporary folder there, and lies in the same one here
        if kind == "tmpfs" && has_entries(place) {
            let mode = if place == "/run" { 0o755 } else { 0o1777 };
            let set = fs::set_permissions(place, fs::Permissions::from_mode(mode));
            set.map_err(|e| format!("the permissions of {place}: {e}"))?;
            continue;
        }
        // in sysfs folders cannot be made: there the kernel has them, or has not the file system
        let made = fs::create_dir_all(place);
        let mounted = made.map_err(|e| e.to_string()).and_then(|()| {
            let options = (!options.is_empty()).then_some(options);
            mount(Some(kind), place, Some(kind), MsFlags::empty(), options).map_err(|e| e.to_string())
        });
        match mounted {
            Err(reason) if needed => return Err(format!("mounting {kind} on {place}: {reason}")),
            _ => {}
        }
    }
    for (link, target) in [("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")]
    {
        let _ = symlink(target, Path::new("/dev").join(link));
    }
    Ok(())
}

/// Returns `true` if the image has put something into a folder.
fn has_entries(folder: &str) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}

/// Opens the console. A kernel listens to a serial line only while somebody has it open, and the host asks a silent guest
/// over this line what it does. A kernel that has none runs the job all the same.
pub(crate) fn console() -> Option<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOCTTY).open("/dev/ttyS0").ok()
}

/// Opens the port to the host, which sysfs knows by its name.
pub(crate) fn port() -> Result<File, Failed> {
    let class = Path::new("/sys/class/virtio-ports");
    let ports = fs::read_dir(class).map_err(|e| format!("{}: {e}", class.display()))?;
    for port in ports.flatten() {
        let name = fs::read_to_string(port.path().join("name")).unwrap_or_default();
        if name.trim() == PORT {
            let device = Path::new("/dev").join(port.file_name());
            return OpenOptions::new()
                .read(true)
                .write(true)
                .open(&device)
                .map_err(|e| format!("{}: {e}", device.display()));
        }
    }
    Err(format!("no virtual serial port is called {PORT}"))
}

/// Reads what is to be done.
pub(crate) fn job() -> Result<Job, Failed> {
    let text = fs::read(JOB_PATH).map_err(|e| format!("{JOB_PATH}: {e}"))?;
    serde_json::from_slice(&text).map_err(|e| format!("{JOB_PATH}: {e}"))
}

/// Modules, names, network and folder of the job.
pub(crate) fn surroundings(job: &Job) -> Result<(), Failed> {
    modules()?;
    if !job.hostname.is_empty() {
        nix::unistd::sethostname(&job.hostname).map_err(|e| format!("the name {}: {e}", job.hostname))?;
    }
    let mut hosts = String::from("127.0.0.1 localhost\n");
    for (address, name) in &job.hosts {
        hosts.push_str(&format!("{address} {name}\n"));
    }
    fs::write("/etc/hosts", hosts).map_err(|e| format!("/etc/hosts: {e}"))?;
    network::up(&job.interfaces)?;
    fs::create_dir_all(&job.cwd).map_err(|e| format!("the folder {}: {e}", job.cwd.display()))
}

fn modules() -> Result<(), Failed> {
    let list = match fs::read_to_string(MODULES_PATH) {
        Ok(list) => list,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(format!("{MODULES_PATH}: {e}")),
    };
    for path in list.lines() {
        let file = File::open(path).map_err(|e| format!("the module {path}: {e}"))?;
        match finit_module(&file, c"", ModuleInitFlags::empty()) {
            Ok(()) | Err(nix::Error::EEXIST) => {}
            Err(e) => return Err(format!("loading the module {path}: {e}")),
        }
    }
    Ok(())
}

/// The host has all it wants once it closes the port or says something.
pub(crate) fn wait_for_host(port: &Port) -> Result<(), Failed> {
    let mut port = port.0.lock().map_err(|_| "a thread that writes to the host has died")?;
    let _ = port.read(&mut [0]);
    Ok(())
}
