/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* As many threads as there can be, all of which wait in a call. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int ends[2];

static void *wait_for_end(void *unused)
{
	char byte;

	return read(ends[0], &byte, 1) ? unused : 0;
}

int main(void)
{
	static pthread_t threads[1000];
	int count = 0, error = 0;

	if (pipe(ends))
		return 1;
	while (count < 1000 && !(error = pthread_create(&threads[count], 0, wait_for_end, 0)))
		count++;
	close(ends[1]);
	for (int n = 0; n < count; n++)
		pthread_join(threads[n], 0);
	/* and the first */
	printf("%d threads, then %s\n", count + 1, strerror(error));
	return 0;
}
