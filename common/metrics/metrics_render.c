/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/metrics/metrics_internal.h"

#define NUMBER_BYTES 40
/* Up to here every whole number is a double of its own. */
#define WHOLE_MAX 9007199254740992.0

static const char *const type_names[] = {"counter", "gauge", "histogram"};

static void print_number(double value, bt_strbuf_t *out)
{
    char text[NUMBER_BYTES];

    if (isnan(value)) {
        bt_strbuf_puts(out, "NaN");
    } else if (isinf(value)) {
        bt_strbuf_puts(out, (value > 0) ? "+Inf" : "-Inf");
    } else if ((fabs(value) <= WHOLE_MAX) && (value == floor(value))) {
        bt_strbuf_printf(out, "%" PRId64, (int64_t)value);
    } else {
        /* 17 digits always read back equal; fewer mostly do, and are what a
         * person would write. */
        for (int digits = 6; digits <= 17; digits++) {
            snprintf(text, sizeof(text), "%.*g", digits, value);
            if (strtod(text, NULL) == value) {
                break;
            }
        }
        bt_strbuf_puts(out, text);
    }
}

/* In label values a quote is escaped too; in help texts it is not. */
static void print_escaped(const char *text, bool quotes, bt_strbuf_t *out)
{
    for (; *text != '\0'; text++) {
        if (*text == '\\') {
            bt_strbuf_puts(out, "\\\\");
        } else if (*text == '\n') {
            bt_strbuf_puts(out, "\\n");
        } else if (quotes && (*text == '"')) {
            bt_strbuf_puts(out, "\\\"");
        } else {
            bt_strbuf_append(out, text, 1);
        }
    }
}

void bt_metrics_escape(const char *value, bt_strbuf_t *out)
{
    print_escaped(value, true, out);
}

/* `name_suffix{labels} `: the part before the value. */
static void print_series_name(const bt_metric_t *metric, const char *suffix,
                              bt_strbuf_t *out)
{
    bt_strbuf_printf(out, "%s%s", metric->family->name, suffix);
    if (metric->labels[0] != '\0') {
        bt_strbuf_printf(out, "{%s}", metric->labels);
    }
    bt_strbuf_puts(out, " ");
}

static void print_histogram(const bt_metric_t *metric, bt_strbuf_t *out)
{
    const bt_metric_family_t *const family = metric->family;
    uint64_t count = 0;

    for (uint32_t i = 0; i <= family->n_buckets; i++) {
        count += metric->counts[i];
        bt_strbuf_printf(out, "%s_bucket{%s%sle=\"", family->name,
                         metric->labels,
                         (metric->labels[0] == '\0') ? "" : ",");
        print_number((i < family->n_buckets) ? family->buckets[i] : INFINITY,
                     out);
        bt_strbuf_printf(out, "\"} %" PRIu64 "\n", count);
    }
    print_series_name(metric, "_sum", out);
    print_number(metric->value, out);
    bt_strbuf_puts(out, "\n");
    print_series_name(metric, "_count", out);
    bt_strbuf_printf(out, "%" PRIu64 "\n", count);
}

void bt_metrics_render(const bt_metrics_t *metrics, bt_strbuf_t *out)
{
    const bt_list_t *const families = &metrics->families;

    for (bt_list_t *f = families->next; f != families; f = f->next) {
        const bt_metric_family_t *const family =
            BT_CONTAINER_OF(f, bt_metric_family_t, link);

        bt_strbuf_printf(out, "# HELP %s ", family->name);
        print_escaped(family->help, false, out);
        bt_strbuf_printf(out, "\n# TYPE %s %s\n", family->name,
                         type_names[family->type]);
        for (bt_list_t *m = family->series.next; m != &family->series;
             m = m->next) {
            const bt_metric_t *const metric =
                BT_CONTAINER_OF(m, bt_metric_t, link);

            if (family->type == BT_METRIC_HISTOGRAM) {
                print_histogram(metric, out);
            } else {
                print_series_name(metric, "", out);
                print_number(metric->value, out);
                bt_strbuf_puts(out, "\n");
            }
        }
    }
}
