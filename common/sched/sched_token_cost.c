/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_token_cost.h"

#include <string.h>

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
