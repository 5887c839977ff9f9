/* SPDX-License-Identifier: Apache-2.0 */
/* Token ids that go round the JSON parser: which do, and that it is all the
 * same. */
#include "tests/support/testsupport.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "router/frontend/api.h"
#include "router/frontend/api_lift.h"

#define MARK BT_API_LIFT_MARK

static const struct {
    const char *body;
    const char *rest; /* NULL: nothing is lifted */
} cases[] = {
    {"{\"prompt\":[1,2,3]}", "{\"prompt\":\"" MARK "\"}"},
    {" { \"n\" : 1 , \"prompt\" :\n[ 0 , 2147483647 ]\t, \"user\":\"]\" } ",
     " { \"n\" : 1 , \"prompt\" :\n\"" MARK "\"\t, \"user\":\"]\" } "},
    /* a key in a string, and one further in */
    {"{\"user\":\"\\\"prompt\\\":[1]\",\"prompt\":[7]}",
     "{\"user\":\"\\\"prompt\\\":[1]\",\"prompt\":\"" MARK "\"}"},
    {"{\"a\":{\"prompt\":[1]},\"b\":[\"prompt\"],\"prompt\":[7]}",
     "{\"a\":{\"prompt\":[1]},\"b\":[\"prompt\"],\"prompt\":\"" MARK "\"}"},
    {"{\"user\":\"prompt\",\"prompt\":[7]}",
     "{\"user\":\"prompt\",\"prompt\":\"" MARK "\"}"},
    /* not a list of plain numbers */
    {"{\"prompt\":[]}", NULL},
    {"{\"prompt\":\"text\"}", NULL},
    {"{\"prompt\":[\"text\"]}", NULL},
    {"{\"prompt\":[[1,2],[3]]}", NULL},
    {"{\"prompt\":[1,-2]}", NULL},
    {"{\"prompt\":[1.0]}", NULL},
    {"{\"prompt\":[1e2]}", NULL},
    {"{\"prompt\":[01]}", NULL},
    {"{\"prompt\":[2147483648]}", NULL},
    {"{\"prompt\":[99999999999999999999999]}", NULL},
    {"{\"prompt\":[1,]}", NULL},
    {"{\"prompt\":[1 2]}", NULL},
    {"{\"prompt\":[1", NULL},
    {"{\"prompt\":[1,2,", NULL},
    {"{\"prompt\":", NULL},
    {"{\"prompt", NULL},
    /* which one counts? */
    {"{\"prompt\":[1],\"prompt\":[2]}", NULL},
    {"{\"prompt\":[1],\"prompt\":\"x\"}", NULL},
    {"{\"prompt\":\"x\",\"prompt\":[1]}", NULL},
    /* somebody knows the mark */
    {"{\"prompt\":[1],\"user\":\"" MARK "\"}", NULL},
    {"{\"prompt\":[1],\"pro\\u006dpt\":\"\\uFdd0\"}", NULL},
    /* no object */
    {"[\"prompt\",[1]]", NULL},
    {"[{\"prompt\":[1]}]", NULL},
    {"", NULL},
};

static void only_what_is_plain_is_lifted(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        bt_api_lift_t lift;
        const bool is_lifted =
            bt_api_lift(cases[i].body, strlen(cases[i].body), &lift);

        if (is_lifted != (cases[i].rest != NULL)) {
            fail_msg("%s: %d", cases[i].body, is_lifted);
        }
        if (is_lifted) {
            assert_string_equal(lift.text.data, cases[i].rest);
            bt_api_lift_fini(&lift);
        }
    }
}

static void ids_are_those_of_the_list(void **state)
{
    static const char body[] =
        "{\"prompt\": [0, 17 ,2147483647,\r\n5\t], \"n\": 2}";
    bt_api_lift_t lift;

    (void)state;
    assert_true(bt_api_lift(body, sizeof(body) - 1, &lift));
    assert_int_equal(lift.n_ids, 4);
    assert_int_equal(lift.ids[0], 0);
    assert_int_equal(lift.ids[1], 17);
    assert_int_equal(lift.ids[2], INT32_MAX);
    assert_int_equal(lift.ids[3], 5);
    bt_api_lift_fini(&lift);
}

/* Requests and errors, with their lines and bytes. */
static void the_request_is_the_same_either_way(void **state)
{
    static const char *const more[] = {
        "{\"prompt\":[1,2,3],\"max_tokens\":5,\"stop\":[\"a\"]}",
        "{\"prompt\":[1,2,3],\"max_tokens\":-5}",
        "{\"prompt\":[1,2,3],\n\"max_tokens\":}",
        "{\"prompt\":[1,2,3]} x",
        "{\"prompt\":[1,2,3],\"pro\\u006dpt\":\"last\"}",
        "{\"pro\\u006dpt\":\"first\",\"prompt\":[1,2,3]}",
        "{\"prompt\":[1,2,3],\"n\":65}",
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases) + BT_ARRAY_LEN(more); i++) {
        const char *body = (i < BT_ARRAY_LEN(cases))
                               ? cases[i].body
                               : more[i - BT_ARRAY_LEN(cases)];
        bt_api_request_t r[2];
        bt_api_error_t errors[2];
        bt_status_t status[2];

        memset(r, 0, sizeof(r));
        memset(errors, 0, sizeof(errors));
        for (int k = 0; k < 2; k++) {
            status[k] = bt_api_parse_as(BT_API_COMPLETIONS, body, strlen(body),
                                        k == 1, &r[k], &errors[k]);
        }
        assert_int_equal(status[0], status[1]);
        assert_string_equal(errors[0].message, errors[1].message);
        assert_int_equal(r[0].n_prompts, r[1].n_prompts);
        assert_int_equal(r[0].n_stops, r[1].n_stops);
        for (size_t p = 0; p < r[0].n_prompts; p++) {
            assert_int_equal(r[0].prompts[p].n_ids, r[1].prompts[p].n_ids);
            if (r[0].prompts[p].n_ids > 0) {
                assert_memory_equal(r[0].prompts[p].ids, r[1].prompts[p].ids,
                                    r[0].prompts[p].n_ids * sizeof(uint32_t));
            } else {
                assert_string_equal(r[0].prompts[p].text, r[1].prompts[p].text);
            }
        }
        for (int k = 0; k < 2; k++) {
            bt_api_request_fini(&r[k]);
        }
    }
}

static void without_memory_nothing_is_lifted(void **state)
{
    static const char body[] = "{\"prompt\":[1,2,3]}";
    bt_api_lift_t lift;

    (void)state;
    for (int nth = 1; nth <= 2; nth++) {
        bt_alloc_fail_at(nth);
        assert_false(bt_api_lift(body, sizeof(body) - 1, &lift));
        bt_alloc_fail_at(0);
    }
    assert_true(bt_api_lift(body, sizeof(body) - 1, &lift));
    bt_api_lift_fini(&lift);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(only_what_is_plain_is_lifted),
        BT_TEST(ids_are_those_of_the_list),
        BT_TEST(the_request_is_the_same_either_way),
        BT_TEST(without_memory_nothing_is_lifted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
