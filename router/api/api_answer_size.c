/* SPDX-License-Identifier: Apache-2.0 */
/* How long an answer is as JSON, before it is written. */
#include <string.h>

#include "router/api/api_priv.h"

/* About 24 bytes per number with a fraction and its separators. */
static size_t rows_bytes(const bt_api_choice_t *choice)
{
    const bt_gen_rows_t *rows = choice->rows;
    size_t n = 0;

    if (choice->prompt_rows != NULL) {
        n += (size_t)choice->prompt_rows->n_front * (1 + choice->n_prompt_top) *
             4;
    }
    if (rows == NULL) {
        return 24 * n;
    }
    n += ((size_t)choice->to - choice->from) * (2 + 2 * rows->scores.n_top);
    n += (rows->context_logits != NULL) ? (size_t)rows->n_prompt * rows->n_vocab
                                        : 0;
    n += (rows->generation_logits != NULL)
             ? (size_t)rows->n_output * rows->n_vocab
             : 0;
    return 24 * n;
}

static size_t text_bytes(const char *text)
{
    return (text != NULL) ? strlen(text) : 0;
}

static size_t calls_bytes(const bt_api_choice_t *choice)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < choice->n_calls; i++) {
        bytes +=
            text_bytes(choice->calls[i].name) + choice->calls[i].arguments.len;
    }
    return bytes;
}

size_t bt_api_answer_bytes(const bt_api_answer_t *answer,
                           const bt_api_choice_t *choices, size_t n)
{
    size_t bytes = text_bytes(answer->instructions) +
                   text_bytes(answer->metadata) + text_bytes(answer->tools);

    for (size_t i = 0; i < n; i++) {
        const size_t n_ids =
            (choices[i].token_ids != NULL) ? choices[i].n_token_ids : 0;

        bytes += choices[i].text_bytes + choices[i].thought_bytes +
                 calls_bytes(&choices[i]) + n_ids * sizeof(uint32_t) +
                 rows_bytes(&choices[i]);
    }
    return bytes;
}
