/* SPDX-License-Identifier: Apache-2.0 */
/** @file reference_draw.h
 *
 * draw(), score() and top() (kernels.h) implemented directly from the
 * definition, for back ends with memory of their own to be compared with. The
 * CPU back end has none of them: its engine samples by
 * inference/model/sampler.c, which is faster.
 */
#ifndef BT_TESTS_SUPPORT_REFERENCE_DRAW_H
#define BT_TESTS_SUPPORT_REFERENCE_DRAW_H

#include "kernels/kernels.h"

void bt_reference_draw(float *logits, const bt_batch_t *batch, uint32_t dim,
                       uint32_t *ids);
void bt_reference_score(const float *logits, const bt_batch_t *batch,
                        uint32_t dim, const uint32_t *ids, bt_scored_t *out);
void bt_reference_top(const float *x, uint32_t n_rows, uint32_t dim, uint32_t k,
                      uint32_t *ids, float *values);

#endif
