/* SPDX-License-Identifier: Apache-2.0 */
/** @file shm_tensors.h
 *
 * The tensors of one request that are in shared memory: looked up, read and
 * written, for HTTP and gRPC.
 *
 *     parse ─▶ begin ───────▶ read ──────────▶ … ─▶ write ───────▶ end
 *              (references)   (inputs get       (outputs lose
 *              (loop)          data; pool)       theirs; pool)     (loop)
 *
 * An output has no data after it was written; its byte size stays, for the
 * response to report.
 *
 * Threads: as drawn; begin and end on the event loop's thread, the others on
 * any thread while no other thread uses the request.
 * Source:  Triton's extension "system shared memory".
 */
#ifndef BT_ROUTER_TRITON_SHM_TENSORS_H
#define BT_ROUTER_TRITON_SHM_TENSORS_H

#include "router/frontend/regions.h"
#include "router/triton/infer.h"

typedef struct bt_shm_tensors bt_shm_tensors_t;

/** True when any tensor of the request is in shared memory:
 * bt_shm_tensors_begin() is required. */
bool bt_shm_tensors_any(const bt_infer_request_t *request);

/**
 * Takes references to the shared-memory regions of a request.
 *
 * @param [in] regions    regions that clients have registered; NULL: shared
 *                        memory is not allowed. Must outlive the uses.
 * @param [in] max_bytes  limit for all inputs together
 * @retval BT_ERR_INVALID_PARAM  no such region, out of its range, or too
 *                               large: error_p names the tensor
 * @retval BT_ERR_BUSY, BT_ERR_NO_MEMORY  error_p is filled
 */
BT_MUST_CHECK bt_status_t bt_shm_tensors_begin(
    bt_regions_t *regions, const bt_infer_request_t *request,
    uint64_t max_bytes, bt_shm_tensors_t **uses_p, bt_api_error_t *error_p);
/** Returns the bytes of the inputs to be read. */
uint64_t bt_shm_tensors_input_bytes(const bt_shm_tensors_t *uses);
/** True when any output is to be written. False for NULL. */
bool bt_shm_tensors_writes(const bt_shm_tensors_t *uses);

/** Reads the inputs from shared memory into their own data, which has passed
 *  bt_tensor_check().
 *  @retval others  error_p names the input */
BT_MUST_CHECK bt_status_t bt_shm_tensors_read(const bt_shm_tensors_t *uses,
                                              bt_infer_request_t *request,
                                              bt_api_error_t *error_p);
/**
 * Writes the outputs that the client wants in shared memory.
 *
 * @param [in] max_bytes  limit for these outputs together, for callers that
 *                        must not block for long
 * @retval BT_ERR_INVALID_PARAM  An output does not fit, the outputs exceed
 *                               max_bytes, or a region has shrunk: error_p
 *                               names it. Some outputs may have been written.
 * @retval BT_ERR_IO             error_p is filled
 */
BT_MUST_CHECK bt_status_t
bt_shm_tensors_write(const bt_shm_tensors_t *uses,
                     const bt_infer_request_t *request, bt_tensor_t *outputs,
                     size_t n, uint64_t max_bytes, bt_api_error_t *error_p);

/** Returns the inputs' bytes to the budget: their data, and everything made
 *  from it, has been freed. NULL is allowed. */
void bt_shm_tensors_give_back(bt_shm_tensors_t *uses);
/** Returns the inputs' bytes to the budget and drops the references to
 *  regions. NULL is allowed. */
void bt_shm_tensors_end(bt_shm_tensors_t *uses);

#endif
