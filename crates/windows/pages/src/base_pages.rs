// SPDX-License-Identifier: MIT OR Apache-2.0
//! Puts a program that runs on base pages, for all memory that it has not touched yet.

use std::fs::File;
use std::io::Read;

use crate::smaps::{self, Mapping};
use crate::tracee::{NotStopped, Tracee};

/// Forbids large pages to process `pid` and to what it starts from now on (`PR_SET_THP_DISABLE`, which only a process itself can
/// do). Memory that is on large pages stays there. Call it on a thread as [`Tracee::interrupt`] wants it.
///
/// # Errors
/// [`NotStopped`]; the process runs as before.
pub(crate) fn put_on_base_pages(pid: i32) -> Result<(), NotStopped> {
    match forbid_large_pages(pid) {
        // only the thread that was stopped has ended
        Err(NotStopped::Gone) if !maps(pid).is_empty() => Err(NotStopped::Later),
        done => done,
    }
}

fn forbid_large_pages(pid: i32) -> Result<(), NotStopped> {
    let status = std::fs::read(format!("/proc/{pid}/status")).map_err(|_| NotStopped::Gone)?;
    if has_base_pages(&String::from_utf8_lossy(&status)) {
        return Ok(());
    }
    if maps(pid).is_empty() {
        return Err(NotStopped::Gone);
    }
    let mut tracee = Tracee::interrupt(pid)?;
    // only now: before the stop, the process may have been about to become another program
    if !is_of_this_machine(pid) {
        return Err(NotStopped::Refused("it is not a 64-bit program of this machine".into()));
    }
    tracee.find_instruction(&maps(pid)).map_err(NotStopped::Refused)?;
    tracee.call(libc::SYS_prctl, [libc::PR_SET_THP_DISABLE as u64, 1, 0, 0, 0, 0])?;
    Ok(())
}

/// Returns `true` if the program of a process is of the same kind as this program: only then are its registers and calls those of this one.
fn is_of_this_machine(pid: i32) -> bool {
    let kind = |exe: String| {
        // magic number, class, byte order; then, behind the padding, the machine
        let mut header = [0; 20];
        File::open(exe).and_then(|mut file| file.read_exact(&mut header)).ok()?;
        Some((header.get(..6)?.to_vec(), header.get(18..)?.to_vec()))
    };
    let theirs = kind(format!("/proc/{pid}/exe"));
    theirs.is_some() && theirs == kind("/proc/self/exe".into())
}

/// The mappings of a process; none if it has ended. `maps` costs far less than `smaps`, which looks at every page.
fn maps(pid: i32) -> Vec<Mapping> {
    let text = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    smaps::parse(&String::from_utf8_lossy(&text))
}

/// Returns `true` if the text of `/proc/PID/status` says that large pages are forbidden (Linux 5.0 and later tell).
fn has_base_pages(status: &str) -> bool {
    status.lines().any(|line| line.strip_prefix("THP_enabled:").is_some_and(|value| value.trim() == "0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::io::{BufRead, BufReader};
    use std::process::{Child, ChildStdout, Command, Stdio};
    use std::time::{Duration, Instant};

    /// A child that does not outlive its test.
    struct Killed(Child);

    impl Drop for Killed {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    impl Killed {
        fn start(program: &str, arguments: &[&str]) -> Self {
            Self(Command::new(program).args(arguments).stdout(Stdio::piped()).spawn().expect("starts"))
        }

        fn pid(&self) -> i32 {
            self.0.id().cast_signed()
        }

        fn output(&mut self) -> ChildStdout {
            self.0.stdout.take().expect("piped")
        }
    }

    /// Tries until the answer is another one than `Later`.
    fn put(pid: i32) -> Result<(), NotStopped> {
        let began = Instant::now();
        loop {
            match put_on_base_pages(pid) {
                Err(NotStopped::Later) if began.elapsed() < Duration::from_secs(120) => {
                    std::thread::yield_now()
                }
                done => return done,
            }
        }
    }

    fn status(pid: i32) -> String {
        std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default()
    }

    /// Returns `true` if the kernel tells which processes may have large pages; otherwise records that the test is skipped.
    fn is_told() -> bool {
        let is_told = status(std::process::id().cast_signed()).contains("THP_enabled:");
        if !is_told {
            colony_testing::skip("this kernel does not tell which processes may have large pages");
        }
        is_told
    }

    #[test]
    fn a_running_program_and_its_later_children_have_base_pages() {
        if !is_told() {
            return;
        }
        // a shell that runs until it has base pages, without other programs
        let script = "until [ \"$enabled\" = 0 ]; do
            while read -r name value; do [ \"$name\" = THP_enabled: ] && enabled=$value; done < /proc/$$/status
        done; grep -E 'THP|Tracer' /proc/self/status";
        let mut child = Killed::start("sh", &["-c", script]);
        assert_eq!(put(child.pid()), Ok(()));
        let mut said = String::new();
        child.output().read_to_string(&mut said).expect("text");
        assert_eq!(said.split_whitespace().collect::<Vec<_>>(), ["TracerPid:", "0", "THP_enabled:", "0"]);
        assert!(child.0.wait().expect("ours").success());
    }

    #[test]
    fn a_program_whose_first_thread_sleeps_has_base_pages_by_another_thread() {
        if !is_told() {
            return;
        }
        let script = "import threading\nthreading.Thread(target=lambda: sum(iter(int, 1))).start()";
        let child = Killed::start("python3", &["-c", script]);
        let is_ready = |status: &str| status.contains("Threads:\t2") && status.contains("State:\tS");
        while !is_ready(&status(child.pid())) {
            std::thread::yield_now();
        }
        assert_eq!(put(child.pid()), Ok(()));
        assert!(has_base_pages(&status(child.pid())));
        assert_eq!(put_on_base_pages(child.pid()), Ok(()), "again without effect");
    }

    #[test]
    fn a_program_that_is_stopped_again_and_again_computes_the_same() {
        // system calls all the time: a stop may come within one
        let script = "i=0; while :; do i=$((i + 1)); echo $i; done";
        let mut child = Killed::start("sh", &["-c", script]);
        let output = BufReader::new(child.output());
        let reader = std::thread::spawn(move || {
            let numbers = output.split(b'\n').map_while(Result::ok);
            numbers.zip(1u64..).all(|(line, number)| {
                // the last line may be cut off by the end
                let text = number.to_string();
                line == text.as_bytes() || (text.as_bytes().starts_with(&line) && line.len() < text.len())
            })
        });
        let mut stops = 0;
        while stops < 300 {
            match Tracee::interrupt(child.pid()) {
                Ok(mut tracee) => {
                    tracee.find_instruction(&maps(child.pid())).expect("a vDSO");
                    let pid = tracee.call(libc::SYS_getpid, [0; 6]).expect("a number");
                    assert_eq!(pid, u64::from(child.0.id()));
                    stops += 1;
                }
                Err(NotStopped::Later) => std::thread::yield_now(),
                Err(e) => panic!("{e:?}"),
            }
        }
        drop(child);
        assert!(reader.join().expect("no panic"), "a number was lost or came twice");
    }

    #[test]
    fn programs_that_cannot_be_stopped_now_or_at_all_are_told_apart() {
        let mut asleep = Killed::start("sleep", &["600"]);
        while !status(asleep.pid()).contains("State:\tS") {
            std::thread::yield_now();
        }
        assert_eq!(put_on_base_pages(asleep.pid()), Err(NotStopped::Later));
        asleep.0.kill().expect("ours");
        while !status(asleep.pid()).contains("State:\tZ") {
            std::thread::yield_now();
        }
        assert_eq!(put_on_base_pages(asleep.pid()), Err(NotStopped::Gone), "a zombie");
        asleep.0.wait().expect("ours");
        assert_eq!(put_on_base_pages(i32::MAX), Err(NotStopped::Gone));
    }
}
