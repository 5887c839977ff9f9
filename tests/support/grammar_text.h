/* SPDX-License-Identifier: Apache-2.0 */
/** @file grammar_text.h  Whether a text is in a grammar, by definition: without
 *  tables, and without the matcher's code. */
#ifndef BT_TESTS_SUPPORT_GRAMMAR_TEXT_H
#define BT_TESTS_SUPPORT_GRAMMAR_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "common/grammar/grammar.h"

#define GRAMMAR_TEXT_BYTES 319u /**< longest text */

/** True when a grammar has a text. Token edges are never taken. */
bool grammar_has_text(const bt_grammar_t *grammar, const char *text, size_t n);

#endif
