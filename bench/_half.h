/* SPDX-License-Identifier: Apache-2.0 */
/** @file _half.h  Helpers of the C parts of benchmarks, which read one command
 *  a line from standard input and answer each with one line of JSON. */
#ifndef BT_BENCH_HALF_H
#define BT_BENCH_HALF_H

#include <stdint.h>

#include "bench/_limits.h"
#include "kernels/kernels.h"

#define BT_HALF_MAX_WORDS 12u

/** Ends the program with a message and @a status (may be BT_OK). */
_Noreturn void bt_half_die(bt_status_t status, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/** Ends the program if @a status is not BT_OK. */
void bt_half_must(bt_status_t status, const char *what);
/** Allocates zeroed host memory, or ends the program. */
void *bt_half_zeros(size_t n, size_t bytes);

/** Parses an integer in @a min .. @a max, or ends the program. */
uint32_t bt_half_number(const char *text, uint32_t min, uint32_t max);

/** Reads a command. @return its number of words, 0 at the end of the input. The
 *  words are valid until the next call. */
uint32_t bt_half_command(const char *words[BT_HALF_MAX_WORDS]);

/** Runs the command `limit NAME MS`: measures and prints {"limit", "isa",
 *  "best", "median"}; isa is null if the CPU lacks the instructions. */
void bt_half_limit(bt_limits_t *limits, const char *name, uint32_t ms);

/** Allocates a KV cache of one rank and @a n_blocks blocks in back-end
 *  memory. */
bt_kv_view_t bt_half_kv(bt_backend_t *be, bt_kv_type_t type, uint32_t n_layers,
                        uint32_t n_kv_heads, uint32_t head_dim,
                        uint32_t tokens_per_block, uint32_t n_blocks);

/** Returns a random number in 0 .. n-1 by splitmix64 (Steele, Lea, Flood). */
uint32_t bt_half_random(uint64_t *state, uint32_t n);

#endif
