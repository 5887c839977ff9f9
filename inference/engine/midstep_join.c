/* SPDX-License-Identifier: Apache-2.0 */
/* Mid-step joins: sequences that enter the running iteration. */
#include "common/base/clock.h"
#include "inference/engine/engine_priv.h"

/* True for a sequence with one token to compute and no followers. Any other
 * sequence begins with the next iteration, or preempts this one
 * (layer_preemption.c). */
static bool is_ready(const bt_engine_t *engine, const bt_seq_t *seq)
{
    return (seq->sched.n_tokens - seq->sched.n_computed == 1) &&
           bt_list_empty(&seq->followers) && !bt_engine_is_canceled(seq) &&
           bt_sched_seq_has_room(&seq->sched) &&
           (engine->whole.n_planned < engine->config.max_seqs);
}

uint32_t bt_engine_take_late(void *engine_p, uint32_t n_layers)
{
    bt_engine_t *engine = engine_p;
    uint32_t n = 0;

    if (!bt_sched_midstep_join_may(&engine->late, n_layers)) {
        return 0;
    }
    while (n < BT_MODEL_MAX_LATE) {
        bt_seq_t *seq = bt_engine_pop(engine);

        if (seq == NULL) {
            break;
        }
        bt_engine_take_in(engine, seq);
        if (!is_ready(engine, seq)) {
            continue;
        }
        seq->late_ns = bt_now_ns();
        engine->whole.plan[engine->whole.n_planned] = (bt_sched_item_t){
            .seq = &seq->sched, .n_new = 1, .last_chunk = true};
        bt_engine_lay_item(engine, engine->whole.n_planned);
        engine->whole.n_planned++;
        n++;
    }
    if (n > 0) {
        bt_sched_midstep_join_spend(&engine->late, n_layers);
    }
    return n;
}
