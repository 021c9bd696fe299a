// SPDX-License-Identifier: MIT OR Apache-2.0
//! The BPF programs: loaded, told, attached, read.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use colony_bpf::{bytes_of, read};
use colony_client::{CpuStats, CpuTimes, ExtStats, Waited};
use colony_node::cpu::{self, CpuSet};
use colony_stats::{Distribution, histogram};
use colony_time::Windows;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Btf, Link, MapCore, MapFlags, ProgramInput};

use super::config::{Exempt, ExtConfig, KthreadPolicy};
use super::error::ExtError;
use super::skel::{self, MAX_CPUS, types};
use super::support;
/// Time by which favored windows are opened early, so that they are open when they begin; at most a twentieth of the
/// regular window.
const LEAD_NS: u64 = 20_000;

/// Operations the kernel has no default for that suits windows (`enum scx_ops_flags`): a task that is alone,
/// exits, or may not migrate, is asked about like any other.
const OPS_FLAGS: [&str; 3] = ["SCX_OPS_ENQ_LAST", "SCX_OPS_ENQ_EXITING", "SCX_OPS_ENQ_MIGRATION_DISABLED"];

/// Kinds of endings (`enum scx_exit_kind`), and the wish to be loaded again (`enum scx_exit_code`).
const EXIT_UNREG_KERN: i32 = 66;
const EXIT_ERROR: i32 = 1024;
const RESTART: i64 = 1 << 48;

/// The way in which the kernel ended the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// CPUs came or went: it may be loaded again at once.
    Restart,
    /// For this reason, in the kernel's words.
    Because(String),
}

/// The scheduler in the kernel, while this value lives.
pub(super) struct Loaded {
    cpus: CpuSet,
    /// True if the timer runs that releases tasks of limited cgroups.
    releasing: bool,
    link: Option<Link>,
    skel: skel::ScxColonySkel<'static>,
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded").field("cpus", &self.cpus).finish_non_exhaustive()
    }
}

fn refused(e: libbpf_rs::Error) -> ExtError {
    ExtError::Load(format!("{e:#}"))
}

impl Loaded {
    /// Loads the scheduler and starts it: from here on it schedules every task of this node.
    pub(super) fn start(config: &ExtConfig) -> Result<Self, ExtError> {
        let mut loaded = Self::load(config)?;
        loaded.set_windows(&config.windows);
        loaded.attach()?;
        loaded.start_timers(config)?;
        if let Some(bss) = loaded.skel.maps.bss_data.as_deref_mut() {
            bss.enabled = 1;
        }
        Ok(loaded)
    }

    /// Loads the programs, which the kernel's verifier checks; nothing is scheduled yet.
    pub(super) fn load(config: &ExtConfig) -> Result<Self, ExtError> {
        config.check()?;
        let kernel = Btf::from_vmlinux().map_err(refused)?;
        support::check_types(&kernel)?;
        let mut open = skel::ScxColonySkelBuilder::default().open(colony_bpf::place()).map_err(refused)?;
        let room = cpu_numbers();
        open.maps.cpus.set_max_entries(room).map_err(refused)?;
        let ops = open.struct_ops.colony_mut();
        ops.flags = support::known_flags(&kernel, &OPS_FLAGS);
        ops.timeout_ms = config.options.watchdog_ms;
        tell(&mut open, config, room)?;
        let skel = open.load().map_err(refused)?;
        Ok(Self { cpus: config.cpus.clone(), releasing: false, link: None, skel })
    }

    fn attach(&mut self) -> Result<(), ExtError> {
        let link = self.skel.maps.colony.attach_struct_ops();
        self.link = Some(link.map_err(|e| match support::active() {
            // somebody was faster
            Some(name) => ExtError::Taken(name),
            None => ExtError::Load(match self.ended() {
                Some(Ended::Because(why)) => why,
                _ => format!("{e:#}"),
            }),
        })?);
        Ok(())
    }

    /// Starts the timer of each CPU, from that CPU.
    fn start_timers(&self, config: &ExtConfig) -> Result<(), ExtError> {
        let here = cpu::affinity(0).map_err(|e| ExtError::Load(e.to_string()))?;
        let inside = config.entry.as_ref().map_or_else(CpuSet::default, |_| config.cpus.clone());
        let (inside, outside): (Vec<_>, Vec<_>) = self.cpus.iter().partition(|&cpu| inside.contains(cpu));
        let mut started = outside.into_iter().try_for_each(|cpu| self.start_timer(cpu));
        if let (Some(entry), Ok(())) = (&config.entry, &started) {
            let failed = |e: std::io::Error| ExtError::Load(format!("the job's control group: {e}"));
            entry.enter().map_err(failed)?;
            started = inside.into_iter().try_for_each(|cpu| self.start_timer(cpu));
            entry.leave().map_err(failed)?;
        }
        let _ = cpu::bind(0, &here);
        started
    }

    fn start_timer(&self, number: usize) -> Result<(), ExtError> {
        cpu::pin(number).map_err(|e| ExtError::Load(format!("the timer of CPU {number}: {e}")))?;
        let mut args = types::start_args { cpu: i32::try_from(number).unwrap_or(-1) };
        let input = ProgramInput { context_in: Some(bytes_of(&mut args)), ..ProgramInput::default() };
        let answer = self.skel.progs.start_timer.test_run(input).map_err(refused)?.return_value;
        if answer != 0 {
            let error = std::io::Error::from_raw_os_error(answer.cast_signed().wrapping_neg());
            return Err(ExtError::Load(format!("the timer of CPU {number} did not start: {error}")));
        }
        Ok(())
    }

    /// Keeps these windows from the next edge of the old ones on.
    pub(super) fn set_windows(&mut self, windows: &Windows) {
        let maps = &mut self.skel.maps;
        let (Some(data), Some(bss)) = (maps.data_data.as_deref_mut(), maps.bss_data.as_deref_mut()) else {
            return;
        };
        let next = (bss.windows_now + 1) & 1;
        let place = &mut data.windows[next as usize];
        place.period_ns = windows.period_ns();
        place.favored_ns = windows.favored_ns();
        place.epoch_ns = windows.first_ns();
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        // the kernel reads the index while we write it: one store, after those above
        // SAFETY: a valid, aligned, exclusively borrowed u32.
        unsafe { std::ptr::write_volatile(&raw mut bss.windows_now, next) };
    }

    /// Makes task `tid`, if that is the one that started at `start_ticks`, the job's, or not; whether it was there.
    pub(super) fn mark(&self, tid: i32, start_ticks: Option<u64>, job: bool) -> bool {
        let start_ticks = start_ticks.unwrap_or(0);
        let mut args = types::mark_args { tid, job: u32::from(job), start_ticks };
        let input = ProgramInput { context_in: Some(bytes_of(&mut args)), ..ProgramInput::default() };
        self.skel.progs.mark.test_run(input).is_ok_and(|out| out.return_value == 0)
    }

    /// Starts the timer that lets tasks of cgroups with `cpu.max` go on, as soon as there is such a task: from the
    /// calling thread's CPU.
    pub(super) fn watch_limits(&mut self) {
        let seen = self.skel.maps.bss_data.as_deref().is_some_and(|bss| bss.limited_at != 0);
        if seen && !self.releasing {
            let started = self.skel.progs.start_releaser.test_run(ProgramInput::default());
            self.releasing = started.is_ok_and(|out| out.return_value == 0);
        }
    }

    /// The way in which it was ended, if it was.
    pub(super) fn ended(&self) -> Option<Ended> {
        let record = &self.skel.maps.bss_data.as_deref()?.exit_record;
        // SAFETY: a valid, aligned i32 in a map of the kernel, which writes it last.
        let kind = unsafe { std::ptr::read_volatile(&raw const record.kind) };
        if kind == 0 {
            return None;
        }
        if (EXIT_UNREG_KERN..EXIT_ERROR).contains(&kind) && record.code & RESTART != 0 {
            return Some(Ended::Restart);
        }
        let text = |bytes: &[std::ffi::c_char]| -> String {
            let bytes: Vec<u8> = bytes.iter().map(|&c| c.cast_unsigned()).take_while(|&c| c != 0).collect();
            // the message holds the name of a task, and a name may hold anything
            String::from_utf8_lossy(&bytes).replace(char::is_control, " ")
        };
        let (reason, message) = (text(&record.reason), text(&record.msg));
        Some(Ended::Because(if message.is_empty() { reason } else { format!("{reason}: {message}") }))
    }

    /// The statistics so far, without those that only the worker has.
    pub(super) fn stats(&self) -> ExtStats {
        let mut stats = ExtStats { cpus: self.cpus.clone(), ..ExtStats::default() };
        let (mut late, mut latest) = (histogram(), 0);
        for number in self.cpus.iter() {
            let key = (number as u32).to_ne_bytes();
            let value = self.skel.maps.cpus.lookup(&key, MapFlags::ANY).ok().flatten();
            let Some(cpu) = value.and_then(|value| read::<types::cpu>(&value)) else {
                stats.warnings.push(format!("the account of CPU {number} could not be read"));
                continue;
            };
            add_cpu(&mut stats, number, &cpu);
            for (bucket, &count) in cpu.late.iter().enumerate().filter(|(_, count)| **count > 0) {
                let _ = late.record_n(bucket_ns(bucket), u64::from(count));
            }
            latest = latest.max(cpu.late_max);
        }
        // the middle of a bucket may lie beyond what was seen
        let d = Distribution::from(&late);
        let [p50_ns, p90_ns, p99_ns] = [d.p50_ns, d.p90_ns, d.p99_ns].map(|ns| ns.min(latest));
        stats.lateness = Distribution { p50_ns, p90_ns, p99_ns, max_ns: latest, ..d };
        stats.deferred = self.deferred();
        stats.throttled = self.skel.maps.bss_data.as_deref().map_or(0, |bss| bss.throttled);
        if self.skel.maps.bss_data.as_deref().is_some_and(|b| b.deferred_lost > 0) {
            stats.warnings.push("some threads that were held back did not fit the table of names".into());
        }
        stats
    }

    fn deferred(&self) -> Vec<Waited> {
        let map = &self.skel.maps.deferred;
        let mut found: Vec<Waited> = map
            .keys()
            .filter_map(|key| {
                let waited = read::<types::deferred>(&map.lookup(&key, MapFlags::ANY).ok()??)?;
                let name = key.split(|&b| b == 0).next().unwrap_or_default();
                Some(Waited {
                    comm: String::from_utf8_lossy(name).into_owned(),
                    times: waited.times,
                    total_ns: waited.ns,
                    max_ns: waited.max_ns,
                })
            })
            .collect();
        found.sort_by_key(|w| (std::cmp::Reverse(w.total_ns), w.comm.clone()));
        found
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // the kernel's own scheduler is back when this returns
        self.link = None;
    }
}

/// As many places as CPU numbers that can ever be.
fn cpu_numbers() -> u32 {
    let highest = libbpf_rs::num_possible_cpus().unwrap_or(1);
    u32::try_from(highest.clamp(1, MAX_CPUS)).unwrap_or(1)
}

/// Writes what is fixed from here on.
fn tell(open: &mut skel::OpenScxColonySkel<'static>, config: &ExtConfig, room: u32) -> Result<(), ExtError> {
    let Some(fixed) = open.maps.rodata_data.as_deref_mut() else {
        return Err(ExtError::Load("the programs have no settings".into()));
    };
    for cpu in config.cpus.iter() {
        match fixed.job_cpus.get_mut(cpu / 64) {
            Some(bits) if cpu < room as usize => *bits |= 1 << (cpu % 64),
            _ => return Err(ExtError::Load(format!("CPU {cpu} is beyond the {room} there can be"))),
        }
    }
    fixed.nr_cpus = room;
    let regular = config.windows.period_ns() - config.windows.favored_ns();
    fixed.lead_ns = LEAD_NS.min(regular / 20);
    // a quarter, so that the rest is left for the wait for a CPU
    fixed.longest_hold_ns = u64::from(config.options.watchdog_ms) * 1_000_000 / 4;
    fixed.strict = u32::from(config.options.strict);
    fixed.kthreads = match config.options.kthreads {
        KthreadPolicy::Bypass => types::kthreads::BYPASS,
        KthreadPolicy::Hold => types::kthreads::HOLD,
        KthreadPolicy::HoldAll => types::kthreads::HOLD_ALL,
    };
    let (mut names, mut groups) = (0, 0);
    for exempt in &config.options.exempt {
        match exempt {
            Exempt::Name { name, prefix } => {
                let (word, mask) = pattern(name, *prefix);
                fixed.exempt_names[names].name = word;
                fixed.exempt_names[names].mask = mask;
                names += 1;
            }
            Exempt::Cgroup(path) => {
                let (id, level) = cgroup(path)?;
                fixed.exempt_groups[groups].id = id;
                fixed.exempt_groups[groups].level = level;
                groups += 1;
            }
        }
    }
    fixed.nr_exempt_names = names as u32;
    fixed.nr_exempt_groups = groups as u32;
    for (place, path) in fixed.job_groups.iter_mut().zip(&config.options.job_cgroups) {
        (place.id, place.level) = cgroup(path)?;
    }
    fixed.nr_job_groups = config.options.job_cgroups.len() as u32;
    Ok(())
}

/// A name as two words, and the bits of them that count: all up to the end of the name and, if it is a whole
/// one, the zero behind it.
fn pattern(name: &str, prefix: bool) -> ([u64; 2], [u64; 2]) {
    let (mut text, mut mask) = ([0u8; 16], [0u8; 16]);
    let length = name.len().min(15);
    text[..length].copy_from_slice(&name.as_bytes()[..length]);
    mask[..length + usize::from(!prefix)].fill(0xff);
    let words = |bytes: [u8; 16]| {
        let both = u128::from_ne_bytes(bytes);
        if cfg!(target_endian = "little") {
            [both as u64, (both >> 64) as u64]
        } else {
            [(both >> 64) as u64, both as u64]
        }
    };
    (words(text), words(mask))
}

/// The number of a cgroup, and how deep below the root it is.
fn cgroup(path: &Path) -> Result<(u64, u32), ExtError> {
    let root = crate::cgroup::root().ok_or(ExtError::Config {
        what: "no cgroup tree of version 2 is mounted".into(),
        advice: "mount one at /sys/fs/cgroup, or name threads instead of cgroups",
    })?;
    let below = path.strip_prefix("/").unwrap_or(path);
    let directory = std::fs::metadata(root.join(below)).map_err(|e| ExtError::Config {
        what: format!("cgroup {}: {e}", path.display()),
        advice: "write its path in the version 2 tree, as /proc/PID/cgroup shows it",
    })?;
    let level = below.components().filter(|c| matches!(c, std::path::Component::Normal(_))).count();
    Ok((directory.ino(), level as u32))
}

/// A lateness in the middle of a bucket of the kernel side (`late_bucket`).
const fn bucket_ns(bucket: usize) -> u64 {
    if bucket < 16 {
        return bucket as u64;
    }
    let (octave, step) = (bucket / 8 + 2, bucket % 8);
    let width = 1u64 << (octave - 3);
    (8 + step as u64) * width + width / 2
}

fn times(account: &types::account) -> CpuTimes {
    let ns = |kind: types::kind| account.ns[kind.0 as usize];
    CpuTimes {
        away_ns: ns(types::kind::AWAY),
        job_ns: ns(types::kind::JOB),
        other_ns: ns(types::kind::OTHER),
        filled_ns: ns(types::kind::FILL),
        exempt_ns: ns(types::kind::EXEMPT),
    }
}

fn add_cpu(stats: &mut ExtStats, number: usize, c: &types::cpu) {
    let cpu = CpuStats {
        cpu: number,
        favored: times(&c.favored),
        regular: times(&c.regular),
        edges: c.edges,
        favored_windows: c.favored_windows,
        windows_hit: c.windows_hit,
        worst_window_ns: c.other_window_max,
        ticks_favored: c.ticks_favored,
        ticks_regular: c.ticks_regular,
    };
    stats.favored.add(&cpu.favored);
    stats.regular.add(&cpu.regular);
    stats.edges += cpu.edges;
    stats.missed += c.missed;
    stats.clock_steps = stats.clock_steps.max(c.steps);
    stats.favored_windows += cpu.favored_windows;
    stats.windows_hit += cpu.windows_hit;
    stats.worst_window_ns = stats.worst_window_ns.max(cpu.worst_window_ns);
    stats.ticks_favored += cpu.ticks_favored;
    stats.ticks_regular += cpu.ticks_regular;
    stats.filled += c.filled;
    stats.preempted += c.preempted;
    stats.by_cpu.push(cpu);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_name_ends_where_it_ends_and_a_beginning_goes_on() {
        let matches = |pattern: ([u64; 2], [u64; 2]), comm: &str| {
            let (words, _) = super::pattern(comm, false);
            (0..2).all(|i| words[i] & pattern.1[i] == pattern.0[i])
        };
        assert!(matches(pattern("mmfsd", false), "mmfsd"));
        assert!(!matches(pattern("mmfsd", false), "mmfsd2"));
        assert!(matches(pattern("ll_", true), "ll_ost_io01"));
        assert!(!matches(pattern("ll_", true), "l"));
        assert!(matches(pattern("exactly-fifteen", false), "exactly-fifteen"));
        assert!(!matches(pattern("exactly-fiftee", false), "exactly-fifteen"));
    }

    #[test]
    fn buckets_rise_by_an_eighth_of_an_octave() {
        let buckets = types::cpu::default().late.len();
        for bucket in 1..buckets {
            let (before, here) = (bucket_ns(bucket - 1), bucket_ns(bucket));
            assert!(here > before && (here - before) * 8 <= here.max(8) * 2, "{bucket}: {before} {here}");
        }
        assert!(bucket_ns(buckets - 1) > 1 << 33);
    }

    /// The result of `late_bucket` of `bpf/scx_late.h` for each of `values`, compiled for this machine.
    fn buckets_of_the_kernel_side(values: impl Iterator<Item = u64>) -> Vec<usize> {
        let folder = tempfile::tempdir().expect("temp dir");
        let (source, program) = (folder.path().join("late.c"), folder.path().join("late"));
        let values: Vec<String> = values.map(|v| format!("{v}ull")).collect();
        let text = format!(
            "#include <stdio.h>\n#undef __always_inline\n#define __always_inline inline\ntypedef unsigned u32;\n\
             typedef unsigned long long u64;\n{}\nstatic const u64 values[] = {{{}}};\n\
             int main(void) {{ for (unsigned i = 0; i < sizeof values / 8; i++) \
             printf(\"%u\\n\", late_bucket(values[i])); }}\n",
            include_str!("../../bpf/scx_late.h"),
            values.join(", ")
        );
        std::fs::write(&source, text).expect("writable");
        // the linker of every Rust program
        let compiled = std::process::Command::new("cc").arg("-o").args([&program, &source]).status();
        assert!(compiled.expect("cc").success());
        let said = std::process::Command::new(&program).output().expect("it runs").stdout;
        String::from_utf8_lossy(&said).lines().map(|l| l.parse().expect("a number")).collect()
    }

    #[test]
    fn the_middle_of_a_bucket_is_in_that_bucket_of_the_kernel_side() {
        let buckets = types::cpu::default().late.len();
        let back = buckets_of_the_kernel_side((0..buckets).map(bucket_ns));
        assert_eq!(back, (0..buckets).collect::<Vec<_>>());
    }
}
