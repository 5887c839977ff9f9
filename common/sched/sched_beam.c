/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_beam.h"

#include <math.h>
#include <string.h>

#include "common/base/ln.h"

#define LN2 0x1.62e42fefa39efp-1

/* x^n for a whole n >= 0, by squaring. */
static double whole_power(double x, uint32_t n)
{
    double product = 1.0;

    for (; n > 0; n /= 2) {
        product *= ((n % 2) != 0) ? x : 1.0;
        x *= x;
    }
    return product;
}

/* e^r for |r| <= ln(2) / 2: its Taylor series to r^16. */
static double exp_near_zero(double r)
{
    double sum = 1.0;

    for (int k = 16; k >= 1; k--) {
        sum = 1.0 + sum * r / k;
    }
    return sum;
}

double bt_sched_beam_power(uint32_t length, double power)
{
    const double magnitude = (power < 0.0) ? -power : power;
    int exponent = 0;
    double m, product, whole;

    if (floor(magnitude) == magnitude) {
        product = whole_power((double)length, (uint32_t)magnitude);
    } else {
        m = frexp((double)length, &exponent); /* exact, as ldexp() */
        if (m < 0x1.6a09e667f3bcdp-1) {       /* sqrt(1/2) */
            m *= 2.0;
            exponent--;
        }
        /* In units of log2: the whole part scales exactly. */
        product = magnitude * ((double)exponent + bt_ln_near_one(m) / LN2);
        whole = floor(product + 0.5);
        product = ldexp(exp_near_zero((product - whole) * LN2), (int)whole);
    }
    return (power < 0.0) ? 1.0 / product : product;
}

void bt_sched_beams_init(bt_sched_beams_t *beams,
                         const bt_sched_beam_params_t *params, uint32_t max_new)
{
    memset(beams, 0, sizeof(*beams));
    beams->params = *params;
    beams->max_new = max_new;
    beams->n = 1;
}

/* Order of candidates: the better sum first. */
static int by_sum(const void *a_p, const void *b_p)
{
    const bt_sched_beam_candidate_t *a = a_p;
    const bt_sched_beam_candidate_t *b = b_p;

    if (a->sum > b->sum) {
        return -1;
    }
    if (a->sum < b->sum) {
        return 1;
    }
    if (a->beam != b->beam) {
        return (a->beam < b->beam) ? -1 : 1;
    }
    return (a->id < b->id) ? -1 : (a->id > b->id);
}

/* Heapsort: qsort() of the C library may allocate memory. */
static void sift_down(bt_sched_beam_candidate_t *list, uint32_t n, uint32_t at)
{
    const bt_sched_beam_candidate_t moved = list[at];

    for (uint32_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        if ((child + 1 < n) && (by_sum(&list[child], &list[child + 1]) < 0)) {
            child++;
        }
        if (by_sum(&list[child], &moved) <= 0) {
            break;
        }
        list[at] = list[child];
        at = child;
    }
    list[at] = moved;
}

static void sort(bt_sched_beam_candidate_t *list, uint32_t n)
{
    for (uint32_t i = n / 2; i > 0; i--) {
        sift_down(list, n, i - 1);
    }
    for (uint32_t end = n; end > 1; end--) {
        const bt_sched_beam_candidate_t last = list[0];

        list[0] = list[end - 1];
        list[end - 1] = last;
        sift_down(list, end - 1, 0);
    }
}

/* Puts an answer among the finished ones, if it is good enough.
 * @return whether it is; its slot is in *slot_p */
static bool keep(bt_sched_beams_t *beams, bt_sched_beam_answer_t answer,
                 uint32_t *slot_p)
{
    uint32_t at = beams->n_answers;

    if (beams->n_answers == beams->params.width) {
        if (!(answer.score > beams->answers[at - 1].score)) {
            return false;
        }
        at--;
        answer.slot = beams->answers[at].slot;
    } else {
        answer.slot = beams->n_answers++;
    }
    for (; (at > 0) && (answer.score > beams->answers[at - 1].score); at--) {
        beams->answers[at] = beams->answers[at - 1];
    }
    beams->answers[at] = answer;
    *slot_p = answer.slot;
    return true;
}

static bool is_full(const bt_sched_beams_t *beams)
{
    return beams->n_answers == beams->params.width;
}

static double score_of(const bt_sched_beams_t *beams, double sum,
                       uint32_t length)
{
    return sum /
           bt_sched_beam_power(length, (double)beams->params.length_penalty);
}

/* Takes a candidate that ends, of those that count. */
static void take_answer(bt_sched_beams_t *beams,
                        const bt_sched_beam_candidate_t *candidate, uint32_t i,
                        bt_sched_beam_step_t *step)
{
    const uint32_t length = beams->length + 1;
    const bt_sched_beam_answer_t answer = {
        .score = score_of(beams, candidate->sum, length),
        .sum = candidate->sum,
        .length = length,
        .ends = candidate->ends,
    };

    if (keep(beams, answer, &step->slots[step->n_kept])) {
        step->kept[step->n_kept++] = i;
    }
}

/* Whether a beam can still improve the answers, by the stopping rule. */
static bool can_improve(const bt_sched_beams_t *beams)
{
    const bool grows =
        (beams->params.early_stopping == BT_SCHED_BEAM_STOP_NEVER) &&
        (beams->params.length_penalty > 0.0f);
    const uint32_t length = grows ? beams->max_new : beams->length;

    return !is_full(beams) || (score_of(beams, beams->sums[0], length) >
                               beams->answers[beams->n_answers - 1].score);
}

void bt_sched_beams_step(bt_sched_beams_t *beams,
                         bt_sched_beam_candidate_t *candidates, uint32_t n,
                         bt_sched_beam_step_t *step_p)
{
    const uint32_t width = beams->params.width;
    const bool is_last = beams->length + 1 == beams->max_new;

    step_p->n_next = step_p->n_kept = 0;
    sort(candidates, n);
    for (uint32_t i = 0; i < n; i++) {
        const bool ends = candidates[i].ends || is_last;

        if (ends && (i < width)) {
            take_answer(beams, &candidates[i], i, step_p);
        } else if (!ends && (step_p->n_next < width)) {
            step_p->next[step_p->n_next++] = i;
        }
    }
    beams->length++;
    beams->n = step_p->n_next;
    for (uint32_t i = 0; i < beams->n; i++) {
        beams->sums[i] = candidates[step_p->next[i]].sum;
    }
    step_p->goes_on = (beams->n > 0) && can_improve(beams) &&
                      !(is_full(beams) && (beams->params.early_stopping ==
                                           BT_SCHED_BEAM_STOP_FULL));
}
