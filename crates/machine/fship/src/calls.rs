// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one table of system calls: from it come the kernel's dispatch, the checks of both sides, the page of the book
//! and the conformance tests.

use crate::Errno;
use Arg::{
    DirFd, Fcntl, Fd, In, InOrNull, InOut, InOutOrNull, Ioctl, IovIn, IovOut, MsgIn, MsgOut, Out, OutOrNull,
    OutSized, Path, PathOrNull, Strings, Val,
};
use Class::{Error, Local, Shipped};
use Len::{Bits, Bytes, Times};

/// The side that does a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The kernel of the node, by itself.
    Local,
    /// The I/O daemon.
    Shipped,
    /// Nobody: the error at once. What needs a second process, a scheduler, or a page fault cannot be had here.
    Error(Errno),
}

/// Length of a piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Len {
    /// As argument `n` says, in bytes.
    Arg(u8),
    /// So many bytes.
    Bytes(u16),
    /// This many bytes for each of as many as argument `n` says.
    Times(u8, u8),
    /// A bit for each of as many as argument `n` says, in words of 64 (`fd_set`).
    Bits(u8),
}

/// Meaning of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg {
    /// A number; or memory that the handler itself looks after.
    Val,
    /// A file descriptor.
    Fd,
    /// A file descriptor of a directory, or `AT_FDCWD`.
    DirFd,
    /// A string that ends with a zero: a path or a name.
    Path,
    /// The same, or null.
    PathOrNull,
    /// An array of strings that ends with a null.
    Strings,
    /// Memory that is read.
    In(Len),
    /// Memory that is written.
    Out(Len),
    /// Memory that is read and written.
    InOut(Len),
    /// Memory that is read, or null.
    InOrNull(Len),
    /// Memory that is written, or null.
    OutOrNull(Len),
    /// Memory that is read and written, or null.
    InOutOrNull(Len),
    /// Memory that is written, as long as the `u32` at argument `n` says; or null.
    OutSized(u8),
    /// As many `iovec` as argument `n` says, whose memory is read.
    IovIn(u8),
    /// The same, whose memory is written.
    IovOut(u8),
    /// A `msghdr` that is sent.
    MsgIn,
    /// A `msghdr` that is received.
    MsgOut,
    /// An address or a value, by the second argument of `ioctl`.
    Ioctl,
    /// An address or a value, by the second argument of `fcntl`.
    Fcntl,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Number on x86-64.
    pub number: u16,
    /// Linux's name.
    pub name: &'static str,
    /// The side that does it.
    pub class: Class,
    /// Its arguments.
    pub args: &'static [Arg],
}

macro_rules! table {
    ($($number:literal $name:ident: $class:expr, [$($arg:expr),*];)*) => {
        /// The table, by number. A call that is not in it is not there: `ENOSYS`.
        pub const CALLS: &[Call] = &[$(
            Call { number: $number, name: stringify!($name), class: $class, args: &[$($arg),*] },
        )*];

        /// The numbers by name, in lower case as they are in the table.
        #[allow(non_upper_case_globals, missing_docs, reason = "names of the system calls")]
        pub mod number {
            $(pub const $name: u32 = $number;)*
        }
    };
}

use Errno as E;
use Len::Arg as A;

#[rustfmt::skip]
table! {
    0 read: Shipped, [Fd, Out(A(2)), Val];
    1 write: Shipped, [Fd, In(A(2)), Val];
    2 open: Shipped, [Path, Val, Val];
    3 close: Shipped, [Fd];
    4 stat: Shipped, [Path, Out(Bytes(144))];
    5 fstat: Shipped, [Fd, Out(Bytes(144))];
    6 lstat: Shipped, [Path, Out(Bytes(144))];
    7 poll: Shipped, [InOut(Times(8, 1)), Val, Val];
    8 lseek: Shipped, [Fd, Val, Val];
    9 mmap: Local, [Val, Val, Val, Val, Fd, Val];
    10 mprotect: Local, [Val, Val, Val];
    11 munmap: Local, [Val, Val];
    12 brk: Local, [Val];
    13 rt_sigaction: Local, [Val, InOrNull(Bytes(32)), OutOrNull(Bytes(32)), Val];
    14 rt_sigprocmask: Local, [Val, InOrNull(Bytes(8)), OutOrNull(Bytes(8)), Val];
    15 rt_sigreturn: Local, [];
    16 ioctl: Shipped, [Fd, Val, Ioctl];
    17 pread64: Shipped, [Fd, Out(A(2)), Val, Val];
    18 pwrite64: Shipped, [Fd, In(A(2)), Val, Val];
    19 readv: Shipped, [Fd, IovOut(2), Val];
    20 writev: Shipped, [Fd, IovIn(2), Val];
    21 access: Shipped, [Path, Val];
    22 pipe: Shipped, [Out(Bytes(8))];
    23 select: Shipped, [Val, InOutOrNull(Bits(0)), InOutOrNull(Bits(0)), InOutOrNull(Bits(0)), InOutOrNull(Bytes(16))];
    24 sched_yield: Local, [];
    25 mremap: Local, [Val, Val, Val, Val, Val];
    26 msync: Local, [Val, Val, Val];
    27 mincore: Local, [Val, Val, Val];
    28 madvise: Local, [Val, Val, Val];
    29 shmget: Error(E::ENOSYS), [Val, Val, Val];
    30 shmat: Error(E::ENOSYS), [Val, Val, Val];
    31 shmctl: Error(E::ENOSYS), [Val, Val, Val];
    32 dup: Shipped, [Fd];
    33 dup2: Shipped, [Fd, Fd];
    34 pause: Local, [];
    35 nanosleep: Local, [In(Bytes(16)), OutOrNull(Bytes(16))];
    36 getitimer: Local, [Val, Out(Bytes(32))];
    37 alarm: Local, [Val];
    38 setitimer: Local, [Val, InOrNull(Bytes(32)), OutOrNull(Bytes(32))];
    39 getpid: Local, [];
    40 sendfile: Shipped, [Fd, Fd, InOutOrNull(Bytes(8)), Val];
    41 socket: Shipped, [Val, Val, Val];
    42 connect: Shipped, [Fd, In(A(2)), Val];
    43 accept: Error(E::EOPNOTSUPP), [Fd, Val, Val];
    44 sendto: Shipped, [Fd, In(A(2)), Val, Val, InOrNull(A(5)), Val];
    45 recvfrom: Shipped, [Fd, Out(A(2)), Val, Val, OutSized(5), InOutOrNull(Bytes(4))];
    46 sendmsg: Shipped, [Fd, MsgIn, Val];
    47 recvmsg: Shipped, [Fd, MsgOut, Val];
    48 shutdown: Shipped, [Fd, Val];
    49 bind: Shipped, [Fd, In(A(2)), Val];
    50 listen: Error(E::EOPNOTSUPP), [Fd, Val];
    51 getsockname: Shipped, [Fd, OutSized(2), InOut(Bytes(4))];
    52 getpeername: Shipped, [Fd, OutSized(2), InOut(Bytes(4))];
    53 socketpair: Shipped, [Val, Val, Val, Out(Bytes(8))];
    54 setsockopt: Shipped, [Fd, Val, Val, In(A(4)), Val];
    55 getsockopt: Shipped, [Fd, Val, Val, OutSized(4), InOut(Bytes(4))];
    56 clone: Local, [Val, Val, Val, Val, Val];
    57 fork: Error(E::ENOSYS), [];
    58 vfork: Error(E::ENOSYS), [];
    59 execve: Shipped, [Path, Strings, Strings];
    60 exit: Local, [Val];
    61 wait4: Error(E::ECHILD), [Val, Val, Val, Val];
    62 kill: Local, [Val, Val];
    63 uname: Local, [Out(Bytes(390))];
    64 semget: Error(E::ENOSYS), [Val, Val, Val];
    65 semop: Error(E::ENOSYS), [Val, Val, Val];
    66 semctl: Error(E::ENOSYS), [Val, Val, Val, Val];
    67 shmdt: Error(E::ENOSYS), [Val];
    68 msgget: Error(E::ENOSYS), [Val, Val];
    69 msgsnd: Error(E::ENOSYS), [Val, Val, Val, Val];
    70 msgrcv: Error(E::ENOSYS), [Val, Val, Val, Val, Val];
    71 msgctl: Error(E::ENOSYS), [Val, Val, Val];
    72 fcntl: Shipped, [Fd, Val, Fcntl];
    73 flock: Shipped, [Fd, Val];
    74 fsync: Shipped, [Fd];
    75 fdatasync: Shipped, [Fd];
    76 truncate: Shipped, [Path, Val];
    77 ftruncate: Shipped, [Fd, Val];
    79 getcwd: Shipped, [Out(A(1)), Val];
    80 chdir: Shipped, [Path];
    81 fchdir: Shipped, [Fd];
    82 rename: Shipped, [Path, Path];
    83 mkdir: Shipped, [Path, Val];
    84 rmdir: Shipped, [Path];
    85 creat: Shipped, [Path, Val];
    86 link: Shipped, [Path, Path];
    87 unlink: Shipped, [Path];
    88 symlink: Shipped, [Path, Path];
    89 readlink: Shipped, [Path, Out(A(2)), Val];
    90 chmod: Shipped, [Path, Val];
    91 fchmod: Shipped, [Fd, Val];
    92 chown: Shipped, [Path, Val, Val];
    93 fchown: Shipped, [Fd, Val, Val];
    94 lchown: Shipped, [Path, Val, Val];
    95 umask: Shipped, [Val];
    96 gettimeofday: Local, [OutOrNull(Bytes(16)), OutOrNull(Bytes(8))];
    97 getrlimit: Local, [Val, Out(Bytes(16))];
    98 getrusage: Local, [Val, Out(Bytes(144))];
    99 sysinfo: Local, [Out(Bytes(112))];
    100 times: Local, [OutOrNull(Bytes(32))];
    101 ptrace: Error(E::ENOSYS), [Val, Val, Val, Val];
    102 getuid: Local, [];
    104 getgid: Local, [];
    105 setuid: Local, [Val];
    106 setgid: Local, [Val];
    107 geteuid: Local, [];
    108 getegid: Local, [];
    109 setpgid: Error(E::EPERM), [Val, Val];
    110 getppid: Local, [];
    111 getpgrp: Local, [];
    112 setsid: Error(E::EPERM), [];
    113 setreuid: Local, [Val, Val];
    114 setregid: Local, [Val, Val];
    115 getgroups: Local, [Val, Val];
    116 setgroups: Error(E::EPERM), [Val, Val];
    117 setresuid: Local, [Val, Val, Val];
    118 getresuid: Local, [Out(Bytes(4)), Out(Bytes(4)), Out(Bytes(4))];
    119 setresgid: Local, [Val, Val, Val];
    120 getresgid: Local, [Out(Bytes(4)), Out(Bytes(4)), Out(Bytes(4))];
    121 getpgid: Local, [Val];
    124 getsid: Local, [Val];
    127 rt_sigpending: Local, [Out(Bytes(8)), Val];
    128 rt_sigtimedwait: Local, [In(Bytes(8)), OutOrNull(Bytes(128)), InOrNull(Bytes(16)), Val];
    130 rt_sigsuspend: Local, [In(Bytes(8)), Val];
    131 sigaltstack: Local, [InOrNull(Bytes(24)), OutOrNull(Bytes(24))];
    132 utime: Shipped, [Path, InOrNull(Bytes(16))];
    133 mknod: Shipped, [Path, Val, Val];
    137 statfs: Shipped, [Path, Out(Bytes(120))];
    138 fstatfs: Shipped, [Fd, Out(Bytes(120))];
    140 getpriority: Local, [Val, Val];
    141 setpriority: Local, [Val, Val, Val];
    149 mlock: Local, [Val, Val];
    150 munlock: Local, [Val, Val];
    151 mlockall: Local, [Val];
    152 munlockall: Local, [];
    157 prctl: Local, [Val, Val, Val, Val, Val];
    158 arch_prctl: Local, [Val, Val];
    160 setrlimit: Local, [Val, In(Bytes(16))];
    161 chroot: Error(E::EPERM), [Path];
    162 sync: Shipped, [];
    165 mount: Error(E::EPERM), [Val, Val, Val, Val, Val];
    186 gettid: Local, [];
    187 readahead: Shipped, [Fd, Val, Val];
    191 getxattr: Shipped, [Path, Path, Out(A(3)), Val];
    192 lgetxattr: Shipped, [Path, Path, Out(A(3)), Val];
    193 fgetxattr: Shipped, [Fd, Path, Out(A(3)), Val];
    200 tkill: Local, [Val, Val];
    201 time: Local, [OutOrNull(Bytes(8))];
    202 futex: Local, [Val, Val, Val, Val, Val, Val];
    203 sched_setaffinity: Local, [Val, In(A(1)), Val];
    204 sched_getaffinity: Local, [Val, Val, Val];
    213 epoll_create: Shipped, [Val];
    217 getdents64: Shipped, [Fd, Out(A(2)), Val];
    218 set_tid_address: Local, [Val];
    221 fadvise64: Shipped, [Fd, Val, Val, Val];
    222 timer_create: Error(E::ENOSYS), [Val, Val, Val];
    228 clock_gettime: Local, [Val, Out(Bytes(16))];
    229 clock_getres: Local, [Val, OutOrNull(Bytes(16))];
    230 clock_nanosleep: Local, [Val, Val, In(Bytes(16)), OutOrNull(Bytes(16))];
    231 exit_group: Local, [Val];
    232 epoll_wait: Shipped, [Fd, Out(Times(12, 2)), Val, Val];
    233 epoll_ctl: Shipped, [Fd, Val, Fd, InOrNull(Bytes(12))];
    234 tgkill: Local, [Val, Val, Val];
    235 utimes: Shipped, [Path, InOrNull(Bytes(32))];
    247 waitid: Error(E::ECHILD), [Val, Val, Val, Val, Val];
    257 openat: Shipped, [DirFd, Path, Val, Val];
    258 mkdirat: Shipped, [DirFd, Path, Val];
    259 mknodat: Shipped, [DirFd, Path, Val, Val];
    260 fchownat: Shipped, [DirFd, Path, Val, Val, Val];
    261 futimesat: Shipped, [DirFd, PathOrNull, InOrNull(Bytes(32))];
    262 newfstatat: Shipped, [DirFd, Path, Out(Bytes(144)), Val];
    263 unlinkat: Shipped, [DirFd, Path, Val];
    264 renameat: Shipped, [DirFd, Path, DirFd, Path];
    265 linkat: Shipped, [DirFd, Path, DirFd, Path, Val];
    266 symlinkat: Shipped, [Path, DirFd, Path];
    267 readlinkat: Shipped, [DirFd, Path, Out(A(3)), Val];
    268 fchmodat: Shipped, [DirFd, Path, Val];
    269 faccessat: Shipped, [DirFd, Path, Val];
    270 pselect6: Shipped, [Val, InOutOrNull(Bits(0)), InOutOrNull(Bits(0)), InOutOrNull(Bits(0)), InOutOrNull(Bytes(16)), Val];
    271 ppoll: Shipped, [InOut(Times(8, 1)), Val, InOutOrNull(Bytes(16)), Val, Val];
    273 set_robust_list: Local, [Val, Val];
    274 get_robust_list: Local, [Val, Out(Bytes(8)), Out(Bytes(8))];
    277 sync_file_range: Shipped, [Fd, Val, Val, Val];
    280 utimensat: Shipped, [DirFd, PathOrNull, InOrNull(Bytes(32)), Val];
    281 epoll_pwait: Shipped, [Fd, Out(Times(12, 2)), Val, Val, Val, Val];
    284 eventfd: Shipped, [Val];
    285 fallocate: Shipped, [Fd, Val, Val, Val];
    288 accept4: Error(E::EOPNOTSUPP), [Fd, Val, Val, Val];
    290 eventfd2: Shipped, [Val, Val];
    291 epoll_create1: Shipped, [Val];
    292 dup3: Shipped, [Fd, Fd, Val];
    293 pipe2: Shipped, [Out(Bytes(8)), Val];
    295 preadv: Shipped, [Fd, IovOut(2), Val, Val, Val];
    296 pwritev: Shipped, [Fd, IovIn(2), Val, Val, Val];
    299 recvmmsg: Error(E::ENOSYS), [Val, Val, Val, Val, Val];
    302 prlimit64: Local, [Val, Val, InOrNull(Bytes(16)), OutOrNull(Bytes(16))];
    306 syncfs: Shipped, [Fd];
    307 sendmmsg: Error(E::ENOSYS), [Val, Val, Val, Val];
    309 getcpu: Local, [OutOrNull(Bytes(4)), OutOrNull(Bytes(4)), Val];
    310 process_vm_readv: Error(E::ENOSYS), [Val, Val, Val, Val, Val, Val];
    316 renameat2: Shipped, [DirFd, Path, DirFd, Path, Val];
    318 getrandom: Local, [Out(A(1)), Val, Val];
    319 memfd_create: Shipped, [Path, Val];
    324 membarrier: Local, [Val, Val, Val];
    325 mlock2: Local, [Val, Val, Val];
    326 copy_file_range: Shipped, [Fd, InOutOrNull(Bytes(8)), Fd, InOutOrNull(Bytes(8)), Val, Val];
    327 preadv2: Shipped, [Fd, IovOut(2), Val, Val, Val, Val];
    328 pwritev2: Shipped, [Fd, IovIn(2), Val, Val, Val, Val];
    332 statx: Shipped, [DirFd, Path, Val, Val, Out(Bytes(256))];
    334 rseq: Error(E::ENOSYS), [Val, Val, Val, Val];
    425 io_uring_setup: Error(E::ENOSYS), [Val, Val];
    435 clone3: Local, [In(A(1)), Val];
    436 close_range: Shipped, [Val, Val, Val];
    437 openat2: Shipped, [DirFd, Path, In(A(3)), Val];
    439 faccessat2: Shipped, [DirFd, Path, Val, Val];
    440 process_madvise: Error(E::ENOSYS), [Val, Val, Val, Val, Val];
    452 fchmodat2: Shipped, [DirFd, Path, Val, Val];
}

/// One more than the largest number of the table.
pub const END: usize = CALLS[CALLS.len() - 1].number as usize + 1;

/// The place of each number in [`CALLS`]; `u16::MAX` where there is none.
static PLACES: [u16; END] = {
    let mut places = [u16::MAX; END];
    let mut n = 0;
    while n < CALLS.len() {
        places[CALLS[n].number as usize] = n as u16;
        n += 1;
    }
    places
};

/// The row of a number.
pub fn find(number: u64) -> Option<&'static Call> {
    let place = *PLACES.get(usize::try_from(number).ok()?)?;
    CALLS.get(usize::from(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found_by_its_number() {
        assert!(CALLS.windows(2).all(|two| two[0].number < two[1].number), "by number, each once");
        for call in CALLS {
            assert_eq!(find(u64::from(call.number)), Some(call));
        }
        let there = |n: &u64| CALLS.iter().any(|c| u64::from(c.number) == *n);
        for n in (0..1000).filter(|n| !there(n)).chain([u64::MAX, 1 << 32]) {
            assert_eq!(find(n), None, "{n}");
        }
    }

    #[test]
    fn lengths_name_arguments_that_are_there() {
        for call in CALLS {
            for arg in call.args {
                let named = match *arg {
                    In(len) | Out(len) | InOut(len) | InOrNull(len) | OutOrNull(len) | InOutOrNull(len) => {
                        match len {
                            A(n) | Bits(n) | Times(_, n) => n,
                            Bytes(_) => continue,
                        }
                    }
                    OutSized(n) | IovIn(n) | IovOut(n) => n,
                    _ => continue,
                };
                assert!(usize::from(named) < call.args.len(), "{}", call.name);
            }
        }
    }
}
