/* SPDX-License-Identifier: Apache-2.0 */
/* Loads weights from the folder of packed weights. */
#include <stdio.h>

#include "common/base/log.h"
#include "inference/model/model_priv.h"

#define WHY_BYTES     256
#define PROFILE_BYTES 128

/* Repeats the load without a result; it has its own buffer for reasons. */
static bt_loader_t rehearsal_of(const bt_loader_t *loader, char *why)
{
    const bt_loader_t rehearsal = {.gguf = loader->gguf,
                                   .arch = loader->arch,
                                   .be = loader->be,
                                   .hp = loader->hp,
                                   .shard = loader->shard,
                                   .own = loader->own,
                                   .config = loader->config,
                                   .why = why,
                                   .why_bytes = WHY_BYTES};

    why[0] = '\0';
    return rehearsal;
}

static bt_status_t write_all(void *ctx, bt_packed_writer_t *writer)
{
    char why[WHY_BYTES];
    bt_loader_t rehearsal = rehearsal_of(ctx, why);

    rehearsal.writer = writer;
    return bt_loader_rehearse(&rehearsal);
}

static bool has_all(void *ctx, const bt_packed_file_t *file)
{
    char why[WHY_BYTES];
    bt_loader_t rehearsal = rehearsal_of(ctx, why);

    rehearsal.packed = file;
    return bt_loader_rehearse(&rehearsal) == BT_OK;
}

/* Packed content does not depend on the numerics profile: its name is kept for
 * compatibility. Each shard has a file of its own; that of a stage is
 * abbreviated to fit the key (BT_PACKED_PROFILE_BYTES). */
static void name_file(const bt_shard_t *shard, bool has_codes, char *name,
                      size_t name_bytes)
{
    const char *const what = has_codes ? "q8-e4m3" : BT_PROFILE_EXACT;

    if (shard->n_stages > 1) {
        snprintf(name, name_bytes, "%s %u/%u x%u, stage %u/%u", what,
                 shard->rank, shard->size, shard->n_parts, shard->stage,
                 shard->n_stages);
    } else {
        snprintf(name, name_bytes,
                 (shard->size * shard->n_parts > 1)
                     ? "%s rank %u of %u, %u parts each"
                     : "%s",
                 what, shard->rank, shard->size, shard->n_parts);
    }
}

void bt_loader_share(bt_loader_t *loader, bt_packed_store_t **store_p)
{
    const bt_model_config_t *const c = loader->config;
    const bt_kernels_caps_t *const caps = loader->be->caps;
    char profile[PROFILE_BYTES];
    char why[WHY_BYTES];
    bt_loader_t count = rehearsal_of(loader, why);
    bt_packed_config_t config = {.dir = c->weight_dir,
                                 .gguf = loader->gguf,
                                 .profile = profile,
                                 .pack_version = caps->pack_version,
                                 .n_threads = c->n_threads,
                                 .ctx = loader,
                                 .build = write_all,
                                 .complete = has_all};
    bt_packed_store_t *store = NULL;

    if ((c->weight_dir == NULL) || (c->weight_dir[0] == '\0')) {
        return;
    }
    if (caps->pack_version == 0) {
        BT_LOG_INFO("packed weights are not kept: the %s back end has them in "
                    "its own memory",
                    caps->name);
        return;
    }
    /* Errors in the model file itself are reported by the load. */
    if (bt_loader_rehearse(&count) != BT_OK) {
        return;
    }
    name_file(&loader->shard, count.has_codes, profile, sizeof(profile));
    config.expect_bytes = count.weight_bytes;
    if (bt_packed_store_open(&config, &store) == BT_OK) {
        loader->packed = bt_packed_store_file(store);
        *store_p = store;
    }
}
