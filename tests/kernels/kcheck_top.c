/* SPDX-License-Identifier: Apache-2.0 */
/* top(): the first of each row, on every back end against a sort by the
 * definition in kernels.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/status.h"
#include "tests/kernels/kcheck.h"

typedef enum row_kind {
    ROW_ORDINARY,
    ROW_TIES,  /* few different values, zeros of both signs */
    ROW_WILD,  /* infinities, NaN, tiny and huge ones */
    ROW_BITS,  /* any bits */
    ROW_RISES, /* each is above all before it */
    ROW_FALLS,
    ROW_EQUAL,
    ROW_FEW, /* hardly one that can be drawn */
    N_ROW_KINDS
} row_kind_t;

typedef struct entry {
    float value;
    uint32_t id;
} entry_t;

static float value_of(row_kind_t kind, uint32_t i, uint32_t dim)
{
    const uint32_t bits = (uint32_t)kc_random();
    float x = kc_uniform(-8.0f, 8.0f);

    switch (kind) {
    case ROW_TIES:
        x = floorf(x / 4.0f);
        return ((x == 0.0f) && (kc_below(2) == 0)) ? -0.0f : x;
    case ROW_WILD:
        kc_fill(&x, 1, true);
        return (kc_below(9) == 0) ? copysignf(NAN, x) : x;
    case ROW_BITS:
        memcpy(&x, &bits, sizeof(x));
        return x;
    case ROW_RISES:
        return (float)i - (float)dim / 2.0f;
    case ROW_FALLS:
        return (float)dim / 2.0f - (float)i;
    case ROW_EQUAL:
        return -3.5f;
    case ROW_FEW:
        return (kc_below(50) == 0) ? x : (kc_below(2) == 0) ? -INFINITY : NAN;
    default:
        return x;
    }
}

static int in_order(const void *a, const void *b)
{
    const entry_t *x = a;
    const entry_t *y = b;

    if (x->value != y->value) {
        return (x->value > y->value) ? -1 : 1;
    }
    return (x->id < y->id) ? -1 : 1;
}

/* By the definition, with a sort of all that can be drawn. */
static void sort_row(const float *x, uint32_t dim, uint32_t k, uint32_t *ids,
                     float *values)
{
    entry_t *all = malloc(dim * sizeof(*all));
    uint32_t n = 0;

    BT_ASSERT_ALWAYS(all != NULL);
    for (uint32_t i = 0; i < dim; i++) {
        if (!isnan(x[i]) && (x[i] != -INFINITY)) {
            all[n++] = (entry_t){.value = x[i], .id = i};
        }
    }
    qsort(all, n, sizeof(*all), in_order);
    for (uint32_t j = 0; j < k; j++) {
        ids[j] = (j < n) ? all[j].id : UINT32_MAX;
        values[j] = (j < n) ? all[j].value : -INFINITY;
    }
    free(all);
}

static uint32_t first_other(const uint32_t *a, const uint32_t *b, uint32_t n)
{
    uint32_t i = 0;

    while ((i < n) && (a[i] == b[i])) {
        i++;
    }
    return i;
}

static void check_top(row_kind_t kind, uint32_t dim, uint32_t n_rows,
                      uint32_t k)
{
    const size_t n = (size_t)n_rows * k;
    float *x = kc_alloc((size_t)n_rows * dim);
    float *id_words = kc_alloc(n);
    float *want_id_words = kc_alloc(n);
    float *values = kc_alloc(n);
    float *want_values = kc_alloc(n);
    uint32_t *const ids = (uint32_t *)(void *)id_words;
    uint32_t *const want_ids = (uint32_t *)(void *)want_id_words;

    for (size_t r = 0; r < n_rows; r++) {
        for (uint32_t i = 0; i < dim; i++) {
            x[r * dim + i] = value_of(kind, i, dim);
        }
        sort_row(x + r * dim, dim, k, want_ids + r * k, want_values + r * k);
    }
    for (uint32_t i = 0; i < kc_n_backends; i++) {
        const kc_backend_t *b = &kc_backends[i];
        uint32_t at;

        if (kc_skips(b, b->be->ops->top != NULL, true, "top")) {
            continue;
        }
        kc_poison(id_words);
        kc_poison(values);
        b->be->ops->top(b->be, x, n_rows, dim, k, ids, values);
        at = first_other(want_ids, ids, (uint32_t)n);
        kc_expect(at == n,
                  "top %u of %u x %u, kind %d, %s: id %u is %u, not %u", k,
                  n_rows, dim, (int)kind, b->name, at, (at < n) ? ids[at] : 0,
                  (at < n) ? want_ids[at] : 0);
        kc_check_canaries(id_words, "top");
        kc_expect_equal(want_values, values, n, "top", b->name);
    }
    kc_free(x);
    kc_free(id_words);
    kc_free(want_id_words);
    kc_free(values);
    kc_free(want_values);
}

void kc_test_top(void)
{
    static const uint32_t few[] = {1, 2, 7, 33, 288};
    /* About the ends of lists and steps of those who take a row in parts. */
    static const uint32_t many[] = {2047, 2048, 4095, 4096, 4097,
                                    6144, 6145, 8192, 9000};
    static const uint32_t ks[] = {1, 2, 31, 64, 256, BT_TOP_MAX};

    for (uint32_t kind = 0; kind < N_ROW_KINDS; kind++) {
        for (size_t d = 0; d < BT_ARRAY_LEN(few); d++) {
            check_top((row_kind_t)kind, few[d], kc_below(6),
                      1 + kc_below(BT_TOP_MAX));
        }
        check_top((row_kind_t)kind, many[kc_below(BT_ARRAY_LEN(many))], 2,
                  ks[kind % BT_ARRAY_LEN(ks)]);
        check_top((row_kind_t)kind, 4096 + 1 + kc_below(9000), 1,
                  1 + kc_below(BT_TOP_MAX));
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(ks); i++) {
        check_top(ROW_ORDINARY, 300, 17, ks[i]);
        check_top(ROW_WILD, many[i], 1, ks[i]);
    }
    check_top(ROW_ORDINARY, 49152, 2, 64);
    check_top(ROW_BITS, 49152, 1, BT_TOP_MAX);
}
