/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of a generation with beams. Its best answer is the generation's
 * output, and goes the way of all tokens, when it comes: at the end. The others
 * are kept beside it, with their text. */
#include <string.h>

#include "common/base/alloc.h"
#include "router/core/core_priv.h"

bt_status_t bt_gen_make_beams(const bt_core_t *core, bt_gen_t *gen,
                              const bt_sched_beam_params_t *params)
{
    const uint32_t n_others = params->n_returned - 1;
    bool has_workers = false;
    bool has_beams = false;

    BT_LIST_FOR_EACH_ENTRY(const bt_sched_worker_t, worker,
                           &core->table.candidates, link) {
        has_workers = true;
        has_beams = has_beams || ((worker->roles & BT_SCHED_BEAMS) != 0);
    }
    if (has_workers && !has_beams) {
        return BT_ERR_UNSUPPORTED;
    }
    gen->beams.params = *params;
    if (n_others == 0) {
        return BT_OK;
    }
    gen->beams.others = bt_calloc(n_others, sizeof(*gen->beams.others));
    gen->beams.texts = bt_calloc(n_others, sizeof(*gen->beams.texts));
    return ((gen->beams.others != NULL) && (gen->beams.texts != NULL))
               ? BT_OK
               : BT_ERR_NO_MEMORY;
}

void bt_gen_free_beams(bt_gen_t *gen)
{
    for (uint32_t i = 0;
         (gen->beams.texts != NULL) && (i + 1 < gen->beams.params.n_returned);
         i++) {
        bt_gen_rows_unref(gen->beams.others[i].rows);
        bt_free(gen->beams.others[i].ids);
        bt_strbuf_fini(&gen->beams.texts[i]);
    }
    bt_free(gen->beams.others);
    bt_free(gen->beams.texts);
}

uint64_t bt_gen_blocks(const bt_gen_t *gen, const bt_kv_need_t *need)
{
    const uint64_t n_tokens = (uint64_t)gen->prompt->n + gen->max_new;
    const uint64_t n = bt_kv_need_blocks(need, n_tokens);
    const uint64_t n_whole =
        gen->prompt->n - gen->prompt->n % need->tokens_per_block;

    return n + (bt_gen_seats(gen) - 1) * (n - bt_kv_need_blocks(need, n_whole));
}

static bool wants_logprobs(const bt_gen_t *gen)
{
    return (gen->rows != NULL) &&
           ((gen->rows->wants.what & BT_WANT_LOGPROBS) != 0);
}

static double logprob_of(const bt_msg_beam_t *m, uint32_t i)
{
    double logprob;

    memcpy(&logprob, m->logprobs + i * sizeof(logprob), sizeof(logprob));
    return logprob;
}

/* True when the message is of this request, and comes when it should. */
static bool fits(const bt_core_t *core, const bt_gen_t *gen,
                 const bt_msg_beam_t *m)
{
    const size_t bytes = wants_logprobs(gen) ? m->n_ids * sizeof(double) : 0;

    if ((m->n != gen->beams.params.n_returned) || (m->index >= m->n) ||
        (m->n_ids > gen->max_new) || (m->logprobs_bytes < bytes) ||
        ((m->finish != BT_FINISH_STOP) && (m->finish != BT_FINISH_LENGTH))) {
        return false;
    }
    for (uint32_t i = 0; i < m->n_ids; i++) {
        if (m->ids[i] >= core->config.n_vocab) {
            return false;
        }
    }
    for (uint32_t i = m->index; i + 1 < m->n; i++) { /* those came before */
        if (gen->beams.others[i].n == 0) {
            return false;
        }
    }
    return true;
}

static bt_status_t make_rows(const bt_core_t *core, const bt_gen_t *gen,
                             const bt_msg_beam_t *m, bt_gen_rows_t **rows_p)
{
    bt_status_t status =
        bt_gen_rows_create(&gen->rows->wants, gen->prompt, gen->max_new,
                           core->config.n_vocab, rows_p);

    for (uint32_t i = 0; (i < m->n_ids) && (status == BT_OK); i++) {
        const bt_score_t score = {.logprob = logprob_of(m, i)};

        status = bt_gen_rows_score(*rows_p, i, &score);
        bt_gen_rows_append(*rows_p, i, m->ids[i]);
    }
    return status;
}

/* Keeps an answer that is not the best. */
static bt_status_t keep(const bt_core_t *core, bt_gen_t *gen,
                        const bt_msg_beam_t *m)
{
    bt_gen_beam_t *beam = &gen->beams.others[m->index - 1];
    bt_strbuf_t *text = &gen->beams.texts[m->index - 1];
    const bool by_end_id = m->finish == BT_FINISH_STOP;
    bt_detok_t detok;

    if (beam->n > 0) {
        return BT_OK; /* of an attempt that was lost: equal (I1) */
    }
    bt_strbuf_init(text, SIZE_MAX / 4);
    core->ops.detok_init(&detok, core->config.tok);
    detok.shows_special = gen->detok.shows_special;
    detok.shown = gen->detok.shown;
    for (uint32_t i = 0; i < m->n_ids; i++) {
        if ((i + 1 < m->n_ids) || !by_end_id || gen->keeps_stop) {
            core->ops.detok_push(&detok, m->ids[i], text);
        }
    }
    core->ops.detok_finish(&detok, text);
    beam->ids = bt_memdup(m->ids, m->n_ids * sizeof(*m->ids));
    if ((beam->ids == NULL) || (bt_strbuf_status(text) != BT_OK) ||
        (wants_logprobs(gen) &&
         (make_rows(core, gen, m, &beam->rows) != BT_OK))) {
        return BT_ERR_NO_MEMORY;
    }
    beam->text = (text->len > 0) ? text->data : "";
    beam->text_bytes = text->len;
    beam->finish = (bt_finish_t)m->finish;
    beam->by_end_id = by_end_id;
    beam->n = m->n_ids;
    return BT_OK;
}

/* Makes the best answer the output, which ends the generation. */
static bt_status_t take_best(bt_core_t *core, bt_gen_t *gen,
                             const bt_msg_beam_t *m, uint64_t now_us)
{
    for (uint32_t i = 0; wants_logprobs(gen) && (i < m->n_ids); i++) {
        const bt_score_t score = {.logprob = logprob_of(m, i)};
        const bt_status_t status = bt_gen_rows_score(gen->rows, i, &score);

        if (status != BT_OK) {
            return status;
        }
    }
    for (uint32_t i = 0; i < m->n_ids; i++) {
        const bt_token_t token = {
            .key = m->key,
            .index = i,
            .id = m->ids[i],
            .finish = (i + 1 == m->n_ids) ? m->finish : BT_FINISH_NONE,
        };

        if (bt_gen_state_is_live(gen->state)) {
            bt_gen_token(core, gen, &token, now_us);
        }
    }
    return BT_OK;
}

void bt_gen_take_beam(bt_core_t *core, bt_gen_t *gen, const char *worker,
                      const bt_msg_beam_t *m, uint64_t now_us)
{
    bt_status_t status;

    if ((gen->beams.params.width == 0) || !fits(core, gen, m)) {
        bt_gen_fail(core, gen, 500, now_us,
                    "worker %s sent an answer of a beam search that does not "
                    "fit",
                    worker);
        return;
    }
    status =
        (m->index > 0) ? keep(core, gen, m) : take_best(core, gen, m, now_us);
    if (status != BT_OK) {
        bt_gen_fail(core, gen, 503, now_us,
                    "out of memory for the answers of this request");
    }
}
