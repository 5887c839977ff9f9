/* SPDX-License-Identifier: Apache-2.0 */
/* A model on several ranks, each a thread here: the logits of one rank within
 * what the order of sums makes of them, and the same bits whatever the chunks,
 * the company and who came late (I1). */
#include "inference/model/sampler.h"
#include "tests/support/rank_team.h"
#include "tests/unit/inference/model/families.h"
#include "tests/unit/inference/model/same_bits.h"

typedef struct ranks {
    bt_rank_team_t team;
    rig_t rig; /* rank 0 as the tests of one rank have it */
} ranks_t;

static bt_status_t make_drafting(const bt_tiny_model_t *tiny,
                                 const bt_tiny_model_t *tiny_draft,
                                 uint32_t size, const bt_model_config_t *config,
                                 bt_kv_type_t type, ranks_t *ranks)
{
    const bt_backend_config_t be_config = {.n_threads = 1,
                                           .max_rows = MAX_ROWS};
    bt_gguf_t *const gguf = open_tiny(tiny);
    bt_gguf_t *const draft =
        (tiny_draft != NULL) ? open_tiny(tiny_draft) : NULL;
    bt_status_t status;

    status = bt_rank_team_open(gguf, draft, size, &be_config, config, type, T,
                               N_BLOCKS, why, sizeof(why), &ranks->team);
    bt_gguf_close(gguf);
    bt_gguf_close(draft);
    if (status == BT_OK) {
        const bt_instance_ranks_rank_t *const first = &ranks->team.ranks[0];

        ranks->rig =
            (rig_t){.be = first->be,
                    .model = first->model,
                    .kv = first->kv,
                    .n_vocab = bt_model_hparams(first->model)->n_vocab};
    }
    return status;
}

static bt_status_t make_with(const bt_tiny_model_t *tiny, uint32_t size,
                             const bt_model_config_t *config, bt_kv_type_t type,
                             ranks_t *ranks)
{
    return make_drafting(tiny, NULL, size, config, type, ranks);
}

static bt_status_t make_parts(const bt_tiny_model_t *tiny, uint32_t size,
                              uint32_t sum_parts, bt_kv_type_t type,
                              ranks_t *ranks)
{
    bt_model_config_t config = default_config;

    config.sum_parts = sum_parts;
    return make_with(tiny, size, &config, type, ranks);
}

static bt_status_t make_ranks(const bt_tiny_model_t *tiny, uint32_t size,
                              bt_kv_type_t type, ranks_t *ranks)
{
    return make_parts(tiny, size, 0, type, ranks);
}

/* ---- against one rank ---- */

static double largest_difference(const logits_of_prompt_t *a,
                                 const logits_of_prompt_t *b)
{
    double worst = 0.0;

    for (size_t i = 0; i < a->bytes / sizeof(float); i++) {
        const double diff = fabs((double)a->whole[i] - (double)b->whole[i]);

        worst = (diff > worst) ? diff : worst;
    }
    return worst;
}

static double compare(const bt_tiny_model_t *tiny, uint32_t size)
{
    rig_t rig = make_rig(tiny, 1);
    logits_of_prompt_t one = run_whole(&rig);
    logits_of_prompt_t many;
    double worst;
    ranks_t ranks;

    assert_int_equal(make_ranks(tiny, size, BT_KV_F16, &ranks), BT_OK);
    many = run_whole(&ranks.rig);
    worst = largest_difference(&one, &many);
    free_logits(&one);
    free_logits(&many);
    assert_int_equal(bt_rank_team_close(&ranks.team), BT_OK);
    free_rig(&rig);
    return worst;
}

static void ranks_give_the_logits_of_one_rank(void **state)
{
    (void)state;
    for (int i = 0; i < N_VARIANTS; i++) {
        bt_tiny_model_t tiny = variant(i);
        double worst;

        if (i == N_VARIANTS - 1) { /* heads end where blocks of 256 do */
            tiny.dim = 512;
        }
        worst = compare(&tiny, (i == 2) ? 3 : 2);
        print_message("variant %d: largest difference %.7f\n", i, worst);
        assert_true(worst < 0.1);
    }
}

/* A norm over all heads is refused, and fewer KV heads or blocks of a matrix's
 * columns than ranks. */
static bool can_be_shared(const family_case_t *c)
{
    const bt_tiny_model_t tiny = family_tiny(c);

    return (tiny.n_kv_heads >= 2) && !c->mixed && (tiny.expert_dim != 32) &&
           (strncmp(tiny.architecture, "olmo", 4) != 0);
}

static void ranks_give_the_same_bits_in_any_order(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const bt_tiny_model_t tiny = family_tiny(&family_cases[i]);
        logits_of_prompt_t p;
        ranks_t ranks;

        if (!can_be_shared(&family_cases[i])) {
            continue;
        }
        if (make_ranks(&tiny, 2, BT_KV_BF16, &ranks) != BT_OK) {
            fail_msg("%s: %s", family_cases[i].name, why);
        }
        p = run_whole(&ranks.rig);
        check_same_bits(&ranks.rig, &p);
        free_logits(&p);
        assert_int_equal(bt_rank_team_close(&ranks.team), BT_OK);
    }
}

/* The draft model has the weights of its target here, so the same logits. */
static void ranks_compute_calls_of_a_draft_model(void **state)
{
    const bt_tiny_model_t tiny = bt_tiny_model_default();
    bt_tiny_model_t smaller = tiny;
    logits_of_prompt_t target, draft;
    rig_t rig;
    ranks_t ranks;

    (void)state;
    smaller.type = BT_KTYPE_Q8_0;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(make_drafting(&tiny, (i == 0) ? &tiny : &smaller, 2,
                                       &default_config, BT_KV_BF16, &ranks),
                         BT_OK);
        target = run_whole(&ranks.rig);
        rig = ranks.rig;
        rig.model = ranks.team.ranks[0].draft;
        draft = run_whole(&rig);
        assert_int_equal(memcmp(draft.whole, target.whole, draft.bytes) == 0,
                         i == 0);
        check_same_bits(&rig, &draft);
        check_same_bits(&ranks.rig, &target);
        free_logits(&draft);
        free_logits(&target);
        assert_int_equal(bt_rank_team_close(&ranks.team), BT_OK);
    }
}

static void families_on_ranks_give_the_logits_of_one(void **state)
{
    double worst = 0.0;

    (void)state;
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const bt_tiny_model_t tiny = family_tiny(&family_cases[i]);

        if (can_be_shared(&family_cases[i])) {
            const double diff = compare(&tiny, 2);

            print_message("%s: %.6f\n", family_cases[i].name, diff);
            worst = (diff > worst) ? diff : worst;
        }
    }
    assert_true(worst < 0.1);
}

/* Sums of so many parts have the same bits on 1, 2 and 4 ranks, and so has all
 * that they are in. */
static void partial_sums_give_equal_bits_on_any_number_of_ranks(void **state)
{
    (void)state;
    for (uint32_t parts = 2; parts <= 4; parts += 2) {
        bt_tiny_model_t tiny = variant((parts == 2) ? 1 : 0);
        logits_of_prompt_t want = {0};

        tiny.dim = 128;
        tiny.n_heads = 8;
        tiny.n_kv_heads = 4;
        for (uint32_t size = 1; size <= parts; size *= 2) {
            logits_of_prompt_t p;
            ranks_t ranks;

            assert_int_equal(make_parts(&tiny, size, parts, BT_KV_BF16, &ranks),
                             BT_OK);
            p = run_whole(&ranks.rig);
            check_same_bits(&ranks.rig, &p);
            assert_int_equal(bt_rank_team_close(&ranks.team), BT_OK);
            if (size == 1) {
                want = p;
                continue;
            }
            assert_memory_equal(p.whole, want.whole, want.bytes);
            free_logits(&p);
        }
        free_logits(&want);
    }
}

/* ---- experts ---- */

/* Ranks of a stage, among which experts are dealt to ep groups. */
typedef struct grid {
    uint32_t size, ep;
    uint32_t n_stages; /* 0 is 1 */
} grid_t;

static bt_status_t make_grid(const bt_tiny_model_t *tiny, const grid_t *grid,
                             uint32_t sum_parts, uint32_t expert_parts,
                             ranks_t *ranks)
{
    bt_model_config_t config = default_config;

    config.sum_parts = sum_parts;
    config.ep = grid->ep;
    config.expert_parts = expert_parts;
    config.n_stages = grid->n_stages;
    return make_with(tiny,
                     grid->size * ((grid->n_stages == 0) ? 1 : grid->n_stages),
                     &config, BT_KV_BF16, ranks);
}

/* All of the grids in whose ranks n_parts can be divided give the bits of the
 * first, which is one rank. @return its logits */
static logits_of_prompt_t check_grids(const bt_tiny_model_t *tiny,
                                      const grid_t *grids, size_t n,
                                      uint32_t sum_parts, uint32_t n_parts)
{
    logits_of_prompt_t want = {0};

    for (size_t i = 0; i < n; i++) {
        const grid_t *const g = &grids[i];
        logits_of_prompt_t p;
        ranks_t ranks;

        if (g->size / g->ep > n_parts) {
            continue;
        }
        if (make_grid(tiny, g, sum_parts, n_parts, &ranks) != BT_OK) {
            fail_msg("%s, tp %u ep %u: %s", tiny->architecture, g->size, g->ep,
                     why);
        }
        p = run_whole(&ranks.rig);
        if ((g->n_stages <= 1) && (g->size <= 4)) { /* more take long */
            check_same_bits(&ranks.rig, &p);
        }
        assert_int_equal(bt_rank_team_close(&ranks.team), BT_OK);
        if (i == 0) {
            want = p;
            continue;
        }
        if (memcmp(p.whole, want.whole, want.bytes) != 0) {
            fail_msg("%s, tp %u ep %u, %u parts of an expert: other bits",
                     tiny->architecture, g->size, g->ep, n_parts);
        }
        free_logits(&p);
    }
    return want;
}

/* Experts dealt to ranks, their widths cut, or both: the bits of one rank with
 * the same parts of sums. Other parts have other bits, near to these. */
static void experts_give_equal_bits_on_any_grid_of_ranks(void **state)
{
    static const grid_t grids[] = {{1, 1, 0}, {2, 1, 0}, {2, 2, 0}, {4, 1, 0},
                                   {4, 2, 0}, {4, 4, 0}, {2, 2, 2}};

    (void)state;
    for (size_t i = 0; i < N_FAMILIES; i++) {
        bt_tiny_model_t tiny = family_tiny(&family_cases[i]);
        logits_of_prompt_t by_parts[3];

        if ((tiny.n_experts == 0) || family_cases[i].mixed ||
            (strcmp(tiny.architecture, "olmoe") == 0)) {
            continue;
        }
        tiny.n_heads = 8;
        tiny.n_kv_heads = 4;
        tiny.expert_dim = 128;
        tiny.gate_up = strcmp(tiny.architecture, "granitemoe") == 0;
        for (uint32_t k = 0; k < 3; k++) {
            by_parts[k] =
                check_grids(&tiny, grids, BT_ARRAY_LEN(grids), 4, 1u << k);
        }
        for (uint32_t k = 1; k < 3; k++) {
            const double worst = largest_difference(&by_parts[0], &by_parts[k]);

            print_message("%s, %u parts: %.6f\n", family_cases[i].name, 1u << k,
                          worst);
            assert_true((worst > 0.0) && (worst < 0.1));
        }
        for (uint32_t k = 0; k < 3; k++) {
            free_logits(&by_parts[k]);
        }
    }
}

/* Numbers of experts that are no multiple of the 16 leaves, and as many ranks
 * as leaves; 8 x 4 is TensorRT-LLM's moe_tp_size 2 and moe_ep_size 4. */
static void experts_are_dealt_to_up_to_sixteen_ranks(void **state)
{
    static const grid_t grids[] = {
        {1, 1, 0}, {8, 4, 0}, {8, 8, 0}, {16, 16, 0}};
    static const uint32_t n_experts[] = {8, 19};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(n_experts); i++) {
        bt_tiny_model_t tiny = bt_tiny_model_default();
        logits_of_prompt_t p;
        const size_t n = BT_ARRAY_LEN(grids) - ((n_experts[i] < 16) ? 1 : 0);

        tiny.dim = 128;
        tiny.n_heads = 16;
        tiny.n_kv_heads = 16;
        tiny.n_experts = n_experts[i];
        tiny.n_experts_used = 3;
        tiny.expert_dim = 64;
        p = check_grids(&tiny, grids, n, 16, 2);
        free_logits(&p);
    }
}

/* ---- stages ---- */

typedef struct stages {
    uint32_t tp, pp;
    uint32_t micro_rows;
} stages_t;

static bt_status_t make_stages(const bt_tiny_model_t *tiny,
                               const stages_t *stages, ranks_t *ranks)
{
    bt_model_config_t config = default_config;

    config.sum_parts = 2;
    config.n_stages = stages->pp;
    config.micro_rows = stages->micro_rows;
    return make_with(tiny, stages->tp * stages->pp, &config, BT_KV_BF16, ranks);
}

/* Layers in 1, 2 and 3 stages of 1 and 2 ranks, and batches cut into few
 * micro-batches and many: the bits of one rank. */
static void stages_give_the_bits_of_one_rank(void **state)
{
    static const stages_t list[] = {
        {1, 1, 0}, {1, 2, 1}, {1, 2, 16}, {2, 2, 7}, {2, 3, 4}};

    (void)state;
    for (int i = 0; i < 2; i++) {
        bt_tiny_model_t tiny = variant(i);
        logits_of_prompt_t want = {0};

        tiny.dim = 128;
        tiny.n_heads = 8;
        tiny.n_kv_heads = 4;
        tiny.n_layers = 4;
        for (size_t k = 0; k < BT_ARRAY_LEN(list); k++) {
            logits_of_prompt_t p;
            ranks_t ranks;

            if (make_stages(&tiny, &list[k], &ranks) != BT_OK) {
                fail_msg("%ux%u: %s", list[k].tp, list[k].pp, why);
            }
            p = run_whole(&ranks.rig);
            check_same_bits_in_turn(&ranks.rig, &p);
            assert_int_equal(bt_rank_team_close(&ranks.team), BT_OK);
            if (k == 0) {
                want = p;
                continue;
            }
            assert_memory_equal(p.whole, want.whole, want.bytes);
            free_logits(&p);
        }
        free_logits(&want);
    }
}

/* ---- calls that follow each other ---- */

static const uint32_t walk_chunks[] = {16, 1, 7, 33, 18};

/* A sequence on its way through its chunks. */
typedef struct walker {
    uint32_t blocks[N_BLOCKS / 8];
    uint32_t at, chunk;
    bt_ragged_seq_t seq;
    uint32_t rows[N_TOKENS];
    bt_forward_t fwd;
} walker_t;

static void walker_start(walker_t *w, const rig_t *rig, const uint32_t *tokens)
{
    const uint32_t n = walk_chunks[w->chunk];

    for (uint32_t i = 0; i < n; i++) {
        w->rows[i] = i;
    }
    w->seq = (bt_ragged_seq_t){.n_rows = n, .pos = w->at, .blocks = w->blocks};
    w->fwd = (bt_forward_t){.seqs = &w->seq,
                            .n_seqs = 1,
                            .tokens = tokens + w->at,
                            .n_rows = n,
                            .logit_rows = w->rows,
                            .n_logit_rows = n,
                            .kv = rig->kv};
    assert_int_equal(bt_model_start(rig->model, &w->fwd), BT_OK);
}

static void walker_finish(walker_t *w, const rig_t *rig,
                          const logits_of_prompt_t *p)
{
    const size_t row = rig->n_vocab;
    float *logits = NULL;

    assert_int_equal(bt_model_finish(rig->model, &w->fwd, &logits), BT_OK);
    assert_memory_equal(logits, p->whole + w->at * row,
                        w->seq.n_rows * row * sizeof(*logits));
    w->at += w->seq.n_rows;
    w->chunk++;
}

/* As many sequences as calls may be under way, each a chunk behind. */
static void walk_all(rig_t *rig, const logits_of_prompt_t *p)
{
    const uint32_t depth = bt_model_max_started(rig->model);
    const uint32_t n_steps = depth * BT_ARRAY_LEN(walk_chunks);
    walker_t walkers[3] = {0};
    uint32_t started = 0;
    float *logits = NULL;

    for (uint32_t i = 0; i < depth; i++) {
        fill_blocks(walkers[i].blocks, 16 + 8 * i);
    }
    for (uint32_t finished = 0; finished < n_steps; finished++) {
        while ((started < finished + depth) && (started < n_steps)) {
            walker_start(&walkers[started % depth], rig, p->tokens);
            started++;
        }
        if (started == finished + depth) { /* no more, and nothing beside */
            assert_int_equal(bt_model_start(rig->model, &walkers[0].fwd),
                             BT_ERR_INVALID_PARAM);
        }
        assert_int_equal(bt_model_forward(rig->model, &walkers[0].fwd, &logits),
                         BT_ERR_INVALID_PARAM);
        walker_finish(&walkers[finished % depth], rig, p);
    }
    assert_int_equal(bt_model_finish(rig->model, &walkers[0].fwd, &logits),
                     BT_ERR_INVALID_PARAM);
}

/* A stage is at a later call than the one behind it: the bits of calls that
 * are made one at a time. */
static void overlapped_calls_give_the_same_bits(void **state)
{
    static const stages_t list[] = {
        {1, 2, 1}, {1, 3, 16}, {2, 2, 7}, {2, 3, 4}};
    bt_tiny_model_t tiny = variant(0);

    (void)state;
    tiny.dim = 128;
    tiny.n_heads = 8;
    tiny.n_kv_heads = 4;
    tiny.n_layers = 4;
    for (size_t k = 0; k < BT_ARRAY_LEN(list); k++) {
        logits_of_prompt_t p;
        ranks_t ranks;

        assert_int_equal(make_stages(&tiny, &list[k], &ranks), BT_OK);
        assert_int_equal(bt_model_max_started(ranks.rig.model), list[k].pp);
        p = run_whole(&ranks.rig);
        walk_all(&ranks.rig, &p);
        free_logits(&p);
        assert_int_equal(bt_rank_team_close(&ranks.team), BT_OK);
    }
}

static void single_stage_refuses_overlapped_calls(void **state)
{
    const bt_tiny_model_t tiny = variant(0);
    rig_t rig = make_rig(&tiny, 1);
    const bt_forward_t none = {.n_rows = 0};
    float *logits;

    (void)state;
    assert_int_equal(bt_model_max_started(rig.model), 1);
    assert_int_equal(bt_model_start(rig.model, &none), BT_ERR_INVALID_PARAM);
    assert_int_equal(bt_model_finish(rig.model, &none, &logits),
                     BT_ERR_INVALID_PARAM);
    free_rig(&rig);
}

/* Each family's own: positions, norms before and behind, biases, windows. */
static void families_in_stages_give_the_bits_of_one_rank(void **state)
{
    const stages_t two = {1, 2, 4};

    (void)state;
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const bt_tiny_model_t tiny = family_tiny(&family_cases[i]);
        rig_t rig = make_rig(&tiny, 1);
        logits_of_prompt_t one;
        logits_of_prompt_t many;
        ranks_t ranks;
        bt_model_config_t config = default_config;

        config.n_stages = two.pp;
        config.micro_rows = two.micro_rows;
        if (make_with(&tiny, 2, &config, BT_KV_F16, &ranks) != BT_OK) {
            fail_msg("%s: %s", family_cases[i].name, why);
        }
        one = run_whole(&rig);
        many = run_whole(&ranks.rig);
        if (memcmp(one.whole, many.whole, one.bytes) != 0) {
            fail_msg("%s: other bits", family_cases[i].name);
        }
        free_logits(&one);
        free_logits(&many);
        assert_int_equal(bt_rank_team_close(&ranks.team), BT_OK);
        free_rig(&rig);
    }
}

/* How many of a row's logits are there; they are those of @a want, and the
 * first @a n of that are among them. */
static uint32_t check_row(const float *got, const float *want, uint32_t n_vocab,
                          uint32_t n)
{
    uint32_t n_there = 0;

    for (uint32_t id = 0; id < n_vocab; id++) {
        uint32_t n_before = 0;

        if (got[id] > -INFINITY) {
            n_there++;
            assert_memory_equal(&got[id], &want[id], sizeof(*want));
            continue;
        }
        for (uint32_t k = 0; k < n_vocab; k++) {
            n_before +=
                (want[k] > want[id]) || ((want[k] == want[id]) && (k < id));
        }
        assert_true(n_before >= n);
    }
    return n_there;
}

/* Of a row from which few are drawn each rank sends its first candidates, and
 * no more. */
static void ranks_send_only_the_candidates_a_row_needs(void **state)
{
    static const stages_t list[] = {{2, 1, 0}, {1, 2, 8}, {2, 2, 8}};
    static const uint32_t kinds[] = {5, 1, 0, 20, 2, 500};
    bt_tiny_model_t tiny = variant(0);

    (void)state;
    tiny.dim = 128;
    tiny.n_heads = 8;
    tiny.n_kv_heads = 4;
    tiny.n_layers = 2;
    for (size_t k = 0; k < BT_ARRAY_LEN(list); k++) {
        uint32_t blocks[N_BLOCKS / 8];
        const bt_ragged_seq_t seq = {.n_rows = N_TOKENS, .blocks = blocks};
        uint32_t rows[N_TOKENS], needs[N_TOKENS], ids[N_TOKENS];
        const uint32_t tp = list[k].tp;
        float *logits = NULL;
        bt_forward_t fwd;
        logits_of_prompt_t p;
        ranks_t ranks;

        assert_int_equal(make_stages(&tiny, &list[k], &ranks), BT_OK);
        p = run_whole(&ranks.rig);
        fill_blocks(blocks, 24);
        for (uint32_t i = 0; i < N_TOKENS; i++) {
            rows[i] = i;
            needs[i] = kinds[i % BT_ARRAY_LEN(kinds)];
            ids[i] = UINT32_MAX;
        }
        fwd = (bt_forward_t){.seqs = &seq,
                             .n_seqs = 1,
                             .tokens = p.tokens,
                             .n_rows = N_TOKENS,
                             .logit_rows = rows,
                             .n_logit_rows = N_TOKENS,
                             .needs = needs,
                             .best_ids = ids,
                             .kv = ranks.rig.kv};
        assert_int_equal(bt_model_forward(ranks.rig.model, &fwd, &logits),
                         BT_OK);
        for (uint32_t i = 0; i < N_TOKENS; i++) {
            const uint32_t n_vocab = ranks.rig.n_vocab;
            const float *want = p.whole + (size_t)i * n_vocab;
            const uint32_t n = needs[i];
            uint32_t n_there;

            if (n == 1) {
                assert_int_equal(ids[i], bt_sampler_best(want, n_vocab));
                continue;
            }
            n_there = check_row(logits + (size_t)i * n_vocab, want, n_vocab, n);
            assert_int_equal(ids[i], UINT32_MAX);
            assert_int_equal(n_there,
                             ((n == 0) || (n == 500)) ? n_vocab : tp * n);
        }
        free_logits(&p);
        assert_int_equal(bt_rank_team_close(&ranks.team), BT_OK);
    }
}

static void impossible_stages_are_refused_by_name(void **state)
{
    bt_tiny_model_t tiny = bt_tiny_model_default();
    bt_model_config_t config = default_config;
    ranks_t ranks;

    (void)state;
    tiny.n_layers = 2;
    config.n_stages = 3;
    assert_int_equal(make_with(&tiny, 3, &config, BT_KV_F16, &ranks),
                     BT_ERR_UNSUPPORTED);
    assert_non_null(strstr(why, "over 3 stages: the model has 2 layers"));
    assert_int_equal(bt_rank_team_close(&ranks.team), BT_OK);
}

/* From a rank 0 of another configuration: more rows than there is room for,
 * words that are missing, an order that is none. */
static void malformed_orders_end_a_following_rank(void **state)
{
    static const struct {
        uint32_t order[4];
        uint32_t words[8];
    } list[] = {
        {{1, 5, 0, 0}, {100000, 1, 0, 0, 0}},
        {{1, 3, 0, 0}, {1, 1, 0}},
        {{1, 8, 0, 0}, {1, 1, 0, 0, 0, 7, 0, 1}},
        {{1, 6, 0, 0}, {1, UINT32_MAX, 0, 0, 0, 7}},
        {{1, 8, 0, 0}, {1, 0, 1, 0, 0, 7, 0, 513}}, /* needs too many */
        {{1, UINT32_MAX, 0, 0}, {0}},
        {{77, 0, 0, 0}, {0}},
        {{2, 0, 1, 0}, {0}}, /* late, of no call */
        {{7, 0, 0, 0}, {0}}, /* of a draft model that is not there */
    };
    const bt_tiny_model_t tiny = bt_tiny_model_default();

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(list); i++) {
        const bt_collectives_t *coll;
        uint32_t order[4];
        uint32_t words[8];
        ranks_t ranks;

        memcpy(order, list[i].order, sizeof(order));
        memcpy(words, list[i].words, sizeof(words));
        assert_int_equal(make_ranks(&tiny, 2, BT_KV_F16, &ranks), BT_OK);
        coll = bt_coll_shm_collectives(ranks.team.ranks[0].shm);
        assert_int_equal(coll->broadcast(coll->ctx, order, sizeof(order), 0),
                         BT_OK);
        if ((order[1] > 0) && (order[1] <= BT_ARRAY_LEN(words))) {
            assert_int_equal(
                coll->broadcast(coll->ctx, words, order[1] * sizeof(*words), 0),
                BT_OK);
        }
        assert_int_equal(pthread_join(ranks.team.ranks[1].thread, NULL), 0);
        ranks.team.ranks[1].thread = 0;
        assert_int_equal(ranks.team.ranks[1].status, BT_ERR_BAD_MESSAGE);
        assert_int_equal(bt_rank_team_close(&ranks.team), BT_OK);
    }
}

static void expect_refused(const bt_tiny_model_t *tiny, uint32_t size,
                           const char *reason)
{
    ranks_t ranks;

    assert_int_equal(make_ranks(tiny, size, BT_KV_F16, &ranks),
                     BT_ERR_UNSUPPORTED);
    assert_non_null(strstr(why, reason));
    assert_int_equal(bt_rank_team_close(&ranks.team), BT_OK);
}

static void model_that_cannot_be_sharded_is_refused_by_name(void **state)
{
    bt_tiny_model_t tiny = bt_tiny_model_default();

    (void)state;
    expect_refused(&tiny, 4, "over 4 ranks: the model has 2 KV heads");
    tiny = variant(3);
    expect_refused(
        &tiny, 2,
        "attn_output.weight (Q4_K) cannot be cut into 128 of its 256");
    tiny.ffn_dim = 256;
    expect_refused(&tiny, 2, "the feed-forward's 256 columns are 1 blocks");
    tiny = bt_tiny_model_default();
    tiny.architecture = "olmo2";
    expect_refused(&tiny, 2, "a norm of this olmo2 model");
}

static size_t weight_bytes(uint32_t n_experts, uint32_t size, uint32_t ep)
{
    const bt_collectives_t coll = {.rank = size - 1, .size = size};
    bt_model_config_t config = default_config;
    bt_tiny_model_t tiny = bt_tiny_model_default();
    bt_model_memory_t memory;
    bt_gguf_t *gguf;

    tiny.dim = 128;
    tiny.n_heads = tiny.n_kv_heads = 8;
    tiny.n_experts = n_experts;
    tiny.n_experts_used = 2;
    tiny.expert_dim = 128;
    config.host_coll = (size > 1) ? &coll : NULL;
    config.ep = ep;
    gguf = open_tiny(&tiny);
    assert_int_equal(
        bt_model_memory(gguf, "cpu", &config, why, sizeof(why), &memory),
        BT_OK);
    bt_gguf_close(gguf);
    return memory.weight_bytes;
}

/* Of 16 more experts a rank has so much less as it has fewer of them; routers
 * of 8 and 24 experts are one panel of 32 rows. */
static void memory_of_a_rank_counts_its_own_experts(void **state)
{
    const size_t whole = weight_bytes(24, 1, 1) - weight_bytes(8, 1, 1);

    (void)state;
    assert_true(whole > 0);
    for (uint32_t ep = 1; ep <= 4; ep *= 2) {
        assert_int_equal(4 * (weight_bytes(24, 4, ep) - weight_bytes(8, 4, ep)),
                         whole);
    }
}

static void expect_grid_refused(const bt_tiny_model_t *tiny, uint32_t size,
                                uint32_t ep, uint32_t expert_parts,
                                bt_status_t status, const char *reason)
{
    const grid_t grid = {.size = size, .ep = ep};
    ranks_t ranks;

    assert_int_equal(make_grid(tiny, &grid, 0, expert_parts, &ranks), status);
    if (strstr(why, reason) == NULL) {
        fail_msg("%s instead of %s", why, reason);
    }
    assert_int_equal(bt_rank_team_close(&ranks.team), BT_OK);
}

static void impossible_grid_of_experts_is_refused_by_name(void **state)
{
    bt_tiny_model_t tiny = bt_tiny_model_default();

    (void)state;
    tiny.dim = 128;
    tiny.n_heads = tiny.n_kv_heads = 8;
    expect_grid_refused(&tiny, 2, 2, 0, BT_ERR_UNSUPPORTED,
                        "in 2 groups (--ep, --prefill-ep, --decode-ep): the "
                        "model has no experts");
    tiny.n_experts = 3;
    tiny.n_experts_used = 2;
    tiny.expert_dim = 96; /* 3 blocks of 32 */
    expect_grid_refused(&tiny, 4, 4, 0, BT_ERR_UNSUPPORTED,
                        "the model has 3 experts, and each rank needs one");
    expect_grid_refused(&tiny, 2, 4, 0, BT_ERR_INVALID_PARAM,
                        "their number is 1, 2, 4, 8 or 16, and divides the 2 "
                        "ranks");
    expect_grid_refused(&tiny, 6, 4, 0, BT_ERR_INVALID_PARAM, "the 6 ranks");
    expect_grid_refused(&tiny, 3, 3, 0, BT_ERR_INVALID_PARAM, "in 3 groups");
    /* Of 6 ranks the sums of 3 are a half each, not the 2 of an expert. */
    expect_grid_refused(&tiny, 6, 2, 0, BT_ERR_INVALID_PARAM, "the 6 ranks");
    expect_grid_refused(&tiny, 4, 1, 0, BT_ERR_UNSUPPORTED,
                        "an expert's 96 columns are 3 blocks of 32");
    expect_grid_refused(&tiny, 2, 1, 3, BT_ERR_UNSUPPORTED,
                        "sums of 3 parts (--moe-reduction-parts) cannot be "
                        "divided among the 2 ranks of an expert");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(ranks_give_the_logits_of_one_rank),
        BT_TEST(ranks_compute_calls_of_a_draft_model),
        BT_TEST(families_on_ranks_give_the_logits_of_one),
        BT_TEST(ranks_give_the_same_bits_in_any_order),
        BT_TEST(partial_sums_give_equal_bits_on_any_number_of_ranks),
        BT_TEST(experts_give_equal_bits_on_any_grid_of_ranks),
        BT_TEST(experts_are_dealt_to_up_to_sixteen_ranks),
        BT_TEST(memory_of_a_rank_counts_its_own_experts),
        BT_TEST(impossible_grid_of_experts_is_refused_by_name),
        BT_TEST(stages_give_the_bits_of_one_rank),
        BT_TEST(families_in_stages_give_the_bits_of_one_rank),
        BT_TEST(overlapped_calls_give_the_same_bits),
        BT_TEST(single_stage_refuses_overlapped_calls),
        BT_TEST(ranks_send_only_the_candidates_a_row_needs),
        BT_TEST(impossible_stages_are_refused_by_name),
        BT_TEST(malformed_orders_end_a_following_rank),
        BT_TEST(model_that_cannot_be_sharded_is_refused_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
