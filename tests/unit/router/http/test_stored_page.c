/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of lists; what each list shows of an object is its own route's. */
#include "router/http/stored_page.h"
#include "tests/unit/router/batch/batch_fixture.h"

static void write_id(const bt_stored_t *object, bt_json_t *json)
{
    bt_json_str(json, NULL, object->label);
}

static const bt_stored_list_t list = {
    .kind = BT_STORE_FILE,
    .what = "thing",
    .names = "those",
    .most_limit = 5,
    .most_page = 3,
    .has_order = true,
    .has_purpose = true,
    .write = write_id,
};

/* As a route does. @return the text, or the error's */
static const char *page_of(world_t *w, const bt_stored_list_t *of,
                           const char *query)
{
    static char text[1024];
    bt_exchange_t ex = {.query = query};
    bt_http_request_t r = {.door = &w->door, .ex = &ex};
    bt_stored_page_t page = {.limit = 4};
    bt_api_error_t error = {0};
    bt_strbuf_t out;
    bt_json_t json;

    if (bt_stored_page_read(&r, of, &page, &error) != BT_OK) {
        snprintf(text, sizeof(text), "%d %s", error.http_status, error.message);
        return text;
    }
    bt_strbuf_init(&out, sizeof(text) - 1);
    bt_json_init(&json, &out);
    bt_stored_page_write(&r, of, &page, &json);
    assert_int_equal(bt_strbuf_status(&out), BT_OK);
    snprintf(text, sizeof(text), "%s", out.data);
    bt_strbuf_fini(&out);
    return text;
}

static bt_stored_t *put(world_t *w, bt_store_kind_t kind, const char *label)
{
    bt_store_put_t *one;

    assert_int_equal(
        bt_store_put_begin(w->front.store, kind, "", 0, bt_unix_us(), &one),
        BT_OK);
    assert_int_equal(bt_store_put_describe(one, label, strlen(label) + 1, 0),
                     BT_OK);
    assert_int_equal(bt_store_put_commit(one), BT_OK);
    return bt_store_put_end(one);
}

static void shows_only(world_t *w, const char *query, const char *data,
                       bool has_more)
{
    const char *text = page_of(w, &list, query);
    char want[200];

    snprintf(want, sizeof(want), "{\"object\":\"list\",\"data\":[%s],", data);
    assert_int_equal(strncmp(text, want, strlen(want)), 0);
    assert_int_equal(strstr(text, "\"has_more\":true") != NULL, has_more);
}

static void pages_follow_each_other(void **state)
{
    world_t *w = &world;
    bt_stored_t *at[5];
    char query[96];

    (void)state;
    open_world(w, 0);
    shows_only(w, "", "", false);
    for (int i = 0; i < 5; i++) {
        const char label[] = {(char)('a' + i % 4), '\0'};

        at[i] = put(w, BT_STORE_FILE, label);
        (void)put(w, BT_STORE_BATCH, "other");
    }
    shows_only(w, "", "\"a\",\"d\",\"c\"", true);
    shows_only(w, "limit=2", "\"a\",\"d\"", true);
    shows_only(w, "limit=5&order=asc", "\"a\",\"b\",\"c\"", true);
    snprintf(query, sizeof(query), "after=%s", at[3]->id);
    shows_only(w, query, "\"c\",\"b\",\"a\"", false);
    snprintf(query, sizeof(query), "order=asc&after=%s", at[3]->id);
    shows_only(w, query, "\"a\"", false);
    shows_only(w, "purpose=a", "\"a\",\"a\"", false);
    shows_only(w, "purpose=x", "", false);
    bt_store_hide(at[4], true);
    shows_only(w, "purpose=a", "\"a\"", false);
    close_world(w);
    remove_folder();
}

static void parameters_are_refused_by_name(void **state)
{
    static const struct {
        const char *query, *error;
    } cases[] = {
        {"limit=0", "400 limit must be a number from 1 to 5"},
        {"limit=6", "400 limit must be a number from 1 to 5"},
        {"limit=x", "400 limit must be a number from 1 to 5"},
        {"order=up", "400 order must be asc or desc"},
        {"after=x", "404 after: no such thing: x"},
        {"before=x", "400 before is no parameter of this list: these are "
                     "those"},
        {"limit=%", "400 the query is malformed"},
    };
    bt_stored_list_t simple = list;
    world_t *w = &world;

    (void)state;
    open_world(w, 0);
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        assert_string_equal(page_of(w, &list, cases[i].query), cases[i].error);
    }
    simple.has_order = simple.has_purpose = false;
    assert_non_null(strstr(page_of(w, &simple, "order=asc"), "order is no "));
    assert_non_null(strstr(page_of(w, &simple, "purpose=a"), "purpose is no"));
    close_world(w);
    remove_folder();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(pages_follow_each_other),
        BT_TEST(parameters_are_refused_by_name),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
