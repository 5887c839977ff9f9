/* SPDX-License-Identifier: Apache-2.0 */
/** @file rendering.h
 *
 * Renders templates with variables from JSON, for the tests of this folder.
 */
#ifndef BT_TESTS_UNIT_TEMPLATE_RENDERING_H
#define BT_TESTS_UNIT_TEMPLATE_RENDERING_H

#include <string.h>

#include "tests/support/testsupport.h"

#include "inference/template/template.h"

#define WHY_BYTES 600

typedef struct rendered {
    bt_status_t status;
    bool parsed;
    char why[WHY_BYTES];
    bt_strbuf_t out;
    bt_quotes_t quotes;
} rendered_t;

/* vars: an object, of a client. messages: JSON or NULL. */
static inline rendered_t rendering(const char *source, const char *vars_json,
                                   const char *messages, int64_t now_s)
{
    const bt_template_var_t vars[] = {
        {.kind = BT_VAR_TEXT, .name = "bos_token", .text = "<s>", .bytes = 3},
        {.kind = BT_VAR_MEMBERS, .text = vars_json, .bytes = strlen(vars_json)},
        {.kind = BT_VAR_MESSAGES,
         .name = "messages",
         .text = messages,
         .bytes = (messages != NULL) ? strlen(messages) : 0},
    };
    bt_template_t *tmpl = NULL;
    rendered_t r = {.parsed = false};

    bt_strbuf_init(&r.out, (size_t)1 << 24);
    r.status =
        bt_template_parse(source, strlen(source), r.why, sizeof(r.why), &tmpl);
    if (r.status == BT_OK) {
        r.parsed = true;
        r.status =
            bt_template_render(tmpl, vars, (messages != NULL) ? 3 : 2, now_s,
                               &r.out, &r.quotes, r.why, sizeof(r.why));
    }
    bt_template_destroy(tmpl);
    return r;
}

static inline void rendering_end(rendered_t *r)
{
    bt_strbuf_fini(&r->out);
    bt_quotes_fini(&r->quotes);
}

static inline void expect(const char *source, const char *vars_json,
                          const char *expected)
{
    rendered_t r = rendering(source, vars_json, NULL, 0);

    if (r.status != BT_OK) {
        fail_msg("%s: %s", source, r.why);
    }
    assert_string_equal((r.out.len > 0) ? r.out.data : "", expected);
    rendering_end(&r);
}

static inline void expect_why(const char *source, const char *vars_json,
                              bool parsed, bt_status_t status, const char *why)
{
    rendered_t r = rendering(source, vars_json, NULL, 0);

    assert_int_equal(r.status, status);
    assert_int_equal(r.parsed, parsed);
    assert_string_equal(r.why, why);
    assert_int_equal(r.out.len, 0);
    rendering_end(&r);
}

#endif
