/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/probe.h"

#include <stdio.h>
#include <string.h>

#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/cluster/cluster.h"
#include "kernels/kernels.h"
#include "kvtransfer/kvt.h"

#define OUT_BYTES  4096
#define POOL_BYTES ((size_t)1 << 20)
#define NAME_BYTES 64
/* As in the options; no peer comes meanwhile. */
#define KEEP_MS       250
#define DEAD_MS       2500
#define QUARANTINE_MS 10000
#define LIBRARY_BYTES 256

/* Finds the name of the CPU back end, or "" (logged). */
static void find_backend(char name[NAME_BYTES])
{
    char why[256] = "";
    const bt_backend_config_t config = {.n_threads = 1,
                                        .max_rows = 1,
                                        .max_dim = 64,
                                        .why = why,
                                        .why_bytes = sizeof(why)};
    bt_backend_t *backend = NULL;
    const bt_status_t status = bt_backend_open("cpu", &config, &backend);

    name[0] = '\0';
    if (status != BT_OK) {
        BT_LOG_ERROR("back end cpu: %s",
                     (why[0] != '\0') ? why : bt_status_str(status));
        return;
    }
    snprintf(name, NAME_BYTES, "%s", backend->caps->name);
    bt_backend_close(backend);
}

static bool can_transfer(const char *net_device, bt_kvt_path_t path)
{
    const bt_kvt_config_t config = {.transport = &bt_kvt_transport_ucx,
                                    .path = path,
                                    .net_device = net_device,
                                    .pool_bytes = POOL_BYTES,
                                    .instance = 1,
                                    .keepalive_ms = KEEP_MS,
                                    .dead_ms = DEAD_MS,
                                    .quarantine_ms = QUARANTINE_MS};
    bt_kvt_t *kvt = NULL;
    const bt_status_t status = bt_kvt_open(&config, &kvt);

    if (status == BT_ERR_BUSY) { /* not logged: a start would wait for it */
        BT_LOG_ERROR("network device %s has no link", net_device);
    }
    bt_kvt_close(kvt);
    return status == BT_OK;
}

int bt_worker_probe(const char *net_device)
{
    char library[LIBRARY_BYTES];
    char name[NAME_BYTES];
    bt_strbuf_t out;
    bt_json_t json;
    bool done;

    (void)bt_log_format("json");
    bt_strbuf_init(&out, OUT_BYTES);
    bt_json_init(&json, &out);
    bt_json_object(&json, NULL);
    find_backend(name);
    bt_json_str(&json, "cpu", (name[0] != '\0') ? name : NULL);
    bt_cluster_library(library, sizeof(library));
    bt_json_str(&json, "mpi", library);
    bt_json_str(&json, "ucx", bt_kvt_ucx_version());
    bt_json_str(&json, "net_device", net_device);
    bt_json_bool(&json, "kv_network",
                 can_transfer(net_device, BT_KVT_PATH_NETWORK));
    bt_json_bool(&json, "kv_shm", can_transfer(net_device, BT_KVT_PATH_SHM));
    bt_json_end_object(&json);
    done = (bt_strbuf_status(&out) == BT_OK) && (puts(out.data) >= 0);
    bt_strbuf_fini(&out);
    return done ? BT_EXIT_OK : BT_EXIT_FAILURE;
}
