/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "inference/tokenizer/regex.h"
#include "inference/tokenizer/unicode.h"

#define CODES       0x110000u
#define PAGES       (CODES >> 8)
#define MAX_DEPTH   64u
#define MAX_CLASSES 255u /* and a column for the end */

/* Whether the set has a character with these properties.
 * @return false also for an expression that is too deep; the parser makes none
 */
static bool set_has(const bt_rx_t *rx, bt_rx_set_t set, uint32_t cp,
                    uint32_t props)
{
    bool stack[MAX_DEPTH];
    uint32_t n = 0;

    for (uint32_t i = set.first; i < set.first + set.n; i++) {
        const bt_rx_op_t *op = &rx->ops[i];

        switch ((bt_rx_op_kind_t)op->kind) {
        case BT_RX_NOT:
            stack[n - 1] = !stack[n - 1];
            continue;
        case BT_RX_OR:
            n--;
            stack[n - 1] = stack[n - 1] || stack[n];
            continue;
        case BT_RX_AND:
            n--;
            stack[n - 1] = stack[n - 1] && stack[n];
            continue;
        case BT_RX_RANGE:
            stack[n] = (cp >= op->a) && (cp <= op->b);
            break;
        case BT_RX_CATEGORIES:
            stack[n] = (op->a >> (props & BT_UNICODE_CATEGORY) & 1) != 0;
            break;
        case BT_RX_PROPERTY:
            stack[n] = (op->a & props) != 0;
            break;
        case BT_RX_NOTHING:
            stack[n] = false;
            break;
        }
        if (++n == MAX_DEPTH) {
            return false;
        }
    }
    return stack[0];
}

static int compare(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a;
    const uint32_t y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

/* Where some set may begin or end: everything between two of these is alike.
 * @param [out] cuts  capacity for all
 * @return how many, the last is CODES */
static uint32_t find_cuts(const bt_rx_t *rx, uint32_t *cuts)
{
    uint32_t n = 0;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < BT_UNICODE_N_RUNS; i++) {
        cuts[n++] = bt_unicode_runs[i] >> BT_UNICODE_RUN_BITS;
    }
    for (uint32_t i = 0; i < rx->n_ops; i++) {
        if (rx->ops[i].kind == BT_RX_RANGE) {
            cuts[n++] = rx->ops[i].a;
            cuts[n++] = rx->ops[i].b + 1;
        }
    }
    cuts[n++] = CODES;
    qsort(cuts, n, sizeof(*cuts), compare);
    for (uint32_t i = 0; i < n; i++) {
        if ((kept == 0) || (cuts[i] != cuts[kept - 1])) {
            cuts[kept++] = cuts[i];
        }
    }
    return kept;
}

/* @return the class whose members are those of members[n], which may be n */
static uint32_t class_of(const bt_rx_t *rx, uint32_t n)
{
    uint32_t i = 0;

    while (memcmp(rx->members[i], rx->members[n], sizeof(rx->members[n])) !=
           0) {
        i++;
    }
    return i;
}

/* The class of every code point, one byte each. */
static bt_status_t fill(bt_rx_t *rx, const uint32_t *cuts, uint32_t n_cuts,
                        uint8_t *all, uint32_t *n_p)
{
    uint32_t run = 0;
    uint32_t n = 0;

    for (uint32_t i = 0; i + 1 < n_cuts; i++) {
        uint32_t which;

        while ((run + 1 < BT_UNICODE_N_RUNS) &&
               (bt_unicode_runs[run + 1] >> BT_UNICODE_RUN_BITS <= cuts[i])) {
            run++;
        }
        memset(rx->members[n], 0, sizeof(rx->members[n]));
        for (uint32_t s = 0; s < rx->n_sets; s++) {
            rx->members[n][s / 64] |=
                (uint64_t)set_has(rx, rx->sets[s], cuts[i],
                                  bt_unicode_runs[run] & BT_UNICODE_RUN_PROPS)
                << s % 64;
        }
        which = class_of(rx, n);
        n += (which == n);
        if (n > MAX_CLASSES) {
            snprintf(rx->why, rx->why_bytes,
                     "a pattern tells more than %u kinds of characters apart",
                     MAX_CLASSES);
            return BT_ERR_TOO_LARGE;
        }
        memset(all + cuts[i], (int)which, cuts[i + 1] - cuts[i]);
    }
    *n_p = n;
    return BT_OK;
}

/* Equal pages once; those before are searched by their first difference, and
 * most are like the one just before. */
static bt_status_t make_pages(const uint8_t *all, bt_alphabet_t *alphabet)
{
    uint32_t n = 0;

    alphabet->pages = bt_calloc(PAGES, sizeof(*alphabet->pages));
    alphabet->classes = bt_calloc(CODES, 1);
    if ((alphabet->pages == NULL) || (alphabet->classes == NULL)) {
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t page = 0; page < PAGES; page++) {
        const uint8_t *from = all + (size_t)page * 256;
        uint32_t i = n;

        while ((i > 0) && (memcmp(alphabet->classes + (size_t)(i - 1) * 256,
                                  from, 256) != 0)) {
            i--;
        }
        if (i == 0) {
            memcpy(alphabet->classes + (size_t)n * 256, from, 256);
            i = ++n;
        }
        alphabet->pages[page] = (uint16_t)(i - 1);
    }
    memcpy(alphabet->ascii, all, sizeof(alphabet->ascii));
    return BT_OK;
}

bt_status_t bt_rx_classify(bt_rx_t *rx, bt_alphabet_t *alphabet_p)
{
    bt_alphabet_t alphabet = {0};
    const size_t most = BT_UNICODE_N_RUNS + 2 * (size_t)rx->n_ops + 1;
    uint32_t *cuts = bt_calloc(most, sizeof(*cuts));
    uint8_t *all = bt_calloc(CODES, 1);
    bt_status_t status = BT_ERR_NO_MEMORY;

    if ((cuts == NULL) || (all == NULL)) {
        goto out;
    }
    status = fill(rx, cuts, find_cuts(rx, cuts), all, &alphabet.n);
    if (status == BT_OK) {
        status = make_pages(all, &alphabet);
    }
    if (status == BT_OK) {
        *alphabet_p = alphabet;
    } else {
        bt_alphabet_fini(&alphabet);
    }
out:
    bt_free(all);
    bt_free(cuts);
    return status;
}

void bt_alphabet_fini(bt_alphabet_t *alphabet)
{
    bt_free(alphabet->classes);
    bt_free(alphabet->pages);
    memset(alphabet, 0, sizeof(*alphabet));
}
