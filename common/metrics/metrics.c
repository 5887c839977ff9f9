/* SPDX-License-Identifier: Apache-2.0 */
#include "common/metrics/metrics.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "common/base/decimal.h"
#include "common/base/status.h"
#include "common/base/text.h"

/* Up to here every whole number is an exact double. */
#define WHOLE_MAX 9007199254740992.0
/* Part of a label's value that is kept; names are far shorter. */
#define VALUE_BYTES 1024

const char *bt_metric_type_name(bt_metric_type_t type)
{
    static const char *const names[] = {"counter", "gauge", "histogram"};

    return names[type];
}

/* ---- histograms ---- */

void bt_histogram_init(bt_histogram_t *hist, const double *bounds,
                       uint32_t n_bounds)
{
    BT_ASSERT(n_bounds <= BT_HISTOGRAM_MAX_BOUNDS);
    memset(hist, 0, sizeof(*hist));
    hist->bounds = bounds;
    hist->n_bounds = n_bounds;
}

void bt_histogram_observe(bt_histogram_t *hist, double value)
{
    uint32_t i = 0;

    if (isnan(value)) {
        return;
    }
    while ((i < hist->n_bounds) && (value > hist->bounds[i])) {
        i++;
    }
    hist->counts[i]++;
    hist->sum += value;
}

/* ---- text ---- */

static void put_number(bt_strbuf_t *out, double value)
{
    char text[BT_DECIMAL_TEXT_BYTES];

    if (isnan(value)) {
        bt_strbuf_puts(out, "NaN");
    } else if (isinf(value)) {
        bt_strbuf_puts(out, (value > 0) ? "+Inf" : "-Inf");
    } else if ((fabs(value) <= WHOLE_MAX) && (value == floor(value))) {
        /* Most of a page: printf would take longer than all the rest. */
        bt_strbuf_puts(out, (value < 0) ? "-" : "");
        bt_strbuf_put_u64(out, (uint64_t)fabs(value));
    } else {
        bt_strbuf_append(out, text, bt_double_text(value, text));
    }
}

/* In label values a quote is escaped too; in help texts it is not. */
static void put_escaped(bt_strbuf_t *out, const char *text, size_t bytes,
                        bool quotes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '\\') {
            bt_strbuf_append(out, "\\\\", 2);
        } else if (text[i] == '\n') {
            bt_strbuf_append(out, "\\n", 2);
        } else if (quotes && (text[i] == '"')) {
            bt_strbuf_append(out, "\\\"", 2);
        } else {
            bt_strbuf_append(out, text + i, 1);
        }
    }
}

void bt_metrics_put_label(bt_strbuf_t *labels, const char *key,
                          const char *value)
{
    size_t left = strnlen(value, VALUE_BYTES);

    if (labels->len > 0) {
        bt_strbuf_append(labels, ",", 1);
    }
    bt_strbuf_puts(labels, key);
    bt_strbuf_append(labels, "=\"", 2);
    while (left > 0) {
        const int n = bt_utf8_scan((const uint8_t *)value, left);
        const size_t used = (n > 0) ? (size_t)n : (n < 0) ? (size_t)-n : left;

        if (n > 0) {
            put_escaped(labels, value, used, true);
        } else {
            bt_strbuf_puts(labels, "\xEF\xBF\xBD");
        }
        value += used;
        left -= used;
    }
    bt_strbuf_append(labels, "\"", 1);
}

void bt_metrics_put_family(bt_strbuf_t *out, bt_metric_type_t type,
                           const char *name, const char *help)
{
    bt_strbuf_printf(out, "# HELP %s ", name);
    put_escaped(out, help, strlen(help), false);
    bt_strbuf_printf(out, "\n# TYPE %s %s\n", name, bt_metric_type_name(type));
}

/* `name_suffix{labels} `: the part before the value. */
static void put_name(bt_strbuf_t *out, const char *name, const char *suffix,
                     const char *labels)
{
    bt_strbuf_puts(out, name);
    bt_strbuf_puts(out, suffix);
    if (labels[0] != '\0') {
        bt_strbuf_append(out, "{", 1);
        bt_strbuf_puts(out, labels);
        bt_strbuf_append(out, "}", 1);
    }
    bt_strbuf_append(out, " ", 1);
}

void bt_metrics_put_sample(bt_strbuf_t *out, const char *name,
                           const char *labels, double value)
{
    put_name(out, name, "", labels);
    put_number(out, value);
    bt_strbuf_append(out, "\n", 1);
}

void bt_metrics_put_histogram(bt_strbuf_t *out, const char *name,
                              const char *labels, const bt_histogram_t *hist)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i <= hist->n_bounds; i++) {
        count += hist->counts[i];
        bt_strbuf_printf(out, "%s_bucket{%s%sle=\"", name, labels,
                         (labels[0] == '\0') ? "" : ",");
        put_number(out, (i < hist->n_bounds) ? hist->bounds[i] : INFINITY);
        bt_strbuf_append(out, "\"} ", 3);
        bt_strbuf_put_u64(out, count);
        bt_strbuf_append(out, "\n", 1);
    }
    put_name(out, name, "_sum", labels);
    put_number(out, hist->sum);
    bt_strbuf_append(out, "\n", 1);
    put_name(out, name, "_count", labels);
    bt_strbuf_put_u64(out, count);
    bt_strbuf_append(out, "\n", 1);
}
