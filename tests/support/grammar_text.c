/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/grammar_text.h"

#include <string.h>

#include "common/base/alloc.h"
#include "tests/support/testsupport.h"

#define MAX_SPOTS 50000u

/* Positions of a text, a bit each. */
typedef struct ends {
    uint64_t bits[(GRAMMAR_TEXT_BYTES + 64) / 64];
    bool is_known;
} ends_t;

typedef struct run {
    const bt_grammar_t *g;
    const char *text;
    size_t n;
    ends_t *ends; /* [rule][position] */
} run_t;

typedef struct spot {
    uint32_t state, count, at;
} spot_t;

static const ends_t *ends_of(run_t *run, uint32_t rule, uint32_t from);

static void add(spot_t *spots, uint32_t *n, spot_t spot)
{
    for (uint32_t i = 0; i < *n; i++) {
        if (memcmp(&spots[i], &spot, sizeof(spot)) == 0) {
            return;
        }
    }
    assert_true(*n < MAX_SPOTS);
    spots[(*n)++] = spot;
}

/* Follows the edges of one spot. */
static void follow(run_t *run, spot_t *spots, uint32_t *n, spot_t spot)
{
    const bt_grammar_t *const g = run->g;
    const bt_grammar_state_t *const s = &g->states[spot.state];
    const bt_grammar_edge_t *read;

    if (spot.at < run->n) {
        read = bt_grammar_read(g, spot.state, (uint8_t)run->text[spot.at]);
        if (read != NULL) {
            add(spots, n,
                (spot_t){read->to, spot.count + (read->counts ? 1 : 0),
                         spot.at + 1});
        }
    }
    for (uint32_t e = s->n_byte_edges; e < s->n_edges; e++) {
        const bt_grammar_edge_t *const edge = &g->edges[s->first_edge + e];
        const ends_t *ends;

        if (edge->kind != BT_GRAMMAR_CALLS) {
            continue;
        }
        ends = ends_of(run, edge->arg, spot.at);
        for (uint32_t at = 0; at <= run->n; at++) {
            if ((ends->bits[at / 64] >> (at % 64) & 1) != 0) {
                add(spots, n,
                    (spot_t){edge->to, spot.count + (edge->counts ? 1 : 0),
                             at});
            }
        }
    }
}

/* Positions at which texts of a rule from this one end. Rules do not
 * begin with themselves, so this ends. */
static const ends_t *ends_of(run_t *run, uint32_t rule, uint32_t from)
{
    const bt_grammar_t *const g = run->g;
    ends_t *const ends = &run->ends[rule * (run->n + 1) + from];
    spot_t *spots;
    uint32_t n = 0;

    if (ends->is_known) {
        return ends;
    }
    spots = bt_calloc(MAX_SPOTS, sizeof(*spots));
    assert_non_null(spots);
    add(spots, &n, (spot_t){g->rules[rule].start, 0, from});
    for (uint32_t i = 0; i < n; i++) {
        const spot_t spot = spots[i];

        if (g->states[spot.state].accepts &&
            (spot.count >= g->rules[rule].min) &&
            (spot.count <= g->rules[rule].max)) {
            ends->bits[spot.at / 64] |= 1ull << (spot.at % 64);
        }
        follow(run, spots, &n, spot);
    }
    bt_free(spots);
    ends->is_known = true;
    return ends;
}

bool grammar_has_text(const bt_grammar_t *grammar, const char *text, size_t n)
{
    run_t run = {.g = grammar, .text = text, .n = n};
    bool has;

    assert_true(n <= GRAMMAR_TEXT_BYTES);
    run.ends = bt_calloc(grammar->n_rules * (n + 1), sizeof(*run.ends));
    assert_non_null(run.ends);
    has = (ends_of(&run, 0, 0)->bits[n / 64] >> (n % 64) & 1) != 0;
    bt_free(run.ends);
    return has;
}
