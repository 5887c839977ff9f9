/* SPDX-License-Identifier: Apache-2.0 */
/* Delays 429 responses, so that clients that retry at once do so less often. */
#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "router/frontend/call_priv.h"

bool bt_call_hold_refusal(bt_call_t *call, bt_tenant_t *tenant,
                          const bt_api_error_t *error)
{
    const uint64_t now_us = bt_now_us();
    uint64_t hold_us;

    /* In a batch of several rows, one refused row ends the others at once. */
    if ((error->http_status != 429) || call->front->draining ||
        ((call->tally != &call->own_tally) && (call->tally->n > 1))) {
        return false;
    }
    hold_us = bt_sched_reject_delay_us(&tenant->pace, now_us);
    if (hold_us == 0) {
        return false;
    }
    call->refusal = bt_memdup(error, sizeof(*error));
    if (call->refusal == NULL) {
        return false;
    }
    bt_call_free_parts(call);
    call->tell_us = now_us + hold_us;
    bt_list_push_back(&call->front->paced, &call->paced);
    return true;
}

void bt_call_tell_refused(bt_frontend_t *front, uint64_t now_us)
{
    bt_list_t due, *pos, *tmp;

    bt_list_init(&due);
    BT_LIST_FOR_EACH(pos, tmp, &front->paced)
    {
        const bt_call_t *call = BT_CONTAINER_OF(pos, bt_call_t, paced);

        if ((call->tell_us <= now_us) || front->draining) {
            bt_list_remove(pos);
            bt_list_push_back(&due, pos);
        }
    }
    /* An answer may trigger the next request, or remove other clients. */
    while (!bt_list_empty(&due)) {
        bt_call_t *call = BT_CONTAINER_OF(due.next, bt_call_t, paced);
        bt_reply_t *reply = bt_call_take_reply(call);

        bt_list_remove(&call->paced);
        call->pinned = true;
        reply->ops->error(reply, call->refusal);
        call->pinned = false;
        bt_call_release(call);
    }
}
