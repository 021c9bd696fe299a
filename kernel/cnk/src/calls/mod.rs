// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls: what the table of `colony_fship::calls` says is done.
//!
//! A local call has a handler here, in the file of its family, and a row in `table.rs`. A shipped call has none: its addresses are checked, and it goes to the daemon as it is.

mod exit;
mod handler;
mod identity;
mod memory;
mod misc;
mod signal;
mod table;
mod thread;
mod time;

use cnk_logic::ensure;
use colony_fship::calls::{Class, find, number};
use colony_fship::message::own;
use colony_fship::{Call, Errno, Request, spans};

use crate::machine::area::area;
use crate::machine::console::debug;
use crate::machine::context::Context;
use crate::process::Over;
use crate::{cpu, delivery, process, shipping};
use handler::Caller;

/// Does a system call; whether all registers are to be restored as they are in the context.
pub fn dispatch(n: usize, context: &mut Context) -> bool {
    let (called, args) = (context.number, context.args());
    let mut caller = Caller { cpu: n, context, restored: false };
    let result = perform(&mut caller, called, args);
    let restored = caller.restored;
    if !restored {
        context.rax = result as u64;
    }
    let interrupted = !restored && result == Errno::EINTR.result();
    let delivered = delivery::before_user(n, context, interrupted.then_some(called));
    restored || delivered
}

/// The call of the thread on CPU `n`, which has waited without a CPU, goes on. The call, if a signal has ended it.
pub fn resume(n: usize, context: &mut Context) -> Option<u64> {
    let wait = process::on(n).own(n).wait;
    let result = match wait {
        // it was not in a call, or its result is there
        process::Wait::No => return None,
        process::Wait::Futex => thread::futex_over(n),
        process::Wait::Sleep(left) => time::sleep_over(n, left),
        process::Wait::Signal(info) => signal::wait_over(n, info),
        process::Wait::Handler => Err(Errno::EINTR),
        process::Wait::Reply(..) => reply_over(n, context),
    };
    context.rax = result.map_or_else(Errno::result, |value| value as i64) as u64;
    (context.rax as i64 == Errno::EINTR.result()).then_some(context.number)
}

/// The end of the wait of the thread on CPU `n`, which waits for nothing from now on.
fn over(n: usize) -> Over {
    let process = &mut *process::on(n);
    let thread = process.own(n);
    thread.wait = process::Wait::No;
    core::mem::replace(&mut thread.over, Over::Not)
}

fn perform(caller: &mut Caller<'_>, called: u64, args: [u64; 6]) -> i64 {
    let Some(call) = find(called) else {
        return if called == u64::from(own::NOP) {
            shipping::call_of_thread(caller.cpu, caller.context, own::NOP, args)
        } else {
            debug!("cnk: no call {called} {args:x?}");
            Errno::ENOSYS.result()
        };
    };
    match (call.class, table::handler(call.number.into())) {
        (Class::Error(errno), _) => {
            debug!("cnk: {} is refused: {errno}", call.name);
            errno.result()
        }
        (_, Some(handler)) => {
            cpu::count(&area(caller.cpu).local_calls);
            handler(caller, args).map_or_else(Errno::result, |value| value as i64)
        }
        (_, None) => ship(caller, call, args).unwrap_or_else(Errno::result),
    }
}

/// Ships a call whose addresses are the process's.
fn ship(caller: &Caller<'_>, call: &Call, args: [u64; 6]) -> Result<i64, Errno> {
    let n = caller.cpu;
    let request = Request { seq: 0, call: call.number.into(), args, reserved: 0 };
    {
        let process = process::on(n);
        ensure(request.call != number::execve || process.sched.alive() < 2, Errno::EAGAIN)?;
        spans::each(call, &request, &process.user, &mut |_| Ok(()))?;
    }
    let mask = temporary_mask(n, request.call, &args)?;
    if let Some(mask) = mask {
        signal::mask_for_now(n, mask);
    }
    let result = shipping::call_of_thread(n, caller.context, request.call, args);
    Ok(shipped(n, request.call, result))
}

/// A call of the thread on CPU `n` was shipped, or a part of it: its result, if the daemon's is this.
fn shipped(n: usize, call: u32, result: i64) -> i64 {
    let masks = matches!(call, number::ppoll | number::epoll_pwait | number::pselect6);
    if masks && result != Errno::EINTR.result() {
        signal::unmask(n);
    }
    if call == number::execve && result == 0 {
        exit::executed(n);
    }
    if call == number::mmap { memory::not_mapped(result).result() } else { result }
}

fn reply_over(n: usize, context: &Context) -> Result<u64, Errno> {
    let result = match over(n) {
        Over::Reply(result) => result,
        _ => Errno::EINTR.result(),
    };
    // as it is, an error or not
    Ok(shipped(n, context.number as u32, result) as u64)
}

/// The mask that a call waits with, if it brings one.
fn temporary_mask(n: usize, call: u32, args: &[u64; 6]) -> Result<Option<u64>, Errno> {
    let at = match call {
        number::ppoll => args[3],
        number::epoll_pwait => args[4],
        // address and size
        number::pselect6 if args[5] != 0 => process::on(n).user.get(args[5])?,
        _ => 0,
    };
    process::on(n).user.get_unless_null(at)
}
