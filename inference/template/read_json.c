/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/json_doc.h"
#include "inference/template/print.h"

/* Depth is bounded by the run's. */
static bool make_value(bt_tmpl_run_t *run, const bt_json_doc_t *doc,
                       const bt_json_node_t *node, bt_tmpl_value_t *value_p);

/* As Python's json has it: an integer has any size, a float may be infinite. */
static bool make_number(bt_tmpl_run_t *run, const bt_json_node_t *node,
                        bt_tmpl_value_t *value_p)
{
    char *const copy = bt_tmpl_run_take(run, (size_t)node->len + 1, 1);
    const bt_tmpl_text_t *big;
    bool whole;

    if (copy == NULL) {
        return false;
    }
    memcpy(copy, node->text, node->len);
    whole = strpbrk(copy, ".eE") == NULL;
    errno = 0;
    *value_p = whole ? bt_tmpl_v_int(strtoll(copy, NULL, 10))
                     : bt_tmpl_v_float(strtod(copy, NULL));
    if (whole && (errno == ERANGE)) {
        big = bt_tmpl_text_make(run, node->text, node->len, true);
        if (big == NULL) {
            return false;
        }
        *value_p = bt_tmpl_v_big_int(big);
    }
    value_p->quoted = true;
    return true;
}

static bool make_text(bt_tmpl_run_t *run, const bt_json_node_t *node,
                      bt_tmpl_value_t *value_p)
{
    const bt_tmpl_text_t *text =
        bt_tmpl_text_make(run, node->text, node->len, true);

    if (text == NULL) {
        return false;
    }
    *value_p = bt_tmpl_v_text(text);
    return true;
}

static bool make_list(bt_tmpl_run_t *run, const bt_json_doc_t *doc,
                      const bt_json_node_t *node, bt_tmpl_value_t *value_p)
{
    bt_tmpl_seq_t *seq = bt_tmpl_seq_make(run, node->n);
    const bt_json_node_t *item = bt_json_first(node);

    if (seq == NULL) {
        return false;
    }
    seq->quoted = true;
    for (uint32_t i = 0; i < node->n; i++, item = bt_json_next(doc, item)) {
        bt_tmpl_value_t value;

        if (!make_value(run, doc, item, &value) ||
            !bt_tmpl_seq_add(run, seq, value)) {
            return false;
        }
    }
    *value_p = bt_tmpl_v_seq(BT_SEQ_LIST, seq);
    return true;
}

/* Of equal keys the later one replaces the value, at the place of the first. */
static bool make_dict(bt_tmpl_run_t *run, const bt_json_doc_t *doc,
                      const bt_json_node_t *node, bt_tmpl_value_t *value_p)
{
    bt_tmpl_dict_t *dict = bt_tmpl_dict_make(run);
    const bt_json_node_t *key = bt_json_first(node);

    if (dict == NULL) {
        return false;
    }
    dict->quoted = true;
    for (uint32_t i = 0; i < node->n; i++) {
        const bt_json_node_t *const member = key + 1;
        bt_tmpl_value_t name, value;

        if (!make_text(run, key, &name) ||
            !make_value(run, doc, member, &value) ||
            !bt_tmpl_dict_put(run, dict, name, value)) {
            return false;
        }
        key = bt_json_next(doc, member);
    }
    *value_p = bt_tmpl_v_dict(dict);
    return true;
}

static bool make_one(bt_tmpl_run_t *run, const bt_json_doc_t *doc,
                     const bt_json_node_t *node, bt_tmpl_value_t *value_p)
{
    switch ((bt_json_kind_t)node->kind) {
    case BT_JSON_OBJECT:
        return make_dict(run, doc, node, value_p);
    case BT_JSON_ARRAY:
        return make_list(run, doc, node, value_p);
    case BT_JSON_STRING:
        return make_text(run, node, value_p);
    case BT_JSON_NUMBER:
        return make_number(run, node, value_p);
    case BT_JSON_TRUE:
    case BT_JSON_FALSE:
        *value_p = bt_tmpl_v_bool(node->kind == BT_JSON_TRUE);
        break;
    case BT_JSON_NULL:
        *value_p = bt_tmpl_v_none();
        break;
    }
    value_p->quoted = true;
    return true;
}

static bool make_value(bt_tmpl_run_t *run, const bt_json_doc_t *doc,
                       const bt_json_node_t *node, bt_tmpl_value_t *value_p)
{
    bool made;

    if (!bt_tmpl_run_step(run, 1) || !bt_tmpl_run_enter(run)) {
        return false;
    }
    made = make_one(run, doc, node, value_p);
    bt_tmpl_run_leave(run);
    return made;
}

bool bt_tmpl_json_value(bt_tmpl_run_t *run, const bt_json_doc_t *doc,
                        bt_tmpl_value_t *value_p)
{
    return make_value(run, doc, bt_json_doc_root(doc), value_p);
}

bool bt_tmpl_json_read(bt_tmpl_run_t *run, const char *json, size_t bytes,
                       bt_tmpl_value_t *value_p)
{
    /* Every value has a byte at least. */
    const uint32_t max_values =
        (bytes < UINT32_MAX) ? (uint32_t)bytes + 1 : UINT32_MAX;
    bt_json_doc_t *doc = NULL;
    bt_json_fault_t fault;
    const bt_status_t status =
        bt_json_doc_parse_client(json, bytes, max_values, &fault, &doc);
    bool read;

    if (status != BT_OK) {
        bt_tmpl_run_fail(
            run, (status == BT_ERR_BAD_FILE) ? BT_ERR_INVALID_PARAM : status,
            "not valid JSON: %s", fault.what);
        return false;
    }
    read = bt_tmpl_json_value(run, doc, value_p);
    bt_json_doc_free(doc);
    return read;
}
