/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/check.h"

#include <inttypes.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "worker/interfaces.h"
#include "worker/start.h"

#define PLAN_BYTES 4096

/* There are no other ranks to talk to: only their number is used. */
static bt_status_t no_reduce(void *ctx, float *buf, size_t n)
{
    (void)ctx;
    (void)buf;
    (void)n;
    return BT_ERR_UNSUPPORTED;
}

static bt_status_t no_gather(void *ctx, const void *send, void *recv,
                             size_t bytes_each)
{
    (void)ctx;
    (void)send;
    (void)recv;
    (void)bytes_each;
    return BT_ERR_UNSUPPORTED;
}

static bt_status_t no_exchange(void *ctx, void *buf, size_t bytes,
                               uint32_t root)
{
    (void)ctx;
    (void)buf;
    (void)bytes;
    (void)root;
    return BT_ERR_UNSUPPORTED;
}

static bt_status_t no_send(void *ctx, const void *buf, size_t bytes,
                           uint32_t to)
{
    (void)ctx;
    (void)buf;
    (void)bytes;
    (void)to;
    return BT_ERR_UNSUPPORTED;
}

static void print_plan(const bt_start_t *s)
{
    const bt_model_memory_t *const memory = &s->memory;
    bt_strbuf_t out;
    bt_json_t json;

    bt_strbuf_init(&out, PLAN_BYTES);
    bt_json_init(&json, &out);
    bt_json_object(&json, NULL);
    bt_json_u64(&json, "weight_bytes", memory->weight_bytes);
    bt_json_bool(&json, "weights_shared",
                 (s->weight_dir[0] != '\0') && !memory->own_memory);
    bt_json_u64(&json, "own_bytes", memory->private_bytes + memory->load_bytes);
    bt_json_u64(&json, "pool_bytes", memory->own_memory ? 0 : s->pool_bytes);
    bt_json_u64(&json, "ranks", s->team.size);
    bt_json_end_object(&json);
    if (bt_strbuf_status(&out) == BT_OK) {
        puts(out.data);
    }
    bt_strbuf_fini(&out);
}

static bt_status_t check_interface(const char *interface)
{
    struct if_nameindex *all;
    bt_strbuf_t others;

    /* An RDMA device has another form of name, DEVICE:PORT; UCX knows it. */
    if ((strchr(interface, ':') != NULL) || (if_nametoindex(interface) != 0)) {
        return BT_OK;
    }
    bt_strbuf_init(&others, PLAN_BYTES);
    all = if_nameindex();
    for (size_t i = 0; (all != NULL) && (all[i].if_index != 0); i++) {
        if (strcmp(all[i].if_name, "lo") != 0) {
            bt_strbuf_printf(&others, "%s%s",
                             (others.len == 0) ? "; there is " : ", ",
                             all[i].if_name);
        }
    }
    if (all != NULL) { /* the check takes none */
        if_freenameindex(all);
    }
    BT_LOG_ERROR("--kv-net-devices %s: there is no such interface%s", interface,
                 (others.data != NULL) ? others.data : "");
    bt_strbuf_fini(&others);
    return BT_ERR_INVALID_PARAM;
}

/* Checks every interface of the list, whether a rank takes it or not. */
static bt_status_t check_device(const bt_config_t *config)
{
    char interface[BT_INTERFACE_BYTES];
    bt_status_t status = BT_OK;
    uint32_t n = 1;

    for (uint32_t i = 0; i < n; i++) {
        bt_status_t step =
            bt_interface_of(config->kv_net_devices, i, interface, &n);

        if (step != BT_OK) {
            return step;
        }
        step = check_interface(interface);
        status = (status == BT_OK) ? step : status;
    }
    return status;
}

/* The steps of a start that allocate nothing. */
static bt_status_t check_model(bt_worker_t *w, bt_start_t *s)
{
    bt_status_t status;

    if ((status = bt_start_file_open(w, s)) != BT_OK ||
        (status = bt_start_options_check(w, s)) != BT_OK ||
        (status = bt_start_cores_settle(w, s)) != BT_OK) {
        return status;
    }
    status = bt_start_memory_look(w, s);
    if ((status == BT_OK) || (s->pool_bytes > 0)) {
        print_plan(s);
    }
    return status;
}

int bt_worker_check(bt_worker_t *w, unsigned program, int argc, char **argv)
{
    bt_start_t *s = bt_calloc(1, sizeof(*s));
    bt_collectives_t ranks = {.all_reduce_sum = no_reduce,
                              .all_gather = no_gather,
                              .broadcast = no_exchange,
                              .send = no_send,
                              .recv = no_exchange};
    bt_status_t status = BT_ERR_NO_MEMORY;
    bt_status_t step;

    (void)bt_log_format("json");
    if ((s == NULL) || (w == NULL)) {
        BT_LOG_ERROR("out of memory");
        goto end;
    }
    status = bt_config_load_all(program, argc, argv, &w->config, &s->store);
    if (status != BT_OK) {
        bt_free(s);
        return (status == BT_ERR_CANCELED) ? BT_EXIT_OK : BT_EXIT_USAGE;
    }
    status = bt_config_log_findings(s->store);
    s->team.tp = w->config->tp;
    s->team.size = w->config->tp * w->config->pp;
    if (s->team.size > 1) {
        ranks.size = s->team.size;
        s->team.coll = s->team.stage = &ranks;
    }
    snprintf(w->name, sizeof(w->name), "%s",
             (w->config->name[0] != '\0') ? w->config->name
                                          : bt_role_name(w->program_role));
    step = bt_key_check(w->config->cluster_key_file, w->config->munge_socket);
    status = (status == BT_OK) ? step : status;
    step = check_device(w->config);
    status = (status == BT_OK) ? step : status;
    if (s->team.size > BT_TEAM_MAX) {
        BT_LOG_ERROR("%u ranks: an instance has %u at most", s->team.size,
                     BT_TEAM_MAX);
        step = BT_ERR_INVALID_PARAM;
    } else {
        step = check_model(w, s);
    }
    status = (status == BT_OK) ? step : status;

end:
    if (s != NULL) {
        bt_gguf_close(s->gguf);
        if (w != NULL) {
            bt_kv_groups_fini(&w->groups);
            bt_kv_groups_fini(&w->own_groups);
        }
        bt_config_destroy(s->store);
    }
    bt_free(s);
    return (status == BT_OK) ? BT_EXIT_OK : bt_exit_of_start(status);
}
