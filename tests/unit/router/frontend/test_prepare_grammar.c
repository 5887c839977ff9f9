/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/prepare.h"

#include "tests/support/testsupport.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"

typedef struct rig {
    bt_grammar_cache_t *cache;
    bt_served_t served; /* without tools and thinking */
    bt_api_request_t request;
    bt_prepared_t prepared;
    bt_grammar_made_t made;
    bt_api_error_t error;
} rig_t;

/* A request of two prompts. */
static void rig_init(rig_t *rig, bt_grammar_kind_t kind, const char *text)
{
    memset(rig, 0, sizeof(*rig));
    assert_int_equal(bt_grammar_cache_create(1 << 20, &rig->cache), BT_OK);
    bt_api_request_init(BT_API_COMPLETIONS, &rig->request);
    rig->request.grammar.field = "guided_choice";
    rig->request.grammar.kind = kind;
    rig->request.grammar.text = bt_strdup(text);
    rig->request.grammar.bytes = strlen(text);
    rig->prepared.n_prompts = 2;
    rig->prepared.prompts = bt_calloc(2, sizeof(*rig->prepared.prompts));
    assert_non_null(rig->prepared.prompts);
    for (size_t i = 0; i < 2; i++) {
        uint32_t *ids = bt_calloc(1, sizeof(*ids));

        assert_non_null(ids);
        assert_int_equal(
            bt_prompt_create(ids, 1, &rig->prepared.prompts[i].prompt), BT_OK);
    }
}

static void rig_fini(rig_t *rig)
{
    bt_prepared_fini(&rig->prepared);
    bt_api_request_fini(&rig->request);
    bt_grammar_cache_destroy(rig->cache);
}

static bt_status_t prepare(rig_t *rig)
{
    return bt_prepare_grammar(rig->cache, &rig->served, &rig->request,
                              &rig->prepared, &rig->made, &rig->error);
}

static void every_prompt_gets_the_program(void **state)
{
    const bt_prompt_t *a, *b;
    rig_t rig;

    (void)state;
    rig_init(&rig, BT_GRAMMAR_CHOICE, "[\"yes\",\"no\"]");
    assert_int_equal(prepare(&rig), BT_OK);
    a = rig.prepared.prompts[0].prompt;
    b = rig.prepared.prompts[1].prompt;
    assert_in_range(a->grammar_bytes, 4, BT_GRAMMAR_MAX_BYTES);
    assert_memory_equal(a->grammar, "BTG", 3);
    assert_int_equal(a->grammar_bytes, b->grammar_bytes);
    assert_memory_equal(a->grammar, b->grammar, a->grammar_bytes);
    assert_false(rig.made.was_known);
    assert_null(rig.made.program);
    rig_fini(&rig);
}

static void request_without_a_description_has_none(void **state)
{
    rig_t rig;

    (void)state;
    rig_init(&rig, BT_GRAMMAR_CHOICE, "[\"yes\"]");
    rig.request.grammar.field = NULL;
    assert_int_equal(prepare(&rig), BT_OK);
    assert_int_equal(rig.prepared.prompts[0].prompt->grammar_bytes, 0);
    rig_fini(&rig);
}

static void refusal_names_the_field(void **state)
{
    rig_t rig;

    (void)state;
    rig_init(&rig, BT_GRAMMAR_CHOICE, "[]");
    assert_int_equal(prepare(&rig), BT_ERR_INVALID_PARAM);
    assert_int_equal(rig.error.http_status, 400);
    assert_string_equal(rig.error.param, "guided_choice");
    assert_string_equal(rig.error.message,
                        "guided_choice: choices must be a list of at least one "
                        "string");
    rig.request.grammar.schema_name = bt_strdup("math");
    assert_int_equal(prepare(&rig), BT_ERR_INVALID_PARAM);
    assert_string_equal(rig.error.message,
                        "Invalid schema for guided_choice 'math': choices must "
                        "be a list of at least one string");
    rig_fini(&rig);
}

/* A model without a form of calls, or with Python's: nothing could be called.
 */
static void
a_description_beside_tools_that_cannot_be_written_is_refused(void **state)
{
    rig_t rig;

    (void)state;
    rig_init(&rig, BT_GRAMMAR_CHOICE, "[\"yes\"]");
    rig.request.tools.json = bt_strdup("[{\"function\":{\"name\":\"f\"}}]");
    rig.served.tools = bt_tool_format_named("pythonic");
    assert_int_equal(prepare(&rig), BT_ERR_INVALID_PARAM);
    assert_non_null(strstr(rig.error.message,
                           "guided_choice and tools together are not supported "
                           "with this model's tool calls"));
    rig_fini(&rig);
}

static void answers_that_must_be_whole_have_enough_tokens(void **state)
{
    rig_t rig;

    (void)state;
    rig_init(&rig, BT_GRAMMAR_CHOICE, "[\"yes\",\"never\"]");
    rig.request.grammar.completes = true;
    rig.prepared.prompts[0].max_new = 3;
    rig.prepared.prompts[1].max_new = 2;
    assert_int_equal(prepare(&rig), BT_ERR_INVALID_PARAM);
    assert_string_equal(rig.error.message,
                        "complete_in_max_tokens: the shortest answer may take "
                        "3 tokens, and it may have 2");
    rig.prepared.prompts[1].max_new = 3;
    assert_int_equal(prepare(&rig), BT_OK);
    assert_true(rig.prepared.prompts[1].prompt->completes);
    rig_fini(&rig);

    rig_init(&rig, BT_GRAMMAR_CHOICE, "[\"yes\"]");
    rig.request.grammar.field = NULL;
    rig.request.grammar.completes = true;
    assert_int_equal(prepare(&rig), BT_ERR_INVALID_PARAM);
    assert_non_null(strstr(rig.error.message,
                           "complete_in_max_tokens needs a description"));
    rig_fini(&rig);
}

static void failed_allocation_is_reported(void **state)
{
    bt_status_t status = BT_ERR_NO_MEMORY;

    (void)state;
    for (int nth = 1; status != BT_OK; nth++) {
        rig_t rig;

        rig_init(&rig, BT_GRAMMAR_CHOICE, "[\"yes\"]");
        bt_alloc_fail_at(nth);
        status = prepare(&rig);
        bt_alloc_fail_at(0);
        if (status != BT_OK) {
            assert_int_equal(status, BT_ERR_NO_MEMORY);
            assert_int_equal(rig.error.http_status, 503);
        }
        rig_fini(&rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(every_prompt_gets_the_program),
        BT_TEST(request_without_a_description_has_none),
        BT_TEST(refusal_names_the_field),
        BT_TEST(a_description_beside_tools_that_cannot_be_written_is_refused),
        BT_TEST(answers_that_must_be_whole_have_enough_tokens),
        BT_TEST(failed_allocation_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
