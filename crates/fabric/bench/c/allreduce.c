/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The twin of the Rust allreduce loop: what the same loop costs in C. */
#include <mpi.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

static inline uint64_t counter(int vdso)
{
#if defined(__x86_64__)
	if (!vdso)
		return __rdtsc();
#else
	(void)vdso;
#endif
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC_RAW, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/*
 * Makes `ops` allreduce operations and returns the counts they took. With `stamps` the counter is read
 * after each, as the Rust loop does; without, only before and after all.
 */
uint64_t colony_c_allreduce(const double *send, double *recv, int count, MPI_Comm comm, int vdso,
			    uint64_t *stamps, size_t ops)
{
	uint64_t start = counter(vdso);
	if (stamps) {
		for (size_t i = 0; i < ops; i++) {
			MPI_Allreduce(send, recv, count, MPI_DOUBLE, MPI_MAX, comm);
			stamps[i] = counter(vdso);
		}
		return ops ? stamps[ops - 1] - start : 0;
	}
	for (size_t i = 0; i < ops; i++)
		MPI_Allreduce(send, recv, count, MPI_DOUBLE, MPI_MAX, comm);
	return counter(vdso) - start;
}
