/* SPDX-License-Identifier: Apache-2.0 */
/* Models in several files. The keys and names are those of llama.cpp's
 * gguf-split. */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "inference/gguf/gguf.h"
#include "tests/unit/inference/gguf/writing.h"

#define N_PARTS    3u
#define PART_BYTES 32u /* of a tensor's data */

static char why[512];
static const char *const tensor_names[] = {"a", "b", "c", "d"};

/* What one part says; the first has metadata, and no tensors. */
typedef struct part {
    uint64_t no;
    uint64_t count;
    uint64_t n_tensors; /* of all parts */
    bool no_total;      /* the key for it is not there */
    uint32_t first;     /* its tensors, of tensor_names */
    uint32_t n_own;
    uint8_t fill; /* of their data */
} part_t;

static const part_t good[N_PARTS] = {
    {.no = 0, .count = 3, .n_tensors = 3},
    {.no = 1, .count = 3, .n_tensors = 3, .first = 0, .n_own = 2, .fill = 1},
    {.no = 2, .count = 3, .n_tensors = 3, .first = 2, .n_own = 1, .fill = 2},
};

static void write_part(bt_strbuf_t *buf, const part_t *p)
{
    const uint64_t n_keys = (p->no_total ? 2u : 3u) + (p->no == 0);

    put_header(buf, p->n_own, n_keys);
    if (p->no == 0) {
        put_scalar(buf, "of.the.first", U32, 77, 4);
    }
    put_scalar(buf, "split.no", U16, p->no, 2);
    put_scalar(buf, "split.count", U16, p->count, 2);
    if (!p->no_total) {
        put_scalar(buf, "split.tensors.count", I32, p->n_tensors, 4);
    }
    for (uint32_t i = 0; i < p->n_own; i++) {
        put_tensor(buf, tensor_names[p->first + i], 8, 1, 0,
                   (uint64_t)i * PART_BYTES);
    }
    pad(buf);
    for (uint32_t i = 0; i < p->n_own * PART_BYTES; i++) {
        put(buf, p->fill, 1);
    }
    assert_int_equal(bt_strbuf_status(buf), BT_OK);
}

/* Of parts in memory, which is kept until the next call. */
static bt_strbuf_t bufs[N_PARTS];

static bt_status_t open_parts(const part_t *parts, uint32_t n,
                              bt_gguf_t **gguf_p)
{
    bt_gguf_span_t bytes[N_PARTS];

    for (uint32_t i = 0; i < n; i++) {
        bt_strbuf_fini(&bufs[i]);
        write_part(&bufs[i], &parts[i]);
        bytes[i] = (bt_gguf_span_t){.data = bufs[i].data, .bytes = bufs[i].len};
    }
    why[0] = '\0';
    return bt_gguf_open_memory_parts(bytes, n, why, sizeof(why), gguf_p);
}

/* ---- files ---- */

static char folder[] = "/tmp/baton-test-split-XXXXXX";

static const char *path_of(uint32_t i)
{
    static char path[128];

    snprintf(path, sizeof(path), "%s/model-%05u-of-%05u.gguf", folder, i + 1,
             N_PARTS);
    return path;
}

static void write_file(uint32_t i, const part_t *part)
{
    FILE *const file = fopen(path_of(i), "we");
    bt_strbuf_t buf;

    assert_non_null(file);
    write_part(&buf, part);
    assert_int_equal(fwrite(buf.data, buf.len, 1, file), 1);
    assert_int_equal(fclose(file), 0);
    bt_strbuf_fini(&buf);
}

static int make_files(void **state)
{
    if (bt_test_setup(state) != 0) {
        return -1;
    }
    memcpy(folder, "/tmp/baton-test-split-XXXXXX", sizeof(folder));
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    for (uint32_t i = 0; i < N_PARTS; i++) {
        write_file(i, &good[i]);
    }
    return 0;
}

static int remove_files(void **state)
{
    for (uint32_t i = 0; i < N_PARTS; i++) {
        unlink(path_of(i));
    }
    return (rmdir(folder) == 0) ? bt_test_teardown(state) : -1;
}

static bt_gguf_t *open_part(uint32_t i)
{
    bt_gguf_t *gguf = NULL;

    assert_int_equal(bt_gguf_open(path_of(i), why, sizeof(why), &gguf), BT_OK);
    assert_string_equal(why, "");
    return gguf;
}

static void expect_refusal(uint32_t i, bt_status_t status, const char *text)
{
    bt_gguf_t *gguf = NULL;

    why[0] = '\0';
    assert_int_equal(bt_gguf_open(path_of(i), why, sizeof(why), &gguf), status);
    if (strstr(why, text) == NULL) {
        fail_msg("\"%s\" has no \"%s\"", why, text);
    }
    assert_null(gguf);
}

/* ---- tests ---- */

static void split_model_opens_by_any_of_its_parts(void **state)
{
    bt_hash128_t identity[N_PARTS];
    bt_hash128_t content[N_PARTS];

    (void)state;
    for (uint32_t i = 0; i < N_PARTS; i++) {
        bt_gguf_t *const gguf = open_part(i);
        uint32_t value = 0;

        assert_int_equal(bt_gguf_get_u32(gguf, "of.the.first", &value), BT_OK);
        assert_int_equal(value, 77);
        assert_int_equal(bt_gguf_n_tensors(gguf), 3);
        for (uint32_t t = 0; t < 3; t++) {
            const bt_gguf_tensor_t *const tensor =
                bt_gguf_tensor(gguf, tensor_names[t]);

            assert_non_null(tensor);
            assert_ptr_equal(tensor, bt_gguf_tensor_at(gguf, t));
            assert_int_equal(tensor->bytes, PART_BYTES);
            assert_int_equal(((const uint8_t *)tensor->data)[PART_BYTES - 1],
                             (t < 2) ? 1 : 2);
        }
        assert_null(bt_gguf_tensor(gguf, "d"));
        identity[i] = bt_gguf_identity(gguf);
        content[i] = bt_gguf_content(gguf);
        assert_memory_equal(&identity[i], &identity[0], sizeof(identity[0]));
        assert_memory_equal(&content[i], &content[0], sizeof(content[0]));
        bt_gguf_close(gguf);
    }
}

static void split_identity_content_and_size_cover_all_parts(void **state)
{
    part_t other = good[2];
    bt_gguf_t *gguf = open_part(0);
    const bt_hash128_t identity = bt_gguf_identity(gguf);
    const bt_hash128_t content = bt_gguf_content(gguf);
    struct stat st;
    size_t bytes = 0;
    bt_hash128_t now;

    (void)state;
    for (uint32_t i = 0; i < N_PARTS; i++) {
        assert_int_equal(stat(path_of(i), &st), 0);
        bytes += (size_t)st.st_size;
    }
    assert_int_equal(bt_gguf_bytes(gguf), bytes);
    bt_gguf_close(gguf);

    other.fill = 3;
    write_file(2, &other);
    gguf = open_part(0);
    now = bt_gguf_identity(gguf);
    assert_memory_not_equal(&now, &identity, sizeof(now));
    now = bt_gguf_content(gguf);
    assert_memory_not_equal(&now, &content, sizeof(now));
    bt_gguf_close(gguf);
}

static void split_stamp_changes_with_any_part(void **state)
{
    bt_gguf_t *const gguf = open_part(0);
    bt_gguf_stamp_t before;
    bt_gguf_stamp_t after;

    (void)state;
    assert_int_equal(bt_gguf_stamp(gguf, &before), BT_OK);
    assert_int_equal(before.bytes, bt_gguf_bytes(gguf));
    assert_int_equal(bt_gguf_stamp(gguf, &after), BT_OK);
    assert_memory_equal(&before, &after, sizeof(before));
    assert_int_equal(truncate(path_of(1), 1), 0);
    assert_int_equal(bt_gguf_stamp(gguf, &after), BT_OK);
    assert_true(after.inode != before.inode);
    assert_true(after.bytes < before.bytes);
    bt_gguf_close(gguf);
}

static void missing_split_part_is_named(void **state)
{
    (void)state;
    assert_int_equal(unlink(path_of(1)), 0);
    expect_refusal(0, BT_ERR_NOT_FOUND, "part 2 of 3: ");
    expect_refusal(2, BT_ERR_NOT_FOUND,
                   "model-00002-of-00003.gguf: No such file");
}

static void truncated_split_part_is_named(void **state)
{
    (void)state;
    assert_int_equal(truncate(path_of(2), 150), 0);
    expect_refusal(0, BT_ERR_BAD_FILE, "part 3 of 3: ");
    assert_int_equal(truncate(path_of(2), 0), 0);
    expect_refusal(1, BT_ERR_BAD_FILE, "model-00003-of-00003.gguf is empty");
}

static void misnamed_split_part_error_names_the_expected_name(void **state)
{
    char other[128];
    bt_gguf_t *gguf = NULL;

    (void)state;
    snprintf(other, sizeof(other), "%s/x.gguf", folder);
    assert_int_equal(rename(path_of(1), other), 0);
    assert_int_equal(bt_gguf_open(other, why, sizeof(why), &gguf),
                     BT_ERR_BAD_FILE);
    assert_non_null(strstr(why, "must end in -00002-of-00003.gguf"));
    assert_null(gguf);
    assert_int_equal(unlink(other), 0);
}

/* Each changes one thing of the good parts. */
static void split_parts_of_different_models_are_refused(void **state)
{
    static const struct {
        uint32_t at;
        part_t part;
        const char *text;
    } cases[] = {
        {1,
         {.no = 2, .count = 3, .n_tensors = 3, .n_own = 2},
         "part 2 of 3 says that it is part 3 of 3"},
        {2,
         {.no = 2, .count = 4, .n_tensors = 3, .first = 2, .n_own = 1},
         "part 3 of 3 says that it is part 3 of 4"},
        {1,
         {.no = 1, .count = 3, .n_tensors = 9, .n_own = 2},
         "part 2 of 3 is of another model: of one with 9 tensors, not 3"},
        {2,
         {.no = 2, .count = 3, .no_total = true, .first = 2, .n_own = 1},
         "part 3 of 3 is of another model"},
        {2,
         {.no = 2, .count = 3, .n_tensors = 3, .first = 2, .n_own = 2},
         "there are 4 tensors in 3 files, but key split.tensors.count is 3"},
        {2,
         {.no = 2, .count = 3, .n_tensors = 3, .first = 1, .n_own = 1},
         "tensor b occurs twice"},
        {0, {.no = 0, .count = 0, .n_tensors = 3}, "part 0 of 0"},
        {2,
         {.no = 3, .count = 3, .n_tensors = 3, .first = 2, .n_own = 1},
         "part 3 of 3"},
        {1,
         {.no = 1, .count = 257, .n_tensors = 3, .n_own = 2},
         "part 1 of 257"},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        part_t parts[N_PARTS];
        bt_gguf_t *gguf = NULL;

        memcpy(parts, good, sizeof(parts));
        parts[cases[i].at] = cases[i].part;
        assert_int_equal(open_parts(parts, N_PARTS, &gguf), BT_ERR_BAD_FILE);
        assert_null(gguf);
        if (strstr(why, cases[i].text) == NULL) {
            fail_msg("\"%s\" has no \"%s\"", why, cases[i].text);
        }
    }
}

static void incomplete_and_mixed_splits_are_refused(void **state)
{
    part_t whole = {.count = 1, .n_tensors = 1, .n_own = 1};
    bt_gguf_t *gguf = NULL;

    (void)state;
    assert_int_equal(open_parts(good, 1, &gguf), BT_ERR_BAD_FILE);
    assert_non_null(strstr(why, "part 1 of 1 says that it is part 1 of 3"));
    assert_int_equal(open_parts(&whole, 1, &gguf), BT_OK);
    bt_gguf_close(gguf);
    gguf = NULL;
    whole.n_tensors = 2;
    assert_int_equal(open_parts(&whole, 1, &gguf), BT_ERR_BAD_FILE);
    assert_non_null(strstr(why, "there are 1 tensors in 1 files"));
    assert_int_equal(
        bt_gguf_open_memory_parts(NULL, 0, why, sizeof(why), &gguf),
        BT_ERR_BAD_FILE);
    assert_null(gguf);
}

static void split_open_survives_every_failed_allocation(void **state)
{
    bt_gguf_t *gguf = NULL;
    bt_status_t status = BT_ERR_NO_MEMORY;
    int nth;

    (void)state;
    for (nth = 1; status != BT_OK; nth++) {
        assert_true(nth < 60);
        bt_alloc_fail_at(nth);
        status = bt_gguf_open(path_of(1), why, sizeof(why), &gguf);
        bt_alloc_fail_at(0);
        assert_true((status == BT_OK) || (status == BT_ERR_NO_MEMORY));
    }
    assert_true(nth > 8);
    bt_gguf_close(gguf);
}

#define FILES_TEST(f) \
    cmocka_unit_test_setup_teardown(f, make_files, remove_files)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILES_TEST(split_model_opens_by_any_of_its_parts),
        FILES_TEST(split_identity_content_and_size_cover_all_parts),
        FILES_TEST(split_stamp_changes_with_any_part),
        FILES_TEST(missing_split_part_is_named),
        FILES_TEST(truncated_split_part_is_named),
        FILES_TEST(misnamed_split_part_error_names_the_expected_name),
        FILES_TEST(split_open_survives_every_failed_allocation),
        BT_TEST(split_parts_of_different_models_are_refused),
        BT_TEST(incomplete_and_mixed_splits_are_refused),
    };

    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    for (uint32_t i = 0; i < N_PARTS; i++) {
        bt_strbuf_fini(&bufs[i]);
    }
    return failed;
}
