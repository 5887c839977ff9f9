/* SPDX-License-Identifier: Apache-2.0 */
/* Assigns draws and scorings of a pass to a back end that supports them
 * (drawing.h), so that its logits stay there. A row of which all logits are
 * wanted, or whose processors are more than a bias, is processed by the host,
 * and so are all draws from it. */
#include <math.h>

#include "inference/engine/engine_priv.h"
#include "inference/model/logprob.h"

/* Adds the scoring of this position's row, for the token that follows or for
 * the draw added last.
 * @return false: the back end cannot do it */
static bool tell_score(bt_pass_t *pass, const bt_seq_t *seq, uint32_t position,
                       bool draws)
{
    const bt_seq_rows_t *const rows = seq->rows;
    const bt_scoring_t scoring = {.logit_row = pass->n_logit_rows,
                                  .draw = draws ? pass->drawing->n_draws - 1
                                                : BT_SCORING_NO_DRAW,
                                  .id = draws ? 0 : seq->tokens[position + 1]};

    return (rows->logits == NULL) &&
           bt_drawing_score(pass->drawing, &scoring,
                            (rows->top_ids == NULL) ? 0 : rows->n_top);
}

static bool tell_draw(bt_pass_t *pass, const bt_seq_t *seq, uint32_t position)
{
    const bool is_biased = seq->n_processors > 0;
    const bt_drawn_from_t from = {.sampling = &seq->sampling,
                                  .is_biased = is_biased,
                                  .tokens = seq->tokens,
                                  .n_tokens = position + 1,
                                  .n_prompt = seq->n_prompt};

    if ((position + 1 < seq->n_prompt) || (seq->n_processors > 1) ||
        (is_biased &&
         (bt_logit_biases_of(&seq->processors[0]) != &seq->sampling))) {
        return false;
    }
    return bt_drawing_add(pass->drawing, pass->n_logit_rows, &from) &&
           (!bt_engine_wants_row(seq, position) ||
            tell_score(pass, seq, position, true));
}

/* Adds the draws of a sequence and all its followers. */
static bool tell_draws(bt_pass_t *pass, bt_seq_t *seq, uint32_t position)
{
    bool told = tell_draw(pass, seq, position);
    bt_list_t *pos;
    bt_list_t *tmp;

    BT_LIST_FOR_EACH(pos, tmp, &seq->followers)
    {
        told = told && tell_draw(pass, bt_engine_seq_at(pos), position);
    }
    return told;
}

bool bt_engine_tell(bt_pass_t *pass, bt_seq_t *seq, uint32_t position,
                    bool draws)
{
    bt_drawing_t *const d = pass->drawing;
    bool told;

    if (d == NULL) {
        return false;
    }
    pass->draw_of[pass->n_logit_rows] = d->n_draws;
    pass->score_of[pass->n_logit_rows] = d->n_scorings;
    told = draws ? tell_draws(pass, seq, position)
                 : tell_score(pass, seq, position, false);
    if (!told) {
        bt_drawing_cut(d, pass->draw_of[pass->n_logit_rows],
                       pass->score_of[pass->n_logit_rows]);
    }
    return told;
}

bool bt_engine_is_told(const bt_pass_t *pass, uint32_t row)
{
    return pass->needs[row] == BT_NEEDS_NOTHING;
}

uint32_t bt_engine_told_id(const bt_pass_t *pass, uint32_t row, uint32_t k)
{
    return pass->drawing->ids[pass->draw_of[row] + k];
}

/* Returns the index of the scoring of the row for draw k from it, or for a
 * known token. */
static uint32_t scoring_of(const bt_pass_t *pass, uint32_t row, uint32_t k)
{
    const bt_scoring_t *const scorings = pass->drawing->scorings;
    uint32_t i = pass->score_of[row];

    while ((scorings[i].draw != BT_SCORING_NO_DRAW) &&
           (scorings[i].draw != pass->draw_of[row] + k)) {
        i++;
    }
    return i;
}

void bt_engine_store_told(const bt_pass_t *pass, uint32_t row, uint32_t k,
                          const bt_seq_t *seq, uint32_t position,
                          uint32_t n_vocab)
{
    const uint32_t s = scoring_of(pass, row, k);

    if (isfinite(pass->drawing->scored[s].sum)) {
        bt_engine_store_scored(seq, position, &pass->drawing->scored[s],
                               &pass->drawing->tops[s]);
    } else { /* the host has the logits then */
        bt_engine_store_row(seq, position, pass->logits + (size_t)row * n_vocab,
                            n_vocab);
    }
}
