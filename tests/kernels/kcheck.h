/* SPDX-License-Identifier: Apache-2.0 */
/** @file kcheck.h
 *
 * Every operation, on every tier this machine has and with 1, 2 and 3 threads,
 * against the plain C tier with one thread: equal bits. And that one against a
 * naive computation in double, within a bound. Outputs lie between canaries
 * and are poisoned before each call. In the manner of dav1d's checkasm.
 *
 *     kcheck [--seed N]                  the tiers
 *     kcheck [--seed N] --backend NAME   that back end instead; exit status 77
 *                                        (skipped) where it is not there
 *     kcheck ... --numerics tensor       that back end with the numbers of
 *                                        BT_NUMERICS_TENSOR: what these are of
 *                                        (kc_test_tensor) within a tolerance,
 *                                        all else equal bits
 *     kcheck ... --only TEST             ops, family, experts, top, draw,
 *                                        matmul, fused, lora, kv, attention,
 *                                        hash or tensor alone
 *     kcheck ... --sample N              one case in N of products, fused steps
 *                                        and attention: which, the seed says
 *
 * NAME is one of bt_backend_open(), or "trap": tests/support/trap_backend.h.
 * What a back end does not have is skipped, and so is what it computes with
 * numbers of its own (another profile) in matmul() and whatever follows from
 * it; what is known of BT_NUMERICS_TENSOR has tests of its own.
 */
#ifndef BT_TESTS_KERNELS_KCHECK_H
#define BT_TESTS_KERNELS_KCHECK_H

#include "kernels/kernels.h"

#define KC_MAX_ROWS     64u
#define KC_MAX_MANY     200u /* of a product, on a back end by name */
#define KC_MAX_SEQ_ROWS 256u /* of a batch of sequences */

typedef struct kc_backend {
    bt_backend_t *be;
    bt_backend_t *own; /**< ...behind kc_hosted(); NULL: it is not */
    char name[32];     /* "avx2 x 1 + 2": with two on lent cores */
} kc_backend_t;

/** The first is the reference. */
extern kc_backend_t kc_backends[14];
extern uint32_t kc_n_backends;

/* Random numbers; the same seed gives the same run. */
uint64_t kc_random(void);
uint32_t kc_below(uint32_t n); /**< 0 .. n-1 */
float kc_uniform(float low, float high);
uint16_t kc_half(void); /**< finite, any sign and size */
/** Mostly ordinary; with @a extreme also huge, tiny, zero and infinite. */
void kc_fill(float *x, size_t n, bool extreme);

/** Tokens of batches whose tokens do not matter. */
extern const uint32_t kc_tokens[KC_MAX_SEQ_ROWS];

/** Is this case in the sample? Of any N that follow each other one is, so that
 *  of each type of weights and each number of rows some are. */
bool kc_takes(void);

/** Memory of @a n floats between canaries, all poisoned. Ends the program
 *  when memory is short. */
float *kc_alloc(size_t n);
void kc_poison(float *buffer);
/** Reports a write outside @a buffer. */
void kc_check_canaries(const float *buffer, const char *what);
void kc_free(float *buffer);
/** Floats of a buffer of kc_alloc(), which is given by its beginning. */
size_t kc_size(const float *buffer);

/** Is an operation not to be checked on this back end? So where it is not
 *  @a there, or (@a exact: all back ends give the same bits) the back end is of
 *  another profile than the reference. Says so once. */
bool kc_skips(const kc_backend_t *b, bool there, bool exact, const char *op);

/** The same back end, whose memory is its own, called with the host's memory.
 *  Owns @a real. Hints are not in it. */
bt_backend_t *kc_hosted(bt_backend_t *real);

/** A result to report: @a ok or not, with what it was. */
void kc_expect(bool ok, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/** Equal bits, any NaN equal to any NaN. @return the first difference or n. */
size_t kc_first_difference(const float *a, const float *b, size_t n);
/** kc_expect() that @a b equals @a a. */
void kc_expect_equal(const float *a, const float *b, size_t n, const char *what,
                     const char *backend);

/** A type of weights, and where its blocks keep their 16-bit floats; 255 =
 *  none. */
typedef struct kc_type {
    bt_ktype_t type;
    uint8_t half_at[2];
} kc_type_t;

#define KC_N_TYPES 28u
extern const kc_type_t kc_types[KC_N_TYPES];

/** Random blocks whose scales are finite. */
void kc_fill_weights(const kc_type_t *type, uint8_t *data, size_t n_blocks,
                     uint32_t n_bytes);
/** A weight of one back end. @return NULL: reported, with what it was */
bt_weight_t *kc_pack(const kc_backend_t *b, const kc_type_t *type,
                     uint32_t n_out, uint32_t n_in, const uint8_t *data,
                     const char *what);

/** Are products with this type of weights, and is attention, computed with the
 *  numbers of BT_NUMERICS_TENSOR? */
bool kc_is_tensor(const kc_backend_t *b);
bool kc_type_is_tensor(const kc_backend_t *b, bt_ktype_t type);

/** Back ends of BT_NUMERICS_TENSOR alone: products, attention, experts. */
void kc_test_tensor(void);
void kc_test_tensor_attention(void);
void kc_test_tensor_experts(void);
void kc_test_matmul(void);
void kc_test_fused(void);
void kc_test_lora(void);
void kc_test_ops(void);
void kc_test_family(void);
void kc_test_experts(void);
void kc_test_top(void);
void kc_test_draw(void);
void kc_test_hash(void);
void kc_test_kv(void);
void kc_test_attention(void);

#endif
