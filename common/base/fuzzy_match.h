/* SPDX-License-Identifier: Apache-2.0 */
/** @file fuzzy_match.h
 *
 * Fuzzy matching of misspelled names: options, request fields.
 *
 * Threads: pure functions.
 */
#ifndef BT_COMMON_BASE_FUZZY_MATCH_H
#define BT_COMMON_BASE_FUZZY_MATCH_H

#include <stdbool.h>
#include <stddef.h>

#define BT_FUZZY_MAX_BYTES 64 /**< longest name that is compared */

/** Returns the edit distance of two names of at most BT_FUZZY_MAX_BYTES;
 *  swapping two neighbours counts once. */
size_t bt_edit_distance(const char *a, size_t n_a, const char *b, size_t n_b);
/** True when a word at this distance probably means the name of @a n_meant
 *  bytes: at most a third of it differs. */
bool bt_fuzzy_is_close(size_t distance, size_t n_meant);
/**
 * Finds the nearest of @a n names to a word of @a n_word bytes.
 * @return NULL: none is near enough
 */
const char *bt_fuzzy_match(const char *word, size_t n_word,
                           const char *const *names, size_t n);

#endif
