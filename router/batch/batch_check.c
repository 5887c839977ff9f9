/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the lines of a batch's input, a slice of the file at a time. What it
 * finds is its own until it is done. */
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "router/batch/batch_priv.h"

/* custom_id of a line. */
typedef struct named {
    bt_hash128_t id;
    uint32_t number;
} named_t;

struct bt_batch_check {
    named_t *named; /* owned */
    uint32_t n, cap;
    uint64_t id_bytes;
    bt_strbuf_t errors; /* a list, as JSON */
    bt_json_t json;
    uint32_t n_errors;
};

static void add_error(bt_batch_check_t *c, const bt_batch_fault_t *fault,
                      uint32_t number)
{
    if (c->n_errors == BT_BATCH_MAX_ERRORS) {
        return;
    }
    c->n_errors++;
    bt_json_object(&c->json, NULL);
    bt_json_str(&c->json, "code", fault->code);
    bt_json_str(&c->json, "message", fault->why);
    bt_json_str(&c->json, "param", fault->param);
    if (number > 0) {
        bt_json_u64(&c->json, "line", number);
    } else {
        bt_json_null(&c->json, "line");
    }
    bt_json_end_object(&c->json);
}

static int by_id(const void *a, const void *b)
{
    const named_t *x = a, *y = b;

    if (x->id.hi != y->id.hi) {
        return (x->id.hi < y->id.hi) ? -1 : 1;
    }
    if (x->id.lo != y->id.lo) {
        return (x->id.lo < y->id.lo) ? -1 : 1;
    }
    return (x->number > y->number) - (x->number < y->number);
}

/* Two lines of one custom_id could not be told apart in the output. */
static void find_twins(bt_batch_check_t *c)
{
    static const bt_batch_fault_t twin = {
        "duplicate_custom_id", "custom_id",
        "the custom_id of this line is that of an earlier one", NULL};

    if (c->n > 0) {
        qsort(c->named, c->n, sizeof(*c->named), by_id);
    }
    for (uint32_t i = 1; i < c->n; i++) {
        if (bt_hash128_equal(c->named[i].id, c->named[i - 1].id)) {
            add_error(c, &twin, c->named[i].number);
        }
    }
}

static bt_status_t check_line(bt_batch_t *b, bt_batch_check_t *c,
                              const bt_batch_text_t *line)
{
    static const bt_batch_fault_t many = {
        "too_many_requests", NULL, "a batch has 50000 lines at most", NULL};
    char custom_id[BT_BATCH_ID_CHARS + 1];
    bt_batch_fault_t fault;
    bt_status_t status;

    if (c->n == BT_BATCH_MAX_LINES) {
        add_error(c, &many, b->next_number);
        return BT_ERR_NOT_FOUND; /* as if there were no more */
    }
    status = bt_batch_line_parse(line, b->endpoint,
                                 (size_t)b->all->front->config->max_body_bytes,
                                 custom_id, NULL, &fault);
    if (status == BT_ERR_INVALID_PARAM) {
        add_error(c, &fault, b->next_number);
        return BT_OK;
    }
    if ((status == BT_ERR_NO_MEMORY) ||
        !bt_array_grow(&c->named, &c->cap, c->n + 1, sizeof(*c->named))) {
        return BT_ERR_NO_MEMORY;
    }
    c->named[c->n++] =
        (named_t){bt_hash128(custom_id, strlen(custom_id), 0), b->next_number};
    c->id_bytes += strlen(custom_id);
    return BT_OK;
}

/* @retval BT_INPROGRESS  there are more */
static bt_status_t check_lines(bt_batch_t *b, bt_batch_check_t *c)
{
    static const bt_batch_fault_t none = {"empty_file", NULL,
                                          "the input file has no lines", NULL};
    bt_status_t status = bt_batch_input_open(b);
    bt_batch_text_t line;

    b->slice_bytes = 0;
    while ((status == BT_OK) && (c->n_errors < BT_BATCH_MAX_ERRORS)) {
        if (b->slice_bytes >= BT_BATCH_SLICE_BYTES) {
            return BT_INPROGRESS;
        }
        status = bt_batch_input_next(b, &line);
        if (status == BT_OK) {
            status = check_line(b, c, &line);
        }
    }
    if ((status != BT_OK) && (status != BT_ERR_NOT_FOUND)) {
        return status;
    }
    if ((c->n == 0) && (c->n_errors == 0)) {
        add_error(c, &none, 0);
    }
    find_twins(c);
    bt_json_end_array(&c->json);
    return bt_strbuf_status(&c->errors);
}

static bt_batch_check_t *begin_check(void)
{
    bt_batch_check_t *c = bt_calloc(1, sizeof(*c));

    if (c != NULL) {
        bt_strbuf_init(&c->errors, 1u << 20);
        bt_json_init(&c->json, &c->errors);
        bt_json_array(&c->json, NULL);
    }
    return c;
}

static void run_check(bt_pool_job_t *job)
{
    bt_batch_t *b = BT_CONTAINER_OF(job, bt_batch_t, work.job);

    if (b->check == NULL) {
        b->check = begin_check();
    }
    b->job_status =
        (b->check != NULL) ? check_lines(b, b->check) : BT_ERR_NO_MEMORY;
    b->goes_on = b->job_status == BT_INPROGRESS;
    if (!b->goes_on) {
        bt_batch_input_close(b);
    }
}

void bt_batch_validate(bt_batch_t *b, void (*next)(bt_batch_t *))
{
    BT_ASSERT(b->check == NULL);
    bt_batch_post(b, run_check, next);
}

void bt_batch_end_check(bt_batch_t *b)
{
    bt_batch_check_t *c = b->check;

    b->check = NULL;
    if (c != NULL) {
        bt_strbuf_fini(&c->errors);
        bt_free(c->named);
        bt_free(c);
    }
}

void bt_batch_take_check(bt_batch_t *b)
{
    bt_batch_check_t *c = b->check;

    if (c->n_errors > 0) {
        b->errors = c->errors.data;
        bt_strbuf_init(&c->errors, 0);
    } else {
        b->n_lines = c->n;
        b->id_bytes = c->id_bytes;
    }
    bt_batch_end_check(b);
}
