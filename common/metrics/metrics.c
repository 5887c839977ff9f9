/* SPDX-License-Identifier: Apache-2.0 */
#include "common/metrics/metrics.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "common/metrics/metrics_internal.h"

static bool is_name_char(char c, bool first)
{
    return ((c >= 'a') && (c <= 'z')) || ((c >= 'A') && (c <= 'Z')) ||
           (c == '_') || (!first && (c >= '0') && (c <= '9'));
}

static bool is_family_name(const char *name)
{
    if (name[0] == '\0') {
        return false;
    }
    for (const char *c = name; *c != '\0'; c++) {
        if ((*c != ':') && !is_name_char(*c, c == name)) {
            return false;
        }
    }
    return true;
}

/* After `name="value"`, or NULL when that does not stand at text. */
static const char *skip_label(const char *text, bool is_histogram)
{
    const char *c = text;

    while (is_name_char(*c, c == text)) {
        c++;
    }
    if ((c == text) || (c[0] != '=') || (c[1] != '"') ||
        (is_histogram && (c - text == 2) && (memcmp(text, "le", 2) == 0))) {
        return NULL;
    }
    for (c += 2; *c != '"'; c++) {
        if ((*c == '\0') || (*c == '\n')) {
            return NULL;
        }
        if (*c == '\\') {
            c++;
            if ((*c != '\\') && (*c != '"') && (*c != 'n')) {
                return NULL;
            }
        }
    }
    return c + 1;
}

static bool are_labels(const char *labels, bool is_histogram)
{
    const char *c = labels;

    if (*c == '\0') {
        return true;
    }
    for (;;) {
        c = skip_label(c, is_histogram);
        if (c == NULL) {
            return false;
        }
        if (*c == '\0') {
            return true;
        }
        if (*c != ',') {
            return false;
        }
        c++;
    }
}

static bool are_buckets(bt_metric_type_t type, const double *buckets,
                        uint32_t n_buckets)
{
    if ((type != BT_METRIC_HISTOGRAM) && (n_buckets > 0)) {
        return false;
    }
    for (uint32_t i = 0; i < n_buckets; i++) {
        if (!isfinite(buckets[i]) ||
            ((i > 0) && !(buckets[i] > buckets[i - 1]))) {
            return false;
        }
    }
    return true;
}

bt_status_t bt_metrics_create(bt_metrics_t **metrics_p)
{
    bt_metrics_t *const metrics = bt_calloc(1, sizeof(*metrics));

    if (metrics == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    bt_list_init(&metrics->families);
    *metrics_p = metrics;
    return BT_OK;
}

static void metric_destroy(bt_metric_t *metric)
{
    bt_free(metric->counts);
    bt_free(metric->labels);
    bt_free(metric);
}

static void family_destroy(bt_metric_family_t *family)
{
    bt_list_t *pos;
    bt_list_t *tmp;

    BT_LIST_FOR_EACH(pos, tmp, &family->series)
    {
        metric_destroy(BT_CONTAINER_OF(pos, bt_metric_t, link));
    }
    bt_free(family->buckets);
    bt_free(family->help);
    bt_free(family->name);
    bt_free(family);
}

void bt_metrics_destroy(bt_metrics_t *metrics)
{
    bt_list_t *pos;
    bt_list_t *tmp;

    if (metrics == NULL) {
        return;
    }
    BT_LIST_FOR_EACH(pos, tmp, &metrics->families)
    {
        family_destroy(BT_CONTAINER_OF(pos, bt_metric_family_t, link));
    }
    bt_free(metrics);
}

bt_status_t bt_metrics_family(bt_metrics_t *metrics, bt_metric_type_t type,
                              const char *name, const char *help,
                              const double *buckets, uint32_t n_buckets,
                              bt_metric_family_t **family_p)
{
    bt_metric_family_t *family;
    bt_list_t *pos;
    bt_list_t *tmp;

    if (!is_family_name(name) || !are_buckets(type, buckets, n_buckets)) {
        return BT_ERR_INVALID_PARAM;
    }
    BT_LIST_FOR_EACH(pos, tmp, &metrics->families)
    {
        if (strcmp(BT_CONTAINER_OF(pos, bt_metric_family_t, link)->name,
                   name) == 0) {
            return BT_ERR_EXISTS;
        }
    }

    family = bt_calloc(1, sizeof(*family));
    if (family == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    bt_list_init(&family->series);
    family->type = type;
    family->n_buckets = n_buckets;
    family->name = bt_strdup(name);
    family->help = bt_strdup(help);
    if ((family->name == NULL) || (family->help == NULL)) {
        goto err_family;
    }
    if (n_buckets > 0) {
        family->buckets = bt_memdup(buckets, n_buckets * sizeof(*buckets));
        if (family->buckets == NULL) {
            goto err_family;
        }
    }
    bt_list_push_back(&metrics->families, &family->link);
    *family_p = family;
    return BT_OK;

err_family:
    family_destroy(family);
    return BT_ERR_NO_MEMORY;
}

bt_status_t bt_metrics_series(bt_metric_family_t *family, const char *labels,
                              bt_metric_t **metric_p)
{
    const bool is_histogram = (family->type == BT_METRIC_HISTOGRAM);
    bt_metric_t *metric;
    bt_list_t *pos;
    bt_list_t *tmp;

    if (!are_labels(labels, is_histogram)) {
        return BT_ERR_INVALID_PARAM;
    }
    BT_LIST_FOR_EACH(pos, tmp, &family->series)
    {
        if (strcmp(BT_CONTAINER_OF(pos, bt_metric_t, link)->labels, labels) ==
            0) {
            return BT_ERR_EXISTS;
        }
    }

    metric = bt_calloc(1, sizeof(*metric));
    if (metric == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    metric->family = family;
    metric->labels = bt_strdup(labels);
    if (metric->labels == NULL) {
        goto err_metric;
    }
    if (is_histogram) {
        metric->counts =
            bt_calloc((size_t)family->n_buckets + 1, sizeof(*metric->counts));
        if (metric->counts == NULL) {
            goto err_metric;
        }
    }
    bt_list_push_back(&family->series, &metric->link);
    *metric_p = metric;
    return BT_OK;

err_metric:
    metric_destroy(metric);
    return BT_ERR_NO_MEMORY;
}

void bt_metric_set(bt_metric_t *metric, double value)
{
    BT_ASSERT(metric->family->type == BT_METRIC_GAUGE);
    metric->value = value;
}

void bt_metric_add(bt_metric_t *metric, double value)
{
    BT_ASSERT(metric->family->type != BT_METRIC_HISTOGRAM);
    if ((metric->family->type == BT_METRIC_COUNTER) &&
        (!isfinite(value) || (value < 0))) {
        return;
    }
    metric->value += value;
}

void bt_metric_observe(bt_metric_t *metric, double value)
{
    const bt_metric_family_t *const family = metric->family;
    uint32_t i = 0;

    BT_ASSERT(family->type == BT_METRIC_HISTOGRAM);
    if (isnan(value)) {
        return;
    }
    while ((i < family->n_buckets) && (value > family->buckets[i])) {
        i++;
    }
    metric->counts[i]++;
    metric->value += value;
}

double bt_metric_value(const bt_metric_t *metric)
{
    return metric->value;
}

uint64_t bt_metric_count(const bt_metric_t *metric)
{
    uint64_t count = 0;

    if (metric->counts != NULL) {
        for (uint32_t i = 0; i <= metric->family->n_buckets; i++) {
            count += metric->counts[i];
        }
    }
    return count;
}
