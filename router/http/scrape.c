/* SPDX-License-Identifier: Apache-2.0 */
#include "router/http/scrape.h"

#include "common/base/clock.h"
#include "router/http/door_priv.h"

#define PAGE_TYPE  "text/plain; version=0.0.4; charset=utf-8"
#define ANSWERS_US 500 /* for readers, before others have a turn */

static void begin(bt_scrape_t *scrape);

static bt_visit_t *take(bt_list_t *list)
{
    bt_visit_t *visit = BT_CONTAINER_OF(list->next, bt_visit_t, waits);

    bt_list_remove(&visit->waits);
    return visit;
}

static void fail_all(bt_list_t *list, const char *why)
{
    while (!bt_list_empty(list)) {
        bt_api_error_t error = {0};

        bt_api_error_set(&error, 503, "server_error", NULL, "%s", why);
        bt_visit_fail(take(list), &error);
    }
}

/* ---- the pool ---- */

static void write_page(bt_pool_job_t *job)
{
    bt_scrape_t *scrape = BT_CONTAINER_OF(job, bt_scrape_t, job);

    bt_metrics_process_read(&scrape->process);
    bt_metrics_snapshot_render(scrape->snapshot, &scrape->process,
                               &scrape->page);
}

static void do_nothing(bt_pool_job_t *job)
{
    (void)job;
}

/* ---- the event loop ---- */

static void end(bt_scrape_t *scrape)
{
    bt_strbuf_fini(&scrape->page);
    scrape->is_under_way = false;
    if (!bt_list_empty(&scrape->asked)) {
        begin(scrape);
    }
}

static void answer(bt_pool_job_t *job)
{
    bt_scrape_t *scrape = BT_CONTAINER_OF(job, bt_scrape_t, job);
    uint64_t end_us;

    bt_metrics_snapshot_destroy(scrape->snapshot);
    scrape->snapshot = NULL;
    if (!job->ran) {
        fail_all(&scrape->readers, "the server is stopping");
    } else if (bt_strbuf_status(&scrape->page) != BT_OK) {
        fail_all(&scrape->readers, "out of memory for this answer");
    }
    end_us = bt_now_us() + ANSWERS_US;
    while (!bt_list_empty(&scrape->readers)) {
        bt_visit_respond(take(&scrape->readers), 200, PAGE_TYPE,
                         scrape->page.data, scrape->page.len);
        if ((bt_now_us() >= end_us) && !bt_list_empty(&scrape->readers)) {
            /* One a turn at least, however slow the machine. */
            job->run = do_nothing;
            bt_pool_post(scrape->door->front->pool, job, BT_POOL_FIRST);
            return;
        }
    }
    end(scrape);
}

/* A view of each model; n_p is how many were made, also on failure. */
static bt_status_t view_models(const bt_registry_t *models,
                               bt_metrics_view_t views[BT_DOOR_MAX_MODELS],
                               uint32_t *n_p)
{
    BT_REGISTRY_FOR_EACH(served, models)
    {
        bt_metrics_view_t view = {.model = served->metrics};

        if (*n_p == BT_DOOR_MAX_MODELS) {
            break;
        }
        if (bt_core_view(served->core, &view) != BT_OK) {
            return BT_ERR_NO_MEMORY;
        }
        views[(*n_p)++] = view;
    }
    return BT_OK;
}

static bt_status_t take_snapshot(bt_scrape_t *scrape)
{
    const bt_frontend_t *front = scrape->door->front;
    bt_metrics_view_t views[BT_DOOR_MAX_MODELS];
    uint32_t n = 0;
    bt_status_t status = view_models(&front->models, views, &n);

    if (status == BT_OK) {
        status = bt_metrics_snapshot_create(front->metrics, views, n,
                                            &scrape->snapshot);
    }
    for (uint32_t i = 0; i < n; i++) {
        bt_core_view_fini(&views[i]);
    }
    scrape->process = (bt_metrics_process_t){
        .cpu = front->config->cpu_metrics ? &scrape->cpu : NULL,
    };
    bt_door_read_use(scrape->door, &scrape->process);
    return status;
}

static void begin(bt_scrape_t *scrape)
{
    if (take_snapshot(scrape) != BT_OK) {
        fail_all(&scrape->asked, "out of memory for this answer");
        return;
    }
    while (!bt_list_empty(&scrape->asked)) {
        bt_list_push_back(&scrape->readers, &take(&scrape->asked)->waits);
    }
    scrape->is_under_way = true;
    scrape->job.run = write_page;
    scrape->job.done = answer;
    bt_strbuf_init(&scrape->page, BT_ANSWER_LIMIT);
    /* It is one at a time: nobody waits long behind it, and it does not wait
     * behind a crowd of bodies. */
    bt_pool_post(scrape->door->front->pool, &scrape->job, BT_POOL_FIRST);
}

void bt_scrape_ask(bt_scrape_t *scrape, bt_visit_t *visit)
{
    bt_list_push_back(&scrape->asked, &visit->waits);
    if (!scrape->is_under_way) {
        begin(scrape);
    }
}

void bt_scrape_init(bt_scrape_t *scrape, bt_door_t *door)
{
    *scrape = (bt_scrape_t){.door = door};
    bt_list_init(&scrape->asked);
    bt_list_init(&scrape->readers);
}

void bt_scrape_fini(bt_scrape_t *scrape)
{
    bt_metrics_snapshot_destroy(scrape->snapshot);
    bt_strbuf_fini(&scrape->page);
    *scrape = (bt_scrape_t){0};
}
