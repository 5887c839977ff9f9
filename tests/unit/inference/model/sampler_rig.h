/* SPDX-License-Identifier: Apache-2.0 */
/** @file sampler_rig.h  A sampler, rows of logits and their order; for the
 *  tests of this folder. */
#ifndef BT_TESTS_UNIT_MODEL_SAMPLER_RIG_H
#define BT_TESTS_UNIT_MODEL_SAMPLER_RIG_H

#include <math.h>
#include <stdlib.h>

#include "inference/model/sampler.h"
#include "kernels/draw.h"
#include "tests/support/testsupport.h"

#define N_VOCAB 1000

static inline bt_sampler_t *make_sampler(uint32_t n_vocab)
{
    bt_sampler_t *sampler = NULL;

    assert_int_equal(bt_sampler_create(n_vocab, &sampler), BT_OK);
    return sampler;
}

/* Uniform in [0, 1) from (seed, position): what a draw is by (draw.h). */
static inline double uniform(uint64_t seed, uint64_t position)
{
    return (double)bt_draw_bits(seed, position) * 0x1p-64;
}

typedef struct entry {
    float logit;
    uint32_t id;
} entry_t;

static inline int compare_entries(const void *a, const void *b)
{
    const entry_t *const x = a;
    const entry_t *const y = b;

    if (x->logit != y->logit) {
        return (x->logit < y->logit) ? 1 : -1;
    }
    return (x->id > y->id) - (x->id < y->id);
}

static inline float random_logit(uint32_t i, uint32_t round)
{
    /* Coarse steps make ties; every 50th is banned, some are NaN. */
    const double u = uniform(round + 1, i + 1);

    if (i % 50 == 7) {
        return -INFINITY;
    }
    if (i % 97 == 11) {
        return NAN;
    }
    return (round % 2 == 0) ? (float)(u * 30.0 - 20.0)
                            : (float)floor(u * 12.0) * 0.5f;
}

#endif
