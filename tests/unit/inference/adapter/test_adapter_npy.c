/* SPDX-License-Identifier: Apache-2.0 */
/* Files of numpy as hf_lora_convert.py writes them: heads are those that numpy
 * 2 wrote, and what is cut off or changed in them. */
#include "inference/adapter/adapter_tensors.h"
#include "tests/support/hf_folder.h"
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"

static char why[400];

static void write_file(const char *dir, const char *name, const void *data,
                       size_t bytes)
{
    char path[256];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    fclose(file);
}

/* Writes a file of version 1 or 2 with this head. */
static void write_npy(const char *dir, const char *name, uint8_t version,
                      const char *head, const void *data, size_t bytes)
{
    uint8_t file[1024] = {0x93, 'N', 'U', 'M', 'P', 'Y', version, 0};
    const uint32_t n = (uint32_t)strlen(head);
    const size_t at = (version == 1) ? 10 : 12;

    memcpy(file + 8, &n, at - 8);
    memcpy(file + at, head, n);
    memcpy(file + at + n, data, bytes);
    write_file(dir, name, file, at + n + bytes);
}

#define HEAD(type, shape) \
    "{'descr': '" type "', 'fortran_order': False, 'shape': " shape ", }    \n"
#define W "model.lora_weights.npy"
#define C "model.lora_config.npy"

static const float numbers[6] = {1, 2, 3, 4, 5, 6};
static const int32_t keys[8] = {1, 0, 1, 0, 2, 1, 1, 0};

static void good(const char *dir)
{
    write_npy(dir, W, 1, HEAD("<f4", "(1, 2, 3)"), numbers, sizeof(numbers));
    write_npy(dir, C, 1, HEAD("<i4", "(1, 2, 4)"), keys, sizeof(keys));
}

static void files_of_numpy_are_read(void **state)
{
    const char *const dir = bt_hf_folder_make();
    bt_adapter_tensors_t *t = NULL;

    (void)state;
    good(dir);
    assert_int_equal(bt_adapter_tensors_read(dir, why, sizeof(why), &t), BT_OK);
    assert_int_equal(t->type, BT_ADAPTER_F32);
    assert_int_equal(t->n_rows, 2);
    assert_int_equal(t->n_columns, 4);
    assert_int_equal(t->width, 3);
    assert_memory_equal(t->weights, numbers, sizeof(numbers));
    assert_memory_equal(t->config, keys, sizeof(keys));
    bt_free(t);
    /* Without the batch, in version 2; F16, and BF16 as two bytes. */
    write_npy(dir, W, 2, HEAD("<f2", "(2, 6)"), numbers, sizeof(numbers));
    write_npy(dir, C, 2, HEAD("<i4", "(2, 4)"), keys, sizeof(keys));
    assert_int_equal(bt_adapter_tensors_read(dir, why, sizeof(why), &t), BT_OK);
    assert_int_equal(t->type, BT_ADAPTER_F16);
    assert_int_equal(t->width, 6);
    bt_free(t);
    write_npy(dir, W, 1, HEAD("|V2", "(2, 6)"), numbers, sizeof(numbers));
    assert_int_equal(bt_adapter_tensors_read(dir, why, sizeof(why), &t), BT_OK);
    assert_int_equal(t->type, BT_ADAPTER_BF16);
    bt_free(t);
    bt_hf_folder_remove(dir);
}

static void other_files_are_refused_by_name(void **state)
{
    static const struct {
        const char *name, *head;
        size_t bytes;
    } cases[] = {
        {W, HEAD("<f4", "(1, 2, 4)"), 24}, /* too short */
        {W, HEAD("<f4", "(1, 2, 2)"), 24}, /* too long */
        {W, HEAD("<f4", "(2, 2, 3)"), 24},
        {W, HEAD("<f4", "(6,)"), 24},
        {W, HEAD("<f4", "(0, 6)"), 0},
        {W, HEAD("<f4", "(1, 1, 2, 3)"), 24},
        {W, HEAD("<f4", "(4294967296, 4294967296)"), 24},
        {W, HEAD("<f4", "(2, 18446744073709551615)"), 24},
        {W, HEAD("<f4", "(2, -3)"), 24},
        {W, HEAD("<f4", "2, 3"), 24},
        {W, HEAD(">f4", "(2, 3)"), 24},
        {W, HEAD("<f8", "(2, 3)"), 48},
        {W, HEAD("|O", "(2, 3)"), 24},
        {W, HEAD("longer than any type", "(2, 3)"), 24},
        {W, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", 24},
        {W, "{'fortran_order': False, 'shape': (2, 3), }", 24},
        {W, "{'descr': '<f4", 24},
        {W, "", 24},
        {C, HEAD("<i8", "(1, 2, 4)"), 32},
        {C, HEAD("<i4", "(1, 4, 2)"), 32},
        {C, HEAD("<i4", "(1, 1, 4)"), 16},
        {C, HEAD("<i4", "(1, 2, 4)"), 31},
    };
    static const uint8_t bytes[64] = {0};
    const char *const dir = bt_hf_folder_make();
    bt_adapter_tensors_t *t = NULL;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        good(dir);
        write_npy(dir, cases[i].name, 1, cases[i].head, bytes, cases[i].bytes);
        if (bt_adapter_tensors_read(dir, why, sizeof(why), &t) !=
            BT_ERR_BAD_FILE) {
            fail_msg("%s is accepted", cases[i].head);
        }
        assert_non_null(strstr(why, cases[i].name));
    }
    good(dir);
    for (size_t n = 0; n < 20; n++) { /* cut off in the head */
        static const uint8_t start[20] = {0x93, 'N', 'U', 'M', 'P', 'Y',
                                          1,    0,   118, 0,   '{', '\''};

        write_file(dir, W, start, n);
        assert_int_equal(bt_adapter_tensors_read(dir, why, sizeof(why), &t),
                         BT_ERR_BAD_FILE);
    }
    bt_hf_folder_remove(dir);
    assert_int_equal(bt_adapter_tensors_read("/nowhere", why, sizeof(why), &t),
                     BT_ERR_NOT_FOUND);
    assert_string_equal(why, "/nowhere/" W " cannot be read");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(files_of_numpy_are_read),
        BT_TEST(other_files_are_refused_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
