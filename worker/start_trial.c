/* SPDX-License-Identifier: Apache-2.0 */
/* Trial of a start from another file while a worker serves: the steps that take
 * no memory of the model, with what the worker will give back counted as free.
 */
#include <stdio.h>

#include "common/base/alloc.h"
#include "common/kv/kv_groups.h"
#include "worker/start.h"

typedef struct trial {
    bt_worker_t w;
    bt_start_t s;
    bt_config_t config;
} trial_t;

/* Host memory that is given back. Pages of a shared file of packed weights
 * count as available already. */
static uint64_t held_bytes(const bt_start_t *s)
{
    const bt_model_memory_t *memory = &s->memory;
    uint64_t bytes = memory->private_bytes;

    if (s->weight_dir[0] == '\0') {
        bytes += memory->weight_bytes;
    }
    return memory->own_memory ? bytes : bytes + s->pool_bytes;
}

static uint64_t held_device_bytes(const bt_start_t *s)
{
    const bt_model_memory_t *memory = &s->memory;

    return memory->own_memory
               ? memory->device_bytes + memory->later_bytes + s->pool_bytes
               : 0;
}

static void *create(const bt_worker_t *w)
{
    const bt_start_t *s = w->weights.start;
    trial_t *trial = bt_calloc(1, sizeof(*trial));

    if (trial == NULL) {
        return NULL;
    }
    trial->config = *w->config;
    trial->w.config = &trial->config;
    trial->w.program_role = w->program_role;
    trial->w.roles = w->roles;
    trial->s.team.tp = s->team.tp;
    trial->s.team.size = s->team.size;
    trial->s.n_threads = s->n_threads;
    trial->s.memory_node = s->memory_node;
    trial->s.held_bytes = held_bytes(s);
    trial->s.held_device_bytes = held_device_bytes(s);
    return trial;
}

static bt_status_t run(void *user, const char *path)
{
    trial_t *const trial = user;
    bt_worker_t *const w = &trial->w;
    bt_start_t *const s = &trial->s;
    bt_status_t status;

    trial->config.model = path;
    if ((status = bt_start_file_open(w, s)) == BT_OK &&
        (status = bt_start_options_check(w, s)) == BT_OK &&
        (status = bt_start_draft_open(w, s)) == BT_OK) {
        status = bt_start_memory_look(w, s);
    }
    bt_start_draft_close(s);
    bt_gguf_close(s->gguf);
    s->gguf = NULL;
    bt_kv_groups_fini(&w->groups);
    bt_kv_groups_fini(&w->own_groups);
    return status;
}

static void destroy(void *trial)
{
    bt_free(trial);
}

const bt_weights_trial_ops_t bt_start_trial_ops = {
    .create = create, .run = run, .destroy = destroy};
