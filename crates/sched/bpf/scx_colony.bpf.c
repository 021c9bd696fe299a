/* SPDX-License-Identifier: GPL-2.0
 *
 * Coordinated scheduling inside the kernel's scheduler, by sched_ext.
 *
 * TAI is cut into periods. On the job's CPUs a period begins with the favored window, in which only the
 * job (and what is exempt) runs, and ends with the regular window, in which everything else goes first.
 * Every CPU reads the window from the clock when it schedules; a timer pinned to it makes it schedule at
 * the edges. So no CPU ever interrupts another one at an edge. CPUs that are not the job's share out
 * time by weight.
 */
#include "scx_account.h"
#include "scx_class.h"

char LICENSE[] SEC("license") = "GPL";

/* a look at the clock at least this often, however long the windows: it may have been set */
#define LOOK_NS 1000000000ULL
/* TAI less CLOCK_MONOTONIC changes by less than this unless the clock is set */
#define STEP_NS 1000000LL

/* CPUs that are not the job's */
static struct bpf_cpumask __kptr *others SEC(".bss.others");

static __always_inline bool may_fill(void)
{
	return !strict && job_runnable <= 0;
}

static __always_inline void count(struct task *t)
{
	if (!t->counted) {
		t->counted = 1;
		__sync_fetch_and_add(&job_runnable, 1);
	}
}

static __always_inline void uncount(struct task *t)
{
	if (t->counted) {
		t->counted = 0;
		__sync_fetch_and_add(&job_runnable, -1);
	}
}

/* an idle CPU for a task that is not the job's, which leaves the job's CPUs alone if it can; -1 for none */
static __always_inline s32 idle_other(struct task_struct *p, s32 prev)
{
	const struct cpumask *allowed = ((struct task_struct___scx *)p)->cpus_ptr;
	s32 cpu = -1;

	if (!is_job_cpu(prev) && scx_bpf_test_and_clear_cpu_idle(prev))
		return prev;
	bpf_rcu_read_lock();
	if (others)
		cpu = scx_bpf_pick_idle_cpu((const struct cpumask *)others, 0);
	if (cpu >= 0 && !bpf_cpumask_test_cpu(cpu, allowed))
		cpu = -1;
	bpf_rcu_read_unlock();
	return cpu;
}

s32 SCX_OP(select_cpu, struct task_struct *p, s32 prev, u64 wake_flags)
{
	struct task *t = task_of(p);
	bool idle = false;
	s32 cpu;

	if (is_job(p, t)) {
		cpu = scx_bpf_select_cpu_dfl(p, prev, wake_flags, &idle);
		if (idle) {
			if (t)
				count(t);
			insert(p, SCX_DSQ_LOCAL, is_job_cpu(cpu) ? SCX_SLICE_INF : slice_ns, 0);
		}
		return cpu;
	}
	cpu = idle_other(p, prev);
	if (cpu < 0)
		return prev;
	insert(p, SCX_DSQ_LOCAL, slice_ns, 0);
	return cpu;
}

static __always_inline void enqueue_job(struct task_struct *p, struct task *t, s32 cpu, u64 flags, u64 now)
{
	struct cpu *c = cpu_of(cpu);
	u32 runs = c ? c->kind : AWAY;
	bool news = true;

	if (t) {
		count(t);
		news = !t->stopped;
		t->stopped = 0;
	}
	/* Without an end: whether the tick can stop is decided once, when the task is picked. Where job tasks
	 * share the CPU, `running` gives it an end. */
	insert_vtime(p, DSQ_JOB(cpu), SCX_SLICE_INF, t ? t->vtime : 0, flags);
	/* A job task that shares the CPU has no end of its own. One put back must not take the CPU from the one
	 * that took it from it. */
	if ((runs == JOB && news) || (is_favored(now) && (runs == OTHER || runs == FILL)))
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	else
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

static __always_inline void enqueue_other(struct task_struct *p, struct task *t, s32 cpu, u64 flags, u64 now)
{
	bool pinned = ((struct task_struct___scx *)p)->nr_cpus_allowed == 1 ||
		      ((struct task_struct___scx *)p)->migration_disabled;
	struct cpu *c;

	if (t) {
		/* who slept long gets one slice ahead, not all it did not use */
		if ((s64)(t->vtime - (vtime_now - slice_ns)) < 0)
			t->vtime = vtime_now - slice_ns;
		if (is_job_cpu(cpu) && !t->waits)
			t->waits = now;
	}
	insert_vtime(p, pinned ? DSQ_PINNED(cpu) : DSQ_SHARED, slice_ns, t ? t->vtime : vtime_now, flags);
	if (!is_job_cpu(cpu)) {
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		return;
	}
	if (is_favored(now)) {
		if (may_fill())
			scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		return;
	}
	c = cpu_of(cpu);
	scx_bpf_kick_cpu(cpu, c && c->kind == JOB ? SCX_KICK_PREEMPT : SCX_KICK_IDLE);
}

void SCX_OP(enqueue, struct task_struct *p, u64 flags)
{
	struct task *t = task_of(p);
	u64 now = bpf_ktime_get_tai_ns();
	s32 cpu = scx_bpf_task_cpu(p);

	if (is_job_cpu(cpu) && is_job(p, t)) {
		enqueue_job(p, t, cpu, flags, now);
	} else if (is_exempt(p)) {
		struct cpu *c = cpu_of(cpu);

		if (c && c->kind == JOB && is_favored(now))
			__sync_fetch_and_add(&c->preempted, 1);
		insert(p, SCX_DSQ_LOCAL, slice_ns, flags | SCX_ENQ_HEAD | SCX_ENQ_PREEMPT);
	} else {
		enqueue_other(p, t, cpu, flags, now);
	}
}

/* one task that is not the job's; pinned and other ones take turns */
static __always_inline bool take_other(s32 cpu, struct cpu *c)
{
	if (c->turn++ & 1)
		return take(DSQ_PINNED(cpu)) || take(DSQ_SHARED);
	return take(DSQ_SHARED) || take(DSQ_PINNED(cpu));
}

/* prev keeps the CPU, which is no switch, so `running` is not called */
static __always_inline void go_on(struct cpu *c, struct task_struct *prev, u32 kind, u64 slice)
{
	settle(c, bpf_ktime_get_tai_ns());
	c->kind = kind;
	set_slice(prev, slice);
}

static __always_inline void dispatch_favored(s32 cpu, struct cpu *c, struct task_struct *prev, bool prev_job)
{
	if (prev && prev_job && !scx_bpf_dsq_nr_queued(DSQ_JOB(cpu))) {
		set_slice(prev, SCX_SLICE_INF);
		return;
	}
	if (take(DSQ_JOB(cpu)))
		return;
	if (!may_fill())
		return;
	c->filling = 1;
	if (take_other(cpu, c))
		c->filled++;
	else if (prev)
		go_on(c, prev, FILL, fill_ns);
}

void SCX_OP(dispatch, s32 cpu, struct task_struct *prev)
{
	struct cpu *c = cpu_of(cpu);
	bool prev_job = false;

	if (!c)
		return;
	c->filling = 0;
	if (prev && !(((struct task_struct___scx *)prev)->scx.flags & SCX_TASK_QUEUED))
		prev = 0;
	if (!is_job_cpu(cpu)) {
		if (!take_other(cpu, c) && prev)
			set_slice(prev, slice_ns);
		return;
	}
	if (prev) {
		prev_job = is_job(prev, task_of(prev));
		if (!prev_job && is_exempt(prev)) {
			set_slice(prev, slice_ns);
			return;
		}
	}
	if (is_favored(bpf_ktime_get_tai_ns())) {
		dispatch_favored(cpu, c, prev, prev_job);
		return;
	}
	if (take_other(cpu, c))
		return;
	if (prev && !prev_job) {
		go_on(c, prev, OTHER, slice_ns);
		return;
	}
	if (!take(DSQ_JOB(cpu)) && prev)
		set_slice(prev, SCX_SLICE_INF);
}

void SCX_OP(running, struct task_struct *p)
{
	struct cpu *c = this_cpu();
	struct task *t = task_of(p);
	u64 now = bpf_ktime_get_tai_ns();
	s32 cpu = bpf_get_smp_processor_id();

	if (!c || !t)
		return;
	settle(c, now);
	t->started = now;
	t->stopped = 0;
	end_wait(p, t, now);
	if ((s64)(t->vtime - vtime_now) > 0)
		vtime_now = t->vtime;
	if (is_job(p, t)) {
		c->kind = JOB;
		count(t);
		if (is_job_cpu(cpu))
			set_slice(p, scx_bpf_dsq_nr_queued(DSQ_JOB(cpu)) ? slice_ns : SCX_SLICE_INF);
	} else if (is_exempt(p)) {
		c->kind = EXEMPT;
	} else if (c->filling) {
		c->kind = FILL;
		set_slice(p, fill_ns);
	} else {
		c->kind = OTHER;
	}
}

void SCX_OP(stopping, struct task_struct *p, bool runnable)
{
	struct cpu *c = this_cpu();
	struct task *t = task_of(p);
	u64 now = bpf_ktime_get_tai_ns();
	u32 weight = ((struct task_struct___scx *)p)->scx.weight;

	if (c) {
		settle(c, now);
		c->kind = AWAY;
	}
	if (t)
		t->stopped = runnable;
	if (t && t->started && now > t->started)
		t->vtime += (now - t->started) * 100 / (weight ?: 1);
}

void SCX_OP(quiescent, struct task_struct *p, u64 flags)
{
	struct task *t = task_of(p);

	if (t) {
		uncount(t);
		t->waits = 0;
	}
}

void SCX_OP(tick, struct task_struct *p)
{
	struct cpu *c = this_cpu();

	if (!c || c->kind != JOB)
		return;
	if (is_favored(bpf_ktime_get_tai_ns()))
		c->ticks_favored++;
	else
		c->ticks_regular++;
}

/* children of the job are the job's */
s32 SCX_OP_SLEEPABLE(init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct task *t = bpf_task_storage_get(&tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE), *parent;

	if (!t)
		return -12; /* ENOMEM */
	t->vtime = vtime_now;
	if (args->fork) {
		parent = bpf_task_storage_get(&tasks, bpf_get_current_task_btf(), 0, 0);
		if (parent)
			t->job = parent->job;
	}
	return 0;
}

void SCX_OP(exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	struct task *t = task_of(p);

	if (t)
		uncount(t);
}

/* Arms the timer of this CPU for the next edge, or for a look at the clock before it. */
static __always_inline int arm(struct cpu *c, u64 now, u64 tai)
{
	c->edge = now + to_next_edge(tai);
	c->next = c->edge < now + LOOK_NS ? c->edge : now + LOOK_NS;
	c->tai_off = tai - now;
	return bpf_timer_start(&c->timer, c->next, BPF_F_TIMER_ABS | BPF_F_TIMER_CPU_PIN);
}

static __always_inline void count_edge(struct cpu *c, u64 now, u64 tai)
{
	const struct windows *w = the_windows();
	u64 late = now - c->edge, shorter = w->period_ns - w->favored_ns;
	u32 bucket = late_bucket(late);

	if (w->favored_ns < shorter)
		shorter = w->favored_ns;
	c->edges++;
	if (late >= shorter)
		c->missed++;
	if (late > c->late_max)
		c->late_max = late;
	if (bucket < LATE_BUCKETS)
		c->late[bucket]++;
	if (!is_favored(tai))
		close_window(c);
}

static int at_edge(void *map, u32 *key, struct bpf_timer *timer)
{
	u64 now = bpf_ktime_get_ns(), tai = bpf_ktime_get_tai_ns();
	struct cpu *c = cpu_of(*key);
	bool favored = is_favored(tai);
	s64 step;

	if (!c)
		return 0;
	step = tai - now - c->tai_off;
	if (step > STEP_NS || step < -STEP_NS)
		c->steps++;
	else if (now >= c->edge)
		count_edge(c, now, tai);
	else if (now < c->next)
		c->early++;
	settle(c, tai);
	if (c->kind == (favored ? OTHER : JOB) || c->kind == FILL)
		scx_bpf_kick_cpu(*key, SCX_KICK_PREEMPT);
	else
		scx_bpf_kick_cpu(*key, SCX_KICK_IDLE);
	arm(c, now, tai);
	return 0;
}

struct start_args {
	s32 cpu;
};

/* Starts the timer of this CPU, called by a thread bound to it: it stays here. */
SEC("syscall")
int start_timer(struct start_args *args)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu *c = cpu_of(cpu);

	if (!c || cpu != args->cpu)
		return -22; /* EINVAL */
	bpf_timer_init(&c->timer, &cpus, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&c->timer, at_edge);
	return arm(c, bpf_ktime_get_ns(), bpf_ktime_get_tai_ns());
}

struct mark_args {
	s32 tid;
	u32 job;
};

/* Makes a task the job's, with all that it forks from now on, or not. */
SEC("syscall")
int mark(struct mark_args *args)
{
	struct task_struct *p = bpf_task_from_pid(args->tid);
	struct task *t;
	int failed = -3; /* ESRCH */

	if (!p)
		return failed;
	t = bpf_task_storage_get(&tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (t) {
		failed = 0;
		if (t->job != args->job) {
			t->job = args->job;
			/* it may run, or wait in a queue of its former class: looked at anew */
			scx_bpf_kick_cpu(scx_bpf_task_cpu(p), SCX_KICK_PREEMPT);
		}
	}
	bpf_task_release(p);
	return failed;
}

s32 SCX_OP_SLEEPABLE(init)
{
	struct bpf_cpumask *mask;
	s32 cpu, failed;

	failed = scx_bpf_create_dsq(DSQ_SHARED, -1);
	if (failed)
		return failed;
	mask = bpf_cpumask_create();
	if (!mask)
		return -12; /* ENOMEM */
	bpf_for(cpu, 0, nr_cpus) {
		failed = scx_bpf_create_dsq(DSQ_PINNED(cpu), -1);
		if (!failed && is_job_cpu(cpu))
			failed = scx_bpf_create_dsq(DSQ_JOB(cpu), -1);
		if (failed)
			break;
		if (!is_job_cpu(cpu))
			bpf_cpumask_set_cpu(cpu, mask);
	}
	mask = bpf_kptr_xchg(&others, mask);
	if (mask)
		bpf_cpumask_release(mask);
	return failed;
}

void SCX_OP(exit, struct scx_exit_info *info)
{
	bpf_probe_read_kernel_str(exit_record.reason, sizeof(exit_record.reason), info->reason);
	bpf_probe_read_kernel_str(exit_record.msg, sizeof(exit_record.msg), info->msg);
	exit_record.code = info->exit_code;
	/* last: it says that the others are there */
	exit_record.kind = info->kind;
}

SEC(".struct_ops.link")
struct sched_ext_ops colony = {
	.select_cpu = (void *)colony_select_cpu,
	.enqueue = (void *)colony_enqueue,
	.dispatch = (void *)colony_dispatch,
	.tick = (void *)colony_tick,
	.running = (void *)colony_running,
	.stopping = (void *)colony_stopping,
	.quiescent = (void *)colony_quiescent,
	.init_task = (void *)colony_init_task,
	.exit_task = (void *)colony_exit_task,
	.init = (void *)colony_init,
	.exit = (void *)colony_exit,
	.timeout_ms = 30000,
	.name = "colony",
};
