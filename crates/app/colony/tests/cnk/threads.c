/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What a C library does for threads, signals and memory; prints the same wherever it runs. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS 100000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static long count;
static int turn;
static __thread int own = 7;
static volatile sig_atomic_t handled;

/* what both threads do: count, then take turns, each waiting for the other */
static void work(int mine)
{
	for (int i = 0; i < ROUNDS; i++) {
		pthread_mutex_lock(&lock);
		count++;
		pthread_mutex_unlock(&lock);
	}
	for (int i = 0; i < 1000; i++) {
		pthread_mutex_lock(&lock);
		while (turn != mine)
			pthread_cond_wait(&turned, &lock);
		turn = !mine;
		pthread_cond_signal(&turned);
		pthread_mutex_unlock(&lock);
	}
}

static void *second(void *unused)
{
	(void)unused;
	own = 9;
	work(1);
	return (void *)(long)own;
}

static void handler(int signal, siginfo_t *info, void *context)
{
	(void)context;
	handled = signal * 100 + (info->si_code == SI_TKILL);
}

static pthread_mutex_t robust;

static void *owner(void *unused)
{
	pthread_mutex_lock(&robust);
	return unused;
}

/* the owner of a lock ends without releasing it */
static void inherit(void)
{
	pthread_mutexattr_t attributes;
	pthread_t thread;

	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&robust, &attributes);
	pthread_create(&thread, 0, owner, 0);
	pthread_join(thread, 0);
	const char *said = pthread_mutex_lock(&robust) == EOWNERDEAD ? "owner died" : "no owner";
	int mended = pthread_mutex_consistent(&robust);
	printf("robust: %s, %d %d\n", said, mended, pthread_mutex_unlock(&robust));
}

int main(void)
{
	pthread_t thread;
	int error = pthread_create(&thread, 0, second, 0);

	if (error) {
		printf("pthread_create: %s\n", strerror(error));
		return 1;
	}
	work(0);
	void *result;
	pthread_join(thread, &result);
	printf("%ld %ld %d\n", count, (long)result, own);

	inherit();
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
	sigaction(SIGUSR1, &action, 0);
	raise(SIGUSR1);
	printf("handler %d\n", (int)handled);

	size_t size = 4 << 20;
	char *memory = malloc(size);
	memset(memory, 5, size);
	memory = realloc(memory, 2 * size);
	printf("kept %d\n", memory[size - 1]);
	free(memory);

	struct timespec wait = { 0, 1000000 };
	printf("slept %d\n", nanosleep(&wait, 0));
	return 3;
}
