/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* EP and CG of the NAS Parallel Benchmarks, class S, over OpenMP: written from the specification (RNR-94-007), with the
 * values that NPB 3 publishes. Prints the same wherever it runs, with however many threads. */
#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* x' = 5^13 x mod 2^46 */
#define A 1220703125u
#define MASK ((1ull << 46) - 1)

static double next(uint64_t *x)
{
	*x = *x * A & MASK;
	return (double)*x * 0x1p-46;
}

static uint64_t skipped(uint64_t x, uint64_t steps)
{
	for (uint64_t a = A; steps; steps >>= 1, a = a * a & MASK)
		if (steps & 1)
			x = x * a & MASK;
	return x;
}

static int is(double value, double expected, double tolerance)
{
	return fabs((value - expected) / expected) <= tolerance;
}

/* EP, class S: 2^24 pairs */
static int ep(void)
{
	const int batches = 1 << 8, pairs = 1 << 16;
	double sx = 0, sy = 0;

#pragma omp parallel for reduction(+ : sx, sy) schedule(dynamic)
	for (int batch = 0; batch < batches; batch++) {
		uint64_t x = skipped(271828183, (uint64_t)batch * 2 * pairs);
		for (int n = 0; n < pairs; n++) {
			double x1 = 2 * next(&x) - 1, x2 = 2 * next(&x) - 1;
			double t = x1 * x1 + x2 * x2;
			if (t <= 1) {
				double scale = sqrt(-2 * log(t) / t);
				sx += x1 * scale;
				sy += x2 * scale;
			}
		}
	}
	return is(sx, -3.247834652034740e3, 1e-8) && is(sy, -6.958407078382297e3, 1e-8);
}

/* CG, class S */
#define N 1400
#define NONZEROS 7
#define WIDTH 400 /* of a row, at most */
#define SHIFT 10.0
#define RCOND 0.1
static int columns[N][WIDTH], lengths[N];
static double values[N][WIDTH];
static double x[N], z[N], p[N], q[N], r[N];

static void add(int row, int column, double value)
{
	int at = 0;

	while (at < lengths[row] && columns[row][at] < column)
		at++;
	if (at < lengths[row] && columns[row][at] == column) {
		values[row][at] += value;
		return;
	}
	if (lengths[row] == WIDTH)
		abort();
	memmove(&columns[row][at + 1], &columns[row][at], (lengths[row] - at) * sizeof(int));
	memmove(&values[row][at + 1], &values[row][at], (lengths[row] - at) * sizeof(double));
	columns[row][at] = column;
	values[row][at] = value;
	lengths[row]++;
}

static void matrix(void)
{
	static int place[N][NONZEROS + 1], count[N];
	static double value[N][NONZEROS + 1];
	uint64_t seed = 314159265;
	double weight = 1;

	next(&seed);
	for (int i = 0; i < N; i++) {
		int own = 0;
		while (count[i] < NONZEROS) {
			double v = next(&seed);
			int at = next(&seed) * 2048, known = at >= N;
			for (int k = 0; k < count[i]; k++)
				known |= place[i][k] == at;
			if (!known) {
				place[i][count[i]] = at;
				value[i][count[i]++] = v;
			}
		}
		for (; own < count[i] && place[i][own] != i; own++)
			;
		place[i][own] = i;
		value[i][own] = 0.5;
		count[i] += own == count[i];
	}
	for (int i = 0; i < N; i++, weight *= pow(RCOND, 1.0 / N))
		for (int k = 0; k < count[i]; k++)
			for (int l = 0; l < count[i]; l++) {
				int row = place[i][k], column = place[i][l];
				double v = value[i][l] * (weight * value[i][k]);
				add(row, column, v + (row == i && column == i ? RCOND - SHIFT : 0));
			}
}

static double dot(const double *a, const double *b)
{
	double sum = 0;

#pragma omp parallel for reduction(+ : sum)
	for (int i = 0; i < N; i++)
		sum += a[i] * b[i];
	return sum;
}

static void times(const double *in, double *out)
{
#pragma omp parallel for schedule(dynamic, 64)
	for (int i = 0; i < N; i++) {
		double sum = 0;
		for (int k = 0; k < lengths[i]; k++)
			sum += values[i][k] * in[columns[i][k]];
		out[i] = sum;
	}
}

static int cg(void)
{
	double zeta = 0;

	matrix();
	for (int i = 0; i < N; i++)
		x[i] = 1;
	for (int iteration = 0; iteration < 15; iteration++) {
		memset(z, 0, sizeof z);
		memcpy(r, x, sizeof x);
		memcpy(p, x, sizeof x);
		double rho = dot(r, r);
		for (int step = 0; step < 25; step++) {
			times(p, q);
			double alpha = rho / dot(p, q), before = rho;
#pragma omp parallel for
			for (int i = 0; i < N; i++) {
				z[i] += alpha * p[i];
				r[i] -= alpha * q[i];
			}
			rho = dot(r, r);
#pragma omp parallel for
			for (int i = 0; i < N; i++)
				p[i] = r[i] + rho / before * p[i];
		}
		double scale = 1 / sqrt(dot(z, z));
		zeta = SHIFT + 1 / dot(x, z);
		for (int i = 0; i < N; i++)
			x[i] = scale * z[i];
	}
	return is(zeta, 8.5971775078648, 1e-10);
}

int main(int count, char **arguments)
{
	int threads = 0, kernels = 0;

#pragma omp parallel reduction(+ : threads)
	threads++;
	printf("%d threads\n", threads);
	for (int n = 1; n < count; n++) {
		int verified = strcmp(arguments[n], "ep") ? cg() : ep();
		printf("%s class S: %s\n", arguments[n], verified ? "VERIFIED" : "WRONG");
		kernels += verified;
	}
	return kernels == count - 1 ? 0 : 1;
}
