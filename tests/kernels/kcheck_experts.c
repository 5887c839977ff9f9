/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of a mixture of experts, on every back end against the reference:
 * equal bits; the reference's products against matmul() with one expert's
 * matrix alone, its sums against the order of kernels.h written out, and its
 * routing against double. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/status.h"
#include "common/coll/coll_shm.h"
#include "tests/kernels/kcheck.h"

/* Tables of one call, in memory between canaries. */
typedef struct tables {
    bt_expert_rows_t t;
    float *parts[5];
} tables_t;

static tables_t make_tables(uint32_t n_experts, uint32_t n_used,
                            uint32_t n_rows)
{
    const size_t n = (size_t)n_rows * n_used;
    const size_t sizes[] = {n, n, n, (size_t)n_experts + 1, n};
    tables_t tables = {{.n_experts = n_experts, .n_used = n_used}, {NULL}};

    for (size_t i = 0; i < BT_ARRAY_LEN(sizes); i++) {
        tables.parts[i] = kc_alloc(sizes[i]);
    }
    tables.t.ids = (uint32_t *)(void *)tables.parts[0];
    tables.t.weights = tables.parts[1];
    tables.t.slots = (uint32_t *)(void *)tables.parts[2];
    tables.t.first = (uint32_t *)(void *)tables.parts[3];
    tables.t.rows = (uint32_t *)(void *)tables.parts[4];
    return tables;
}

static void free_tables(tables_t *tables)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(tables->parts); i++) {
        kc_free(tables->parts[i]);
    }
}

/* Returns a random share of the leaves, which has an expert. */
static bt_expert_rows_t random_share(const bt_expert_rows_t *all)
{
    bt_expert_rows_t own = *all;

    do {
        own.n_leaves = 1u << kc_below(4);
        own.first_leaf =
            own.n_leaves * kc_below(BT_EXPERT_LEAVES / own.n_leaves);
    } while (bt_own_experts(&own) == 0);
    return own;
}

/* Makes the tables of one that has these leaves alone, of those of all: slots
 * of own experts are adjacent, in the same order. The rest is poisoned.
 * @return the first of these slots among all */
static uint32_t make_own(const bt_expert_rows_t *all, uint32_t n_rows,
                         uint32_t first_leaf, uint32_t n_leaves, tables_t *own)
{
    const size_t n = (size_t)n_rows * all->n_used;
    bt_expert_rows_t *const t = &own->t;
    uint32_t begin, end;

    *own = make_tables(all->n_experts, all->n_used, n_rows);
    t->first_leaf = first_leaf;
    t->n_leaves = n_leaves;
    begin = bt_own_experts_first(t);
    end = begin + bt_own_experts(t);
    memcpy(t->ids, all->ids, n * sizeof(*t->ids));
    memcpy(t->weights, all->weights, n * sizeof(*t->weights));
    for (size_t i = 0; i < n; i++) {
        const bool is_own = (all->ids[i] >= begin) && (all->ids[i] < end);

        t->slots[i] = is_own ? all->slots[i] - all->first[begin] : BT_NO_SLOT;
    }
    for (uint32_t e = begin; e <= end; e++) {
        t->first[e - begin] = all->first[e] - all->first[begin];
    }
    memcpy(t->rows, all->rows + all->first[begin],
           t->first[end - begin] * sizeof(*t->rows));
    return all->first[begin];
}

/* ---- route ---- */

static bool is_chosen(const bt_expert_rows_t *t, size_t row, uint32_t expert)
{
    for (uint32_t j = 0; j < t->n_used; j++) {
        if (t->ids[row * t->n_used + j] == expert) {
            return true;
        }
    }
    return false;
}

/* Gate values by their definition. */
static void gates_of(const bt_routing_t *routing, const float *z, double *g)
{
    double sum = 0.0;

    for (uint32_t e = 0; e < routing->n_experts; e++) {
        sum += exp((double)z[e]); /* scores are small */
    }
    for (uint32_t e = 0; e < routing->n_experts; e++) {
        const double s = (double)z[e];

        g[e] = (routing->gating == BT_GATING_SIGMOID)   ? 1.0 / (1.0 + exp(-s))
               : (routing->gating == BT_GATING_SOFTMAX) ? exp(s) / sum
                                                        : s;
    }
}

/* No expert outside of the choice is better than one inside, and on equal
 * scores none has a lower number. */
static void check_choice(const bt_routing_t *routing, const float *z,
                         const double *g, const bt_expert_rows_t *t, size_t row)
{
    const float *const bias = routing->bias;
    bool ok = true;

    for (uint32_t in = 0; in < t->n_used; in++) {
        const uint32_t e = t->ids[row * t->n_used + in];
        const double of_e = g[e] + (double)((bias != NULL) ? bias[e] : 0.0f);

        ok = ok && ((in == 0) || (t->ids[row * t->n_used + in - 1] < e));
        for (uint32_t o = 0; o < routing->n_experts; o++) {
            const double of_o =
                g[o] + (double)((bias != NULL) ? bias[o] : 0.0f);

            if (!is_chosen(t, row, o)) {
                ok = ok && (of_e > of_o - 1e-6) &&
                     ((z[e] != z[o]) || (bias != NULL) || (e < o));
            }
        }
    }
    kc_expect(ok, "choice of %u of %u experts", t->n_used, t->n_experts);
}

static void check_weights(const bt_routing_t *routing, const double *g,
                          const bt_expert_rows_t *t, size_t row)
{
    const bool chosen = routing->gating == BT_GATING_CHOSEN;
    const float *const w = t->weights + row * t->n_used;
    const uint32_t *const ids = t->ids + row * t->n_used;
    double sum = 0.0;

    for (uint32_t j = 0; j < t->n_used; j++) {
        sum += chosen ? exp(g[ids[j]] - g[ids[0]]) : g[ids[j]];
    }
    for (uint32_t j = 0; j < t->n_used; j++) {
        double want = chosen ? exp(g[ids[j]] - g[ids[0]]) / sum : g[ids[j]];

        if (routing->normed && !chosen) {
            want /= sum + (double)routing->least;
        }
        want *= (double)routing->scale;
        kc_expect(fabs(want - (double)w[j]) <= 2e-6 * fabs(want) + 1e-30,
                  "weight %g instead of %g", (double)w[j], want);
    }
}

static void check_slots(const bt_expert_rows_t *t, uint32_t n_rows)
{
    uint32_t slot = 0;
    bool ok =
        (t->first[0] == 0) && (t->first[t->n_experts] == n_rows * t->n_used);

    for (uint32_t e = 0; ok && (e < t->n_experts); e++) {
        ok = t->first[e] == slot;
        for (uint32_t r = 0; ok && (r < n_rows); r++) {
            for (uint32_t j = 0; j < t->n_used; j++) {
                if (t->ids[r * t->n_used + j] == e) {
                    ok = ok && (t->rows[slot] == r) &&
                         (t->slots[r * t->n_used + j] == slot);
                    slot++;
                }
            }
        }
    }
    kc_expect(ok, "slots of %u rows, %u of %u experts", n_rows, t->n_used,
              t->n_experts);
}

static void expect_tables(const tables_t *want, const tables_t *got,
                          const char *backend)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(want->parts); i++) {
        kc_check_canaries(got->parts[i], "route");
        if (i == 1) {
            kc_expect_equal(want->parts[i], got->parts[i],
                            kc_size(want->parts[i]), "route weights", backend);
        } else {
            kc_expect(memcmp(want->parts[i], got->parts[i],
                             kc_size(want->parts[i]) * sizeof(float)) == 0,
                      "route table %zu on %s", i, backend);
        }
    }
}

/* Slots of some of the leaves alone. @param [in] all  of all experts */
static void check_route_of_leaves(const kc_backend_t *b,
                                  const bt_routing_t *routing, const float *z,
                                  uint32_t n_rows, const bt_expert_rows_t *all)
{
    tables_t got = make_tables(all->n_experts, all->n_used, n_rows);
    tables_t want;

    for (uint32_t n = 1; n < BT_EXPERT_LEAVES; n *= 2) {
        for (size_t i = 0; i < BT_ARRAY_LEN(got.parts); i++) {
            kc_poison(got.parts[i]);
        }
        got.t.n_leaves = n;
        got.t.first_leaf = n * kc_below(BT_EXPERT_LEAVES / n);
        (void)make_own(all, n_rows, got.t.first_leaf, n, &want);
        b->be->ops->route(b->be, routing, z, n_rows, &got.t);
        expect_tables(&want, &got, b->name);
        free_tables(&want);
    }
    free_tables(&got);
}

static void fill_scores(float *z, size_t n, uint32_t n_experts, bool extreme)
{
    kc_fill(z, n, extreme);
    for (size_t i = 0; i < n; i += 7) { /* ties */
        z[i] = z[i / n_experts * n_experts];
    }
    for (size_t i = 0; i < n; i++) { /* ties of 0 and -0 */
        if (i / n_experts % 4 == 1) {
            z[i] = (i % 2 == 0) ? -0.0f : 0.0f;
        }
    }
    for (size_t i = 3; extreme && (i < n); i += 97) {
        z[i] = NAN;
    }
}

static void check_route(bt_routing_t routing, uint32_t n_rows, bool extreme)
{
    const size_t n = (size_t)n_rows * routing.n_experts;
    double g[BT_MAX_EXPERTS];
    tables_t want = make_tables(routing.n_experts, routing.n_used, n_rows);
    tables_t got = make_tables(routing.n_experts, routing.n_used, n_rows);
    float *z = kc_alloc(n);
    float *bias = kc_alloc(routing.n_experts);

    fill_scores(z, n, routing.n_experts, extreme);
    kc_fill(bias, routing.n_experts, false);
    routing.bias = (kc_below(2) == 0) ? bias : NULL;
    for (uint32_t i = 0; i < kc_n_backends; i++) {
        const kc_backend_t *b = &kc_backends[i];

        if (kc_skips(b, b->be->ops->route != NULL, true, "route")) {
            continue;
        }
        b->be->ops->route(b->be, &routing, z, n_rows,
                          (i == 0) ? &want.t : &got.t);
        expect_tables(&want, (i == 0) ? &want : &got, b->name);
        check_route_of_leaves(b, &routing, z, n_rows, &want.t);
    }
    check_slots(&want.t, n_rows);
    for (size_t r = 0; r < n_rows; r++) {
        const float *const row = z + r * routing.n_experts;
        bool is_nan = false;

        for (uint32_t e = 0; e < routing.n_experts; e++) {
            is_nan = is_nan || isnan(row[e]);
        }
        for (uint32_t j = 0; is_nan && (j < routing.n_used); j++) {
            kc_expect(isnan(want.t.weights[r * routing.n_used + j]),
                      "a row with a NaN has a weight");
        }
        if (!extreme) {
            gates_of(&routing, row, g);
            check_choice(&routing, row, g, &want.t, r);
            check_weights(&routing, g, &want.t, r);
        }
    }
    kc_free(z);
    kc_free(bias);
    free_tables(&want);
    free_tables(&got);
}

/* ---- products ---- */

typedef struct product_case {
    const kc_type_t *type;
    uint32_t n_experts;
    uint32_t n_used;
    uint32_t n_rows;
    uint32_t n_out;
    uint32_t n_in;
    uint32_t n_weights;
    bool by_row;
    uint8_t *data[2]; /* (n_experts * n_out, n_in) each */
    size_t bytes;     /* of one expert's */
    tables_t tables;
    float *x;
    float *want; /* (slots, n_weights * n_out) */
    float *got;
    char what[96];
} product_case_t;

static size_t n_slots(const product_case_t *c)
{
    return (size_t)c->n_rows * c->n_used;
}

/* A few experts get most rows, some none. */
static void make_product(product_case_t *c, bool extreme)
{
    const bt_routing_t routing = {
        .n_experts = c->n_experts, .n_used = c->n_used, .scale = 1.0f};
    const size_t n_scores = (size_t)c->n_rows * c->n_experts;
    bt_backend_t *const ref = kc_backends[0].be;
    float *z = kc_alloc(n_scores);
    uint32_t n_elems = 1;
    uint32_t n_bytes = 0;
    size_t n_blocks;

    kc_expect(bt_ktype_block(c->type->type, &n_elems, &n_bytes) == BT_OK,
              "block size of type %d", (int)c->type->type);
    c->n_in = n_elems * (1 + kc_below((n_elems == 1) ? 70 : 256 / n_elems));
    n_blocks = (size_t)c->n_experts * c->n_out * (c->n_in / n_elems);
    c->bytes = (size_t)c->n_out * (c->n_in / n_elems) * n_bytes;
    for (uint32_t i = 0; i < c->n_weights; i++) {
        c->data[i] = (uint8_t *)kc_alloc(n_blocks * n_bytes / 4 + 1);
        kc_fill_weights(c->type, c->data[i], n_blocks, n_bytes);
    }
    kc_fill(z, n_scores, false);
    for (size_t i = 0; i < n_scores; i += 3) {
        z[i] = (float)(i % c->n_experts % 4);
    }
    c->tables = make_tables(c->n_experts, c->n_used, c->n_rows);
    ref->ops->route(ref, &routing, z, c->n_rows, &c->tables.t);
    kc_free(z);
    c->x = kc_alloc((c->by_row ? c->n_rows : n_slots(c)) * c->n_in);
    kc_fill(c->x, kc_size(c->x), extreme);
    c->want = kc_alloc(n_slots(c) * c->n_out * c->n_weights);
    c->got = kc_alloc(kc_size(c->want));
    snprintf(c->what, sizeof(c->what), "%s %u of %u experts %u x %u, %u rows",
             bt_ktype_name(c->type->type), c->n_used, c->n_experts, c->n_out,
             c->n_in, c->n_rows);
}

/* Each slot alone, by matmul() of @a b with its expert's matrix. */
static void multiply_alone(product_case_t *c, const kc_backend_t *b)
{
    float *one = kc_alloc(c->n_out);

    for (uint32_t e = 0; e < c->n_experts; e++) {
        for (uint32_t i = 0; i < c->n_weights; i++) {
            bt_weight_t *const w = kc_pack(b, c->type, c->n_out, c->n_in,
                                           c->data[i] + e * c->bytes, c->what);

            for (size_t s = c->tables.t.first[e];
                 (w != NULL) && (s < c->tables.t.first[e + 1]); s++) {
                const size_t row = c->by_row ? c->tables.t.rows[s] : s;

                b->be->ops->matmul(b->be, w, c->x + row * c->n_in, 1, one);
                memcpy(c->want + (s * c->n_weights + i) * c->n_out, one,
                       c->n_out * sizeof(*one));
            }
            b->be->ops->weight_free(b->be, w);
        }
    }
    kc_free(one);
}

static void multiply_by(product_case_t *c, const kc_backend_t *b)
{
    const bt_weight_t *weights[2] = {NULL, NULL};
    bt_weight_t *own[2] = {NULL, NULL};
    bool all = true;

    for (uint32_t i = 0; i < c->n_weights; i++) {
        own[i] = kc_pack(b, c->type, c->n_experts * c->n_out, c->n_in,
                         c->data[i], c->what);
        weights[i] = own[i];
        all = all && (own[i] != NULL);
    }
    if (all) {
        kc_poison(c->got);
        b->be->ops->matmul_experts(b->be, weights, c->n_weights, &c->tables.t,
                                   c->n_rows, c->x, c->by_row, c->got);
        kc_expect_equal(c->want, c->got, kc_size(c->want), c->what, b->name);
        kc_check_canaries(c->got, c->what);
    }
    for (uint32_t i = 0; i < c->n_weights; i++) {
        if (own[i] != NULL) {
            b->be->ops->weight_free(b->be, own[i]);
        }
    }
}

/* The own experts of some of the leaves, whose slots have the bits that they
 * have among all. */
static void multiply_own(product_case_t *c, const kc_backend_t *b)
{
    const bt_expert_rows_t share = random_share(&c->tables.t);
    const size_t begin = bt_own_experts_first(&share);
    const uint32_t n_own = bt_own_experts(&share);
    const size_t wide = (size_t)c->n_weights * c->n_out;
    const bt_weight_t *weights[2] = {NULL, NULL};
    bt_weight_t *packed[2] = {NULL, NULL};
    float *x = kc_alloc(kc_size(c->x));
    bool all = true;
    tables_t own;
    const size_t first = make_own(&c->tables.t, c->n_rows, share.first_leaf,
                                  share.n_leaves, &own);
    const size_t n = own.t.first[n_own];

    for (uint32_t i = 0; i < c->n_weights; i++) {
        packed[i] = kc_pack(b, c->type, n_own * c->n_out, c->n_in,
                            c->data[i] + begin * c->bytes, c->what);
        weights[i] = packed[i];
        all = all && (packed[i] != NULL);
    }
    memcpy(x, c->x + (c->by_row ? 0 : first * c->n_in),
           (c->by_row ? c->n_rows : n) * c->n_in * sizeof(*x));
    kc_poison(c->got);
    if (all) {
        b->be->ops->matmul_experts(b->be, weights, c->n_weights, &own.t,
                                   c->n_rows, x, c->by_row, c->got);
        kc_expect_equal(c->want + first * wide, c->got, n * wide, c->what,
                        b->name);
        kc_poison(x);
        kc_expect((n == n_slots(c)) ||
                      (memcmp(c->got + n * wide, x, sizeof(*x)) == 0),
                  "%s wrote a slot of nobody on %s", c->what, b->name);
        kc_check_canaries(c->got, c->what);
    }
    for (uint32_t i = 0; i < c->n_weights; i++) {
        if (packed[i] != NULL) {
            b->be->ops->weight_free(b->be, packed[i]);
        }
    }
    kc_free(x);
    free_tables(&own);
}

static void check_product(const kc_type_t *type, uint32_t n_rows, bool extreme)
{
    static const uint32_t experts[] = {1, 2, 5, 8, 16, 60, 128};
    product_case_t c = {.type = type, .n_rows = n_rows};

    if (!kc_takes()) {
        return;
    }
    c.n_experts = experts[kc_below(BT_ARRAY_LEN(experts))];
    c.n_used = 1 + kc_below((c.n_experts < 6) ? c.n_experts : 6);
    c.n_out = 32 * (1 + kc_below(3));
    c.n_weights = 1 + kc_below(2);
    c.by_row = kc_below(2) == 0;
    make_product(&c, extreme);
    multiply_alone(&c, &kc_backends[0]);
    for (uint32_t i = 0; i < kc_n_backends; i++) {
        const kc_backend_t *b = &kc_backends[i];

        if (kc_skips(b, b->be->ops->matmul_experts != NULL, false,
                     "matmul_experts")) {
            continue;
        }
        if (kc_type_is_tensor(b, type->type)) { /* numbers of its own */
            multiply_alone(&c, b);
        }
        multiply_by(&c, b);
        multiply_own(&c, b);
    }
    for (uint32_t i = 0; i < c.n_weights; i++) {
        kc_free((float *)(void *)c.data[i]);
    }
    free_tables(&c.tables);
    kc_free(c.x);
    kc_free(c.want);
    kc_free(c.got);
}

/* ---- sums ---- */

/* The order of combine(), one value after the other. */
static float sum_of(const bt_expert_rows_t *t, size_t row, const float *x,
                    uint32_t dim, uint32_t i)
{
    float leaves[BT_EXPERT_LEAVES] = {0};
    const float *parts[BT_EXPERT_LEAVES];
    float out = 0.0f;

    for (uint32_t p = 0; p < BT_EXPERT_LEAVES; p++) {
        for (uint32_t j = 0; j < t->n_used; j++) {
            const size_t at = row * t->n_used + j;
            const uint32_t e = t->ids[at];

            if ((e >= p * t->n_experts / BT_EXPERT_LEAVES) &&
                (e < (p + 1) * t->n_experts / BT_EXPERT_LEAVES)) {
                leaves[p] = fmaf(t->weights[at],
                                 x[(size_t)t->slots[at] * dim + i], leaves[p]);
            }
        }
        parts[p] = &leaves[p];
    }
    bt_coll_tree_sum(parts, BT_EXPERT_LEAVES, 1, &out);
    return out;
}

/* Sums of each of so many ranks, of its own leaves alone, added by the tree.
 * @param [in] t  of all experts */
static void combine_by_leaves(const kc_backend_t *b, const bt_expert_rows_t *t,
                              const bt_routing_t *routing, const float *z,
                              uint32_t n_ranks, uint32_t n_rows, const float *x,
                              uint32_t dim, float *out)
{
    const size_t n_slots = (size_t)n_rows * t->n_used;
    tables_t own = make_tables(t->n_experts, t->n_used, n_rows);
    float *own_x = kc_alloc(n_slots * dim);
    float *sums = kc_alloc((size_t)n_ranks * n_rows * dim);
    const float *parts[BT_EXPERT_LEAVES];

    own.t.n_leaves = BT_EXPERT_LEAVES / n_ranks;
    for (uint32_t k = 0; k < n_ranks; k++) {
        own.t.first_leaf = k * own.t.n_leaves;
        b->be->ops->route(b->be, routing, z, n_rows, &own.t);
        for (size_t i = 0; i < n_slots; i++) {
            if (own.t.slots[i] != BT_NO_SLOT) {
                memcpy(own_x + own.t.slots[i] * dim, x + t->slots[i] * dim,
                       dim * sizeof(*x));
            }
        }
        parts[k] = sums + (size_t)k * n_rows * dim;
        b->be->ops->combine(b->be, &own.t, n_rows, own_x, dim,
                            sums + (size_t)k * n_rows * dim);
    }
    bt_coll_tree_sum(parts, n_ranks, (size_t)n_rows * dim, out);
    kc_free(own_x);
    kc_free(sums);
    free_tables(&own);
}

static void check_combine(uint32_t n_experts, uint32_t n_used, uint32_t n_rows,
                          uint32_t dim, bool extreme)
{
    const bt_routing_t routing = {
        .n_experts = n_experts, .n_used = n_used, .scale = 1.0f};
    bt_backend_t *const ref = kc_backends[0].be;
    tables_t tables = make_tables(n_experts, n_used, n_rows);
    float *z = kc_alloc((size_t)n_rows * n_experts);
    float *x = kc_alloc((size_t)n_rows * n_used * dim);
    float *want = kc_alloc((size_t)n_rows * dim);
    float *got = kc_alloc((size_t)n_rows * dim);

    kc_fill(z, kc_size(z), false);
    kc_fill(x, kc_size(x), extreme);
    ref->ops->route(ref, &routing, z, n_rows, &tables.t);
    for (size_t r = 0; r < n_rows; r++) {
        for (uint32_t i = 0; i < dim; i++) {
            want[r * dim + i] = sum_of(&tables.t, r, x, dim, i);
        }
    }
    for (uint32_t i = 0; i < kc_n_backends; i++) {
        const kc_backend_t *b = &kc_backends[i];

        if (kc_skips(b, b->be->ops->combine != NULL, true, "combine")) {
            continue;
        }
        kc_poison(got);
        b->be->ops->combine(b->be, &tables.t, n_rows, x, dim, got);
        kc_expect_equal(want, got, kc_size(want), "combine", b->name);
        kc_check_canaries(got, "combine");
        for (uint32_t n = 2; n <= BT_EXPERT_LEAVES; n *= 2) {
            kc_poison(got);
            combine_by_leaves(b, &tables.t, &routing, z, n, n_rows, x, dim,
                              got);
            kc_expect_equal(want, got, kc_size(want), "combine by leaves",
                            b->name);
        }
    }
    kc_free(z);
    kc_free(x);
    kc_free(want);
    kc_free(got);
    free_tables(&tables);
}

/* The bias of the own experts of some of the leaves. */
static void check_own_bias(const kc_backend_t *b, const bt_expert_rows_t *all,
                           uint32_t n_rows, const float *bias, uint32_t dim,
                           const float *x, const float *want)
{
    const bt_expert_rows_t share = random_share(all);
    const size_t n_own = bt_own_experts(&share);
    float *own_bias = kc_alloc(n_own * dim);
    float *got = kc_alloc((size_t)n_rows * all->n_used * dim);
    tables_t own;
    const size_t first =
        make_own(all, n_rows, share.first_leaf, share.n_leaves, &own);
    const size_t n = (size_t)own.t.first[n_own] * dim;

    memcpy(own_bias, bias + (size_t)bt_own_experts_first(&share) * dim,
           n_own * dim * sizeof(*bias));
    memcpy(got, x + first * dim, n * sizeof(*x));
    b->be->ops->add_expert_bias(b->be, &own.t, n_rows, own_bias, dim, got);
    kc_expect_equal(want + first * dim, got, n, "bias of own experts", b->name);
    kc_check_canaries(got, "bias of own experts");
    kc_free(own_bias);
    kc_free(got);
    free_tables(&own);
}

/* Each slot's bias is its expert's; each row's gate is its own. */
static void check_between(uint32_t n_experts, uint32_t n_used, uint32_t n_rows,
                          uint32_t dim)
{
    const bt_routing_t routing = {
        .n_experts = n_experts, .n_used = n_used, .scale = 1.0f};
    bt_backend_t *const ref = kc_backends[0].be;
    tables_t tables = make_tables(n_experts, n_used, n_rows);
    const size_t n = (size_t)n_rows * n_used * dim;
    float *z = kc_alloc((size_t)n_rows * n_experts);
    float *bias = kc_alloc((size_t)n_experts * dim);
    float *x = kc_alloc(n);
    float *want = kc_alloc(n);
    float *gated = kc_alloc(n);
    float *got = kc_alloc(n);

    kc_fill(z, kc_size(z), false);
    kc_fill(bias, kc_size(bias), true);
    kc_fill(x, n, true);
    ref->ops->route(ref, &routing, z, n_rows, &tables.t);
    memcpy(want, x, n * sizeof(*x));
    for (uint32_t e = 0; e < n_experts; e++) {
        for (size_t s = tables.t.first[e]; s < tables.t.first[e + 1]; s++) {
            for (size_t i = 0; i < dim; i++) {
                want[s * dim + i] += bias[e * dim + i];
            }
        }
    }
    for (uint32_t i = 0; i < kc_n_backends; i++) {
        const kc_backend_t *b = &kc_backends[i];

        if (kc_skips(b, b->be->ops->add_expert_bias != NULL, true,
                     "add_expert_bias")) {
            continue;
        }
        memcpy(got, x, n * sizeof(*x));
        b->be->ops->add_expert_bias(b->be, &tables.t, n_rows, bias, dim, got);
        kc_expect_equal(want, got, n, "add_expert_bias", b->name);
        check_own_bias(b, &tables.t, n_rows, bias, dim, x, want);
        memcpy(got, x, n * sizeof(*x));
        b->be->ops->gate_rows(b->be, got, z, n_rows, dim);
        if (i == 0) {
            memcpy(gated, got, n * sizeof(*x));
        }
        kc_expect_equal(gated, got, n, "gate_rows", b->name);
    }
    kc_fill(x, n, false);
    memcpy(got, x, n * sizeof(*x));
    ref->ops->gate_rows(ref, got, z, n_rows, dim);
    for (size_t i = 0; i < (size_t)n_rows * dim; i++) {
        const double y = (double)x[i] / (1.0 + exp(-(double)z[i / dim]));

        kc_expect(fabs(y - (double)got[i]) <= 4e-7 * fabs(y),
                  "a gated value is %g, not %g", (double)got[i], y);
    }
    kc_free(z);
    kc_free(bias);
    kc_free(x);
    kc_free(want);
    kc_free(gated);
    kc_free(got);
    free_tables(&tables);
}

static void check_products(const kc_type_t *type)
{
    static const uint32_t rows[] = {0, 1, 2, 4, 13, 31, 64};

    for (size_t r = 0; r < BT_ARRAY_LEN(rows); r++) {
        check_product(type, rows[r], r % 4 == 3);
    }
    if (kc_backends[kc_n_backends - 1].own != NULL) { /* it takes more */
        check_product(type, KC_MAX_MANY, false);
    }
}

void kc_test_tensor_experts(void)
{
    for (size_t t = 0; t < KC_N_TYPES; t++) {
        if (kc_type_is_tensor(&kc_backends[kc_n_backends - 1],
                              kc_types[t].type)) {
            check_products(&kc_types[t]);
        }
    }
}

void kc_test_experts(void)
{
    static const struct {
        uint32_t n_experts;
        uint32_t n_used;
    } shapes[] = {{1, 1},    {2, 2},   {8, 2},    {12, 5},   {16, 4},
                  {60, 4},   {64, 8},  {72, 6},   {128, 8},  {160, 6},
                  {512, 10}, {33, 32}, {1024, 1}, {1024, 32}};

    for (size_t i = 0; i < BT_ARRAY_LEN(shapes); i++) {
        for (uint32_t way = 0; way < 12; way++) {
            const bt_routing_t routing = {.n_experts = shapes[i].n_experts,
                                          .n_used = shapes[i].n_used,
                                          .gating = (bt_gating_t)(way % 3),
                                          .normed = way % 2 == 0,
                                          .least = (way < 6)   ? 0.0f
                                                   : (way < 9) ? 1e-20f
                                                               : 0.25f,
                                          .scale = (way % 4 == 0) ? 1 : 2.5f};

            check_route(routing, 1 + kc_below(20), way % 5 == 4);
        }
        check_combine(shapes[i].n_experts, shapes[i].n_used, 1 + kc_below(20),
                      1 + kc_below(70), i % 3 == 2);
    }
    check_combine(128, 8, 3, 2048, false);
    check_between(32, 4, 19, 67);
    check_between(5, 2, 40, 576);
    for (size_t t = 0; t < KC_N_TYPES; t++) {
        check_products(&kc_types[t]);
    }
}
