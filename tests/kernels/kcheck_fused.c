/* SPDX-License-Identifier: Apache-2.0 */
/* Each fused step, on every back end, against the single operations on the
 * reference: equal bits. */
#include <stdio.h>
#include <string.h>

#include "common/base/status.h"
#include "tests/kernels/kcheck.h"

#define EPS 1e-5f

typedef struct fused_case {
    const kc_type_t *type;
    uint32_t n_out;
    uint32_t n_in;
    uint32_t n_rows;
    uint8_t *data;
    float *rows;    /* (n_rows, n_in) */
    float *gate_up; /* (n_rows, 2 n_in) */
    float *norm;    /* (n_in) */
    float *x;       /* (n_rows, n_out): what is added to */
    /* From the reference's single operations. */
    float *want_norm;
    float *want_add;
    float *want_silu;
    float *got;
    float *tmp; /* (n_rows, n_in) */
    char what[96];
} fused_case_t;

static void make_case(fused_case_t *c, bool extreme)
{
    uint32_t n_elems = 0;
    uint32_t n_bytes = 0;
    size_t n_blocks;
    size_t n;

    kc_expect(bt_ktype_block(c->type->type, &n_elems, &n_bytes) == BT_OK,
              "block size of type %d", (int)c->type->type);
    c->n_in = n_elems * (1 + kc_below((n_elems == 1) ? 200 : 640 / n_elems));
    n = (size_t)c->n_rows * c->n_in;
    n_blocks = (size_t)c->n_out * (c->n_in / n_elems);
    c->data = (uint8_t *)kc_alloc(n_blocks * n_bytes / 4 + 1);
    kc_fill_weights(c->type, c->data, n_blocks, n_bytes);
    c->rows = kc_alloc(n);
    c->gate_up = kc_alloc(2 * n);
    c->norm = kc_alloc(c->n_in);
    c->tmp = kc_alloc(n);
    kc_fill(c->rows, n, extreme);
    kc_fill(c->gate_up, 2 * n, extreme);
    kc_fill(c->norm, c->n_in, false);
    n = (size_t)c->n_rows * c->n_out;
    c->x = kc_alloc(n);
    c->want_norm = kc_alloc(n);
    c->want_add = kc_alloc(n);
    c->want_silu = kc_alloc(n);
    c->got = kc_alloc(n);
    /* Odd numbers always: with the sum 0 of a row of zeros they show, if they
     * are subnormal, in which mode the addition is done. */
    kc_fill(c->x, n, true);
    for (size_t r = kc_below(2); r < c->n_rows; r += 3) {
        memset(c->rows + r * c->n_in, 0, c->n_in * sizeof(float));
        memset(c->gate_up + r * 2 * c->n_in, 0, 2 * c->n_in * sizeof(float));
    }
    snprintf(c->what, sizeof(c->what), "%s %u x %u, %u rows%s",
             bt_ktype_name(c->type->type), c->n_out, c->n_in, c->n_rows,
             extreme ? ", extreme" : "");
}

static void free_case(fused_case_t *c)
{
    kc_free((float *)(void *)c->data);
    kc_free(c->rows);
    kc_free(c->gate_up);
    kc_free(c->norm);
    kc_free(c->tmp);
    kc_free(c->x);
    kc_free(c->want_norm);
    kc_free(c->want_add);
    kc_free(c->want_silu);
    kc_free(c->got);
}

static void run_single(fused_case_t *c, bt_backend_t *be, const bt_weight_t *w)
{
    const bt_kernels_ops_t *ops = be->ops;
    const size_t n = (size_t)c->n_rows * c->n_out;

    ops->rmsnorm(be, c->rows, c->norm, EPS, c->n_rows, c->n_in, c->tmp);
    ops->matmul(be, w, c->tmp, c->n_rows, c->want_norm);

    ops->matmul(be, w, c->rows, c->n_rows, c->got);
    memcpy(c->want_add, c->x, n * sizeof(float));
    ops->add(be, c->want_add, c->got, n);

    ops->activate(be, BT_ACT_SILU, true, c->gate_up, c->n_rows, c->n_in,
                  c->tmp);
    ops->matmul(be, w, c->tmp, c->n_rows, c->got);
    memcpy(c->want_silu, c->x, n * sizeof(float));
    ops->add(be, c->want_silu, c->got, n);
}

static void expect(const fused_case_t *c, const float *want, const char *op,
                   const char *backend)
{
    char what[160];

    snprintf(what, sizeof(what), "%s %s", op, c->what);
    kc_expect_equal(want, c->got, (size_t)c->n_rows * c->n_out, what, backend);
}

static void hint(bt_backend_t *be, const bt_weight_t *w)
{
    if (be->ops->ahead != NULL) {
        be->ops->ahead(be, w);
    }
}

static void run_fused(fused_case_t *c, const kc_backend_t *b,
                      const bt_weight_t *w)
{
    const bt_kernels_ops_t *ops = b->be->ops;
    const size_t n = (size_t)c->n_rows * c->n_out;

    /* Hints, and one that is left over when the weight is freed. */
    hint(b->be, w);
    kc_poison(c->got);
    ops->norm_matmul(b->be, w, c->rows, c->norm, EPS, c->n_rows, c->got);
    expect(c, c->want_norm, "norm_matmul", b->name);

    memcpy(c->got, c->x, n * sizeof(float));
    hint(b->be, w);
    ops->matmul_add(b->be, w, c->rows, c->n_rows, c->got);
    expect(c, c->want_add, "matmul_add", b->name);

    memcpy(c->got, c->x, n * sizeof(float));
    ops->silu_matmul_add(b->be, w, c->gate_up, c->n_rows, c->got);
    expect(c, c->want_silu, "silu_matmul_add", b->name);
    hint(b->be, w);
}

static void run_case(const kc_type_t *type, uint32_t n_out, uint32_t n_rows,
                     bool extreme)
{
    fused_case_t c = {.type = type, .n_out = n_out, .n_rows = n_rows};

    if (!kc_takes()) {
        return;
    }
    make_case(&c, extreme);
    for (uint32_t i = 0; i < kc_n_backends; i++) {
        const kc_backend_t *b = &kc_backends[i];
        bt_weight_t *w;

        if (kc_skips(b, b->be->ops->norm_matmul != NULL, false,
                     "fused steps") ||
            kc_type_is_tensor(b, type->type)) {
            continue;
        }
        w = kc_pack(b, type, c.n_out, c.n_in, c.data, c.what);
        if (w == NULL) {
            continue;
        }
        if (i == 0) {
            run_single(&c, b->be, w);
        }
        run_fused(&c, b, w);
        b->be->ops->weight_free(b->be, w);
    }
    free_case(&c);
}

void kc_test_fused(void)
{
    static const uint32_t outs[] = {1, 15, 16, 17, 31, 32, 33, 96, 200, 321};
    static const uint32_t many[] = {0, 17, 23, 24, 25, 31, 48, 64};

    for (size_t t = 0; t < KC_N_TYPES; t++) {
        /* 1 .. 12 can be prepared by each thread for itself. */
        for (uint32_t rows = 1; rows <= 14; rows++) {
            for (uint32_t i = 0; i < 2; i++) {
                run_case(&kc_types[t], outs[kc_below(BT_ARRAY_LEN(outs))], rows,
                         i == 1);
            }
        }
        for (size_t r = 0; r < BT_ARRAY_LEN(many); r++) {
            run_case(&kc_types[t], outs[kc_below(BT_ARRAY_LEN(outs))], many[r],
                     r % 3 == 2);
        }
    }
}
