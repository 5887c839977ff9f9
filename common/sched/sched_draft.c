/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_draft.h"

#include <math.h>

#define TIME_SHARE 0.1 /* of the newest measurement of a row count */
#define TIME_CLIP  1.0 /* relative: a busy machine teaches no more */
#define FORGET_STEPS \
    512u /* an estimate lasts for, and twice as long each time */
#define FORGET_MOST  8u
#define STALE_STEPS  16.0 /* after these, half of a change is taken over */
#define DECAY        0.98f
#define PRIOR_RIGHT  1.0f /* Beta(1, 1): half, before anything is known */
#define PRIOR        2.0f
#define SEQ_PRIOR    2.0f
#define MOST_LIKELY  0.995f
#define LEAST_LIKELY 0.005f
#define LEAST_GAIN   1.02 /* tokens per time, below it drafts are noise */

/* An estimate that was not measured lately moves with those that were: the
 * machine, or its load, has changed. */
static void move_others(bt_sched_row_times_t *times, uint32_t n_rows,
                        double change)
{
    for (uint32_t r = 1; r <= times->most; r++) {
        const double age = times->n_steps - times->rows[r].at_step;

        if ((r != n_rows) && (times->rows[r].us > 0)) {
            times->rows[r].us *=
                (float)(1 + change * (1 - exp2(-age / STALE_STEPS)));
        }
    }
}

/* A single slow measurement would keep drafts off for good: what was not
 * measured for a while is forgotten, and measured again. */
static void forget_old(bt_sched_row_times_t *times)
{
    for (uint32_t r = 1; r <= times->most; r++) {
        const uint32_t n = times->rows[r].n_firsts;

        if ((times->rows[r].us > 0) && (n < FORGET_MOST) &&
            (times->n_steps - times->rows[r].at_step > FORGET_STEPS << n)) {
            times->rows[r].us = 0;
        }
    }
}

void bt_sched_row_times_learn(bt_sched_row_times_t *times, uint32_t n_rows,
                              double us)
{
    double change;

    if ((n_rows == 0) || (n_rows > BT_SCHED_ROW_TIMES) || !(us > 0) ||
        !(us < 1e9)) {
        return;
    }
    times->n_steps++;
    forget_old(times);
    if (times->rows[n_rows].us > 0) {
        change = us / (double)times->rows[n_rows].us - 1;
        change = TIME_SHARE * fmin(change, TIME_CLIP);
        times->rows[n_rows].us *= (float)(1 + change);
        move_others(times, n_rows, change);
    } else {
        times->rows[n_rows].us = (float)us;
        times->rows[n_rows].n_firsts++;
    }
    times->rows[n_rows].at_step = times->n_steps;
    times->most = (n_rows > times->most) ? n_rows : times->most;
}

double bt_sched_row_times_us(const bt_sched_row_times_t *times, uint32_t n_rows,
                             double row_us)
{
    uint32_t low = (n_rows < times->most) ? n_rows : times->most;
    uint32_t high = n_rows;
    double low_us;
    double high_us;

    while ((low > 0) && !(times->rows[low].us > 0)) {
        low--;
    }
    while ((high <= times->most) && !(times->rows[high].us > 0)) {
        high++;
    }
    low_us = (double)times->rows[low].us;
    if (high > times->most) { /* none above; the last one, if any, is below */
        return (low > 0) ? low_us + row_us * (n_rows - low) : 0;
    }
    high_us = (double)times->rows[high].us;
    if (low == 0) {
        return high_us;
    }
    if (low == high) {
        return low_us;
    }
    return low_us + fmax(high_us - low_us, 0) * (n_rows - low) / (high - low);
}

static unsigned class_of(uint32_t n_matched)
{
    static const uint32_t ends[BT_SCHED_DRAFT_CLASSES - 1] = {2, 4, 8, 16};
    unsigned i = 0;

    while ((i < BT_SCHED_DRAFT_CLASSES - 1) && (n_matched > ends[i])) {
        i++;
    }
    return i;
}

float bt_sched_acceptance_of(const bt_sched_acceptance_t *all,
                             const bt_sched_acceptance_seq_t *seq,
                             bt_draft_source_t source, uint32_t n_matched)
{
    const bt_sched_acceptance_count_t *count =
        &all->counts[source][class_of(n_matched)];
    const float relative =
        (seq->n_right + SEQ_PRIOR) / (seq->n_expected + SEQ_PRIOR);
    const float p =
        (count->n_right + PRIOR_RIGHT) / (count->n + PRIOR) * relative;

    return fminf(fmaxf(p, LEAST_LIKELY), MOST_LIKELY);
}

void bt_sched_acceptance_learn(bt_sched_acceptance_t *all,
                               bt_sched_acceptance_seq_t *seq,
                               bt_draft_source_t source, uint32_t n_matched,
                               bool is_right)
{
    bt_sched_acceptance_count_t *count =
        &all->counts[source][class_of(n_matched)];
    const float expected = (count->n_right + PRIOR_RIGHT) / (count->n + PRIOR);
    const float right = is_right ? 1 : 0;

    count->n_right = count->n_right * DECAY + right;
    count->n = count->n * DECAY + 1;
    seq->n_right = seq->n_right * DECAY + right;
    seq->n_expected = seq->n_expected * DECAY + expected;
}

/* Probability that the next draft of an offer and all before it are right. */
static float next_survival(const bt_sched_acceptance_t *all,
                           const bt_sched_draft_offer_t *offer,
                           uint32_t n_taken, float survival)
{
    return (n_taken < offer->n)
               ? survival * bt_sched_acceptance_of(all, offer->seq,
                                                   offer->source,
                                                   offer->n_matched + n_taken)
               : 0;
}

static double time_of(const bt_sched_row_times_t *times,
                      const bt_sched_draft_step_t *step, uint32_t n_drafts)
{
    return step->fixed_us +
           (step->has_chunks
                ? step->row_us * n_drafts
                : bt_sched_row_times_us(times, step->n_seqs + n_drafts,
                                        step->row_us));
}

/* Least expected number of tokens of a sequence; a chunk is one that has no
 * drafts. */
static double least_expected(const bt_sched_draft_step_t *step,
                             const bt_sched_draft_offer_t *offers, uint32_t n)
{
    float least = ((n < step->n_seqs) || step->has_chunks) ? 0 : INFINITY;

    for (uint32_t i = 0; i < n; i++) {
        least = fminf(least, offers[i].expected);
    }
    return 1 + (double)least;
}

/* Order in which drafts are added: by falling probability, or always to the
 * sequence that expects the fewest tokens. */
typedef enum pick {
    MOST_LIKELY_FIRST,
    SLOWEST_FIRST,
} pick_t;

static bool goes_before(const bt_sched_draft_offer_t *a,
                        const bt_sched_draft_offer_t *b, pick_t pick)
{
    return (pick == MOST_LIKELY_FIRST) ? a->survival > b->survival
                                       : a->expected < b->expected;
}

/* Adds the next draft to the offers' state.
 * @return its probability; 0: none is left */
static float add_next(const bt_sched_acceptance_t *all,
                      bt_sched_draft_offer_t *offers, uint32_t n, pick_t pick)
{
    bt_sched_draft_offer_t *offer = &offers[0];
    float survival;

    for (uint32_t i = 1; i < n; i++) {
        if (goes_before(&offers[i], offer, pick)) {
            offer = &offers[i];
        }
    }
    survival = offer->survival;
    if (survival > 0) {
        offer->expected += survival;
        offer->n_taken++;
        offer->survival = next_survival(all, offer, offer->n_taken, survival);
    }
    return survival;
}

static void begin(const bt_sched_acceptance_t *all,
                  bt_sched_draft_offer_t *offers, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        offers[i].n_taken = 0;
        offers[i].expected = 0;
        offers[i].survival = next_survival(all, &offers[i], 0, 1);
    }
}

/* What was found so far. */
typedef struct choice {
    double goodput; /* expected tokens per us */
    uint32_t n;     /* drafts */
    pick_t pick;
} choice_t;

/* Adds drafts one by one, and keeps the number with the best goodput.
 * @return false: some choices would have slowed a sequence too much */
static bool try_order(const bt_sched_row_times_t *times,
                      const bt_sched_acceptance_t *all,
                      const bt_sched_draft_step_t *step,
                      bt_sched_draft_offer_t *offers, uint32_t n, pick_t pick,
                      choice_t *best)
{
    const double alone_us = time_of(times, step, 0);
    const double slowest_us = alone_us * (1 + 1.0 / BT_SCHED_DRAFT_SLOWER);
    const double most_us =
        (step->most_us > alone_us) ? step->most_us : INFINITY;
    double tokens = step->n_seqs;
    bool all_fit = true;

    begin(all, offers, n);
    for (uint32_t k = 1; k <= step->max_drafts; k++) {
        const double us = time_of(times, step, k);
        const float survival = add_next(all, offers, n, pick);

        if (!(survival > 0) || (us > most_us)) {
            break;
        }
        tokens += (double)survival;
        if (tokens / us <= best->goodput) {
            continue;
        }
        if (us / least_expected(step, offers, n) <= slowest_us) {
            *best = (choice_t){.goodput = tokens / us, .n = k, .pick = pick};
        } else {
            all_fit = false;
        }
    }
    return all_fit;
}

uint32_t bt_sched_draft_take(const bt_sched_row_times_t *times,
                             const bt_sched_acceptance_t *all,
                             const bt_sched_draft_step_t *step,
                             bt_sched_draft_offer_t *offers, uint32_t n)
{
    const double alone_us = time_of(times, step, 0);
    choice_t best = {.pick = MOST_LIKELY_FIRST};

    for (uint32_t i = 0; i < n; i++) {
        offers[i].n_taken = 0;
    }
    if ((n == 0) || !(alone_us > 0)) {
        return 0;
    }
    best.goodput = step->n_seqs / alone_us * LEAST_GAIN;
    if (!try_order(times, all, step, offers, n, MOST_LIKELY_FIRST, &best) &&
        (n == step->n_seqs)) {
        (void)try_order(times, all, step, offers, n, SLOWEST_FIRST, &best);
    }
    begin(all, offers, n);
    for (uint32_t k = 0; k < best.n; k++) {
        (void)add_next(all, offers, n, best.pick);
    }
    return best.n;
}
