/* SPDX-License-Identifier: Apache-2.0 */
/** @file priority.h
 *
 * Maps a client's `priority` to a level of the scheduler. The direction of the
 * scale depends on the API:
 *
 *     API                           number        first        default
 *     OpenAI (vLLM)                 integer       the lowest   0
 *     Triton: generate, infer,      1, 2, 3 ...   1            0, or none
 *       gRPC
 *     any (TensorRT-LLM)            0.0 to 1.0    the highest  0.5
 *
 * The levels are one scale of Triton's numbers, 1 to BT_PRIORITY_LEVELS, with a
 * default in between. priority_levels and default_priority_level of the model
 * repository replace both:
 *
 *     Triton        1 .. default .. levels
 *     OpenAI        1 - default .. 0 .. levels - default
 *     TensorRT-LLM  1.0 .. 0.5 .. 0.0
 *     scheduler     BT_SCHED_TOP_LEVEL .. .. 0   (sched_queue.h: 5 s each)
 *
 * Threads: pure functions.
 * Source:  vLLM, SamplingParams and OpenAI protocol ("lower means earlier
 *          handling; default: 0"); Triton's model_config.proto ("1 is the
 *          highest priority") and its PriorityQueue (a number above
 *          priority_levels is the default one); TensorRT-LLM's executor API
 *          (PriorityType, 0 to 1, default 0.5).
 */
#ifndef BT_ROUTER_FRONTEND_PRIORITY_H
#define BT_ROUTER_FRONTEND_PRIORITY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/config/config.h"
#include "router/api/api.h"

#define BT_PRIORITY_LEVELS  25 /**< without a repository's own */
#define BT_PRIORITY_DEFAULT 13

typedef struct bt_priority_scale {
    uint32_t levels;      /**< Triton's lowest priority */
    uint32_t by_default;  /**< default, from 1 to levels */
    bool from_repository; /**< Triton's numbers above levels are the default */
} bt_priority_scale_t;

/** Returns the scale from priority_levels and default_priority_level of
 *  tensorrt_llm, or BT_PRIORITY_LEVELS. */
bt_priority_scale_t bt_priority_scale(const bt_config_t *config);

/** Returns the scheduler's level of requests without a priority. */
uint32_t bt_priority_default(const bt_priority_scale_t *scale);

/**
 * Converts a request's priority to a level.
 *
 * @param [out] level_p  0 to BT_SCHED_TOP_LEVEL, higher is sooner
 * @retval BT_ERR_INVALID_PARAM  The API does not allow this number; error_p
 *   says which it allows.
 */
BT_MUST_CHECK bt_status_t bt_priority_level(const bt_priority_scale_t *scale,
                                            const bt_api_request_t *request,
                                            uint32_t *level_p,
                                            bt_api_error_t *error_p);

#endif
