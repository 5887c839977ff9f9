/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/base/alloc.h"
#include "router/api/api_priv.h"

/* Fields of speculative decoding: the answer that a client expects, and how
 * many drafts it wants. None changes a token of the answer. */

static bt_status_t add_text(bt_api_parse_t *parse, const bt_api_field_t *field,
                            const bt_json_node_t *text, bt_strbuf_t *out)
{
    if (!bt_json_is_kind(text, BT_JSON_STRING)) {
        return bt_api_refuse(parse, field->name,
                             "prediction.content must be a string or a list of "
                             "text parts, got %s",
                             (text != NULL) ? BT_API_SHOW(text) : "nothing");
    }
    bt_strbuf_append(out, text->text, text->len);
    return BT_OK;
}

/* A string, or a list of {"type": "text", "text": string}. */
static bt_status_t add_content(bt_api_parse_t *parse,
                               const bt_api_field_t *field,
                               const bt_json_node_t *content, bt_strbuf_t *out)
{
    const bt_json_node_t *part;
    bt_status_t status = BT_OK;

    if (!bt_json_is_kind(content, BT_JSON_ARRAY)) {
        return add_text(parse, field, content, out);
    }
    part = bt_json_first(content);
    for (uint32_t i = 0; (i < content->n) && (status == BT_OK); i++) {
        const bt_json_node_t *text =
            bt_json_is(bt_json_get(parse->doc, part, "type"), "text")
                ? bt_json_get(parse->doc, part, "text")
                : NULL;

        status = add_text(parse, field, (text != NULL) ? text : part, out);
        part = bt_json_next(parse->doc, part);
    }
    return status;
}

bt_status_t bt_api_read_prediction(bt_api_parse_t *parse,
                                   const bt_api_field_t *field,
                                   const bt_json_node_t *value)
{
    static const char *const known[] = {"type", "content", NULL};
    bt_api_request_t *request = parse->request;
    bt_strbuf_t text;
    bt_status_t status;

    if (!bt_json_is(bt_json_get(parse->doc, value, "type"), "content")) {
        return bt_api_refuse(parse, field->name,
                             "prediction must be an object of type content, "
                             "got %s",
                             BT_API_SHOW(value));
    }
    bt_strbuf_init(&text, SIZE_MAX);
    status = add_content(parse, field,
                         bt_json_get(parse->doc, value, "content"), &text);
    if ((status == BT_OK) && (text.len > 0)) {
        request->draft_text = bt_memdup(text.data, text.len);
        request->draft_text_bytes = text.len;
        if ((bt_strbuf_status(&text) != BT_OK) ||
            (request->draft_text == NULL)) {
            status = bt_api_error_no_memory(parse->error);
        }
    }
    if (status == BT_OK) {
        bt_api_note_members(parse, field->name, value, known);
    }
    bt_strbuf_fini(&text);
    return status;
}

bt_status_t bt_api_read_draft_ids(bt_api_parse_t *parse,
                                  const bt_api_field_t *field,
                                  const bt_json_node_t *value)
{
    return bt_api_ids(parse, field->name, value, &parse->request->draft_ids,
                      &parse->request->n_draft_ids);
}

/* Every answer is that of the model without drafts, whether drafts come with
 * logits or not. */
bt_status_t bt_api_read_use_draft_logits(bt_api_parse_t *parse,
                                         const bt_api_field_t *field,
                                         const bt_json_node_t *value)
{
    return bt_json_is_bool(value)
               ? BT_OK
               : bt_api_refuse_kind(parse, field->name, "true or false", value);
}
