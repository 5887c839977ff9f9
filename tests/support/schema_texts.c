/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/schema_texts.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/grammar/compile.h"
#include "tests/support/grammar_text.h"
#include "tests/support/testsupport.h"

static char why[BT_GRAMMAR_WHY_BYTES];

char *schema_quoted_text(const char *text)
{
    char *copy = bt_strdup(text);

    assert_non_null(copy);
    for (char *at = copy; *at != '\0'; at++) {
        *at = (*at == '\'') ? '"' : *at;
    }
    return copy;
}

static bt_status_t compile(bt_grammar_kind_t kind, const char *schema,
                           bt_grammar_t **grammar_p)
{
    char *const text = schema_quoted_text(schema);
    const bt_grammar_source_t source = {
        .kind = kind, .compact = true, .text = text, .bytes = strlen(text)};
    uint8_t *program = NULL;
    size_t bytes = 0;
    const char *fault;
    bt_status_t status;

    why[0] = '\0';
    status = bt_grammar_compile(&source, &program, &bytes, why, sizeof(why));
    bt_free(text);
    if (status == BT_OK) {
        assert_int_equal(bt_grammar_load(program, bytes, &fault, grammar_p),
                         BT_OK);
        bt_free(program);
    }
    return status;
}

void schema_check(bt_grammar_kind_t kind, const char *schema,
                  const char *const *texts)
{
    bt_grammar_t *g = NULL;
    bool is_member = true;

    if (compile(kind, schema, &g) != BT_OK) {
        fail_msg("%s is refused: %s", schema, why);
    }
    for (; (*texts != NULL) || is_member; texts++) {
        char *text;

        if (*texts == NULL) {
            is_member = false;
            continue;
        }
        text = schema_quoted_text(*texts);
        if (grammar_has_text(g, text, strlen(text)) != is_member) {
            fail_msg("%s of %s", text, schema);
        }
        bt_free(text);
    }
    bt_grammar_free(g);
}

void schema_check_refused(bt_grammar_kind_t kind, const char *schema,
                          bt_status_t status, const char *part)
{
    bt_grammar_t *g = NULL;
    const bt_status_t got = compile(kind, schema, &g);

    if ((got != status) || (strstr(why, part) == NULL)) {
        fail_msg("%s: status %d: %s", schema, (int)got, why);
    }
}
