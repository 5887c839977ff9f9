/* SPDX-License-Identifier: Apache-2.0 */
/** @file uses.h
 *
 * The tensors of one request that are in shared memory: found, read and
 * written, whatever the door.
 *
 *     parse ─▶ begin ───────▶ read ──────────▶ … ─▶ write ───────▶ end
 *              (references)   (inputs get       (outputs lose
 *              (loop)          data; pool)       theirs; pool)     (loop)
 *
 * An output that was written has no data any more; its bytes stay, for the
 * response to tell them.
 *
 * Threads: as drawn; begin and end on the event loop's, the others on any while
 * nobody else has the request.
 * Source:  Triton's extension "system shared memory".
 */
#ifndef BT_ROUTER_TRITON_USES_H
#define BT_ROUTER_TRITON_USES_H

#include "router/frontend/regions.h"
#include "router/triton/infer.h"

typedef struct bt_uses bt_uses_t;

/** Is anything of it in shared memory? Then bt_uses_begin() is due. */
bool bt_uses_any(const bt_infer_request_t *request);

/**
 * @param [in] regions    that clients have registered; NULL: they may not. Must
 *                        outlive the uses.
 * @param [in] max_bytes  of all inputs together
 * @retval BT_ERR_INVALID_PARAM  no such region, or not within it, or too much:
 *                               error_p names the tensor
 * @retval BT_ERR_BUSY, BT_ERR_NO_MEMORY  error_p is filled
 */
BT_MUST_CHECK bt_status_t bt_uses_begin(bt_regions_t *regions,
                                        const bt_infer_request_t *request,
                                        uint64_t max_bytes, bt_uses_t **uses_p,
                                        bt_api_error_t *error_p);
/** Bytes of the inputs that are to be read. */
uint64_t bt_uses_input_bytes(const bt_uses_t *uses);
/** Is any output to be written? NULL is allowed: none. */
bool bt_uses_writes(const bt_uses_t *uses);

/** The inputs in shared memory get data of their own, that has passed
 *  bt_tensor_check().
 *  @retval others  error_p names the input */
BT_MUST_CHECK bt_status_t bt_uses_read(const bt_uses_t *uses,
                                       bt_infer_request_t *request,
                                       bt_api_error_t *error_p);
/**
 * Those of the outputs that the client wants in shared memory go there.
 *
 * @param [in] max_bytes  of them together; for who must be done soon
 * @retval BT_ERR_INVALID_PARAM  One has no room, they are more than max_bytes,
 *                               or a region has shrunk: error_p names it. Some
 *                               may have been written.
 * @retval BT_ERR_IO             error_p is filled
 */
BT_MUST_CHECK bt_status_t bt_uses_write(const bt_uses_t *uses,
                                        const bt_infer_request_t *request,
                                        bt_tensor_t *outputs, size_t n,
                                        uint64_t max_bytes,
                                        bt_api_error_t *error_p);

/** The inputs' data, and what was made of it, is free. NULL is allowed. */
void bt_uses_give_back(bt_uses_t *uses);
/** That, and the references. NULL is allowed. */
void bt_uses_end(bt_uses_t *uses);

#endif
