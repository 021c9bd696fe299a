/* SPDX-License-Identifier: GPL-2.0
 *
 * The queues in which tasks wait, their virtual time, and the idle CPUs that may empty them.
 */
#ifndef COLONY_SCX_QUEUE_H
#define COLONY_SCX_QUEUE_H

#include "scx_state.h"

/* the job's CPUs, and the others */
static struct bpf_cpumask __kptr *own SEC(".bss.masks");
static struct bpf_cpumask __kptr *others SEC(".bss.masks");

/* its own weight times those of its cgroups; 100 is the default of both */
static __always_inline u32 weight_of(struct task_struct *p, const struct task *t)
{
	u64 weight = (u64)((struct task_struct___scx *)p)->scx.weight * t->share / SHARE_ONE;

	/* a smaller one would keep it waiting for longer than the kernel's watchdog allows */
	if (!weight)
		return 1;
	return weight > MAX_WEIGHT ? MAX_WEIGHT : weight;
}

/* true if it cannot run on another CPU now */
static __always_inline bool is_bound(struct task_struct *p)
{
	u32 disabled = ((struct task_struct___scx *)p)->migration_disabled;

	/* a BPF program itself may not migrate, and runs in the name of the current task */
	if (disabled == 1 && bpf_get_current_task_btf() == p)
		disabled = 0;
	return disabled || ((struct task_struct___scx *)p)->nr_cpus_allowed == 1;
}

static __always_inline s32 claim_idle_in_rcu(struct task_struct *p, bool of_job)
{
	struct bpf_cpumask *of = of_job ? own : others, *both;
	struct cpu *here = this_cpu();

	if (!here)
		return -1;
	both = here->scratch;
	if (of && both && bpf_cpumask_and(both, ((struct task_struct___scx *)p)->cpus_ptr, (const struct cpumask *)of))
		return scx_bpf_pick_idle_cpu((const struct cpumask *)both, 0);
	return -1;
}

/* An idle CPU that p may run on, of the job's or of the others; -1 for none. It is nobody else's then: it must be
 * given a task, or be kicked. */
static __always_inline s32 claim_idle(struct task_struct *p, bool of_job)
{
	s32 cpu;

	bpf_rcu_read_lock();
	cpu = claim_idle_in_rcu(p, of_job);
	bpf_rcu_read_unlock();
	return cpu;
}

/* Its place in a queue that is at `now`. Who slept gets one slice ahead, not all it did not use; who ran on while
 * nobody waited, or comes from another queue, is one slice behind at most. */
static __always_inline u64 place(struct task_struct *p, struct task *t, u64 now)
{
	u64 first = now - slice_ns, last = now + slice_ns * 100 / weight_of(p, t);

	if ((s64)(t->vtime - first) < 0)
		t->vtime = first;
	else if ((s64)(t->vtime - last) > 0)
		t->vtime = last;
	return t->vtime;
}

/* a task runs: the queue it was taken from is as far as it is */
static __always_inline void advance(struct cpu *c, struct task *t)
{
	u64 *now = t->queue == QUEUE_JOB ? &c->job_now : t->queue == QUEUE_PINNED ? &c->pinned_now : &shared_now;

	if (t->queue && (s64)(t->vtime - *now) > 0)
		*now = t->vtime;
	t->queue = 0;
}

/* one task that is not the job's; pinned and other ones take turns */
static __always_inline bool take_other(s32 cpu, struct cpu *c)
{
	if (c->turn++ & 1)
		return take(DSQ_PINNED(cpu)) || take(DSQ_SHARED);
	return take(DSQ_SHARED) || take(DSQ_PINNED(cpu));
}

/* a job task that waits for a CPU that is busy, if this idle one was told of it */
static __always_inline bool take_offered(struct cpu *c)
{
	u32 from = c->offered;

	c->offered = 0;
	return from && take(DSQ_JOB(from - 1));
}

static __always_inline s32 create_queues(s32 cpu)
{
	s32 failed = scx_bpf_create_dsq(DSQ_PINNED(cpu), -1);

	if (failed || !is_job_cpu(cpu))
		return failed;
	failed = scx_bpf_create_dsq(DSQ_JOB(cpu), -1);
	return failed ?: scx_bpf_create_dsq(DSQ_EXEMPT(cpu), -1);
}

/* an empty mask for each CPU, to reckon in */
static __always_inline s32 create_scratch(s32 cpu)
{
	struct cpu *c = cpu_of(cpu);
	struct bpf_cpumask *mask;

	if (!c)
		return -22; /* EINVAL */
	mask = bpf_cpumask_create();
	if (!mask)
		return -12; /* ENOMEM */
	mask = bpf_kptr_xchg(&c->scratch, mask);
	if (mask)
		bpf_cpumask_release(mask);
	return 0;
}

/* the mask of the job's CPUs, or of the others */
static __always_inline struct bpf_cpumask *mask_of(bool of_job)
{
	struct bpf_cpumask *mask = bpf_cpumask_create();
	s32 cpu;

	if (!mask)
		return 0;
	bpf_for(cpu, 0, nr_cpus) {
		if (is_job_cpu(cpu) == of_job)
			bpf_cpumask_set_cpu(cpu, mask);
	}
	return mask;
}

#endif
