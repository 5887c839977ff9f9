/* SPDX-License-Identifier: Apache-2.0 */
/** @file pb_model.h
 *
 * Converts a model's description and statistics to gRPC messages. The messages
 * live in the scratch memory and borrow the model's strings.
 *
 * Threads: pure functions.
 */
#ifndef BT_ROUTER_GRPC_PB_MODEL_H
#define BT_ROUTER_GRPC_PB_MODEL_H

#include "common/repository/repository.h"
#include "router/grpc/pb.h"
#include "router/observe/metrics.h"

/** Makes a ModelMetadataResponse.
 *  @return NULL: memory is short */
ProtobufCMessage *bt_pb_metadata(bt_pb_scratch_t *scratch,
                                 const bt_repo_model_t *model,
                                 const char *version);
/** Makes a ModelConfigResponse.
 *  @return NULL: memory is short */
ProtobufCMessage *bt_pb_config(bt_pb_scratch_t *scratch,
                               const bt_repo_model_t *model, bool decoupled);
/** Makes a ModelStatistics.
 *  @return NULL: memory is short */
ProtobufCMessage *bt_pb_statistics(bt_pb_scratch_t *scratch, const char *name,
                                   const char *version,
                                   const bt_statistics_t *statistics);

#endif
