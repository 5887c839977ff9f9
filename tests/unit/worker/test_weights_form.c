/* SPDX-License-Identifier: Apache-2.0 */
/* Which weights may replace others, and where they may lie. */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/tiny_model.h"
#include "worker/weights.h"

static char folder[] = "/tmp/baton-test-weights-XXXXXX";

static bt_weights_form_t form_of(const bt_tiny_model_t *shape)
{
    char path[256], why[256];
    bt_gguf_t *gguf = NULL;
    bt_weights_form_t form;

    snprintf(path, sizeof(path), "%s/model.gguf", folder);
    assert_int_equal(bt_tiny_model_write(shape, path), BT_OK);
    assert_int_equal(bt_gguf_open(path, why, sizeof(why), &gguf), BT_OK);
    form = bt_weights_form_of(gguf);
    bt_gguf_close(gguf);
    return form;
}

static void form_is_of_all_but_numbers_and_types(void **state)
{
    bt_tiny_model_t shape = bt_tiny_model_default();
    bt_weights_form_t form, other;

    (void)state;
    form = form_of(&shape);
    shape.seed++;
    other = form_of(&shape);
    assert_null(bt_weights_form_differs(&form, &other));
    shape.ffn_dim *= 2;
    other = form_of(&shape);
    assert_non_null(strstr(bt_weights_form_differs(&form, &other), "settings"));
    shape = bt_tiny_model_default();
    shape.tied = !shape.tied;
    other = form_of(&shape);
    assert_non_null(strstr(bt_weights_form_differs(&form, &other), "tensors"));
    shape = bt_tiny_model_default();
    shape.n_vocab += 8;
    other = form_of(&shape);
    assert_non_null(
        strstr(bt_weights_form_differs(&form, &other), "tokenizer"));
}

static bt_status_t resolve(const char *path, char out[BT_WIRE_MAX_PATH])
{
    char why[256] = "";
    const bt_status_t status =
        bt_weights_resolve(folder, path, out, why, sizeof(why));

    assert_true((status == BT_OK) == (why[0] == '\0'));
    return status;
}

static void path_is_below_its_folder(void **state)
{
    char out[BT_WIRE_MAX_PATH], expected[256], path[256];
    static char longest[8192];

    (void)state;
    snprintf(path, sizeof(path), "%s/sub", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(expected, sizeof(expected), "%s/sub", folder);
    assert_int_equal(resolve("sub", out), BT_OK);
    assert_string_equal(out, expected);
    assert_int_equal(resolve(path, out), BT_OK);
    assert_int_equal(resolve("./sub/../sub/", out), BT_OK);
    assert_string_equal(out, expected);
    assert_int_equal(resolve("none", out), BT_ERR_NOT_FOUND);
    assert_int_equal(resolve("/", out), BT_ERR_INVALID_PARAM);
    assert_int_equal(resolve("..", out), BT_ERR_INVALID_PARAM);
    assert_int_equal(resolve(".", out), BT_ERR_INVALID_PARAM);
    assert_int_equal(resolve("/tmp", out), BT_ERR_INVALID_PARAM);

    /* A folder whose name only begins alike, and a link out of it. */
    snprintf(path, sizeof(path), "%s-other", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(resolve(path, out), BT_ERR_INVALID_PARAM);
    snprintf(expected, sizeof(expected), "%s/link", folder);
    assert_int_equal(symlink(path, expected), 0);
    assert_int_equal(resolve("link", out), BT_ERR_INVALID_PARAM);
    assert_int_equal(unlink(expected), 0);
    /* One whose name cannot be logged. */
    snprintf(path, sizeof(path), "%s/a\nb", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(symlink(path, expected), 0);
    assert_int_equal(resolve("link", out), BT_ERR_INVALID_PARAM);
    assert_int_equal(unlink(expected), 0);
    assert_int_equal(rmdir(path), 0);
    snprintf(path, sizeof(path), "%s-other", folder);
    assert_int_equal(rmdir(path), 0);
    memset(longest, 'x', sizeof(longest) - 1);
    assert_int_equal(resolve(longest, out), BT_ERR_TOO_LARGE);
    snprintf(path, sizeof(path), "%s/sub", folder);
    assert_int_equal(rmdir(path), 0);
}

static int make_folder(void **state)
{
    (void)state;
    return (mkdtemp(folder) != NULL) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char path[256];

    (void)state;
    snprintf(path, sizeof(path), "%s/model.gguf", folder);
    return unlink(path) + rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(form_is_of_all_but_numbers_and_types),
        BT_TEST(path_is_below_its_folder),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
