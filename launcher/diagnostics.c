/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/diagnostics.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"

static const char *const names[] = {
    [BT_FINDING_NOTE] = "note",
    [BT_FINDING_WARNING] = "warning",
    [BT_FINDING_PROBLEM] = "problem",
};

static void free_texts(const bt_diagnostic_t *finding)
{
    bt_free(finding->about);
    bt_free(finding->text);
    bt_free(finding->fix);
}

void bt_diagnostics_add(bt_diagnostics_t *findings, bt_diagnostic_level_t level,
                        const char *about, const char *text, const char *fix)
{
    bt_diagnostic_t finding;
    bt_diagnostic_t *list;

    for (uint32_t i = 0; i < findings->n; i++) {
        if (strcmp(findings->list[i].text, text) == 0) {
            return;
        }
    }
    list = bt_realloc_array(findings->list, (size_t)findings->n + 1,
                            sizeof(*list));
    if (list == NULL) {
        findings->status = BT_ERR_NO_MEMORY;
        return;
    }
    findings->list = list;
    finding = (bt_diagnostic_t){.level = level,
                                .about = bt_strdup(about),
                                .text = bt_strdup(text),
                                .fix = bt_strdup(fix)};
    if ((finding.about == NULL) || (finding.text == NULL) ||
        (finding.fix == NULL)) {
        free_texts(&finding);
        findings->status = BT_ERR_NO_MEMORY;
        return;
    }
    list[findings->n++] = finding;
}

void bt_diagnostics_fini(bt_diagnostics_t *findings)
{
    for (uint32_t i = 0; i < findings->n; i++) {
        free_texts(&findings->list[i]);
    }
    bt_free(findings->list);
    *findings = (bt_diagnostics_t){0};
}

uint32_t bt_diagnostics_count(const bt_diagnostics_t *findings,
                              bt_diagnostic_level_t level)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < findings->n; i++) {
        n += (findings->list[i].level == level) ? 1 : 0;
    }
    return n;
}

void bt_diagnostics_print(const bt_diagnostics_t *findings, bt_strbuf_t *out)
{
    const uint32_t n_problems =
        bt_diagnostics_count(findings, BT_FINDING_PROBLEM);
    const uint32_t n_warnings =
        bt_diagnostics_count(findings, BT_FINDING_WARNING);

    for (uint32_t i = 0; i < findings->n; i++) {
        const bt_diagnostic_t *const finding = &findings->list[i];

        bt_strbuf_printf(out, "%-8s %s: %s\n", names[finding->level],
                         finding->about, finding->text);
        if (finding->fix[0] != '\0') {
            bt_strbuf_printf(out, "%-8s fix: %s\n", "", finding->fix);
        }
    }
    bt_strbuf_printf(out, "%u problem%s, %u warning%s\n", n_problems,
                     (n_problems == 1) ? "" : "s", n_warnings,
                     (n_warnings == 1) ? "" : "s");
}

void bt_diagnostics_json(const bt_diagnostics_t *findings, bt_json_t *json)
{
    bt_json_array(json, "findings");
    for (uint32_t i = 0; i < findings->n; i++) {
        const bt_diagnostic_t *const finding = &findings->list[i];

        bt_json_object(json, NULL);
        bt_json_str(json, "level", names[finding->level]);
        bt_json_str(json, "about", finding->about);
        bt_json_str(json, "text", finding->text);
        bt_json_str(json, "fix",
                    (finding->fix[0] != '\0') ? finding->fix : NULL);
        bt_json_end_object(json);
    }
    bt_json_end_array(json);
}
