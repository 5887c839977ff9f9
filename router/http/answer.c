/* SPDX-License-Identifier: Apache-2.0 */
#include "router/http/answer.h"

#include <string.h>

#include "common/base/alloc.h"
#include "router/http/door_priv.h"

struct bt_answer {
    bt_pool_job_t job;
    bt_frontend_t *front;
    bt_visit_t *visit; /* NULL: the client left */
    bt_api_answer_t answer;
    bt_api_usage_t usage;
    bt_api_choice_t *choices; /* owned; they point into bytes */
    size_t n_choices;
    char *bytes; /* owned: all that was lent, but for rows, which are shared */
    bt_strbuf_t out;
};

static void answer_free(bt_answer_t *a)
{
    bt_strbuf_fini(&a->out);
    for (size_t i = 0; i < a->n_choices; i++) {
        bt_gen_rows_unref(a->choices[i].rows);
    }
    bt_free(a->choices);
    bt_free(a->bytes);
    bt_free(a);
}

/* ---- the copy ---- */

static size_t text_bytes(const char *text)
{
    return (text != NULL) ? strlen(text) + 1 : 0;
}

static char *put(char *at, const void *data, size_t bytes)
{
    if (bytes > 0) {
        memcpy(at, data, bytes);
    }
    return at + bytes;
}

static const char *put_text(char **at, const char *text)
{
    char *copy = *at;

    *at = put(copy, text, text_bytes(text));
    return (text != NULL) ? copy : NULL;
}

static size_t ids_bytes(const bt_api_choice_t *choice)
{
    return (choice->token_ids != NULL)
               ? choice->n_token_ids * sizeof(*choice->token_ids)
               : 0;
}

static size_t offsets_bytes(const bt_api_choice_t *choice)
{
    return (choice->offsets != NULL) ? choice->to * sizeof(*choice->offsets)
                                     : 0;
}

static const uint32_t *put_words(char **at, const uint32_t *words, size_t bytes)
{
    const uint32_t *copy = (const uint32_t *)(void *)*at;

    *at = put(*at, words, bytes);
    return (words != NULL) ? copy : NULL;
}

/* All numbers stand before all texts, for they have to be aligned. */
static void copy_choices(bt_answer_t *a, char **at)
{
    for (size_t i = 0; i < a->n_choices; i++) {
        bt_api_choice_t *choice = &a->choices[i];

        choice->token_ids = put_words(at, choice->token_ids, ids_bytes(choice));
        choice->offsets = put_words(at, choice->offsets, offsets_bytes(choice));
        if (choice->rows != NULL) {
            (void)bt_gen_rows_ref(choice->rows);
        }
    }
    for (size_t i = 0; i < a->n_choices; i++) {
        bt_api_choice_t *choice = &a->choices[i];
        char *text = *at;

        *at = put(text, choice->text, choice->text_bytes);
        choice->text = text;
        text = *at;
        *at = put(text, choice->thought, choice->thought_bytes);
        choice->thought = text;
    }
}

static bool copy(bt_answer_t *a, const bt_api_answer_t *answer,
                 const bt_api_choice_t *choices, size_t n)
{
    size_t bytes = text_bytes(answer->id) + text_bytes(answer->model) +
                   text_bytes(answer->instructions) + 1;
    char *at;

    for (size_t i = 0; i < n; i++) {
        bytes += choices[i].text_bytes + choices[i].thought_bytes +
                 ids_bytes(&choices[i]) + offsets_bytes(&choices[i]);
    }
    a->choices = bt_calloc(n, sizeof(*choices));
    a->bytes = bt_calloc(1, bytes);
    if ((a->choices == NULL) || (a->bytes == NULL)) {
        return false;
    }
    memcpy(a->choices, choices, n * sizeof(*choices));
    a->n_choices = n;
    at = a->bytes;
    copy_choices(a, &at);
    a->answer = *answer;
    a->answer.id = put_text(&at, answer->id);
    a->answer.model = put_text(&at, answer->model);
    a->answer.instructions = put_text(&at, answer->instructions);
    return true;
}

/* ---- the pool, and the event loop again ---- */

static void write_answer(bt_pool_job_t *job)
{
    bt_answer_t *a = BT_CONTAINER_OF(job, bt_answer_t, job);

    bt_api_write_answer(&a->answer, a->choices, a->n_choices, &a->usage,
                        &a->out);
}

static void written(bt_pool_job_t *job)
{
    bt_answer_t *a = BT_CONTAINER_OF(job, bt_answer_t, job);
    bt_visit_t *visit = a->visit;

    a->front->n_answers--;
    if (visit == NULL) {
        answer_free(a);
        return;
    }
    visit->writing = NULL;
    if (!job->ran) {
        write_answer(job); /* the server stops: this was finished before */
    }
    if (bt_strbuf_status(&a->out) == BT_OK) {
        bt_visit_respond(visit, 200, BT_JSON_TYPE, a->out.data, a->out.len);
    } else {
        bt_visit_fail_for_memory(visit);
    }
    answer_free(a);
}

/* ---- the beginning ---- */

/* About 24 for a number with a fraction and what stands around it. */
static size_t rows_bytes(const bt_api_choice_t *choice)
{
    const bt_gen_rows_t *rows = choice->rows;
    size_t n;

    if (rows == NULL) {
        return 0;
    }
    n = ((size_t)choice->to - choice->from) * (2 + 2 * rows->scores.n_top);
    n += (rows->context_logits != NULL) ? (size_t)rows->n_prompt * rows->n_vocab
                                        : 0;
    n += (rows->generation_logits != NULL)
             ? (size_t)rows->n_output * rows->n_vocab
             : 0;
    return 24 * n;
}

size_t bt_answer_bytes(const bt_api_choice_t *choices, size_t n)
{
    size_t bytes = 0;

    for (size_t i = 0; i < n; i++) {
        bytes += choices[i].text_bytes + choices[i].thought_bytes +
                 ids_bytes(&choices[i]) + rows_bytes(&choices[i]);
    }
    return bytes;
}

bool bt_answer_begin(bt_visit_t *visit, const bt_api_answer_t *answer,
                     const bt_api_choice_t *choices, size_t n,
                     const bt_api_usage_t *usage)
{
    bt_answer_t *a = bt_calloc(1, sizeof(*a));

    if (a == NULL) {
        return false;
    }
    bt_strbuf_init(&a->out, BT_ANSWER_LIMIT);
    if (!copy(a, answer, choices, n)) {
        answer_free(a);
        return false;
    }
    a->front = visit->door->front;
    a->visit = visit;
    a->usage = *usage;
    a->job.run = write_answer;
    a->job.done = written;
    visit->writing = a;
    a->front->n_answers++;
    bt_pool_post(a->front->pool, &a->job, BT_POOL_FIRST);
    return true;
}

void bt_answer_leave(bt_answer_t *answer)
{
    answer->visit = NULL;
}
