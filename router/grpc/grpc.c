/* SPDX-License-Identifier: Apache-2.0 */
#include "router/grpc/grpc.h"

#include "common/base/alloc.h"
#include "router/grpc/grpc_priv.h"

static void on_turn(void *ctx)
{
    const bt_grpc_t *grpc = ctx;

    grpc->handlers.on_turn(grpc->handlers.ctx);
}

static void on_gather(void *ctx)
{
    const bt_grpc_t *grpc = ctx;

    grpc->handlers.on_gather(grpc->handlers.ctx);
}

bt_status_t bt_grpc_create(struct event_base *base,
                           const bt_grpc_config_t *config,
                           const bt_grpc_handlers_t *handlers,
                           bt_grpc_t **grpc_p)
{
    bt_grpc_t *grpc = bt_calloc(1, sizeof(*grpc));
    bt_net_handlers_t net = {.on_stream = bt_gconn_accept};
    bt_status_t status;

    if (grpc == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    grpc->config = *config;
    grpc->handlers = *handlers;
    net.ctx = grpc;
    net.on_turn = on_turn;
    net.on_gather = (handlers->on_gather == NULL) ? NULL : on_gather;
    status = bt_net_create(base, &config->net, &net, &grpc->net);
    if (status != BT_OK) {
        bt_free(grpc);
        return status;
    }
    *grpc_p = grpc;
    return BT_OK;
}

bt_net_t *bt_grpc_net(const bt_grpc_t *grpc)
{
    return grpc->net;
}

void bt_grpc_destroy(bt_grpc_t *grpc)
{
    if (grpc != NULL) {
        bt_net_destroy(grpc->net);
        bt_free(grpc);
    }
}
