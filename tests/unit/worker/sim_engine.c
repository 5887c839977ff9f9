/* SPDX-License-Identifier: Apache-2.0 */
/* Time, the model's vocabulary and an engine without a thread. */
#include "tests/unit/worker/sim.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"

/* ---- clock ---- */

uint64_t bt_now_ns(void)
{
    return sim.now_ns;
}

/* ---- model: only its vocabulary is asked for ---- */

const bt_hparams_t *bt_model_hparams(const bt_model_t *model)
{
    static const bt_hparams_t hp = {.n_vocab = SIM_VOCAB};

    (void)model;
    return &hp;
}

/* ---- the sequence that everybody computes ---- */

static uint64_t sim_mix(uint64_t hash, uint32_t token)
{
    hash = (hash ^ (token + 1)) * 0x9E3779B97F4A7C15u;
    return hash ^ (hash >> 29);
}

static uint64_t sim_hash(const uint32_t *tokens, uint32_t n)
{
    uint64_t hash = 1;

    for (uint32_t i = 0; i < n; i++) {
        hash = sim_mix(hash, tokens[i]);
    }
    return hash;
}

uint32_t sim_draw(const uint32_t *tokens, uint32_t n)
{
    return (uint32_t)((sim_hash(tokens, n) >> 17) % SIM_VOCAB);
}

/* ---- engine ---- */

static uint8_t *sim_slot(const sim_node_t *node, const bt_seq_t *seq,
                         uint32_t layer, uint32_t pos)
{
    return bt_worker_block(&node->w, seq->blocks[pos / SIM_T]) +
           (size_t)(layer * SIM_T + pos % SIM_T) * SIM_LAYER_SLOT;
}

/* The first layers of all known positions and n_new more. */
static void sim_layers(sim_node_t *node, const bt_seq_t *seq, uint32_t n_new,
                       uint32_t n_layers)
{
    uint64_t hash = 1;

    for (uint32_t pos = 0; pos < seq->sched.n_computed + n_new; pos++) {
        hash = sim_mix(hash, seq->tokens[pos]);
        for (uint32_t i = 0; i < n_layers; i++) {
            const uint64_t values[] = {hash, sim_mix(hash, i)};
            uint8_t *slot = sim_slot(node, seq, i, pos);

            if (pos < seq->sched.n_computed) {
                assert_memory_equal(slot, values, SIM_LAYER_SLOT);
            } else {
                memcpy(slot, values, SIM_LAYER_SLOT);
            }
        }
    }
}

static void sim_item(sim_report_t *r, bt_report_kind_t kind, bt_seq_t *seq,
                     bt_finish_t finish)
{
    bt_report_item_t *item = &r->report.items[r->report.n_items++];

    *item = (bt_report_item_t){.kind = kind,
                               .seq = seq,
                               .n_computed = seq->sched.n_computed,
                               .finish = finish};
    if (kind == BT_REPORT_TOKEN) {
        item->token = seq->tokens[seq->sched.n_tokens - 1];
        item->index = seq->first_index + seq->n_drawn - 1;
    }
}

static bt_finish_t sim_token(sim_report_t *r, bt_seq_t *seq)
{
    const uint32_t n = seq->sched.n_tokens;
    bt_finish_t finish = BT_FINISH_NONE;

    seq->tokens[n] = sim_draw(seq->tokens, n);
    seq->sched.n_tokens++;
    seq->n_drawn++;
    if (seq->tokens[n] == SIM_END_ID) {
        finish = BT_FINISH_STOP;
    } else if (seq->n_drawn == seq->max_new) {
        finish = BT_FINISH_LENGTH;
    }
    sim_item(r, BT_REPORT_TOKEN, seq, finish);
    return finish;
}

/* What one sequence does in an iteration. @return true when it leaves */
static bool sim_seq_step(sim_node_t *node, sim_report_t *r, bt_seq_t *seq,
                         bt_finish_t *finish_p)
{
    const uint32_t left = seq->sched.n_tokens - seq->sched.n_computed;
    uint32_t n_new = left;

    if (atomic_load(&seq->cancel)) {
        *finish_p = BT_FINISH_CANCELED;
        return true;
    }
    if (node->engine.broken) {
        *finish_p = BT_FINISH_ERROR;
        return true;
    }
    if (left > SIM_BUDGET) {
        n_new = SIM_BUDGET - (seq->sched.n_computed + SIM_BUDGET) % SIM_T;
    }
    sim_layers(node, seq, n_new, SIM_LAYERS);
    seq->sched.n_computed += n_new;
    seq->n_iterations++;
    if (n_new > 1) {
        sim_item(r, BT_REPORT_CHUNK, seq, BT_FINISH_NONE);
        r->report.n_context_tokens += n_new;
    }
    *finish_p = BT_FINISH_NONE;
    if (n_new < left) {
        return false;
    }
    *finish_p = sim_token(r, seq);
    return (*finish_p != BT_FINISH_NONE) || seq->leave_after_first;
}

/* @return true when somebody waits for them */
static bool sim_show_layers(sim_node_t *node)
{
    const bt_engine_t *engine = &node->engine;
    bool shown = false;

    for (uint32_t i = 0; i < SIM_MAX_SEQS; i++) {
        bt_seq_t *seq = engine->seqs[i];
        const uint32_t n_layers =
            1 + (uint32_t)(engine->iteration + i) % SIM_LAYERS;
        uint32_t left;

        if ((seq == NULL) || !seq->tell_layers || engine->broken ||
            atomic_load(&seq->cancel)) {
            continue;
        }
        left = seq->sched.n_tokens - seq->sched.n_computed;
        if (left <= SIM_BUDGET) {
            sim_layers(node, seq, left, n_layers);
            atomic_store(&seq->n_layers, n_layers);
            shown = true;
        }
    }
    return shown;
}

bool sim_half_iterate(sim_node_t *node)
{
    bt_engine_t *engine = &node->engine;

    if ((engine->n_halves == 0) && !sim_show_layers(node)) {
        return false;
    }
    /* One round to post them, one to send them. */
    return ++engine->n_halves <= 2;
}

/* One iteration; its report waits until the worker asks for it. */
void sim_iterate(sim_node_t *node)
{
    bt_engine_t *engine = &node->engine;
    sim_report_t *r = bt_calloc(1, sizeof(*r));

    assert_non_null(r);
    r->report.items = r->items;
    engine->n_halves = 0;
    r->report.iteration = ++engine->iteration;
    r->report.status = engine->broken ? BT_ERR_DEVICE : BT_OK;
    for (uint32_t i = 0; i < SIM_MAX_SEQS; i++) {
        bt_finish_t finish;

        if ((engine->seqs[i] != NULL) &&
            sim_seq_step(node, r, engine->seqs[i], &finish)) {
            sim_item(r, BT_REPORT_LEFT, engine->seqs[i], finish);
            engine->seqs[i] = NULL;
        }
    }
    if (r->report.n_items == 0) {
        bt_free(r);
        return;
    }
    bt_list_push_back(&engine->reports, &r->link);
}

bt_status_t bt_engine_submit(bt_engine_t *engine, bt_seq_t *seq)
{
    if (engine->n_inside == SIM_MAX_SEQS) {
        return BT_ERR_BUSY;
    }
    for (uint32_t i = 0; i < SIM_MAX_SEQS; i++) {
        if (engine->seqs[i] == NULL) {
            engine->seqs[i] = seq;
            engine->n_inside++;
            return BT_OK;
        }
    }
    return BT_ERR_BUSY;
}

void bt_engine_cancel(bt_seq_t *seq)
{
    atomic_store(&seq->cancel, true);
}

bt_report_t *bt_engine_next(bt_engine_t *engine)
{
    sim_report_t *r;

    if (bt_list_empty(&engine->reports)) {
        return NULL;
    }
    r = BT_CONTAINER_OF(engine->reports.next, sim_report_t, link);
    bt_list_remove(&r->link);
    for (uint32_t i = 0; i < r->report.n_items; i++) {
        engine->n_inside -= (r->items[i].kind == BT_REPORT_LEFT) ? 1 : 0;
    }
    return &r->report;
}

void bt_engine_recycle(bt_engine_t *engine, bt_report_t *report)
{
    (void)engine;
    bt_free(BT_CONTAINER_OF(report, sim_report_t, report));
}

uint64_t bt_engine_busy_since_ns(const bt_engine_t *engine)
{
    (void)engine;
    return 0;
}

int bt_engine_fd(const bt_engine_t *engine)
{
    (void)engine;
    return -1;
}

bool bt_engine_sleep_prepare(bt_engine_t *engine)
{
    return bt_list_empty(&engine->reports);
}

void bt_engine_sleep_done(bt_engine_t *engine)
{
    (void)engine;
}
