// SPDX-License-Identifier: MIT OR Apache-2.0
//! The handlers of local calls. That each has one, and only they, is checked when the kernel is built.

use colony_fship::calls::{CALLS, Class, number};

use super::handler::Handler;
use super::{exit, identity, memory, misc, signal, thread, time};

/// The handler of a call, if it is local.
pub(super) const fn handler(call: u32) -> Option<Handler> {
    let handler: Handler = match call {
        number::alarm => signal::alarm,
        number::arch_prctl => misc::arch_prctl,
        number::brk => memory::brk,
        number::clock_getres => time::clock_getres,
        number::clock_gettime => time::clock_gettime,
        number::clock_nanosleep => time::clock_nanosleep,
        number::clone => thread::clone,
        number::clone3 => thread::clone3,
        number::exit => exit::exit,
        number::exit_group => exit::exit_group,
        number::futex => thread::futex,
        number::get_robust_list => thread::get_robust_list,
        number::getcpu => time::getcpu,
        number::getgroups => identity::getgroups,
        number::getitimer => signal::getitimer,
        number::getpgid | number::getsid => identity::own_group,
        number::getpid | number::gettid | number::getppid | number::getpgrp => identity::answered,
        number::getuid | number::geteuid | number::getgid | number::getegid => identity::answered,
        number::getpriority => |_, a| misc::priority(a[0], 20),
        number::getrandom => misc::getrandom,
        number::getresgid => |c, a| identity::thrice(c, a, |p| p.block.gid),
        number::getresuid => |c, a| identity::thrice(c, a, |p| p.block.uid),
        number::getrlimit => |c, a| misc::limit(c, a[0], a[1]),
        number::getrusage => time::getrusage,
        number::gettimeofday => time::gettimeofday,
        number::kill => signal::kill,
        number::madvise => memory::madvise,
        number::membarrier => misc::membarrier,
        number::mincore => memory::mincore,
        number::mlock | number::mlock2 | number::munlock | number::munlockall => |_, _| Ok(0),
        number::mlockall => memory::mlockall,
        number::mmap => memory::mmap,
        number::mprotect => memory::mprotect,
        number::mremap => memory::mremap,
        number::msync => memory::msync,
        number::munmap => memory::munmap,
        number::nanosleep => |c, a| time::sleep(c, time::until(c.cpu, a[0])?, a[1]),
        number::pause => |c, _| signal::wait_for_handler(c),
        number::prctl => misc::prctl,
        number::prlimit64 => misc::prlimit,
        number::rt_sigaction => signal::action,
        number::rt_sigpending => signal::pending,
        number::rt_sigprocmask => signal::procmask,
        number::rt_sigreturn => signal::go_back,
        number::rt_sigsuspend => signal::suspend,
        number::rt_sigtimedwait => signal::timedwait,
        number::sched_getaffinity => time::getaffinity,
        number::sched_setaffinity => time::setaffinity,
        number::sched_yield => time::give_way,
        number::set_robust_list => thread::set_robust_list,
        number::set_tid_address => thread::set_tid_address,
        number::setgid | number::setregid | number::setresgid => |c, a| identity::stay(c, a, |p| p.block.gid),
        number::setuid | number::setreuid | number::setresuid => |c, a| identity::stay(c, a, |p| p.block.uid),
        number::setitimer => signal::setitimer,
        number::setpriority => |_, a| misc::priority(a[0], 0),
        number::setrlimit => |c, a| misc::set_limit(c, a[0], a[1]),
        number::sigaltstack => signal::altstack,
        number::sysinfo => misc::sysinfo,
        number::tgkill => signal::tgkill,
        number::time => time::seconds,
        number::times => time::times,
        number::tkill => |c, a| signal::to_thread(c, a[0] as i32, a[1]),
        number::uname => identity::uname,
        _ => return None,
    };
    Some(handler)
}

const _: () = {
    let mut n = 0;
    while n < CALLS.len() {
        let local = matches!(CALLS[n].class, Class::Local);
        assert!(
            local == handler(CALLS[n].number as u32).is_some(),
            "local calls have handlers, and no others"
        );
        n += 1;
    }
};
