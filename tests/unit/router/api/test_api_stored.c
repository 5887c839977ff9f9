/* SPDX-License-Identifier: Apache-2.0 */
/* Stored responses: their form, conversations, and whose make room. */
#include "tests/support/testsupport.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "router/api/api_stored.h"

#define NOW_US 1700000000000000u /* 2023-11-14 22:13:20 */

static bt_store_t *open_store(uint64_t limit, uint64_t space)
{
    const bt_store_config_t config = {.path = "",
                                      .key_path = "",
                                      .munge_socket = "",
                                      .limit_bytes = limit,
                                      .space_bytes = space,
                                      .ttl_s = 100};
    bt_store_t *store = NULL;

    assert_int_equal(bt_store_open(&config, NOW_US, &store), BT_OK);
    assert_true(bt_store_is_in_memory(store));
    return store;
}

/* @return BT_OK, and the id */
static bt_status_t put(bt_store_t *store, const char *space,
                       const char *previous, const char *items,
                       const char *response, char id[BT_STORE_ID_BYTES])
{
    bt_store_put_t *p;
    bt_strbuf_t text;
    bt_status_t status;

    bt_store_id_make(BT_STORE_RESPONSE, id);
    status = bt_api_stored_reserve(
        store, space, id, strlen(items) + strlen(response), NOW_US, &p);
    if (status != BT_OK) {
        return status;
    }
    bt_strbuf_init(&text, 1u << 20);
    bt_strbuf_puts(&text, response);
    assert_int_equal(bt_api_stored_write(p, previous, items, &text), BT_OK);
    bt_strbuf_fini(&text);
    assert_non_null(bt_store_put_end(p));
    return BT_OK;
}

static void response_is_read_as_it_was_written(void **state)
{
    bt_store_t *store = open_store(1u << 20, 1u << 20);
    char id[BT_STORE_ID_BYTES];
    bt_api_stored_t stored;
    bt_stored_t *object;

    (void)state;
    assert_int_equal(put(store, "a", NULL, "[1]", "{\"output\":[]}", id),
                     BT_OK);
    assert_null(bt_store_find(store, BT_STORE_RESPONSE, "b", id));
    assert_null(bt_store_find(store, BT_STORE_FILE, "a", id));
    object = bt_store_find(store, BT_STORE_RESPONSE, "a", id);
    assert_non_null(object);
    assert_int_equal(object->bytes, 8 + 3 + 13);
    assert_int_equal(bt_api_stored_read(store, object, &stored), BT_OK);
    assert_int_equal(stored.items_bytes, 3);
    assert_memory_equal(stored.items, "[1]", 3);
    assert_int_equal(stored.response_bytes, 13);
    assert_memory_equal(stored.response, "{\"output\":[]}", 13);
    bt_api_stored_fini(&stored);
    bt_store_close(store);
}

static bt_status_t read_items(bt_api_history_t *history, bt_strbuf_t *items,
                              bt_api_error_t *error)
{
    const bt_status_t status = bt_api_history_read(history, error);

    return (status == BT_OK) ? bt_api_history_put_items(history, items, error)
                             : status;
}

static void conversation_is_read_from_its_beginning(void **state)
{
    bt_store_t *store = open_store(1u << 20, 1u << 20);
    char a[BT_STORE_ID_BYTES], b[BT_STORE_ID_BYTES], c[BT_STORE_ID_BYTES];
    bt_api_history_t history;
    bt_api_error_t error = {0};
    bt_strbuf_t items;

    (void)state;
    assert_int_equal(put(store, "", NULL, "[1,2]", "{\"output\":[3]}", a),
                     BT_OK);
    assert_int_equal(put(store, "", a, "[4]", "{\"output\":[]}", b), BT_OK);
    assert_int_equal(put(store, "", b, "[5]", "{\"id\":0,\"output\":[6,7]}", c),
                     BT_OK);
    assert_int_equal(bt_api_history_find(store, "", c, &history, &error),
                     BT_OK);
    assert_int_equal(history.n, 3);
    bt_strbuf_init(&items, 1u << 20);
    assert_int_equal(read_items(&history, &items, &error), BT_OK);
    assert_string_equal(items.data, "[1,2,3,4,5,6,7]");
    bt_strbuf_fini(&items);
    bt_api_history_fini(&history);
    /* Used while it is deleted: what was found stays. */
    assert_int_equal(bt_api_history_find(store, "", b, &history, &error),
                     BT_OK);
    bt_store_remove(store, bt_store_find(store, BT_STORE_RESPONSE, "", a));
    bt_strbuf_init(&items, 1u << 20);
    assert_int_equal(read_items(&history, &items, &error), BT_OK);
    assert_string_equal(items.data, "[1,2,3,4]");
    bt_strbuf_fini(&items);
    bt_api_history_fini(&history);
    assert_int_equal(bt_api_history_find(store, "", c, &history, &error),
                     BT_ERR_NOT_FOUND);
    assert_int_equal(error.http_status, 400);
    assert_string_equal(error.code, "previous_response_not_found");
    assert_non_null(strstr(error.message, a));
    bt_api_history_fini(&history);
    bt_store_close(store);
}

static void conversation_has_at_most_256_responses(void **state)
{
    bt_store_t *store = open_store(16u << 20, 16u << 20);
    char id[BT_STORE_ID_BYTES], previous[BT_STORE_ID_BYTES] = "";
    bt_api_history_t history;
    bt_api_error_t error = {0};

    (void)state;
    for (uint32_t i = 0; i <= BT_API_MAX_CHAIN; i++) {
        assert_int_equal(put(store, "", (i > 0) ? previous : NULL, "[1]",
                             "{\"output\":[2]}", id),
                         BT_OK);
        memcpy(previous, id, sizeof(id));
        assert_int_equal(bt_api_history_find(store, "", id, &history, &error),
                         (i < BT_API_MAX_CHAIN) ? BT_OK : BT_ERR_TOO_LARGE);
        bt_api_history_fini(&history);
    }
    assert_int_equal(error.http_status, 400);
    assert_string_equal(error.param, "previous_response_id");
    bt_store_close(store);
}

static bool is_there(const bt_store_t *store, const char *space, const char *id)
{
    return bt_store_find(store, BT_STORE_RESPONSE, space, id) != NULL;
}

/* Of 4096 + 8 + 16 bytes each. */
static void who_uses_most_makes_room(void **state)
{
    const uint64_t each = 4096 + 8 + 16;
    bt_store_t *store = open_store(4 * each, 3 * each);
    char a[5][BT_STORE_ID_BYTES], b[BT_STORE_ID_BYTES], c[BT_STORE_ID_BYTES];
    char large[3 * 4096];

    (void)state;
    for (int i = 0; i < 4; i++) { /* three fit */
        assert_int_equal(put(store, "a", NULL, "[1]", "{\"output\":[]}", a[i]),
                         BT_OK);
    }
    assert_false(is_there(store, "a", a[0]));
    assert_true(is_there(store, "a", a[1]));
    assert_int_equal(put(store, "b", NULL, "[1]", "{\"output\":[]}", b), BT_OK);
    assert_true(is_there(store, "a", a[1]));
    /* The store is full: not b's only one goes, but a's oldest. */
    assert_int_equal(put(store, "c", NULL, "[1]", "{\"output\":[]}", c), BT_OK);
    assert_false(is_there(store, "a", a[1]));
    assert_true(is_there(store, "a", a[2]) && is_there(store, "b", b) &&
                is_there(store, "c", c));
    /* What never fits moves nothing. */
    memset(large, '1', sizeof(large));
    large[sizeof(large) - 1] = '\0';
    assert_int_equal(put(store, "b", NULL, large, "{\"output\":[]}", a[4]),
                     BT_ERR_TOO_LARGE);
    assert_true(is_there(store, "a", a[2]) && is_there(store, "b", b));
    bt_store_close(store);
}

/* Nobody who uses less than a tenant would makes room for it. */
static void who_uses_less_keeps_all(void **state)
{
    static const char *const spaces[] = {"a", "b", "c", "d"};
    const uint64_t each = 4096 + 8 + 16;
    bt_store_t *store = open_store(4 * each, 3 * each);
    char ids[4][BT_STORE_ID_BYTES], id[BT_STORE_ID_BYTES];
    char items[4097];

    (void)state;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(
            put(store, spaces[i], NULL, "[1]", "{\"output\":[]}", ids[i]),
            BT_OK);
    }
    memset(items, '1', sizeof(items));
    items[sizeof(items) - 1] = '\0';
    assert_int_equal(put(store, "e", NULL, items, "{\"output\":[]}", id),
                     BT_ERR_TOO_LARGE);
    for (int i = 0; i < 4; i++) {
        assert_true(is_there(store, spaces[i], ids[i]));
    }
    /* Who uses as much makes room, and so does what is one's own. */
    assert_int_equal(put(store, "e", NULL, "[1]", "{\"output\":[]}", id),
                     BT_OK);
    assert_false(is_there(store, "a", ids[0]));
    assert_int_equal(put(store, "b", NULL, "[1]", "{\"output\":[]}", id),
                     BT_OK);
    assert_false(is_there(store, "b", ids[1]));
    assert_true(is_there(store, "c", ids[2]) && is_there(store, "d", ids[3]));
    bt_store_close(store);
}

static void damaged_response_is_corrupt(void **state)
{
    static const struct {
        const char *text;
        size_t bytes;
    } cases[] = {
        {"", 0},
        {"\1\0\0\0\0\0\0", 7},
        {"\5\0\0\0\0\0\0\0[1]", 11},
        {"\377\377\377\377\377\377\377\377[1]", 11},
    };
    bt_store_t *store = open_store(1u << 20, 1u << 20);

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        bt_store_put_t *p;
        bt_stored_t *object;
        bt_api_stored_t stored;

        assert_int_equal(bt_store_put_begin(store, BT_STORE_RESPONSE, "",
                                            cases[i].bytes, NOW_US, &p),
                         BT_OK);
        assert_int_equal(bt_store_put_write(p, cases[i].text, cases[i].bytes),
                         BT_OK);
        assert_int_equal(bt_store_put_commit(p), BT_OK);
        object = bt_store_put_end(p);
        assert_int_equal(bt_api_stored_read(store, object, &stored),
                         BT_ERR_CORRUPT);
    }
    bt_store_close(store);
}

static void list_of_items_is_corrupt_or_whole(void **state)
{
    static const char *const cases[] = {"", "{}", "[", "7"};
    const bt_api_items_page_t page = {.limit = 20};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        const bt_api_stored_t stored = {.items = cases[i],
                                        .items_bytes = strlen(cases[i])};
        bt_strbuf_t out;

        bt_strbuf_init(&out, 4096);
        assert_int_equal(
            bt_api_stored_put_items(&stored, "resp_1", &page, &out),
            BT_ERR_CORRUPT);
        bt_strbuf_fini(&out);
    }
}

/* Comparing each item with all before it would take many minutes, which the
 * time limit of the test ends. */
static void many_items_are_listed_in_one_pass(void **state)
{
    const uint32_t n = 200000;
    const bt_api_items_page_t page = {.limit = 2, .is_ascending = false};
    bt_api_stored_t stored = {0};
    bt_strbuf_t items, out;

    (void)state;
    bt_strbuf_init(&items, (size_t)64 << 20);
    bt_strbuf_puts(&items, "[");
    for (uint32_t i = 0; i < n; i++) {
        bt_strbuf_printf(&items,
                         "%s{\"a\":0,\"b\":0,\"c\":0,\"d\":0,\"id\":\"m%u\"}",
                         (i > 0) ? "," : "", (i == n - 1) ? 0 : i);
    }
    bt_strbuf_puts(&items, "]");
    assert_int_equal(bt_strbuf_status(&items), BT_OK);
    stored.items = items.data;
    stored.items_bytes = items.len;
    bt_strbuf_init(&out, 4096);
    assert_int_equal(bt_api_stored_put_items(&stored, "resp_1", &page, &out),
                     BT_OK);
    assert_non_null(strstr(out.data, "\"first_id\":\"msg_1_in199999\","
                                     "\"last_id\":\"m199998\","
                                     "\"has_more\":true"));
    bt_strbuf_fini(&out);
    bt_strbuf_fini(&items);
}

static void every_failed_allocation_is_reported(void **state)
{
    bt_store_t *store = open_store(1u << 20, 1u << 20);
    char id[BT_STORE_ID_BYTES];
    bt_api_history_t history;
    bt_api_error_t error = {0};
    bt_status_t status = BT_ERR_NO_MEMORY;

    (void)state;
    assert_int_equal(put(store, "", NULL, "[1]", "{\"output\":[2]}", id),
                     BT_OK);
    for (int n = 1; status != BT_OK; n++) {
        bt_strbuf_t items;

        assert_int_equal(bt_api_history_find(store, "", id, &history, &error),
                         BT_OK);
        bt_strbuf_init(&items, 1u << 20);
        bt_alloc_fail_at(n);
        status = read_items(&history, &items, &error);
        if (bt_alloc_fail_at(0) <= 0) {
            assert_int_equal(status, BT_ERR_NO_MEMORY);
            assert_int_equal(error.http_status, 503);
        }
        bt_strbuf_fini(&items);
        bt_api_history_fini(&history);
        assert_true(n < 100);
    }
    bt_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(response_is_read_as_it_was_written),
        BT_TEST(conversation_is_read_from_its_beginning),
        BT_TEST(conversation_has_at_most_256_responses),
        BT_TEST(who_uses_most_makes_room),
        BT_TEST(who_uses_less_keeps_all),
        BT_TEST(damaged_response_is_corrupt),
        BT_TEST(list_of_items_is_corrupt_or_whole),
        BT_TEST(many_items_are_listed_in_one_pass),
        BT_TEST(every_failed_allocation_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
