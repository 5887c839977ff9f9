/* SPDX-License-Identifier: Apache-2.0 */
/** @file gdoor_priv.h
 *
 * Shared by the files of the gRPC server: gdoor.c, infer.c, services.c,
 * describe.c, memory.c, manage.c, health.c and reflection.c only. The methods
 * are one table, in gdoor.c.
 */
#ifndef BT_ROUTER_GRPC_GDOOR_PRIV_H
#define BT_ROUTER_GRPC_GDOOR_PRIV_H

#include "router/grpc/gdoor.h"
#include "router/grpc/pb.h"
#include "router/request/request.h"

#define BT_INFERENCE "/inference.GRPCInferenceService/"

/** Records a request, which is a call or one message of a stream, in the access
 * log and the metrics.
 *  @param [in] request  NULL: none of inference */
void bt_gdoor_note(bt_gdoor_t *door, bt_gcall_t *call, const char *path,
                   const bt_request_t *request, uint64_t start_us,
                   int http_status);

/** Reads the single message of a call. The message is consumed in any case.
 *  @return NULL: the call was ended; else free it with bt_pb_free() */
ProtobufCMessage *bt_gdoor_read(bt_gcall_t *call, bt_gmessage_t *message,
                                const ProtobufCMessageDescriptor *what,
                                bt_pb_room_t *room);
/** Sends one message.
 *  @return false: the call is over */
bool bt_gdoor_send(bt_gcall_t *call, const ProtobufCMessage *message);
/** Sends the single message of a unary call, and ends the call. */
void bt_gdoor_answer(bt_gcall_t *call, const ProtobufCMessage *message);
/** Ends a call with an error, given with an HTTP status. */
void bt_gdoor_fail(bt_gcall_t *call, const bt_api_error_t *error);

/* ---- infer.c ---- */

void bt_infer_unary(bt_gcall_t *call, bt_gmessage_t *message);
void bt_infer_unary_gone(bt_gcall_t *call);
void bt_infer_stream(bt_gcall_t *call, bt_gmessage_t *message);
void bt_infer_stream_half_close(bt_gcall_t *call);
void bt_infer_stream_gone(bt_gcall_t *call);

/* ---- services.c: each answers a bt_gmethod_t's on_message ---- */

void bt_service_server_live(bt_gcall_t *call, bt_gmessage_t *message);
void bt_service_server_ready(bt_gcall_t *call, bt_gmessage_t *message);
void bt_service_model_ready(bt_gcall_t *call, bt_gmessage_t *message);
void bt_service_server_metadata(bt_gcall_t *call, bt_gmessage_t *message);

/* ---- describe.c: each answers a bt_gmethod_t's on_message ---- */

void bt_service_model_metadata(bt_gcall_t *call, bt_gmessage_t *message);
void bt_service_model_config(bt_gcall_t *call, bt_gmessage_t *message);
void bt_service_model_statistics(bt_gcall_t *call, bt_gmessage_t *message);
void bt_service_repository_index(bt_gcall_t *call, bt_gmessage_t *message);
void bt_service_log_settings(bt_gcall_t *call, bt_gmessage_t *message);
void bt_service_trace_setting(bt_gcall_t *call, bt_gmessage_t *message);

/* ---- memory.c: regions of shared memory; on_message handlers ---- */

void bt_memory_status(bt_gcall_t *call, bt_gmessage_t *message);
void bt_memory_register(bt_gcall_t *call, bt_gmessage_t *message);
void bt_memory_unregister(bt_gcall_t *call, bt_gmessage_t *message);
/* CUDA shared memory, of which there is none here. */
void bt_memory_cuda_none(bt_gcall_t *call, bt_gmessage_t *message);
void bt_memory_cuda_register(bt_gcall_t *call, bt_gmessage_t *message);

/* ---- manage.c: load and unload models through the launcher ---- */

void bt_manage_load(bt_gcall_t *call, bt_gmessage_t *message);
void bt_manage_unload(bt_gcall_t *call, bt_gmessage_t *message);
void bt_manage_gone(bt_gcall_t *call);

/* ---- health.c ---- */

void bt_health_check(bt_gcall_t *call, bt_gmessage_t *message);
void bt_health_watch(bt_gcall_t *call, bt_gmessage_t *message);
void bt_health_watch_gone(bt_gcall_t *call);
void bt_health_tick(bt_gdoor_t *door);

/* ---- reflection.c ---- */

void bt_reflection_message(bt_gcall_t *call, bt_gmessage_t *message);
void bt_reflection_half_close(bt_gcall_t *call);

#endif
