/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/follow.h"

#include "common/base/alloc.h"
#include "common/base/exit_code.h"
#include "common/base/log.h"

static bt_status_t load(bt_worker_t *w, bt_start_t *s)
{
    bt_status_t status;

    if ((status = bt_start_file_open(w, s)) != BT_OK ||
        (status = bt_start_options_check(w, s)) != BT_OK ||
        (status = bt_start_memory_plan(w, s)) != BT_OK ||
        (status = bt_start_cores_settle(w, s)) != BT_OK ||
        (status = bt_start_model_load(w, s)) != BT_OK) {
        return status;
    }
    w->kv_base = bt_calloc_aligned(w->n_blocks, w->block_bytes);
    if (w->kv_base == NULL) {
        BT_LOG_ERROR("no memory for %u KV blocks of %zu bytes", w->n_blocks,
                     w->block_bytes);
        return BT_ERR_NO_MEMORY;
    }
    return BT_OK;
}

int bt_follow_run(bt_worker_t *w, bt_start_t *s)
{
    bt_status_t status = load(w, s);
    bt_kv_view_t kv;

    if (status != BT_OK) {
        return bt_exit_of_start(status);
    }
    bt_gguf_close(s->gguf);
    s->gguf = NULL;
    kv = bt_start_kv_view(w, s);
    BT_LOG_INFO("ready: rank %u of %u", s->team.rank, s->team.size);
    status = bt_model_follow(w->model, &kv, &w->own_groups);
    bt_model_destroy(w->model);
    bt_backend_close(w->backend);
    bt_free(w->kv_base);
    bt_kv_groups_fini(&w->groups);
    if (status != BT_OK) {
        BT_LOG_ERROR("rank %u: the others are not to be reached: %s",
                     s->team.rank, bt_status_str(status));
        return BT_EXIT_FAILURE;
    }
    return BT_EXIT_OK;
}
