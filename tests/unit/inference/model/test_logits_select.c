/* SPDX-License-Identifier: Apache-2.0 */
/* The place where a sum is reached, against ordering all candidates. */
#include "tests/support/testsupport.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/status.h"
#include "inference/model/logits.h"
#include "tests/support/draw.h"

#define MOST 3000u

static bt_candidate_t list[MOST], ordered[MOST], spent[MOST];
static uint64_t weights[MOST];
static uint64_t rng = 1;

static int compare(const void *a, const void *b)
{
    const bt_candidate_t *const x = a;
    const bt_candidate_t *const y = b;

    return bt_candidate_precedes(*x, *y) ? -1 : 1;
}

/* Some shapes of logits, each hard for somebody. */
static float logit_of(uint32_t shape, uint32_t i)
{
    const float u = (float)draw_below(&rng, 1u << 24) * 0x1p-24f;

    switch (shape) {
    case 0:
        return 30.0f * u - 20.0f;
    case 1:
        return (float)draw_below(&rng, 8); /* ties */
    case 2:
        return 1.5f; /* nothing else */
    case 3:
        return -ldexpf(1.0f + u, (int)(i % 240) - 120); /* crowds at 0 */
    case 4:
        return (i == 7) ? FLT_MAX : (i == 9) ? -FLT_MAX : u; /* one bucket */
    case 5:
        return (float)draw_below(&rng, 5) * FLT_TRUE_MIN; /* the least apart */
    default:
        return (float)i; /* worst first */
    }
}

static void fill(uint32_t n, uint32_t shape)
{
    for (uint32_t i = 0; i < n; i++) {
        list[i] = (bt_candidate_t){.logit = logit_of(shape, i), .id = i};
        weights[i] = draw_below(&rng, 4);
    }
    memcpy(ordered, list, n * sizeof(*list));
    qsort(ordered, n, sizeof(*ordered), compare);
}

static void check(uint32_t n, const uint64_t *w, uint64_t need)
{
    bt_candidate_t found;
    uint64_t sum = 0;
    uint32_t i = 0;

    memcpy(spent, list, n * sizeof(*list));
    found = bt_select(spent, n, w, need);
    while ((sum += (w == NULL) ? 1 : w[ordered[i].id]) < need) {
        i++;
    }
    assert_int_equal(found.id, ordered[i].id);
    assert_true(found.logit == ordered[i].logit);
}

static void partial_sort_equals_a_full_sort(void **state)
{
    static const uint32_t sizes[] = {1, 2, 3, 24, 25, 26, 60, 257, MOST};

    (void)state;
    for (uint32_t round = 0; round < 7 * BT_ARRAY_LEN(sizes); round++) {
        const uint32_t n = sizes[round / 7];
        uint64_t total = 0;

        fill(n, round % 7);
        for (uint32_t i = 0; i < n; i++) {
            total += weights[i];
        }
        for (int k = 0; (total > 0) && (k < 60); k++) {
            check(n, weights, 1 + draw_below(&rng, total));
        }
        if (total > 0) {
            check(n, weights, total);
        }
        for (uint32_t k = 1; k <= n; k += 1 + n / 9) {
            check(n, NULL, k);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(partial_sort_equals_a_full_sort),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
