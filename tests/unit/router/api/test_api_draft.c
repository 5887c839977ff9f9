/* SPDX-License-Identifier: Apache-2.0 */
/* Fields of speculative decoding. */
#include "tests/unit/router/api/api_fixture.h"

static void prediction_is_a_string_or_text_parts(void **state)
{
    static const struct {
        const char *body, *text;
    } cases[] = {
        {CHT("'prediction': {'type': 'content', 'content': 'a b'}"), "a b"},
        {CHT("'prediction': {'type': 'content', 'content': [{'type': 'text',"
             "'text': 'a'}, {'type': 'text', 'text': ' b'}]}"),
         "a b"},
        {CHT("'prediction': {'type': 'content', 'content': ''}"), NULL},
        {CHT("'prediction': {'type': 'content', 'content': []}"), NULL},
        {CHT("'prediction': null"), NULL},
        {CHT("'n': 1"), NULL},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        bt_api_request_t r = parsed(H, cases[i].body);

        if (cases[i].text == NULL) {
            assert_null(r.draft_text);
        } else {
            assert_int_equal(r.draft_text_bytes, strlen(cases[i].text));
            assert_memory_equal(r.draft_text, cases[i].text,
                                r.draft_text_bytes);
        }
        bt_api_request_fini(&r);
    }
}

static void malformed_prediction_is_refused(void **state)
{
    (void)state;
    refused(H, CHT("'prediction': 'a'"), "prediction",
            "prediction must be an object of type content, got \"a\"");
    refused(H, CHT("'prediction': {'content': 'a'}"), "prediction",
            "prediction must be an object of type content, got an object");
    refused(H, CHT("'prediction': {'type': 'content'}"), "prediction",
            "prediction.content must be a string or a list of text parts, got "
            "nothing");
    refused(H, CHT("'prediction': {'type': 'content', 'content': 5}"),
            "prediction",
            "prediction.content must be a string or a list of text parts, got "
            "5");
    refused(H,
            CHT("'prediction': {'type': 'content', 'content': [{'type':"
                "'image_url', 'text': 'a'}]}"),
            "prediction",
            "prediction.content must be a string or a list of text parts, got "
            "an object");
}

static void draft_ids_and_their_number_are_read_on_every_door(void **state)
{
    static const struct {
        bt_api_dialect_t dialect;
        const char *body;
    } cases[] = {
        {G, GEN("'draft_input_ids': [5, 0, 7], 'num_draft_tokens': 3,"
                "'use_draft_logits': true")},
        {C, CMP("'draft_input_ids': [5, 0, 7], 'num_draft_tokens': 3")},
        {H, CHT("'draft_input_ids': [5, 0, 7], 'num_draft_tokens': 3")},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        bt_api_request_t r = parsed(cases[i].dialect, cases[i].body);

        assert_int_equal(r.n_draft_ids, 3);
        assert_int_equal(r.draft_ids[0], 5);
        assert_int_equal(r.draft_ids[2], 7);
        assert_int_equal(r.max_drafts, 3);
        bt_api_request_fini(&r);
    }
}

static void drafts_have_no_bound_unless_one_is_given(void **state)
{
    bt_api_request_t r = parsed(H, CHT("'draft_input_ids': []"));

    (void)state;
    assert_int_equal(r.n_draft_ids, 0);
    assert_int_equal(r.max_drafts, UINT32_MAX);
    bt_api_request_fini(&r);
    r = parsed(G, GEN("'draft_input_ids': [5]"));
    assert_int_equal(r.n_draft_ids, 1);
    assert_int_equal(r.draft_ids[0], 5);
    bt_api_request_fini(&r);
    r = parsed(G, GEN("'num_draft_tokens': 0, 'use_draft_logits': false"));
    assert_int_equal(r.max_drafts, 0);
    bt_api_request_fini(&r);
}

static void malformed_draft_fields_are_refused(void **state)
{
    (void)state;
    refused(C, CMP("'draft_input_ids': 5"), "draft_input_ids",
            "draft_input_ids must be a list of token ids, got 5");
    refused(G, GEN("'draft_input_ids': 'a'"), "draft_input_ids",
            "draft_input_ids must be an integer, got \"a\"");
    refused(G, GEN("'draft_input_ids': [1, -1]"), "draft_input_ids",
            "draft_input_ids must be from 0 to 2147483647, got -1");
    refused(G, GEN("'draft_input_ids': [1, 'a']"), "draft_input_ids",
            "draft_input_ids must be an integer, got \"a\"");
    refused(G, GEN("'num_draft_tokens': -1"), "num_draft_tokens",
            "num_draft_tokens must be from 0 to 2147483647, got -1");
    refused(G, GEN("'use_draft_logits': 1"), "use_draft_logits",
            "use_draft_logits must be true or false, got 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(prediction_is_a_string_or_text_parts),
        BT_TEST(malformed_prediction_is_refused),
        BT_TEST(draft_ids_and_their_number_are_read_on_every_door),
        BT_TEST(drafts_have_no_bound_unless_one_is_given),
        BT_TEST(malformed_draft_fields_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
