/* SPDX-License-Identifier: Apache-2.0 */
#include "router/http/pooled_page.h"

#include "common/base/clock.h"
#include "router/frontend/lora_tasks.h"
#include "router/http/door_priv.h"

#define ANSWERS_US 500 /* us for readers per turn of the loop */

static void begin(bt_pooled_page_t *page);

static bt_http_request_t *take(bt_list_t *list)
{
    bt_http_request_t *r =
        BT_CONTAINER_OF(list->next, bt_http_request_t, waits);

    bt_list_remove(&r->waits);
    return r;
}

static void fail_all(bt_list_t *list, const char *why)
{
    while (!bt_list_empty(list)) {
        bt_http_request_error(take(list), 503, NULL, "%s", why);
    }
}

/* ---- the pool ---- */

static void write_page(bt_pool_job_t *job)
{
    bt_pooled_page_t *page = BT_CONTAINER_OF(job, bt_pooled_page_t, job);

    page->ops->write(page, &page->text);
}

static void do_nothing(bt_pool_job_t *job)
{
    (void)job;
}

/* ---- the event loop ---- */

static void end(bt_pooled_page_t *page)
{
    bt_strbuf_fini(&page->text);
    page->is_under_way = false;
    if (!bt_list_empty(&page->asked)) {
        begin(page);
    }
}

static void answer(bt_pool_job_t *job)
{
    bt_pooled_page_t *page = BT_CONTAINER_OF(job, bt_pooled_page_t, job);
    uint64_t end_us;

    page->ops->drop(page);
    if (!job->ran) {
        fail_all(&page->readers, "the server is stopping");
    } else if (bt_strbuf_status(&page->text) != BT_OK) {
        fail_all(&page->readers, "out of memory for this answer");
    }
    end_us = bt_now_us() + ANSWERS_US;
    while (!bt_list_empty(&page->readers)) {
        bt_http_request_respond(take(&page->readers), 200, page->ops->type,
                                page->text.data, page->text.len);
        if ((bt_now_us() >= end_us) && !bt_list_empty(&page->readers)) {
            /* At least one per turn, however slow the machine. */
            job->run = do_nothing;
            bt_pool_post(page->door->front->pool, job, BT_POOL_FIRST);
            return;
        }
    }
    end(page);
}

static void begin(bt_pooled_page_t *page)
{
    if (page->ops->take(page) != BT_OK) {
        page->ops->drop(page);
        fail_all(&page->asked, "out of memory for this answer");
        return;
    }
    while (!bt_list_empty(&page->asked)) {
        bt_list_push_back(&page->readers, &take(&page->asked)->waits);
    }
    page->is_under_way = true;
    page->job.run = write_page;
    page->job.done = answer;
    bt_strbuf_init(&page->text, BT_ANSWER_LIMIT);
    /* There is only one such job at a time: it delays others little, and does
     * not wait behind many bodies. */
    bt_pool_post(page->door->front->pool, &page->job, BT_POOL_FIRST);
}

void bt_pooled_page_ask(bt_pooled_page_t *page, bt_http_request_t *r)
{
    bt_list_push_back(&page->asked, &r->waits);
    if (!page->is_under_way) {
        begin(page);
    }
}

void bt_pooled_page_init(bt_pooled_page_t *page,
                         const bt_pooled_page_ops_t *ops, bt_door_t *door)
{
    *page = (bt_pooled_page_t){.door = door, .ops = ops};
    bt_list_init(&page->asked);
    bt_list_init(&page->readers);
}

void bt_pooled_page_fini(bt_pooled_page_t *page)
{
    if (page->ops != NULL) {
        page->ops->drop(page);
        bt_strbuf_fini(&page->text);
    }
    *page = (bt_pooled_page_t){0};
}

/* ---- GET /metrics ---- */

static bt_scrape_t *scrape_of(bt_pooled_page_t *page)
{
    return BT_CONTAINER_OF(page, bt_scrape_t, page);
}

static void write_metrics(bt_pooled_page_t *page, bt_strbuf_t *out)
{
    bt_scrape_t *scrape = scrape_of(page);

    bt_metrics_process_read(&scrape->process);
    bt_metrics_snapshot_render(scrape->snapshot, &scrape->process, out);
}

static void drop_snapshot(bt_pooled_page_t *page)
{
    bt_scrape_t *scrape = scrape_of(page);

    bt_metrics_snapshot_destroy(scrape->snapshot);
    scrape->snapshot = NULL;
}

/* Creates a view of each model; n_p is the number made, also on failure. */
static bt_status_t view_models(const bt_registry_t *models,
                               bt_metrics_view_t views[BT_DOOR_MAX_MODELS],
                               uint32_t *n_p)
{
    BT_REGISTRY_FOR_EACH(served, models)
    {
        bt_metrics_view_t view = {
            .model = served->metrics,
            .n_adapters = served->n_adapters,
            .n_adapter_tasks = bt_lora_tasks_count(served),
        };

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

static bt_status_t take_snapshot(bt_pooled_page_t *page)
{
    bt_scrape_t *scrape = scrape_of(page);
    const bt_frontend_t *front = page->door->front;
    bt_metrics_view_t views[BT_DOOR_MAX_MODELS] = {{.model = NULL}};
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
    bt_door_read_use(page->door, scrape->process.cells);
    return status;
}

void bt_scrape_init(bt_scrape_t *scrape, bt_door_t *door)
{
    static const bt_pooled_page_ops_t ops = {
        .type = "text/plain; version=0.0.4; charset=utf-8",
        .take = take_snapshot,
        .write = write_metrics,
        .drop = drop_snapshot,
    };

    *scrape = (bt_scrape_t){0};
    bt_pooled_page_init(&scrape->page, &ops, door);
}
