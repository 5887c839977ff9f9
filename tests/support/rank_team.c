/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/rank_team.h"

#include <sys/mman.h>

#include "common/base/alloc.h"
#include "inference/model/shard.h"

static void *follow(void *arg)
{
    bt_instance_ranks_rank_t *rank = arg;

    rank->status = bt_model_follow(rank->model, rank->draft, &rank->kv, NULL);
    return NULL;
}

/* Of the rank's heads and layers. */
static bt_kv_view_t view_of(const bt_hparams_t *hp, uint32_t r, uint32_t size,
                            uint32_t n_stages, bt_kv_type_t type,
                            uint32_t tokens_per_block)
{
    const uint32_t tp = size / n_stages;
    const bt_kv_type_info_t *info = bt_kv_type_info(type);
    bt_kv_view_t kv = {
        .type = type,
        .n_layers = bt_share_of(hp->n_layers, 1, r / tp, n_stages).n,
        .n_kv_heads = bt_share_of(hp->n_kv_heads, 1, r % tp, tp).n,
        .head_dim = hp->head_dim,
        .tokens_per_block = tokens_per_block};

    kv.block_bytes =
        (size_t)kv.n_layers * 2 * kv.n_kv_heads * tokens_per_block *
        ((size_t)hp->head_dim * info->elem_bytes + info->scale_bytes);
    return kv;
}

static bt_status_t make_segment(bt_rank_team_t *team, uint32_t n_stages)
{
    const uint32_t tp = team->size / n_stages;
    bt_status_t status = BT_OK;

    team->segment_bytes = bt_coll_shm_bytes(team->size, tp, BT_TEAM_SLOT_BYTES);
    team->segment = mmap(NULL, team->segment_bytes, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (team->segment == MAP_FAILED) {
        team->segment = NULL;
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t r = 0; (status == BT_OK) && (r < team->size); r++) {
        status =
            bt_coll_shm_open(team->segment, team->segment_bytes, r, team->size,
                             tp, BT_TEAM_SLOT_BYTES, &team->ranks[r].shm);
    }
    return status;
}

bt_status_t bt_rank_team_open(const bt_gguf_t *gguf, const bt_gguf_t *draft,
                              uint32_t size,
                              const bt_backend_config_t *be_config,
                              const bt_model_config_t *config,
                              bt_kv_type_t kv_type, uint32_t tokens_per_block,
                              uint32_t n_blocks, char *why, size_t why_bytes,
                              bt_rank_team_t *team)
{
    const uint32_t n_stages = (config->n_stages == 0) ? 1 : config->n_stages;
    bt_model_config_t own = *config;
    bt_status_t status = BT_OK;

    *team = (bt_rank_team_t){.size = size};
    if (size > 1) {
        status = make_segment(team, n_stages);
    }
    for (uint32_t r = 0; (status == BT_OK) && (r < size); r++) {
        bt_instance_ranks_rank_t *rank = &team->ranks[r];

        own.host_coll =
            (rank->shm != NULL) ? bt_coll_shm_collectives(rank->shm) : NULL;
        own.host_stage =
            (rank->shm != NULL) ? bt_coll_shm_stage(rank->shm) : NULL;
        status = bt_backend_open("cpu", be_config, &rank->be);
        if (status == BT_OK) {
            status = bt_model_load(gguf, rank->be, &own, why, why_bytes,
                                   &rank->model);
        }
        if ((status == BT_OK) && (draft != NULL)) {
            own.target = rank->model;
            status = bt_model_load(draft, rank->be, &own, why, why_bytes,
                                   &rank->draft);
            own.target = NULL;
        }
        if (status == BT_OK) {
            rank->kv = view_of(bt_model_hparams(rank->model), r, size, n_stages,
                               kv_type, tokens_per_block);
            rank->kv.base = bt_calloc_aligned(n_blocks, rank->kv.block_bytes);
            status = (rank->kv.base == NULL) ? BT_ERR_NO_MEMORY : BT_OK;
        }
    }
    for (uint32_t r = 1; (status == BT_OK) && (r < size); r++) {
        if (pthread_create(&team->ranks[r].thread, NULL, follow,
                           &team->ranks[r]) != 0) {
            status = BT_ERR_NO_MEMORY;
        }
    }
    return status;
}

bt_status_t bt_rank_team_close(bt_rank_team_t *team)
{
    bt_status_t status = BT_OK;
    bool all = true;

    for (uint32_t r = 1; r < team->size; r++) {
        all = all && (team->ranks[r].thread != 0);
    }
    if (all && (team->ranks[0].model != NULL)) {
        bt_model_end_ranks(team->ranks[0].model);
    } else if (team->ranks[0].shm != NULL) {
        bt_coll_shm_break(team->ranks[0].shm);
    }
    for (uint32_t r = 0; r < team->size; r++) {
        bt_instance_ranks_rank_t *rank = &team->ranks[r];

        if (rank->thread != 0) {
            (void)pthread_join(rank->thread, NULL);
            status = (status == BT_OK) ? rank->status : status;
        }
        bt_model_destroy(rank->draft);
        bt_model_destroy(rank->model);
        bt_backend_close(rank->be);
        bt_free(rank->kv.base);
        bt_coll_shm_close(rank->shm);
    }
    if (team->segment != NULL) {
        (void)munmap(team->segment, team->segment_bytes);
    }
    *team = (bt_rank_team_t){0};
    return status;
}
