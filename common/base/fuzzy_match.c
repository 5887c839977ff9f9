/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/fuzzy_match.h"

#include <stdint.h>
#include <string.h>

/* Edit distance where swapping two neighbours counts once.
 * Source: Damerau 1964, restricted form; rows i-2, i-1 and i are kept. */
size_t bt_edit_distance(const char *a, size_t n_a, const char *b, size_t n_b)
{
    size_t rows[3][BT_FUZZY_MAX_BYTES + 1];
    size_t *before = rows[0];
    size_t *above = rows[1];
    size_t *row = rows[2];

    for (size_t j = 0; j <= n_b; j++) {
        above[j] = j;
    }
    for (size_t i = 1; i <= n_a; i++) {
        size_t *const oldest = before;

        row[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            size_t best = above[j - 1] + (a[i - 1] != b[j - 1]);

            best = (above[j] + 1 < best) ? above[j] + 1 : best;
            best = (row[j - 1] + 1 < best) ? row[j - 1] + 1 : best;
            if ((i > 1) && (j > 1) && (a[i - 1] == b[j - 2]) &&
                (a[i - 2] == b[j - 1]) && (before[j - 2] + 1 < best)) {
                best = before[j - 2] + 1;
            }
            row[j] = best;
        }
        before = above;
        above = row;
        row = oldest;
    }
    return above[n_b];
}

bool bt_fuzzy_is_close(size_t distance, size_t n_meant)
{
    return distance <= (n_meant + 2) / 3;
}

const char *bt_fuzzy_match(const char *word, size_t n_word,
                           const char *const *names, size_t n)
{
    const char *best = NULL;
    size_t least = SIZE_MAX;

    if (n_word > BT_FUZZY_MAX_BYTES) {
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        const size_t n_name = strlen(names[i]);
        const size_t distance =
            bt_edit_distance(word, n_word, names[i], n_name);

        if ((distance < least) && bt_fuzzy_is_close(distance, n_name)) {
            best = names[i];
            least = distance;
        }
    }
    return best;
}
