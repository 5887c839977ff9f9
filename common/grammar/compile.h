/* SPDX-License-Identifier: Apache-2.0 */
/** @file compile.h
 *
 * Compiles what clients describe an answer with into a program (grammar.h).
 *
 * Threads: pure; any number of compilations at a time.
 */
#ifndef BT_COMMON_GRAMMAR_COMPILE_H
#define BT_COMMON_GRAMMAR_COMPILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/grammar/compiler.h"
#include "common/grammar/grammar.h"

#define BT_GRAMMAR_TEXT_BYTES 65536u /**< most bytes of a description */
/** Most bytes of a structural tag, which may have the schemas of many tools. */
#define BT_GRAMMAR_TAG_BYTES (1u << 20)

typedef enum bt_grammar_kind {
    BT_GRAMMAR_JSON_OBJECT, /**< any JSON object; no text */
    BT_GRAMMAR_JSON_SCHEMA,
    BT_GRAMMAR_REGEX,
    BT_GRAMMAR_CHOICE, /**< JSON array of strings */
    BT_GRAMMAR_EBNF,   /**< GBNF of llama.cpp, and XGrammar's EBNF */
    BT_GRAMMAR_LARK,   /**< Lark's, with llguidance's %json (lark.h) */
    BT_GRAMMAR_STRUCTURAL_TAG,
} bt_grammar_kind_t;

typedef struct bt_grammar_source {
    bt_grammar_kind_t kind;
    bool compact; /**< JSON without white space between tokens */
    bool lenient; /**< JSON Schema: a keyword that is not known, and a format
                       that is not known, are annotations; of %json in Lark,
                       too */
    const char *text;
    size_t bytes;
} bt_grammar_source_t;

/**
 * Compiles a description.
 *
 * @param [out] program_p  For bt_free(), at most BT_GRAMMAR_MAX_BYTES.
 * @param [out] why        On failure a sentence for the user, with a JSON
 *         pointer or an offset.
 * @retval BT_ERR_INVALID_PARAM  The text is wrong.
 * @retval BT_ERR_UNSUPPORTED    Right, but cannot be held exactly.
 * @retval BT_ERR_TOO_LARGE      Over a limit, or over BT_GRAMMAR_FUEL.
 * @retval BT_ERR_NO_MEMORY      Or the task of the thread is canceled (task.h).
 */
BT_MUST_CHECK bt_status_t bt_grammar_compile(const bt_grammar_source_t *source,
                                             uint8_t **program_p,
                                             size_t *bytes_p, char *why,
                                             size_t why_bytes);

#endif
