// SPDX-License-Identifier: GPL-2.0
/*
 * What takes a measured CPU away from its observer: entries and exits of interrupts, softirqs and
 * inter-processor interrupts, non-maskable interrupts, page faults, and context switches.
 *
 * Events of measured CPUs only, each into its CPU's own ring in a map that user space has mapped: no
 * lock, no wake-up, no system call to read it. A full ring counts what it loses. The filter is here
 * because everything that is logged costs the CPU that is being measured.
 */
#include "colony_kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

#define NAME_LEN 16
/* frames of a kernel stack that are kept, the innermost ones */
#define STACK_DEPTH 32

/* user space takes these types from the skeleton, which is generated from this file */
enum kind {
	SWITCH = 1,
	ENTER = 2,
	EXIT = 3,
	POINT = 4,
	IDLE = 5,
	WAKE = 6,
};

enum what {
	LOCAL_TIMER = 1,
	CALL_FUNCTION,
	CALL_FUNCTION_SINGLE,
	RESCHEDULE,
	IRQ_WORK,
	PLATFORM_IPI,
	THERMAL,
	THRESHOLD,
	DEFERRED_ERROR,
	ERROR,
	SPURIOUS,
	SOFTIRQ,
	IRQ,
	NMI,
	PAGE_FAULT,
};

struct event {
	u64 ready; /* index in the ring + 1, written last */
	u64 at_ns; /* CLOCK_MONOTONIC */
	u32 arg;   /* switch: task left; softirq, irq, idle: number; nmi: length in ns */
	u32 pid;   /* switch: task entered */
	u16 kind;
	u16 what;
	u16 prio;     /* switch: priority of the task entered, 0..99 real-time */
	u16 runnable; /* switch: the task left would rather have gone on */
	char name[NAME_LEN];
};

/* the kernel's stack at an event: the task left at a switch, the interrupted code at an entry */
struct stack {
	u64 ready; /* index of the event in its ring + 1, written last */
	u64 at_ns; /* the event's */
	u32 pid;   /* task whose stack it is */
	s32 bytes; /* of `ip`; negative: the kernel's error */
	u16 kind;  /* the event's */
	u16 pad[3];
	char name[NAME_LEN]; /* of the task */
	u64 ip[STACK_DEPTH];
};

/* the tracepoint a sender was seen at */
enum ipi {
	IPI_ONE = 1, /* ipi_send_cpu */
	IPI_CALL,    /* ipi_send_cpu, of a function that was queued for it */
	IPI_MASK,    /* ipi_send_cpumask */
};

/* who sends interprocessor interrupts to measured CPUs, and why */
struct sender {
	u64 callsite; /* address behind the call that sends */
	u64 callback; /* function called on the other CPU; 0: none, a request to reschedule */
	u32 pid;
	u32 cpu; /* the sender's */
	u32 ipi;
	u32 pad;
	char name[NAME_LEN];
};

/* more than one target */
#define MANY 0xffffffff

/* the function that was queued last by a CPU */
struct queued {
	u64 func;
	u32 target; /* the CPU it was queued for */
	u32 pad;
};

struct ring {
	u64 head; /* events ever reserved */
	u64 tail; /* events user space has read */
	u64 lost;
	u64 pad[5]; /* a cache line each */
};

/* sized by user space: measured CPUs, and measured CPUs x events */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, 1 << 10 /* BPF_F_MMAPABLE */);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ring);
} rings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, 1 << 10 /* BPF_F_MMAPABLE */);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct event);
} events SEC(".maps");

/* sized by user space: measured CPUs x stacks, or 1 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, 1 << 10 /* BPF_F_MMAPABLE */);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct stack);
} stacks SEC(".maps");

/* interrupts sent, by sender */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct sender);
	__type(value, u64);
} senders SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct queued);
} queued SEC(".maps");

/* slot + 1 of each measured CPU, 0 for the others */
const volatile u16 slot_of[MAX_CPUS];
/* events a ring holds, a power of two */
const volatile u32 ring_len = 1;
/* latest stacks kept of a CPU, a power of two; 0: none, and the kernel's verifier takes the code out */
const volatile u32 stack_len;
/* measured CPUs as bits, and the words up to the highest */
const volatile u64 measured[MAX_CPUS / 64];
const volatile u32 measured_words;
u32 on;
/* the observer's thread by CPU, written by user space before `on` */
u32 observers[MAX_CPUS];
/* interrupts whose sender found the map full */
u64 senders_lost;
/* never read: they bring the enums into the skeleton */
const volatile enum kind kind_type;
const volatile enum what what_type;
const volatile enum ipi ipi_type;

static __always_inline struct event *reserve(u64 *index)
{
	u32 cpu = bpf_get_smp_processor_id();
	if (!on || cpu >= MAX_CPUS)
		return 0;
	u32 slot = slot_of[cpu];
	if (!slot--)
		return 0;
	struct ring *r = bpf_map_lookup_elem(&rings, &slot);
	if (!r)
		return 0;
	/* an NMI may come between any two instructions: one atomic step takes the place */
	u64 i = __sync_fetch_and_add(&r->head, 1);
	if (i - *(volatile u64 *)&r->tail >= ring_len) {
		/* the place stays unfilled, and is skipped by its stale `ready` */
		__sync_fetch_and_add(&r->lost, 1);
		return 0;
	}
	u32 key = slot * ring_len + (i & (ring_len - 1));
	*index = i;
	return bpf_map_lookup_elem(&events, &key);
}

static __always_inline void publish(struct event *e, u64 index)
{
	/* BPF has no release store; the tracepoints above are x86's, which keeps stores in order */
	asm volatile("" ::: "memory");
	*(volatile u64 *)&e->ready = index + 1;
}

/* Keeps the stack of the event with this index. */
static __always_inline void take_stack(void *ctx, u64 index, u64 at_ns, u16 kind)
{
	u32 cpu = bpf_get_smp_processor_id();
	if (!stack_len || cpu >= MAX_CPUS)
		return;
	u32 slot = slot_of[cpu];
	if (!slot--)
		return;
	u32 key = slot * stack_len + (index & (stack_len - 1));
	struct stack *s = bpf_map_lookup_elem(&stacks, &key);
	if (!s)
		return;
	s->at_ns = at_ns;
	s->kind = kind;
	s->pid = bpf_get_current_pid_tgid();
	bpf_get_current_comm(s->name, NAME_LEN);
	s->bytes = bpf_get_stack(ctx, s->ip, sizeof(s->ip), 0);
	asm volatile("" ::: "memory");
	*(volatile u64 *)&s->ready = index + 1;
}

static __always_inline int emit(void *ctx, u16 kind, u16 what, u32 arg)
{
	u64 i, now = bpf_ktime_get_ns();
	struct event *e = reserve(&i);
	if (!e)
		return 0;
	e->at_ns = now;
	e->kind = kind;
	e->what = what;
	e->arg = arg;
	e->pid = 0;
	e->prio = 0;
	e->runnable = 0;
	e->name[0] = 0;
	publish(e, i);
	/* an exit says nothing that its entry has not said; NMIs are told when they are over */
	if (kind == ENTER || what == PAGE_FAULT)
		take_stack(ctx, i, now, kind);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	u64 i, now = bpf_ktime_get_ns();
	struct event *e = reserve(&i);
	if (!e)
		return 0;
	e->at_ns = now;
	e->kind = SWITCH;
	e->what = 0;
	e->arg = prev->pid;
	e->pid = next->pid;
	e->prio = next->prio;
	e->runnable = preempt || prev_state == 0;
	bpf_probe_read_kernel(e->name, NAME_LEN, next->comm);
	publish(e, i);
	/* of the task that leaves */
	take_stack(ctx, i, now, SWITCH);
	return 0;
}

#define VECTOR(name, what)                                                                         \
	SEC("tp_btf/" #name "_entry") int BPF_PROG(name##_entry, int vector)                       \
	{                                                                                          \
		return emit(ctx, ENTER, what, vector);                                                  \
	}                                                                                          \
	SEC("tp_btf/" #name "_exit") int BPF_PROG(name##_exit, int vector)                         \
	{                                                                                          \
		return emit(ctx, EXIT, what, vector);                                                   \
	}

VECTOR(local_timer, LOCAL_TIMER)
VECTOR(call_function, CALL_FUNCTION)
VECTOR(call_function_single, CALL_FUNCTION_SINGLE)
VECTOR(reschedule, RESCHEDULE)
VECTOR(irq_work, IRQ_WORK)
VECTOR(x86_platform_ipi, PLATFORM_IPI)
VECTOR(thermal_apic, THERMAL)
VECTOR(threshold_apic, THRESHOLD)
VECTOR(deferred_error_apic, DEFERRED_ERROR)
VECTOR(error_apic, ERROR)
VECTOR(spurious_apic, SPURIOUS)
VECTOR(softirq, SOFTIRQ)

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(irq_handler_entry, int irq, struct irqaction *action)
{
	u64 i, now = bpf_ktime_get_ns();
	struct event *e = reserve(&i);
	if (!e)
		return 0;
	e->at_ns = now;
	e->kind = ENTER;
	e->what = IRQ;
	e->arg = irq;
	e->pid = 0;
	e->prio = 0;
	e->runnable = 0;
	bpf_probe_read_kernel_str(e->name, NAME_LEN, action->name);
	publish(e, i);
	take_stack(ctx, i, now, ENTER);
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(irq_handler_exit, int irq)
{
	return emit(ctx, EXIT, IRQ, irq);
}

/* what makes the observer of this CPU ready to run: the handler of its timer */
SEC("tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *task)
{
	u32 cpu = bpf_get_smp_processor_id();
	if (!on || cpu >= MAX_CPUS || task->pid != observers[cpu])
		return 0;
	return emit(ctx, WAKE, 0, 0);
}

/* the number of the state that the CPU enters, or -1 as it leaves one */
SEC("tp_btf/cpu_idle")
int BPF_PROG(cpu_idle, unsigned int state, unsigned int cpu)
{
	return emit(ctx, IDLE, 0, state);
}

SEC("tp_btf/nmi_handler")
int BPF_PROG(nmi_handler, void *handler, s64 delta_ns, int handled)
{
	return emit(ctx, POINT, NMI, delta_ns);
}

SEC("tp_btf/page_fault_user")
int BPF_PROG(page_fault_user, unsigned long address)
{
	return emit(ctx, POINT, PAGE_FAULT, 0);
}

/* Counts `sent` interrupts of the task on this CPU. */
static __always_inline int count_sender(u32 ipi, u64 callsite, u64 callback, u64 sent)
{
	struct sender s = {
		.callsite = callsite,
		.callback = callback,
		.pid = bpf_get_current_pid_tgid(),
		.cpu = bpf_get_smp_processor_id(),
		.ipi = ipi,
	};
	bpf_get_current_comm(s.name, NAME_LEN);
	u64 none = 0, *n = bpf_map_lookup_elem(&senders, &s);
	if (!n) {
		bpf_map_update_elem(&senders, &s, &none, BPF_NOEXIST);
		n = bpf_map_lookup_elem(&senders, &s);
	}
	__sync_fetch_and_add(n ? n : &senders_lost, sent);
	return 0;
}

/* The function queued for the interrupt that is sent now, else the one the interrupt itself calls. A call is queued before its
 * interrupt is sent; the kernel does both with preemption off. */
static __always_inline u64 take_queued(u64 callback, u32 target)
{
	u32 zero = 0;
	struct queued *q = bpf_map_lookup_elem(&queued, &zero);
	if (!q || !callback || !q->func)
		return callback;
	/* one that needed no interrupt may still be here; work that a CPU sends to itself is not queued */
	if (target != MANY && target != q->target)
		return callback;
	u64 func = q->func;
	q->func = 0;
	return func;
}

/* a raw tracepoint: programs with types must not read an argument that is a pointer to a function */
SEC("raw_tp/csd_queue_cpu")
int BPF_PROG(csd_queue_cpu, unsigned int cpu, unsigned long callsite, void *func)
{
	u32 zero = 0;
	struct queued *q = on ? bpf_map_lookup_elem(&queued, &zero) : 0;
	if (q) {
		q->func = (u64)func;
		q->target = cpu;
	}
	return 0;
}

SEC("tp_btf/ipi_send_cpu")
int BPF_PROG(ipi_send_cpu, unsigned int cpu, unsigned long callsite, void *callback)
{
	if (!on)
		return 0;
	u64 func = take_queued((u64)callback, cpu);
	if (cpu >= MAX_CPUS || !slot_of[cpu])
		return 0;
	return count_sender(func == (u64)callback ? IPI_ONE : IPI_CALL, callsite, func, 1);
}

SEC("tp_btf/ipi_send_cpumask")
int BPF_PROG(ipi_send_cpumask, const void *cpumask, unsigned long callsite, void *callback)
{
	if (!on)
		return 0;
	u64 func = take_queued((u64)callback, MANY), sent = 0;
	for (u32 i = 0; i < MAX_CPUS / 64; i++) {
		u64 word = 0;
		if (i >= measured_words)
			break;
		bpf_probe_read_kernel(&word, sizeof(word), (const u64 *)cpumask + i);
		sent += __builtin_popcountll(word & measured[i]);
	}
	return sent ? count_sender(IPI_MASK, callsite, func, sent) : 0;
}
