/* SPDX-License-Identifier: Apache-2.0 */
/** @file compiler.h
 *
 * Memory, budget and first error of one grammar compilation.
 *
 * A compilation is a chain of many small steps. Each of them takes the
 * compiler, spends from its budget and allocates from its arena; the first
 * failure is kept, and from then on every step does nothing and returns NULL, 0
 * or false. So a caller builds a whole tree and looks at the status once.
 *
 * The budget counts steps, not time: a text is accepted or refused on every
 * machine alike.
 *
 * A compilation polls the task of its thread (task.h): the pool's shorter jobs
 * run meanwhile, and one whose client has left ends within 2 ms.
 *
 * Threads: one compiler belongs to one thread.
 */
#ifndef BT_COMMON_GRAMMAR_COMPILER_H
#define BT_COMMON_GRAMMAR_COMPILER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define BT_GRAMMAR_WHY_BYTES 512

/** Steps of a compilation. A step is about one edge of an automaton; the
 *  budget is some 50 ms of one core. */
#define BT_GRAMMAR_FUEL 4000000u
/** Steps between two polls of the thread's task (task.h): some 10 us. A power
 *  of two. */
#define BT_GRAMMAR_POLL_STEPS 1024u
/** Most bytes of a compilation's arenas together: with the text and the program
 *  it takes less than 16 MiB. */
#define BT_GRAMMAR_MAX_ARENA (14u << 20)

typedef struct bt_grammar_arena bt_grammar_arena_t;

typedef struct bt_grammar_compiler bt_grammar_compiler_t;

struct bt_grammar_compiler {
    uint64_t fuel;                  /**< steps left */
    bt_status_t status;             /**< first failure; BT_OK: none */
    char why[BT_GRAMMAR_WHY_BYTES]; /**< sentence for the user, on failure */
    bt_grammar_arena_t *arena;      /**< owned */
    bt_grammar_compiler_t *whole;   /**< compiler that a scratch one works for;
                                         NULL: it is none */
    size_t arena_bytes;             /**< with those of scratch ones */
    bt_grammar_arena_t *spare;      /**< owned; chunks of scratch ones that
                                         have ended */
    size_t spare_bytes;             /**< with arena_bytes at most
                                         BT_GRAMMAR_MAX_ARENA */
};

/** Initializes a compiler with BT_GRAMMAR_FUEL. Allocates nothing. */
void bt_grammar_compiler_init(bt_grammar_compiler_t *c);
/** Frees the arena with all that was allocated from it. */
void bt_grammar_compiler_fini(bt_grammar_compiler_t *c);

/** Initializes a compiler for the intermediate data of one step: it has the
 *  budget that is left, and an arena of its own, so that the step leaves only
 *  its result in the arena of @a c.
 *  @param [in] c  Outlives the scratch compiler and stays where it is; may be a
 *         scratch one. */
void bt_grammar_scratch_init(bt_grammar_compiler_t *scratch,
                             bt_grammar_compiler_t *c);
/** Gives what is left of the budget, and a failure, back to @a c and frees the
 *  arena. */
void bt_grammar_scratch_fini(bt_grammar_compiler_t *scratch,
                             bt_grammar_compiler_t *c);

/** Keeps the first failure.
 *  @param [in] status  BT_ERR_UNSUPPORTED: cannot be held exactly;
 *          BT_ERR_INVALID_PARAM: the text is wrong; BT_ERR_TOO_LARGE: over a
 *          limit; BT_ERR_NO_MEMORY */
void bt_grammar_fail(bt_grammar_compiler_t *c, bt_status_t status,
                     const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static inline bool bt_grammar_ok(const bt_grammar_compiler_t *c)
{
    return c->status == BT_OK;
}

/** Fails, for want of steps. */
void bt_grammar_spend_all(bt_grammar_compiler_t *c);
/** Lets the thread's other work run, and fails with BT_ERR_NO_MEMORY where its
 *  task is canceled, as each allocation does from then on.
 *  @return false: the compilation has failed */
bool bt_grammar_poll(bt_grammar_compiler_t *c);
/** Gives an array that is too small more elements: see bt_grammar_grow(). */
bool bt_grammar_enlarge(bt_grammar_compiler_t *c, void *array_p,
                        uint32_t *cap_p, uint32_t need, size_t size);

/** Spends steps, and polls once in BT_GRAMMAR_POLL_STEPS.
 *  @return false: the compilation has failed, perhaps by this call, with
 *          BT_ERR_TOO_LARGE */
static inline bool bt_grammar_spend(bt_grammar_compiler_t *c, uint64_t steps)
{
    uint64_t left;
    bool polls;

    if (!bt_grammar_ok(c)) {
        return false;
    }
    if (steps > c->fuel) {
        bt_grammar_spend_all(c);
        return false;
    }
    left = c->fuel - steps;
    polls = (left ^ c->fuel) >= BT_GRAMMAR_POLL_STEPS;
    c->fuel = left;
    return !polls || bt_grammar_poll(c);
}

/** Allocates zeroed memory that lives as long as the compiler.
 *  @return NULL: the compilation has failed */
void *bt_grammar_alloc(bt_grammar_compiler_t *c, size_t n, size_t size);

/** Gives an array of the arena, whose pointer is at @a array_p, at least @a
 *  need elements: where it grows, twice as many as it had or more. New bytes
 *  are zeroed.
 *  @return false: the compilation has failed; nothing changed */
static inline bool bt_grammar_grow(bt_grammar_compiler_t *c, void *array_p,
                                   uint32_t *cap_p, uint32_t need, size_t size)
{
    return (bt_grammar_ok(c) && (need <= *cap_p)) ||
           bt_grammar_enlarge(c, array_p, cap_p, need, size);
}

#endif
