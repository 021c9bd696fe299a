/* SPDX-License-Identifier: GPL-2.0
 *
 * The class of a task: the job's, exempt (runs at once in every window), or any other.
 */
#ifndef COLONY_SCX_CLASS_H
#define COLONY_SCX_CLASS_H

#include "scx_state.h"

static __always_inline bool in_groups(struct task_struct *p, const volatile struct group *groups, u32 count)
{
	struct css_set *set = task_field(p, cgroups);
	struct cgroup *own = BPF_CORE_READ(set, dfl_cgrp);
	int level = BPF_CORE_READ(own, level), i;

	bpf_for(i, 0, count) {
		struct cgroup *ancestor = 0;
		u32 at;

		if (i < 0 || i >= MAX_CGROUPS)
			break;
		/* read here: below, all of the expression is fitted to the kernel's types */
		at = groups[i].level;
		barrier_var(at);
		if ((int)at > level)
			continue;
		bpf_core_read(&ancestor, sizeof(ancestor), &own->ancestors[at]);
		if (ancestor && BPF_CORE_READ(ancestor, kn, id) == groups[i].id)
			return true;
	}
	return false;
}

static __always_inline bool is_job(struct task_struct *p, const struct task *t)
{
	if (t && t->job)
		return true;
	return nr_job_groups && in_groups(p, job_groups, nr_job_groups);
}

static __always_inline bool has_exempt_name(const u64 *comm)
{
	int i;

	bpf_for(i, 0, nr_exempt_names) {
		const volatile struct pattern *n;

		if (i < 0 || i >= MAX_NAMES)
			break;
		n = &exempt_names[i];
		if ((comm[0] & n->mask[0]) == n->name[0] && (comm[1] & n->mask[1]) == n->name[1])
			return true;
	}
	return false;
}

/* True if root started the task, as root does kernel threads: every user can give a task any name. The real user counts,
 * since any user may start a program with the set-user-ID bit, under any name. */
static __always_inline bool is_roots(struct task_struct *p)
{
	const struct cred *cred = task_field(p, real_cred);

	return BPF_CORE_READ(cred, uid.val) == 0;
}

/* a kernel thread without which the machine, or this scheduler's own timers, would stop */
static __always_inline bool is_vital(struct task_struct *p, const char *comm)
{
	if (kthreads == HOLD_ALL)
		return false;
	if (kthreads == BYPASS)
		return ((struct task_struct___scx *)p)->nr_cpus_allowed == 1;
	/* timers of BPF run as softirqs, which this thread takes over under load */
	return comm[0] == 'k' && comm[1] == 's' && comm[2] == 'o' && comm[3] == 'f' && comm[4] == 't' &&
	       comm[5] == 'i' && comm[6] == 'r' && comm[7] == 'q' && comm[8] == 'd';
}

static __always_inline bool is_exempt(struct task_struct *p)
{
	union {
		char text[TASK_COMM_LEN];
		u64 words[2];
	} comm;

	__builtin_memcpy(comm.text, p->comm, TASK_COMM_LEN);
	if ((((struct task_struct___scx *)p)->flags & PF_KTHREAD) && is_vital(p, comm.text))
		return true;
	if (nr_exempt_names && is_roots(p) && has_exempt_name(comm.words))
		return true;
	return nr_exempt_groups && in_groups(p, exempt_groups, nr_exempt_groups);
}

/* JOB, EXEMPT or OTHER */
static __always_inline enum kind class_of(struct task_struct *p, const struct task *t)
{
	if (is_job(p, t))
		return JOB;
	return is_exempt(p) ? EXEMPT : OTHER;
}

#endif
