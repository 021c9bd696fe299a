/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* stress [ROUNDS]: many threads. They spin, wait at locks, conditions, barriers and in calls, take signals, end. Prints the same
 * wherever it runs. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MANY 24

static pthread_attr_t small;
static pthread_t threads[MANY];
static void *results[MANY];

static void start(int count, void *(*run)(void *))
{
	for (long n = 0; n < count; n++) {
		int error = pthread_create(&threads[n], &small, run, (void *)n);
		if (error) {
			printf("thread %ld: %s\n", n, strerror(error));
			exit(1);
		}
	}
}

static void join(int count)
{
	for (int n = 0; n < count; n++)
		pthread_join(threads[n], &results[n]);
}

static long sum(int count)
{
	long all = 0;

	for (int n = 0; n < count; n++)
		all += (long)results[n];
	return all;
}

/* each waits for all others, without letting them go first */
static atomic_int arrived;
static void *spin(void *n)
{
	atomic_fetch_add(&arrived, 1);
	while (atomic_load(&arrived) < 8)
		;
	return n;
}

static void *nothing(void *n)
{
	return n;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long counted, turn;
static void *count(void *n)
{
	for (int i = 0; i < 1000; i++) {
		pthread_mutex_lock(&lock);
		counted++;
		pthread_mutex_unlock(&lock);
	}
	for (int i = 0; i < 4; i++) {
		pthread_mutex_lock(&lock);
		while (turn % MANY != (long)n)
			pthread_cond_wait(&changed, &lock);
		turn++;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&lock);
	}
	return n;
}

static pthread_barrier_t barrier;
static void *meet(void *n)
{
	long last = 0;

	(void)n;
	for (int i = 0; i < 10; i++)
		last += pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD;
	return (void *)last;
}

/* calls that wait for another thread's */
static int to[2], from[2];
static void *echo(void *n)
{
	char byte;
	long echoed = 0;

	(void)n;
	while (read(to[0], &byte, 1) == 1)
		echoed += write(from[1], &byte, 1);
	return (void *)echoed;
}

static void *give_up(void *n)
{
	static pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
	struct timespec end;
	int error;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_nsec += 1000000 * (1 + (long)n);
	if (end.tv_nsec >= 1000000000) {
		end.tv_nsec -= 1000000000;
		end.tv_sec++;
	}
	pthread_mutex_lock(&own);
	do
		error = pthread_cond_timedwait(&changed, &own, &end);
	while (!error);
	pthread_mutex_unlock(&own);
	return (void *)(long)(error == ETIMEDOUT);
}

/* a signal comes to the thread that it is for, also while that waits in a call; each thread has its stack for it */
static __thread volatile long handled, on_stack;
static __thread char *own_stack;
static void handler(int signal)
{
	char here;

	handled = signal;
	on_stack = &here >= own_stack && &here < own_stack + 32768;
}
static atomic_int heard;
static sigset_t heard_signal;
static void *hear(void *n)
{
	char byte;
	stack_t stack = { .ss_size = 32768 };

	stack.ss_sp = own_stack = malloc(32768);
	sigaltstack(&stack, 0);
	pthread_sigmask(SIG_UNBLOCK, &heard_signal, 0);
	while (!handled)
		if (read(to[0], &byte, 1) >= 0 || errno != EINTR)
			return (void *)-1L;
	atomic_fetch_add(&heard, 1);
	(void)n;
	return (void *)(handled * 10 + on_stack);
}

/* numbers of the processor's that are each thread's own */
static void *compute(void *n)
{
	volatile double value = (long)n;
	double all = 0;

	for (int i = 0; i < 200000; i++)
		all += value * 0.5;
	return (void *)(long)(all == (long)n * 100000.0);
}

int main(int arguments, char **words)
{
	long rounds = arguments > 1 ? atoi(words[1]) : 1000;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 65536);

	start(8, spin);
	join(8);
	printf("spun %ld\n", sum(8));

	for (long n = 0; n < rounds; n++) {
		pthread_create(&threads[0], &small, nothing, (void *)n);
		pthread_join(threads[0], &results[0]);
	}
	printf("one after another %ld\n", (long)results[0]);

	start(MANY, count);
	join(MANY);
	printf("counted %ld, turns %ld\n", counted, turn);

	pthread_barrier_init(&barrier, 0, MANY);
	start(MANY, meet);
	join(MANY);
	printf("met %ld\n", sum(MANY));

	if (pipe(to) || pipe(from))
		return 1;
	start(MANY, echo);
	char byte = 'x';
	long back = 0;
	for (int n = 0; n < 100; n++) {
		write(to[1], &byte, 1);
		back += read(from[0], &byte, 1);
	}
	close(to[1]);
	join(MANY);
	printf("echoed %ld %ld\n", sum(MANY), back);

	start(MANY, give_up);
	join(MANY);
	printf("gave up %ld\n", sum(MANY));

	close(to[0]);
	if (pipe(to))
		return 1;
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_ONSTACK };
	sigaction(SIGUSR1, &action, 0);
	/* not before they have their stacks */
	sigemptyset(&heard_signal);
	sigaddset(&heard_signal, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &heard_signal, 0);
	start(8, hear);
	/* one that comes just before a call waits is heard, but does not end the call */
	while (atomic_load(&heard) < 8) {
		struct timespec some = { 0, 1000000 };
		for (int n = 0; n < 8; n++)
			pthread_kill(threads[n], SIGUSR1);
		nanosleep(&some, 0);
	}
	join(8);
	printf("heard %ld\n", sum(8));

	start(MANY, compute);
	join(MANY);
	printf("computed %ld\n", sum(MANY));

	/* the others end with the process, wherever they are */
	atomic_store(&arrived, -1000);
	start(4, spin);
	pthread_create(&threads[4], &small, echo, 0);
	return 6;
}
