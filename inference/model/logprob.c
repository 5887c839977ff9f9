/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/model/logprob.h"

#include <math.h>

#include "inference/model/exp_negative.h"

#define LANES 8

double bt_logprob_sum(const float *logits, uint32_t n)
{
    double lanes[LANES] = {0.0};
    double sum = 0.0;
    float best = logits[0];
    uint32_t i;

    for (i = 1; i < n; i++) {
        best = (logits[i] > best) ? logits[i] : best;
    }
    /* bt_exp_negative() makes nothing of a NaN, here it must show. */
    for (i = 0; i < n; i++) {
        const double x = (double)logits[i] - (double)best;

        lanes[i % LANES] += bt_exp_negative(x) + 0.0 * x;
    }
    for (i = 0; i < LANES; i++) {
        sum += lanes[i];
    }
    return (double)best + log(sum);
}

void bt_logprob_top(const float *logits, uint32_t n, uint32_t k, uint32_t *ids)
{
    uint32_t kept = 0;

    if (k == 0) {
        return;
    }
    for (uint32_t id = 0; id < n; id++) {
        uint32_t at = kept;

        if ((kept == k) && !(logits[id] > logits[ids[k - 1]])) {
            continue;
        }
        at -= (kept == k) ? 1 : 0;
        kept += (kept < k) ? 1 : 0;
        for (; (at > 0) && (logits[id] > logits[ids[at - 1]]); at--) {
            ids[at] = ids[at - 1];
        }
        ids[at] = id;
    }
}
