/* SPDX-License-Identifier: Apache-2.0 */
/** @file header.h  The head of a new GGUF file: all but the tensors' data. */
#ifndef BT_CONVERT_HEADER_H
#define BT_CONVERT_HEADER_H

#include "common/base/strbuf.h"
#include "convert/plan.h"
#include "imatrix/imatrix.h"

/** Key with which file, by bt_gguf_identity(), which version of the quantizer
 *  and which importance matrix a file was made from: two heads are equal only
 *  if what follows is. */
#define BT_CONVERT_KEY_SOURCE "baton.convert.source"

/**
 * The pairs of @a gguf as they are, but for those that say how its numbers are
 * stored, and the table of tensors, padded to where their data begins.
 *
 * @param [in]  imatrix  NULL: none
 * @param [out] out  what fails is its status
 */
void bt_convert_header(const bt_gguf_t *gguf, const bt_convert_mix_t *mix,
                       const bt_imatrix_t *imatrix,
                       const bt_convert_plan_t *plan, bt_strbuf_t *out);

#endif
