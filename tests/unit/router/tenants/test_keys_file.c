/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "router/tenants/keys_file.h"

/* printf %s first-key | b2sum -l 256; printf %s second-key | sha256sum */
#define HASH_OF_FIRST \
    "744e3f2db4a90571dfd3944ca68929d55a8d5dfb973c2eb7ffdd3b8d3aa541dc"
#define HASH_OF_SECOND \
    "f397f260a275cc4d42e7965c556167bf3f068aed491d35a8f5b38c8c2db96bb0"

static char why[BT_KEYS_WHY_BYTES];

static bt_status_t parse(const char *text, bt_keys_file_t *file)
{
    why[0] = '\0';
    return bt_keys_file_parse(text, strlen(text), file, why);
}

static void assert_bad(const char *text, const char *reason)
{
    bt_keys_file_t file = {0};

    assert_int_equal(parse(text, &file), BT_ERR_BAD_FILE);
    assert_string_equal(why, reason);
    assert_null(file.tenants);
    assert_null(file.keys);
}

static const char *name_of(const bt_keys_file_t *file, const char *key)
{
    const uint32_t i = bt_keys_file_find(file, key, strlen(key));

    return (i < file->n_tenants) ? file->tenants[i].name : "nobody";
}

static void keys_are_found_by_their_hashes(void **state)
{
    static const char text[] =
        "# who may\r\n"
        "\n"
        "key acme blake2b:" HASH_OF_FIRST "  of the shop\r\n"
        "  tenant\tacme weight=4 tokens-per-second=200 burst-tokens=5000 "
        "requests=8 kv-percent=25 priority=3 ttft-target-ms=900 "
        "itl-target-ms=40 grammar-ms-per-minute=1500\n"
        "tenant ops admin\n"
        "key ops sha256:" HASH_OF_SECOND;
    bt_keys_file_t file = {0};

    (void)state;
    assert_int_equal(parse(text, &file), BT_OK);
    assert_int_equal(file.n_tenants, 2);
    assert_int_equal(file.n_keys, 2);
    assert_string_equal(name_of(&file, "first-key"), "acme");
    assert_string_equal(name_of(&file, "second-key"), "ops");
    assert_string_equal(name_of(&file, "third-key"), "nobody");
    assert_string_equal(name_of(&file, "first-key "), "nobody");
    assert_string_equal(name_of(&file, "FIRST-KEY"), "nobody");
    assert_string_equal(name_of(&file, ""), "nobody");
    assert_int_equal(file.tenants[0].limits.weight, 4);
    assert_int_equal(file.tenants[0].limits.rate, 200);
    assert_int_equal(file.tenants[0].limits.burst, 5000);
    assert_int_equal(file.tenants[0].limits.requests, 8);
    assert_int_equal(file.tenants[0].limits.kv_percent, 25);
    assert_int_equal(file.tenants[0].limits.max_priority, 3);
    assert_int_equal(file.tenants[0].limits.ttft_target_ms, 900);
    assert_int_equal(file.tenants[0].limits.itl_target_ms, 40);
    assert_int_equal(file.tenants[0].limits.grammar_ms, 1500);
    assert_false(file.tenants[0].limits.admin);
    assert_int_equal(file.tenants[1].limits.weight, 1);
    assert_int_equal(file.tenants[1].limits.rate, 0);
    assert_int_equal(file.tenants[1].limits.grammar_ms, 0);
    assert_int_equal(file.tenants[1].limits.kv_percent, 100);
    assert_int_equal(file.tenants[1].limits.max_priority, 24);
    assert_int_equal(file.tenants[1].limits.ttft_target_ms, 0);
    assert_int_equal(file.tenants[1].limits.itl_target_ms, 0);
    assert_true(file.tenants[1].limits.admin);
    bt_keys_file_fini(&file);
}

/* A hash is none of the other kind's. */
static void hash_kind_is_part_of_the_match(void **state)
{
    bt_keys_file_t file = {0};

    (void)state;
    assert_int_equal(parse("tenant a\nkey a sha256:" HASH_OF_FIRST "\n", &file),
                     BT_OK);
    assert_string_equal(name_of(&file, "first-key"), "nobody");
    bt_keys_file_fini(&file);
}

static void impossible_keys_match_nobody(void **state)
{
    char key[BT_KEYS_MAX_KEY_BYTES + 1];
    bt_keys_file_t file = {0};

    (void)state;
    assert_int_equal(
        parse("tenant a\nkey a blake2b:" HASH_OF_FIRST "\n", &file), BT_OK);
    memset(key, 'x', sizeof(key));
    assert_int_equal(bt_keys_file_find(&file, key, sizeof(key)), 1);
    assert_int_equal(bt_keys_file_find(&file, key, sizeof(key) - 1), 1);
    assert_int_equal(bt_keys_file_find(&file, "first-key\0x", 11), 1);
    assert_string_equal(name_of(&file, "first-k\xc3\xa9y"), "nobody");
    bt_keys_file_fini(&file);
}

static void error_names_line_and_cause(void **state)
{
    char text[BT_KEYS_MAX_LINE + 3];

    (void)state;
    assert_bad("", "it has no key, so nobody could use the server");
    assert_bad("tenant a\n", "it has no key, so nobody could use the server");
    assert_bad("\n# x\nkye a b\n",
               "line 3: it begins with 'kye', and not with tenant, key or #");
    assert_bad("tenant\n", "line 1: the tenant's name is missing");
    assert_bad("tenant a/b\n",
               "line 1: 'a/b' is no tenant's name: letters, digits, '.', '_' "
               "and '-', at most 63, no dot first");
    assert_bad("tenant a weight=0\n",
               "line 1: weight is a whole number from 1 to 1000");
    assert_bad("tenant a weight\n",
               "line 1: weight is a whole number from 1 to 1000");
    assert_bad("tenant a priority=25\n",
               "line 1: priority is a whole number from 0 to 24");
    assert_bad("tenant a weight=99999999999999999999\n",
               "line 1: weight is a whole number from 1 to 1000");
    assert_bad("tenant a weight=1 weight=2\n", "line 1: weight is said twice");
    assert_bad(
        "tenant a colour=1\n",
        "line 1: a tenant has no 'colour'; it has weight, "
        "tokens-per-second, burst-tokens, requests, "
        "grammar-ms-per-minute, kv-percent, priority, ttft-target-ms, itl-target-ms and admin");
    assert_bad("tenant a itl-target-ms=0\n",
               "line 1: itl-target-ms is a whole number from 1 to 3600000");
    assert_bad("tenant a grammar-ms-per-minute=600001\n",
               "line 1: grammar-ms-per-minute is a whole number from 1 to "
               "600000");
    assert_bad("tenant a burst-tokens=5\n",
               "line 1: burst-tokens goes with tokens-per-second");
    assert_bad("tenant a\ntenant b\ntenant a\n",
               "line 3: tenant a is in line 1 already");
    assert_bad("key a md5:00\n",
               "line 1: behind the tenant's name stands blake2b: or sha256: "
               "and 64 hexadecimal digits, as baton key new prints them");
    assert_bad("key a blake2b:00\n",
               "line 1: behind the tenant's name stands blake2b: or sha256: "
               "and 64 hexadecimal digits, as baton key new prints them");
    assert_bad("tenant a\nkey b blake2b:" HASH_OF_FIRST "\n",
               "line 2: no line says `tenant b`, whose key this is");
    assert_bad("tenant a\ntenant b\nkey a blake2b:" HASH_OF_FIRST
               "\nkey b blake2b:" HASH_OF_FIRST "\n",
               "line 4: the key is in line 3 already");
    memset(text, '#', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    assert_bad(text, "line 1: it has more than 1024 bytes");
}

static void zero_byte_is_refused(void **state)
{
    static const char text[] = "tenant a\nten\0ant b\n";
    bt_keys_file_t file = {0};

    (void)state;
    assert_int_equal(bt_keys_file_parse(text, sizeof(text) - 1, &file, why),
                     BT_ERR_BAD_FILE);
    assert_string_equal(why, "line 2: it has a zero byte");
}

static void counts_are_bounded(void **state)
{
    const size_t n = BT_KEYS_MAX_TENANTS + 1;
    char *text = calloc(n, 32);
    size_t at = 0;

    (void)state;
    assert_non_null(text);
    for (size_t i = 0; i < n; i++) {
        at += (size_t)snprintf(text + at, 32, "tenant t%zu\n", i);
    }
    assert_bad(text, "line 1025: there are more than 1024 tenants");
    free(text);
}

static void every_allocation_may_fail(void **state)
{
    static const char text[] = "tenant a\nkey a blake2b:" HASH_OF_FIRST "\n";
    bt_status_t status = BT_ERR_NO_MEMORY;
    int n = 0;

    (void)state;
    while (status != BT_OK) {
        bt_keys_file_t file = {0};

        bt_alloc_fail_at(++n);
        status = parse(text, &file);
        bt_alloc_fail_at(0);
        if (status == BT_OK) {
            bt_keys_file_fini(&file);
        } else {
            assert_int_equal(status, BT_ERR_NO_MEMORY);
            assert_null(file.keys);
        }
    }
    assert_true(n > 3);
}

static void file_is_accepted_by_its_mode(void **state)
{
    static const char text[] = "tenant a\nkey a blake2b:" HASH_OF_FIRST "\n";
    char path[] = "/tmp/baton-keys-XXXXXX";
    char warning[BT_KEYS_WHY_BYTES];
    bt_keys_file_t file = {0};
    const int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
    assert_int_equal(bt_keys_file_read(path, &file, warning, why), BT_OK);
    assert_string_equal(warning, "");
    bt_keys_file_fini(&file);
    assert_int_equal(fchmod(fd, 0644), 0);
    assert_int_equal(bt_keys_file_read(path, &file, warning, why), BT_OK);
    assert_string_equal(warning,
                        "its mode is 0644, which lets others at it: chmod 600");
    bt_keys_file_fini(&file);
    assert_int_equal(fchmod(fd, 0606), 0);
    assert_int_equal(bt_keys_file_read(path, &file, warning, why),
                     BT_ERR_UNAUTHORIZED);
    assert_string_equal(why, "its mode is 0606, so everybody could let himself "
                             "in: chmod 600");
    assert_int_equal(fchmod(fd, 0600), 0);
    assert_int_equal(ftruncate(fd, (off_t)BT_KEYS_MAX_BYTES + 1), 0);
    assert_int_equal(bt_keys_file_read(path, &file, warning, why),
                     BT_ERR_BAD_FILE);
    assert_string_equal(why, "it has more than 2097152 bytes");
    close(fd);
    unlink(path);
    assert_int_equal(bt_keys_file_read(path, &file, warning, why),
                     BT_ERR_NOT_FOUND);
    assert_int_equal(bt_keys_file_read("/tmp", &file, warning, why), BT_ERR_IO);
    /* Nobody writes into it: it must not be waited for. */
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(bt_keys_file_read(path, &file, warning, why), BT_ERR_IO);
    assert_string_equal(why, "it is not a file");
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(keys_are_found_by_their_hashes),
        BT_TEST(hash_kind_is_part_of_the_match),
        BT_TEST(impossible_keys_match_nobody),
        BT_TEST(error_names_line_and_cause),
        BT_TEST(zero_byte_is_refused),
        BT_TEST(counts_are_bounded),
        BT_TEST(every_allocation_may_fail),
        BT_TEST(file_is_accepted_by_its_mode),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
