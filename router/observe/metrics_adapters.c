/* SPDX-License-Identifier: Apache-2.0 */
/* Series of LoRA adapters, which come and go while their model's stay. */
#include <string.h>

#include "common/base/alloc.h"
#include "router/observe/metrics_priv.h"

#define LABEL_BYTES    (16u << 10) /* of one series */
#define OTHER_ADAPTERS "other"

static bt_adapter_metrics_t *find(const bt_model_metrics_t *mm,
                                  const char *name)
{
    BT_LIST_FOR_EACH_ENTRY(bt_adapter_metrics_t, am, &mm->adapters, link) {
        if (strcmp(am->name, name) == 0) {
            return am;
        }
    }
    return NULL;
}

static void free_adapter(bt_adapter_metrics_t *am)
{
    bt_strbuf_fini(&am->labels);
    bt_free(am->name);
    bt_free(am);
}

/* @return NULL: no memory */
static bt_adapter_metrics_t *make(bt_model_metrics_t *mm, const char *name)
{
    bt_adapter_metrics_t *am = bt_calloc(1, sizeof(*am));

    if (am == NULL) {
        return NULL;
    }
    bt_strbuf_init(&am->labels, LABEL_BYTES);
    bt_strbuf_puts(&am->labels, mm->labels.data);
    bt_metrics_put_label(&am->labels, "adapter", name);
    am->name = bt_strdup(name);
    if ((am->name == NULL) || (bt_strbuf_status(&am->labels) != BT_OK)) {
        free_adapter(am);
        return NULL;
    }
    bt_list_push_back(&mm->adapters, &am->link);
    mm->n_adapters++;
    return am;
}

bt_adapter_metrics_t *bt_router_metrics_adapter(bt_model_metrics_t *mm,
                                                const char *name, bool is_sent)
{
    bt_adapter_metrics_t *am = (mm != NULL) ? find(mm, name) : NULL;

    if ((am != NULL) || (mm == NULL)) {
        return am;
    }
    if ((mm->n_adapters < BT_METRICS_MAX_ADAPTERS) &&
        (!is_sent || (mm->n_sent_adapters < BT_METRICS_MAX_SENT_ADAPTERS))) {
        am = make(mm, name);
        mm->n_sent_adapters += (is_sent && (am != NULL)) ? 1 : 0;
        return am;
    }
    am = find(mm, OTHER_ADAPTERS); /* it may be an adapter's name */
    return (am != NULL) ? am : make(mm, OTHER_ADAPTERS);
}

void bt_adapter_metrics_add(bt_adapter_metrics_t *am, bt_adapter_cell_t cell,
                            double value)
{
    if (am != NULL) {
        am->cells[cell] += value;
    }
}

void bt_router_metrics_adapter_load(bt_model_metrics_t *mm, bool ok)
{
    if (mm != NULL) {
        mm->values.cells[ok ? BT_MC_ADAPTERS_LOADED : BT_MC_ADAPTERS_FAILED]++;
    }
}

void bt_metrics_adapters_free(bt_model_metrics_t *mm)
{
    while (!bt_list_empty(&mm->adapters)) {
        bt_adapter_metrics_t *const am =
            BT_CONTAINER_OF(mm->adapters.next, bt_adapter_metrics_t, link);

        bt_list_remove(&am->link);
        free_adapter(am);
    }
}
