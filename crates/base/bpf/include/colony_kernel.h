/* SPDX-License-Identifier: GPL-2.0
 *
 * The few kernel types Colony's BPF programs read, in CO-RE form: libbpf fits the offsets to the running
 * kernel's own type information at load time. A hand-written header of what is used, instead of 2.8 MB
 * of all there is.
 */
#ifndef COLONY_KERNEL_H
#define COLONY_KERNEL_H

/* CPU numbers that all of Colony knows: CpuSet::LIMIT of the crate colony-node, which is that of the kernel's masks in
 * glibc. User space refuses more. */
#define MAX_CPUS 1024

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u16 __le16;
typedef __u32 __le32;
typedef __u64 __be64;
typedef __u32 __wsum;
typedef _Bool bool;

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;

enum { false = 0, true = 1 };

/* map types and flags of the BPF interface (uapi/linux/bpf.h) */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
	BPF_MAP_TYPE_RINGBUF = 27,
};
enum { BPF_ANY = 0, BPF_NOEXIST = 1, BPF_EXIST = 2 };
enum { BPF_F_NO_PREALLOC = 1, BPF_F_CURRENT_CPU = 0xffffffffULL };
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2 };

#define TASK_COMM_LEN 16

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct task_struct {
	unsigned int __state;
	int prio; /* 0..99 real-time, 100..139 fair; smaller goes first */
	unsigned int policy;
	int pid;
	int tgid;
	struct task_struct *real_parent;
	char comm[TASK_COMM_LEN];
};

struct irqaction {
	int irq;
	const char *name;
};

#pragma clang attribute pop

#endif
