/* SPDX-License-Identifier: Apache-2.0 */
/* Expected values: tests/golden/imatrix.txt, by numpy, struct and the gguf
 * package (make_imatrix_golden.py). */
#include "tests/support/testsupport.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "tests/support/tiny_model.h"
#include "tools/imatrix/imatrix.h"

#define PATH     128
#define N_TOKENS 40
#define WINDOW   16u

static char dir[PATH / 2];
static char why[512];

static const char *in_dir(const char *name)
{
    static char paths[4][PATH];
    static unsigned next;
    char *const path = paths[next++ % 4];

    snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
    return path;
}

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/test_imatrix.XXXXXX");
    return (mkdtemp(dir) == NULL) ? 1 : 0;
}

static int remove_dir(void **state)
{
    static const char *const names[] = {"text", "tiny.gguf", "file",
                                        "file.part", "again"};

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)unlink(in_dir(names[i]));
    }
    return rmdir(dir);
}

static void put_file(const char *name, const void *data, size_t n)
{
    FILE *const file = fopen(in_dir(name), "w");

    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static bt_gguf_t *open_tiny(const char *architecture, uint64_t seed)
{
    bt_tiny_model_t tiny = bt_tiny_model_default();
    bt_gguf_t *gguf = NULL;

    tiny.seed = seed;
    tiny.n_layers = 3;
    tiny.architecture = architecture;
    assert_int_equal(bt_tiny_model_write(&tiny, in_dir("tiny.gguf")), BT_OK);
    assert_int_equal(bt_gguf_open(in_dir("tiny.gguf"), why, sizeof(why), &gguf),
                     BT_OK);
    return gguf;
}

/* The text of make_imatrix_golden.py. */
static void put_text(void)
{
    char text[N_TOKENS];

    for (int i = 0; i < N_TOKENS; i++) {
        text[i] = (char)(33 + i * i % 31);
    }
    put_file("text", text, sizeof(text));
}

typedef struct stop {
    uint32_t at; /* windows */
    uint32_t n_calls;
} stop_t;

static bool on_progress(void *ctx, uint32_t n_done, uint32_t n_windows)
{
    stop_t *const stop = ctx;

    assert_int_equal(n_windows, N_TOKENS / WINDOW);
    stop->n_calls++;
    return n_done < stop->at;
}

static bt_status_t make(const bt_gguf_t *gguf, const char *name, stop_t *stop,
                        bt_imatrix_t *m)
{
    char text[PATH];
    char path[PATH];
    const bt_imatrix_collect_t collect = {.text = text,
                                          .path = path,
                                          .window = WINDOW,
                                          .n_threads = 2,
                                          .on_progress = on_progress,
                                          .ctx = stop};

    snprintf(text, sizeof(text), "%s", in_dir("text"));
    snprintf(path, sizeof(path), "%s", in_dir(name));
    return bt_imatrix_make(gguf, &collect, why, sizeof(why), m);
}

static const bt_imatrix_entry_t *entry_of(const bt_imatrix_t *m,
                                          const char *name)
{
    const bt_imatrix_entry_t *const e =
        bt_imatrix_find(m, (bt_gguf_str_t){.data = name, .len = strlen(name)});

    if (e == NULL) {
        fail_msg("no %s", name);
    }
    return e;
}

static void assert_near(const char *name, double value, double expected)
{
    if (!(fabs(value - expected) <= 0.002 * expected)) {
        fail_msg("%s: %g, not %g", name, value, expected);
    }
}

static void imatrix_sums_equal_numpys(void **state)
{
    bt_gguf_t *const gguf = open_tiny("llama", 11);
    FILE *const golden = fopen(bt_test_path("golden/imatrix.txt"), "r");
    stop_t stop = {.at = 3};
    bt_imatrix_t m = {0};
    char line[4096];
    uint32_t n = 0;

    (void)state;
    assert_non_null(golden);
    put_text();
    assert_int_equal(make(gguf, "file", &stop, &m), BT_OK);
    assert_int_equal(stop.n_calls, 3);
    while (fgets(line, sizeof(line), golden) != NULL) {
        char name[64];
        uint32_t n_columns;
        double sum[4];
        double total = 0.0;
        const bt_imatrix_entry_t *e;

        if (sscanf(line, "sum %63s %u %lf %lf %lf %lf", name, &n_columns,
                   &sum[0], &sum[1], &sum[2], &sum[3]) != 6) {
            continue;
        }
        e = entry_of(&m, name);
        assert_int_equal(e->n, n_columns);
        assert_true(e->counts[0] == 2.0f * (float)WINDOW);
        for (uint32_t k = 0; k < e->n; k++) {
            total += (double)e->sums[k];
        }
        assert_near(name, total, sum[0]);
        assert_near(name, (double)e->sums[0], sum[1]);
        assert_near(name, (double)e->sums[1], sum[2]);
        assert_near(name, (double)e->sums[n_columns - 1], sum[3]);
        n++;
    }
    fclose(golden);
    assert_int_equal(n, 22);
    assert_int_equal(m.n_entries, n);
    bt_imatrix_fini(&m);
    bt_gguf_close(gguf);
}

static void assert_same(const bt_imatrix_t *a, const bt_imatrix_t *b)
{
    const bt_hash128_t x = bt_imatrix_hash(a);
    const bt_hash128_t y = bt_imatrix_hash(b);

    assert_memory_equal(&x, &y, sizeof(x));
    assert_int_equal(a->n_windows, b->n_windows);
    assert_int_equal(a->window, b->window);
    assert_string_equal(a->text, b->text);
}

static void stopped_imatrix_run_resumes_bit_for_bit(void **state)
{
    bt_gguf_t *gguf = open_tiny("llama", 11);
    stop_t stop = {.at = 3};
    bt_imatrix_t whole = {0};
    bt_imatrix_t m = {0};

    (void)state;
    put_text();
    assert_int_equal(make(gguf, "again", &stop, &whole), BT_OK);
    stop = (stop_t){.at = 1};
    assert_int_equal(make(gguf, "file", &stop, &m), BT_ERR_CANCELED);
    assert_int_equal(access(in_dir("file"), F_OK), -1);
    bt_imatrix_fini(&m);
    stop = (stop_t){.at = 3};
    assert_int_equal(make(gguf, "file", &stop, &m), BT_OK);
    assert_int_equal(stop.n_calls, 2); /* before the second, after it */
    assert_int_equal(access(in_dir("file.part"), F_OK), -1);
    assert_same(&m, &whole);
    bt_imatrix_fini(&m);
    /* What is whole is read, and only by whom it is of. */
    stop = (stop_t){.at = 0};
    assert_int_equal(make(gguf, "file", &stop, &m), BT_OK);
    assert_int_equal(stop.n_calls, 0);
    assert_same(&m, &whole);
    bt_imatrix_fini(&m);
    bt_gguf_close(gguf);
    gguf = open_tiny("llama", 12);
    assert_int_equal(make(gguf, "file", &stop, &m), BT_ERR_EXISTS);
    assert_non_null(strstr(why, "of another model or text"));
    bt_imatrix_fini(&m);
    bt_imatrix_fini(&whole);
    bt_gguf_close(gguf);
}

/* Layer norms, biases, parallel blocks, joined queries, keys and values; and a
 * matrix of every kind that is multiplied. */
static void imatrix_covers_every_matrix_of_other_families(void **state)
{
    static const char *const names[] = {"gpt2",    "phi3",  "gemma2",
                                        "cohere2", "qwen3", "starcoder2"};

    (void)state;
    put_text();
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        bt_gguf_t *const gguf = open_tiny(names[i], 5);
        stop_t stop = {.at = 3};
        bt_imatrix_t m = {0};
        uint64_t n = 0;

        if (make(gguf, "file", &stop, &m) != BT_OK) {
            fail_msg("%s: %s", names[i], why);
        }
        assert_int_equal(bt_imatrix_check(&m, gguf, &n, why, sizeof(why)),
                         BT_OK);
        for (uint64_t t = 0; t < bt_gguf_n_tensors(gguf); t++) {
            const bt_gguf_tensor_t *const tensor = bt_gguf_tensor_at(gguf, t);

            if ((tensor->n_dims > 1) &&
                (memcmp(tensor->name.data, "blk.", 4) == 0)) {
                const bt_imatrix_entry_t *const e =
                    bt_imatrix_find(&m, tensor->name);

                if ((e == NULL) || !(e->counts[0] > 0.0f)) {
                    fail_msg("%s: %.*s", names[i], (int)tensor->name.len,
                             tensor->name.data);
                }
            }
        }
        bt_imatrix_fini(&m);
        bt_gguf_close(gguf);
        assert_int_equal(unlink(in_dir("file")), 0);
    }
}

/* Each row is given to two experts, and to the router once: the sums and counts
 * of all experts together are twice the router's. */
static void imatrix_has_rows_of_each_expert(void **state)
{
    static const char *const names[] = {"blk.1.ffn_gate_exps.weight",
                                        "blk.1.ffn_up_exps.weight"};
    bt_tiny_model_t tiny = bt_tiny_model_default();
    stop_t stop = {.at = 3};
    bt_gguf_t *gguf = NULL;
    bt_imatrix_t m = {0};
    const bt_imatrix_entry_t *router;

    (void)state;
    put_text();
    tiny.n_experts = 16;
    tiny.n_experts_used = 2;
    assert_int_equal(bt_tiny_model_write(&tiny, in_dir("tiny.gguf")), BT_OK);
    assert_int_equal(bt_gguf_open(in_dir("tiny.gguf"), why, sizeof(why), &gguf),
                     BT_OK);
    assert_int_equal(make(gguf, "file", &stop, &m), BT_OK);
    router =
        bt_imatrix_find(&m, (bt_gguf_str_t){"blk.1.ffn_gate_inp.weight", 25});
    assert_non_null(router);
    assert_true(router->counts[0] > 0.0f);
    for (size_t i = 0; i < 2; i++) {
        const bt_imatrix_entry_t *const e =
            bt_imatrix_find(&m, (bt_gguf_str_t){names[i], strlen(names[i])});
        float count = 0.0f;

        assert_non_null(e);
        assert_int_equal(e->n_mats, 16);
        assert_int_equal(e->n, 16 * router->n);
        for (uint32_t k = 0; k < router->n; k++) {
            double sum = 0.0;

            for (uint32_t mat = 0; mat < 16; mat++) {
                sum += (double)e->sums[mat * router->n + k];
            }
            assert_true(fabs(sum - 2.0 * (double)router->sums[k]) <=
                        1e-4 * sum);
        }
        for (uint32_t mat = 0; mat < 16; mat++) {
            count += e->counts[mat];
        }
        assert_true(count == 2.0f * router->counts[0]);
    }
    bt_imatrix_fini(&m);
    assert_int_equal(bt_imatrix_read(in_dir("file"), why, sizeof(why), &m),
                     BT_OK);
    assert_int_equal(
        bt_imatrix_find(&m, (bt_gguf_str_t){names[0], strlen(names[0])})
            ->n_mats,
        16);
    bt_imatrix_fini(&m);
    bt_gguf_close(gguf);
    assert_int_equal(unlink(in_dir("file")), 0);
}

static void make_until(const bt_gguf_t *gguf, const char *name, uint32_t at,
                       bt_status_t status, bt_imatrix_t *m)
{
    stop_t stop = {.at = at};

    assert_int_equal(make(gguf, name, &stop, m), status);
}

/* 2^24 + 1 is not an F32, 2^24 + 16 is: rows of a window, which are one call,
 * are added together. */
static void counts_of_imatrix_go_on_behind_2_to_the_24(void **state)
{
    bt_tiny_model_t tiny = bt_tiny_model_default();
    bt_gguf_t *gguf = NULL;
    bt_imatrix_t whole = {0};
    bt_imatrix_t first = {0};
    bt_imatrix_t part = {0};
    bt_imatrix_t m = {0};

    (void)state;
    put_text();
    tiny.n_experts = 4;
    tiny.n_experts_used = 2;
    assert_int_equal(bt_tiny_model_write(&tiny, in_dir("tiny.gguf")), BT_OK);
    assert_int_equal(bt_gguf_open(in_dir("tiny.gguf"), why, sizeof(why), &gguf),
                     BT_OK);
    make_until(gguf, "again", 3, BT_OK, &whole);
    make_until(gguf, "file", 1, BT_ERR_CANCELED, &first);
    assert_int_equal(
        bt_imatrix_read(in_dir("file.part"), why, sizeof(why), &part), BT_OK);
    for (uint32_t i = 0; i < part.n_entries; i++) {
        for (uint32_t k = 0; k < part.entries[i].n_mats; k++) {
            part.entries[i].counts[k] = 0x1p24f;
        }
    }
    assert_int_equal(
        bt_imatrix_write(&part, in_dir("file.part"), why, sizeof(why)), BT_OK);
    make_until(gguf, "file", 3, BT_OK, &m);
    assert_int_equal(m.n_entries, whole.n_entries);
    assert_true(entry_of(&m, "blk.0.attn_q.weight")->counts[0] ==
                0x1p24f + (float)WINDOW);
    for (uint32_t i = 0; i < m.n_entries; i++) {
        for (uint32_t k = 0; k < m.entries[i].n_mats; k++) {
            const float rows =
                whole.entries[i].counts[k] - first.entries[i].counts[k];

            assert_string_equal(m.entries[i].name, whole.entries[i].name);
            assert_true(m.entries[i].counts[k] == 0x1p24f + rows);
        }
    }
    bt_imatrix_fini(&m);
    bt_imatrix_fini(&part);
    bt_imatrix_fini(&first);
    bt_imatrix_fini(&whole);
    bt_gguf_close(gguf);
    assert_int_equal(unlink(in_dir("file")), 0);
    assert_int_equal(unlink(in_dir("again")), 0);
}

static size_t read_golden(const char *name, uint8_t *data, size_t cap)
{
    return bt_test_read_hex("golden/imatrix.txt", name, data, cap);
}

static void imatrix_files_of_both_formats_are_read(void **state)
{
    static const char *const formats[] = {"gguf", "dat"};
    uint8_t data[2048];
    float weights[4];

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const size_t n = read_golden(formats[i], data, sizeof(data));
        const bt_imatrix_entry_t *e;
        bt_imatrix_t m = {0};

        put_file("file", data, n);
        if (bt_imatrix_read(in_dir("file"), why, sizeof(why), &m) != BT_OK) {
            fail_msg("%s: %s", formats[i], why);
        }
        assert_int_equal(m.n_entries, 2);
        /* 1 2 3 6: of a mean of 3, and a thousandth */
        e = entry_of(&m, "one");
        bt_imatrix_weights(e, 0, 4, weights);
        assert_near("one", (double)weights[0], 1.0 / 3.0 + 0.001);
        assert_near("one", (double)weights[3], 2.001);
        /* Two matrices of two columns, of which the second got nothing. */
        e = entry_of(&m, "two");
        assert_int_equal(e->n, 4);
        bt_imatrix_weights(e, 0, 2, weights);
        assert_near("two", (double)weights[0], 0.501);
        assert_near("two", (double)weights[1], 1.501);
        bt_imatrix_weights(e, 1, 2, weights);
        assert_true((weights[0] == 1.0f) && (weights[1] == 1.0f));
        if (i == 0) {
            assert_int_equal(m.n_windows, 3);
            assert_int_equal(m.window, 512);
            assert_string_equal(m.text, "some text");
        }
        bt_imatrix_fini(&m);
    }
}

static void imatrix_file_round_trips(void **state)
{
    uint8_t data[2048];
    bt_imatrix_t m = {0};
    bt_imatrix_t again = {0};

    (void)state;
    put_file("file", data, read_golden("gguf", data, sizeof(data)));
    assert_int_equal(bt_imatrix_read(in_dir("file"), why, sizeof(why), &m),
                     BT_OK);
    assert_int_equal(bt_imatrix_write(&m, in_dir("again"), why, sizeof(why)),
                     BT_OK);
    assert_int_equal(bt_imatrix_read(in_dir("again"), why, sizeof(why), &again),
                     BT_OK);
    assert_same(&m, &again);
    bt_imatrix_fini(&m);
    bt_imatrix_fini(&again);
}

/* Cut at every byte (of GGUF, which has a fuzzer of its own, at every fifth),
 * and with every byte changed: refused with a reason, or read as other
 * numbers. */
static void broken_imatrix_files_are_refused(void **state)
{
    static const char *const formats[] = {"gguf", "dat"};
    uint8_t data[2048];

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const size_t n = read_golden(formats[i], data, sizeof(data));

        for (size_t k = 0; k < 2 * n; k += (i == 0) ? 5 : 1) {
            const size_t at = k % n;
            bt_imatrix_t m = {0};
            bt_status_t status;

            data[at] ^= (k >= n) ? 0x80 : 0;
            why[0] = '\0';
            if (i == 1) {
                status = bt_imatrix_parse_dat(data, (k >= n) ? n : at, why,
                                              sizeof(why), &m);
            } else {
                put_file("file", data, (k >= n) ? n : at);
                status = bt_imatrix_read(in_dir("file"), why, sizeof(why), &m);
            }
            data[at] ^= (k >= n) ? 0x80 : 0;
            if ((status != BT_OK) && (why[0] == '\0')) {
                fail_msg("%s %zu: no reason", formats[i], k);
            }
            /* What follows the entries of a .dat says nothing that is used. */
            if ((status == BT_OK) && (k < n) && (i == 1) && (at < n - 12)) {
                fail_msg("cut at %zu and read", at);
            }
            bt_imatrix_fini(&m);
        }
    }
    assert_int_equal(
        bt_imatrix_read(in_dir("none"), why, sizeof(why), &(bt_imatrix_t){0}),
        BT_ERR_NOT_FOUND);
}

static void imatrix_of_another_model_is_refused_by_name(void **state)
{
    bt_gguf_t *const gguf = open_tiny("llama", 11);
    bt_imatrix_t m = {0};
    uint64_t n = 0;
    uint32_t i = 0;

    (void)state;
    assert_int_equal(bt_imatrix_add(&m, "blk.1.ffn_up.weight", 19, 64, 1, &i),
                     BT_OK);
    assert_int_equal(bt_imatrix_check(&m, gguf, &n, why, sizeof(why)), BT_OK);
    assert_int_equal(n, 1);
    assert_int_equal(bt_imatrix_add(&m, "blk.1.ffn_down.weight", 21, 64, 1, &i),
                     BT_OK);
    assert_int_equal(bt_imatrix_check(&m, gguf, &n, why, sizeof(why)),
                     BT_ERR_MISMATCH);
    assert_non_null(strstr(why, "blk.1.ffn_down.weight has 64 columns there"));
    bt_imatrix_fini(&m);
    bt_gguf_close(gguf);
}

static void imatrix_keeps_its_sums_when_an_allocation_fails(void **state)
{
    uint8_t data[2048];

    (void)state;
    put_file("file", data, read_golden("dat", data, sizeof(data)));
    for (int nth = 1;; nth++) {
        bt_imatrix_t m = {0};
        bt_status_t status;

        bt_alloc_fail_at(nth);
        status = bt_imatrix_read(in_dir("file"), why, sizeof(why), &m);
        bt_alloc_fail_at(0);
        bt_imatrix_fini(&m);
        if (status == BT_OK) {
            assert_true(nth > 5);
            return;
        }
        assert_int_equal(status, BT_ERR_NO_MEMORY);
    }
}

#define IN_DIR(fn) cmocka_unit_test_setup_teardown(fn, make_dir, remove_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIR(imatrix_sums_equal_numpys),
        IN_DIR(stopped_imatrix_run_resumes_bit_for_bit),
        IN_DIR(imatrix_covers_every_matrix_of_other_families),
        IN_DIR(imatrix_has_rows_of_each_expert),
        IN_DIR(counts_of_imatrix_go_on_behind_2_to_the_24),
        IN_DIR(imatrix_files_of_both_formats_are_read),
        IN_DIR(imatrix_file_round_trips),
        IN_DIR(broken_imatrix_files_are_refused),
        IN_DIR(imatrix_of_another_model_is_refused_by_name),
        IN_DIR(imatrix_keeps_its_sums_when_an_allocation_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
