/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/limits.h"

void bt_limits_deny(const bt_tenant_denial_t *denial, bt_api_error_t *error_p)
{
    bt_api_error_set(error_p, 429,
                     (denial->cause == BT_TENANT_REFUSED_TOKENS) ? "tokens"
                                                                 : "requests",
                     NULL, "%s", denial->message);
    error_p->retry_after_s = denial->retry_after_s;
}

uint64_t bt_limits_tokens(const bt_intake_t *in, size_t k)
{
    const bt_prepared_prompt_t *prompt = &in->prepared.prompts[k];

    return prompt->prompt->n + (uint64_t)in->request.n * prompt->max_new;
}

bt_status_t bt_limits_check(const bt_intake_t *in, uint64_t now_us,
                            bt_api_error_t *error_p)
{
    bt_tenant_denial_t denial;
    bt_status_t status;
    uint64_t n = 0;

    for (size_t k = 0; k < in->prepared.n_prompts; k++) {
        n += bt_limits_tokens(in, k);
    }
    status = bt_tenant_check_tokens(in->tenant, n, now_us, &denial);
    if (status != BT_OK) {
        bt_limits_deny(&denial, error_p);
    }
    return status;
}
