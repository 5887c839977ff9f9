/* SPDX-License-Identifier: Apache-2.0 */
/* draw(): the tokens of rows, on every back end against a sort of all
 * candidates by the definition in kernels/draw.h; score() against the sums of
 * kernels.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/status.h"
#include "kernels/draw.h"
#include "tests/kernels/kcheck.h"

#define MAX_ROWS  6u
#define MAX_DRAWS 9u
#define MAX_EDITS 2000u

static const uint32_t logit_rows[MAX_ROWS]; /* any */

typedef enum row_kind {
    ROW_ORDINARY,
    ROW_PEAK,  /* one far above, as models are when they are sure */
    ROW_TIES,  /* few different values, zeros of both signs */
    ROW_WILD,  /* infinities, NaN, tiny and huge ones */
    ROW_BITS,  /* any bits that are a number */
    ROW_FAR,   /* from the largest number to the least */
    ROW_CLOSE, /* the least apart */
    ROW_EQUAL,
    ROW_FEW,  /* hardly one that can be drawn */
    ROW_NONE, /* not one */
    N_ROW_KINDS
} row_kind_t;

typedef struct entry {
    float value;
    uint32_t id;
} entry_t;

static float value_of(row_kind_t kind, uint32_t i)
{
    float x = kc_uniform(-8.0f, 8.0f) + kc_uniform(-4.0f, 4.0f);
    uint32_t bits;

    switch (kind) {
    case ROW_PEAK:
        return (i % 997 == 5) ? 30.0f + x / 8.0f : x;
    case ROW_TIES:
        x = floorf(x / 4.0f);
        return ((x == 0.0f) && (kc_below(2) == 0)) ? -0.0f : x;
    case ROW_WILD:
        kc_fill(&x, 1, true);
        return (kc_below(9) == 0) ? copysignf(NAN, x) : x;
    case ROW_BITS:
        bits = (uint32_t)kc_random();
        memcpy(&x, &bits, sizeof(x));
        return isfinite(x) ? x : 0.5f;
    case ROW_FAR:
        return (i == 3) ? 3.4e38f : (i % 2 == 0) ? -3.4e38f : x;
    case ROW_CLOSE:
        bits = 0x41000000u + kc_below(5000);
        memcpy(&x, &bits, sizeof(x));
        return x;
    case ROW_EQUAL:
        return -3.5f;
    case ROW_FEW:
        return (kc_below(50) == 0) ? x : (kc_below(2) == 0) ? -INFINITY : NAN;
    case ROW_NONE:
        return (i % 3 == 0) ? NAN : -INFINITY;
    default:
        return x;
    }
}

static float any_of(const float *values, uint32_t n)
{
    return values[kc_below(n)];
}

static bt_draw_t any_draw(uint32_t logit_row, uint32_t dim)
{
    static const float temperatures[] = {1.0f, 0.7f,  1.3f,  0.0f,
                                         5.0f, 1e-4f, 1e30f, 1e-40f};
    static const float top_ps[] = {1.0f, 1.0f, 0.9f, 0.5f, 0.999999f, 1e-30f};
    static const float min_ps[] = {0.0f, 0.0f, 0.0f, 0.1f, 1.0f, 1e-30f};
    const uint32_t top_ks[] = {0, 0, 0, 1, 2, 40, 300, dim / 2, dim - 1, dim};
    const bt_draw_t draw = {
        .logit_row = logit_row,
        .top_k = top_ks[kc_below(BT_ARRAY_LEN(top_ks))],
        .temperature = any_of(temperatures, BT_ARRAY_LEN(temperatures)),
        .top_p = any_of(top_ps, BT_ARRAY_LEN(top_ps)),
        .min_p = any_of(min_ps, BT_ARRAY_LEN(min_ps)),
        .repetition_penalty = kc_uniform(0.5f, 2.0f),
        .presence_penalty = kc_uniform(-2.0f, 2.0f),
        .frequency_penalty = kc_uniform(-0.5f, 0.5f),
        .position = (uint32_t)kc_random(),
        .seed_low = (uint32_t)kc_random(),
        .seed_high = (uint32_t)kc_random(),
    };

    return draw;
}

/* Some ids, each once: those from a random one on, so many apart. @return how
 * many there are room for */
static uint32_t any_edits(uint32_t dim, uint32_t n, bt_draw_edit_t *edits)
{
    const uint32_t from = kc_below(dim);
    const uint32_t apart = (n < dim) ? dim / (n + 1) : 1;

    n = (n < dim) ? n : dim;
    for (uint32_t i = 0; i < n; i++) {
        edits[i] = (bt_draw_edit_t){
            .id = (from + i * apart) % dim,
            .what = (kc_below(2) == 0 ? BT_EDIT_BIAS : 0) |
                    (kc_below(8) == 0 ? BT_EDIT_BAN : 0) |
                    (kc_below(2) == 0 ? BT_EDIT_SEEN | kc_below(4) : 0),
            .bias = kc_uniform(-20.0f, 20.0f)};
    }
    return n;
}

/* ---- by the definition ---- */

static int in_order(const void *a, const void *b)
{
    const entry_t *x = a;
    const entry_t *y = b;

    if (x->value != y->value) {
        return (x->value > y->value) ? -1 : 1;
    }
    return (x->id < y->id) ? -1 : 1;
}

static int by_id(const void *a, const void *b)
{
    const entry_t *x = a;
    const entry_t *y = b;

    return (x->id < y->id) ? -1 : 1;
}

static uint64_t weight_of(const bt_draw_t *draw, float value, float best)
{
    const uint64_t weight =
        bt_draw_weight(value, best, (double)draw->temperature);

    return (weight < bt_draw_least(draw->min_p)) ? 0 : weight;
}

static uint32_t draw_sorted(const bt_draw_t *draw, entry_t *all, uint32_t n)
{
    const uint64_t seed = (uint64_t)draw->seed_high << 32 | draw->seed_low;
    const float best = (n > 0) ? all[0].value : NAN;
    uint64_t mass = 0;
    uint64_t sum = 0;
    uint32_t i = 0;

    if ((draw->temperature == 0.0f) || (draw->top_k == 1) || !isfinite(best)) {
        return (n > 0) ? all[0].id : 0;
    }
    n = ((draw->top_k > 0) && (draw->top_k < n)) ? draw->top_k : n;
    for (i = 0; i < n; i++) {
        mass += weight_of(draw, all[i].value, best);
    }
    if (draw->top_p < 1.0f) {
        const uint64_t need = bt_draw_need(draw->top_p, mass);

        for (n = 0, mass = 0; mass < need; n++) {
            mass += weight_of(draw, all[n].value, best);
        }
    }
    qsort(all, n, sizeof(*all), by_id);
    for (i = 0; i < n; i++) {
        sum += weight_of(draw, all[i].value, best);
        if (sum > bt_draw_goal(bt_draw_bits(seed, draw->position), mass)) {
            break;
        }
    }
    BT_ASSERT_ALWAYS(i < n);
    return all[i].id;
}

static uint32_t want_draw(const bt_draw_t *draw, const bt_draw_edit_t *edits,
                          const float *x, uint32_t dim)
{
    float *row = malloc(dim * sizeof(*row));
    entry_t *all = malloc(dim * sizeof(*all));
    uint32_t n = 0;
    uint32_t id;

    BT_ASSERT_ALWAYS((row != NULL) && (all != NULL));
    memcpy(row, x, dim * sizeof(*row));
    for (uint32_t i = 0; i < draw->n_edits; i++) {
        const bt_draw_edit_t *edit = &edits[draw->first_edit + i];

        row[edit->id] = bt_draw_edited(
            row[edit->id], edit->what, edit->bias, draw->repetition_penalty,
            draw->presence_penalty, draw->frequency_penalty);
    }
    for (uint32_t i = 0; i < dim; i++) {
        if (!isnan(row[i]) && (row[i] != -INFINITY)) {
            all[n++] = (entry_t){.value = row[i], .id = i};
        }
    }
    qsort(all, n, sizeof(*all), in_order);
    id = draw_sorted(draw, all, n);
    free(row);
    free(all);
    return id;
}

/* ---- against it ---- */

typedef struct draws {
    bt_draw_t draws[MAX_DRAWS];
    bt_draw_edit_t edits[MAX_DRAWS * MAX_EDITS];
    uint32_t n_draws;
    uint32_t n_edits;
    uint32_t want[MAX_DRAWS];
} draws_t;

/* Of some rows several, of some none. */
static void make_draws(draws_t *d, const float *x, uint32_t n_rows,
                       uint32_t dim)
{
    d->n_draws = d->n_edits = 0;
    for (uint32_t r = 0; r < n_rows; r++) {
        const uint32_t n = (n_rows == 1) ? 1 : kc_below(4);

        for (uint32_t k = 0; (k < n) && (d->n_draws < MAX_DRAWS); k++) {
            bt_draw_t *draw = &d->draws[d->n_draws];
            const uint32_t n_edits =
                (kc_below(2) == 0) ? 0 : kc_below(MAX_EDITS);

            *draw = any_draw(r, dim);
            draw->first_edit = d->n_edits;
            draw->n_edits = any_edits(dim, n_edits, d->edits + d->n_edits);
            d->n_edits += draw->n_edits;
            d->want[d->n_draws++] =
                want_draw(draw, d->edits, x + (size_t)r * dim, dim);
        }
    }
}

static void check_draws(row_kind_t kind, uint32_t dim, uint32_t n_rows)
{
    static draws_t d;
    float *x = kc_alloc((size_t)n_rows * dim);
    float *before = kc_alloc((size_t)n_rows * dim);
    float *id_words = kc_alloc(MAX_DRAWS);
    uint32_t *const ids = (uint32_t *)(void *)id_words;
    bt_batch_t batch;

    for (size_t i = 0; i < (size_t)n_rows * dim; i++) {
        before[i] = value_of(kind, (uint32_t)(i % dim));
    }
    make_draws(&d, before, n_rows, dim);
    batch = (bt_batch_t){.logit_rows = logit_rows,
                         .tokens_per_block = 16,
                         .draws = d.draws,
                         .edits = d.edits,
                         .n_draws = d.n_draws,
                         .n_edits = d.n_edits,
                         .n_logit_rows = n_rows};
    for (uint32_t i = 0; i < kc_n_backends; i++) {
        const kc_backend_t *b = &kc_backends[i];

        if (kc_skips(b, b->be->ops->draw != NULL, true, "draw")) {
            continue;
        }
        memcpy(x, before, (size_t)n_rows * dim * sizeof(*x));
        for (uint32_t e = 0; e < d.n_edits; e++) {
            d.edits[e].was = 7.0f; /* of whoever drew before */
        }
        kc_poison(id_words);
        b->be->ops->draw(b->be, x, &batch, dim, ids);
        for (uint32_t k = 0; k < d.n_draws; k++) {
            const bt_draw_t *draw = &d.draws[k];

            kc_expect(ids[k] == d.want[k],
                      "draw %u of %u, row %u of %u x %u, kind %d, %u edits, "
                      "T %g, top_k %u, top_p %g, min_p %g, %s: %u, not %u",
                      k, d.n_draws, draw->logit_row, n_rows, dim, (int)kind,
                      draw->n_edits, (double)draw->temperature, draw->top_k,
                      (double)draw->top_p, (double)draw->min_p, b->name, ids[k],
                      d.want[k]);
        }
        kc_check_canaries(id_words, "draw");
        kc_expect(memcmp(x, before, (size_t)n_rows * dim * sizeof(*x)) == 0,
                  "draw, %s: logits are others", b->name);
    }
    kc_free(x);
    kc_free(before);
    kc_free(id_words);
}

/* ---- scores ---- */

static double term_sum(const float *x, uint32_t dim, float best)
{
    const uint32_t n_sets = dim / 16;
    double lanes[16] = {0.0};
    double sum = 0.0;

    for (uint32_t set = 0; set < n_sets; set += 16) {
        for (uint32_t lane = 0; lane < 16; lane++) {
            float part = 0.0f;

            for (uint32_t s = set; (s < set + 16) && (s < n_sets); s++) {
                part += bt_scored_term(x[s * 16 + lane], best);
            }
            lanes[lane] += (double)part;
        }
    }
    for (uint32_t i = n_sets * 16; i < dim; i++) {
        lanes[i % 16] += (double)bt_scored_term(x[i], best);
    }
    for (uint32_t lane = 0; lane < 16; lane++) {
        sum += lanes[lane];
    }
    return sum;
}

static bool same(double a, double b)
{
    return (a == b) || ((a != a) && (b != b));
}

static void check_scores(row_kind_t kind, uint32_t dim, uint32_t n_rows)
{
    float *x = kc_alloc((size_t)n_rows * dim);
    uint32_t ids[MAX_DRAWS];
    bt_scoring_t scorings[MAX_DRAWS];
    const uint32_t n = 1 + kc_below(MAX_DRAWS);
    const bt_batch_t batch = {.logit_rows = logit_rows,
                              .tokens_per_block = 16,
                              .scorings = scorings,
                              .n_scorings = n,
                              .n_logit_rows = n_rows};

    for (size_t i = 0; i < (size_t)n_rows * dim; i++) {
        x[i] = value_of(kind, (uint32_t)(i % dim));
    }
    for (uint32_t i = 0; i < MAX_DRAWS; i++) {
        ids[i] = kc_below(dim);
        scorings[i] =
            (bt_scoring_t){.logit_row = kc_below(n_rows),
                           .draw = (kc_below(2) == 0) ? BT_SCORING_NO_DRAW
                                                      : kc_below(MAX_DRAWS),
                           .id = kc_below(dim)};
    }
    for (uint32_t i = 0; i < kc_n_backends; i++) {
        const kc_backend_t *b = &kc_backends[i];
        bt_scored_t out[MAX_DRAWS];

        if (kc_skips(b, b->be->ops->score != NULL, true, "score")) {
            continue;
        }
        memset(out, 0x7f, sizeof(out));
        b->be->ops->score(b->be, x, &batch, dim, ids, out);
        for (uint32_t k = 0; k < n; k++) {
            const bt_scoring_t *s = &scorings[k];
            const float *row = x + (size_t)s->logit_row * dim;
            const uint32_t id =
                (s->draw == BT_SCORING_NO_DRAW) ? s->id : ids[s->draw];
            float best = row[0];

            for (uint32_t j = 1; j < dim; j++) {
                best = (row[j] > best) ? row[j] : best;
            }
            kc_expect(same((double)out[k].best, (double)best) &&
                          same((double)out[k].logit, (double)row[id]) &&
                          same(out[k].sum, term_sum(row, dim, best)),
                      "score %u of %u, %u x %u, kind %d, %s: %a, %a, %a", k, n,
                      n_rows, dim, (int)kind, b->name, (double)out[k].best,
                      (double)out[k].logit, out[k].sum);
        }
    }
    kc_free(x);
}

void kc_test_draw(void)
{
    static const uint32_t few[] = {1, 2, 15, 33, 288, 271};
    /* About the ends of lists, steps and pieces of those who take a row in
     * parts. */
    static const uint32_t many[] = {2047, 2048, 2049, 4095, 8192, 8193, 16385};

    for (uint32_t kind = 0; kind < N_ROW_KINDS; kind++) {
        for (size_t i = 0; i < BT_ARRAY_LEN(few); i++) {
            check_draws((row_kind_t)kind, few[i], 1 + kc_below(MAX_ROWS));
            check_scores((row_kind_t)kind, few[i], 1 + kc_below(MAX_ROWS));
        }
        for (uint32_t i = 0; i < 6; i++) {
            check_draws((row_kind_t)kind, many[kc_below(BT_ARRAY_LEN(many))],
                        1 + kc_below(3));
        }
        check_scores((row_kind_t)kind, many[kc_below(BT_ARRAY_LEN(many))], 2);
    }
    check_draws(ROW_ORDINARY, 49152, 2);
    check_draws(ROW_CLOSE, 49152, 1);
    check_scores(ROW_ORDINARY, 49152, 2);
}
