/* SPDX-License-Identifier: Apache-2.0 */
/** @file prompt.h
 *
 * Reference-counted tokens of a prompt. The call that brought the prompt and
 * all generations made from it share one copy, whether they wait, run or are
 * retried.
 *
 * Threads: immutable; references may be dropped on any thread.
 */
#ifndef BT_ROUTER_CORE_PROMPT_H
#define BT_ROUTER_CORE_PROMPT_H

#include <stdatomic.h>
#include <stdint.h>

#include "common/base/status.h"

typedef struct bt_prompt {
    atomic_uint n_refs;
    uint32_t n;       /**< number of tokens */
    uint32_t *tokens; /**< owned */
} bt_prompt_t;

/** Creates a prompt.
 *  @param [in] tokens  n tokens, allocated by bt_calloc() or the like; owned by
 *    the prompt on success
 *  @param [out] prompt_p  prompt with one reference, the caller's
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_prompt_create(uint32_t *tokens, uint32_t n,
                                           bt_prompt_t **prompt_p);
/** Adds a reference. @return @a prompt */
bt_prompt_t *bt_prompt_ref(bt_prompt_t *prompt);
/** Drops a reference; the last one frees the prompt. NULL is allowed. */
void bt_prompt_unref(bt_prompt_t *prompt);

#endif
