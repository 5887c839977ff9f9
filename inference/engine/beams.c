/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/engine/beams_priv.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/kv/kv_groups.h"

static uint32_t spans_for(uint32_t n_tokens, uint32_t max_new,
                          uint32_t tokens_per_block)
{
    /* The last token is never fed back. */
    return bt_kv_blocks_for((uint64_t)n_tokens + max_new - 1, tokens_per_block);
}

uint64_t bt_beams_n_blocks(uint32_t width, uint32_t n_tokens, uint32_t max_new,
                           uint32_t tokens_per_block)
{
    const uint32_t n_spans = spans_for(n_tokens, max_new, tokens_per_block);
    const uint32_t n_shared = n_tokens / tokens_per_block;

    return (max_new == 1) ? n_spans
                          : n_shared + (uint64_t)width * (n_spans - n_shared);
}

void bt_beams_destroy(bt_beams_t *beams)
{
    if (beams == NULL) {
        return;
    }
    for (uint32_t i = 0;
         (beams->seats != NULL) && (i < beams->config.params.width); i++) {
        bt_free(beams->seats[i].tokens);
        bt_free(beams->seats[i].logprobs);
        bt_free(beams->seats[i].blocks);
        bt_free(beams->seats[i].numbers);
    }
    bt_free(beams->seats);
    bt_free(beams->seat_of);
    bt_free(beams->moved_to);
    bt_free(beams->free);
    bt_free(beams->n_refs);
    bt_free(beams->answer_ids);
    bt_free(beams->answer_logprobs);
    bt_free(beams->candidates);
    bt_free(beams->list);
    bt_free(beams);
}

static bool alloc_seat(const bt_beams_t *beams, const uint32_t *prompt,
                       bt_beam_seat_t *seat)
{
    const uint32_t n = beams->config.n_tokens;

    seat->tokens =
        bt_calloc((size_t)n + beams->config.max_new, sizeof(*seat->tokens));
    seat->logprobs = bt_calloc(beams->config.max_new, sizeof(*seat->logprobs));
    seat->blocks = bt_calloc(beams->n_spans, sizeof(*seat->blocks));
    seat->numbers = bt_calloc(beams->n_spans, sizeof(*seat->numbers));
    if ((seat->tokens == NULL) || (seat->logprobs == NULL) ||
        (seat->blocks == NULL) || (seat->numbers == NULL)) {
        return false;
    }
    memcpy(seat->tokens, prompt, n * sizeof(*prompt));
    return true;
}

uint32_t bt_beams_needs(const bt_beams_t *beams)
{
    const uint32_t n =
        bt_sched_beams_needs(&beams->config.params, beams->config.n_end_ids);

    return (n < beams->config.n_vocab) ? n : beams->config.n_vocab;
}

static bool alloc_arrays(bt_beams_t *beams, const uint32_t *prompt)
{
    const uint32_t width = beams->config.params.width;
    const size_t n_ids = (size_t)width * beams->config.max_new;
    bool done;

    beams->seats = bt_calloc(width, sizeof(*beams->seats));
    beams->seat_of = bt_calloc(width, sizeof(*beams->seat_of));
    beams->moved_to = bt_calloc(width, sizeof(*beams->moved_to));
    beams->free = bt_calloc((size_t)beams->n_own + 1, sizeof(*beams->free));
    beams->n_refs = bt_calloc((size_t)beams->n_own + 1, sizeof(*beams->n_refs));
    beams->answer_ids = bt_calloc(n_ids, sizeof(*beams->answer_ids));
    beams->answer_logprobs = bt_calloc(n_ids, sizeof(*beams->answer_logprobs));
    beams->candidates = bt_calloc((size_t)width * bt_beams_needs(beams),
                                  sizeof(*beams->candidates));
    beams->list = bt_calloc(bt_beams_needs(beams), sizeof(*beams->list));
    done = (beams->seats != NULL) && (beams->seat_of != NULL) &&
           (beams->moved_to != NULL) && (beams->free != NULL) &&
           (beams->n_refs != NULL) && (beams->answer_ids != NULL) &&
           (beams->answer_logprobs != NULL) && (beams->candidates != NULL) &&
           (beams->list != NULL);
    for (uint32_t i = 0; done && (i < width); i++) {
        done = alloc_seat(beams, prompt, &beams->seats[i]);
    }
    return done;
}

bt_status_t bt_beams_create(const bt_beams_config_t *config,
                            bt_beams_t **beams_p)
{
    bt_beams_t *beams = bt_calloc(1, sizeof(*beams));

    if (beams == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    beams->config = *config;
    beams->config.tokens = NULL;
    beams->n_spans =
        spans_for(config->n_tokens, config->max_new, config->tokens_per_block);
    beams->n_shared = config->n_tokens / config->tokens_per_block;
    beams->n_own =
        (uint32_t)bt_beams_n_blocks(config->params.width, config->n_tokens,
                                    config->max_new, config->tokens_per_block) -
        beams->n_shared;
    if (!alloc_arrays(beams, config->tokens)) {
        bt_beams_destroy(beams);
        return BT_ERR_NO_MEMORY;
    }
    *beams_p = beams;
    return BT_OK;
}

uint32_t bt_beams_width(const bt_beams_t *beams)
{
    return beams->config.params.width;
}

uint32_t bt_beams_n_answers(const bt_beams_t *beams)
{
    return beams->search.n_answers;
}

bt_beams_answer_t bt_beams_answer(const bt_beams_t *beams, uint32_t i)
{
    const bt_sched_beam_answer_t *answer = &beams->search.answers[i];
    const size_t at = (size_t)answer->slot * beams->config.max_new;

    return (bt_beams_answer_t){
        .ids = beams->answer_ids + at,
        .logprobs = beams->answer_logprobs + at,
        .n = answer->length,
        .ends = answer->ends,
    };
}
