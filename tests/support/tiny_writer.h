/* SPDX-License-Identifier: Apache-2.0 */
/** @file tiny_writer.h  A small model while it is written: shared by
 *  tiny_model.c and tiny_experts.c. */
#ifndef BT_TESTS_SUPPORT_TINY_WRITER_H
#define BT_TESTS_SUPPORT_TINY_WRITER_H

#include "common/base/text.h"
#include "tests/support/tiny_family.h"
#include "tests/support/tiny_model.h"

#define NAME_BYTES 64

/* One tensor to be written. */
typedef struct bt_tiny_tensor {
    char name[NAME_BYTES];
    uint32_t type;
    uint32_t n_dims;
    uint64_t n_in;
    uint64_t n_out; /* 1 for vectors; of all matrices of three dimensions */
    uint64_t n_mats;
    uint64_t loud; /* from this row on, values are LOUD times as large; 0: no */
    float center;  /* values: center + uniform(-reach, reach) */
    float reach;
} bt_tiny_tensor_t;

typedef struct bt_tiny_writer {
    const bt_tiny_model_t *model;
    const bt_tiny_family_t *family;
    bt_strbuf_t head;
    bt_tiny_tensor_t *tensors;
    uint32_t n_tensors;
    uint32_t n_kvs;
} bt_tiny_writer_t;

/** Writes the key "ARCHITECTURE.name" to key (NAME_BYTES). */
const char *bt_tiny_arch_key(const bt_tiny_writer_t *w, char *key,
                             const char *name);
void bt_tiny_kv_u32(bt_tiny_writer_t *w, const char *key, uint32_t value);

/** Adds a tensor without a name, of weights that keep the variance of what
 *  passes through. */
bt_tiny_tensor_t *bt_tiny_add_tensor(bt_tiny_writer_t *w, uint32_t type,
                                     uint64_t n_in, uint64_t n_out);
bt_tiny_tensor_t *bt_tiny_add_vector(bt_tiny_writer_t *w, uint64_t n,
                                     float center, float reach);
/** Names a tensor "blk.LAYER.NAME.KIND". */
void bt_tiny_name_part(bt_tiny_tensor_t *t, uint32_t layer, const char *name,
                       const char *kind);
void bt_tiny_add_matrix(bt_tiny_writer_t *w, uint32_t layer, const char *name,
                        uint32_t type, uint64_t n_in, uint64_t n_out,
                        bool bias);

/* Of layers with experts: tiny_experts.c. */
void bt_tiny_put_experts(bt_tiny_writer_t *w);
void bt_tiny_add_experts(bt_tiny_writer_t *w, uint32_t layer, uint32_t mixed);

#endif
