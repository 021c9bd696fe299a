/* SPDX-License-Identifier: GPL-2.0
 *
 * CPU limits and weights of cgroups (cpu.max, cpu.weight): sched_ext leaves them to the scheduler. Both are read where the
 * kernel keeps them, so a change holds from the next task that runs on. A task whose cgroup has used its quota waits in
 * a queue of its own until the cgroup's next period. What a cgroup used beyond its quota is paid from the next periods.
 */
#ifndef COLONY_SCX_BANDWIDTH_H
#define COLONY_SCX_BANDWIDTH_H

#include "scx_state.h"

#define DSQ_HELD 0x50000ULL
#define MAX_LIMITED 4096
#define MAX_DEPTH 32
#define NO_LIMIT ~0ULL
#define DEFAULT_SHARES_SHIFT 20 /* of a cgroup with the default weight */

/* the releaser looks this often while limits are in use, and this often else */
#define RELEASE_NS 5000000ULL
#define REST_NS 100000000ULL

/* No task waits longer for its cgroup's quota, lest the kernel's watchdog ends the scheduler. */
const volatile u64 longest_hold_ns = 7500000000ULL;

/* a cgroup with a limit, by the number of its directory */
struct limit {
	u64 index;   /* the period that `used_ns` is of */
	u64 used_ns;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_LIMITED);
	__type(key, u64);
	__type(value, struct limit);
} limits SEC(".maps");

struct releaser {
	struct bpf_timer timer;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct releaser);
} releaser SEC(".maps");

/* the instant at which a task of a limited cgroup ran last, CLOCK_MONOTONIC; 0: never. User space starts the releaser then. */
u64 limited_at;
/* times a task was held because its cgroup had used its quota */
u64 throttled;

static __always_inline struct limit *limit_of(u64 id)
{
	struct limit *l = bpf_map_lookup_elem(&limits, &id);
	struct limit none = {};

	if (l)
		return l;
	bpf_map_update_elem(&limits, &id, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&limits, &id);
}

/* Charges `ran` to one cgroup; when it has quota again, 0 if it has some now. */
static __always_inline u64 charge_group(struct task_group *group, u64 quota, u64 ran, u64 now)
{
	u64 period = BPF_CORE_READ(group, cfs_bandwidth.period), index, before, paid;
	struct limit *l = limit_of(BPF_CORE_READ(group, css.cgroup, kn, id));

	if (!l || !quota || !period)
		return 0;
	limited_at = now;
	index = now / period;
	before = l->index;
	/* one CPU begins a period */
	if (before != index && __sync_val_compare_and_swap(&l->index, before, index) == before) {
		paid = index - before < 1000000 ? (index - before) * quota : l->used_ns;
		if (paid > l->used_ns)
			paid = l->used_ns;
		__sync_fetch_and_sub(&l->used_ns, paid);
	}
	if (ran)
		__sync_fetch_and_add(&l->used_ns, ran);
	return l->used_ns < quota ? 0 : (index + l->used_ns / quota) * period;
}

/* Charges what p ran since the last call to the cgroups it is in, and reads their weights. Returns when it may run again, CLOCK_MONOTONIC; 0: now. */
static __always_inline u64 charge(struct task_struct *p, struct task *t)
{
	u64 until = 0, now = 0, ran = 0, share = SHARE_ONE;
	struct task_group *group;
	bool limited = false;
	int depth;

	if (!bpf_core_field_exists(((struct task_group *)0)->cfs_bandwidth))
		return 0;
	group = task_field(p, sched_task_group);
	bpf_for(depth, 0, MAX_DEPTH) {
		struct task_group *parent = BPF_CORE_READ(group, parent);
		u64 quota, free;

		/* the root has no limit */
		if (!parent)
			break;
		quota = BPF_CORE_READ(group, cfs_bandwidth.quota);
		if (quota != NO_LIMIT) {
			if (!limited) {
				limited = true;
				now = bpf_ktime_get_ns();
				ran = t->charged && now > t->charged ? now - t->charged : 0;
			}
			free = charge_group(group, quota, ran, now);
			if (free > until)
				until = free;
		}
		share = share * BPF_CORE_READ(group, shares) >> DEFAULT_SHARES_SHIFT;
		if (share > SHARE_ONE * MAX_WEIGHT)
			share = SHARE_ONE * MAX_WEIGHT;
		group = parent;
	}
	if (t->charged)
		t->charged = now ?: bpf_ktime_get_ns();
	t->limited = limited;
	t->share = share;
	if (until > now + longest_hold_ns)
		until = now + longest_hold_ns;
	return until;
}

/* true if it must wait for its cgroup's quota, and until when; not again before it has run */
static __always_inline u64 held_until(struct task_struct *p, struct task *t)
{
	u64 until = charge(p, t);

	return t->released ? 0 : until;
}

/* Puts it where it waits for its cgroup's quota. */
static __always_inline void hold(struct task_struct *p, struct task *t, u64 until, u64 flags)
{
	__sync_fetch_and_add(&throttled, 1);
	t->waits = 0;
	t->queue = QUEUE_NONE;
	insert_vtime(p, DSQ_HELD, slice_ns, until, flags);
}

#endif
