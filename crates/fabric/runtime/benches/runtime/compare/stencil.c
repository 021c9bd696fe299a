/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The plain MPI counterpart of the example stencil: Jacobi iterations of a periodic 7-point stencil, in slabs along x.
 * Usage: stencil CELLS ITERATIONS. Rank 0 prints the sums and the time of one iteration.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static long n, nx, line, plane;

static void compute_plane(double *restrict next, const double *restrict now, long x)
{
	for (long y = 1; y <= n; y++) {
		long start = x * plane + y * line + 1;
		double *restrict to = next + start;
		const double *restrict c = now + start;
		for (long z = 0; z < n; z++)
			to[z] = (c[z] + c[z - plane] + c[z + plane] + c[z - line] + c[z + line] +
				 c[z - 1] + c[z + 1]) / 7.0;
	}
}

/* Copies the cells at the periodic sides of y and z, which are on this rank. */
static void wrap_plane(double *now, long x)
{
	double *p = now + x * plane;
	for (long z = 1; z <= n; z++) {
		p[z] = p[n * line + z];
		p[(n + 1) * line + z] = p[line + z];
	}
	for (long y = 1; y <= n; y++) {
		p[y * line] = p[y * line + n];
		p[y * line + n + 1] = p[y * line + 1];
	}
}

int main(int argc, char **argv)
{
	int rank, size;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	n = argc > 1 ? atol(argv[1]) : 32;
	long iterations = argc > 2 ? atol(argv[2]) : 20;
	if (n < 1 || n % size) {
		fprintf(stderr, "error: %ld cells are no multiple of %d ranks\n", n, size);
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	nx = n / size;
	line = n + 2;
	plane = line * line;
	double *now = calloc((nx + 2) * plane, sizeof *now);
	double *next = calloc((nx + 2) * plane, sizeof *next);
	if (!now || !next) {
		fprintf(stderr, "error: no memory for %ld cells\n", nx * n * n);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	for (long x = 1; x <= nx; x++)
		for (long y = 1; y <= n; y++)
			for (long z = 1; z <= n; z++)
				now[x * plane + y * line + z] = (double)(((rank * nx + x) * 7 + y * 5 + z * 3) % 11);
	int below = (rank + size - 1) % size, above = (rank + 1) % size;
	MPI_Barrier(MPI_COMM_WORLD);
	double began = MPI_Wtime();
	for (long i = 0; i < iterations; i++) {
		MPI_Request r[4];
		MPI_Irecv(now, plane, MPI_DOUBLE, below, 1, MPI_COMM_WORLD, &r[0]);
		MPI_Irecv(now + (nx + 1) * plane, plane, MPI_DOUBLE, above, 0, MPI_COMM_WORLD, &r[1]);
		MPI_Isend(now + plane, plane, MPI_DOUBLE, below, 0, MPI_COMM_WORLD, &r[2]);
		MPI_Isend(now + nx * plane, plane, MPI_DOUBLE, above, 1, MPI_COMM_WORLD, &r[3]);
		for (long x = 2; x < nx; x++) {
			wrap_plane(now, x);
			compute_plane(next, now, x);
			/* without calls of MPI, long messages would wait until the end of the loop */
			int done;
			MPI_Testall(4, r, &done, MPI_STATUSES_IGNORE);
		}
		MPI_Waitall(4, r, MPI_STATUSES_IGNORE);
		wrap_plane(now, 1);
		compute_plane(next, now, 1);
		if (nx > 1) {
			wrap_plane(now, nx);
			compute_plane(next, now, nx);
		}
		double *swap = now;
		now = next;
		next = swap;
	}
	double elapsed = MPI_Wtime() - began, longest, sums[2] = { 0, 0 }, all[2];
	for (long x = 1; x <= nx; x++)
		for (long y = 1; y <= n; y++)
			for (long z = 1; z <= n; z++) {
				double cell = now[x * plane + y * line + z];
				sums[0] += cell;
				sums[1] += cell * cell;
			}
	MPI_Reduce(sums, all, 2, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	MPI_Reduce(&elapsed, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
	if (rank == 0) {
		printf("sum of all cells: %.6f, of their squares: %.6f\n", all[0], all[1]);
		fprintf(stderr, "%.3f ms an iteration\n", longest * 1e3 / iterations);
	}
	free(now);
	free(next);
	MPI_Finalize();
	return 0;
}
