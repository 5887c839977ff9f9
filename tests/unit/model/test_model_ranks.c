/* SPDX-License-Identifier: Apache-2.0 */
/* A model on several ranks, each a thread here: the logits of one rank within
 * what the order of sums makes of them, and the same bits whatever the chunks,
 * the company and who came late (I1). */
#include "tests/support/rank_team.h"
#include "tests/unit/model/families.h"

typedef struct ranks {
    bt_rank_team_t team;
    rig_t rig; /* rank 0 as the tests of one rank have it */
} ranks_t;

static bt_status_t make_ranks(const bt_tiny_model_t *tiny, uint32_t size,
                              bt_kv_type_t type, ranks_t *ranks)
{
    const bt_backend_config_t be_config = {
        .n_threads = 1, .max_rows = MAX_ROWS, .max_dim = 2048};
    bt_gguf_t *const gguf = open_tiny(tiny);
    const bt_status_t status =
        bt_rank_team_open(gguf, size, &be_config, &default_config, type, T,
                          N_BLOCKS, why, sizeof(why), &ranks->team);

    bt_gguf_close(gguf);
    if (status == BT_OK) {
        const bt_team_rank_t *const first = &ranks->team.ranks[0];

        ranks->rig =
            (rig_t){.be = first->be,
                    .model = first->model,
                    .kv = first->kv,
                    .n_vocab = bt_model_hparams(first->model)->n_vocab};
    }
    return status;
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

static void several_ranks_give_the_logits_of_one(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_ranks_give_the_logits_of_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
