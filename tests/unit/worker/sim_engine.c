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

uint64_t bt_thread_cpu_ns(void) /* of the same file: it is not linked */
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

bool bt_model_takes_rows(const bt_model_t *model)
{
    (void)model;
    return true;
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

uint32_t sim_draw(const uint32_t *tokens, uint32_t n, uint64_t seed)
{
    const uint64_t hash = sim_hash(tokens, n) + seed * 0xD1342543DE82EF95u;

    return (uint32_t)((hash >> 17) % SIM_VOCAB);
}

float sim_logit(const uint32_t *tokens, uint32_t n, uint32_t id)
{
    return (float)(sim_mix(sim_hash(tokens, n), id) >> 40);
}

double sim_logprob(const uint32_t *tokens, uint32_t n, uint32_t id)
{
    return -1.0 / (double)(1 + (sim_mix(sim_hash(tokens, n), id) >> 20));
}

/* ---- engine ---- */

/* The row of a position, as the real one writes it when its token is known. */
static void sim_row(const bt_seq_t *seq, uint32_t position)
{
    const bt_seq_rows_t *rows = seq->rows;
    const uint32_t n = position + 1;
    uint32_t i;

    if ((rows == NULL) || (position < rows->from) || (position < rows->done) ||
        (position - rows->from >= rows->n)) {
        return;
    }
    i = position - rows->from;
    for (uint32_t id = 0; (rows->logits != NULL) && (id < SIM_VOCAB); id++) {
        rows->logits[i * SIM_VOCAB + id] = sim_logit(seq->tokens, n, id);
    }
    if (rows->logprobs != NULL) {
        rows->logprobs[i] = sim_logprob(seq->tokens, n, seq->tokens[n]);
    }
    for (uint32_t k = 0; (rows->top_ids != NULL) && (k < rows->n_top); k++) {
        rows->top_ids[i * rows->n_top + k] = k;
        rows->top_logprobs[i * rows->n_top + k] =
            sim_logprob(seq->tokens, n, k);
    }
}

static bt_seq_t *sim_seq_of(bt_list_t *link)
{
    return BT_CONTAINER_OF(link, bt_seq_t, sched.turn.link);
}

static uint8_t *sim_block(const sim_node_t *node, uint32_t id)
{
    return node->w.kv_base + (size_t)id * node->w.block_bytes;
}

static uint8_t *sim_slot(const sim_node_t *node, const bt_seq_t *seq,
                         uint32_t layer, uint32_t pos)
{
    const bt_kv_groups_t *groups = &node->w.groups;
    const bt_kv_layer_slot_t slot = bt_kv_layer_slot(groups, layer);
    const uint32_t *row = seq->blocks + pos / SIM_T * groups->n;

    assert_int_not_equal(row[slot.group], BT_KV_NO_BLOCK);
    return sim_block(node, row[slot.group]) +
           (size_t)(slot.index * SIM_T + pos % SIM_T) * SIM_LAYER_SLOT;
}

/* Does anybody from position n on see this one in this layer? */
static bool sim_sees(const sim_node_t *node, uint32_t layer, uint32_t n,
                     uint32_t pos)
{
    const bt_kv_groups_t *groups = &node->w.groups;
    const uint32_t window =
        groups->group[bt_kv_layer_slot(groups, layer).group].window_tokens;

    return (window == 0) || (pos + window > n);
}

/* The first layers of all known positions and n_new more. */
static void sim_layers(sim_node_t *node, const bt_seq_t *seq, uint32_t n_new,
                       uint32_t n_layers)
{
    uint64_t hash = 1;

    assert_true((seq->sched.kv_limit == 0) ||
                (seq->sched.n_computed + n_new <= seq->sched.kv_limit));
    for (uint32_t pos = 0; pos < seq->sched.n_computed + n_new; pos++) {
        hash = sim_mix(hash, seq->tokens[pos]);
        for (uint32_t i = 0; i < n_layers; i++) {
            const uint64_t values[] = {hash, sim_mix(hash, i)};
            uint8_t *slot;

            if (!sim_sees(node, i, seq->sched.n_computed, pos)) {
                continue;
            }
            slot = sim_slot(node, seq, i, pos);
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

    seq->tokens[n] = sim_draw(seq->tokens, n, seq->sampling.seed);
    sim_row(seq, n - 1);
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

static void sim_leave(sim_report_t *r, bt_seq_t *seq, bt_finish_t finish)
{
    bt_list_remove(&seq->sched.turn.link);
    sim_item(r, BT_REPORT_LEFT, seq, finish);
}

/* @return true when it goes on */
static bool sim_draw_one(sim_report_t *r, bt_seq_t *seq)
{
    const bt_finish_t finish = sim_token(r, seq);

    if ((finish != BT_FINISH_NONE) || seq->leave_after_first) {
        sim_leave(r, seq, finish);
        return false;
    }
    return true;
}

/* All of a group, as the real one: in one iteration, and those that go on get
 * what the prompt's last block holds. */
static void sim_draw_all(sim_node_t *node, sim_report_t *r, bt_seq_t *seq)
{
    const uint32_t n = seq->sched.n_tokens;

    (void)sim_draw_one(r, seq);
    while (!bt_list_empty(&seq->followers)) {
        bt_seq_t *follower = sim_seq_of(seq->followers.next);

        bt_list_remove(&follower->sched.turn.link);
        bt_sched_queue_insert(&node->engine.running, &follower->sched.turn);
        if (sim_draw_one(r, follower) && (n % SIM_T != 0)) {
            assert_int_not_equal(follower->blocks[n / SIM_T],
                                 seq->blocks[n / SIM_T]);
            memcpy(sim_block(node, follower->blocks[n / SIM_T]),
                   sim_block(node, seq->blocks[n / SIM_T]),
                   node->w.block_bytes);
        }
    }
}

/* One sequence's share of an iteration, with those that it computes for. */
static void sim_item_step(sim_node_t *node, sim_report_t *r,
                          const bt_sched_item_t *item)
{
    bt_seq_t *seq = sim_seq_of(&item->seq->turn.link);
    bt_list_t *pos;
    bt_list_t *tmp;

    sim_layers(node, seq, item->n_new, SIM_LAYERS);
    for (uint32_t k = 0; k < item->n_new; k++) {
        if (seq->sched.n_computed + k + 1 < seq->sched.n_tokens) {
            sim_row(seq, seq->sched.n_computed + k);
        }
    }
    seq->sched.n_computed += item->n_new;
    seq->n_iterations++;
    if (item->n_new > 1) {
        sim_item(r, BT_REPORT_CHUNK, seq, BT_FINISH_NONE);
    }
    BT_LIST_FOR_EACH(pos, tmp, &seq->followers)
    {
        bt_seq_t *follower = sim_seq_of(pos);

        follower->sched.n_computed = seq->sched.n_computed;
        follower->n_iterations++;
        if (item->n_new > 1) {
            sim_item(r, BT_REPORT_CHUNK, follower, BT_FINISH_NONE);
        }
    }
    if (item->last_chunk) {
        sim_draw_all(node, r, seq);
    }
}

/* The canceled ones of a group go; the next one computes. */
static void sim_drop_canceled(sim_node_t *node, bt_seq_t *seq)
{
    sim_report_t *r = node->engine.next;
    bt_list_t *pos;
    bt_list_t *tmp;

    BT_LIST_FOR_EACH(pos, tmp, &seq->followers)
    {
        if (atomic_load(&sim_seq_of(pos)->cancel)) {
            sim_leave(r, sim_seq_of(pos), BT_FINISH_CANCELED);
        }
    }
    if (!atomic_load(&seq->cancel)) {
        return;
    }
    if (!bt_list_empty(&seq->followers)) {
        bt_seq_t *next = sim_seq_of(seq->followers.next);

        bt_list_remove(&next->sched.turn.link);
        BT_LIST_FOR_EACH(pos, tmp, &seq->followers)
        {
            bt_list_remove(pos);
            bt_list_push_back(&next->followers, pos);
        }
        bt_sched_queue_insert(&node->engine.running, &next->sched.turn);
    }
    sim_leave(r, seq, BT_FINISH_CANCELED);
}

/* As the engine's, of what takes a millisecond a token. */
static uint64_t sim_slack(const sim_node_t *node, const bt_sched_seq_t *seq)
{
    const uint64_t left_us = 1000ull * (seq->n_tokens - seq->n_computed);
    const bt_sched_work_t work = {
        .since_us = seq->turn.since_us,
        .deadline_us = (seq->deadline_us != 0) ? seq->deadline_us : UINT64_MAX,
        .whole_us = left_us,
        .left_us = left_us,
    };

    return bt_sched_slack_us(node->w.order, &work);
}

/* The last block, before anything of it is computed. */
static void sim_clear_tail(sim_node_t *node, const bt_seq_t *seq,
                           uint32_t n_new)
{
    const uint32_t n = node->w.groups.n;
    const uint32_t span = seq->sched.n_tokens / SIM_T;
    const uint32_t *row = seq->blocks + (size_t)span * n;

    if (seq->clear_tail && (seq->sched.n_tokens % SIM_T != 0) &&
        (span * SIM_T >= seq->sched.n_computed) &&
        (span * SIM_T < seq->sched.n_computed + n_new)) {
        for (uint32_t g = 0; g < n; g++) {
            memset(sim_block(node, row[g]), 0, node->w.block_bytes);
        }
    }
}

static void sim_take_in(sim_node_t *node, bt_list_t *link)
{
    bt_seq_t *seq = sim_seq_of(link);

    bt_list_remove(link);
    if (node->orders_prompts) {
        seq->sched.turn.slack_us = sim_slack(node, &seq->sched);
    }
    bt_sched_queue_insert(&node->engine.running, bt_sched_turn_of(link));
    if (bt_kv_copy_is_due(seq->copy[0])) {
        memcpy(sim_block(node, seq->copy[0].to),
               sim_block(node, seq->copy[0].from), node->w.block_bytes);
    }
}

/* As the real one before each iteration: who came is in, who was canceled is
 * out, and the plan is made. */
static void sim_begin(sim_node_t *node)
{
    bt_engine_t *engine = &node->engine;
    bt_list_t *pos;
    bt_list_t *tmp;

    engine->next = bt_calloc(1, sizeof(*engine->next));
    assert_non_null(engine->next);
    engine->next->report.items = engine->next->items;
    BT_LIST_FOR_EACH(pos, tmp, &engine->inbox)
    {
        sim_take_in(node, pos);
    }
    BT_LIST_FOR_EACH(pos, tmp, &engine->running)
    {
        sim_drop_canceled(node, sim_seq_of(pos));
    }
    BT_LIST_FOR_EACH(pos, tmp, &engine->running)
    {
        bt_seq_t *seq = sim_seq_of(pos);

        seq->sched.kv_limit = atomic_load(&seq->kv_limit);
        engine->n_sat_out += !bt_sched_seq_may_run(&seq->sched);
    }
    engine->n_planned =
        bt_sched_plan(&engine->running, SIM_BUDGET, SIM_T, SIM_MAX_SEQS,
                      engine->plan, &engine->next->report.n_context_tokens);
    for (uint32_t i = 0; i < engine->n_planned; i++) {
        sim_clear_tail(node, sim_seq_of(&engine->plan[i].seq->turn.link),
                       engine->plan[i].n_new);
    }
}

/* @return true when somebody waits for them */
static bool sim_show_layers(sim_node_t *node)
{
    const bt_engine_t *engine = &node->engine;
    bool shown = false;

    for (uint32_t i = 0; i < engine->n_planned; i++) {
        const bt_sched_item_t *item = &engine->plan[i];
        bt_seq_t *seq = sim_seq_of(&item->seq->turn.link);
        const uint32_t n_layers =
            1 + (uint32_t)(engine->iteration + i) % SIM_LAYERS;

        if (seq->tell_layers && item->last_chunk && !engine->broken) {
            sim_layers(node, seq, item->n_new, n_layers);
            atomic_store(&seq->n_layers, n_layers);
            shown = true;
        }
    }
    return shown;
}

bool sim_half_iterate(sim_node_t *node)
{
    bt_engine_t *engine = &node->engine;

    if (engine->next == NULL) {
        sim_begin(node);
        if (!sim_show_layers(node)) {
            return false;
        }
    }
    /* One round to post them, one to send them. */
    return ++engine->n_halves <= 2;
}

/* One iteration; its report waits until the worker asks for it. */
void sim_iterate(sim_node_t *node)
{
    bt_engine_t *engine = &node->engine;
    sim_report_t *r;
    bt_list_t *pos;
    bt_list_t *tmp;

    if (engine->next == NULL) {
        sim_begin(node);
    }
    r = engine->next;
    engine->next = NULL;
    engine->n_halves = 0;
    r->report.iteration = ++engine->iteration;
    r->report.status = engine->broken ? BT_ERR_DEVICE : BT_OK;
    for (uint32_t i = 0; (i < engine->n_planned) && !engine->broken; i++) {
        sim_item_step(node, r, &engine->plan[i]);
    }
    BT_LIST_FOR_EACH(pos, tmp, &engine->running)
    {
        bt_seq_t *seq = sim_seq_of(pos);

        while (engine->broken && !bt_list_empty(&seq->followers)) {
            sim_leave(r, sim_seq_of(seq->followers.next), BT_FINISH_ERROR);
        }
        if (engine->broken) {
            sim_leave(r, seq, BT_FINISH_ERROR);
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
    return bt_engine_submit_fanout(engine, &seq, 1);
}

bt_status_t bt_engine_submit_fanout(bt_engine_t *engine, bt_seq_t *const *seqs,
                                    uint32_t n)
{
    if (n > SIM_MAX_SEQS - engine->n_inside) {
        return BT_ERR_BUSY;
    }
    for (uint32_t i = 0; i < n; i++) {
        bt_list_init(&seqs[i]->followers);
        assert_int_equal(seqs[i]->sched.n_computed, seqs[0]->sched.n_computed);
        if (i > 0) {
            bt_list_init(&seqs[i]->sched.turn.link);
            bt_list_push_back(&seqs[0]->followers, &seqs[i]->sched.turn.link);
        }
    }
    bt_list_push_back(&engine->inbox, &seqs[0]->sched.turn.link);
    engine->n_inside += n;
    return BT_OK;
}

void bt_engine_cancel(bt_seq_t *seq)
{
    atomic_store(&seq->cancel, true);
}

void bt_engine_wake(bt_engine_t *engine)
{
    (void)engine; /* it looks in each round */
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

bool bt_engine_stop(bt_engine_t *engine, uint32_t timeout_ms)
{
    (void)engine;
    (void)timeout_ms;
    return true;
}

bool bt_engine_progress(const bt_engine_t *engine, uint64_t *marks_p)
{
    *marks_p = engine->marks;
    return engine->busy;
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
