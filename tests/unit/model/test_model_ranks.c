/* SPDX-License-Identifier: Apache-2.0 */
/* A model on several ranks, each a thread here: the logits of one rank within
 * what the order of sums makes of them, and the same bits whatever the chunks,
 * the company and who came late (I1). */
#include <pthread.h>
#include <sys/mman.h>

#include "common/coll/coll_shm.h"
#include "inference/model/shard.h"
#include "tests/unit/model/families.h"

#define SLOT_BYTES 65536 /* so that sums are in several pieces, too */
#define MAX_RANKS  3

typedef struct rank {
    bt_coll_shm_t *shm;
    bt_backend_t *be;
    bt_model_t *model;
    bt_kv_view_t kv;
    pthread_t thread;
    bt_status_t status;
} rank_t;

typedef struct team {
    uint32_t size;
    void *segment;
    size_t segment_bytes;
    rank_t ranks[MAX_RANKS];
    rig_t rig; /* rank 0 as the tests of one rank have it */
} team_t;

static void *follow(void *arg)
{
    rank_t *rank = arg;

    rank->status = bt_model_follow(rank->model, &rank->kv, NULL);
    return NULL;
}

static bt_status_t load_rank(const bt_gguf_t *gguf, team_t *team, uint32_t r,
                             bt_kv_type_t type)
{
    const bt_kv_type_info_t *info = bt_kv_type_info(type);
    rank_t *rank = &team->ranks[r];
    bt_model_config_t config = default_config;
    const bt_hparams_t *hp;
    bt_share_t heads;
    bt_status_t status;

    assert_int_equal(bt_coll_shm_open(team->segment, team->segment_bytes, r,
                                      team->size, SLOT_BYTES, &rank->shm),
                     BT_OK);
    rank->be = open_backend(1);
    config.coll = bt_coll_shm_collectives(rank->shm);
    status =
        bt_model_load(gguf, rank->be, &config, why, sizeof(why), &rank->model);
    if (status != BT_OK) {
        return status;
    }
    hp = bt_model_hparams(rank->model);
    heads = bt_share_of(hp->n_kv_heads, 1, r, team->size);
    rank->kv = (bt_kv_view_t){.type = type,
                              .n_layers = hp->n_layers,
                              .n_kv_heads = heads.n,
                              .head_dim = hp->head_dim,
                              .tokens_per_block = T};
    rank->kv.block_bytes =
        (size_t)hp->n_layers * 2 * heads.n * T *
        ((size_t)hp->head_dim * info->elem_bytes + info->scale_bytes);
    rank->kv.base = bt_calloc_aligned(N_BLOCKS, rank->kv.block_bytes);
    assert_non_null(rank->kv.base);
    return BT_OK;
}

static bt_status_t make_team(const bt_tiny_model_t *tiny, uint32_t size,
                             bt_kv_type_t type, team_t *team)
{
    bt_gguf_t *const gguf = open_tiny(tiny);
    bt_status_t status = BT_OK;

    *team = (team_t){.size = size};
    team->segment_bytes = bt_coll_shm_bytes(size, SLOT_BYTES);
    team->segment = mmap(NULL, team->segment_bytes, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(team->segment != MAP_FAILED);
    for (uint32_t r = 0; (status == BT_OK) && (r < size); r++) {
        status = load_rank(gguf, team, r, type);
    }
    bt_gguf_close(gguf);
    for (uint32_t r = 1; (status == BT_OK) && (r < size); r++) {
        assert_int_equal(pthread_create(&team->ranks[r].thread, NULL, follow,
                                        &team->ranks[r]),
                         0);
    }
    team->rig = (rig_t){.be = team->ranks[0].be,
                        .model = team->ranks[0].model,
                        .kv = team->ranks[0].kv};
    if (status == BT_OK) {
        team->rig.n_vocab = bt_model_hparams(team->rig.model)->n_vocab;
    }
    return status;
}

static void free_team(team_t *team)
{
    if ((team->rig.model != NULL) && (team->ranks[1].thread != 0)) {
        bt_model_end_ranks(team->rig.model);
    }
    for (uint32_t r = 0; r < team->size; r++) {
        rank_t *rank = &team->ranks[r];

        if (rank->thread != 0) {
            assert_int_equal(pthread_join(rank->thread, NULL), 0);
            assert_int_equal(rank->status, BT_OK);
        }
        bt_model_destroy(rank->model);
        bt_backend_close(rank->be);
        bt_free(rank->kv.base);
        bt_coll_shm_close(rank->shm);
    }
    munmap(team->segment, team->segment_bytes);
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
    team_t team;

    assert_int_equal(make_team(tiny, size, BT_KV_F16, &team), BT_OK);
    many = run_whole(&team.rig);
    worst = largest_difference(&one, &many);
    free_logits(&one);
    free_logits(&many);
    free_team(&team);
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
