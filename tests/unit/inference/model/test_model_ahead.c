/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that begin while the device is at the one before. */
#include "tests/unit/inference/model/families.h"

#include "inference/model/drawing.h"
#include "inference/model/sampler.h"
#include "tests/support/trap_backend.h"

#define N_PROMPTS 3u
#define N_STEPS   9u

typedef struct walk {
    rig_t rig;
    uint32_t blocks[N_PROMPTS][N_BLOCKS / 8];
    uint32_t n[N_PROMPTS]; /* tokens so far, with K and V but for the last */
    uint32_t last[N_PROMPTS];
} walk_t;

/* One of the calls: its arrays. */
typedef struct call {
    bt_forward_t fwd;
    bt_ragged_seq_t seqs[N_PROMPTS];
    uint32_t tokens[N_PROMPTS], from_ids[N_PROMPTS];
    uint32_t rows[N_PROMPTS], needs[N_PROMPTS], best_ids[N_PROMPTS];
    bt_drawing_t *drawing; /* NULL: the best ids */
} call_t;

static void open_walk(walk_t *w)
{
    const bt_backend_config_t config = {.n_threads = 2, .max_rows = MAX_ROWS};
    const bt_tiny_model_t tiny = variant(1);
    bt_gguf_t *const gguf = open_tiny(&tiny);
    rig_t host = make_rig_of(&tiny, 1, BT_KV_F16);

    *w = (walk_t){.rig = {.kv = host.kv, .n_vocab = host.n_vocab}};
    free_rig(&host);
    assert_int_equal(bt_trap_backend_open(&config, &w->rig.be), BT_OK);
    assert_int_equal(bt_model_load(gguf, w->rig.be, &default_config, why,
                                   sizeof(why), &w->rig.model),
                     BT_OK);
    bt_gguf_close(gguf);
    assert_int_equal(
        w->rig.be->ops->buffer_alloc(
            w->rig.be, N_BLOCKS * w->rig.kv.block_bytes, &w->rig.kv.base),
        BT_OK);
}

static void close_walk(walk_t *w)
{
    bt_model_destroy(w->rig.model);
    w->rig.be->ops->buffer_free(w->rig.be, w->rig.kv.base);
    bt_backend_close(w->rig.be);
}

/* Prompts of 5, 16 and 21 tokens, in any blocks. */
static void compute_prompts(walk_t *w)
{
    static const uint32_t lengths[N_PROMPTS] = {5, 16, 21};
    uint32_t tokens[32];
    float *out = bt_calloc((size_t)32 * w->rig.n_vocab, sizeof(*out));

    assert_non_null(out);
    for (uint32_t s = 0; s < N_PROMPTS; s++) {
        for (uint32_t i = 0; i < lengths[s]; i++) {
            tokens[i] = (7 * i + 31 * s + 3) % w->rig.n_vocab;
        }
        fill_blocks(w->blocks[s], s * (N_BLOCKS / 8));
        forward_range(&w->rig, tokens, 0, lengths[s], w->blocks[s], out);
        w->n[s] = lengths[s] + 1;
        w->last[s] = bt_sampler_best(
            out + (size_t)(lengths[s] - 1) * w->rig.n_vocab, w->rig.n_vocab);
    }
    bt_free(out);
}

/* The next token of each. @a ahead: by how many it is behind what is known;
 * they come in the other order then. */
static void lay(walk_t *w, call_t *c, uint32_t ahead)
{
    bt_drawing_t *const drawing = c->drawing;
    bt_sampling_t sampling = bt_sampling_default();

    memset(c, 0, sizeof(*c));
    c->drawing = drawing;
    if (drawing != NULL) {
        bt_drawing_clear(drawing);
    }
    sampling.temperature = 5.0f;
    sampling.seed = 7;
    for (uint32_t i = 0; i < N_PROMPTS; i++) {
        const uint32_t s = (ahead % 2 == 0) ? i : N_PROMPTS - 1 - i;

        c->seqs[i] = (bt_ragged_seq_t){.row = i,
                                       .n_rows = 1,
                                       .pos = w->n[s] - 1 + ahead,
                                       .blocks = w->blocks[s]};
        c->tokens[i] = (ahead == 0) ? w->last[s] : 0;
        c->from_ids[i] = (ahead == 0) ? UINT32_MAX : N_PROMPTS - 1 - i;
        c->rows[i] = i;
        c->needs[i] = (drawing == NULL) ? 1 : BT_NEEDS_NOTHING;
        if (drawing != NULL) {
            const bt_drawn_from_t from = {.sampling = &sampling,
                                          .n_tokens = w->n[s] + ahead};

            assert_true(bt_drawing_add(drawing, i, &from));
        }
    }
    c->fwd = (bt_forward_t){.seqs = c->seqs,
                            .n_seqs = N_PROMPTS,
                            .tokens = c->tokens,
                            .n_rows = N_PROMPTS,
                            .from_ids = (ahead == 0) ? NULL : c->from_ids,
                            .logit_rows = c->rows,
                            .n_logit_rows = N_PROMPTS,
                            .needs = c->needs,
                            .best_ids = c->best_ids,
                            .drawing = drawing,
                            .kv = w->rig.kv};
}

static const uint32_t *ids_of(const call_t *c)
{
    return (c->drawing == NULL) ? c->best_ids : c->drawing->ids;
}

static void finish(walk_t *w, const call_t *c)
{
    float *logits = NULL;

    assert_int_equal(bt_model_finish(w->rig.model, &c->fwd, &logits), BT_OK);
}

/* Each row is given what the row of the call before came to, whose ids the
 * host has not seen: the tokens are those of one step after the other. */
static void check_chain(bool draws)
{
    uint32_t want[N_STEPS][N_PROMPTS];
    walk_t w;
    call_t calls[2] = {0};
    float *logits = NULL;

    open_walk(&w);
    for (uint32_t i = 0; draws && (i < 2); i++) {
        assert_int_equal(
            bt_drawing_create(w.rig.n_vocab, N_PROMPTS, &calls[i].drawing),
            BT_OK);
    }
    assert_true(bt_model_chains(w.rig.model));
    assert_int_equal(bt_model_max_started(w.rig.model), 2);
    compute_prompts(&w);
    for (uint32_t k = 0; k < N_STEPS; k++) {
        lay(&w, &calls[0], 0);
        assert_int_equal(bt_model_forward(w.rig.model, &calls[0].fwd, &logits),
                         BT_OK);
        for (uint32_t s = 0; s < N_PROMPTS; s++) {
            want[k][s] = w.last[s] = ids_of(&calls[0])[s];
            w.n[s]++;
        }
    }

    compute_prompts(&w);
    lay(&w, &calls[0], 0);
    assert_int_equal(bt_model_start(w.rig.model, &calls[0].fwd), BT_OK);
    for (uint32_t k = 1; k <= N_STEPS; k++) {
        if (k < N_STEPS) {
            lay(&w, &calls[k % 2], k);
            assert_int_equal(bt_model_start(w.rig.model, &calls[k % 2].fwd),
                             BT_OK);
        }
        finish(&w, &calls[(k - 1) % 2]);
        for (uint32_t i = 0; i < N_PROMPTS; i++) {
            const uint32_t s = (k % 2 == 1) ? i : N_PROMPTS - 1 - i;

            assert_int_equal(ids_of(&calls[(k - 1) % 2])[i], want[k - 1][s]);
        }
    }
    assert_int_equal(bt_trap_most_under_way(w.rig.be), 2);
    bt_drawing_destroy(calls[0].drawing);
    bt_drawing_destroy(calls[1].drawing);
    close_walk(&w);
}

static void overlapped_pass_takes_ids_of_the_pass_before(void **state)
{
    (void)state;
    check_chain(false);
    check_chain(true);
}

/* One of which logits are wanted is finished first, and no third begins. */
static void overlapped_pass_that_cannot_start_is_refused(void **state)
{
    walk_t w;
    call_t calls[3] = {0};
    float *logits = NULL;

    (void)state;
    open_walk(&w);
    compute_prompts(&w);
    lay(&w, &calls[0], 1);
    lay(&w, &calls[1], 1);
    assert_int_equal(bt_model_start(w.rig.model, &calls[0].fwd),
                     BT_ERR_INVALID_PARAM); /* there is none before it */
    lay(&w, &calls[0], 0);
    calls[0].needs[1] = 0;
    assert_int_equal(bt_model_start(w.rig.model, &calls[0].fwd), BT_OK);
    assert_int_equal(bt_model_start(w.rig.model, &calls[1].fwd),
                     BT_ERR_INVALID_PARAM);
    assert_int_equal(bt_model_forward(w.rig.model, &calls[1].fwd, &logits),
                     BT_ERR_INVALID_PARAM);
    finish(&w, &calls[0]);

    lay(&w, &calls[0], 0);
    assert_int_equal(bt_model_start(w.rig.model, &calls[0].fwd), BT_OK);
    calls[1].from_ids[2] = N_PROMPTS;
    assert_int_equal(bt_model_start(w.rig.model, &calls[1].fwd),
                     BT_ERR_INVALID_PARAM);
    calls[1].from_ids[2] = 0;
    assert_int_equal(bt_model_start(w.rig.model, &calls[1].fwd), BT_OK);
    lay(&w, &calls[2], 2);
    assert_int_equal(bt_model_start(w.rig.model, &calls[2].fwd),
                     BT_ERR_INVALID_PARAM);
    finish(&w, &calls[0]);
    finish(&w, &calls[1]);
    assert_int_equal(bt_model_finish(w.rig.model, &calls[2].fwd, &logits),
                     BT_ERR_INVALID_PARAM);
    close_walk(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(overlapped_pass_takes_ids_of_the_pass_before),
        BT_TEST(overlapped_pass_that_cannot_start_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
