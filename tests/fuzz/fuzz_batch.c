/* SPDX-License-Identifier: Apache-2.0 */
/* A line of a batch's input, and the body that asks for a batch: what is
 * accepted has its parts, and what is refused says why. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "common/base/status.h"
#include "common/base/text.h"
#include "router/batch/batch_priv.h"

/* Parses a line. @param [out] custom_id  ""; or the line's */
static bt_status_t parse_line(const char *text, size_t size, bool is_cut,
                              size_t most,
                              char custom_id[BT_BATCH_ID_CHARS + 1])
{
    const bt_batch_text_t line = {
        .text = text, .bytes = size, .is_cut = is_cut};
    bt_batch_fault_t fault = {.code = ""};
    bt_strbuf_t body;
    bt_status_t status;

    custom_id[0] = '\0';
    bt_strbuf_init(&body, size);
    status = bt_batch_line_parse(&line, bt_batch_endpoint("/v1/completions"),
                                 most, custom_id, &body, &fault);
    switch (status) {
    case BT_OK:
        BT_ASSERT_ALWAYS(!is_cut && (custom_id[0] != '\0') && (body.len >= 2) &&
                         (body.len <= most) && (body.data[0] == '{') &&
                         (body.data[body.len - 1] == '}'));
        break;
    case BT_ERR_TOO_LARGE:
        BT_ASSERT_ALWAYS((custom_id[0] != '\0') && (body.len == 0) &&
                         (fault.refusal != NULL));
        break;
    case BT_ERR_INVALID_PARAM:
        BT_ASSERT_ALWAYS((fault.code[0] != '\0') && (fault.why[0] != '\0'));
        break;
    default:
        BT_ASSERT_ALWAYS(status == BT_ERR_NO_MEMORY);
        break;
    }
    bt_strbuf_fini(&body);
    return status;
}

static void check_line(const char *text, size_t size)
{
    char custom_id[BT_BATCH_ID_CHARS + 1], found[BT_BATCH_ID_CHARS + 1];
    const bt_status_t status = parse_line(text, size, false, size, custom_id);

    /* Names with escapes are not looked for in a line that is cut. */
    if ((parse_line(text, size, true, size, found) == BT_ERR_TOO_LARGE) &&
        (status == BT_OK) && (memchr(text, '\\', size) == NULL)) {
        BT_ASSERT_ALWAYS(strcmp(custom_id, found) == 0);
    }
    (void)parse_line(text, size / 2, true, size, found);
    (void)parse_line(text, size, false, size / 4, found);
}

static void check_fields(const char *text, size_t size)
{
    bt_api_error_t error = {0};
    bt_batch_fields_t fields;

    if (bt_batch_fields_read(text, size, &fields, &error) == BT_OK) {
        BT_ASSERT_ALWAYS(bt_batch_is_endpoint(fields.endpoint));
        BT_ASSERT_ALWAYS(fields.input_id[0] != '\0');
        BT_ASSERT_ALWAYS(bt_strbuf_status(&fields.metadata) == BT_OK);
    } else {
        BT_ASSERT_ALWAYS((error.http_status >= 400) &&
                         (error.message[0] != '\0'));
    }
    bt_batch_fields_fini(&fields);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *const text = (size > 0) ? (const char *)data : "";

    check_line(text, size);
    check_fields(text, size);
    return 0;
}
