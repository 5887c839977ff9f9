/* SPDX-License-Identifier: Apache-2.0 */
#include "router/core/prompt.h"

#include "common/base/alloc.h"

bt_status_t bt_prompt_create(uint32_t *tokens, uint32_t n,
                             bt_prompt_t **prompt_p)
{
    bt_prompt_t *prompt = bt_calloc(1, sizeof(*prompt));

    if (prompt == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    atomic_init(&prompt->n_refs, 1);
    prompt->n = n;
    prompt->tokens = tokens;
    *prompt_p = prompt;
    return BT_OK;
}

bt_prompt_t *bt_prompt_ref(bt_prompt_t *prompt)
{
    atomic_fetch_add_explicit(&prompt->n_refs, 1, memory_order_relaxed);
    return prompt;
}

void bt_prompt_unref(bt_prompt_t *prompt)
{
    /* Reads by other owners happen before the free. */
    if ((prompt != NULL) &&
        (atomic_fetch_sub_explicit(&prompt->n_refs, 1, memory_order_acq_rel) ==
         1)) {
        bt_free(prompt->tokens);
        bt_free(prompt);
    }
}
