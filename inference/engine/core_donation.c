/* SPDX-License-Identifier: Apache-2.0 */
/* Core donation: cores that other workers want, and cores of others that are
 * wanted here (common/sched/sched_pipeline.h). */
#include "common/base/clock.h"
#include "common/sched/sched_pipeline.h"
#include "inference/engine/engine_priv.h"

/* Requests for cores are renewed before each iteration; none takes longer than
 * this until the next. */
#define WANTED_NS UINT64_C(300000000)

static bool waits_too_long(const bt_engine_t *engine, uint64_t now_us)
{
    BT_LIST_FOR_EACH_ENTRY(const bt_sched_seq_t, seq, &engine->running,
                           turn.link) {
        const bt_sched_work_t work = {.since_us = seq->turn.since_us,
                                      .whole_us = seq->whole_us};

        if (bt_sched_seq_has_chunks(seq) && bt_sched_seq_may_run(seq) &&
            bt_sched_wants_cores(&work, now_us)) {
            return true;
        }
    }
    return false;
}

void bt_engine_want_cores(bt_engine_t *engine)
{
    const bt_engine_config_t *config = &engine->config;

    if (config->want_cores != NULL) {
        const uint64_t now_ns = bt_now_ns();

        config->want_cores(
            config->cores_ctx,
            waits_too_long(engine, now_ns / 1000) ? now_ns + WANTED_NS : 0);
    }
}

/* True when this worker can donate without delaying others: all its sequences
 * generate, and there is a seat for one more. */
static bool may_give_way(const bt_engine_t *engine)
{
    uint32_t n = 0;

    BT_LIST_FOR_EACH_ENTRY(const bt_sched_seq_t, seq, &engine->running,
                           turn.link) {
        n++;
        if (bt_sched_seq_has_chunks(seq)) {
            return false;
        }
    }
    return (n > 0) && (n < engine->config.max_seqs);
}

void bt_engine_pace(bt_seq_t *seq)
{
    if ((seq->itl_us > 0) && (seq->paced_us == 0)) {
        seq->paced_us = bt_now_us();
        seq->n_unpaced = seq->n_drawn;
    }
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return (a < b) ? a : b;
}

/* Minimum over all running sequences; a sequence without a target of its own
 * can spare the rest of the engine's target in each iteration. */
static uint64_t least_spare_us(const bt_engine_t *engine, uint64_t step_us,
                               uint64_t now_us)
{
    const uint64_t all_us = engine->chunk.itl_us;
    const uint64_t others_us = (step_us < all_us) ? all_us - step_us : 0;
    uint64_t least_us = UINT64_MAX;

    BT_LIST_FOR_EACH_ENTRY(const bt_seq_t, seq, &engine->running,
                           sched.turn.link) {
        const bt_sched_itl_progress_t pace = {
            .itl_us = seq->itl_us,
            .spent_us = (now_us > seq->paced_us) ? now_us - seq->paced_us : 0,
            .n_tokens = seq->n_drawn - seq->n_unpaced,
        };

        least_us = min_u64(least_us, (seq->itl_us > 0)
                                         ? bt_sched_spare_us(&pace, step_us)
                                         : others_us);
    }
    return least_us;
}

void bt_engine_give_way(bt_engine_t *engine, bt_report_t *report)
{
    const bt_engine_config_t *config = &engine->config;
    const uint64_t step_us = engine->last_step_ns / 1000;
    uint64_t until_ns;
    uint64_t now_ns;
    uint64_t us;

    if ((config->cores_wanted == NULL) || (engine->last_step_ns == 0) ||
        ((until_ns = config->cores_wanted(config->cores_ctx)) == 0)) {
        return;
    }
    now_ns = bt_now_ns();
    if ((until_ns <= now_ns) || (until_ns > now_ns + WANTED_NS) ||
        !may_give_way(engine)) {
        return;
    }
    us = bt_sched_donation_us(step_us,
                              least_spare_us(engine, step_us, now_ns / 1000));
    if (us > 0) {
        atomic_store_explicit(&engine->busy, false, memory_order_relaxed);
        bt_ring_wait_us(engine->inbox, us);
        atomic_store_explicit(&engine->busy, true, memory_order_relaxed);
        bt_engine_mark(engine);
        report->yielded_ns = bt_now_ns() - now_ns;
    }
}
