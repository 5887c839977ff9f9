/* SPDX-License-Identifier: Apache-2.0 */
/** @file _half.h  Helpers of the C parts of benchmarks. Most of them read one
 *  command a line from standard input and answer each with one line of JSON. */
#ifndef BT_BENCH_HALF_H
#define BT_BENCH_HALF_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

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

/** Returns a random number in 0 .. n-1 by splitmix64 (Steele, Lea, Flood). */
uint32_t bt_half_random(uint64_t *state, uint32_t n);

/** Sorts values in ascending order. */
void bt_half_sort(uint64_t *values, size_t n);

#endif
