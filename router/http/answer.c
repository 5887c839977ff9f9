/* SPDX-License-Identifier: Apache-2.0 */
#include "router/http/answer.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/json_slices.h"
#include "router/http/door_priv.h"

struct bt_answer {
    bt_work_t work;
    bt_frontend_t *front;
    bt_visit_t *visit; /* NULL: the client left */
    bt_call_t *call;   /* a reference: owns all data borrowed here */
    const bt_api_answer_t *answer;
    const bt_api_choice_t *choices;
    size_t n_choices;
    bt_api_usage_t usage;
    bool began; /* frame of the slices is written */
    bool more;  /* slices are left */
    bt_json_slices_t slices;
    bt_strbuf_t out;
};

static void answer_free(bt_answer_t *a)
{
    bt_json_slices_fini(&a->slices);
    bt_strbuf_fini(&a->out);
    bt_call_unref(a->call);
    bt_account_unref(a->work.job.account);
    bt_free(a);
}

/* ---- the pool, and the event loop again ---- */

static void write_slice(bt_pool_job_t *job)
{
    bt_answer_t *a = BT_CONTAINER_OF(job, bt_answer_t, work.job);

    if (!a->began) {
        bt_json_t json;

        bt_json_slices_begin(&a->slices, &json);
        bt_api_put_answer(a->answer, a->choices, a->n_choices, &a->usage,
                          &json);
        a->began = true;
    }
    a->more = bt_json_slices_write(&a->slices, BT_ANSWER_SLICE_BYTES, &a->out);
}

static void respond(bt_visit_t *visit, bt_strbuf_t *out,
                    const bt_account_t *account)
{
    bt_api_error_t error = {0};

    if ((bt_strbuf_status(out) != BT_OK) && bt_work_refuse(account, &error)) {
        bt_visit_fail(visit, &error);
        return;
    }
    switch (bt_strbuf_status(out)) {
    case BT_OK:
        bt_visit_respond_take(visit, 200, BT_JSON_TYPE, out);
        break;
    case BT_ERR_TOO_LARGE:
        bt_visit_fail_for_length(visit);
        break;
    default:
        bt_visit_fail_for_memory(visit);
    }
}

static void written(bt_pool_job_t *job)
{
    bt_answer_t *a = BT_CONTAINER_OF(job, bt_answer_t, work.job);
    bt_visit_t *visit = a->visit;

    if ((visit != NULL) && job->ran && a->more) {
        bt_work_post(&a->work, a->front->pool, bt_work_lane(a->out.len),
                     BT_ANSWER_SLICE_BYTES / 16);
        return;
    }
    a->front->n_answers--;
    if (visit == NULL) {
        answer_free(a);
        return;
    }
    visit->writing = NULL;
    while (!job->ran) { /* the server stops: the rest is written here */
        write_slice(job);
        job->ran = !a->more;
    }
    respond(visit, &a->out, a->work.job.account);
    answer_free(a);
}

/* ---- the beginning ---- */

/* About 24 bytes per number with a fraction and its separators. */
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

size_t bt_answer_bytes(const bt_api_answer_t *answer,
                       const bt_api_choice_t *choices, size_t n)
{
    size_t bytes =
        text_bytes(answer->instructions) + text_bytes(answer->metadata);

    for (size_t i = 0; i < n; i++) {
        const size_t n_ids =
            (choices[i].token_ids != NULL) ? choices[i].n_token_ids : 0;

        bytes += choices[i].text_bytes + choices[i].thought_bytes +
                 calls_bytes(&choices[i]) + n_ids * sizeof(uint32_t) +
                 rows_bytes(&choices[i]);
    }
    return bytes;
}

bool bt_answer_begin(bt_visit_t *visit, bt_call_t *call,
                     const bt_api_answer_t *answer,
                     const bt_api_choice_t *choices, size_t n,
                     const bt_api_usage_t *usage)
{
    bt_answer_t *a = bt_calloc(1, sizeof(*a));
    bt_work_client_t client;

    if (a == NULL) {
        return false;
    }
    bt_strbuf_init(&a->out, BT_ANSWER_LIMIT);
    a->call = bt_call_ref(call);
    a->answer = answer;
    a->choices = choices;
    a->n_choices = n;
    a->usage = *usage;
    a->front = visit->door->front;
    a->visit = visit;
    bt_json_slices_init(&a->slices, BT_ANSWER_LIMIT);
    client = bt_visit_client(visit);
    bt_work_init(&a->work, visit->tenant, &client);
    a->work.job.run = write_slice;
    a->work.job.done = written;
    visit->writing = a;
    a->front->n_answers++;
    a->work.job.account =
        bt_work_account(&a->front->answers, visit->tenant, &client);
    bt_work_post(&a->work, a->front->pool, BT_POOL_FIRST, 0);
    return true;
}

void bt_answer_leave(bt_answer_t *answer)
{
    answer->visit = NULL;
    bt_pool_cancel(answer->front->pool, &answer->work.job);
}
