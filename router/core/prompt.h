/* SPDX-License-Identifier: Apache-2.0 */
/** @file prompt.h
 *
 * The tokens of a prompt, held once: by the call that brought it and by each
 * generation that is made of it, however many answers are asked for and whether
 * they wait, run or run again.
 *
 * Threads: it never changes; references may be given up on any thread.
 */
#ifndef BT_ROUTER_CORE_PROMPT_H
#define BT_ROUTER_CORE_PROMPT_H

#include <stdatomic.h>
#include <stdint.h>

#include "common/base/status.h"

typedef struct bt_prompt {
    atomic_uint n_refs;
    uint32_t n;       /**< tokens */
    uint32_t *tokens; /**< owned */
} bt_prompt_t;

/** @param [in] tokens  n of them, of bt_calloc() or the like; the prompt's on
 *                      success
 *  @param [out] prompt_p  with one reference, the caller's
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_prompt_create(uint32_t *tokens, uint32_t n,
                                           bt_prompt_t **prompt_p);
/** One reference more. @return @a prompt */
bt_prompt_t *bt_prompt_ref(bt_prompt_t *prompt);
/** One less; the last one frees it. NULL is allowed. */
void bt_prompt_unref(bt_prompt_t *prompt);

#endif
