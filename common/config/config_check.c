/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of the options, the first or all; and the effective values with
 * their sources. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/config/config_options.h"

#define TEXT_BYTES  1024
#define VALUE_BYTES 16384
#define WHERE_BYTES 8192

/* ---- errors and notes ---- */

static void keep(bt_config_findings_t *findings, bool is_error,
                 const char *text)
{
    bt_config_finding_t *const list = bt_realloc_array(
        findings->list, (size_t)findings->n + 1, sizeof(*list));

    if (list == NULL) {
        findings->are_cut = true;
        return;
    }
    findings->list = list;
    list[findings->n] =
        (bt_config_finding_t){.is_error = is_error, .text = bt_strdup(text)};
    if (list[findings->n].text == NULL) {
        findings->are_cut = true;
        return;
    }
    findings->n++;
}

/* Kept, if all are collected; else printed. */
__attribute__((format(printf, 3, 0))) static void
tell(const bt_config_store_t *store, bool is_error, const char *fmt,
     va_list args)
{
    char text[TEXT_BYTES];

    vsnprintf(text, sizeof(text), fmt, args);
    if (store->findings != NULL) {
        keep(store->findings, is_error, text);
    } else {
        fprintf(stderr, "%s: %s%s\n", bt_config_program_name(store->program),
                is_error ? "" : "note: ", text);
    }
}

void bt_config_complain(const bt_config_store_t *store, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    tell(store, true, fmt, args);
    va_end(args);
}

void bt_config_note(const bt_config_store_t *store, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    tell(store, false, fmt, args);
    va_end(args);
}

bt_status_t bt_config_log_findings(const bt_config_store_t *store)
{
    const bt_config_finding_t *finding;
    bt_status_t status = BT_OK;

    for (uint32_t i = 0; (finding = bt_config_finding(store, i)) != NULL; i++) {
        if (finding->is_error) {
            BT_LOG_ERROR("%s", finding->text);
            status = BT_ERR_INVALID_PARAM;
        }
    }
    return status;
}

bt_status_t bt_config_go_on(const bt_config_store_t *store, bt_status_t status)
{
    if ((store->findings == NULL) || (status != BT_ERR_INVALID_PARAM)) {
        return status;
    }
    return store->findings->are_cut ? BT_ERR_NO_MEMORY : BT_OK;
}

void bt_config_findings_destroy(bt_config_findings_t *findings)
{
    if (findings != NULL) {
        for (uint32_t i = 0; i < findings->n; i++) {
            bt_free(findings->list[i].text);
        }
        bt_free(findings->list);
        bt_free(findings);
    }
}

const bt_config_finding_t *bt_config_finding(const bt_config_store_t *store,
                                             uint32_t i)
{
    return ((store->findings != NULL) && (i < store->findings->n))
               ? &store->findings->list[i]
               : NULL;
}

/* ---- effective values ---- */

static const char *source_name(bt_config_source_t source)
{
    switch (source) {
    case BT_CONFIG_DEFAULT:
        break;
    case BT_CONFIG_REPOSITORY:
        return "model repository";
    case BT_CONFIG_FILE:
        return "file";
    case BT_CONFIG_ENVIRONMENT:
        return "environment";
    case BT_CONFIG_COMMAND_LINE:
        return "command line";
    }
    return "default";
}

/* Omits the key's name behind a position in a file: it is printed already. */
static void print_where(const char *where, bt_strbuf_t *out)
{
    const char *last = NULL;

    if (where == NULL) {
        return;
    }
    for (const char *at = where; (at = strstr(at, ": ")) != NULL; at += 2) {
        last = at;
    }
    if ((last != NULL) &&
        (bt_config_option_find(last + 2, strlen(last + 2)) != NULL)) {
        bt_strbuf_append(out, where, (size_t)(last - where));
    } else {
        bt_strbuf_puts(out, where);
    }
}

/* Hides a name and a password that a user put into a URL from others who may
 * see the options. */
static void hide_user(bt_strbuf_t *value)
{
    char *const scheme = (value->len > 0) ? strstr(value->data, "://") : NULL;
    char *at;
    size_t n;

    if (scheme == NULL) {
        return;
    }
    at = memchr(scheme + 3, '@', strcspn(scheme + 3, "/?#"));
    if (at == NULL) {
        return;
    }
    n = (size_t)(at - (scheme + 3));
    memset(scheme + 3, '*', n);
}

bool bt_config_next_effect(const bt_config_store_t *store, uint32_t *at_io,
                           bt_config_effect_t *effect_p)
{
    const bt_config_t *const c = &store->config;
    const bt_option_t *option = &bt_config_options[0]; /* --model */
    const char *where = NULL;
    uint32_t i = *at_io;

    BT_ASSERT(option->type == BT_OPTION_MODELS);
    if (i >= c->n_models) { /* behind the models */
        i = i - c->n_models + ((c->n_models > 0) ? 1 : 0);
        while ((i < BT_CONFIG_N_OPTIONS) &&
               ((bt_config_options[i].programs & store->program) == 0)) {
            i++;
            ++*at_io;
        }
        if (i >= BT_CONFIG_N_OPTIONS) {
            return false;
        }
        option = &bt_config_options[i];
    }
    ++*at_io;
    effect_p->name = option->name;
    effect_p->source = source_name(store->sources[option - bt_config_options]);
    bt_strbuf_init(&effect_p->value, VALUE_BYTES);
    bt_strbuf_init(&effect_p->where, WHERE_BYTES);
    if ((option->type == BT_OPTION_MODELS) && (c->n_models > 0)) {
        bt_config_print_model(c->models[i].name, c->models[i].path,
                              &effect_p->value);
        where = store->model_wheres[i];
    } else {
        bt_config_option_print(c, option, &effect_p->value);
        hide_user(&effect_p->value);
        where = store->wheres[option - bt_config_options];
    }
    print_where(where, &effect_p->where);
    return true;
}
