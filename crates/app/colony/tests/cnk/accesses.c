/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* N rounds of six instructions: two loads of 8 and 4 bytes, a store of 2 bytes, and a locked addition to 4 bytes, which is both. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int arguments, char **words)
{
	static struct { long a; int b; short c; int d; } place;
	long rounds = arguments > 1 ? atol(words[1]) : 1;

	__asm__ volatile(
		"1:	movq	(%[a]), %%rax\n"
		"	movl	8(%[a]), %%eax\n"
		"	movw	%%ax, 12(%[a])\n"
		"	lock addl $1, 16(%[a])\n"
		"	decq	%[n]\n"
		"	jnz	1b\n"
		: [n] "+r"(rounds) : [a] "r"(&place) : "rax", "memory", "cc");
	/* no processor of a node has counters of its own */
	if (syscall(SYS_perf_event_open, 0, 0, -1, -1, 0) != -1 || errno != ENOSYS)
		return 1;
	return place.d == 0;
}
