/* SPDX-License-Identifier: Apache-2.0 */
/* A client's pattern: whatever it is, an automaton of it has only texts of
 * UTF-8, a search finds what matches as a whole, a program can be loaded, and a
 * refusal has a cause of one line. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "common/grammar/compile.h"
#include "common/grammar/grammar.h"
#include "common/grammar/regex_syntax.h"

static void check_refusal(bt_status_t status, const char *why)
{
    BT_ASSERT_ALWAYS((status == BT_ERR_INVALID_PARAM) ||
                     (status == BT_ERR_UNSUPPORTED) ||
                     (status == BT_ERR_TOO_LARGE));
    BT_ASSERT_ALWAYS((why[0] != '\0') && (strpbrk(why, "\r\n") == NULL) &&
                     bt_utf8_valid((const uint8_t *)why, strlen(why)));
}

static const bt_dfa_t *compile(bt_grammar_compiler_t *c, const uint8_t *data,
                               size_t size, bt_regex_match_t match)
{
    const bt_dfa_t *dfa;

    c->fuel = BT_GRAMMAR_FUEL;
    dfa = bt_regex_dfa(c, (const char *)data, size, match);
    BT_ASSERT_ALWAYS((dfa != NULL) == (c->status == BT_OK));
    if (dfa == NULL) {
        check_refusal(c->status, c->why);
        return NULL;
    }
    return dfa;
}

/* True for no text, and where the budget did not suffice. */
static bool is_nothing(const bt_dfa_t *dfa)
{
    return (dfa == NULL) || bt_dfa_is_empty(dfa);
}

static void check_automata(const uint8_t *data, size_t size)
{
    const bt_dfa_t *whole, *part;
    bt_grammar_compiler_t c;

    bt_grammar_compiler_init(&c);
    whole = compile(&c, data, size, BT_REGEX_WHOLE);
    part = (whole != NULL) ? compile(&c, data, size, BT_REGEX_SEARCH) : NULL;
    if (part != NULL) {
        const bt_dfa_t *any = bt_dfa_any_text(&c);

        c.fuel = BT_GRAMMAR_FUEL;
        BT_ASSERT_ALWAYS(
            is_nothing(bt_dfa_combine(&c, BT_DFA_MINUS, whole, part)));
        BT_ASSERT_ALWAYS(
            is_nothing(bt_dfa_combine(&c, BT_DFA_MINUS, part, any)));
    }
    bt_grammar_compiler_fini(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const bt_grammar_source_t source = {
        .kind = BT_GRAMMAR_REGEX, .text = (const char *)data, .bytes = size};
    char why[BT_GRAMMAR_WHY_BYTES] = "";
    uint8_t *program = NULL;
    size_t bytes = 0;
    bt_status_t status;

    check_automata(data, size);
    status = bt_grammar_compile(&source, &program, &bytes, why, sizeof(why));
    if (status == BT_OK) {
        bt_grammar_t *grammar = NULL;
        const char *fault = NULL;

        BT_ASSERT_ALWAYS(bt_grammar_load(program, bytes, &fault, &grammar) ==
                         BT_OK);
        bt_grammar_free(grammar);
        bt_free(program);
    } else {
        check_refusal(status, why);
    }
    return 0;
}
