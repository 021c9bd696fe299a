/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * colony.h: objects that exchange messages, migrate between processes and balance themselves.
 *
 * A program registers classes. A class is a set of callbacks over a state that only the program knows. The runtime
 * creates objects of a class as elements of arrays, calls their entry methods with messages, and moves them between
 * processing elements (PEs). A PE is one thread of one process of the job.
 *
 * Contexts. Every callback that may call the runtime gets a context. A context is valid until its callback returns,
 * on the thread of that callback, and not inside a nested callback (an object that is created by the running
 * callback on the same PE). Any other use returns COLONY_CONTEXT.
 *
 * Failures. Functions return COLONY_OK (0) or a negative colony_status. colony_last_error() has the text. A callback
 * that returns another code than 0 ends the job: colony_run() prints one message in that process.
 *
 * Threads. The callbacks of one object never run at the same time, but may run on different threads. Different
 * objects run at the same time if a process has several PEs: data outside objects needs locks.
 *
 * Memory. Every pointer that a callback gets is valid until the callback returns. Every pointer that a function
 * takes is read before the function returns. Messages and states begin at addresses that are multiples of 16.
 */
#ifndef COLONY_H
#define COLONY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface. A library refuses classes and options of another version's size. */
#define COLONY_ABI_VERSION 1

/* Dimensions that an array may have. */
#define COLONY_MAX_DIMENSIONS 6

/* Return values of the functions. */
typedef enum colony_status {
    COLONY_OK = 0,
    COLONY_INVALID = -1,    /* an argument is NULL or has a value that is not possible */
    COLONY_UNKNOWN = -2,    /* the class, entry method or array does not exist */
    COLONY_DIMENSIONS = -3, /* wrong number of dimensions, or a coordinate out of range */
    COLONY_CONTEXT = -4,    /* the context is not valid here, or its callback cannot use this function */
    COLONY_FAILED = -5,     /* the job has failed, and ends when the callback returns */
    COLONY_PANIC = -6       /* a fault of the runtime */
} colony_status;

/* Access of a callback to the runtime, while the callback runs. */
typedef struct colony_context colony_context;
/* The classes of a program. */
typedef struct colony_program colony_program;
/* Bytes that grow: a packed state, or a message that is written in place. */
typedef struct colony_buffer colony_buffer;

/* An array of objects. It is a name: copy it, send it in messages. Its fields are for the runtime. */
typedef struct colony_array {
    uint32_t id;
    uint16_t type;
    uint8_t dimensions;
    uint8_t kind;
} colony_array;

/*
 * The index of an element; coordinates beyond the array's dimensions are 0.
 * Range of a coordinate: 1 dimension all of int64_t; 2 to 4 int32_t; 5 -2^24 to 2^24-1; 6 -2^20 to 2^20-1.
 */
typedef struct colony_index {
    int64_t at[COLONY_MAX_DIMENSIONS];
} colony_index;

/* An element of an array, wherever it is. It is a name, too. */
typedef struct colony_element {
    colony_array array;
    colony_index index;
} colony_element;

/* An element: colony_at(array, 3, 4) with as many coordinates as the array has dimensions. */
#ifdef __cplusplus
#define colony_at(array, ...) (colony_element{(array), {{__VA_ARGS__}}})
#else
#define colony_at(array, ...) ((colony_element){(array), {{__VA_ARGS__}}})
#endif

/* Operation that combines contributions to a reduction, value by value. */
typedef enum colony_op {
    COLONY_SUM = 0, /* the order of additions is not defined: the last bits of a sum of doubles may differ */
    COLONY_MIN = 1,
    COLONY_MAX = 2,
    COLONY_GATHER = 3 /* all contributions, in an order that is the same in every run */
} colony_op;

/* The type of values. */
typedef enum colony_type { COLONY_DOUBLE = 0, COLONY_INT64 = 1 } colony_type;

/* The objects that get the result of a reduction. */
typedef enum colony_target_kind {
    COLONY_TO_ELEMENT = 0, /* calls `reduced` of one element */
    COLONY_TO_ARRAY = 1,   /* calls `reduced` of every element of target.element.array */
    COLONY_TO_EXIT = 2     /* ends the job with exit code 0 */
} colony_target_kind;

typedef struct colony_target {
    uint32_t kind; /* a colony_target_kind */
    uint32_t unused;
    colony_element element;
} colony_target;

static inline colony_target colony_to_element(colony_element element) {
    colony_target target = {COLONY_TO_ELEMENT, 0, element};
    return target;
}
static inline colony_target colony_to_array(colony_array array) {
    colony_target target = {COLONY_TO_ARRAY, 0, {array, {{0}}}};
    return target;
}
static inline colony_target colony_to_exit(void) {
    colony_target target = {COLONY_TO_EXIT, 0, {{0, 0, 0, 0}, {{0}}}};
    return target;
}

/* The result of a reduction. */
typedef struct colony_reduction {
    uint64_t number;             /* its number among those of its array, from 0 */
    uint32_t type;               /* a colony_type */
    uint32_t elements;           /* contributions of a gather; 0 for other operations */
    size_t count;                /* values */
    const double *doubles;       /* the values; NULL if they are int64_t */
    const int64_t *integers;     /* the values; NULL if they are doubles */
    const colony_index *indices; /* gather: the elements that contributed */
    const size_t *offsets;       /* gather: values of element i are offsets[i] to offsets[i + 1] - 1 */
} colony_reduction;

/*
 * A class. Set unused callbacks to NULL; `create`, `destroy`, `pack`, `unpack` and, with entry methods, `entry` are
 * required. Every process of the job registers the same classes in the same order.
 */
typedef struct colony_class {
    size_t size;                /* sizeof(colony_class) */
    const char *name;           /* for traces and errors: UTF-8, not empty, different for each class */
    const char *const *entries; /* names of the entry methods, whose numbers are 0, 1, ... */
    uint32_t entry_count;       /* at most 65535 */

    /* Makes the state of the element colony_this(). NULL is a failure. May send messages. */
    void *(*create)(const void *init, size_t length, colony_context *context);
    /* Frees a state. */
    void (*destroy)(void *state);
    /* Packs a state for another process: colony_buffer_write() or colony_buffer_extend(). */
    int (*pack)(const void *state, colony_buffer *into);
    /* Makes a state from what `pack` has written. NULL is a failure. */
    void *(*unpack)(const void *bytes, size_t length);
    /* Runs the entry method with a number. The message may be NULL if its length is 0. */
    int (*entry)(void *state, uint32_t entry, const void *message, size_t length, colony_context *context);

    /* Optional. After a migration, before the next entry method. */
    int (*arrived)(void *state, colony_context *context);
    /* Optional. After load balancing: see colony_at_sync(). */
    int (*resume)(void *state, colony_context *context);
    /* Optional. The result of a reduction: see colony_contribute(). */
    int (*reduced)(void *state, const colony_reduction *result, colony_context *context);
    /* Optional. No message is under way: see colony_when_quiet(). */
    int (*quiet)(void *state, colony_context *context);
    /* Optional. Bytes of the packed state, about: the cost of a migration, for load balancing. */
    uint64_t (*state_bytes)(const void *state);
} colony_class;

/* Options of a run. Set size, and all other fields to 0 for the defaults. */
typedef struct colony_options {
    size_t size;         /* sizeof(colony_options) */
    uint32_t threads;    /* PEs of each process; 0: COLONY_THREADS of the environment, else 1 */
    uint32_t steal;      /* not 0: idle PEs take objects from others of their process */
    const char *balance; /* strategy of load balancing at colony_at_sync(), such as "greedy"; NULL: none */
} colony_options;

/* ---- Program ---- */

/* COLONY_ABI_VERSION of the library. */
uint32_t colony_abi_version(void);

/* The text of this thread's last failed call; "" if there was none. Valid until this thread's next failed call. */
const char *colony_last_error(void);

/* A program without classes. */
colony_program *colony_program_new(void);

/* Frees a program that does not run. NULL is allowed. */
void colony_program_free(colony_program *program);

/* Adds a class, of which everything is copied. Returns its number (0, 1, ...), or a negative status. */
int32_t colony_program_class(colony_program *program, const colony_class *description);

/*
 * Runs a program in this process, which is one process of the job. `start` is called once in the whole job, on PE 0,
 * which may be another thread than the caller's. `options` may be NULL.
 * Returns what the process has to return: the code of colony_exit(), 1 if the job failed in this process, 141 if it failed
 * in another one, 2 if an argument is wrong. The text of a failure is printed on standard error by the process in which it
 * happened, and kept for colony_last_error().
 */
int colony_run(colony_program *program, const colony_options *options, int argc, char **argv,
               int (*start)(int argc, char **argv, colony_context *context));

/* ---- This callback ---- */

/* This PE, from 0, and the number of PEs of the job; negative on failure. */
int32_t colony_pe(const colony_context *context);
int32_t colony_pes(const colony_context *context);

/* The object that runs. Not in `start`. */
int colony_this(const colony_context *context, colony_element *element);

/* CPU seconds that this object has used since the last load balancing; -1 on failure. */
double colony_load(const colony_context *context);

/* Ends the job with an exit code from 0 to 255. */
int colony_exit(colony_context *context, int code);

/* Ends the job as failed, with a text that names this object and callback. Returns COLONY_FAILED, to be returned. */
int colony_fail(colony_context *context, const char *text);

/* ---- Arrays ---- */

/* The element that each PE has at first. */
typedef enum colony_map {
    COLONY_BLOCK = 0, /* consecutive elements, in row-major order, share a PE */
    COLONY_ROUND_ROBIN = 1,
    COLONY_HASH = 2
} colony_map;

/* Creates an array with all elements from 0 to extents[d] - 1 in each of 1 to 6 dimensions. */
int colony_create_array(colony_context *context, int32_t type, uint32_t dimensions, const uint32_t *extents,
                        uint32_t map, const void *init, size_t length, colony_array *array);

/* Creates an array without elements, for colony_insert(). */
int colony_create_sparse(colony_context *context, int32_t type, uint32_t dimensions, colony_array *array);

/* Creates one object on each PE, which stays there. The index of an element is its PE. */
int colony_create_group(colony_context *context, int32_t type, const void *init, size_t length,
                        colony_array *array);

/* Creates one object. It takes no part in load balancing. */
int colony_create_one(colony_context *context, int32_t type, const void *init, size_t length,
                      colony_element *element);

/*
 * Inserts an element. If an element of the same array inserts it, it takes part in the reduction that its inserter
 * contributes to next, and in those after it.
 */
int colony_insert(colony_context *context, colony_element element, const void *init, size_t length);

/* Removes this object when its callback has returned. From then on, its index may be inserted again. */
int colony_remove(colony_context *context);

/* ---- Messages ---- */

/* Sends a message. Messages from one object to another run in the order in which they were sent. */
int colony_send(colony_context *context, colony_element to, uint32_t entry, const void *message, size_t length);

/* The same. Smaller priority values run first on the receiver's PE; colony_send() has 0. */
int colony_send_with_priority(colony_context *context, colony_element to, uint32_t entry, const void *message,
                              size_t length, int32_t priority);

/* The same, after some nanoseconds. */
int colony_send_after(colony_context *context, uint64_t delay_ns, colony_element to, uint32_t entry,
                      const void *message, size_t length);

/* Sends a buffer of colony_buffer_new() as it is: inside a process without a copy. Takes and frees the buffer always. */
int colony_send_buffer(colony_context *context, colony_element to, uint32_t entry, colony_buffer *message);

/* Sends a message to every element of an array. All elements get the array's broadcasts in one order. */
int colony_broadcast(colony_context *context, colony_array to, uint32_t entry, const void *message, size_t length);

/* Sends a message to `count` elements of an array. */
int colony_multicast(colony_context *context, colony_array to, const colony_index *indices, size_t count,
                     uint32_t entry, const void *message, size_t length);

/* ---- Reductions, quiescence ---- */

/*
 * Contributes `count` values to the next reduction of this object's array. Every element contributes once to each
 * reduction, with as many values (a gather: any number), one type, one operation and one target. 0 values are a barrier.
 */
int colony_contribute(colony_context *context, uint32_t type, uint32_t op, const void *values, size_t count,
                      colony_target target);

/* Calls `quiet` of an element once no message is under way and no PE has anything to run. */
int colony_when_quiet(colony_context *context, colony_element element);

/* ---- Migration ---- */

/* Moves this object to another PE when its callback has returned. */
int colony_migrate_to(colony_context *context, uint32_t pe);

/*
 * This object is ready for load balancing. When all objects have said so, objects may migrate, and `resume` is called
 * on each of them. Groups and objects of colony_create_one() take no part.
 */
int colony_at_sync(colony_context *context);

/* ---- Buffers ---- */

/* An empty buffer with space for some bytes; NULL if there is no memory. */
colony_buffer *colony_buffer_new(size_t capacity);
void colony_buffer_free(colony_buffer *buffer);

/* Adds bytes at the end. */
int colony_buffer_write(colony_buffer *buffer, const void *bytes, size_t length);

/* Adds bytes of value 0 and returns where they begin, to be written there; NULL on failure. Valid until the next call. */
void *colony_buffer_extend(colony_buffer *buffer, size_t length);

/* The bytes so far and their number. */
const void *colony_buffer_data(const colony_buffer *buffer);
size_t colony_buffer_length(const colony_buffer *buffer);

#ifdef __cplusplus
}
#endif

#endif
