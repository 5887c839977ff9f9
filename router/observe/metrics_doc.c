/* SPDX-License-Identifier: Apache-2.0 */
/* The table as Markdown. */
#include <string.h>

#include "router/observe/metrics.h"

/* Labels that "@" stands for. */
static const char *const scope_labels[BT_N_SCOPES] = {
    [BT_SCOPE_PROCESS] = "",
    [BT_SCOPE_LOOP] = "",
    [BT_SCOPE_BUILD] = "`version`, `wire_protocol`",
    [BT_SCOPE_MODEL] = "`model`",
    [BT_SCOPE_SEED] = "`model`",
    [BT_SCOPE_INFERENCE] = "`model`",
    [BT_SCOPE_WORKER] = "`worker`, `role`, `model`",
    [BT_SCOPE_ROUTE] = "`route`, `method`, `code`",
    [BT_SCOPE_EXPECTED] = "`role`, `model`",
    [BT_SCOPE_RESTARTS] = "`worker`",
    [BT_SCOPE_TENANT] = "`tenant`",
    [BT_SCOPE_ADAPTER] = "`model`, `adapter`",
    [BT_SCOPE_CUT] = "`prefill`, `decode`, `at`, `reason`, `model`",
};

/* ---- labels ---- */

typedef struct label {
    const char *name; /* NULL: the scope's labels, "@" */
    size_t name_bytes;
    const char *value;
    size_t value_bytes;
} label_t;

/* @return false at the end */
static bool next_label(const char **at_p, label_t *label)
{
    const char *at = *at_p + strspn(*at_p, ",");

    if (*at == '\0') {
        return false;
    }
    label->name = NULL;
    if (*at == '@') {
        *at_p = at + 1;
        return true;
    }
    label->name = at;
    label->name_bytes = strcspn(at, "=");
    label->value = at + label->name_bytes + 2;
    label->value_bytes = strcspn(label->value, "\"");
    *at_p = label->value + label->value_bytes + 1;
    return true;
}

/* Finds a label's value in series number @a i. */
static bool find_label(const bt_family_def_t *family, uint32_t i,
                       const label_t *wanted, label_t *found)
{
    const char *at = family->series[i].labels;

    while (next_label(&at, found)) {
        if ((found->name != NULL) &&
            (found->name_bytes == wanted->name_bytes) &&
            (memcmp(found->name, wanted->name, found->name_bytes) == 0)) {
            return true;
        }
    }
    return false;
}

/* Series with equal values are adjacent or repeat the whole list. */
static bool is_repeated(const bt_family_def_t *family, uint32_t i,
                        const label_t *wanted, const label_t *value)
{
    label_t other;

    while (i-- > 0) {
        if (find_label(family, i, wanted, &other) &&
            (other.value_bytes == value->value_bytes) &&
            (memcmp(other.value, value->value, value->value_bytes) == 0)) {
            return true;
        }
    }
    return false;
}

/* Writes a label that the table fixes, with all its values. */
static void put_values(const bt_family_def_t *family, const label_t *wanted,
                       bt_strbuf_t *out)
{
    const char *before = "";
    label_t label;

    bt_strbuf_printf(out, "`%.*s` = ", (int)wanted->name_bytes, wanted->name);
    for (uint32_t i = 0; i < family->n_series; i++) {
        if (find_label(family, i, wanted, &label) &&
            !is_repeated(family, i, wanted, &label)) {
            bt_strbuf_printf(out, "%s%.*s", before, (int)label.value_bytes,
                             label.value);
            before = ", ";
        }
    }
}

/* In the order of the first series. */
static void put_labels(const bt_family_def_t *family, bt_strbuf_t *out)
{
    const char *at = family->series[0].labels;
    const char *before = "";
    label_t label;

    while (next_label(&at, &label)) {
        bt_strbuf_puts(out, before);
        before = "; ";
        if (label.name == NULL) {
            bt_strbuf_puts(out, scope_labels[family->series[0].scope]);
        } else {
            put_values(family, &label, out);
        }
    }
}

/* ---- sections ---- */

/* Writes the families whose names begin with @a prefix. */
static void put_section(const char *title, const char *prefix, bt_strbuf_t *out)
{
    bt_strbuf_printf(out,
                     "\n### %s\n\n| Name | Type | Labels | What |\n"
                     "|---|---|---|---|\n",
                     title);
    for (uint32_t i = 0; i < bt_metrics_n_families; i++) {
        const bt_family_def_t *family = &bt_metrics_families[i];

        if (strncmp(family->name, prefix, strlen(prefix)) == 0) {
            bt_strbuf_printf(out, "| `%s` | %s | ", family->name,
                             bt_metric_type_name(family->type));
            put_labels(family, out);
            bt_strbuf_printf(out, " | %s |\n", family->help);
        }
    }
}

void bt_router_metrics_print_doc(bt_strbuf_t *out)
{
    put_section("Baton's own", "baton_", out);
    put_section("The router's process", "process_", out);
    put_section("As Triton's TensorRT-LLM backend prints them", "nv_", out);
}
