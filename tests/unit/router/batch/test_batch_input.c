/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of an input, where the chunks of its file end. */
#include "tests/unit/router/batch/batch_fixture.h"

static bt_batch_t *open_batch(world_t *w, const char *text)
{
    open_world(w, 0);
    begin(w, LINE("a", ""));
    put_input(w, text);
    bt_batch_input_close(batch(w));
    bt_stored_unref(batch(w)->input);
    batch(w)->input = bt_stored_ref(
        bt_store_find(w->front.store, BT_STORE_FILE, "", input_id));
    assert_int_equal(bt_batch_input_open(batch(w)), BT_OK);
    return batch(w);
}

static void close_batch(world_t *w)
{
    close_world(w);
    remove_folder();
}

static void reads(bt_batch_t *b, const char *want, size_t bytes, bool is_cut)
{
    bt_batch_text_t line;

    assert_int_equal(bt_batch_input_next(b, &line), BT_OK);
    assert_int_equal(line.bytes, bytes);
    assert_memory_equal(line.text, want, bytes);
    assert_int_equal(line.is_cut, is_cut);
}

static void ends(bt_batch_t *b)
{
    bt_batch_text_t line;

    assert_int_equal(bt_batch_input_next(b, &line), BT_ERR_NOT_FOUND);
}

static void empty_lines_are_no_lines(void **state)
{
    world_t *w = &world;
    bt_batch_t *b = open_batch(w, "\n \t\r\na\r\n\n b\n\nc");

    (void)state;
    reads(b, "a\r\n", 3, false);
    assert_int_equal(b->next_number, 3);
    reads(b, " b\n", 3, false);
    assert_int_equal(b->next_number, 5);
    reads(b, "c", 1, false);
    assert_int_equal(b->next_number, 7);
    ends(b);
    ends(b);
    close_batch(w);
}

/* Around the end of a chunk. */
static void line_is_put_together_of_chunks(void **state)
{
    static char text[3 * BT_STORE_CHUNK_BYTES + 10];
    world_t *w = &world;

    (void)state;
    for (int i = -2; i <= 2; i++) {
        const size_t first = BT_STORE_CHUNK_BYTES + (size_t)(i + 2) - 2;
        const size_t second = 2 * BT_STORE_CHUNK_BYTES;
        bt_batch_t *b;

        memset(text, 'x', first + second);
        text[first - 1] = text[first + second - 1] = '\n';
        text[first + second] = '\0';
        b = open_batch(w, text);
        reads(b, text, first, false);
        reads(b, text + first, second, false);
        ends(b);
        close_batch(w);
    }
}

/* Within a chunk, at its end, and within a later one. */
static void paused_input_goes_on_with_the_next_line(void **state)
{
    static const size_t lengths[] = {100, BT_STORE_CHUNK_BYTES - 100,
                                     3 * BT_STORE_CHUNK_BYTES + 9, 7};
    static char text[5 * BT_STORE_CHUNK_BYTES];
    world_t *w = &world;
    size_t bytes = 0;
    bt_batch_t *b;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(lengths); i++) {
        memset(text + bytes, 'a' + (int)i, lengths[i]);
        bytes += lengths[i];
        text[bytes - 1] = '\n';
    }
    b = open_batch(w, text);
    bytes = 0;
    for (uint32_t i = 0; i < BT_ARRAY_LEN(lengths); i++) {
        reads(b, text + bytes, lengths[i], false);
        assert_int_equal(b->next_number, i + 1);
        bytes += lengths[i];
        bt_batch_input_pause(b);
        assert_null(b->reader);
        bt_batch_input_pause(b);
        assert_int_equal(bt_batch_input_open(b), BT_OK);
    }
    ends(b);
    bt_batch_input_pause(b);
    assert_int_equal(bt_batch_input_open(b), BT_OK);
    ends(b);
    bt_batch_input_close(b); /* that forgets it */
    assert_int_equal(bt_batch_input_open(b), BT_OK);
    reads(b, text, 100, false);
    close_batch(w);
}

/* Its rest is skipped: the next line is whole. */
static void line_that_is_too_long_is_cut(void **state)
{
    static char text[4 * BT_STORE_CHUNK_BYTES];
    const size_t most = 1000 + BT_BATCH_AROUND_BODY;
    static const size_t lengths[] = {1, 100000,
                                     131072 - 1000 - BT_BATCH_AROUND_BODY};
    world_t *w = &world;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(lengths); i++) {
        const size_t n = most + lengths[i];
        bt_batch_t *b;

        memset(text, 'x', n - 1);
        snprintf(text + n - 1, 10, "\nab\n");
        b = open_batch(w, text);
        bt_batch_input_close(b);
        w->config.max_body_bytes = 1000;
        assert_int_equal(bt_batch_input_open(b), BT_OK);
        reads(b, text, most, true);
        reads(b, "ab\n", 3, false);
        ends(b);
        close_batch(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(empty_lines_are_no_lines),
        BT_TEST(line_is_put_together_of_chunks),
        BT_TEST(paused_input_goes_on_with_the_next_line),
        BT_TEST(line_that_is_too_long_is_cut),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
