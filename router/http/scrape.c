/* SPDX-License-Identifier: Apache-2.0 */
#include "router/http/scrape.h"

#include "router/http/door_priv.h"

static bt_scrape_t *scrape_of(bt_pooled_page_t *page)
{
    return BT_CONTAINER_OF(page, bt_scrape_t, page);
}

static void write_page(bt_pooled_page_t *page, bt_strbuf_t *out)
{
    bt_scrape_t *scrape = scrape_of(page);

    bt_metrics_process_read(&scrape->process);
    bt_metrics_snapshot_render(scrape->snapshot, &scrape->process, out);
}

static void drop(bt_pooled_page_t *page)
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
        .write = write_page,
        .drop = drop,
    };

    *scrape = (bt_scrape_t){0};
    bt_pooled_page_init(&scrape->page, &ops, door);
}
