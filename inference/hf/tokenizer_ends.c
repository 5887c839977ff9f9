/* SPDX-License-Identifier: Apache-2.0 */
/* Post-processors of a tokenizer.json: BOS before a text and EOS behind it,
 * each optional. */
#include <string.h>

#include "inference/hf/vocab.h"

#define FILE_NAME "tokenizer.json"

/* True when the token is the one of this name in tokenizer_config.json, or that
 * file has none. */
static bool may_be(const bt_hf_t *hf, const bt_json_node_t *text,
                   const char *name)
{
    const bt_json_node_t *node =
        bt_json_get(hf->tok_config.doc, hf->tok_config.root, name);

    if ((node != NULL) && (node->kind == BT_JSON_OBJECT)) {
        node = bt_json_get(hf->tok_config.doc, node, "content");
    }
    return (node == NULL) || (node->kind != BT_JSON_STRING) ||
           ((node->len == text->len) &&
            (memcmp(node->text, text->text, text->len) == 0));
}

/* @param [in] is_behind  EOS, else BOS */
static bt_status_t put_end(const bt_hf_t *hf, bt_hf_vocab_t *v,
                           const bt_json_node_t *text, bool is_behind)
{
    bool *const adds_p = is_behind ? &v->add_eos : &v->add_bos;
    uint32_t id = BT_HF_NO_TOKEN;

    if ((text != NULL) && (text->kind == BT_JSON_STRING) && !*adds_p &&
        may_be(hf, text, is_behind ? "eos_token" : "bos_token")) {
        id = bt_hf_vocab_find(v, text->text, text->len);
    }
    if (id == BT_HF_NO_TOKEN) {
        return bt_hf_not_supported(
            hf, is_behind ? "end behind a text" : "beginning before a text",
            text);
    }
    *adds_p = true;
    *(is_behind ? &v->eos : &v->bos) = id;
    return BT_OK;
}

/* Reads "single": tokens, the text, tokens. */
static bt_status_t read_template(bt_hf_t *hf, bt_hf_vocab_t *v,
                                 const bt_json_node_t *processor)
{
    const bt_json_node_t *const list = bt_hf_member(v, processor, "single");
    const bt_json_node_t *at;
    bt_status_t status = BT_OK;
    bool is_behind = false;

    if ((list == NULL) || (list->kind != BT_JSON_ARRAY) || (list->n == 0)) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                          FILE_NAME ": TemplateProcessing has no list "
                                    "\"single\"");
    }
    at = bt_json_first(list);
    for (uint32_t i = 0; (status == BT_OK) && (i < list->n); i++) {
        if ((bt_hf_member(v, at, "Sequence") != NULL) && !is_behind) {
            is_behind = true;
        } else {
            status = put_end(
                hf, v,
                bt_hf_member(v, bt_hf_member(v, at, "SpecialToken"), "id"),
                is_behind);
        }
        at = bt_json_next(v->doc, at);
    }
    return status;
}

/* Reads "cls" and "sep": a pair of a text and its id each. */
static bt_status_t read_pair(bt_hf_t *hf, bt_hf_vocab_t *v,
                             const bt_json_node_t *processor)
{
    static const char *const names[] = {"cls", "sep"};
    bt_status_t status = BT_OK;

    for (size_t i = 0; (status == BT_OK) && (i < 2); i++) {
        const bt_json_node_t *const pair = bt_hf_member(v, processor, names[i]);

        status = put_end(
            hf, v,
            ((pair != NULL) && (pair->kind == BT_JSON_ARRAY) && (pair->n > 0))
                ? bt_json_first(pair)
                : NULL,
            i == 1);
    }
    return status;
}

static bt_status_t read_step(bt_hf_t *hf, bt_hf_vocab_t *v,
                             const bt_json_node_t *step, bool is_last)
{
    const bt_json_node_t *const type = bt_hf_member(v, step, "type");

    (void)is_last;
    v->has_ends = true;
    if (bt_json_is(type, "TemplateProcessing")) {
        return read_template(hf, v, step);
    }
    if (bt_json_is(type, "RobertaProcessing") ||
        bt_json_is(type, "BertProcessing")) {
        return read_pair(hf, v, step);
    }
    /* changes offsets, not tokens */
    return bt_json_is(type, "ByteLevel")
               ? BT_OK
               : bt_hf_not_supported(hf, "post-processor", type);
}

bt_status_t bt_hf_read_ends(bt_hf_t *hf, bt_hf_vocab_t *v)
{
    return bt_hf_each_step(hf, v, bt_hf_member(v, v->root, "post_processor"),
                           "processors", read_step);
}
