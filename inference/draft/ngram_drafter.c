/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/draft/ngram_drafter.h"

#include <string.h>

#include "common/base/alloc.h"

/* A long prompt is indexed over several iterations: some 0.1 ms of each. */
#define INDEX_MOST 8192u
/* Tokens that are compared with the prediction at most, of an answer that was
 * begun elsewhere, and of an answer that are kept for others. */
#define RECENT 4096u

struct bt_ngram_drafter {
    bt_ngram_index_t own;
    bt_ngram_index_t prediction;
    uint32_t *predicted_ids; /* [n_predicted] */
    uint32_t n_predicted;
    bt_ngram_match_t at_predicted; /* where the prediction goes on */
    uint32_t n_followed;           /* tokens compared with it */
    uint32_t n_prompt;
    bt_ngram_corpus_t *corpus; /* borrowed; NULL: none */
};

bt_status_t bt_ngram_drafter_create(const bt_ngram_drafter_config_t *config,
                                    bt_ngram_drafter_t **drafter_p)
{
    const uint32_t n_predicted = config->n_predicted;
    bt_ngram_drafter_t *drafter = bt_calloc(1, sizeof(*drafter));
    bt_status_t status;

    if (drafter == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    status = bt_ngram_index_init(&drafter->own, config->max_tokens);
    if ((status == BT_OK) && (n_predicted > 0)) {
        status = bt_ngram_index_init(&drafter->prediction, n_predicted);
        drafter->predicted_ids =
            bt_memdup(config->predicted_ids,
                      n_predicted * sizeof(*config->predicted_ids));
        if (drafter->predicted_ids == NULL) {
            status = BT_ERR_NO_MEMORY;
        }
    }
    if (status != BT_OK) {
        bt_ngram_drafter_destroy(drafter);
        return status;
    }
    drafter->n_prompt = drafter->n_followed = config->n_prompt;
    drafter->corpus = config->corpus;
    drafter->n_predicted = n_predicted;
    *drafter_p = drafter;
    return BT_OK;
}

void bt_ngram_drafter_destroy(bt_ngram_drafter_t *drafter)
{
    if (drafter != NULL) {
        bt_ngram_index_fini(&drafter->own);
        bt_ngram_index_fini(&drafter->prediction);
        bt_free(drafter->predicted_ids);
        bt_free(drafter);
    }
}

/* Follows the prediction: token by token, and by its index after a difference.
 * Where neither finds the last tokens, one token is taken for another. */
static bt_ngram_match_t follow_prediction(bt_ngram_drafter_t *drafter,
                                          const uint32_t *tokens,
                                          uint32_t n_tokens)
{
    bt_ngram_match_t *at = &drafter->at_predicted;

    if (drafter->n_predicted == 0) {
        return (bt_ngram_match_t){0};
    }
    bt_ngram_index_append(&drafter->prediction, drafter->predicted_ids,
                          drafter->n_predicted, INDEX_MOST);
    if (n_tokens > drafter->n_followed + RECENT) {
        drafter->n_followed = n_tokens - RECENT;
    }
    for (; drafter->n_followed < n_tokens; drafter->n_followed++) {
        const uint32_t token = tokens[drafter->n_followed];

        if ((at->end < drafter->n_predicted) &&
            (drafter->predicted_ids[at->end] == token)) {
            at->n_matched++;
        } else {
            const bt_ngram_match_t match = bt_ngram_index_find(
                &drafter->prediction, drafter->predicted_ids, tokens,
                drafter->n_followed + 1);

            if (match.n_matched > 0) {
                *at = match;
                continue;
            }
            at->n_matched = 0;
        }
        at->end += (at->end < drafter->n_predicted) ? 1 : 0;
    }
    return *at;
}

static bt_draft_t propose(void *ctx, const uint32_t *tokens, uint32_t n_tokens,
                          uint32_t max, uint32_t *drafts)
{
    bt_ngram_drafter_t *drafter = ctx;
    const bt_ngram_match_t predicted =
        follow_prediction(drafter, tokens, n_tokens);
    bt_ngram_match_t own;
    bt_draft_t draft = {0};

    bt_ngram_index_append(&drafter->own, tokens, n_tokens, INDEX_MOST);
    own = bt_ngram_index_find(&drafter->own, tokens, tokens, n_tokens);
    if ((predicted.end < drafter->n_predicted) &&
        (predicted.n_matched >= own.n_matched)) {
        const uint32_t n_left = drafter->n_predicted - predicted.end;

        draft = (bt_draft_t){.n = (n_left < max) ? n_left : max,
                             .source = BT_DRAFT_PREDICTION,
                             .n_matched = predicted.n_matched};
        memcpy(drafts, &drafter->predicted_ids[predicted.end],
               draft.n * sizeof(*drafts));
    } else if (own.n_matched > 0) {
        draft = (bt_draft_t){
            .n = max, .source = BT_DRAFT_NGRAM, .n_matched = own.n_matched};
        for (uint32_t i = 0; i < max; i++) {
            const uint32_t from = own.end + i;

            drafts[i] =
                (from < n_tokens) ? tokens[from] : drafts[from - n_tokens];
        }
    }
    if (drafter->corpus != NULL) {
        const uint32_t n_matched =
            bt_ngram_corpus_find(drafter->corpus, tokens, n_tokens,
                                 draft.n_matched, max, drafts, &draft.n);

        if (n_matched > 0) {
            draft.source = BT_DRAFT_CORPUS;
            draft.n_matched = n_matched;
        }
    }
    return draft;
}

/* The end of the answer, for other requests. */
static void ended(void *ctx, const uint32_t *tokens, uint32_t n_tokens)
{
    bt_ngram_drafter_t *drafter = ctx;
    const uint32_t n = n_tokens - drafter->n_prompt;
    const uint32_t n_kept = (n < RECENT) ? n : RECENT;

    if (drafter->corpus != NULL) {
        bt_ngram_corpus_add(drafter->corpus, &tokens[n_tokens - n_kept],
                            n_kept);
    }
}

bt_drafter_t bt_ngram_drafter_hook(bt_ngram_drafter_t *drafter)
{
    return (bt_drafter_t){.propose = propose, .ctx = drafter, .ended = ended};
}
