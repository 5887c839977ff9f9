/* SPDX-License-Identifier: Apache-2.0 */
/* A client's grammar in Lark: whatever it is, a program of it can be loaded, it
 * is the same when compiled again, and a refusal has a cause of one line. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "common/grammar/compile.h"
#include "common/grammar/grammar.h"

static void check_refusal(bt_status_t status, const char *why)
{
    BT_ASSERT_ALWAYS((status == BT_ERR_INVALID_PARAM) ||
                     (status == BT_ERR_UNSUPPORTED) ||
                     (status == BT_ERR_TOO_LARGE));
    BT_ASSERT_ALWAYS((why[0] != '\0') && (strpbrk(why, "\r\n") == NULL) &&
                     bt_utf8_valid((const uint8_t *)why, strlen(why)));
}

static void check_program(const bt_grammar_source_t *source,
                          const uint8_t *program, size_t bytes)
{
    char why[BT_GRAMMAR_WHY_BYTES] = "";
    bt_grammar_t *grammar = NULL;
    const char *fault = NULL;
    uint8_t *again = NULL;
    size_t again_bytes = 0;

    BT_ASSERT_ALWAYS(bt_grammar_load(program, bytes, &fault, &grammar) ==
                     BT_OK);
    bt_grammar_free(grammar);
    BT_ASSERT_ALWAYS(bt_grammar_compile(source, &again, &again_bytes, why,
                                        sizeof(why)) == BT_OK);
    BT_ASSERT_ALWAYS((again_bytes == bytes) &&
                     (memcmp(again, program, bytes) == 0));
    bt_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const bt_grammar_source_t source = {
        .kind = BT_GRAMMAR_LARK, .text = (const char *)data, .bytes = size};
    char why[BT_GRAMMAR_WHY_BYTES] = "";
    uint8_t *program = NULL;
    size_t bytes = 0;
    const bt_status_t status =
        bt_grammar_compile(&source, &program, &bytes, why, sizeof(why));

    if (status == BT_OK) {
        check_program(&source, program, bytes);
        bt_free(program);
    } else {
        check_refusal(status, why);
    }
    return 0;
}
