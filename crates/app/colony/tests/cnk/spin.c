/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* N threads: each computes for some time, and then until all others have, too. Nothing asks for a timer. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static atomic_int done;
static int count;

static void *spin(void *unused)
{
	for (volatile long n = 0; n < 20000000; n++)
		;
	atomic_fetch_add(&done, 1);
	while (atomic_load(&done) < count)
		;
	return unused;
}

int main(int arguments, char **words)
{
	pthread_t threads[64];

	count = arguments > 1 ? atoi(words[1]) : 1;
	for (int n = 1; n < count; n++)
		if (pthread_create(&threads[n], 0, spin, 0))
			return 1;
	spin(0);
	for (int n = 1; n < count; n++)
		pthread_join(threads[n], 0);
	printf("%d\n", done);
	return 0;
}
