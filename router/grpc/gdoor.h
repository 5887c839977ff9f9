/* SPDX-License-Identifier: Apache-2.0 */
/** @file gdoor.h
 *
 * The router's gRPC server: KServe's inference service with Triton's
 * extensions, gRPC's health service and reflection, on the frontend that HTTP
 * uses too.
 *
 *     ModelInfer        ─▶ bt_infer_begin() ─▶ … ─▶ one response, one code
 *     ModelStreamInfer  ─▶ bt_infer_begin() for each message of the stream
 *     load and unload   ─▶ bt_model_control_begin() ─▶ … ─▶ one code
 *     all others        ─▶ answered at once
 *
 * Threads: everything on the event loop's thread.
 */
#ifndef BT_ROUTER_GRPC_GDOOR_H
#define BT_ROUTER_GRPC_GDOOR_H

#include "router/frontend/frontend.h"
#include "router/grpc/grpc.h"
#include "router/net/hosts.h"

typedef struct bt_gdoor {
    bt_frontend_t *front;
    struct event_base *base;
    const bt_hosts_t *hosts; /**< host names that clients may use for it */
    bt_grpc_t *grpc;
    bt_turn_work_t flush; /**< sends pending answers when a turn ends */
    bt_strbuf_t out;      /**< scratch for one message */
    bt_list_t watches;    /**< open Watch calls of the health service */
    char at[BT_NET_ADDRESS_BYTES]; /**< address of the listening socket */
} bt_gdoor_t;

/** Binds the socket that the option --grpc names.
 *  @param [in] net    limits of connections and memory
 *  @param [in] hosts  borrowed
 *  @retval others  Logged; bt_gdoor_close() is still required. */
BT_MUST_CHECK bt_status_t bt_gdoor_open(bt_gdoor_t *door,
                                        struct event_base *base,
                                        bt_frontend_t *front,
                                        const bt_net_config_t *net,
                                        const bt_hosts_t *hosts);
/** Closes the server and cancels open calls. The frontend's pool must have
 *  been stopped. A zeroed server is allowed. */
void bt_gdoor_close(bt_gdoor_t *door);
/** Reports health changes to Watch calls; call every 50 ms or so. */
void bt_gdoor_tick(bt_gdoor_t *door);

#endif
