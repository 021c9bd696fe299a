// SPDX-License-Identifier: MIT OR Apache-2.0
//! A node whose clock chronyd disciplines: a real one, in a network of its own, that leaves the clock alone (`-x`).

use std::path::Path;
use std::process::{Child, Command, Stdio};

use colony_client::Client;
use colony_client::Mode;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{possible, program, wait_until};

/// A process of this test, ended with it.
struct Owned(Child);

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGTERM);
        let _ = self.0.wait();
    }
}

/// Starts a command; its standard error goes to `log`.
fn start(command: &mut Command, log: &Path) -> Owned {
    let log = std::fs::File::options().create(true).append(true).open(log).expect("writable");
    Owned(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("starts"))
}

/// A chronyd in the network of process `of`.
fn chronyd(folder: &Path, of: u32, name: &str, config: &str) -> Owned {
    let file = folder.join(name);
    std::fs::write(&file, format!("{config}pidfile {}.pid\n", file.display())).expect("writable");
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--net=/proc/{of}/ns/net"))
        .args(["chronyd", "-x", "-d", "-u", "root", "-f"])
        .arg(&file);
    start(&mut command, &folder.join("log"))
}

#[test]
fn windows_are_coordinated_by_the_bound_that_chronyd_tells_at_a_poll_interval_of_16_s() {
    if !possible() {
        return;
    }
    let folder = tempfile::tempdir().expect("temp dir");
    let log = folder.path().join("log");
    let mut network = Command::new("unshare");
    network.args(["--net", "sh", "-c", "ip link set lo up && touch $0 && exec sleep 3600"]);
    let up = folder.path().join("up");
    let network = start(network.arg(&up), &log);
    wait_until("the network is up", || up.exists());
    let of = network.0.id();
    let server = "local stratum 3\nallow 127.0.0.1\nport 11123\ncmdport 0\nbindcmdaddress /\n";
    let _server = chronyd(folder.path(), of, "server", server);
    let client = "server 127.0.0.1 port 11123 iburst minpoll 4 maxpoll 4\nport 0\nbindcmdaddress 127.0.0.1\n";
    let _client = chronyd(folder.path(), of, "client", client);

    let mount = folder.path().join("colony");
    let config = folder.path().join("colonyd.toml");
    // Busy machines delay even packets to themselves, by milliseconds. This test is about whose bound counts, so the windows are
    // long: colonyd allows a quarter of the regular window at most, which is 50 ms here.
    let settings = "period = \"1s\"\nduty_cycle = \"80%\"\n[clock]\nmax_error = \"50ms\"\n";
    std::fs::write(&config, settings).expect("writable");
    let mut daemon = Command::new("nsenter");
    daemon.arg(format!("--net=/proc/{of}/ns/net")).arg(program().get_program());
    let daemon = daemon.arg("--config").arg(&config).arg("--mount").arg(&mount).env_remove("NOTIFY_SOCKET");
    let _daemon = start(daemon, &log);
    let coordination = || Client::at(&mount).and_then(|c| c.clock().ok()).map(|c| c.coordination);
    wait_until("windows are coordinated", || coordination().is_some_and(|c| c.mode == Mode::Coordinated));
    for _ in 0..30 {
        let c = coordination().expect("it runs");
        assert_eq!(c.error_bound_source.as_deref(), Some("chronyd"), "{c:?}");
        assert_eq!(c.mode, Mode::Coordinated, "{c:?}");
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
}
