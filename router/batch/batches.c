/* SPDX-License-Identifier: Apache-2.0 */
/* All batches. A space with batches that have not ended is their owner. Owners
 * take turns, and so do the batches of one. The next line is of the first
 * batch, of the first owner, that has a line ready; then that batch is the last
 * of its owner, and that owner the last of all:
 *
 *     a: a1 a2 a3      a line of a1      b: b1
 *     b: b1            ───────────▶      c: c1 c2
 *     c: c1 c2                           a: a2 a3 a1
 */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "router/batch/batch_priv.h"

#define MAX_CHECKS 4u /* of inputs, at a time */
/* Memory of a check: what it keeps of each line, in a list that doubles. A line
 * comes on top. */
#define CHECK_BYTES ((uint64_t)BT_BATCH_MAX_LINES * 2 * 32)
/* Part of the requests' memory for lines that one batch reads ahead. */
#define MEMORY_PART 8u

/* ---- memory ---- */

/* Counts memory of batches, which clients' requests have not. */
static void count_memory(bt_batches_t *all, uint64_t bytes, bool is_taken)
{
    if (is_taken) {
        all->held_bytes += bytes;
        bt_budget_take(&all->front->requests, bytes);
    } else {
        BT_ASSERT(bytes <= all->held_bytes);
        all->held_bytes -= bytes;
        bt_budget_give(&all->front->requests, bytes);
    }
}

void bt_batch_hold(bt_batches_t *all, bt_batch_held_t *held, uint64_t bytes)
{
    BT_ASSERT(held->all == NULL);
    *held = (bt_batch_held_t){all, bytes};
    count_memory(all, bytes, true);
}

void bt_batch_give(bt_batch_held_t *held)
{
    if (held->all != NULL) {
        count_memory(held->all, held->bytes, false);
        held->all = NULL;
    }
}

size_t bt_batches_headroom(const bt_batches_t *all)
{
    const bt_budget_t *budget = &all->front->requests;
    const uint64_t part = budget->limit / MEMORY_PART;
    const size_t most =
        (part < BT_BATCH_AHEAD_BYTES) ? (size_t)part : BT_BATCH_AHEAD_BYTES;

    return bt_budget_allows(budget, all->held_bytes, most) ? most : 0;
}

/* ---- owners ---- */

static bt_batch_t *first_of(bt_batch_owner_t *owner)
{
    return BT_CONTAINER_OF(owner->batches.next, bt_batch_t, link);
}

static bt_batch_owner_t *find_owner(const bt_batches_t *all, const char *space)
{
    BT_LIST_FOR_EACH_ENTRY(bt_batch_owner_t, owner, &all->owners, link) {
        if (strcmp(owner->space, space) == 0) {
            return owner;
        }
    }
    return NULL;
}

/* @return false: no memory */
static bool join_owner(bt_batch_t *b)
{
    bt_batches_t *all = b->all;
    bt_batch_owner_t *owner = find_owner(all, b->space);

    if (owner == NULL) {
        owner = bt_calloc(1, sizeof(*owner));
        if (owner == NULL) {
            return false;
        }
        bt_list_init(&owner->batches);
        memcpy(owner->space, b->space, sizeof(owner->space));
        bt_list_push_back(&all->owners, &owner->link);
    }
    owner->n++;
    bt_list_push_back(&owner->batches, &b->link);
    b->owner = owner;
    return true;
}

void bt_batch_leave_owner(bt_batch_t *b)
{
    bt_batch_owner_t *owner = b->owner;

    bt_batch_check_is_over(b);
    bt_list_remove(&b->link);
    b->owner = NULL;
    if ((owner != NULL) && (--owner->n == 0)) {
        bt_list_remove(&owner->link);
        bt_free(owner);
    }
}

bool bt_batch_may_check(bt_batch_t *b)
{
    bt_batches_t *all = b->all;
    const uint64_t bytes = CHECK_BYTES + all->front->config->max_body_bytes;

    /* One goes on where memory is short. */
    if (b->owner->is_checking || (all->n_checks == MAX_CHECKS) ||
        ((all->n_checks > 0) &&
         !bt_budget_allows(&all->front->requests, all->held_bytes, bytes))) {
        return false;
    }
    bt_batch_hold(all, &b->check_held, bytes);
    all->n_checks++;
    b->is_checking = b->owner->is_checking = true;
    return true;
}

void bt_batch_check_is_over(bt_batch_t *b)
{
    if (b->is_checking) {
        bt_batch_give(&b->check_held);
        b->is_checking = b->owner->is_checking = false;
        b->all->n_checks--;
    }
}

/* ---- turns ---- */

static void move_back(bt_list_t *list, bt_list_t *link)
{
    bt_list_remove(link);
    bt_list_push_back(list, link);
}

/* @return NULL: no line can begin */
static bt_batch_t *find_ready(const bt_batches_t *all, uint64_t now_us)
{
    BT_LIST_FOR_EACH_ENTRY(bt_batch_owner_t, owner, &all->owners, link) {
        BT_LIST_FOR_EACH_ENTRY(bt_batch_t, b, &owner->batches, link) {
            if (bt_batch_can_run_line(b, now_us)) {
                return b;
            }
        }
    }
    return NULL;
}

static void run_lines(bt_batches_t *all, uint64_t now_us)
{
    bt_batch_t *b;

    while ((b = find_ready(all, now_us)) != NULL) {
        move_back(&b->owner->batches, &b->link);
        move_back(&all->owners, &b->owner->link);
        bt_batch_run_line(b, now_us);
    }
}

/* Owners that begin a check are behind the others then. */
static void look_at_owner(bt_batches_t *all, bt_batch_owner_t *owner,
                          uint64_t now_us)
{
    const bool was_checking = owner->is_checking;

    BT_LIST_FOR_EACH_ENTRY(bt_batch_t, b, &owner->batches, link) {
        bt_batch_look(b, now_us);
    }
    if (owner->is_checking && !was_checking) {
        move_back(&all->owners, &owner->link);
    }
}

void bt_batches_tick(bt_batches_t *all, uint64_t now_us)
{
    BT_LIST_FOR_EACH_ENTRY(bt_batch_t, b, &all->gone, link) {
        if (!b->has_job) {
            bt_batch_free(b);
        }
    }
    BT_LIST_FOR_EACH_ENTRY(bt_batch_owner_t, owner, &all->owners, link) {
        look_at_owner(all, owner, now_us);
    }
    run_lines(all, now_us);
}

static void news(bt_turn_work_t *work)
{
    bt_batches_tick(BT_CONTAINER_OF(work, bt_batches_t, news), bt_now_us());
}

void bt_batches_wake(bt_batches_t *all)
{
    bt_turn_put_off(&all->front->turn, &all->news, bt_now_us());
}

/* Its time in the store is over: it is freed once no job has it. */
static void removed(void *ctx, bt_stored_t *object)
{
    bt_batches_t *all = ctx;
    bt_batch_t *b = object->user;

    if (b != NULL) {
        bt_batch_leave_owner(b);
        bt_list_push_back(&all->gone, &b->link);
        bt_batches_wake(all);
    }
}

/* ---- parts ---- */

/* Makes a batch without an object. NULL: no memory */
static bt_batch_t *make_batch(bt_batches_t *all, const char *space)
{
    bt_batch_t *b = bt_calloc(1, sizeof(*b));

    if (b == NULL) {
        return NULL;
    }
    bt_list_init(&b->link);
    bt_list_init(&b->cancels);
    bt_list_init(&b->ready);
    bt_list_init(&b->running);
    bt_list_init(&b->results);
    bt_list_init(&b->fresh);
    bt_list_init(&b->saving);
    bt_strbuf_init(&b->partial, 0);
    bt_strbuf_init(&b->state_text, 1u << 21);
    bt_strbuf_init(&b->final_text, 1u << 21);
    b->all = all;
    b->ending = BT_BATCH_COMPLETED;
    snprintf(b->space, sizeof(b->space), "%s", space);
    bt_batch_hold(all, &b->held, BT_BATCH_OPEN_BYTES);
    b->done = bt_calloc(BT_BATCH_MAX_LINES / 8 + 1, 1);
    if ((b->done == NULL) || !join_owner(b)) {
        bt_batch_free(b);
        return NULL;
    }
    return b;
}

static void attach(bt_batch_t *b, bt_stored_t *object)
{
    b->object = bt_stored_ref(object);
    object->user = b;
}

bt_batch_t *bt_batch_of(const bt_stored_t *object)
{
    return object->user;
}

/* ---- all of them ---- */

_Static_assert(BT_PC_BATCHES_END - BT_PC_BATCHES == BT_BATCH_N_STATUSES,
               "baton_batches has a series for each status");

void bt_batches_count(const bt_batches_t *all, double cells[BT_PC_N])
{
    for (int i = BT_PC_BATCHES; i < BT_PC_BATCHES_END; i++) {
        cells[i] = 0;
    }
    BT_LIST_FOR_EACH_ENTRY(bt_batch_owner_t, owner, &all->owners, link) {
        BT_LIST_FOR_EACH_ENTRY(bt_batch_t, b, &owner->batches, link) {
            cells[BT_PC_BATCHES + (int)b->status]++;
        }
    }
    BT_LIST_FOR_EACH_ENTRY(bt_batch_t, b, &all->ended, link) {
        cells[BT_PC_BATCHES + (int)b->status]++;
    }
}

static void load_batch(void *ctx, const char *space, bt_stored_t *object)
{
    bt_batches_t *all = ctx;
    bt_batch_t *b = make_batch(all, space);
    bt_status_t status = BT_ERR_NO_MEMORY;

    if (b != NULL) {
        attach(b, object);
        status = bt_batch_load(b);
    }
    if (status != BT_OK) {
        BT_LOG_WARN("batch %s is left alone: %s", object->id,
                    bt_status_str(status));
        if (b != NULL) {
            bt_batch_free(b);
        }
        return;
    }
    if (bt_batch_has_ended(b)) {
        bt_batch_leave_owner(b);
        bt_list_push_back(&all->ended, &b->link);
        bt_batch_drop_work(b);
        return;
    }
    b->is_cancel_kept = b->status == BT_BATCH_CANCELLING;
    if (bt_store_charge_journal(all->front->store, object,
                                2 * (b->ok_bytes + b->failed_bytes)) != BT_OK) {
        BT_LOG_WARN("batch %s has more than its space in the store",
                    object->id);
    }
    BT_LOG_INFO("batch %s goes on: %s, %u of %u lines", object->id,
                bt_batch_status_name(b->status), b->n_ok + b->n_failed,
                b->n_lines);
}

bt_status_t bt_batches_create(bt_frontend_t *front, bt_batches_t **batches_p)
{
    bt_batches_t *all = bt_calloc(1, sizeof(*all));

    if (all == NULL) {
        BT_LOG_ERROR("out of memory for batches");
        return BT_ERR_NO_MEMORY;
    }
    all->front = front;
    all->inline_bytes = BT_ANSWER_INLINE_BYTES;
    bt_list_init(&all->owners);
    bt_list_init(&all->ended);
    bt_list_init(&all->gone);
    bt_turn_work_init(&all->news, news);
    bt_store_on_remove(front->store, BT_STORE_BATCH, removed, all);
    bt_store_each(front->store, BT_STORE_BATCH, load_batch, all);
    *batches_p = all;
    return BT_OK;
}

void bt_batches_destroy(bt_batches_t *all)
{
    if (all == NULL) {
        return;
    }
    bt_store_on_remove(all->front->store, BT_STORE_BATCH, NULL, NULL);
    BT_LIST_FOR_EACH_ENTRY(bt_batch_owner_t, owner, &all->owners, link) {
        while (owner->n > 1) {
            bt_batch_free(first_of(owner));
        }
        bt_batch_free(first_of(owner)); /* and its owner */
    }
    BT_LIST_FOR_EACH_ENTRY(bt_batch_t, b, &all->ended, link) {
        bt_batch_free(b);
    }
    BT_LIST_FOR_EACH_ENTRY(bt_batch_t, b, &all->gone, link) {
        bt_batch_free(b);
    }
    BT_ASSERT(all->held_bytes == 0);
    bt_turn_forget(&all->news);
    bt_free(all);
}

/* ---- a new one ---- */

typedef struct making {
    bt_pool_job_t job;
    bt_batch_t *batch; /* owned; counts for its tenant */
    bt_store_put_t *put;
    bt_strbuf_t params;
    bt_status_t status;
    bt_batch_answer_fn_t made;
    void *ctx;
} making_t;

static void run_make(bt_pool_job_t *job)
{
    making_t *m = BT_CONTAINER_OF(job, making_t, job);

    m->status = bt_store_put_write(m->put, m->params.data, m->params.len);
    if (m->status == BT_OK) {
        m->status = bt_store_put_commit(m->put);
    }
}

/* What is kept is a batch: nothing can fail here. */
static void made(bt_pool_job_t *job)
{
    making_t *m = BT_CONTAINER_OF(job, making_t, job);
    bt_stored_t *object = bt_store_put_end(m->put);
    bt_api_error_t error = {0};
    bt_batch_t *b = m->batch;

    b->has_job = false;
    if (object == NULL) {
        bt_api_error_set(&error, 503, NULL, "the batch cannot be kept: %s",
                         job->ran ? bt_status_str(m->status)
                                  : "the server is stopping");
        bt_batch_free(b);
        b = NULL;
    } else {
        attach(b, object);
        b->at_s[BT_BATCH_VALIDATING] = bt_batch_now_s();
        bt_batches_wake(b->all);
    }
    m->made(m->ctx, b, &error);
    bt_strbuf_fini(&m->params);
    bt_free(m);
}

static void drop(making_t *m)
{
    if (m->batch != NULL) {
        bt_batch_free(m->batch);
    }
    bt_strbuf_fini(&m->params);
    bt_free(m);
}

/* Makes what a new batch needs. @retval BT_ERR_NO_MEMORY */
static bt_status_t prepare(bt_batches_t *all, const bt_batch_params_t *params,
                           making_t **m_p)
{
    making_t *m = bt_calloc(1, sizeof(*m));
    bt_status_t status;

    if (m == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    bt_strbuf_init(&m->params, 1u << 20);
    bt_batch_write_params(params, &m->params);
    status = bt_strbuf_status(&m->params);
    if (status == BT_OK) {
        m->batch = make_batch(all, bt_tenant_space(params->tenant));
        status =
            (m->batch != NULL)
                ? bt_batch_read_params(m->params.data, m->params.len, m->batch)
                : BT_ERR_NO_MEMORY;
    }
    if (status != BT_OK) {
        drop(m);
        return BT_ERR_NO_MEMORY; /* they have just been written */
    }
    *m_p = m;
    return BT_OK;
}

bt_status_t bt_batch_begin(bt_batches_t *all, const bt_batch_params_t *params,
                           bt_batch_answer_fn_t made_fn, void *ctx,
                           bt_api_error_t *error_p)
{
    const char *space = bt_tenant_space(params->tenant);
    const bt_batch_owner_t *owner = find_owner(all, space);
    bt_status_t status;
    making_t *m;

    if ((owner != NULL) && (owner->n >= BT_BATCH_MAX_OPEN)) {
        bt_api_error_set(error_p, 429, NULL,
                         "%u of your batches are under way: cancel one, or "
                         "wait",
                         BT_BATCH_MAX_OPEN);
        return BT_ERR_BUSY;
    }
    if (!bt_budget_allows(&all->front->requests, all->held_bytes,
                          BT_BATCH_OPEN_BYTES)) {
        bt_api_error_set(error_p, 503, NULL,
                         "the server has no memory for a batch more now "
                         "(--http-memory), try again later");
        return BT_ERR_BUSY;
    }
    if (prepare(all, params, &m) != BT_OK) {
        return bt_api_error_no_memory(error_p);
    }
    status = bt_store_put_begin(all->front->store, BT_STORE_BATCH, space,
                                m->params.len, bt_unix_us(), &m->put);
    if (status != BT_OK) {
        drop(m);
        if (bt_store_refusal(status) == NULL) {
            return bt_api_error_no_memory(error_p);
        }
        bt_api_error_set(error_p, (status == BT_ERR_BUSY) ? 503 : 413, NULL,
                         "%s", bt_store_refusal(status));
        return status;
    }
    m->batch->has_job = true;
    m->made = made_fn;
    m->ctx = ctx;
    m->job.run = run_make;
    m->job.done = made;
    bt_pool_post(all->front->pool, &m->job, BT_POOL_FILES);
    return BT_OK;
}
