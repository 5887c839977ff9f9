/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "router/batch/batch_priv.h"

static void state_is_read_as_it_was_written(void **state)
{
    bt_batch_t b = {.status = BT_BATCH_EXPIRED,
                    .ending = BT_BATCH_EXPIRED,
                    .n_lines = 9,
                    .n_ok = 3,
                    .n_failed = 2,
                    .id_bytes = 17,
                    .errors = (char[]){"[{\"code\":\"x\"}]"},
                    .output_id = "file-o",
                    .error_id = "file-e"};
    bt_batch_t read = {.n_lines = 0};
    bt_strbuf_t text;

    (void)state;
    for (uint64_t i = 0; i < BT_BATCH_N_STATUSES; i++) {
        b.at_s[i] = 100 + i;
    }
    bt_strbuf_init(&text, 4096);
    bt_batch_write_state(&b, b.status, &text);
    assert_int_equal(text.data[0], 'S');
    assert_int_equal(bt_batch_read_state(text.data + 1, text.len - 1, &read),
                     BT_OK);
    assert_int_equal(read.status, b.status);
    assert_int_equal(read.ending, b.ending);
    assert_int_equal(read.n_lines, 9);
    assert_int_equal(read.n_ok, 3);
    assert_int_equal(read.n_failed, 2);
    assert_int_equal(read.id_bytes, 17);
    assert_string_equal(read.errors, b.errors);
    assert_string_equal(read.output_id, "file-o");
    assert_string_equal(read.error_id, "file-e");
    assert_memory_equal(read.at_s, b.at_s, sizeof(b.at_s));
    bt_free(read.errors);
    read.errors = NULL;
    for (size_t n = 1; n < text.len; n++) {
        assert_int_equal(bt_batch_read_state(text.data + 1, n - 1, &read),
                         BT_ERR_CORRUPT);
    }
    bt_strbuf_fini(&text);
}

static void parameters_are_read_as_they_were_written(void **state)
{
    const bt_batch_params_t params = {.input_id = "file-1",
                                      .endpoint = "/v1/responses",
                                      .metadata = "{\"a\":\"b\"}",
                                      .output_life_s = 3600};
    bt_batch_t read = {.n_lines = 0};
    bt_strbuf_t text;

    (void)state;
    bt_strbuf_init(&text, 4096);
    bt_batch_write_params(&params, &text);
    assert_int_equal(bt_batch_read_params(text.data, text.len, &read), BT_OK);
    assert_string_equal(read.input_id, "file-1");
    assert_string_equal(read.endpoint->path, "/v1/responses");
    assert_int_equal(read.endpoint->dialect, BT_API_RESPONSES);
    assert_string_equal(read.metadata, "{\"a\":\"b\"}");
    assert_int_equal(read.output_life_s, 3600);
    bt_free(read.metadata);
    bt_strbuf_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(state_is_read_as_it_was_written),
        BT_TEST(parameters_are_read_as_they_were_written),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
