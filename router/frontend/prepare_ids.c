/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts of token ids, of which some may be rows of a prompt table
 * (common/wire/prompt_table.h). */
#include "common/base/alloc.h"
#include "router/frontend/prepare_priv.h"

static bt_status_t check_ids(bt_prepare_t *w, const bt_api_prompt_t *prompt,
                             const char *name, const char *hint)
{
    const uint32_t n_vocab = bt_tokenizer_n_vocab(w->served->tok);

    for (size_t i = 0; i < prompt->n_ids; i++) {
        if (prompt->ids[i] >= n_vocab) {
            return bt_api_error_invalid(
                w->error, name,
                "%s has token id %u; this model has ids 0 to %u%s", name,
                prompt->ids[i], n_vocab - 1, hint);
        }
    }
    return BT_OK;
}

/* Compares the table with the model. */
static bt_status_t check_table(bt_prepare_t *w)
{
    const uint32_t width = bt_table_width(&w->request->table.rows->rows);

    if (width != w->served->width) {
        return bt_api_error_invalid(
            w->error, "prompt_embedding_table",
            "prompt_embedding_table has rows of %u elements; embeddings of "
            "model %s have %u",
            width, w->served->name, w->served->width);
    }
    return BT_OK;
}

/* Makes ids from the vocabulary's size on to ids of rows of the table. */
static bt_status_t number_rows(bt_prepare_t *w, const char *name, uint32_t *ids,
                               size_t n)
{
    const uint32_t n_vocab = bt_tokenizer_n_vocab(w->served->tok);
    const uint32_t n_rows = w->request->table.rows->rows.n;
    bt_status_t status = check_table(w);

    for (size_t i = 0; (i < n) && (status == BT_OK); i++) {
        if (ids[i] < n_vocab) {
            continue;
        }
        if (ids[i] - n_vocab >= n_rows) {
            status = bt_api_error_invalid(
                w->error, name,
                "%s has token id %u; this model has ids 0 to %u, and "
                "prompt_embedding_table those up to %u",
                name, ids[i], n_vocab - 1, n_vocab + n_rows - 1);
        } else {
            ids[i] = BT_TABLE_TOKEN + (ids[i] - n_vocab);
        }
    }
    return status;
}

bt_status_t bt_prepare_ids(bt_prepare_t *w, const bt_api_prompt_t *prompt,
                           const char *name, const char *hint,
                           bt_token_vec_t *out)
{
    const bool has_table = w->request->table.rows != NULL;

    if ((hint != NULL) && !has_table) {
        const bt_status_t status = check_ids(w, prompt, name, hint);

        if (status != BT_OK) {
            return status;
        }
    }
    if (prompt->n_ids == 0) {
        return BT_OK; /* refused as empty later */
    }
    out->ids = bt_memdup(prompt->ids, prompt->n_ids * sizeof(*prompt->ids));
    if (out->ids == NULL) {
        return bt_api_error_no_memory(w->error);
    }
    out->n = out->cap = prompt->n_ids;
    if (has_table) {
        return number_rows(w, name, out->ids, out->n);
    }
    if (hint == NULL) {
        bt_served_fold_ids(w->served, out->ids, out->n);
    }
    return BT_OK;
}

void bt_prepare_hold_table(const bt_api_request_t *request, bt_prompt_t *prompt)
{
    for (uint32_t i = 0; (i < prompt->n) && (prompt->table == NULL); i++) {
        if (bt_is_table_token(prompt->tokens[i])) {
            prompt->table = bt_prompt_table_ref(request->table.rows);
        }
    }
}
