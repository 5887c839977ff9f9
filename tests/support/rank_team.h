/* SPDX-License-Identifier: Apache-2.0 */
/** @file rank_team.h  A model on several ranks, each a thread of the test: rank
 *  0 is the test's own, the others follow it. */
#ifndef BT_TESTS_SUPPORT_RANK_TEAM_H
#define BT_TESTS_SUPPORT_RANK_TEAM_H

#include <pthread.h>

#include "common/coll/coll_shm.h"
#include "inference/model/model.h"

#define BT_TEAM_SLOT_BYTES 65536 /* long sums are in several pieces */
#define BT_TEAM_RANKS      16

typedef struct bt_instance_ranks_rank {
    bt_coll_shm_t *shm;
    bt_backend_t *be;
    bt_model_t *model;
    bt_model_t *draft; /**< NULL: none */
    bt_kv_view_t kv;
    pthread_t thread; /**< 0: none */
    bt_status_t status;
} bt_instance_ranks_rank_t;

typedef struct bt_rank_team {
    uint32_t size;
    void *segment;
    size_t segment_bytes;
    bt_instance_ranks_rank_t ranks[BT_TEAM_RANKS];
} bt_rank_team_t;

/**
 * Load the model, and a draft model of its shape, on every rank and let those
 * other than 0 follow. Blocks are numbered 0 .. n_blocks - 1 at all.
 *
 * @param [in]  draft     NULL: none.
 * @param [in]  config    Of both; its host_coll and host_stage are set
 * here, and the ranks are n_stages of as many each.
 * @param [out] why       On failure the reason.
 * @param [out] team      bt_rank_team_close(), also after a failure.
 */
bt_status_t bt_rank_team_open(const bt_gguf_t *gguf, const bt_gguf_t *draft,
                              uint32_t size,
                              const bt_backend_config_t *be_config,
                              const bt_model_config_t *config,
                              bt_kv_type_t kv_type, uint32_t tokens_per_block,
                              uint32_t n_blocks, char *why, size_t why_bytes,
                              bt_rank_team_t *team);
/** @return what the ranks that followed said, BT_OK if all did */
bt_status_t bt_rank_team_close(bt_rank_team_t *team);

#endif
