/* SPDX-License-Identifier: Apache-2.0 */
#include "router/text/prediction.h"

/* Comparisons of one answer: those of a long one that differs everywhere. */
#define MOST_STEPS (1u << 18)

/* Finds two tokens one after another, at or behind a place. @return place
 * behind them; 0: not there, or no steps are left */
static uint32_t find_pair(const uint32_t *given, uint32_t n_given,
                          uint32_t from, const uint32_t *pair,
                          uint32_t *steps_p)
{
    for (uint32_t i = from; (i + 1 < n_given) && (*steps_p > 0); i++) {
        (*steps_p)--;
        if ((given[i] == pair[0]) && (given[i + 1] == pair[1])) {
            return i + 2;
        }
    }
    return 0;
}

uint32_t bt_prediction_accepted(const uint32_t *given, uint32_t n_given,
                                const uint32_t *ids, uint32_t n)
{
    uint32_t steps = MOST_STEPS;
    uint32_t n_accepted = 0;
    uint32_t behind = 0; /* the last accepted token */
    uint32_t at = 0;     /* where the answer has come to */

    for (uint32_t i = 0; i < n; i++) {
        uint32_t found = 0;

        if ((at < n_given) && (given[at] == ids[i])) {
            n_accepted++;
            behind = ++at;
            continue;
        }
        if (i > 0) {
            found = find_pair(given, n_given, behind, &ids[i - 1], &steps);
        }
        if (found > 0) {
            n_accepted++;
            behind = at = found;
        } else if (at < n_given) {
            at++;
        }
    }
    return n_accepted;
}
