/* SPDX-License-Identifier: Apache-2.0 */
/** @file header.h  Header of a new GGUF file: everything but the tensors'
 *  data. */
#ifndef BT_CONVERT_HEADER_H
#define BT_CONVERT_HEADER_H

#include "common/base/strbuf.h"
#include "convert/plan.h"
#include "imatrix/imatrix.h"

/** Metadata key of the source: the input file (bt_gguf_identity()), the
 *  quantizer's version and the importance matrix. Two headers are equal only if
 *  the data after them is. */
#define BT_CONVERT_KEY_SOURCE "baton.convert.source"

/**
 * Appends the header: the metadata pairs of @a gguf, except those that describe
 * the number format, and the tensor table, padded to the start of the data.
 *
 * @param [in]  imatrix  NULL: none
 * @param [out] out  holds the status of failures
 */
void bt_convert_header(const bt_gguf_t *gguf, const bt_convert_mix_t *mix,
                       const bt_imatrix_t *imatrix,
                       const bt_convert_plan_t *plan, bt_strbuf_t *out);

#endif
