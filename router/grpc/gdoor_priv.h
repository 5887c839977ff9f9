/* SPDX-License-Identifier: Apache-2.0 */
/** @file gdoor_priv.h
 *
 * Shared by the files of the gRPC server only: gdoor.c, which has the table of
 * methods, infer.c, services.c, describe.c, health.c and reflection.c.
 */
#ifndef BT_ROUTER_GRPC_GDOOR_PRIV_H
#define BT_ROUTER_GRPC_GDOOR_PRIV_H

#include "router/grpc/gdoor.h"
#include "router/grpc/pb.h"
#include "router/request/request.h"

#define BT_INFERENCE "/inference.GRPCInferenceService/"

/** Records a request, which is a call or one message of a stream, in the access
 * log and the metrics.
 *  @param [in] call     NULL: it was refused
 *  @param [in] id       of a refused call
 *  @param [in] request  NULL: none of inference */
void bt_gdoor_note(bt_gdoor_t *door, bt_gcall_t *call, const char *id,
                   const char *path, const bt_request_t *request,
                   uint64_t start_us, int http_status);

/** Sends one message.
 *  @return false: the call is over */
bool bt_gdoor_send(bt_gcall_t *call, const ProtobufCMessage *message);
/** Sends the single message of a unary call, and ends the call. */
void bt_gdoor_answer(bt_gcall_t *call, const ProtobufCMessage *message);
/** Sends a message as bt_gdoor_answer(), or an error when memory was short;
 *  frees the scratch memory. @param message  NULL: memory was short */
void bt_gdoor_answer_from(bt_gcall_t *call, bt_pb_scratch_t *scratch,
                          const ProtobufCMessage *message);
/** Ends a call with an error, given with an HTTP status. */
void bt_gdoor_fail(bt_gcall_t *call, const bt_api_error_t *error);

/* ---- infer.c ---- */

void bt_infer_unary(bt_gcall_t *call, bt_gmessage_t *message);
void bt_infer_unary_gone(bt_gcall_t *call);
void bt_infer_stream(bt_gcall_t *call, bt_gmessage_t *message);
void bt_infer_stream_half_close(bt_gcall_t *call);
void bt_infer_stream_gone(bt_gcall_t *call);

/* ---- answers of a bt_gmethod_t; @a request has its request_type ---- */

/* services.c */
void bt_service_server_live(bt_gcall_t *call, void *request);
void bt_service_server_ready(bt_gcall_t *call, void *request);
void bt_service_model_ready(bt_gcall_t *call, void *request);
void bt_service_server_metadata(bt_gcall_t *call, void *request);
void bt_service_model_load(bt_gcall_t *call, void *request);
void bt_service_model_unload(bt_gcall_t *call, void *request);
/** Ends the interest in loading or unloading: the client is gone. */
void bt_service_control_gone(bt_gcall_t *call);
void bt_service_memory_status(bt_gcall_t *call, void *request);
void bt_service_memory_register(bt_gcall_t *call, void *request);
void bt_service_memory_unregister(bt_gcall_t *call, void *request);
void bt_service_cuda_memory_none(bt_gcall_t *call, void *request);
void bt_service_cuda_memory_register(bt_gcall_t *call, void *request);

/** Returns the tenant of a call; the one without a name if it names none. */
const bt_tenant_t *bt_gdoor_tenant(const bt_gcall_t *call);

/* describe.c */
void bt_service_model_metadata(bt_gcall_t *call, void *request);
void bt_service_model_config(bt_gcall_t *call, void *request);
void bt_service_model_statistics(bt_gcall_t *call, void *request);
void bt_service_repository_index(bt_gcall_t *call, void *request);
void bt_service_log_settings(bt_gcall_t *call, void *request);
void bt_service_trace_setting(bt_gcall_t *call, void *request);

/* health.c */
void bt_health_check(bt_gcall_t *call, void *request);
void bt_health_watch(bt_gcall_t *call, void *request);
void bt_health_watch_gone(bt_gcall_t *call);

/* reflection.c */
void bt_reflection_answer(bt_gcall_t *call, void *request);
void bt_reflection_half_close(bt_gcall_t *call);

#endif
