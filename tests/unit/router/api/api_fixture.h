/* SPDX-License-Identifier: Apache-2.0 */
/** @file api_fixture.h  Bodies that are parsed, or refused with a message. */
#ifndef BT_TESTS_UNIT_ROUTER_API_FIXTURE_H
#define BT_TESTS_UNIT_ROUTER_API_FIXTURE_H

#include "tests/support/testsupport.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "common/wire/wire.h"
#include "router/api/api.h"

#define G BT_API_GENERATE
#define C BT_API_COMPLETIONS
#define H BT_API_CHAT

#define GEN(options) "{'text_input': 'x', " options "}"
#define CMP(options) "{'prompt': 'x', " options "}"
#define CHT(options) \
    "{'messages': [{'role': 'user', 'content': 'x'}], " options "}"

/* Bodies below are written with ' for ", which JSON does not use. */
static inline char *quoted(const char *text)
{
    char *copy = bt_strdup(text);

    assert_non_null(copy);
    for (char *c = copy; *c != '\0'; c++) {
        if (*c == '\'') {
            *c = '"';
        }
    }
    return copy;
}

static inline bt_api_request_t parsed(bt_api_dialect_t dialect,
                                      const char *text)
{
    char *body = quoted(text);
    bt_api_request_t request;
    bt_api_error_t error;
    const char *why = "";

    memset(&error, 0, sizeof(error));
    if (bt_api_parse(dialect, body, strlen(body), &request, &error) != BT_OK) {
        fail_msg("%s: %s", error.message, body);
    }
    /* Checks that workers repeat must hold already. */
    if (bt_sampling_check(&request.sampling, &why) != BT_OK) {
        fail_msg("%s: %s", why, body);
    }
    bt_free(body);
    return request;
}

/* Must be refused with exactly this message, naming this field. */
static inline void refused(bt_api_dialect_t dialect, const char *text,
                           const char *param, const char *message)
{
    char *body = quoted(text);
    bt_api_request_t request;
    bt_api_request_t before;
    bt_api_error_t error;

    memset(&error, 0, sizeof(error));
    memset(&request, 0xA5, sizeof(request));
    before = request;
    assert_int_equal(
        bt_api_parse(dialect, body, strlen(body), &request, &error),
        BT_ERR_INVALID_PARAM);
    assert_string_equal(error.message, message);
    assert_int_equal(error.http_status, 400);
    assert_string_equal(error.type, "invalid_request_error");
    if (param == NULL) {
        assert_null(error.param);
    } else {
        assert_string_equal(error.param, param);
    }
    assert_memory_equal(&request, &before, sizeof(request));
    bt_free(body);
}

#endif
