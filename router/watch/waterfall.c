/* SPDX-License-Identifier: Apache-2.0 */
#include "router/watch/waterfall.h"

#include "common/base/status.h"

const char *bt_place_name(bt_place_t at)
{
    static const char *const names[] = {
        [BT_AT_ROUTER] = "router",
        [BT_AT_PREFILL] = "prefill",
        [BT_AT_DECODE] = "decode",
    };

    return names[at];
}

/* Takes at most the time that is left. */
static uint64_t cut(uint64_t us, uint64_t *left_us)
{
    const uint64_t taken = (us < *left_us) ? us : *left_us;

    *left_us -= taken;
    return taken;
}

static void add(bt_waterfall_t *w, const char *name, bt_place_t at, uint64_t us,
                uint64_t *at_us)
{
    if (us == 0) {
        return;
    }
    BT_ASSERT(w->n < BT_WATERFALL_PHASES);
    w->phases[w->n++] = (bt_phase_t){
        .name = name, .at = at, .start_us = *at_us, .length_us = us};
    *at_us += us;
}

void bt_waterfall_of(const bt_ledger_t *l, bt_waterfall_t *waterfall_p)
{
    uint64_t left_us = l->handover_us;
    const uint64_t grant_us = cut(l->grant_wait_us, &left_us);
    const uint64_t tail_us = cut(l->transfer_tail_us, &left_us);
    const uint64_t join_us = cut(l->join_wait_us, &left_us);
    bt_waterfall_t w = {0};
    uint64_t at_us = 0;

    add(&w, "parse", BT_AT_ROUTER, l->parse_us, &at_us);
    add(&w, "tokenize", BT_AT_ROUTER, l->tokenize_us, &at_us);
    add(&w, "queue", BT_AT_ROUTER, l->queue_us, &at_us);
    add(&w, "prefill_queue", BT_AT_PREFILL, l->prefill_queue_us, &at_us);
    add(&w, "prefill", BT_AT_PREFILL, l->prefill_us, &at_us);
    if (l->prefill_us > 0) {
        w.phases[w.n - 1].n_chunks = l->n_chunks;
    }
    add(&w, (l->ttft_us > 0) ? "first_token" : "rest", BT_AT_ROUTER,
        l->first_token_us, &at_us);
    add(&w, "grant_wait", BT_AT_PREFILL, grant_us, &at_us);
    add(&w, "kv_transfer", BT_AT_PREFILL, tail_us, &at_us);
    add(&w, "join_wait", BT_AT_DECODE, join_us, &at_us);
    add(&w, (l->n_output > 1) ? "second_token" : "rest", BT_AT_DECODE, left_us,
        &at_us);
    add(&w, "decode", BT_AT_DECODE, l->decode_us, &at_us);
    *waterfall_p = w;
}
