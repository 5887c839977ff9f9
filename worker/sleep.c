/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/sleep.h"

#include "common/base/log.h"
#include "worker/admin.h"
#include "worker/worker.h"

void bt_sleep_on_order(bt_worker_t *w, const bt_msg_sleep_t *order)
{
    bt_worker_sleep_t *const sleep = &w->sleep;
    const bool is_again = (order->order == sleep->order) && sleep->is_asleep &&
                          (order->sleeps == 0); /* it could not be woken */

    if (!sleep->is_possible || ((order->order <= sleep->order) && !is_again) ||
        (sleep->is_due && (order->order <= sleep->next.order))) {
        return;
    }
    if ((order->sleeps != 0) == sleep->is_asleep) {
        sleep->order = order->order;
        if (sleep->is_due) {
            BT_LOG_INFO("stays as it is: the order before is withdrawn");
            sleep->is_due = false;
            w->stats.next_ms = 0;
        }
        return;
    }
    sleep->is_due = true;
    sleep->next = *order;
    if (order->sleeps != 0) {
        BT_LOG_INFO("to sleep by an admin command, %u requests left",
                    w->n_jobs);
        bt_admin_state_send(w);
    } else {
        BT_LOG_INFO("to wake by an admin command");
    }
}

void bt_sleep_go(bt_worker_sleep_t *sleep)
{
    if (!sleep->is_due) {
        return;
    }
    sleep->is_due = false;
    sleep->order = sleep->next.order;
    sleep->is_waking = sleep->next.sleeps == 0;
    sleep->is_asleep = !sleep->is_waking;
}

bt_status_t bt_sleep_opened(const bt_worker_t *w, const bt_gguf_t *gguf)
{
    const bool is_with_others =
        (w->sleep.hello.weights.update != 0) && (w->weights.now.update == 0);
    const bt_hash128_t before =
        is_with_others ? w->weights.base : w->sleep.hello.model;

    if (!w->sleep.is_waking ||
        bt_hash128_equal(bt_gguf_identity(gguf), before)) {
        return BT_OK;
    }
    BT_LOG_ERROR("model %s is not the one of before the sleep",
                 w->config->model);
    return BT_ERR_MISMATCH;
}

bool bt_sleep_failed(bt_worker_t *w, bt_status_t status)
{
    bt_worker_sleep_t *const sleep = &w->sleep;

    if (!sleep->is_waking || (status == BT_ERR_CANCELED)) {
        return false;
    }
    if ((status != BT_ERR_NO_MEMORY) && bt_weights_failed(w, status)) {
        return true;
    }
    BT_LOG_ERROR("cannot be woken (%s): asleep again", bt_status_str(status));
    sleep->is_due = true;
    sleep->next = (bt_msg_sleep_t){.order = sleep->order, .sleeps = 1};
    return true;
}

bt_status_t bt_sleep_hello(const bt_worker_t *w, bt_strbuf_t *out)
{
    static const uint8_t no_address = 0;
    const bt_wire_rank_t rank = {
        .block_bytes = 0, .kvt = &no_address, .kvt_bytes = sizeof(no_address)};
    bt_msg_t msg = {.type = BT_MSG_HELLO, .u.hello = w->sleep.hello};
    bt_msg_hello_t *const hello = &msg.u.hello;

    hello->instance = w->instance;
    hello->role =
        ((w->roles & BT_ROLE_DECODE) != 0) ? BT_ROLE_DECODE : BT_ROLE_PREFILL;
    hello->ranks = &rank;
    hello->n_ranks = 1;
    hello->sleep_order = w->sleep.order;
    hello->flags |= BT_HELLO_ASLEEP;
    bt_wire_encode(&msg, out);
    return bt_strbuf_status(out);
}
