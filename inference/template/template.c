/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/template/template.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "inference/template/chat_priv.h"
#include "inference/template/exec.h"
#include "inference/template/text.h"

/* A byte of a template can become a token and a node or two. */
#define PARSE_BYTES ((size_t)512 << 20)
#define PARSE_STEPS ((uint64_t)64 << 20)

/* A rendering: so much, and so much more for each byte of its variables. */
#define MIN_BYTES      ((size_t)32 << 20)
#define MAX_BYTES      ((size_t)1 << 30)
#define BYTES_PER_BYTE 64u
#define MIN_STEPS      ((uint64_t)4 << 20)
#define STEPS_PER_BYTE 16u

struct bt_template {
    bt_tmpl_run_t run; /* whose arenas the tree is in */
    bt_tmpl_ast_t ast;
};

static void tell(const bt_tmpl_run_t *run, char *why, size_t why_bytes)
{
    if (run->raised || (run->line == 0)) {
        snprintf(why, why_bytes, "%s", run->why);
    } else {
        snprintf(why, why_bytes, "line %u: %s", run->line, run->why);
    }
}

bt_status_t bt_template_parse(const char *source, size_t bytes, char *why,
                              size_t why_bytes, bt_template_t **tmpl_p)
{
    bt_template_t *tmpl;
    bt_status_t status;

    if (bytes > BT_TEMPLATE_MAX_BYTES) {
        snprintf(why, why_bytes, "it has more than %zu bytes",
                 BT_TEMPLATE_MAX_BYTES);
        return BT_ERR_TOO_LARGE;
    }
    tmpl = bt_calloc(1, sizeof(*tmpl));
    if (tmpl == NULL) {
        snprintf(why, why_bytes, "out of memory");
        return BT_ERR_NO_MEMORY;
    }
    bt_tmpl_run_init(&tmpl->run, PARSE_BYTES, PARSE_STEPS);
    if (!bt_tmpl_ast_parse(&tmpl->run, source, bytes, &tmpl->ast)) {
        status = tmpl->run.status;
        tell(&tmpl->run, why, why_bytes);
        bt_template_destroy(tmpl);
        return status;
    }
    *tmpl_p = tmpl;
    return BT_OK;
}

void bt_template_destroy(bt_template_t *tmpl)
{
    if (tmpl != NULL) {
        bt_tmpl_run_fini(&tmpl->run);
        bt_free(tmpl);
    }
}

/* ---- variables ---- */

static bool set_value(bt_tmpl_exec_t *x, bt_tmpl_value_t name,
                      bt_tmpl_value_t value)
{
    const bt_tmpl_value_t *id = bt_tmpl_dict_find(x->ast->names, name);

    return (id == NULL) || /* not a name of this template */
           bt_tmpl_frame_set(x->run, x->frame, (uint32_t)id->u.i, value);
}

static bool is_set(const bt_tmpl_exec_t *x, bt_tmpl_value_t name)
{
    const bt_tmpl_value_t *id = bt_tmpl_dict_find(x->ast->names, name);

    return (id != NULL) &&
           (bt_tmpl_frame_find(x->frame, (uint32_t)id->u.i) != NULL);
}

bool bt_template_has_name(const bt_template_t *tmpl, const char *name)
{
    const bt_tmpl_text_t text = {.data = name, .len = (uint32_t)strlen(name)};

    return bt_tmpl_dict_find(tmpl->ast.names, bt_tmpl_v_text(&text)) != NULL;
}

/* A name that the template does not have is named as unused. */
static bool set_members(bt_tmpl_exec_t *x, bt_tmpl_value_t members)
{
    if (members.kind != BT_V_DICT) {
        return bt_tmpl_run_fail(x->run, BT_ERR_INVALID_PARAM,
                                "the variables are no object");
    }
    for (uint32_t i = 0; i < members.u.dict->n; i++) {
        bt_tmpl_entry_t *entry = &members.u.dict->entries[i];

        entry->value.used =
            !is_set(x, entry->key) &&
            (bt_tmpl_dict_find(x->ast->names, entry->key) != NULL);
        if (entry->value.used && !set_value(x, entry->key, entry->value)) {
            return false;
        }
    }
    return true;
}

/* Value of a variable. */
typedef struct given {
    bt_tmpl_value_t value;      /* of JSON: as the client sent it */
    bt_tmpl_written_t *written; /* messages that replace others of it */
} given_t;

static bool adapt_messages(bt_tmpl_exec_t *x, const bt_template_var_t *var,
                           bt_tmpl_value_t *messages, given_t *given)
{
    if (!bt_tmpl_messages_open_arguments(x->run, *messages)) {
        return false;
    }
    if (var->forms != NULL) {
        if (!bt_tmpl_messages_adapt(x->run, *messages, var->forms,
                                    var->unused) ||
            (var->writes_tools && !bt_tmpl_messages_write_tools(
                                      x->run, messages, var->forms, var->tools,
                                      var->tools_bytes, &given->written))) {
            return false;
        }
    }
    bt_tmpl_messages_trust(*messages);
    return true;
}

static bool set_var(bt_tmpl_exec_t *x, const bt_template_var_t *var,
                    given_t *given)
{
    const bt_tmpl_text_t name = {
        .data = var->name,
        .len = (var->name != NULL) ? (uint32_t)strlen(var->name) : 0};
    const bt_tmpl_text_t *text;
    bt_tmpl_value_t value;

    if (var->kind == BT_VAR_TRUTH) {
        return set_value(x, bt_tmpl_v_text(&name), bt_tmpl_v_bool(var->truth));
    }
    if (var->kind == BT_VAR_TEXT) {
        if (!bt_utf8_valid((const uint8_t *)var->text, var->bytes)) {
            return bt_tmpl_run_fail(x->run, BT_ERR_INVALID_PARAM,
                                    "%s is not UTF-8", var->name);
        }
        text = bt_tmpl_text_make(x->run, var->text, var->bytes, false);
        return (text != NULL) &&
               set_value(x, bt_tmpl_v_text(&name), bt_tmpl_v_text(text));
    }
    if (!bt_tmpl_json_read(x->run, var->text, var->bytes, &value)) {
        return false;
    }
    given->value = value;
    if (var->kind == BT_VAR_MEMBERS) {
        return set_members(x, value);
    }
    if ((var->kind == BT_VAR_MESSAGES) &&
        !adapt_messages(x, var, &value, given)) {
        return false;
    }
    return set_value(x, bt_tmpl_v_text(&name), value);
}

static bool set_vars(bt_tmpl_exec_t *x, const bt_template_var_t *vars,
                     size_t n_vars, given_t *given)
{
    x->frame = bt_tmpl_frame_make(x->run, NULL);
    if (x->frame == NULL) {
        return false;
    }
    x->frame->slots = bt_tmpl_run_take(x->run, (size_t)x->ast->n_names + 1,
                                       sizeof(*x->frame->slots));
    if ((x->frame->slots == NULL) || !bt_tmpl_globals_set(x)) {
        return false;
    }
    for (size_t i = 0; i < n_vars; i++) {
        if (!set_var(x, &vars[i], &given[i])) {
            return false;
        }
    }
    return true;
}

/* ---- rendering ---- */

static bt_status_t give(const bt_tmpl_text_t *text, bt_strbuf_t *out,
                        bt_quotes_t *quotes)
{
    const size_t base = out->len;
    bt_status_t status = BT_OK;

    bt_strbuf_append(out, text->data, text->len);
    status = bt_strbuf_status(out);
    for (uint32_t i = 0;
         (status == BT_OK) && (quotes != NULL) && (i < text->n_marks); i++) {
        status = bt_quotes_add(quotes, base + text->marks[i].begin,
                               base + text->marks[i].end);
    }
    if ((status != BT_OK) && (out->data != NULL)) {
        out->len = base;
        out->data[base] = '\0';
    }
    return status;
}

/* A variable that the template does not have is named as a whole. */
static void tell_unused(const bt_tmpl_exec_t *x, const bt_template_var_t *vars,
                        size_t n_vars, const given_t *given)
{
    for (size_t i = 0; i < n_vars; i++) {
        const bt_tmpl_text_t name = {
            .data = vars[i].name,
            .len = (vars[i].name != NULL) ? (uint32_t)strlen(vars[i].name) : 0};

        if (vars[i].unused == NULL) {
            continue;
        }
        bt_tmpl_written_settle(given[i].written);
        if ((vars[i].kind == BT_VAR_JSON) && bt_tmpl_v_truth(given[i].value) &&
            (bt_tmpl_dict_find(x->ast->names, bt_tmpl_v_text(&name)) == NULL)) {
            bt_strbuf_printf(vars[i].unused, "%s\n", vars[i].path);
        } else {
            bt_tmpl_unused(given[i].value, vars[i].path, vars[i].unused);
        }
    }
}

static bt_status_t render(bt_tmpl_exec_t *x, const bt_template_var_t *vars,
                          size_t n_vars, bt_strbuf_t *out, bt_quotes_t *quotes)
{
    bt_tmpl_run_t *run = x->run;
    const bt_tmpl_text_t *text;
    given_t *given = bt_tmpl_run_take(run, n_vars + 1, sizeof(*given));
    bt_tmpl_build_t build;

    if ((given == NULL) || !set_vars(x, vars, n_vars, given)) {
        return run->status;
    }
    bt_tmpl_build_init(&build, run);
    x->out = &build;
    bt_tmpl_exec_body(x, x->ast->body);
    text = bt_tmpl_build_end(&build);
    if (text == NULL) {
        return run->status;
    }
    tell_unused(x, vars, n_vars, given);
    run->status = give(text, out, quotes);
    if (run->status != BT_OK) {
        run->line = 0;
        snprintf(run->why, sizeof(run->why), "%s", bt_status_str(run->status));
    }
    return run->status;
}

bt_status_t bt_template_render(const bt_template_t *tmpl,
                               const bt_template_var_t *vars, size_t n_vars,
                               int64_t now_s, bt_strbuf_t *out,
                               bt_quotes_t *quotes, char *why, size_t why_bytes)
{
    bt_tmpl_run_t run;
    bt_tmpl_exec_t x = {.run = &run, .ast = &tmpl->ast, .now_s = now_s};
    size_t bytes = 0;
    bt_status_t status;

    for (size_t i = 0; i < n_vars; i++) {
        if ((vars[i].bytes > BT_TEMPLATE_MAX_VALUES) ||
            (vars[i].tools_bytes > BT_TEMPLATE_MAX_VALUES) ||
            (bytes + vars[i].bytes + vars[i].tools_bytes >
             BT_TEMPLATE_MAX_VALUES)) {
            snprintf(why, why_bytes, "the messages have more than %zu bytes",
                     BT_TEMPLATE_MAX_VALUES);
            return BT_ERR_TOO_LARGE;
        }
        bytes += vars[i].bytes + vars[i].tools_bytes;
    }
    bt_tmpl_run_init(&run,
                     (bytes < (MAX_BYTES - MIN_BYTES) / BYTES_PER_BYTE)
                         ? MIN_BYTES + bytes * BYTES_PER_BYTE
                         : MAX_BYTES,
                     MIN_STEPS + bytes * STEPS_PER_BYTE);
    status = render(&x, vars, n_vars, out, quotes);
    if (status != BT_OK) {
        tell(&run, why, why_bytes);
    }
    bt_tmpl_run_fini(&run);
    return status;
}
