/* SPDX-License-Identifier: GPL-2.0
 *
 * The proof: what each CPU did, split exactly at the edges; who waited; how late the edges were.
 */
#ifndef COLONY_SCX_ACCOUNT_H
#define COLONY_SCX_ACCOUNT_H

#include "scx_state.h"

/* Charges the time since the last call to what the CPU has done since. Runs on that CPU, or with its queue locked. */
static __always_inline void settle(struct cpu *c, u64 now)
{
	u64 since = c->mark, favored, all;
	u32 kind = c->kind;

	c->mark = now;
	if (!since || now <= since || kind >= KINDS)
		return;
	all = now - since;
	favored = favored_between(since, now);
	/* the clock was set, or the windows changed in between */
	if (favored > all)
		favored = all;
	c->favored.ns[kind] += favored;
	c->regular.ns[kind] += all - favored;
	if (kind == OTHER)
		c->other_window += favored;
}

/* a favored window is over */
static __always_inline void close_window(struct cpu *c)
{
	c->favored_windows++;
	if (c->other_window) {
		c->windows_hit++;
		if (c->other_window > c->other_window_max)
			c->other_window_max = c->other_window;
		c->other_window = 0;
	}
}

static __always_inline void charge_deferred(struct task_struct *p, u64 ns)
{
	struct name name = {};
	struct deferred *d;

	__builtin_memcpy(name.comm, p->comm, TASK_COMM_LEN);
	d = bpf_map_lookup_elem(&deferred, &name);
	if (!d) {
		struct deferred none = {};

		bpf_map_update_elem(&deferred, &name, &none, BPF_NOEXIST);
		d = bpf_map_lookup_elem(&deferred, &name);
		if (!d) {
			__sync_fetch_and_add(&deferred_lost, 1);
			return;
		}
	}
	__sync_fetch_and_add(&d->times, 1);
	__sync_fetch_and_add(&d->ns, ns);
	/* two CPUs may race here: the larger one is seen again soon */
	if (ns > d->max_ns)
		d->max_ns = ns;
}

/* p runs: the part of its wait that favored windows caused */
static __always_inline void end_wait(struct task_struct *p, struct task *t, u64 now)
{
	u64 ns;

	if (!t->waits)
		return;
	ns = favored_between(t->waits, now);
	t->waits = 0;
	if (ns)
		charge_deferred(p, ns);
}

#endif
