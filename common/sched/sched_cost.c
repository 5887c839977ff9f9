/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_cost.h"

#include <math.h>
#include <string.h>

#include "common/base/status.h"

double bt_sched_age_left(uint64_t age_us, uint64_t half_us)
{
    return (half_us > 0) ? exp2(-(double)age_us / (double)half_us) : 0;
}

double bt_sched_age_share(double share, uint64_t age_us, uint64_t half_us)
{
    return fmax(share, 1 - bt_sched_age_left(age_us, half_us));
}

bool bt_sched_probe_is_due(const bt_sched_probe_t *probe, uint64_t now_us)
{
    return !probe->is_out && (now_us >= probe->rests_until_us);
}

void bt_sched_probe_sent(bt_sched_probe_t *probe)
{
    probe->is_out = true;
}

void bt_sched_probe_back(bt_sched_probe_t *probe, uint64_t now_us)
{
    probe->is_out = false;
    probe->rests_until_us = now_us + BT_SCHED_PROBE_EVERY_US;
}

#define TERMS       BT_SCHED_COST_TERMS
#define NOISE       0.1   /* of a step's time, taken for usual */
#define DRIFT       0.001 /* of a step's time, from one to the next */
#define BIAS_MOST   0.15  /* a mean error to one side that all terms share */
#define COV_FIRST   100.0 /* of a factor, before anything is known */
#define COV_LEAST   1e-12
#define USUAL_SHARE 0.01 /* of the newest in the mean of a term */
#define USUAL_LEAST 1e-6
#define N_FREE      8u   /* steps that are believed whatever they say */
#define CLIP_LEAST  0.3  /* a relative error that is nothing unusual */
#define CLIP_ERRORS 3.0  /* usual error, in mean errors */
#define ERROR_SHARE 0.05 /* of the newest in the mean */
#define REST_DRIFT  0.1  /* of all factors, after a second's rest */
#define REST_MOST_S 25.0
#define REST_HALF   10000000u /* us: the mean error halves */
#define NS_MOST     3.6e12
#define TOKENS_MOST (1u << 24) /* beyond all reason */
#define PAIRS_MOST  (UINT64_C(1) << 40)
#define BYTES_MOST  (UINT64_C(1) << 50)
#define UNIT_US     1000.0
#define PAIRS_UNIT  65536.0
#define BYTES_UNIT  1048576.0

/* The guess of before any measurement, in UNIT_US of each term. */
static const struct {
    unsigned n_terms;
    double begin[TERMS];
} lines[BT_SCHED_N_COSTS] = {
    [BT_SCHED_COST_CONTEXT] = {5, {1, 1, 0.1, 0.1, 0.1}},
    [BT_SCHED_COST_GENERATION] = {3, {10, 0.1, 0.1}},
    [BT_SCHED_COST_TRANSFER] = {2, {0.1, 0.5}},
};

void bt_sched_cost_init(bt_sched_cost_t *cost)
{
    memset(cost, 0, sizeof(*cost));
    for (unsigned kind = 0; kind < BT_SCHED_N_COSTS; kind++) {
        bt_sched_fit_t *fit = &cost->fits[kind];

        fit->scale = 1;
        for (unsigned i = 0; i < lines[kind].n_terms; i++) {
            fit->factors[i] = lines[kind].begin[i];
            fit->cov[i][i] = COV_FIRST;
        }
    }
}

/* @return us */
static double predict(const bt_sched_cost_t *cost, bt_sched_cost_kind_t kind,
                      const double x[TERMS])
{
    const bt_sched_fit_t *fit = &cost->fits[kind];
    double us = 0;

    for (unsigned i = 0; i < lines[kind].n_terms; i++) {
        us += fit->factors[i] * UNIT_US * fit->scale * x[i];
    }
    return (us > 1) ? us : 1;
}

/* Ages the model with each step: each term by an amount that is small beside
 * a step's time. */
static void age(bt_sched_fit_t *fit, unsigned n, const double phi[TERMS])
{
    for (unsigned i = 0; i < n; i++) {
        fit->usual[i] += (fit->usual[i] > 0)
                             ? USUAL_SHARE * (phi[i] - fit->usual[i])
                             : phi[i];
        if (fit->usual[i] > USUAL_LEAST) {
            const double drift = DRIFT / fit->usual[i];
            const double more = drift * drift;

            if (fit->cov[i][i] + more <= COV_FIRST) {
                fit->cov[i][i] += more;
            }
        }
    }
}

/* Ages the model by a rest since the last step: the machine may be quicker or
 * slower by now, with all that it does. @return true: it was one */
static bool age_by_rest(bt_sched_fit_t *fit, unsigned n, uint64_t us,
                        uint64_t at_us)
{
    const uint64_t began_us = (at_us > us) ? at_us - us : 0;
    const uint64_t rest_us = bt_sched_age_us(fit->at_us, began_us);
    const double left = bt_sched_age_left(rest_us, REST_HALF);
    double spread;

    if (at_us > 0) {
        fit->at_us = at_us;
    }
    if (rest_us <= BT_SCHED_COST_REST_US) {
        return false;
    }
    spread = REST_DRIFT * REST_DRIFT * fmin((double)rest_us / 1e6, REST_MOST_S);
    for (unsigned i = 0; i < n; i++) {
        for (unsigned k = 0; k < n; k++) {
            fit->cov[i][k] += spread * fit->factors[i] * fit->factors[k];
        }
    }
    fit->error *= left;
    fit->bias *= left;
    return true;
}

/* @param phi    the terms, over the scale of this step
 * @param error  relative to it, clipped */
static void update(bt_sched_fit_t *fit, unsigned n, const double phi[TERMS],
                   double error)
{
    double gain[TERMS];
    double spread = NOISE * NOISE;

    for (unsigned i = 0; i < n; i++) {
        gain[i] = 0;
        for (unsigned k = 0; k < n; k++) {
            gain[i] += fit->cov[i][k] * phi[k];
        }
        spread += phi[i] * gain[i];
    }
    for (unsigned i = 0; i < n; i++) {
        for (unsigned k = 0; k < n; k++) {
            fit->cov[i][k] -= gain[i] * gain[k] / spread;
        }
        if (fit->cov[i][i] < COV_LEAST) { /* rounding makes none negative */
            fit->cov[i][i] = COV_LEAST;
        }
        fit->factors[i] += gain[i] / spread * error;
        if (fit->factors[i] < 0) {
            fit->factors[i] = 0;
        }
    }
}

/* Scales all factors up or down together: the terms keep their shares. The
 * first measurement decides it, and later a mean error to one side. */
static void rescale(bt_sched_fit_t *fit, double us, double guess)
{
    if (fit->n == 0) {
        fit->scale *= us / guess;
    } else if (fabs(fit->bias) > BIAS_MOST) {
        fit->scale *= (fit->bias > 0) ? 1 / (1 - fit->bias) : 1 + fit->bias;
        fit->bias = 0;
    }
}

static void learn(bt_sched_cost_t *cost, bt_sched_cost_kind_t kind,
                  const double x[TERMS], uint64_t ns, uint64_t at_us)
{
    bt_sched_fit_t *fit = &cost->fits[kind];
    const double us = (double)ns / 1000;
    double guess = predict(cost, kind, x);
    const double off = (us - guess) / fmax(us, guess);
    const double clip = fmax(CLIP_LEAST, CLIP_ERRORS * fit->error);
    double phi[TERMS] = {0};
    bool has_rested;
    double scale;

    if ((ns == 0) || ((double)ns > NS_MOST)) {
        return;
    }
    has_rested = age_by_rest(fit, lines[kind].n_terms, ns / 1000, at_us);
    if (fit->n >= N_FREE) {
        fit->error += ERROR_SHARE * (fabs(off) - fit->error);
        fit->bias += ERROR_SHARE * (off - fit->bias);
    }
    rescale(fit, us, guess);
    guess = predict(cost, kind, x);
    scale = (fit->n < N_FREE) ? us : fmax(guess, us / 4);
    for (unsigned i = 0; i < lines[kind].n_terms; i++) {
        phi[i] = x[i] * UNIT_US * fit->scale / scale;
    }
    age(fit, lines[kind].n_terms, phi);
    update(fit, lines[kind].n_terms, phi,
           fmax(has_rested ? -1 : -clip, fmin(clip, (us - guess) / scale)));
    fit->n++;
}

static bt_sched_cost_kind_t kind_of(const bt_sched_step_t *step)
{
    return (step->n_tokens > 0) ? BT_SCHED_COST_CONTEXT
                                : BT_SCHED_COST_GENERATION;
}

static void terms_of(const bt_sched_step_t *step, double x[TERMS])
{
    const double n_rows = (double)step->n_seqs + step->n_drafts;
    const double reads = (double)step->reads / PAIRS_UNIT;

    memset(x, 0, TERMS * sizeof(*x));
    x[0] = 1;
    if (step->n_tokens > 0) {
        x[1] = step->n_tokens;
        x[2] = (double)step->pairs / PAIRS_UNIT;
        x[3] = reads;
        x[4] = n_rows;
    } else {
        x[1] = n_rows;
        x[2] = reads;
    }
}

void bt_sched_cost_learn(bt_sched_cost_t *cost, const bt_sched_step_t *step,
                         uint64_t ns)
{
    double x[TERMS];

    if (((step->n_tokens == 0) && (step->n_seqs == 0)) ||
        (step->n_tokens > TOKENS_MOST) || (step->n_seqs > TOKENS_MOST) ||
        (step->n_drafts > TOKENS_MOST) || (step->pairs > PAIRS_MOST) ||
        (step->reads > PAIRS_MOST) || (ns == 0) || ((double)ns > NS_MOST) ||
        ((double)step->lent_ns > NS_MOST)) {
        return;
    }
    terms_of(step, x);
    learn(cost, kind_of(step), x,
          ns + ((step->n_tokens == 0) ? step->lent_ns : 0), step->at_us);
}

void bt_sched_cost_learn_transfer(bt_sched_cost_t *cost, uint64_t bytes,
                                  uint64_t ns, uint64_t at_us)
{
    const double x[TERMS] = {1, (double)bytes / BYTES_UNIT};

    if (bytes <= BYTES_MOST) {
        learn(cost, BT_SCHED_COST_TRANSFER, x, ns, at_us);
    }
}

double bt_sched_cost_step_us(const bt_sched_cost_t *cost,
                             const bt_sched_step_t *step)
{
    double x[TERMS];

    terms_of(step, x);
    return predict(cost, kind_of(step), x);
}

double bt_sched_cost_transfer_us(const bt_sched_cost_t *cost, uint64_t bytes)
{
    const double x[TERMS] = {1, (double)bytes / BYTES_UNIT};

    return predict(cost, BT_SCHED_COST_TRANSFER, x);
}

/* Cost of one thing of a term, us. */
static double rate(const bt_sched_cost_t *cost, bt_sched_cost_kind_t kind,
                   unsigned term)
{
    return cost->fits[kind].factors[term] * UNIT_US * cost->fits[kind].scale;
}

double bt_sched_cost_fixed_us(const bt_sched_cost_t *cost, uint32_t position)
{
    return rate(cost, BT_SCHED_COST_CONTEXT, 0) +
           rate(cost, BT_SCHED_COST_CONTEXT, 3) * position / PAIRS_UNIT;
}

double bt_sched_cost_token_us(const bt_sched_cost_t *cost, uint32_t position)
{
    return rate(cost, BT_SCHED_COST_CONTEXT, 1) +
           rate(cost, BT_SCHED_COST_CONTEXT, 2) * position / PAIRS_UNIT;
}

double bt_sched_cost_row_us(const bt_sched_cost_t *cost)
{
    return rate(cost, BT_SCHED_COST_GENERATION, 1);
}

double bt_sched_cost_reads_us(const bt_sched_cost_t *cost, double n)
{
    return rate(cost, BT_SCHED_COST_GENERATION, 2) * n / PAIRS_UNIT;
}

uint64_t bt_sched_cost_prompt_us(const bt_sched_cost_t *cost, uint32_t from,
                                 uint32_t to, uint32_t chunk_tokens)
{
    const uint32_t n = (to > from) ? to - from : 0;
    const uint32_t n_chunks = n / chunk_tokens + (n % chunk_tokens != 0);
    const double us = n_chunks * rate(cost, BT_SCHED_COST_CONTEXT, 0) +
                      n * rate(cost, BT_SCHED_COST_CONTEXT, 1) +
                      (double)bt_sched_pairs(from, n) / PAIRS_UNIT *
                          rate(cost, BT_SCHED_COST_CONTEXT, 2) +
                      n_chunks * ((double)from + to) / 2 / PAIRS_UNIT *
                          rate(cost, BT_SCHED_COST_CONTEXT, 3);

    return (us < NS_MOST) ? (uint64_t)us : (uint64_t)NS_MOST;
}

static uint64_t whole_ns(double us)
{
    return (us * 1000 < NS_MOST) ? (uint64_t)(us * 1000 + 0.5)
                                 : (uint64_t)NS_MOST;
}

static uint64_t thousandths(const bt_sched_fit_t *fit)
{
    return (uint64_t)(fit->error * 1000 + 0.5);
}

bt_sched_rates_t bt_sched_cost_rates(const bt_sched_cost_t *cost)
{
    const double kilo = 1024 / PAIRS_UNIT;
    bt_sched_rates_t rates = {0};

    if (cost->fits[BT_SCHED_COST_CONTEXT].n > 0) {
        rates.prefill_step_ns = whole_ns(rate(cost, BT_SCHED_COST_CONTEXT, 0));
        rates.prefill_token_ns = whole_ns(rate(cost, BT_SCHED_COST_CONTEXT, 1));
        rates.prefill_kilopair_ns =
            whole_ns(rate(cost, BT_SCHED_COST_CONTEXT, 2) * kilo);
        rates.prefill_kiloread_ns =
            whole_ns(rate(cost, BT_SCHED_COST_CONTEXT, 3) * kilo);
        rates.prefill_error = thousandths(&cost->fits[BT_SCHED_COST_CONTEXT]);
    }
    if (cost->fits[BT_SCHED_COST_GENERATION].n > 0) {
        rates.decode_step_ns =
            whole_ns(rate(cost, BT_SCHED_COST_GENERATION, 0));
        rates.decode_seq_ns = whole_ns(rate(cost, BT_SCHED_COST_GENERATION, 1));
        rates.decode_kiloread_ns =
            whole_ns(rate(cost, BT_SCHED_COST_GENERATION, 2) * kilo);
        rates.decode_error = thousandths(&cost->fits[BT_SCHED_COST_GENERATION]);
    }
    if (cost->fits[BT_SCHED_COST_TRANSFER].n > 0) {
        rates.transfer_start_ns =
            whole_ns(rate(cost, BT_SCHED_COST_TRANSFER, 0));
        rates.transfer_mib_ns = whole_ns(rate(cost, BT_SCHED_COST_TRANSFER, 1));
        rates.transfer_error = thousandths(&cost->fits[BT_SCHED_COST_TRANSFER]);
    }
    return rates;
}

uint64_t bt_sched_rates_rest_us(const bt_sched_rates_t *rates, uint32_t from,
                                uint32_t to, uint32_t chunk_tokens)
{
    const uint32_t n = (to > from) ? to - from : 0;
    const uint32_t n_chunks = n / chunk_tokens + (n % chunk_tokens != 0);
    const double us = (n_chunks * (double)rates->prefill_step_ns +
                       (double)n * (double)rates->prefill_token_ns +
                       (double)bt_sched_pairs(from, n) / 1024 *
                           (double)rates->prefill_kilopair_ns +
                       n_chunks * ((double)from + to) / 2048 *
                           (double)rates->prefill_kiloread_ns) /
                      1000;

    return (us < NS_MOST) ? (uint64_t)us : 0;
}

uint64_t bt_sched_rates_prompt_us(const bt_sched_rates_t *rates,
                                  uint32_t n_tokens, uint32_t chunk_tokens)
{
    return bt_sched_rates_rest_us(rates, 0, n_tokens, chunk_tokens);
}

uint64_t bt_sched_rates_transfer_us(const bt_sched_rates_t *rates,
                                    uint64_t bytes)
{
    const double us =
        ((double)rates->transfer_start_ns +
         (double)bytes / BYTES_UNIT * (double)rates->transfer_mib_ns) /
        1000;

    return ((bytes > 0) && (us < NS_MOST)) ? (uint64_t)us : 0;
}

#define UP          0.1 /* at most, for a promise that was broken */
#define DOWN        (UP / BT_SCHED_SAFETY_FACTOR_ONE_OF)
#define MOST        ((double)BT_SCHED_SAFETY_FACTOR_MOST / 1000)
#define PROBE_SHARE 0.25 /* of the way down */

void bt_sched_safety_factor_init(bt_sched_safety_factor_t *margin,
                                 uint32_t least)
{
    *margin =
        (bt_sched_safety_factor_t){.factor = 1, .least = (double)least / 1000};
}

static double aged(const bt_sched_safety_factor_t *margin, uint64_t now_us)
{
    const uint64_t age_us = bt_sched_age_us(margin->at_us, now_us);

    if (age_us <= BT_SCHED_SAFETY_FACTOR_REST_US) {
        return margin->factor;
    }
    return 1 + (margin->factor - 1) *
                   bt_sched_age_left(age_us - BT_SCHED_SAFETY_FACTOR_REST_US,
                                     BT_SCHED_SAFETY_FACTOR_HALF_US);
}

/* @param down  of a promise that was kept: so far at most */
static void move(bt_sched_safety_factor_t *margin, double to, double down,
                 uint64_t now_us)
{
    double factor = aged(margin, now_us);
    const double more = to - factor;

    if (more > 0) {
        factor += (more < UP) ? more : UP;
    } else {
        factor -= (more > -down) ? -more : down;
    }
    if (factor > MOST) {
        factor = MOST;
    } else if (factor < margin->least) {
        factor = margin->least;
    }
    margin->factor = factor;
    margin->at_us = now_us;
}

void bt_sched_safety_factor_learn(bt_sched_safety_factor_t *margin,
                                  uint64_t forecast_us, uint64_t us,
                                  uint64_t now_us)
{
    if (forecast_us > 0) {
        move(margin, (double)us / (double)forecast_us, DOWN, now_us);
    }
}

void bt_sched_safety_factor_probe(bt_sched_safety_factor_t *margin,
                                  uint64_t forecast_us, uint64_t us,
                                  uint64_t now_us)
{
    const double took =
        (forecast_us > 0) ? (double)us / (double)forecast_us : 0;
    const double way = aged(margin, now_us) - took;

    if (forecast_us > 0) {
        move(margin, took, (way > 0) ? PROBE_SHARE * way : 0, now_us);
    }
}

uint32_t bt_sched_safety_factor_now(const bt_sched_safety_factor_t *margin,
                                    uint64_t now_us)
{
    return (uint32_t)(aged(margin, now_us) * 1000 + 0.5);
}

#define SEQS_SHARE 0.1 /* of the newest in the mean */
/* Implausibly large, and far from overflow: charges can be added. */
#define WORK_MOST ((double)(UINT64_C(1) << 40))

void bt_sched_token_cost_init(bt_sched_token_cost_t *price)
{
    memset(price, 0, sizeof(*price));
}

static bool knows_prefill(const bt_sched_rates_t *rates)
{
    return bt_sched_rates_prompt_us(rates, 1024, BT_SCHED_RATES_CHUNK) > 0;
}

static bool knows_decode(const bt_sched_rates_t *rates)
{
    return (rates->decode_step_ns > 0) || (rates->decode_seq_ns > 0);
}

void bt_sched_token_cost_learn(bt_sched_token_cost_t *price,
                               const bt_sched_rates_t *rates, uint32_t n_seqs)
{
    bt_sched_rates_t *mine = &price->rates;

    if (knows_prefill(rates)) {
        mine->prefill_step_ns = rates->prefill_step_ns;
        mine->prefill_token_ns = rates->prefill_token_ns;
        mine->prefill_kilopair_ns = rates->prefill_kilopair_ns;
        mine->prefill_kiloread_ns = rates->prefill_kiloread_ns;
    }
    if (knows_decode(rates)) {
        mine->decode_step_ns = rates->decode_step_ns;
        mine->decode_seq_ns = rates->decode_seq_ns;
        mine->decode_kiloread_ns = rates->decode_kiloread_ns;
        if (n_seqs > 0) {
            price->n_seqs += ((price->n_seqs > 0) ? SEQS_SHARE : 1) *
                             ((double)n_seqs - price->n_seqs);
        }
    }
}

static double prompt_us(const bt_sched_rates_t *rates, uint32_t n_tokens)
{
    return (n_tokens > 0) ? (double)bt_sched_rates_prompt_us(
                                rates, n_tokens, BT_SCHED_RATES_CHUNK)
                          : 0;
}

static double generation_us(const bt_sched_token_cost_t *price,
                            const bt_sched_charge_t *piece)
{
    const bt_sched_rates_t *rates = &price->rates;
    const double n = piece->n_new;
    const double n_seqs = (price->n_seqs > 1) ? price->n_seqs : 1;
    const double kiloreads = n * ((double)piece->n_context + n / 2) / 1024;

    return (n * ((double)rates->decode_step_ns / n_seqs +
                 (double)rates->decode_seq_ns) +
            kiloreads * (double)rates->decode_kiloread_ns) /
           1000;
}

uint64_t bt_sched_token_cost_of(const bt_sched_token_cost_t *price,
                                const bt_sched_charge_t *piece)
{
    const uint32_t n_cached =
        (piece->n_cached < piece->n_prompt) ? piece->n_cached : piece->n_prompt;
    double work;

    if (!knows_prefill(&price->rates) || !knows_decode(&price->rates)) {
        work = (double)(piece->n_prompt - n_cached) + piece->n_new;
    } else {
        /* The whole prompt's cost less that of its cached prefix: the pairs
         * of what follows the prefix are charged. */
        work = prompt_us(&price->rates, piece->n_prompt) -
               prompt_us(&price->rates, n_cached);
        work += generation_us(price, piece);
    }
    if (!(work >= 1)) {
        return 1;
    }
    return (work < WORK_MOST) ? (uint64_t)work : (uint64_t)WORK_MOST;
}

uint64_t bt_sched_token_cost_settled(const bt_sched_token_cost_t *price,
                                     uint64_t charged,
                                     const bt_sched_charge_t *thought,
                                     const bt_sched_charge_t *was)
{
    const double work = (double)charged *
                        (double)bt_sched_token_cost_of(price, was) /
                        (double)bt_sched_token_cost_of(price, thought);

    if (!(work >= 1)) {
        return 1;
    }
    return (work < WORK_MOST) ? (uint64_t)(work + 0.5) : (uint64_t)WORK_MOST;
}
