/* SPDX-License-Identifier: GPL-2.0
 *
 * The state of the scheduler: its settings, the windows, its CPUs and its tasks.
 */
#ifndef COLONY_SCX_STATE_H
#define COLONY_SCX_STATE_H

#include "scx_compat.h"
#include "favored.h"
#include "scx_late.h"

#define MAX_NAMES 32
#define MAX_CGROUPS 16
#define MAX_DEFERRED 4096
#define SHARE_ONE 1024 /* a `share` of cgroups that all have the default weight */
#define MAX_WEIGHT 10000

/* queues: on each CPU of pinned tasks, on the job's also of the job and of exempt tasks whose turn is over; one of all
 * others */
#define DSQ_JOB(cpu) (0x10000ULL + (cpu))
#define DSQ_PINNED(cpu) (0x20000ULL + (cpu))
#define DSQ_EXEMPT(cpu) (0x40000ULL + (cpu))
#define DSQ_SHARED 0x30000ULL

/* the queues that are ordered by virtual time */
enum queue { QUEUE_NONE, QUEUE_JOB, QUEUE_PINNED, QUEUE_SHARED };

enum kthreads { BYPASS, HOLD, HOLD_ALL };

/* fixed before loading */
const volatile u64 job_cpus[MAX_CPUS / 64]; /* the job's CPUs, a bit each */
const volatile u32 nr_cpus = 1;
const volatile enum kthreads kthreads = HOLD;
const volatile u32 strict;	      /* an idle favored window stays idle */
const volatile u64 slice_ns = 5000000; /* of tasks that share a CPU */
const volatile u64 fill_ns = 1000000;  /* of tasks that fill a favored window */

/* a name, or the beginning of one: what the mask covers must be equal */
struct pattern {
	u64 name[2];
	u64 mask[2];
};
const volatile struct pattern exempt_names[MAX_NAMES];
const volatile u32 nr_exempt_names;

struct group {
	u64 id;
	u32 level;
	u32 unused;
};
const volatile struct group exempt_groups[MAX_CGROUPS];
const volatile u32 nr_exempt_groups;
const volatile struct group job_groups[MAX_CGROUPS];
const volatile u32 nr_job_groups;

/* The windows: user space fills the other place, then turns the index. Accounts are split at them; favored ones
 * are opened earlier by `lead_ns`, so that they are open when they begin: a timer is late, and a switch takes its
 * time. */
struct windows {
	u64 period_ns;
	u64 favored_ns;
	u64 epoch_ns; /* 0..period_ns */
};
const volatile u64 lead_ns = 20000;
struct windows windows[2] = {{1, 1, 0}, {1, 1, 0}};
volatile u32 windows_now;
/* 0 until the timers run: all time is regular */
volatile u32 enabled;

/* job tasks that run or want to */
s64 job_runnable;
/* virtual time of the queue of all CPUs */
u64 shared_now;

struct exit_record {
	s32 kind;
	s64 code;
	char reason[128];
	char msg[512];
} exit_record;

/* the activity of a CPU, as far as this scheduler sees it */
enum kind { AWAY, JOB, OTHER, FILL, EXEMPT, KINDS };

struct account {
	u64 ns[KINDS];
};

struct cpu {
	struct bpf_timer timer;
	u64 next;    /* the next look at the edges, CLOCK_MONOTONIC */
	u64 tai_off; /* TAI less CLOCK_MONOTONIC at the last look */
	u64 edge;    /* the next edge, CLOCK_MONOTONIC; not after `next` where both are set */
	u64 mark;    /* TAI up to which time is charged */
	enum kind kind;
	u32 filling;		/* the next task fills a favored window */
	u32 turn;		/* pinned and other tasks take turns */
	u32 endless;		/* the slice it was given when it was picked: the tick knows of no other */
	u32 offered;		/* 1 + the CPU a job task waits on, for this idle one; 0 for none */
	u32 unused;
	u64 job_now;		/* virtual time of its queues */
	u64 pinned_now;
	u64 turn_over;		/* OTHER in regular windows, when the turn of an exempt task was over */
	struct bpf_cpumask __kptr *scratch;
	struct account favored;
	struct account regular;
	u64 other_window;	/* OTHER in the favored window that runs now */
	u64 other_window_max;	/* and in the worst one */
	u64 windows_hit;	/* favored windows with any */
	u64 favored_windows;
	u64 edges;
	u64 missed; /* whole windows passed before the timer came */
	u64 early;
	u64 steps; /* the clock was set */
	u64 late_max;
	u64 ticks_favored; /* while a job task ran */
	u64 ticks_regular;
	u64 filled; /* tasks put into idle favored windows */
	u64 preempted; /* job tasks that an exempt task took the CPU from, in favored windows */
	u32 late[LATE_BUCKETS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* as many as there are CPUs */
	__type(key, u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

struct task {
	u32 job;     /* registered, or a descendant of one that is */
	u32 counted; /* in job_runnable */
	u32 stopped; /* still runnable: the next enqueue puts it back, it is no wake-up */
	u32 queue;   /* the one it was put in last, until it runs */
	u64 vtime;
	u64 started; /* TAI */
	u64 waits;   /* TAI since it waits for a job's CPU; 0 if it does not */
	u64 charged; /* CLOCK_MONOTONIC up to which its cgroups' limits are charged; 0 while it does not run */
	u32 limited; /* a cgroup it is in has a limit */
	u32 share;   /* the weights of the cgroups it is in, multiplied */
	u32 released; /* its wait for quota is over: not held again before it has run */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task);
} tasks SEC(".maps");

/* the threads that waited through favored windows, those of one name together */
struct name {
	char comm[TASK_COMM_LEN];
};
struct deferred {
	u64 times;
	u64 ns;
	u64 max_ns;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_DEFERRED);
	__type(key, struct name);
	__type(value, struct deferred);
} deferred SEC(".maps");
u64 deferred_lost;

static __always_inline bool is_job_cpu(s32 cpu)
{
	u32 word = (u32)cpu / 64;

	/* the verifier must see the check on the very register that indexes */
	barrier_var(word);
	if (word >= MAX_CPUS / 64)
		return false;
	return (job_cpus[word] >> (cpu & 63)) & 1;
}

static __always_inline struct cpu *cpu_of(u32 cpu)
{
	return bpf_map_lookup_elem(&cpus, &cpu);
}

static __always_inline struct cpu *this_cpu(void)
{
	return cpu_of(bpf_get_smp_processor_id());
}

static __always_inline struct task *task_of(struct task_struct *p)
{
	return bpf_task_storage_get(&tasks, p, 0, 0);
}

static __always_inline const struct windows *the_windows(void)
{
	return &windows[windows_now & 1];
}

/* position in the period as it is scheduled; 64-bit division is unsigned, and TAI is long past the epoch */
static __always_inline u64 phase(const struct windows *w, u64 tai)
{
	return (tai + lead_ns - w->epoch_ns) % w->period_ns;
}

/* true if only the job is to run */
static __always_inline bool is_favored(u64 tai)
{
	const struct windows *w = the_windows();

	return enabled && phase(w, tai) < w->favored_ns + lead_ns;
}

/* the time until that changes */
static __always_inline u64 to_next_edge(u64 tai)
{
	const struct windows *w = the_windows();
	u64 at = phase(w, tai), favored = w->favored_ns + lead_ns;

	return at < favored ? favored - at : w->period_ns - at;
}

static __always_inline u64 favored_between(u64 a, u64 b)
{
	const struct windows *w = the_windows();

	return !enabled || b <= a ? 0 : favored_span(w->period_ns, w->favored_ns, w->epoch_ns, a, b);
}

#endif
