/* SPDX-License-Identifier: Apache-2.0 */
/** @file gdoor.h
 *
 * The gRPC door: KServe's inference service with what Triton adds, gRPC's
 * health service and its reflection, in front of the same front end as HTTP's.
 *
 *     ModelInfer        ─▶ bt_infer_begin() ─▶ … ─▶ one response, one code
 *     ModelStreamInfer  ─▶ bt_infer_begin() for each message of the stream
 *     load and unload   ─▶ bt_order_begin() ─▶ … ─▶ one code
 *     all others        ─▶ answered at once
 *
 * Threads: everything on the event loop's thread.
 */
#ifndef BT_ROUTER_GRPC_GDOOR_H
#define BT_ROUTER_GRPC_GDOOR_H

#include "router/frontend/frontend.h"
#include "router/grpc/grpc.h"
#include "router/net/hosts.h"

#define BT_GDOOR_ADDRESS_BYTES 96

typedef struct bt_gdoor {
    bt_frontend_t *front;
    struct event_base *base;
    const bt_hosts_t *hosts; /**< by which clients may call it */
    bt_grpc_t *grpc;
    bt_turn_work_t flush;            /**< of answers, at the end of the turn */
    bt_strbuf_t out;                 /**< scratch for one message */
    bt_list_t watches;               /**< of the health service */
    char at[BT_GDOOR_ADDRESS_BYTES]; /**< where it listens */
} bt_gdoor_t;

/** Binds the socket that the option --grpc names.
 *  @param [in] net    how many connections, and how much memory
 *  @param [in] hosts  borrowed
 *  @retval others  Logged; bt_gdoor_close() is still due. */
BT_MUST_CHECK bt_status_t bt_gdoor_open(bt_gdoor_t *door,
                                        struct event_base *base,
                                        bt_frontend_t *front,
                                        const bt_net_config_t *net,
                                        const bt_hosts_t *hosts);
/** Calls that are open are given up; the frontend's pool must have been
 *  stopped. Also of a zeroed one. */
void bt_gdoor_close(bt_gdoor_t *door);
/** No new connections, and no new calls on those there are; open ones go on. */
void bt_gdoor_stop_listening(bt_gdoor_t *door);
/** Tells who watches the health of services; call it every 50 ms or so. */
void bt_gdoor_tick(bt_gdoor_t *door);
uint32_t bt_gdoor_n_connections(const bt_gdoor_t *door);

#endif
