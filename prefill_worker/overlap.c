/* SPDX-License-Identifier: Apache-2.0 */
/* Transfer during prefill: finished chunks are sent at once, and of the last
 * chunk finished layers, so that hardly anything is left to send when token #1
 * is there. */
#include "prefill_worker/prefill.h"

/* Interval of checks. A group of layers takes a millisecond on an accelerator
 * and 30 on a core, and each check interrupts the pass for a moment: a thousand
 * of them per second cost 3 % of it. */
#define LOOK_MIN_MS 1u
#define LOOK_MAX_MS 8u

/* Over TCP each piece is a message, so a small one costs more than it gains; a
 * chunk of 2 MiB is sent in a fraction of a millisecond. */
const bt_prefill_split_t bt_prefill_split_default = {
    .max_groups = 8, .min_piece_bytes = 32u << 10, .min_chunk_bytes = 2u << 20};

uint32_t bt_prefill_layer_group(const bt_prefill_split_t *split,
                                uint32_t n_blocks, uint32_t n_layers,
                                size_t layer_bytes)
{
    const size_t for_piece =
        (split->min_piece_bytes + layer_bytes - 1) / layer_bytes;
    const uint32_t for_groups =
        (n_layers + split->max_groups - 1) / split->max_groups;

    if ((for_piece >= n_layers) ||
        ((uint64_t)n_blocks * n_layers * layer_bytes <
         split->min_chunk_bytes)) {
        return n_layers;
    }
    return (for_piece > for_groups) ? (uint32_t)for_piece : for_groups;
}

/* Posts unposted spans of the job up to @a end, of each the layers [from, to).
 */
static bt_status_t post(const bt_prefill_job_t *pj, uint32_t end, uint32_t from,
                        uint32_t to)
{
    return bt_transfer_out_post(pj->xfer, pj->job.block_ids, pj->spans_posted,
                                end, from, to);
}

/* Spans [spans_posted, end) are ready. */
static bt_status_t post_spans(const bt_worker_t *w, bt_prefill_job_t *pj,
                              uint32_t end)
{
    bt_status_t status;

    if (end <= pj->spans_posted) { /* the decode worker may have more cached
                                    * than we have computed */
        return BT_OK;
    }
    status = post(pj, end, 0, w->n_layers);
    if (status == BT_OK) {
        pj->spans_posted = end;
    }
    return status;
}

/* Layers [layers_posted, end) of all further spans; a group's last layer
 * carries the data behind it in a block (scales). */
static bt_status_t post_layers(const bt_worker_t *w, bt_prefill_job_t *pj,
                               uint32_t end)
{
    const bt_status_t status =
        post(pj, pj->job.grower.n_most, pj->layers_posted, end);

    if (status != BT_OK) {
        return status;
    }
    pj->layers_posted = end;
    if (end == w->n_layers) {
        pj->spans_posted = pj->job.grower.n_most;
        pj->layers_posted = 0;
    }
    return BT_OK;
}

/* @return layers of the last chunk that may be sent now */
static uint32_t layers_ready(const bt_worker_t *w, const bt_prefill_job_t *pj)
{
    const bt_prefill_t *state = w->prefill;
    const uint32_t group = bt_prefill_layer_group(
        &state->split, pj->job.grower.n_most - pj->spans_posted, w->n_layers,
        w->layer_bytes);
    const uint32_t n = bt_seq_layers(&pj->job.seq);

    return (n == w->n_layers) ? n : n - n % group;
}

bt_status_t bt_prefill_post(bt_worker_t *w, bt_prefill_job_t *pj)
{
    const bt_prefill_t *state = w->prefill;
    const bool may_wait = pj->phase != BT_PREFILL_SENDING;
    const bool complete = !may_wait || (pj->n_computed == pj->job.n_tokens);
    uint32_t n_layers;

    if ((state->overlap == BT_OVERLAP_NONE) && may_wait) {
        return BT_OK;
    }
    if (pj->layers_posted == 0) {
        const bt_status_t status =
            post_spans(w, pj,
                       complete ? pj->job.grower.n_most
                                : pj->n_computed / w->tokens_per_block);

        if ((status != BT_OK) || complete) {
            return status;
        }
    }
    n_layers = complete ? w->n_layers : layers_ready(w, pj);
    if ((n_layers <= pj->layers_posted) ||
        (!complete && (state->overlap != BT_OVERLAP_LAYERS)) ||
        (pj->spans_posted == pj->job.grower.n_most)) {
        return BT_OK;
    }
    return post_layers(w, pj, n_layers);
}

uint32_t bt_prefill_look_ms(uint32_t before_ms, bool moved)
{
    if (moved || (before_ms == 0)) {
        return LOOK_MIN_MS;
    }
    return (before_ms < LOOK_MAX_MS / 2) ? 2 * before_ms : LOOK_MAX_MS;
}

void bt_prefill_stream(bt_worker_t *w)
{
    bt_prefill_t *state = w->prefill;
    const uint32_t before_ms = w->poll_ms;
    bool ends_soon = false; /* the last chunk, or soon */
    bool moved = false;

    w->poll_ms = 0;
    if (state->overlap != BT_OVERLAP_LAYERS) {
        return;
    }
    BT_LIST_FOR_EACH_ENTRY(bt_prefill_job_t, pj, &state->streaming,
                           job.claim.turn.link) {
        const uint32_t n_posted = pj->layers_posted;

        if (bt_seq_layers(&pj->job.seq) > 0) {
            bt_prefill_push(w, pj);
        }
        moved = moved || (pj->layers_posted != n_posted);
        ends_soon = ends_soon || (pj->job.n_tokens - pj->n_computed <=
                                  bt_worker_most_chunk(w));
    }
    if (ends_soon) {
        w->poll_ms = bt_prefill_look_ms(before_ms, moved);
    }
}
