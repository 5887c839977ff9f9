/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of tenants. */
#include <stdio.h>
#include <string.h>

#include "router/observe/metrics_priv.h"

#define OTHER "other"

bt_tenant_metrics_t *bt_router_metrics_tenant(bt_router_metrics_t *m,
                                              const char *name)
{
    bt_tenant_metrics_t *tm = m->tenants;

    for (uint32_t i = 0; i < m->n_tenants; i++, tm++) {
        if (strcmp(tm->name, name) == 0) {
            return tm;
        }
    }
    if (m->n_tenants > BT_METRICS_MAX_TENANTS) {
        return &m->tenants[BT_METRICS_MAX_TENANTS];
    }
    if (m->n_tenants == BT_METRICS_MAX_TENANTS) {
        for (uint32_t i = 0; i < m->n_tenants; i++) { /* it may be taken */
            if (strcmp(m->tenants[i].name, OTHER) == 0) {
                return &m->tenants[i];
            }
        }
        name = OTHER;
    }
    BT_ASSERT(strlen(name) < sizeof(tm->name)); /* has no quotes, either */
    m->n_tenants++;
    snprintf(tm->name, sizeof(tm->name), "%s", name);
    snprintf(tm->labels, sizeof(tm->labels), "tenant=\"%s\"", tm->name);
    return tm;
}

static void add(bt_tenant_metrics_t *tm, uint32_t cell, double value)
{
    if (tm != NULL) {
        tm->cells[cell] += value;
    }
}

void bt_tenant_metrics_prompt(bt_tenant_metrics_t *tm, uint32_t n_tokens)
{
    add(tm, BT_TC_REQUESTS, 1);
    add(tm, BT_TC_PROMPT_TOKENS, n_tokens);
}

void bt_tenant_metrics_output(bt_tenant_metrics_t *tm, uint32_t n_tokens)
{
    add(tm, BT_TC_GENERATION_TOKENS, n_tokens);
}

void bt_tenant_metrics_refused(bt_tenant_metrics_t *tm,
                               bt_tenant_refusal_t cause)
{
    add(tm, BT_TC_REFUSED + (uint32_t)cause, 1);
}

bt_tenant_totals_t bt_tenant_metrics_totals(const bt_tenant_metrics_t *tm)
{
    bt_tenant_totals_t totals = {0};

    if (tm != NULL) {
        totals.prompt_tokens = (uint64_t)tm->cells[BT_TC_PROMPT_TOKENS];
        totals.output_tokens = (uint64_t)tm->cells[BT_TC_GENERATION_TOKENS];
        for (uint32_t i = 0; i < BT_TENANT_N_REFUSALS; i++) {
            totals.refused += (uint64_t)tm->cells[BT_TC_REFUSED + i];
        }
    }
    return totals;
}

void bt_tenant_metrics_running(bt_tenant_metrics_t *tm, int32_t change)
{
    add(tm, BT_TC_RUNNING, change);
}

void bt_router_metrics_unauthorized(bt_router_metrics_t *m)
{
    m->cells[BT_PC_UNAUTHORIZED] += 1;
}
