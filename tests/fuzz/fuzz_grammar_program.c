/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of grammars: a worker takes them from a peer. */
#include "tests/fuzz/fuzz.h"

#include "common/base/status.h"
#include "common/grammar/bounds.h"

static volatile uint64_t sink;

/* Reads every state by every byte. */
static void look(const bt_grammar_t *g)
{
    for (uint32_t s = 0; s < g->n_states; s++) {
        const bt_grammar_state_t *const state = &g->states[s];

        for (uint32_t byte = 0; byte < 256; byte++) {
            const bt_grammar_edge_t *const edge =
                bt_grammar_read(g, s, (uint8_t)byte);

            if (edge != NULL) {
                BT_ASSERT_ALWAYS(g->states[edge->to].rule == state->rule);
            }
        }
        for (uint32_t i = 0; i < state->n_edges; i++) {
            const bt_grammar_edge_t *const edge =
                &g->edges[state->first_edge + i];

            BT_ASSERT_ALWAYS(g->states[edge->to].rule == state->rule);
            BT_ASSERT_ALWAYS((edge->kind != BT_GRAMMAR_CALLS) ||
                             (edge->arg < g->n_rules));
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bt_grammar_bounds_t *bounds = NULL;
    bt_grammar_t *g = NULL;
    const char *why = NULL;

    if (bt_grammar_load(data, size, &why, &g) != BT_OK) {
        BT_ASSERT_ALWAYS((why != NULL) && (g == NULL));
        return 0;
    }
    look(g);
    if (bt_grammar_bounds_create(g, &bounds) == BT_OK) {
        for (uint32_t s = 0; s < g->n_states; s++) {
            for (uint32_t height = 0; height < 4; height++) {
                sink += bt_grammar_can_end(bounds, s, height, height);
            }
        }
    }
    bt_grammar_bounds_destroy(bounds);
    bt_grammar_free(g);
    return 0;
}
