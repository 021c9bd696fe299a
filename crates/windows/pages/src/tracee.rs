// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program stopped before its first instruction, or while it runs, which makes system calls on our behalf.
//!
//! The child asks to be traced before `execve` ([`ask`]), so the kernel stops it right after. Registers are set to a system call
//! and to the address of a system call instruction in the vDSO, and the process makes a single step. Afterwards the
//! registers are restored: the program's memory is changed by the calls alone, and its code not at all. A program that runs already is
//! [interrupted](Tracee::interrupt) for it.

mod entry;
mod interrupt;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

use nix::errno::Errno;

use crate::smaps::Mapping;

pub(crate) use entry::Reached;
pub(crate) use interrupt::NotStopped;

type Registers = libc::user_regs_struct;

/// `svc #0` on 64-bit ARM, `syscall` on x86-64.
#[cfg(target_arch = "aarch64")]
const INSTRUCTION: &[u8] = &[0x01, 0x00, 0x00, 0xd4];
#[cfg(target_arch = "x86_64")]
const INSTRUCTION: &[u8] = &[0x0f, 0x05];

const NT_PRSTATUS: usize = 1;
/// Every signal but `SIGTRAP`, as a mask.
const ALL: u64 = !(1 << (libc::SIGTRAP - 1));

/// Blocks the signals of the calling process that could stop it on its way to `execve`, and asks its parent to trace it. Makes
/// only system calls. If the process cannot be traced, its signals are as before.
pub(crate) fn ask() {
    let mut blocked: libc::sigset_t = empty_set();
    let mut before: libc::sigset_t = empty_set();
    // SAFETY: both sets are initialized and live on this stack; the calls keep no pointer.
    unsafe {
        libc::sigfillset(&raw mut blocked);
        // tells of the stop
        libc::sigdelset(&raw mut blocked, libc::SIGTRAP);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const blocked, &raw mut before);
        if libc::ptrace(libc::PTRACE_TRACEME, 0, 0usize, 0usize) != 0 {
            libc::sigprocmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        }
    }
}

fn empty_set() -> libc::sigset_t {
    // SAFETY: a set of signals is plain integers, for which zero is a value.
    unsafe { std::mem::zeroed() }
}

/// A failure of a call in the traced process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    /// The process has ended; it is left to be waited for.
    #[error("the program was killed")]
    Gone,
    /// The kernel's answer.
    #[error("{0}")]
    Refused(#[from] Errno),
}

/// A task that is stopped before the program's own instructions, or between two of them. Dropping it lets the program run.
pub(crate) struct Tracee {
    /// The process.
    process: i32,
    /// Its thread that is stopped.
    pid: i32,
    memory: File,
    registers: Registers,
    /// Signal mask that the program is to have.
    mask: u64,
    /// Address of a system call instruction.
    instruction: u64,
    /// Signal that arrived meanwhile and could not be blocked.
    pending: i32,
    gone: bool,
}

impl Tracee {
    /// Waits for the stop of a child that has [asked](ask) for it. The caller is the thread that forked the child.
    ///
    /// # Errors
    /// The reason for which the process cannot be stopped; it runs.
    pub(crate) fn new(pid: i32, mask: u64) -> Result<Self, String> {
        if tracer(pid) != Some(nix::unistd::gettid().as_raw()) {
            return Err(
                "the program cannot be stopped at its start: another tracer, kernel.yama.ptrace_scope of 3, or a filter of system calls"
                    .into(),
            );
        }
        wait_for_stop(pid).map_err(|e| e.to_string())?;
        // a program must not go on with registers of ours, should this process be killed
        let _ = request(libc::PTRACE_SETOPTIONS, pid, 0, libc::PTRACE_O_EXITKILL as usize);
        Self::of_stopped(pid, pid, mask).map_err(|reason| {
            let _ = request(libc::PTRACE_SETSIGMASK, pid, size_of::<u64>(), &raw const mask as usize);
            let _ = request(libc::PTRACE_DETACH, pid, 0, 0);
            format!("the program cannot be changed at its start: {reason}")
        })
    }

    /// Thread `pid` of a process, which is stopped. Its registers, and this signal mask, are restored when it goes on.
    ///
    /// # Errors
    /// The reason for which it cannot be changed; it is as before.
    fn of_stopped(process: i32, pid: i32, mask: u64) -> Result<Self, String> {
        let memory = OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem"));
        let memory = memory.map_err(|e| format!("/proc/{pid}/mem: {e}"));
        let registers = read_registers(pid).map_err(|e| format!("its registers cannot be read: {e}"));
        let (memory, registers) = (memory?, registers?);
        Ok(Self { process, pid, memory, registers, mask, instruction: 0, pending: 0, gone: false })
    }

    /// Keeps the program as it is now: registers and mask are restored when it goes on, and no signal disturbs calls until then.
    fn hold(&mut self) -> Result<(), CallError> {
        self.registers = read_registers(self.pid)?;
        let (mut mask, all) = (0u64, ALL);
        self.request(libc::PTRACE_GETSIGMASK, size_of::<u64>(), &raw mut mask as usize)?;
        self.mask = mask;
        self.request(libc::PTRACE_SETSIGMASK, size_of::<u64>(), &raw const all as usize)
    }

    /// Looks for a system call instruction in the vDSO, before the first [call](Self::call).
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn find_instruction(&mut self, mappings: &[Mapping]) -> Result<(), String> {
        let vdso = mappings.iter().find(|m| m.name == "[vdso]").ok_or("the kernel maps no vDSO")?;
        let length = usize::try_from(vdso.range.end - vdso.range.start).unwrap_or(0).min(1 << 20);
        let mut code = vec![0; length];
        self.read(vdso.range.start, &mut code).map_err(|e| format!("the vDSO cannot be read: {e}"))?;
        let step = if cfg!(target_arch = "aarch64") { 4 } else { 1 };
        let place =
            (0..length).step_by(step).find(|&at| code.get(at..).is_some_and(|c| c.starts_with(INSTRUCTION)));
        let place = place.ok_or("the vDSO has no system call instruction")?;
        self.instruction = vdso.range.start + place as u64;
        Ok(())
    }

    /// Makes a system call in the process.
    ///
    /// # Errors
    /// [`CallError`]; after [`CallError::Gone`] nothing else can be done.
    pub(crate) fn call(&mut self, number: libc::c_long, arguments: [u64; 6]) -> Result<u64, CallError> {
        if self.gone {
            return Err(CallError::Gone);
        }
        let mut registers = self.registers;
        set_call(&mut registers, number, arguments, self.instruction);
        self.set_registers(&registers)?;
        loop {
            self.request(libc::PTRACE_SINGLESTEP, 0, 0)?;
            let status = stopped(self.pid, 0).map_err(|e| self.ended(e))?.unwrap_or(0);
            match (status & 0xff, status >> 8) {
                (libc::SIGTRAP, 0) => break,
                // SIGSTOP: delivered when the program goes on
                (signal, 0) => self.pending = signal,
                // an event of the tracer, before the step
                _ => {}
            }
        }
        let registers = read_registers(self.pid).map_err(|e| self.ended(e))?;
        let result = result_of(&registers);
        // the kernel's range of errors
        match result.cast_signed() {
            error @ -4095..=-1 => Err(CallError::Refused(Errno::from_raw(-error as i32))),
            _ => Ok(result),
        }
    }

    /// Reads memory of the process.
    pub(crate) fn read(&self, address: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.memory.read_exact_at(bytes, address)
    }

    /// Writes memory of the process, whatever its protection.
    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory.write_all_at(bytes, address)
    }

    pub(crate) const fn pid(&self) -> i32 {
        self.pid
    }

    fn ended(&mut self, e: CallError) -> CallError {
        self.gone |= e == CallError::Gone;
        e
    }

    fn request(&mut self, what: libc::c_uint, address: usize, data: usize) -> Result<(), CallError> {
        request(what, self.pid, address, data).map_err(|e| self.ended(e))
    }

    fn set_registers(&mut self, registers: &Registers) -> Result<(), CallError> {
        let base = std::ptr::from_ref(registers).cast_mut().cast();
        let mut piece = libc::iovec { iov_base: base, iov_len: size_of::<Registers>() };
        self.request(libc::PTRACE_SETREGSET, NT_PRSTATUS, &raw mut piece as usize)
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        let (registers, mask) = (self.registers, self.mask);
        // each fails only if the program has been killed
        let _ = self.set_registers(&registers);
        let _ = self.request(libc::PTRACE_SETSIGMASK, size_of::<u64>(), &raw const mask as usize);
        let _ = self.request(libc::PTRACE_DETACH, 0, usize::try_from(self.pending).unwrap_or(0));
        if self.gone {
            release_thread(self.process, self.pid);
        }
    }
}

/// Waits for a thread that has ended while it was traced: until then, the end of its process is told to nobody. The first thread of
/// a process is left to the thread that waits for the program.
fn release_thread(process: i32, tid: i32) {
    if tid != process {
        // SAFETY: no status is asked for.
        unsafe { libc::waitpid(tid, std::ptr::null_mut(), libc::__WALL) };
    }
}

fn read_registers(pid: i32) -> Result<Registers, CallError> {
    // SAFETY: registers are plain integers, for which zero is a value.
    let mut registers: Registers = unsafe { std::mem::zeroed() };
    let mut piece = libc::iovec { iov_base: (&raw mut registers).cast(), iov_len: size_of::<Registers>() };
    request(libc::PTRACE_GETREGSET, pid, NT_PRSTATUS, &raw mut piece as usize)?;
    Ok(registers)
}

#[cfg(target_arch = "x86_64")]
fn set_call(r: &mut Registers, number: libc::c_long, a: [u64; 6], instruction: u64) {
    [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] = a;
    r.rax = number.cast_unsigned();
    // no system call that the kernel could start again
    r.orig_rax = u64::MAX;
    r.rip = instruction;
}

#[cfg(target_arch = "x86_64")]
const fn result_of(r: &Registers) -> u64 {
    r.rax
}

/// Address of the next instruction.
#[cfg(target_arch = "x86_64")]
const fn instruction(r: &Registers) -> u64 {
    r.rip
}

#[cfg(target_arch = "aarch64")]
fn set_call(r: &mut Registers, number: libc::c_long, a: [u64; 6], instruction: u64) {
    let [a0, a1, a2, a3, a4, a5] = a;
    [r.regs[0], r.regs[1], r.regs[2], r.regs[3], r.regs[4], r.regs[5]] = [a0, a1, a2, a3, a4, a5];
    r.regs[8] = number.cast_unsigned();
    r.pc = instruction;
}

#[cfg(target_arch = "aarch64")]
const fn result_of(r: &Registers) -> u64 {
    r.regs[0]
}

/// Address of the next instruction.
#[cfg(target_arch = "aarch64")]
const fn instruction(r: &Registers) -> u64 {
    r.pc
}

/// One request of `ptrace`; `data` is a number or the address of a value that lives until the call returns.
fn request(what: libc::c_uint, pid: i32, address: usize, data: usize) -> Result<(), CallError> {
    // SAFETY: requests of this file read or write what `data` points to, of the size they expect, and keep no pointer.
    match unsafe { libc::ptrace(what, pid, address, data) } {
        -1 => match Errno::last() {
            Errno::ESRCH => Err(CallError::Gone),
            e => Err(CallError::Refused(e)),
        },
        _ => Ok(()),
    }
}

/// Waits until a traced child stops, and returns the signal that it stopped with. The end of the child is left to be waited for.
fn wait_for_stop(pid: i32) -> Result<i32, CallError> {
    stopped(pid, 0).map(|status| status.unwrap_or(0) & 0xff)
}

/// The status of a traced child that has stopped; `None` if it runs. As [`wait_for_stop`] without waiting.
fn has_stopped(pid: i32) -> Result<Option<i32>, CallError> {
    stopped(pid, libc::WNOHANG)
}

fn stopped(pid: i32, more: libc::c_int) -> Result<Option<i32>, CallError> {
    let wait = |options: libc::c_int| {
        // SAFETY: the information is plain integers, for which zero is a value.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let id = libc::id_t::try_from(pid).unwrap_or(0);
        loop {
            // SAFETY: the kernel writes into `info`, which lives on this stack.
            match unsafe { libc::waitid(libc::P_PID, id, &raw mut info, options) } {
                0 => return Ok(info),
                _ if Errno::last() == Errno::EINTR => {}
                _ => return Err(CallError::Gone),
            }
        }
    };
    let info = wait(libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT | more)?;
    // SAFETY: the kernel has filled in the fields of a child's change, or left them zero.
    if unsafe { info.si_pid() } == 0 {
        return Ok(None);
    }
    if !matches!(info.si_code, libc::CLD_TRAPPED | libc::CLD_STOPPED) {
        return Err(CallError::Gone);
    }
    wait(libc::WSTOPPED | libc::WNOHANG)?;
    // SAFETY: the kernel has filled in the fields of a child's change.
    Ok(Some(unsafe { info.si_status() }))
}

/// The thread that traces this process.
fn tracer(pid: i32) -> Option<i32> {
    let status = std::fs::read(format!("/proc/{pid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let line = status.lines().find_map(|line| line.strip_prefix("TracerPid:"))?;
    line.trim().parse().ok()
}
