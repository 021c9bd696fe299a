/* SPDX-License-Identifier: GPL-2.0
 *
 * The part of sched_ext that Colony uses, from Linux 6.12 to 7.x: types in CO-RE form, and functions
 * that were renamed on the way, each behind one name. A function a kernel does not have is weak: its call
 * is dead code there, which the verifier removes.
 */
#ifndef COLONY_SCX_COMPAT_H
#define COLONY_SCX_COMPAT_H

#include "colony_kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

struct bpf_timer {
	__u64 __opaque[2];
} __attribute__((aligned(8)));

struct bpf_iter_num {
	__u64 __opaque[1];
} __attribute__((aligned(8)));

struct bpf_iter_scx_dsq {
	__u64 __opaque[6];
} __attribute__((aligned(8)));

extern int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __ksym;
extern int *bpf_iter_num_next(struct bpf_iter_num *it) __ksym;
extern void bpf_iter_num_destroy(struct bpf_iter_num *it) __ksym;

enum { BPF_LOCAL_STORAGE_GET_F_CREATE = 1 };
enum { BPF_F_TIMER_ABS = 1, BPF_F_TIMER_CPU_PIN = 2 };
enum { CLOCK_MONOTONIC = 1 };
enum { PF_KTHREAD = 0x00200000 };

/* sched_ext's own numbers; the same since it was merged */
#define SCX_DSQ_LOCAL 0x8000000000000002ULL
#define SCX_SLICE_INF ~0ULL
#define SCX_TASK_QUEUED 1U
#define SCX_ENQ_HEAD (1ULL << 16)
#define SCX_ENQ_PREEMPT (1ULL << 32)
#define SCX_ENQ_LAST (1ULL << 41)
#define SCX_KICK_IDLE 1ULL
#define SCX_KICK_PREEMPT 2ULL

enum scx_exit_kind { SCX_EXIT_NONE };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct cpumask {
	unsigned long bits[1];
};

struct bpf_cpumask {
	struct cpumask cpumask;
};

struct sched_ext_entity {
	u32 flags;
	u32 weight;
	u64 slice;
	u64 dsq_vtime;
};

struct kernfs_node {
	u64 id;
};

struct cgroup {
	int level;
	struct kernfs_node *kn;
	struct cgroup *ancestors[1];
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

typedef struct {
	u32 val;
} kuid_t;

struct cred {
	kuid_t uid;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

struct cfs_bandwidth {
	s64 period;
	u64 quota;
};

/* a cgroup as the cpu controller has it, of either version */
struct task_group {
	struct cgroup_subsys_state css;
	unsigned long shares;
	struct task_group *parent;
	struct cfs_bandwidth cfs_bandwidth;
};

/* the scheduler's view of a task; the rest is in colony_kernel.h */
struct task_struct___scx {
	unsigned int flags;
	int nr_cpus_allowed;
	unsigned short migration_disabled;
	const struct cpumask *cpus_ptr;
	struct sched_ext_entity scx;
	struct css_set *cgroups;
	const struct cred *real_cred;
	u64 start_boottime;
	struct task_group *sched_task_group;
};

struct scx_exit_info {
	enum scx_exit_kind kind;
	s64 exit_code;
	const char *reason;
	char *msg;
};

struct scx_init_task_args {
	bool fork;
};

struct scx_exit_task_args {
	bool cancelled;
};

/* only the operations Colony has */
struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *, s32, u64);
	void (*enqueue)(struct task_struct *, u64);
	void (*dispatch)(s32, struct task_struct *);
	void (*tick)(struct task_struct *);
	void (*running)(struct task_struct *);
	void (*stopping)(struct task_struct *, bool);
	void (*quiescent)(struct task_struct *, u64);
	s32 (*init_task)(struct task_struct *, struct scx_init_task_args *);
	void (*exit_task)(struct task_struct *, struct scx_exit_task_args *);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *);
	u64 flags;
	u32 timeout_ms;
	char name[128];
};

#pragma clang attribute pop

/* a field of a task that only the scheduler's view has */
#define task_field(p, field) BPF_CORE_READ((struct task_struct___scx *)(p), field)

#define SCX_OP(name, args...) SEC("struct_ops/" #name) BPF_PROG(colony_##name, ##args)
#define SCX_OP_SLEEPABLE(name, args...) SEC("struct_ops.s/" #name) BPF_PROG(colony_##name, ##args)

extern s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) __ksym;
extern s32 scx_bpf_dsq_nr_queued(u64 dsq_id) __ksym;
extern void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym;
extern s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev, u64 wake_flags, bool *is_idle) __ksym;
extern s32 scx_bpf_pick_idle_cpu(const struct cpumask *allowed, u64 flags) __ksym;
extern bool scx_bpf_test_and_clear_cpu_idle(s32 cpu) __ksym;
extern s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym;

extern struct bpf_cpumask *bpf_cpumask_create(void) __ksym;
extern void bpf_cpumask_release(struct bpf_cpumask *mask) __ksym;
extern void bpf_cpumask_set_cpu(u32 cpu, struct bpf_cpumask *mask) __ksym;
extern bool bpf_cpumask_and(struct bpf_cpumask *to, const struct cpumask *a, const struct cpumask *b) __ksym;
extern void bpf_rcu_read_lock(void) __ksym;
extern void bpf_rcu_read_unlock(void) __ksym;
extern struct task_struct *bpf_task_from_pid(s32 pid) __ksym;
extern void bpf_task_release(struct task_struct *p) __ksym;

/* libbpf drops the last ___suffix of a name, so that one kernel name can have several types here */

/* 6.19: a result, and a second version; 6.13: this name; 6.12: scx_bpf_dispatch */
extern bool scx_bpf_dsq_insert___v2___now(struct task_struct *p, u64 dsq, u64 slice, u64 flags) __ksym __weak;
extern void scx_bpf_dsq_insert___613(struct task_struct *p, u64 dsq, u64 slice, u64 flags) __ksym __weak;
extern void scx_bpf_dispatch___612(struct task_struct *p, u64 dsq, u64 slice, u64 flags) __ksym __weak;

static __always_inline void insert(struct task_struct *p, u64 dsq, u64 slice, u64 flags)
{
	if (bpf_ksym_exists(scx_bpf_dsq_insert___v2___now))
		scx_bpf_dsq_insert___v2___now(p, dsq, slice, flags);
	else if (bpf_ksym_exists(scx_bpf_dsq_insert___613))
		scx_bpf_dsq_insert___613(p, dsq, slice, flags);
	else
		scx_bpf_dispatch___612(p, dsq, slice, flags);
}

struct scx_bpf_dsq_insert_vtime_args {
	u64 dsq_id;
	u64 slice;
	u64 vtime;
	u64 enq_flags;
} __attribute__((preserve_access_index));

/* 6.19: arguments in a struct; 6.13: this name; 6.12: scx_bpf_dispatch_vtime */
extern bool __scx_bpf_dsq_insert_vtime___now(struct task_struct *p, struct scx_bpf_dsq_insert_vtime_args *args) __ksym __weak;
extern void scx_bpf_dsq_insert_vtime___613(struct task_struct *p, u64 dsq, u64 slice, u64 vtime, u64 flags) __ksym __weak;
extern void scx_bpf_dispatch_vtime___612(struct task_struct *p, u64 dsq, u64 slice, u64 vtime, u64 flags) __ksym __weak;

static __always_inline void insert_vtime(struct task_struct *p, u64 dsq, u64 slice, u64 vtime, u64 flags)
{
	if (bpf_ksym_exists(__scx_bpf_dsq_insert_vtime___now)) {
		struct scx_bpf_dsq_insert_vtime_args args = {
			.dsq_id = dsq, .slice = slice, .vtime = vtime, .enq_flags = flags,
		};

		__scx_bpf_dsq_insert_vtime___now(p, &args);
	} else if (bpf_ksym_exists(scx_bpf_dsq_insert_vtime___613)) {
		scx_bpf_dsq_insert_vtime___613(p, dsq, slice, vtime, flags);
	} else {
		scx_bpf_dispatch_vtime___612(p, dsq, slice, vtime, flags);
	}
}

/* 7.1: a second version with flags; 6.13: this name; 6.12: scx_bpf_consume */
extern bool scx_bpf_dsq_move_to_local___v2___now(u64 dsq, u64 flags) __ksym __weak;
extern bool scx_bpf_dsq_move_to_local___613(u64 dsq) __ksym __weak;
extern bool scx_bpf_consume___612(u64 dsq) __ksym __weak;

static __always_inline bool take(u64 dsq)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move_to_local___v2___now))
		return scx_bpf_dsq_move_to_local___v2___now(dsq, 0);
	if (bpf_ksym_exists(scx_bpf_dsq_move_to_local___613))
		return scx_bpf_dsq_move_to_local___613(dsq);
	return scx_bpf_consume___612(dsq);
}

/* over the tasks of a queue */
extern int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags) __ksym;
extern struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it) __ksym;
extern void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) __ksym;

/* 6.13: these names; 6.12: scx_bpf_dispatch_…from_dsq */
extern void scx_bpf_dsq_move_set_vtime___613(struct bpf_iter_scx_dsq *it, u64 vtime) __ksym __weak;
extern bool scx_bpf_dsq_move_vtime___613(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq,
					 u64 flags) __ksym __weak;
extern bool scx_bpf_dsq_move___613(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq,
				   u64 flags) __ksym __weak;
extern void scx_bpf_dispatch_from_dsq_set_vtime___612(struct bpf_iter_scx_dsq *it, u64 vtime) __ksym __weak;
extern bool scx_bpf_dispatch_vtime_from_dsq___612(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq,
						  u64 flags) __ksym __weak;
extern bool scx_bpf_dispatch_from_dsq___612(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq,
					    u64 flags) __ksym __weak;

/* Moves p, which `it` is at, to the end of another queue. */
static __always_inline bool move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move___613))
		return scx_bpf_dsq_move___613(it, p, dsq, 0);
	return scx_bpf_dispatch_from_dsq___612(it, p, dsq, 0);
}

/* Moves p, which `it` is at, to its place in another queue. */
static __always_inline bool move_vtime(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq, u64 vtime)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move_vtime___613)) {
		scx_bpf_dsq_move_set_vtime___613(it, vtime);
		return scx_bpf_dsq_move_vtime___613(it, p, dsq, 0);
	}
	scx_bpf_dispatch_from_dsq_set_vtime___612(it, vtime);
	return scx_bpf_dispatch_vtime_from_dsq___612(it, p, dsq, 0);
}

/* 6.19: by function; before: by writing the field */
extern bool scx_bpf_task_set_slice___now(struct task_struct *p, u64 slice) __ksym __weak;

static __always_inline void set_slice(struct task_struct *p, u64 slice)
{
	if (bpf_ksym_exists(scx_bpf_task_set_slice___now))
		scx_bpf_task_set_slice___now(p, slice);
	else
		((struct task_struct___scx *)p)->scx.slice = slice;
}

#endif
