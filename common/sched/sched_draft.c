/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_draft.h"

#include <math.h>
#include <stddef.h>

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
#define MODEL_PRIOR  4.0f
#define MODEL_MEAN   0.9f /* of a model that differs by its rounding */
#define COLD_ROUNDS  2u   /* the first read weights from a file */
#define TRIAL_FIRST  16u
#define TRIAL_ROUNDS 2u
#define ROUNDS_MOST  16u

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

uint8_t bt_sched_draft_match(float probability)
{
    static const struct {
        float below;
        uint8_t match;
    } classes[] = {{0.5f, 1}, {0.7f, 3}, {0.9f, 5}, {0.98f, 9}};

    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
        if (!(probability >= classes[i].below)) {
            return classes[i].match;
        }
    }
    return 17;
}

/* Fraction of right drafts in this class. Of a model's drafts the first are
 * expected to be right as often as the model expects, and of a grammar's nearly
 * always, unless a longer token may stand there. */
static float expected_of(const bt_sched_acceptance_t *all,
                         bt_draft_source_t source, unsigned class)
{
    static const float of_model[BT_SCHED_DRAFT_CLASSES] = {0.4f, 0.6f, 0.8f,
                                                           0.94f, 0.98f};
    static const float of_grammar[BT_SCHED_DRAFT_CLASSES] = {0.5f, 0.8f, 0.9f,
                                                             0.9f, 0.98f};
    const bt_sched_acceptance_count_t *count = &all->counts[source][class];

    switch (source) {
    case BT_DRAFT_MODEL:
        return (count->n_right + MODEL_PRIOR * of_model[class]) /
               (count->n + MODEL_PRIOR);
    case BT_DRAFT_GRAMMAR:
        return (count->n_right + MODEL_PRIOR * of_grammar[class]) /
               (count->n + MODEL_PRIOR);
    default:
        return (count->n_right + PRIOR_RIGHT) / (count->n + PRIOR);
    }
}

static float relative_of(const bt_sched_acceptance_seq_t *seq)
{
    return (seq->n_right + SEQ_PRIOR) / (seq->n_expected + SEQ_PRIOR);
}

static float bounded(float p)
{
    return fminf(fmaxf(p, LEAST_LIKELY), MOST_LIKELY);
}

float bt_sched_acceptance_of(const bt_sched_acceptance_t *all,
                             const bt_sched_acceptance_seq_t *seq,
                             bt_draft_source_t source, uint32_t n_matched)
{
    return bounded(expected_of(all, source, class_of(n_matched)) *
                   relative_of(seq));
}

float bt_sched_acceptance_model(const bt_sched_acceptance_t *all,
                                const bt_sched_acceptance_seq_t *seq)
{
    const float mean = (all->model.n_right + MODEL_PRIOR * MODEL_MEAN) /
                       (all->model.n + MODEL_PRIOR);

    return bounded(mean * relative_of(seq));
}

uint32_t bt_sched_acceptance_most(const bt_sched_acceptance_t *all)
{
    return TRIAL_ROUNDS + (uint32_t)all->model.n_right;
}

static void count(bt_sched_acceptance_count_t *count, float right)
{
    count->n_right = count->n_right * DECAY + right;
    count->n = count->n * DECAY + 1;
}

void bt_sched_acceptance_learn(bt_sched_acceptance_t *all,
                               bt_sched_acceptance_seq_t *seq,
                               bt_draft_source_t source, uint32_t n_matched,
                               bool is_right)
{
    const unsigned class = class_of(n_matched);
    const float expected = expected_of(all, source, class);
    const float right = is_right ? 1 : 0;

    count(&all->counts[source][class], right);
    if (source == BT_DRAFT_MODEL) {
        count(&all->model, right);
    }
    seq->n_right = seq->n_right * DECAY + right;
    seq->n_expected = seq->n_expected * DECAY + expected;
}

/* Probability that the next draft of an offer and all before it are right. */
static float next_survival(const bt_sched_acceptance_t *all,
                           const bt_sched_draft_offer_t *offer,
                           uint32_t n_taken, float survival)
{
    if (n_taken >= offer->n) {
        return 0;
    }
    return survival * bt_sched_acceptance_of(all, offer->seq, offer->source,
                                             (offer->matches != NULL)
                                                 ? offer->matches[n_taken]
                                                 : offer->n_matched + n_taken);
}

float bt_sched_draft_expected(const bt_sched_acceptance_t *all,
                              const bt_sched_draft_offer_t *offer)
{
    float survival = 1;
    float expected = 0;

    for (uint32_t i = 0; i < offer->n; i++) {
        survival = next_survival(all, offer, i, survival);
        expected += survival;
    }
    return expected;
}

/* An iteration with drafts is not faster than one without, even if the machine
 * was when such ones were measured last. */
static double time_of(const bt_sched_row_times_t *times,
                      const bt_sched_draft_step_t *step, uint32_t n_drafts)
{
    double us;

    if (step->has_chunks) {
        return step->spent_us + step->fixed_us + step->row_us * n_drafts;
    }
    us = bt_sched_row_times_us(times, step->n_seqs + n_drafts, step->row_us);
    if (n_drafts > 0) {
        us = fmax(us, bt_sched_row_times_us(times, step->n_seqs, step->row_us));
    }
    return step->spent_us + step->fixed_us + us;
}

/* Time without drafts and what goes with them. */
static double alone_of(const bt_sched_row_times_t *times,
                       const bt_sched_draft_step_t *step)
{
    return time_of(times, step, 0) - step->spent_us;
}

static double bound_of(const bt_sched_row_times_t *times,
                       const bt_sched_draft_step_t *step)
{
    return (step->most_us > alone_of(times, step)) ? step->most_us : INFINITY;
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
    const double most_us = bound_of(times, step);
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

double bt_sched_draft_us(const bt_sched_row_times_t *times,
                         const bt_sched_draft_step_t *step,
                         const bt_sched_draft_offer_t *offers, uint32_t n)
{
    uint32_t n_taken = 0;

    for (uint32_t i = 0; i < n; i++) {
        n_taken += offers[i].n_taken;
    }
    return time_of(times, step, n_taken);
}

double bt_sched_draft_goodput(const bt_sched_row_times_t *times,
                              const bt_sched_draft_step_t *step,
                              const bt_sched_draft_offer_t *offers, uint32_t n)
{
    const double us = bt_sched_draft_us(times, step, offers, n);
    double tokens = step->n_seqs;

    for (uint32_t i = 0; i < n; i++) {
        tokens += (double)offers[i].expected;
    }
    return (us > 0) ? tokens / us : 0;
}

bt_sched_beside_t
bt_sched_beside_of(const bt_sched_draft_offer_t *const *offers, uint32_t n,
                   uint32_t n_seqs)
{
    bt_sched_beside_t beside = {.least = (n < n_seqs) ? 1 : INFINITY};

    for (uint32_t i = 0; i < n; i++) {
        beside.n_drafts += offers[i]->n_taken;
        beside.expected += (double)offers[i]->expected;
        beside.least = fmin(beside.least, 1 + (double)offers[i]->expected);
    }
    return beside;
}

/* Time of a round of n sequences, which may have further rows. */
static double round_us(const bt_sched_rounds_t *rounds,
                       const bt_sched_draft_step_t *step, uint32_t n,
                       uint32_t n_more_rows)
{
    return bt_sched_row_times_us(&rounds->times, n + n_more_rows,
                                 step->row_us) +
           step->read_us * n;
}

/* What a number of rounds is expected to give. */
typedef struct prospect {
    double us; /* rounds and iteration */
    double tokens;
    double least; /* tokens of a sequence */
    uint32_t n_drafts;
} prospect_t;

/* Chains, and whether those that lag count as if they did not. Else they gain
 * nothing, but while all catch up they are slowed for their own drafts. */
typedef struct chains {
    const bt_sched_chain_t *all;
    uint32_t n;
    bool with_lagging;
    bt_sched_catch_up_of_t catch_up;
} chains_t;

/* True where a sequence lags and gains nothing by rounds of others. */
static bool is_beside(const bt_sched_chain_t *chain,
                      bt_sched_catch_up_of_t catch_up)
{
    return chain->lags &&
           ((catch_up != BT_SCHED_CATCH_UP_ALL) || chain->left_out);
}

static uint32_t most_of(const chains_t *chains, uint32_t i)
{
    return (chains->all[i].lags && !chains->with_lagging) ? 0
                                                          : chains->all[i].most;
}

static prospect_t prospect_of(const bt_sched_row_times_t *times,
                              const bt_sched_rounds_t *rounds,
                              const bt_sched_draft_step_t *step,
                              const bt_sched_beside_t *beside,
                              const chains_t *chains, uint32_t n_rounds)
{
    prospect_t p = {.tokens = step->n_seqs + beside->expected,
                    .least = step->has_chunks ? 1 : beside->least,
                    .n_drafts = beside->n_drafts};

    for (uint32_t k = 1; k <= n_rounds; k++) {
        uint32_t n_more_rows = 0;
        uint32_t n = 0;

        for (uint32_t i = 0; i < chains->n; i++) {
            if (most_of(chains, i) >= k) {
                n++;
                n_more_rows += (k == 1) ? chains->all[i].n_more_rows : 0;
            }
        }
        p.us += (n > 0) ? round_us(rounds, step, n, n_more_rows) : 0;
        p.n_drafts += n;
    }
    for (uint32_t i = 0; i < chains->n; i++) {
        const uint32_t most_here = most_of(chains, i);
        const uint32_t most = (n_rounds < most_here) ? n_rounds : most_here;
        const double a = (double)chains->all[i].acceptance;
        const double expected = a * (1 - pow(a, most)) / (1 - a);

        if (most > 0) {
            p.tokens += expected;
            p.least = fmin(p.least, 1 + expected);
        } else if (is_beside(&chains->all[i], chains->catch_up)) {
            p.least = fmin(p.least, 1 + chains->all[i].expected);
        }
    }
    p.us += time_of(times, step, p.n_drafts);
    return p;
}

static uint32_t longest(const chains_t *chains)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < chains->n; i++) {
        most = (most_of(chains, i) > most) ? most_of(chains, i) : most;
    }
    return (most < ROUNDS_MOST) ? most : ROUNDS_MOST;
}

/* Returns the goodput of the best number of rounds; 0: none is allowed. */
static double best_of(const bt_sched_row_times_t *times,
                      const bt_sched_rounds_t *rounds,
                      const bt_sched_draft_step_t *step,
                      const bt_sched_beside_t *beside, const chains_t *chains)
{
    const double alone_us = time_of(times, step, 0);
    const double slowest_us = alone_us * (1 + 1.0 / BT_SCHED_DRAFT_SLOWER);
    const double most_us = bound_of(times, step);
    const uint32_t most = longest(chains);
    double best = 0;

    for (uint32_t k = 1; (k <= most) && (rounds->times.n_steps > 0); k++) {
        const prospect_t p =
            prospect_of(times, rounds, step, beside, chains, k);

        if ((p.n_drafts > step->max_drafts) || (p.us > most_us)) {
            break;
        }
        if ((p.us / p.least <= slowest_us) && (p.tokens / p.us > best)) {
            best = p.tokens / p.us;
        }
    }
    return best;
}

/* True when a round of n_on sequences, and the iteration, are expected to take
 * too long. Of rounds that were never made one may take as long as the
 * iteration. */
static bool misses_target(const bt_sched_row_times_t *times,
                          const bt_sched_rounds_t *rounds,
                          const bt_sched_draft_step_t *step,
                          const bt_sched_beside_t *beside, uint32_t n_drafts,
                          uint32_t n_on, uint32_t n_more_rows)
{
    const double us = (rounds->times.n_steps == 0)
                          ? alone_of(times, step)
                          : round_us(rounds, step, n_on, n_more_rows);

    return beside->spent_us + us + time_of(times, step, n_drafts + n_on) >
           bound_of(times, step);
}

/* Tells whether the first round of a trial keeps within the bound; where all
 * lag, that of one that has caught up. */
static bool trial_fits(const bt_sched_row_times_t *times,
                       const bt_sched_rounds_t *rounds,
                       const bt_sched_draft_step_t *step,
                       const bt_sched_beside_t *beside,
                       const bt_sched_chain_t *chains, uint32_t n)
{
    uint32_t n_more_rows = 0;
    uint32_t n_on = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (!chains[i].lags && (beside->n_drafts + n_on < step->max_drafts)) {
            n_more_rows += chains[i].n_more_rows;
            n_on++;
        }
    }
    return !misses_target(times, rounds, step, beside, beside->n_drafts,
                          (n_on > 0) ? n_on : 1, n_more_rows);
}

/* Counts an iteration without rounds.
 * @return whether they are tried now, if the bound allows it */
static bool is_trial_due(bt_sched_rounds_t *rounds,
                         const bt_sched_draft_step_t *step)
{
    if (rounds->n_waits == 0) {
        rounds->n_waits = TRIAL_FIRST;
    }
    rounds->n_idle++;
    return !step->has_chunks && ((rounds->times.n_steps == 0) ||
                                 (rounds->n_idle >= rounds->n_waits));
}

static void begin_trial(bt_sched_rounds_t *rounds)
{
    if (rounds->times.n_steps > 0) {
        rounds->n_waits = (rounds->n_waits < BT_SCHED_TRIAL_MOST / 2)
                              ? rounds->n_waits * 2
                              : BT_SCHED_TRIAL_MOST;
    }
    rounds->n_idle = 0;
}

double bt_sched_rounds_begin(const bt_sched_row_times_t *times,
                             bt_sched_rounds_t *rounds,
                             const bt_sched_draft_step_t *step,
                             const bt_sched_beside_t *beside,
                             const bt_sched_chain_t *chains, uint32_t n)
{
    const double least = beside->goodput * LEAST_GAIN;
    const chains_t all = {.all = chains, .n = n, .with_lagging = true};
    chains_t ready = {.all = chains, .n = n};
    uint32_t n_ready = 0;
    double best;

    rounds->catch_up = BT_SCHED_CATCH_UP_NONE;
    if ((n == 0) || !(time_of(times, step, 0) > 0)) {
        return 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        n_ready += chains[i].lags ? 0 : 1;
    }
    if ((n_ready < n) && (best_of(times, rounds, step, beside, &all) > least)) {
        rounds->catch_up = BT_SCHED_CATCH_UP_ALL;
    }
    ready.catch_up = rounds->catch_up;
    best = best_of(times, rounds, step, beside, &ready);
    if (best > least) {
        rounds->n_idle = 0;
        rounds->n_waits = TRIAL_FIRST;
        return best;
    }
    if (!is_trial_due(rounds, step) ||
        !trial_fits(times, rounds, step, beside, chains, n)) {
        return 0;
    }
    if (n_ready == 0) { /* it waits for one that has caught up */
        if (rounds->catch_up == BT_SCHED_CATCH_UP_NONE) {
            rounds->catch_up = BT_SCHED_CATCH_UP_ONE;
        }
        return 0;
    }
    begin_trial(rounds);
    return BT_SCHED_ROUNDS_TRIAL;
}

/* Costs of more rounds, for the chains that take part. */
typedef struct more {
    uint32_t n;                 /* chains */
    double us[ROUNDS_MOST + 1]; /* [1 ...] of so many rounds, for one chain */
} more_t;

static more_t cost_more(const bt_sched_row_times_t *times,
                        const bt_sched_rounds_t *rounds,
                        const bt_sched_draft_step_t *step, uint32_t n_drafts,
                        const bt_sched_chain_t *chains, uint32_t n)
{
    const double verify_us = time_of(times, step, n_drafts);
    more_t more = {0};

    for (uint32_t i = 0; i < n; i++) {
        more.n += chains[i].ended ? 0 : 1;
    }
    for (uint32_t k = 1; (more.n > 0) && (k <= ROUNDS_MOST); k++) {
        const uint32_t all = n_drafts + more.n * k;

        more.us[k] = (all > step->max_drafts + more.n)
                         ? INFINITY
                         : (k * round_us(rounds, step, more.n, 0) +
                            time_of(times, step, all) - verify_us) /
                               more.n;
    }
    return more;
}

/* True when one more round, or several together, give more tokens per time than
 * the goodput: the cost of rows grows in steps. */
static bool pays(const bt_sched_chain_t *chain, const more_t *more,
                 double goodput)
{
    double survival = (double)chain->survival;
    double tokens = 0;

    if (goodput < 0) {
        return chain->n < TRIAL_ROUNDS;
    }
    for (uint32_t k = 1; (k <= chain->most - chain->n) && (k <= ROUNDS_MOST);
         k++) {
        survival *= (double)chain->acceptance;
        tokens += survival;
        if (tokens > goodput * more->us[k]) {
            return true;
        }
    }
    return false;
}

/* True when a round of n_on sequences, and the iteration, would take too long
 * for those that get nothing by it. */
static bool slows_others(const bt_sched_row_times_t *times,
                         const bt_sched_rounds_t *rounds,
                         const bt_sched_draft_step_t *step,
                         const bt_sched_beside_t *beside,
                         const bt_sched_chain_t *chains, uint32_t n,
                         uint32_t n_drafts, uint32_t n_on, uint32_t n_more_rows)
{
    double least = step->has_chunks ? 1 : beside->least;
    double us;

    for (uint32_t i = 0; i < n; i++) {
        if (chains[i].lags ? is_beside(&chains[i], rounds->catch_up)
                           : chains[i].ended) {
            least = fmin(least, 1 + chains[i].expected);
        }
    }
    us = beside->spent_us + round_us(rounds, step, n_on, n_more_rows) +
         time_of(times, step, n_drafts + n_on) - step->spent_us;
    return us >
           alone_of(times, step) * (1 + 1.0 / BT_SCHED_DRAFT_SLOWER) * least;
}

/* True when another round is not allowed; trials keep targets only. */
static bool is_too_long(const bt_sched_row_times_t *times,
                        const bt_sched_rounds_t *rounds,
                        const bt_sched_draft_step_t *step,
                        const bt_sched_beside_t *beside, bool is_trial,
                        const bt_sched_chain_t *chains, uint32_t n,
                        uint32_t n_drafts, uint32_t n_on)
{
    uint32_t n_more_rows = 0;

    for (uint32_t i = 0; i < n; i++) {
        n_more_rows += chains[i].ended ? 0 : chains[i].n_more_rows;
    }
    return misses_target(times, rounds, step, beside, n_drafts, n_on,
                         n_more_rows) ||
           (!is_trial && slows_others(times, rounds, step, beside, chains, n,
                                      n_drafts, n_on, n_more_rows));
}

uint32_t bt_sched_rounds_go_on(const bt_sched_row_times_t *times,
                               const bt_sched_rounds_t *rounds,
                               const bt_sched_draft_step_t *step,
                               const bt_sched_beside_t *beside, double goodput,
                               bt_sched_chain_t *chains, uint32_t n)
{
    uint32_t n_drafts = beside->n_drafts;
    uint32_t n_on = 0;
    more_t more;

    for (uint32_t i = 0; i < n; i++) {
        n_drafts += chains[i].n;
        chains[i].ended = chains[i].ended || chains[i].lags ||
                          (chains[i].n == chains[i].most);
    }
    do { /* the others share the cost of those that end */
        more = cost_more(times, rounds, step, n_drafts, chains, n);
        n_on = 0;
        for (uint32_t i = 0; i < n; i++) {
            bt_sched_chain_t *chain = &chains[i];

            chain->ended = chain->ended ||
                           ((chain->n > 0) && !pays(chain, &more, goodput)) ||
                           (n_drafts + n_on >= step->max_drafts);
            n_on += chain->ended ? 0 : 1;
        }
    } while (n_on < more.n);
    if ((n_on > 0) && is_too_long(times, rounds, step, beside, goodput < 0,
                                  chains, n, n_drafts, n_on)) {
        for (uint32_t i = 0; i < n; i++) {
            chains[i].ended = true;
        }
        n_on = 0;
    }
    return n_on;
}

void bt_sched_rounds_learn(bt_sched_rounds_t *rounds, uint32_t n_rows,
                           double us, bool is_trial)
{
    rounds->n_made += (rounds->n_made <= COLD_ROUNDS) ? 1 : 0;
    if (rounds->n_made <= COLD_ROUNDS) {
        return;
    }
    if (is_trial && (n_rows <= BT_SCHED_ROW_TIMES)) {
        rounds->times.rows[n_rows].us = 0;
    }
    bt_sched_row_times_learn(&rounds->times, n_rows, us);
}
