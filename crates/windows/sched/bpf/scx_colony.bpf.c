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
#include "scx_bandwidth.h"
#include "scx_class.h"
#include "scx_queue.h"

char LICENSE[] SEC("license") = "GPL";

/* a look at the clock at least this often, however long the windows: it may have been set */
#define LOOK_NS 1000000000ULL
/* TAI less CLOCK_MONOTONIC changes by less than this unless the clock is set */
#define STEP_NS 1000000LL

static __always_inline bool may_fill(void)
{
	return !strict && job_runnable <= 0;
}

/* without an end where it is alone: so the tick can stop. Where its cgroup has a limit, that is looked at in time. */
static __always_inline u64 job_slice(s32 cpu, const struct task *t)
{
	return (t && t->limited) || scx_bpf_dsq_nr_queued(DSQ_JOB(cpu)) ? slice_ns : SCX_SLICE_INF;
}

static __always_inline void count(struct task *t, bool job)
{
	if (t->counted != job) {
		t->counted = job;
		__sync_fetch_and_add(&job_runnable, job ? 1 : -1);
	}
}

s32 SCX_OP(select_cpu, struct task_struct *p, s32 prev, u64 wake_flags)
{
	struct task *t = task_of(p);
	bool idle = false;
	s32 cpu;

	/* `enqueue` holds it */
	if (t && held_until(p, t))
		return prev;
	if (is_job(p, t)) {
		cpu = scx_bpf_select_cpu_dfl(p, prev, wake_flags, &idle);
		if (idle)
			insert(p, SCX_DSQ_LOCAL, is_job_cpu(cpu) ? job_slice(cpu, t) : slice_ns, 0);
		return cpu;
	}
	/* leaves the job's CPUs alone if it can */
	if (!is_job_cpu(prev) && scx_bpf_test_and_clear_cpu_idle(prev))
		cpu = prev;
	else
		cpu = claim_idle(p, false);
	if (cpu < 0)
		return prev;
	insert(p, SCX_DSQ_LOCAL, slice_ns, 0);
	return cpu;
}

/* tells an idle CPU of the job's of a task that waits for a busy one */
static __always_inline bool offer(struct task_struct *p, s32 cpu)
{
	s32 idle = is_bound(p) ? -1 : claim_idle(p, true);
	struct cpu *c = idle < 0 ? 0 : cpu_of(idle);

	if (!c)
		return false;
	c->offered = 1 + cpu;
	scx_bpf_kick_cpu(idle, SCX_KICK_IDLE);
	return true;
}

static __always_inline void enqueue_job(struct task_struct *p, struct task *t, struct cpu *c, u64 flags, u64 now,
					bool news)
{
	s32 cpu = scx_bpf_task_cpu(p);
	u32 runs = c->kind;

	t->queue = QUEUE_JOB;
	/* Without an end: whether the tick can stop is decided once, when the task is picked. Where job tasks
	 * share the CPU, `running` gives it an end. */
	insert_vtime(p, DSQ_JOB(cpu), SCX_SLICE_INF, place(p, t, c->job_now), flags);
	/* A job task that shares its CPU with others may take an idle one. One that was alone stays: it is soon back, or
	 * picked anew at once. */
	if ((news || !c->endless) && !(flags & SCX_ENQ_LAST) && offer(p, cpu))
		news = false;
	/* A job task that shares the CPU has no end of its own. One put back must not take the CPU from the one
	 * that took it from it. */
	if ((runs == JOB && news) || (is_favored(now) && (runs == OTHER || runs == FILL)))
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	else
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

/* An exempt task that wakes runs at once. One whose turn is over waits: in favored windows only for other exempt tasks. */
static __always_inline void enqueue_exempt(struct task_struct *p, struct cpu *c, u64 flags, u64 now, bool news)
{
	s32 cpu = scx_bpf_task_cpu(p);

	if (news) {
		if (c->kind == JOB && is_favored(now))
			__sync_fetch_and_add(&c->preempted, 1);
		insert(p, SCX_DSQ_LOCAL, slice_ns, flags | SCX_ENQ_HEAD | SCX_ENQ_PREEMPT);
		return;
	}
	c->turn_over = c->regular.ns[OTHER];
	insert(p, DSQ_EXEMPT(cpu), slice_ns, flags);
	scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

static __always_inline void enqueue_other(struct task_struct *p, struct task *t, struct cpu *c, u64 flags, u64 now)
{
	s32 cpu = scx_bpf_task_cpu(p), idle = -1;

	if (is_job_cpu(cpu) && !t->waits)
		t->waits = now;
	if (is_bound(p)) {
		t->queue = QUEUE_PINNED;
		insert_vtime(p, DSQ_PINNED(cpu), slice_ns, place(p, t, c->pinned_now), flags);
	} else {
		t->queue = QUEUE_SHARED;
		insert_vtime(p, DSQ_SHARED, slice_ns, place(p, t, shared_now), flags);
		idle = claim_idle(p, false);
	}
	if (idle >= 0)
		scx_bpf_kick_cpu(idle, SCX_KICK_IDLE);
	else if (is_job_cpu(cpu) && is_favored(now) && !may_fill())
		return;
	else if (is_job_cpu(cpu) && !is_favored(now) && c->kind == JOB)
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	else
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

void SCX_OP(enqueue, struct task_struct *p, u64 flags)
{
	struct task *t = task_of(p);
	u64 now = bpf_ktime_get_tai_ns();
	s32 cpu = scx_bpf_task_cpu(p);
	struct cpu *c = cpu_of(cpu);
	enum kind class;
	u64 until;
	bool news;

	if (!c || !t) {
		insert(p, SCX_DSQ_LOCAL, slice_ns, flags);
		return;
	}
	news = !t->stopped;
	t->stopped = 0;
	until = held_until(p, t);
	if (until) {
		count(t, false);
		hold(p, t, until, flags);
		return;
	}
	class = class_of(p, t);
	/* one that waits elsewhere may be what fills a CPU of the job's */
	count(t, class == JOB && is_job_cpu(cpu));
	if (class == JOB && is_job_cpu(cpu))
		enqueue_job(p, t, c, flags, now, news);
	else if (class == EXEMPT && (is_job_cpu(cpu) || news))
		enqueue_exempt(p, c, flags, now, news);
	else
		enqueue_other(p, t, c, flags, now);
}

/* Prev keeps the CPU, which is no switch, so `running` is not called. But one whose class has changed, or whose slice
 * has an end no more, is put back and picked anew: only then the tick learns of it. */
static __always_inline void keep(struct cpu *c, struct task_struct *prev, u32 kind, u64 slice)
{
	if ((c->kind == JOB) != (kind == JOB) || c->endless != (slice == SCX_SLICE_INF))
		return;
	settle(c, bpf_ktime_get_tai_ns());
	c->kind = kind;
	set_slice(prev, slice);
}

static __always_inline void dispatch_favored(s32 cpu, struct cpu *c, struct task_struct *prev, struct task *t,
					     u32 class)
{
	if (take(DSQ_EXEMPT(cpu)))
		return;
	if (class == EXEMPT) {
		keep(c, prev, EXEMPT, slice_ns);
		return;
	}
	if (take(DSQ_JOB(cpu)))
		return;
	if (class == JOB) {
		keep(c, prev, JOB, job_slice(cpu, t));
		return;
	}
	if (take_offered(c) || !may_fill())
		return;
	c->filling = 1;
	if (take_other(cpu, c))
		c->filled++;
	else if (class == OTHER)
		keep(c, prev, FILL, fill_ns);
}

/* true if exempt tasks that wait have their turn again in this regular window: after as long a turn of others */
static __always_inline bool is_turn_of_exempt(s32 cpu, struct cpu *c)
{
	if (!scx_bpf_dsq_nr_queued(DSQ_EXEMPT(cpu)))
		return false;
	settle(c, bpf_ktime_get_tai_ns());
	return c->regular.ns[OTHER] - c->turn_over >= slice_ns;
}

static __always_inline void dispatch_regular(s32 cpu, struct cpu *c, struct task_struct *prev, struct task *t,
					     u32 class)
{
	if (is_turn_of_exempt(cpu, c) && take(DSQ_EXEMPT(cpu)))
		return;
	if (take_other(cpu, c) || take(DSQ_EXEMPT(cpu)))
		return;
	if (class == OTHER || class == EXEMPT)
		keep(c, prev, class, slice_ns);
	else if (take(DSQ_JOB(cpu)))
		return;
	else if (class == JOB)
		keep(c, prev, JOB, job_slice(cpu, t));
	else
		take_offered(c);
}

void SCX_OP(dispatch, s32 cpu, struct task_struct *prev)
{
	struct cpu *c = cpu_of(cpu);
	struct task *t = 0;
	u32 class = AWAY;

	if (!c)
		return;
	c->filling = 0;
	if (prev && (((struct task_struct___scx *)prev)->scx.flags & SCX_TASK_QUEUED)) {
		t = task_of(prev);
		/* one whose cgroup has used its quota is not kept: `enqueue` holds it */
		if (!t || !charge(prev, t))
			class = class_of(prev, t);
	}
	if (!is_job_cpu(cpu)) {
		if (!take_other(cpu, c) && class != AWAY)
			keep(c, prev, class, slice_ns);
	} else if (is_favored(bpf_ktime_get_tai_ns())) {
		dispatch_favored(cpu, c, prev, t, class);
	} else {
		dispatch_regular(cpu, c, prev, t, class);
	}
}

/* Of running tasks whose class or CPUs are changed, another CPU calls this and `stopping`. */
void SCX_OP(running, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct cpu *c = cpu_of(cpu);
	struct task *t = task_of(p);
	u64 now = bpf_ktime_get_tai_ns();
	u64 slice = 0;

	if (!c || !t)
		return;
	settle(c, now);
	t->started = now;
	t->charged = bpf_ktime_get_ns();
	t->stopped = 0;
	t->released = 0;
	end_wait(p, t, now);
	advance(c, t);
	c->kind = class_of(p, t);
	count(t, c->kind == JOB);
	if (c->kind == JOB && is_job_cpu(cpu)) {
		slice = job_slice(cpu, t);
	} else if (c->kind == OTHER && c->filling) {
		c->kind = FILL;
		slice = fill_ns;
	}
	c->endless = slice == SCX_SLICE_INF;
	if (slice)
		set_slice(p, slice);
}

void SCX_OP(stopping, struct task_struct *p, bool runnable)
{
	struct cpu *c = cpu_of(scx_bpf_task_cpu(p));
	struct task *t = task_of(p);
	u64 now = bpf_ktime_get_tai_ns();

	if (c) {
		settle(c, now);
		c->kind = AWAY;
	}
	if (!t)
		return;
	t->stopped = runnable;
	charge(p, t);
	t->charged = 0;
	if (t->started && now > t->started)
		t->vtime += (now - t->started) * 100 / weight_of(p, t);
}

void SCX_OP(quiescent, struct task_struct *p, u64 flags)
{
	struct task *t = task_of(p);

	if (t) {
		count(t, false);
		t->waits = 0;
	}
}

void SCX_OP(tick, struct task_struct *p)
{
	struct cpu *c = this_cpu();

	/* if the tick is stopped, another CPU has one for it now and then, which interrupts no task */
	if (!c || c->kind != JOB || scx_bpf_task_cpu(p) != bpf_get_smp_processor_id())
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
	t->share = SHARE_ONE;
	if (args->fork) {
		parent = bpf_task_storage_get(&tasks, bpf_get_current_task_btf(), 0, 0);
		if (parent) {
			t->job = parent->job;
			t->vtime = parent->vtime;
		}
	}
	return 0;
}

void SCX_OP(exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	struct task *t = task_of(p);

	if (t)
		count(t, false);
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
	/* the time up to the edge belongs to the window that ends there */
	settle(c, tai);
	step = tai - now - c->tai_off;
	if (step > STEP_NS || step < -STEP_NS)
		c->steps++;
	else if (now >= c->edge)
		count_edge(c, now, tai);
	else if (now < c->next)
		c->early++;
	if (c->kind == (favored ? OTHER : JOB) || c->kind == FILL)
		scx_bpf_kick_cpu(*key, SCX_KICK_PREEMPT);
	else
		scx_bpf_kick_cpu(*key, SCX_KICK_IDLE);
	arm(c, now, tai);
	return 0;
}

/* Puts p, which `it` is at, where it would wait without a limit; its CPU looks. */
static __always_inline void release_one(struct bpf_iter_scx_dsq *it, struct task_struct *p, struct task *t)
{
	s32 cpu = scx_bpf_task_cpu(p), idle = -1;
	u64 tai = bpf_ktime_get_tai_ns();
	bool of_job = is_job_cpu(cpu);
	struct cpu *c = cpu_of(cpu);
	enum kind class = class_of(p, t);

	if (!c)
		return;
	t->released = 1;
	if (class == JOB && of_job) {
		count(t, true);
		t->queue = QUEUE_JOB;
		move_vtime(it, p, DSQ_JOB(cpu), place(p, t, c->job_now));
	} else if (class == EXEMPT && of_job) {
		move(it, p, DSQ_EXEMPT(cpu));
	} else if (is_bound(p)) {
		t->waits = of_job ? tai : 0;
		t->queue = QUEUE_PINNED;
		move_vtime(it, p, DSQ_PINNED(cpu), place(p, t, c->pinned_now));
	} else {
		t->waits = of_job ? tai : 0;
		t->queue = QUEUE_SHARED;
		move_vtime(it, p, DSQ_SHARED, place(p, t, shared_now));
		idle = claim_idle_in_rcu(p, false);
	}
	if (idle >= 0)
		scx_bpf_kick_cpu(idle, SCX_KICK_IDLE);
	else if (of_job && c->kind != AWAY && (class != OTHER) == is_favored(tai) && c->kind != class)
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	else
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

/* Lets tasks go on whose cgroups have quota again. */
static int release(void *map, u32 *key, struct bpf_timer *timer)
{
	u64 now = bpf_ktime_get_ns(), next = now + (now - limited_at < 10 * REST_NS ? RELEASE_NS : REST_NS);
	struct task_struct *p;

	/* kernels before 6.17 do not know that a timer is in such a section */
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, DSQ_HELD, 0) {
		u64 until = ((struct task_struct___scx *)p)->scx.dsq_vtime;
		struct task *t = task_of(p);

		if (until > now) {
			if (until < next)
				next = until;
			break;
		}
		if (t)
			release_one(&___it, p, t);
	}
	bpf_rcu_read_unlock();
	bpf_timer_start(timer, next, BPF_F_TIMER_ABS);
	return 0;
}

/* Starts the timer that releases tasks. */
SEC("syscall")
int start_releaser(void *args)
{
	u32 key = 0;
	struct releaser *r = bpf_map_lookup_elem(&releaser, &key);

	if (!r)
		return -22; /* EINVAL */
	bpf_timer_init(&r->timer, &releaser, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&r->timer, release);
	return bpf_timer_start(&r->timer, bpf_ktime_get_ns(), BPF_F_TIMER_ABS);
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

/* of `start_ticks`, as /proc/PID/stat counts */
#define TICK_NS 10000000ULL

struct mark_args {
	s32 tid;
	u32 job;
	u64 start_ticks; /* of the task that is meant; 0: whichever has the number */
};

/* Makes a task the job's, with all that it forks from now on, or not. */
SEC("syscall")
int mark(struct mark_args *args)
{
	struct task_struct *p = bpf_task_from_pid(args->tid);
	struct task *t = 0;
	int failed = -3; /* ESRCH */

	if (!p)
		return failed;
	/* the number may have been given again since user space looked */
	if (!args->start_ticks || task_field(p, start_boottime) / TICK_NS == args->start_ticks)
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
	if (!failed)
		failed = scx_bpf_create_dsq(DSQ_HELD, -1);
	if (failed)
		return failed;
	bpf_for(cpu, 0, nr_cpus) {
		failed = create_queues(cpu);
		if (!failed)
			failed = create_scratch(cpu);
		if (failed)
			return failed;
	}
	mask = bpf_kptr_xchg(&own, mask_of(true));
	if (mask)
		bpf_cpumask_release(mask);
	mask = bpf_kptr_xchg(&others, mask_of(false));
	if (mask)
		bpf_cpumask_release(mask);
	return own && others ? 0 : -12; /* ENOMEM */
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
