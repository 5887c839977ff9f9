/* SPDX-License-Identifier: Apache-2.0 */
/** @file kcheck_attention_case.h  A random case of rope_store() and
 *  attention(): sequences, a paged cache that is filled up to their new rows,
 *  and the rows. What nobody may read is NaN. */
#ifndef BT_TESTS_KERNELS_KCHECK_ATTENTION_CASE_H
#define BT_TESTS_KERNELS_KCHECK_ATTENTION_CASE_H

#include "tests/kernels/kcheck.h"

#define KC_AT_MAX_SEQS     14u
#define KC_AT_MAX_POS      150u /* before the new rows */
#define KC_AT_LONG_POS     800u /* where it is to be long */
#define KC_AT_LAYER        1u
#define KC_AT_MAX_DIM      256u
#define KC_AT_MAX_POSITION (KC_AT_LONG_POS + 64u)

/** What numbers it is of. The others are for the rules of infinities, NaN and
 *  numbers below 2^-126: what is read, and what products and sums become. */
typedef enum kc_at_kind {
    KC_AT_ORDINARY, /**< a computation in double comes near */
    KC_AT_EXTREME,  /**< here and there something extreme */
    KC_AT_TINY,     /**< the cache is of numbers about 2^-126 and below */
    KC_AT_TINIER,   /**< hardly one of them is above it */
    KC_AT_BITS,     /**< and of any bits */
    KC_AT_N_KINDS
} kc_at_kind_t;

typedef struct kc_at_case {
    uint32_t n_heads;
    uint32_t n_kv;
    uint32_t dim;
    uint32_t block_tokens;
    uint32_t max_position; /* with the new rows */
    bt_attention_t attention;
    float *sinks;  /* NULL: none */
    float *slopes; /* NULL: none */
    uint32_t n_seqs;
    bt_ragged_seq_t seqs[KC_AT_MAX_SEQS];
    uint32_t n_rows;
    size_t row_floats;
    uint32_t blocks_per_seq;
    uint32_t *block_ids;
    bt_kv_view_t kv;
    size_t cache_floats; /* the cache is a canary buffer of floats */
    float *cache;        /* before */
    float *qkv;
    float *cos_sin;
    bt_rotation_t rotation;
    kc_at_kind_t kind;
    char what[200];
} kc_at_case_t;

/** All its rows. */
bt_batch_t kc_at_batch(const kc_at_case_t *c);

/** Element d of a key (part 0) or a value in a cache of its shape: keys lie
 *  (dim / 2, slot, 2), values (slot / 2, dim, 2). */
void *kc_at_elem(const kc_at_case_t *c, float *cache,
                 const bt_ragged_seq_t *seq, uint32_t part, uint32_t h,
                 uint32_t pos, uint32_t d);
bool kc_at_has_scales(const kc_at_case_t *c);
/** The scale of a vector, if there are any. */
float *kc_at_scale(const kc_at_case_t *c, float *cache,
                   const bt_ragged_seq_t *seq, uint32_t part, uint32_t h,
                   uint32_t pos);

/** @param max_pos  KC_AT_MAX_POS or KC_AT_LONG_POS */
void kc_at_make(kc_at_case_t *c, bt_kv_type_t type, kc_at_kind_t kind,
                uint32_t max_pos);
void kc_at_free(kc_at_case_t *c);
/** Of its parts, for one that is made of another: block ids, and what follows
 *  from the size of blocks. */
void kc_at_deal_blocks(kc_at_case_t *c);
void kc_at_set_view(kc_at_case_t *c);

#endif
