// SPDX-License-Identifier: MIT OR Apache-2.0
//! The layout of the window, and the block that starts a job.
//!
//! ```text
//! 0                 2 MiB                                    W/2 (virtual node mode)              W
//! ├─ control area ──┼─ memory of process 0 … stack ──────────┼─ (2 MiB unused) memory of process 1 ┤
//! ```
//!
//! A *bank* is the memory of one process: all of the window, or half of it. A process's address is an offset in its
//! bank; the first 2 MiB are never mapped, so that a null pointer meets nothing, and in bank 0 they hold what is below.
//!
//! The bell is the doorbell of QEMU's ivshmem device: the daemon is peer 0, the node is another peer, and vector `n` is
//! that of channel `n` in both directions. After it has set a bit among the signals of a channel the daemon rings, too.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// First word of a window: `COLONYFS`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"COLONYFS");
/// Size of a large page, and of the control area.
pub const LARGE_PAGE: u64 = 2 << 20;
/// Size of a small page: what segments are protected by.
pub const PAGE: u64 = 4096;
/// Channels of a node, one a CPU: CPUs of a node at most.
pub const CHANNELS: usize = 4;
/// Processes of a node at most. CPU `n` and its channel are those of process `n` modulo the number of processes.
pub const PROCESSES: usize = 2;
/// The user's address of the window shared by all nodes of the partition, if there is one.
pub const TORUS_VA: u64 = 0x7000_0000_0000;
/// Load address of a static-pie program.
pub const PIE_BASE: u64 = 4 << 20;
/// Room for the stack at the top of a bank.
pub const STACK: u64 = 8 << 20;
/// The smallest and the largest window.
pub const WINDOW_SIZES: core::ops::RangeInclusive<u64> = (16 << 20)..=(64 << 30);

/// Offset of the [`Header`].
pub const HEADER_AT: u64 = 0;
/// Offset of the [`JobBlock`].
pub const JOB_AT: u64 = 0x1000;
/// Offset of the first [`CrashRecord`]; the second follows it.
pub const CRASH_AT: u64 = 0x3000;
/// Offset of the first channel; the next is [`CHANNEL_SIZE`] further.
pub const CHANNELS_AT: u64 = 0x10000;
/// Bytes of a channel.
pub const CHANNEL_SIZE: u64 = 0x10000;
/// Offset of the kernel's messages for the daemon's log.
pub const LOG_AT: u64 = 0x50000;
/// Bytes of that area.
pub const LOG_SIZE: u64 = 0x1000;
/// Offset of the node's whole personality, in the control system's encoding with version and checksum; zeroes if the
/// partition is not part of a machine. [`Personality`] is the part that kernels need.
pub const PERSONALITY_AT: u64 = 0x51000;
/// Bytes of that encoding.
pub const PERSONALITY_BYTES: usize = 256;
/// Offset of the rest of the control area, which the contract leaves to the kernel.
pub const FREE_AT: u64 = 0x52000;

/// In a channel: the ring of requests, the ring of replies, and the word of signals.
pub const REQUESTS_IN_CHANNEL: u64 = 0;
/// Offset of the ring of replies in a channel.
pub const REPLIES_IN_CHANNEL: u64 = 0xc000;
/// In a channel: an `AtomicU64` whose bit `n - 1` says that signal `n` is to be delivered; the daemon sets, the
/// kernel takes. What a call itself raises (`SIGPIPE`) is set before its reply is published.
pub const SIGNALS_IN_CHANNEL: u64 = 0xff00;

/// Offset of channel `n` in the window.
pub const fn channel_at(n: usize) -> u64 {
    CHANNELS_AT + n as u64 * CHANNEL_SIZE
}

/// Offset of the crash record of channel `n` in the window.
pub const fn crash_at(n: usize) -> u64 {
    CRASH_AT + (n * size_of::<CrashRecord>()) as u64
}

/// The header of the window, which the daemon writes before the node starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`crate::VERSION`].
    pub version: u32,
    /// Number of this node in its partition.
    pub node: u32,
    /// Bytes of the window.
    pub window: u64,
    /// Number of times the kernel looks for a reply before it halts; with [`POLL`] it never halts.
    pub spin: u64,
}

/// Never halt while waiting for a reply.
pub const POLL: u64 = u64::MAX;

/// A part of a program, as it lies in memory already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Segment {
    /// First address, in bytes; any alignment.
    pub address: u64,
    /// Bytes in memory.
    pub length: u64,
    /// Bits of [`READ`], [`WRITE`], [`EXECUTE`].
    pub flags: u64,
}

/// May be read.
pub const READ: u64 = 4;
/// May be written.
pub const WRITE: u64 = 2;
/// May be executed.
pub const EXECUTE: u64 = 1;
/// Segments of a program at most.
pub const SEGMENTS: usize = 16;

/// One process of a job on this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Process {
    /// First instruction.
    pub entry: u64,
    /// Stack pointer at the first instruction: `argc`, `argv`, the environment and the auxiliary vector are there.
    pub stack: u64,
    /// First address of the heap: the end of the last segment.
    pub heap: u64,
    /// Bytes of the process's memory, with the first 2 MiB; a multiple of 2 MiB.
    pub memory: u64,
    /// Segments in use.
    pub segments_len: u64,
    /// The segments, by address.
    pub segments: [Segment; SEGMENTS],
    /// Number of the process in the job.
    pub rank: u32,
    /// The result of `getpid`.
    pub pid: u32,
    /// The result of `getppid`.
    pub ppid: u32,
    /// The result of `getuid` and `geteuid`.
    pub uid: u32,
    /// The result of `getgid` and `getegid`.
    pub gid: u32,
    /// Groups in use.
    pub groups_len: u32,
    /// The groups that `getgroups` returns.
    pub groups: [u32; 32],
    /// Name of the program, for `prctl` and crash records; ends with a zero.
    pub name: [u8; 16],
}

/// The block that starts a job: written by the daemon before it answers `NEXT_JOB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct JobBlock {
    /// [`crate::VERSION`].
    pub version: u32,
    /// 1 in coprocessor mode, 1 or 2 in virtual node mode.
    pub processes_len: u32,
    /// Wall clock at the time stamp counter value below, ns since 1970.
    pub realtime_ns: u64,
    /// Seed of `getrandom`.
    pub random: [u64; 4],
    /// The node's place, as the control system gives it.
    pub personality: Personality,
    /// The processes.
    pub processes: [Process; PROCESSES],
}

/// A node's place in the machine (SC06 paper, 4.2: the personality).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(C)]
pub struct Personality {
    /// Number of this node in its partition.
    pub node: u32,
    /// Nodes of the partition.
    pub nodes: u32,
    /// Extent of the torus.
    pub dims: [u32; 3],
    /// This node's coordinates in it.
    pub coords: [u32; 3],
    /// Number of the pset, the nodes that share an I/O node.
    pub pset: u32,
    /// This node's number in its pset.
    pub in_pset: u32,
    /// Name of the node for `uname`; ends with a zero.
    pub host: [u8; 32],
}

/// The last state of a process that ended by a fault or a signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CrashRecord {
    /// Linux signal number.
    pub signal: u32,
    /// Exception vector of the processor; 255 where a signal came otherwise.
    pub vector: u32,
    /// Error code of the exception.
    pub error: u64,
    /// Address that faulted (cr2).
    pub address: u64,
    /// rax rbx rcx rdx rsi rdi rbp rsp r8–r15.
    pub registers: [u64; 16],
    /// Instruction pointer.
    pub rip: u64,
    /// Flags.
    pub rflags: u64,
    /// Base of the fs segment: the thread's own data.
    pub fs_base: u64,
}

const _: () = {
    assert!(size_of::<Header>() as u64 <= JOB_AT);
    assert!(JOB_AT + size_of::<JobBlock>() as u64 <= CRASH_AT);
    assert!(crash_at(CHANNELS) <= CHANNELS_AT);
    assert!(channel_at(CHANNELS) <= LOG_AT && LOG_AT + LOG_SIZE <= PERSONALITY_AT);
    assert!(PERSONALITY_AT + PERSONALITY_BYTES as u64 <= FREE_AT && FREE_AT <= LARGE_PAGE);
    assert!(crate::ring::bytes::<crate::Request>() <= REPLIES_IN_CHANNEL);
    assert!(REPLIES_IN_CHANNEL + crate::ring::bytes::<crate::Reply>() <= SIGNALS_IN_CHANNEL);
};
