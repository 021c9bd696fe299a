/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The plain MPI counterpart of a round trip between two objects: messages of BYTES bytes there and back, with blocking
 * sends and receives. Usage: roundtrip BYTES SERIES ROUNDS. Rank 0 prints the nanoseconds of a round trip, a line for
 * each series.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	int rank;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	int bytes = argc > 1 ? atoi(argv[1]) : 8;
	int series = argc > 2 ? atoi(argv[2]) : 100, rounds = argc > 3 ? atoi(argv[3]) : 2000;
	char *buffer = calloc(bytes > 0 ? bytes : 1, 1);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int s = 0; s < series; s++) {
		double began = MPI_Wtime();
		for (int i = 0; i < rounds; i++) {
			if (rank == 0)
				MPI_Send(buffer, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
			MPI_Recv(buffer, bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			if (rank == 1)
				MPI_Send(buffer, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
		}
		if (rank == 0)
			printf("%.1f\n", (MPI_Wtime() - began) * 1e9 / rounds);
	}
	free(buffer);
	MPI_Finalize();
	return 0;
}
