// SPDX-License-Identifier: MIT OR Apache-2.0
//! A side that sleeps is woken, also where an emulator leaves out fences and the locks of instructions.

use std::sync::atomic::{AtomicBool, Ordering};

use colony_nodes::ciod::Config;
use colony_nodes::{Accel, Machine, Partition};

use crate::common::{ciod, folder, programs, run, spec};

/// Calls of each kind. Without barriers a call now and then was never answered: one in 50,000 to 500,000.
const SAMPLES: &str = "20000";

#[test]
fn no_call_is_lost_with_one_emulated_cpu() {
    no_call_is_lost(Machine { cpus: 1, ..Machine::default() });
}

#[test]
fn no_call_is_lost_in_counted_time() {
    no_call_is_lost(Machine { cpus: 1, accel: Accel::Counted { shift: 1 }, ..Machine::default() });
}

#[test]
fn no_call_is_lost_with_two_emulated_cpus() {
    no_call_is_lost(Machine::default());
}

/// Both sides sleep at once after each word, beside threads that take every CPU that is free.
fn no_call_is_lost(machine: Machine) {
    let Some([program]) = programs(["colony-calls"]) else { return };
    let place = folder();
    let path = place.path().to_str().expect("text");
    let mut partition = Partition::boot(machine, 1, Config::new(ciod()).blocking()).expect("boots");
    let busy = AtomicBool::new(true);
    let loops = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let ran = std::thread::scope(|scope| {
        for _ in 0..loops {
            scope.spawn(|| idle_class(&busy));
        }
        let _stop = Stop(&busy);
        run(&mut partition, spec(&program, place.path(), &[path, SAMPLES]))
    });
    assert!(ran.output().contains("colony.calls/1"), "{}", ran.stdout);
}

/// Ends the loops, whatever becomes of the job.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Computes with the lowest class that Linux has, which every other thread interrupts.
fn idle_class(busy: &AtomicBool) {
    // SAFETY: all zeroes is a parameter of this class; the call concerns the calling thread only.
    let set = unsafe {
        let parameter: nix::libc::sched_param = std::mem::zeroed();
        nix::libc::sched_setscheduler(0, nix::libc::SCHED_IDLE, &raw const parameter)
    };
    assert_eq!(set, 0, "every thread may take the idle class");
    while busy.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}
