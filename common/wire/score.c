/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/wire/wire.h"

/* Log-prob, then id and log-prob of each alternative, in the memory layout
 * of a little-endian machine (wire_encode.c checks that it is one). */

void bt_score_put(const bt_score_t *score, uint8_t *bytes)
{
    memcpy(bytes, &score->logprob, sizeof(double));
    bytes += sizeof(double);
    for (uint32_t i = 0; i < score->n_top; i++) {
        memcpy(bytes, &score->top_ids[i], sizeof(uint32_t));
        memcpy(bytes + sizeof(uint32_t), &score->top_logprobs[i],
               sizeof(double));
        bytes += sizeof(uint32_t) + sizeof(double);
    }
}

void bt_score_get(const uint8_t *bytes, uint32_t n_top, bt_score_t *score_p)
{
    memcpy(&score_p->logprob, bytes, sizeof(double));
    bytes += sizeof(double);
    for (uint32_t i = 0; i < n_top; i++) {
        memcpy(&score_p->top_ids[i], bytes, sizeof(uint32_t));
        memcpy(&score_p->top_logprobs[i], bytes + sizeof(uint32_t),
               sizeof(double));
        bytes += sizeof(uint32_t) + sizeof(double);
    }
    score_p->n_top = n_top;
}
