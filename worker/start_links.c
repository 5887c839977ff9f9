/* SPDX-License-Identifier: Apache-2.0 */
/* Links of a worker: where its routers are, and its hello to them. */
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "worker/fanout.h"
#include "worker/start.h"
#include "worker/worker_priv.h"

#define LINK_QUEUE_BYTES (64u << 20)

bt_status_t bt_start_router_find(bt_worker_t *w, bt_start_t *s)
{
    const char *join = w->config->join;
    bt_status_t status = bt_key_load(w->config->cluster_key_file,
                                     w->config->munge_socket, s->key);

    if (status != BT_OK) {
        return status;
    }
    if (bt_cluster_has_router(s->cluster)) {
        status =
            bt_cluster_exchange(s->cluster, s->url, sizeof(s->url), s->key);
        if (status != BT_OK) {
            BT_LOG_ERROR("the address of the router was not received: %s",
                         bt_status_str(status));
        }
        return status;
    }
    if (s->team.rank > 0) { /* rank 0 speaks for all */
        return BT_OK;
    }
    if (((join[0] == '\0') && (w->config->join_dir[0] == '\0')) ||
        (w->config->cluster_key_file[0] == '\0')) {
        BT_LOG_ERROR(
            "no router given: use --join URL or --join-dir DIR, and "
            "--cluster-key-file FILE, or start router and workers by one "
            "mpirun");
        return BT_ERR_INVALID_PARAM;
    }
    if ((size_t)snprintf(s->url, sizeof(s->url), "%s", join) >=
        sizeof(s->url)) {
        BT_LOG_ERROR("join: at most %zu characters", sizeof(s->url) - 1);
        return BT_ERR_INVALID_PARAM;
    }
    return BT_OK;
}

/* The model name to serve; "" = none given. */
static const char *model_name(const bt_config_t *config)
{
    return (config->models[0].name[0] != '\0') ? config->models[0].name
                                               : config->served_model_name;
}

/* Appended to the numeric profile of models that compute differently when
 * --max-seq-len is more than they were trained on. */
#define LONG_CONTEXT " for long contexts (--max-seq-len)"

/* Exports of all ranks: what others need to send to them. */
static bt_status_t list_ranks(bt_worker_t *w, bt_start_t *s,
                              bt_wire_rank_t ranks[BT_TEAM_MAX])
{
    size_t bytes = 0;
    bt_status_t status =
        bt_kvt_export(w->kvt, s->export, sizeof(s->export), &bytes);

    ranks[0] = (bt_wire_rank_t){.block_bytes = w->block_bytes,
                                .kvt = s->export,
                                .kvt_bytes = (uint32_t)bytes};
    for (uint32_t r = 1; (status == BT_OK) && (r < s->team.size); r++) {
        status = bt_transfer_await_export(w->transfers, r, &ranks[r]);
    }
    return status;
}

/* Appends the numbers of parts of an all-reduce, where there are several. */
static void print_profile(const bt_worker_t *w, const bt_start_t *s,
                          char *profile, size_t bytes)
{
    const uint32_t parts = (w->config->reduction_parts != 0)
                               ? w->config->reduction_parts
                               : s->team.tp;
    const uint32_t expert_parts = (w->config->moe_reduction_parts != 0)
                                      ? w->config->moe_reduction_parts
                                      : s->team.tp / w->config->ep;
    char sums[32] = "";
    char expert_sums[32] = "";

    if (parts > 1) {
        snprintf(sums, sizeof(sums), "/sum%u", parts);
    }
    if ((expert_parts > 1) && (s->hp.experts.n > 0)) {
        snprintf(expert_sums, sizeof(expert_sums), "/moe%u", expert_parts);
    }
    /* Routers compare the whole text. */
    snprintf(profile, bytes, "%s%s%s%s", w->backend->caps->profile, sums,
             expert_sums, w->long_context ? LONG_CONTEXT : "");
}

static bt_status_t encode_hello(bt_worker_t *w, bt_start_t *s, bt_strbuf_t *out)
{
    bt_msg_t msg = {.type = BT_MSG_HELLO};
    bt_msg_hello_t *hello = &msg.u.hello;
    bt_wire_rank_t ranks[BT_TEAM_MAX];
    bt_status_t status = list_ranks(w, s, ranks);

    if (status != BT_OK) {
        BT_LOG_ERROR("the address of the KV pool cannot be published: %s",
                     bt_status_str(status));
        return status;
    }
    hello->protocol = BT_WIRE_PROTOCOL;
    hello->role =
        ((w->roles & BT_ROLE_DECODE) != 0) ? BT_ROLE_DECODE : BT_ROLE_PREFILL;
    hello->instance = w->instance;
    memcpy(hello->name, w->name, sizeof(hello->name));
    hello->model = bt_gguf_identity(s->gguf);
    print_profile(w, s, hello->profile, sizeof(hello->profile));
    hello->kv_type = s->kv_type;
    hello->tokens_per_block = w->tokens_per_block;
    hello->layout = w->kv_layout;
    hello->context_tokens = w->context_tokens;
    hello->max_batch = w->max_seqs;
    hello->n_blocks = w->n_blocks;
    bt_window_eviction_tell(w, hello);
    if ((hello->role == BT_ROLE_DECODE) &&
        ((strcmp(w->config->local_prefill, "off") != 0) ||
         (w->roles == BT_ROLES_BOTH))) {
        hello->flags |= BT_HELLO_LOCAL_PREFILL;
    }
    if (strcmp(w->config->local_prefill, "auto") == 0) {
        hello->flags |= BT_HELLO_LOCAL_WEIGHED;
    }
    if (strcmp(w->config->prefix_cache, "on") == 0) {
        hello->flags |= BT_HELLO_KEEPS_PROMPTS;
    }
    if (bt_worker_has_static_batches(w->config)) {
        hello->flags |= BT_HELLO_STATIC_BATCHES;
    }
    if (bt_fanout_is_possible(w)) {
        hello->flags |= BT_HELLO_FANOUT | BT_HELLO_BEAMS;
    }
    if (w->grammars != NULL) {
        hello->flags |= BT_HELLO_GRAMMARS;
    }
    if (bt_model_takes_rows(w->model)) {
        hello->flags |= BT_HELLO_TABLES;
    }
    if (bt_adapters_max_rank(w->config) > 0) {
        hello->flags |= BT_HELLO_ADAPTERS;
    }
    if (bt_adapters_are_loaded_later(w->config)) {
        hello->flags |= BT_HELLO_ADAPTER_UPDATES;
    }
    if (bt_adapters_are_sent(w->config)) {
        hello->flags |= BT_HELLO_ADAPTER_CONTENT;
    }
    hello->flags |= BT_HELLO_KV_LINKS | BT_HELLO_PROCESSORS;
    if (w->weights.are_replaceable) {
        hello->flags |= BT_HELLO_WEIGHTS;
    }
    if (w->sleep.is_possible) {
        hello->flags |= BT_HELLO_SLEEPS;
    }
    hello->flags |= BT_HELLO_CACHE_RESET;
    hello->sleep_order = w->sleep.order;
    hello->weights = w->weights.now;
    if (w->weights.now.update != 0) {
        hello->base = w->weights.base;
    }
    hello->ranks = ranks;
    hello->n_ranks = s->team.size;
    hello->tp = w->split.tp;
    hello->pp = w->split.pp;
    hello->protocol_min = BT_WIRE_PROTOCOL_MIN;
    strncpy(hello->model_name, model_name(w->config),
            sizeof(hello->model_name) - 1);
    strncpy(hello->version_text, bt_config_version(),
            sizeof(hello->version_text) - 1);
    bt_wire_encode(&msg, out);
    w->sleep.hello = *hello;
    w->sleep.hello.ranks = NULL;
    w->sleep.hello.n_ranks = 0;
    return bt_strbuf_status(out);
}

static bt_status_t join_routers(bt_worker_t *w, bt_start_t *s)
{
    bt_status_t status = BT_OK;
    char *rest = s->url;
    const char *url;

    while ((status == BT_OK) && ((url = bt_control_url_take(&rest)) != NULL)) {
        status = bt_control_join(w->control, url);
        if (status != BT_OK) {
            BT_LOG_ERROR("cannot join a router at %s: %s", url,
                         bt_status_str(status));
        }
    }
    return status;
}

bt_status_t bt_start_links_open(bt_worker_t *w, bt_start_t *s)
{
    bt_control_config_t config = {
        .key = s->key,
        .key_bytes = sizeof(s->key),
        .name = w->name,
        .range = bt_wire_range_ours(),
        .heartbeat_ms = w->config->heartbeat_ms,
        .suspect_ms = w->config->suspect_ms,
        .dead_ms = w->config->dead_ms,
        .tells_starved = true,
        .max_queue_bytes = LINK_QUEUE_BYTES,
        .share_memory = strcmp(w->config->link_transport, "auto") == 0,
    };
    bt_strbuf_t hello;
    bt_status_t status;

    bt_strbuf_init(&hello, BT_LINK_MAX_PAYLOAD);
    status = w->sleep.is_asleep ? bt_sleep_hello(w, &hello)
                                : encode_hello(w, s, &hello);
    if (status == BT_OK) {
        config.hello = hello.data;
        config.hello_bytes = hello.len;
        status = bt_control_open(&config, &w->control);
    }
    bt_strbuf_fini(&hello);
    if (status == BT_OK) {
        status = join_routers(w, s);
    }
    return (status == BT_OK) ? bt_membership_open(w) : status;
}
