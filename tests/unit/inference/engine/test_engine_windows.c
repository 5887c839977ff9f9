/* SPDX-License-Identifier: Apache-2.0 */
/* An engine whose sequences hold of windowed layers only what can be seen: five
 * of six layers see 40 tokens. Blocks that a sequence let go of are overwritten
 * at once with what is not a number in any type. The expected tokens are those
 * of each sequence alone, its prompt in a single step, with all blocks of all
 * layers in one group. */
#include "common/base/status.h"
#include "common/kv/kv_block_pool.h"
#include "common/kv/kv_groups.h"
#include "tests/unit/inference/engine/bench.h"

#define WINDOW 40u
#define LAYERS 6u
#define N_SEQS 3u
#define N_NEW  50u
#define MOST   512u

static int make_windowed(void **state)
{
    bt_tiny_model_t tiny = bt_tiny_model_default();
    const int fd = mkstemp(model_path);

    (void)state;
    tiny.architecture = "gemma3";
    tiny.n_layers = LAYERS;
    tiny.head_dim = 16;
    tiny.sliding_window = WINDOW;
    if (fd < 0) {
        return -1;
    }
    close(fd);
    return (bt_tiny_model_write(&tiny, model_path) == BT_OK) ? 0 : -1;
}

/* What the model in the file needs. */
static bt_kv_groups_t windows_of(bt_kv_type_t type)
{
    const bt_kv_type_info_t *const info = bt_kv_type_info(type);
    uint32_t windows[LAYERS];
    bt_kv_groups_t groups;
    bt_kv_shape_t shape;
    bench_t b;

    open_bench(&b, type, 256);
    for (uint32_t i = 0; i < LAYERS; i++) {
        windows[i] = bt_hparams_attention(bt_model_hparams(b.model), i).window;
        assert_int_equal(windows[i], (i == 5) ? 0 : WINDOW);
    }
    shape = (bt_kv_shape_t){LAYERS,        b.kv.n_kv_heads,  T,
                            b.kv.head_dim, info->elem_bytes, info->scale_bytes};
    close_bench(&b);
    assert_int_equal(bt_kv_groups_plan(&shape, windows, MOST, &groups), BT_OK);
    assert_int_equal(groups.n, LAYERS);
    return groups;
}

static uint32_t n_prompt(uint32_t i)
{
    return 150 + 73 * i;
}

/* Guesses, of which some are right by chance. */
static bt_draft_t guess(void *ctx, const uint32_t *tokens, uint32_t n_tokens,
                        uint32_t max, uint32_t *drafts)
{
    const uint32_t *answers = ctx;

    for (uint32_t i = 0; i < max; i++) {
        drafts[i] = (i % 3 == 2) ? tokens[n_tokens - 1] : answers[n_tokens + i];
    }
    return (bt_draft_t){.n = max};
}

typedef struct sliding {
    bt_seq_t seq;
    uint32_t tokens[MOST];
    uint32_t table[MOST / T * LAYERS];
    bt_kv_hold_t hold;
    bt_kv_reach_t reach;
} sliding_t;

static void make_sliding(sliding_t *s, uint32_t i)
{
    memset(s, 0, sizeof(*s));
    for (uint32_t t = 0; t < n_prompt(i); t++) {
        s->tokens[t] = 3 + (t * 7 + t * t + i * 31) % 250;
    }
    s->seq.tokens = s->tokens;
    s->seq.blocks = s->table;
    s->seq.sched.n_tokens = s->seq.n_prompt = n_prompt(i);
    s->seq.max_new = N_NEW;
    s->seq.sampling = bt_sampling_default();
    s->seq.sampling.temperature = (i % 2 == 0) ? 0.0f : 1.5f;
    s->seq.sampling.seed = 77 + i;
}

static void alone_with_all_blocks(bt_kv_type_t type,
                                  uint32_t want[N_SEQS][MOST])
{
    for (uint32_t i = 0; i < N_SEQS; i++) {
        static sliding_t s;
        bench_t b;

        open_bench(&b, type, 512);
        make_sliding(&s, i);
        for (uint32_t k = 0; k < MOST / T; k++) {
            s.table[k] = (5 * k + i) % N_BLOCKS;
        }
        assert_int_equal(bt_engine_submit(b.engine, &s.seq), BT_OK);
        (void)run_until_left(&b, 1);
        assert_int_equal(s.seq.n_drawn, N_NEW);
        memcpy(want[i], s.tokens, sizeof(s.tokens));
        close_bench(&b);
    }
}

/* ---- the owner ---- */

static void reach_out(const bt_kv_groups_t *groups, bt_kv_pool_t *pool,
                      sliding_t *s)
{
    const uint32_t n = bt_kv_hold_lacks(groups, &s->hold, &s->reach);
    uint32_t ids[N_BLOCKS];
    uint32_t end;

    assert_in_range(n, 0, N_BLOCKS);
    assert_int_equal(bt_kv_pool_acquire(pool, n, ids), BT_OK);
    bt_kv_hold_fill(groups, pool, &s->hold, &s->reach, ids, s->table);
    end = bt_kv_hold_end(groups, &s->hold);
    bt_seq_set_kv_limit(&s->seq, (end == s->reach.n_most) ? 0 : end * T);
}

static void let_go(bench_t *b, const bt_kv_groups_t *groups, bt_kv_pool_t *pool,
                   sliding_t *s, uint32_t n)
{
    for (uint32_t g = 0; g < groups->n; g++) {
        const uint32_t first = bt_kv_group_first_span(&groups->group[g], n);

        for (uint32_t i = s->hold.first[g]; i < first; i++) {
            const size_t id = s->table[i * groups->n + g];

            memset((uint8_t *)b->pool + id * b->kv.block_bytes, 0xff,
                   b->kv.block_bytes);
        }
    }
    (void)bt_kv_hold_pass(groups, pool, &s->hold, s->table, n);
}

/* Takes a report. @return how many left */
static uint32_t take(bench_t *b, const bt_kv_groups_t *groups,
                     bt_kv_pool_t *pool)
{
    bt_report_t *report = bt_engine_next(b->engine);
    uint32_t n_left = 0;

    if (report == NULL) {
        return 0;
    }
    assert_int_equal(report->status, BT_OK);
    for (uint32_t i = 0; i < report->n_items; i++) {
        const bt_report_item_t *item = &report->items[i];
        sliding_t *s = BT_CONTAINER_OF(item->seq, sliding_t, seq);
        const uint32_t n = (item->kind == BT_REPORT_CHUNK)
                               ? item->n_computed
                               : s->seq.n_prompt + item->index;

        if (item->kind == BT_REPORT_LEFT) {
            bt_kv_hold_return(groups, pool, &s->hold, s->table);
            n_left++;
            continue;
        }
        let_go(b, groups, pool, s, n);
        reach_out(groups, pool, s);
        bt_engine_wake(b->engine);
    }
    bt_engine_recycle(b->engine, report);
    return n_left;
}

static void check(bt_kv_type_t type, uint32_t budget, bool drafts,
                  uint32_t want[N_SEQS][MOST])
{
    const uint64_t deadline = bt_now_ns() + DEADLINE_NS;
    bt_kv_groups_t groups = windows_of(type);
    static sliding_t seqs[N_SEQS];
    bt_kv_pool_t *pool = NULL;
    uint32_t n_left = 0;
    bench_t b;

    open_bench_of(&b, type, budget, &groups);
    memset(b.pool, 0xff, N_BLOCKS * b.kv.block_bytes);
    assert_int_equal(bt_kv_pool_create(N_BLOCKS, &pool), BT_OK);
    for (uint32_t i = 0; i < N_SEQS; i++) {
        sliding_t *s = &seqs[i];

        make_sliding(s, i);
        if (drafts) {
            s->seq.drafter.propose = guess;
            s->seq.drafter.ctx = want[i];
        }
        s->seq.clear_tail = (i == 1);
        s->reach.n_spans = s->reach.n_most =
            bt_kv_blocks_for(n_prompt(i) + N_NEW - 1, T);
        s->reach.ahead_tokens = 2 * budget;
        reach_out(&groups, pool, s);
        assert_true(atomic_load(&s->seq.kv_limit) > 0); /* not all of it */
        assert_int_equal(bt_engine_submit(b.engine, &s->seq), BT_OK);
    }
    while (n_left < N_SEQS) {
        assert_true(bt_now_ns() < deadline);
        n_left += take(&b, &groups, pool);
    }
    for (uint32_t i = 0; i < N_SEQS; i++) {
        assert_int_equal(seqs[i].seq.n_drawn, N_NEW);
        assert_memory_equal(seqs[i].tokens, want[i],
                            (n_prompt(i) + N_NEW) * sizeof(uint32_t));
    }
    assert_int_equal(bt_kv_pool_n_free(pool), N_BLOCKS);
    bt_kv_pool_destroy(pool);
    close_bench(&b);
    bt_kv_groups_fini(&groups);
}

static void attention_windows_give_the_tokens_of_full_caches(void **state)
{
    static const struct {
        bt_kv_type_t type;
        uint32_t budget;
        bool drafts;
    } cases[] = {{BT_KV_BF16, 16, false},
                 {BT_KV_BF16, 32, true},
                 {BT_KV_INT8, 16, true}};
    static uint32_t want[N_SEQS][MOST];

    (void)state;
    for (size_t k = 0; k < BT_ARRAY_LEN(cases); k++) {
        if ((k == 0) || (cases[k].type != cases[k - 1].type)) {
            alone_with_all_blocks(cases[k].type, want);
        }
        check(cases[k].type, cases[k].budget, cases[k].drafts, want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(attention_windows_give_the_tokens_of_full_caches),
    };

    return cmocka_run_group_tests(tests, make_windowed, remove_model);
}
