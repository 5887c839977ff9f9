/* SPDX-License-Identifier: Apache-2.0 */
#include "accuracy/score.h"

#include <math.h>

static uint32_t top(const float *logits, uint32_t n)
{
    uint32_t best = 0;

    for (uint32_t i = 1; i < n; i++) {
        best = (logits[i] > logits[best]) ? i : best;
    }
    return best;
}

/* log of the sum of exp(logit): the difference between a logit and its log
 * p. */
static double log_sum(const float *logits, uint32_t n, float most)
{
    double sum = 0.0;

    for (uint32_t i = 0; i < n; i++) {
        sum += exp((double)logits[i] - (double)most);
    }
    return log(sum) + (double)most;
}

void bt_score_add(bt_score_t *score, const float *a, const float *b,
                  uint32_t n_vocab, uint32_t token)
{
    const uint32_t top_a = top(a, n_vocab);
    const uint32_t top_b = top(b, n_vocab);
    const double sum_a = log_sum(a, n_vocab, a[top_a]);
    const double sum_b = log_sum(b, n_vocab, b[top_b]);
    const double lost = (sum_b - (double)b[token]) - (sum_a - (double)a[token]);
    double kl = 0.0;

    for (uint32_t i = 0; i < n_vocab; i++) {
        const double log_p = (double)a[i] - sum_a;

        kl += exp(log_p) * (log_p - ((double)b[i] - sum_b));
    }
    score->n++;
    score->nll[0] += sum_a - (double)a[token];
    score->nll[1] += sum_b - (double)b[token];
    score->kl += kl;
    score->kl_max = fmax(score->kl_max, kl);
    score->kl_squares += kl * kl;
    score->lost_squares += lost * lost;
    score->same_top += (top_a == top_b) ? 1 : 0;
}

double bt_score_perplexity(const bt_score_t *score, uint32_t model)
{
    return (score->n > 0) ? exp(score->nll[model] / (double)score->n) : 0.0;
}

static bt_score_mean_t mean_of(double n, double sum, double squares)
{
    bt_score_mean_t m = {0};

    if (n > 0.0) {
        m.mean = sum / n;
    }
    if (n > 1.0) {
        m.error = sqrt(fmax(squares / n - m.mean * m.mean, 0.0) / (n - 1.0));
    }
    return m;
}

bt_score_mean_t bt_score_kl(const bt_score_t *score)
{
    return mean_of((double)score->n, score->kl, score->kl_squares);
}

bt_score_mean_t bt_score_lost(const bt_score_t *score)
{
    return mean_of((double)score->n, score->nll[1] - score->nll[0],
                   score->lost_squares);
}
