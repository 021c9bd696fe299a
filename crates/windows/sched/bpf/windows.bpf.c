/* SPDX-License-Identifier: GPL-2.0
 *
 * The activity of a job's CPUs, split exactly at the window edges.
 *
 * Each CPU's time is cut at the scheduler's events into intervals in which one thing ran and the job
 * either waited for that CPU or did not; each interval is charged to one account, its favored and its
 * regular part apart. So the accounts of a CPU add up to the time observed.
 */
#include "colony_kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "favored.h"

char LICENSE[] SEC("license") = "GPL";

#define MAX_TASKS 32768
#define MAX_THREADS 4096

struct thread_info___windows {
	u32 cpu;
} __attribute__((preserve_access_index));

struct task_struct___windows {
	struct thread_info___windows thread_info;
} __attribute__((preserve_access_index));

struct linux_binprm;

enum kind { UNKNOWN, IDLE, JOB, OTHER };
enum account { A_JOB, A_STOLEN, A_CONTENDED, A_WAKING, A_FILLED, A_IDLE, ACCOUNTS };
/* not read: it brings the names of the accounts to user space, with the type information */
const volatile enum account accounts = ACCOUNTS;

/* the windows; user space may change them while it runs */
u64 period_ns = 1;
u64 favored_ns = 1;
u64 epoch_ns; /* 0..period_ns */
/* a thread whose children are the job's although it is not; 0 for none */
u32 parent_tid;
/* events that found a map full */
u64 lost;

struct cpu {
	u64 mark;    /* TAI up to which the time is charged; 0 on CPUs that are not the job's */
	s64 waiting; /* job tasks that wait for this CPU */
	enum kind kind; /* what runs */
	char comm[TASK_COMM_LEN];
	u64 favored[ACCOUNTS];
	u64 regular[ACCOUNTS];
	u64 irq_since; /* the outermost interrupt of a job task */
	u32 irq_depth;
	u64 irq_favored; /* of the account A_JOB and A_CONTENDED */
	u64 irq_regular;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CPUS);
	__type(key, u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

/* the place of a job task: on a CPU, or waiting for one */
struct place {
	u32 runs;
	u32 waits;
	u32 cpu; /* for which it waits */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_TASKS);
	__type(key, u32);
	__type(value, struct place);
} job SEC(".maps");

struct name {
	char comm[TASK_COMM_LEN];
};

/* a thread that ran while the job waited */
struct thread {
	u64 favored_ns;
	u64 regular_ns;
	u64 times;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_THREADS);
	__type(key, struct name);
	__type(value, struct thread);
} threads SEC(".maps");

static __always_inline void add(u64 *total, u64 amount)
{
	if (amount)
		__sync_fetch_and_add(total, amount);
}

static __always_inline void charge_thread(struct cpu *c, u64 favored, u64 regular)
{
	struct name name = {};
	struct thread *t;

	__builtin_memcpy(name.comm, c->comm, TASK_COMM_LEN);
	t = bpf_map_lookup_elem(&threads, &name);
	if (!t) {
		struct thread none = {};

		bpf_map_update_elem(&threads, &name, &none, BPF_NOEXIST);
		t = bpf_map_lookup_elem(&threads, &name);
		if (!t) {
			add(&lost, 1);
			return;
		}
	}
	add(&t->favored_ns, favored);
	add(&t->regular_ns, regular);
	add(&t->times, 1);
}

/* Charges the time since the last event of this CPU to what has been going on since. Whoever takes the mark
 * charges the interval, so none is charged twice, whichever CPUs the events are seen on. */
static __always_inline void account(struct cpu *c, u64 now)
{
	u64 since, favored, regular;
	u32 account;

	if (!c->mark)
		return;
	since = __sync_lock_test_and_set(&c->mark, now);
	if (since >= now)
		return;
	favored = favored_span(period_ns, favored_ns, epoch_ns, since, now);
	regular = now - since - favored;
	switch (c->kind) {
	case JOB:
		account = c->waiting > 0 ? A_CONTENDED : A_JOB;
		break;
	case IDLE:
		account = c->waiting > 0 ? A_WAKING : A_IDLE;
		break;
	default:
		account = c->waiting > 0 ? A_STOLEN : A_FILLED;
	}
	add(&c->favored[account], favored);
	add(&c->regular[account], regular);
	if (account == A_STOLEN)
		charge_thread(c, favored, regular);
}

static __always_inline struct cpu *cpu_of(u32 cpu)
{
	return bpf_map_lookup_elem(&cpus, &cpu);
}

static __always_inline void waits(struct place *p, u32 cpu, u64 now)
{
	struct cpu *c = cpu_of(cpu);

	if (p->waits || !c)
		return;
	account(c, now);
	p->waits = 1;
	p->cpu = cpu;
	__sync_fetch_and_add(&c->waiting, 1);
}

static __always_inline void waits_no_more(struct place *p, u64 now)
{
	struct cpu *c;

	if (!p->waits)
		return;
	p->waits = 0;
	c = cpu_of(p->cpu);
	if (!c)
		return;
	account(c, now);
	__sync_fetch_and_add(&c->waiting, -1);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	u64 now = bpf_ktime_get_tai_ns();
	u32 cpu = bpf_get_smp_processor_id(), from = prev->pid, to = next->pid;
	struct cpu *c = cpu_of(cpu);
	struct place *p;

	if (!c)
		return 0;
	account(c, now);
	/* the idle task has number 0, which is no job task's */
	p = from ? bpf_map_lookup_elem(&job, &from) : 0;
	if (p) {
		p->runs = 0;
		if (preempt || !prev_state)
			waits(p, cpu, now);
		else
			waits_no_more(p, now);
	}
	p = to ? bpf_map_lookup_elem(&job, &to) : 0;
	if (p) {
		waits_no_more(p, now);
		p->runs = 1;
	}
	c->kind = p ? JOB : to ? OTHER : IDLE;
	if (!p && c->mark)
		bpf_probe_read_kernel(c->comm, TASK_COMM_LEN, next->comm);
	return 0;
}

static __always_inline int woken(struct task_struct *task)
{
	u32 tid = task->pid, cpu;
	struct place *p = bpf_map_lookup_elem(&job, &tid);

	/* a task woken while it still runs has not stopped: its switch will tell */
	if (!p || p->runs || tid == (u32)bpf_get_current_pid_tgid())
		return 0;
	cpu = BPF_CORE_READ((struct task_struct___windows *)task, thread_info.cpu);
	waits(p, cpu, bpf_ktime_get_tai_ns());
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *task)
{
	return woken(task);
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_wakeup_new, struct task_struct *task)
{
	return woken(task);
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(on_migrate, struct task_struct *task, int to)
{
	u32 tid = task->pid;
	struct place *p = bpf_map_lookup_elem(&job, &tid);
	u64 now;

	if (!p || !p->waits)
		return 0;
	now = bpf_ktime_get_tai_ns();
	waits_no_more(p, now);
	waits(p, to, now);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	u32 from = parent->pid, tid = child->pid;
	struct place nowhere = {};

	if (from != parent_tid && !bpf_map_lookup_elem(&job, &from))
		return 0;
	if (bpf_map_update_elem(&job, &tid, &nowhere, BPF_NOEXIST))
		add(&lost, 1);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	u32 tid = task->pid;
	struct place *p = bpf_map_lookup_elem(&job, &tid);

	if (p) {
		waits_no_more(p, bpf_ktime_get_tai_ns());
		bpf_map_delete_elem(&job, &tid);
	}
	return 0;
}

/* a thread that calls exec takes the number of its process */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task, int old_pid, struct linux_binprm *binprm)
{
	u32 old = old_pid, tid = task->pid;
	struct place nowhere = {};

	if (old == tid || !bpf_map_lookup_elem(&job, &old))
		return 0;
	bpf_map_delete_elem(&job, &old);
	bpf_map_update_elem(&job, &tid, &nowhere, BPF_ANY);
	return 0;
}

/* Interrupts and softirqs while a job task runs: its time by the scheduler's book, not by its own. They nest,
 * and only on their own CPU; the outermost counts. */
static __always_inline int irq_begins(void)
{
	struct cpu *c = cpu_of(bpf_get_smp_processor_id());

	if (c && c->mark && c->kind == JOB && c->irq_depth++ == 0)
		c->irq_since = bpf_ktime_get_tai_ns();
	return 0;
}

static __always_inline int irq_ends(void)
{
	struct cpu *c = cpu_of(bpf_get_smp_processor_id());
	u64 now, favored;

	if (!c || !c->irq_depth || --c->irq_depth)
		return 0;
	now = bpf_ktime_get_tai_ns();
	if (now <= c->irq_since)
		return 0;
	favored = favored_span(period_ns, favored_ns, epoch_ns, c->irq_since, now);
	c->irq_favored += favored;
	c->irq_regular += now - c->irq_since - favored;
	return 0;
}

#define INTERRUPT(name)                      \
	SEC("tp_btf/" #name "_entry")        \
	int BPF_PROG(irq_##name##_entry)     \
	{                                    \
		return irq_begins();         \
	}                                    \
	SEC("tp_btf/" #name "_exit")         \
	int BPF_PROG(irq_##name##_exit)      \
	{                                    \
		return irq_ends();           \
	}

INTERRUPT(irq_handler)
INTERRUPT(softirq)
/* of some architectures only */
INTERRUPT(local_timer)
INTERRUPT(reschedule)
INTERRUPT(call_function)
INTERRUPT(call_function_single)

/* Charges every CPU of the job up to now: before the accounts are read. */
SEC("syscall")
int settle(u32 *number)
{
	struct cpu *c = cpu_of(*number);

	if (c)
		account(c, bpf_ktime_get_tai_ns());
	return 0;
}
