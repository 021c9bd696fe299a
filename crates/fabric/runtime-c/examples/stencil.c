/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A 7-point stencil over a cube of N^3 cells, in B^3 objects that migrate between PEs.
 *
 *     stencil [N [B [STEPS [PEs [STRATEGY]]]]]
 *
 * Each object has a block of cells and sends its six faces to its neighbours in every step. The largest change of a step
 * is a reduction. After every fifth step, objects may migrate. Cells outside the cube are 0.
 */
#include <colony.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { START, GHOST };
static const char *const entries[] = {"start", "ghost"};

typedef struct { int32_t n, blocks, steps; } plan; /* N, B, STEPS */

/* A face of a block: it came from direction `side` (0 to 5: -x, +x, -y, +y, -z, +z). Cells follow. */
typedef struct { int32_t step, side; } face;

typedef struct {
    plan plan;
    int32_t step, is_waiting; /* for the reduction of the last step */
    int32_t got, wanted;      /* faces of this step */
    int64_t at[3];
    double cells[]; /* two fields of (m + 2)^3 cells, with ghost cells on all sides */
} block;

static size_t side_of(const block *b) { return (size_t)(b->plan.n / b->plan.blocks); }
static size_t volume(size_t m) { return (m + 2) * (m + 2) * (m + 2); }
static size_t size_of(const plan *p) { return sizeof(block) + 2 * volume((size_t)(p->n / p->blocks)) * sizeof(double); }
static size_t cell(size_t m, size_t x, size_t y, size_t z) { return (x * (m + 2) + y) * (m + 2) + z; }
#define FOR_CELLS(m) \
    for (size_t x = 1; x <= (m); x++) \
        for (size_t y = 1; y <= (m); y++) \
            for (size_t z = 1; z <= (m); z++)

/* The place of a cell in the cube. */
static uint64_t place(const block *b, int d, size_t x) { return (uint64_t)b->at[d] * side_of(b) + x - 1; }
static double *field(block *b, int which) { return b->cells + (size_t)(which & 1) * volume(side_of(b)); }

/* The cell (i, j) of the layer of a face, inside (depth 1) or in the ghost cells (depth 0). */
static size_t of_face(size_t m, int side, size_t i, size_t j, size_t depth) {
    size_t d = side & 1 ? m + 1 - depth : depth;
    return side < 2 ? cell(m, d, i, j) : side < 4 ? cell(m, i, d, j) : cell(m, i, j, d);
}

/* The value of a cell at the beginning: exact, so that every order of work gives the same bits. */
static double initial(uint64_t x, uint64_t y, uint64_t z) { return (double)((x * 31 + y * 17 + z * 7) % 64) / 64.0; }

static void *create(const void *init, size_t length, colony_context *context) {
    colony_element this;
    colony_this(context, &this);
    block *b = length == sizeof(plan) ? calloc(1, size_of(init)) : NULL;
    if (!b) return NULL;
    b->plan = *(const plan *)init;
    b->is_waiting = 1;
    size_t m = side_of(b);
    for (int d = 0; d < 3; d++) {
        b->at[d] = this.index.at[d];
        b->wanted += (b->at[d] > 0) + (b->at[d] < b->plan.blocks - 1);
    }
    FOR_CELLS(m) field(b, 0)[cell(m, x, y, z)] = initial(place(b, 0, x), place(b, 1, y), place(b, 2, z));
    return b;
}

static int pack(const void *state, colony_buffer *into) {
    return colony_buffer_write(into, state, size_of(&((const block *)state)->plan));
}

static void *unpack(const void *bytes, size_t length) {
    block *b = malloc(length);
    if (b) memcpy(b, bytes, length);
    return b;
}

static int send_faces(block *b, colony_context *context) {
    size_t m = side_of(b);
    colony_element this;
    colony_this(context, &this);
    for (int side = 0; side < 6; side++) {
        colony_element to = this;
        to.index.at[side / 2] += side & 1 ? 1 : -1;
        if (to.index.at[side / 2] < 0 || to.index.at[side / 2] == b->plan.blocks) continue;
        colony_buffer *message = colony_buffer_new(sizeof(face) + m * m * sizeof(double));
        face head = {b->step, side ^ 1};
        colony_buffer_write(message, &head, sizeof head);
        double *cells = colony_buffer_extend(message, m * m * sizeof(double));
        if (!cells) return 1;
        for (size_t i = 0; i < m; i++)
            for (size_t j = 0; j < m; j++)
                cells[i * m + j] = field(b, b->step)[of_face(m, side, i + 1, j + 1, 1)];
        if (colony_send_buffer(context, to, GHOST, message)) return 1;
    }
    return 0;
}

/* Computes a step once all faces are here, and contributes the largest change of a cell. */
static int compute(block *b, colony_context *context) {
    if (b->is_waiting || b->got < b->wanted) return 0;
    size_t m = side_of(b);
    const double *old = field(b, b->step);
    double *new = field(b, b->step + 1), change = 0;
    FOR_CELLS(m) {
        double was = old[cell(m, x, y, z)];
        double sum = old[cell(m, x - 1, y, z)] + old[cell(m, x + 1, y, z)] + old[cell(m, x, y - 1, z)] +
                     old[cell(m, x, y + 1, z)] + old[cell(m, x, y, z - 1)] + old[cell(m, x, y, z + 1)];
        double value = 0.5 * was + sum / 12.0;
        change = fmax(change, fabs(value - was));
        new[cell(m, x, y, z)] = value;
    }
    b->step++;
    b->is_waiting = 1; /* until the reduction says that all blocks have this step */
    b->got = 0;
    colony_element this;
    colony_this(context, &this);
    return colony_contribute(context, COLONY_DOUBLE, COLONY_MAX, &change, 1, colony_to_array(this.array));
}

static int go_on(block *b, colony_context *context) {
    b->is_waiting = 0;
    return send_faces(b, context) || compute(b, context);
}

static int entry(void *state, uint32_t number, const void *message, size_t length, colony_context *context) {
    block *b = state;
    if (number == START) return go_on(b, context);
    size_t m = side_of(b);
    const face *head = message;
    /* all blocks have ended the step before, so a face is always for the step that this block computes next */
    if (length != sizeof *head + m * m * sizeof(double) || head->step != b->step)
        return colony_fail(context, "a face has a wrong size or step");
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < m; j++)
            field(b, b->step)[of_face(m, head->side, i + 1, j + 1, 0)] = ((const double *)(head + 1))[i * m + j];
    b->got++;
    return compute(b, context);
}

/* A sum of the bits of all cells, each with a weight of its place: one wrong bit changes it. */
static int64_t checksum(block *b) {
    size_t m = side_of(b);
    uint64_t bits, sum = 0, n = (uint64_t)b->plan.n;
    FOR_CELLS(m) {
        memcpy(&bits, &field(b, b->step)[cell(m, x, y, z)], sizeof bits);
        sum += bits * (2 * ((place(b, 0, x) * n + place(b, 1, y)) * n + place(b, 2, z)) + 1);
    }
    return (int64_t)sum;
}

static int reduced(void *state, const colony_reduction *result, colony_context *context) {
    block *b = state;
    colony_element this;
    colony_this(context, &this);
    if (result->type == COLONY_INT64) {
        printf("checksum %016llx\n", (unsigned long long)result->integers[0]);
        return colony_exit(context, 0);
    }
    if (!(this.index.at[0] | this.index.at[1] | this.index.at[2]))
        printf("step %d: largest change %.17g\n", b->step, result->doubles[0]);
    if (b->step == b->plan.steps) {
        int64_t sum = checksum(b);
        return colony_contribute(context, COLONY_INT64, COLONY_SUM, &sum, 1,
                                 colony_to_element(colony_at(this.array, 0, 0, 0)));
    }
    return b->step % 5 == 0 ? colony_at_sync(context) : go_on(b, context);
}

static int resume(void *state, colony_context *context) { return go_on(state, context); }
static uint64_t state_bytes(const void *state) { return size_of(&((const block *)state)->plan); }

static int32_t block_class;

static int start(int argc, char **argv, colony_context *context) {
    plan p = {argc > 1 ? atoi(argv[1]) : 24, argc > 2 ? atoi(argv[2]) : 3, argc > 3 ? atoi(argv[3]) : 20};
    if (p.blocks < 1 || p.n < p.blocks || p.n % p.blocks || p.steps < 1)
        return colony_fail(context, "N has to be a multiple of B, and STEPS at least 1");
    uint32_t extents[3] = {(uint32_t)p.blocks, (uint32_t)p.blocks, (uint32_t)p.blocks};
    colony_array blocks;
    return colony_create_array(context, block_class, 3, extents, COLONY_BLOCK, &p, sizeof p, &blocks) ||
           colony_broadcast(context, blocks, START, NULL, 0);
}

int main(int argc, char **argv) {
    colony_class class = {.size = sizeof class, .name = "Block", .entries = entries, .entry_count = 2,
                          .create = create, .destroy = free, .pack = pack, .unpack = unpack, .entry = entry,
                          .resume = resume, .reduced = reduced, .state_bytes = state_bytes};
    colony_options options = {.size = sizeof options, .threads = argc > 4 ? (uint32_t)atoi(argv[4]) : 0,
                              .balance = argc > 5 ? argv[5] : NULL};
    colony_program *program = colony_program_new();
    block_class = colony_program_class(program, &class);
    int code = colony_run(program, &options, argc, argv, start);
    colony_program_free(program);
    return code;
}
