/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/crypt/key.h"

static char dir[] = "/tmp/baton-key-XXXXXX";
static char why[BT_KEY_WHY_BYTES];

/* A file in dir with this content and mode; the path is static. */
static const char *file_with(const char *text, size_t n, mode_t mode)
{
    static char path[64];
    int fd;

    snprintf(path, sizeof(path), "%s/key", dir);
    (void)unlink(path);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, n), n);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
    return path;
}

static bt_status_t read_text(const char *text, mode_t mode,
                             uint8_t key[BT_KEY_BYTES])
{
    return bt_key_read(file_with(text, strlen(text), mode), NULL, key, why);
}

/* Expected bytes: python3 -c 'import hashlib;
 * print(hashlib.blake2b(b"0123456789abcdef", digest_size=32).hexdigest())' */
static void key_file_hash_excludes_the_line_end(void **state)
{
    static const char expected[] =
        "c783baf5fb1427e7d924c9fe93ee161169324bb139d9cd8d8b9602c412ec6cda";
    uint8_t key[BT_KEY_BYTES];
    uint8_t same[BT_KEY_BYTES];
    uint8_t other[BT_KEY_BYTES];
    char hex[2 * BT_KEY_BYTES + 1];

    (void)state;
    assert_int_equal(read_text("0123456789abcdef", 0600, key), BT_OK);
    for (size_t i = 0; i < sizeof(key); i++) {
        snprintf(hex + 2 * i, 3, "%02x", key[i]);
    }
    assert_string_equal(hex, expected);
    assert_int_equal(read_text("0123456789abcdef\r\n", 0400, same), BT_OK);
    assert_true(bt_key_equal(key, same, sizeof(key)));
    assert_int_equal(read_text("0123456789abcdeF", 0600, other), BT_OK);
    assert_false(bt_key_equal(key, other, sizeof(key)));
}

static void key_file_accessible_to_others_is_refused(void **state)
{
    static const mode_t modes[] = {0640, 0604, 0620, 0602, 0610, 0666};
    uint8_t key[BT_KEY_BYTES];
    char want[BT_KEY_WHY_BYTES];

    (void)state;
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        assert_int_equal(read_text("0123456789abcdef", modes[i], key),
                         BT_ERR_UNAUTHORIZED);
        snprintf(want, sizeof(want),
                 "its mode is %04o, which lets others at it: chmod 600",
                 (unsigned)modes[i]);
        assert_string_equal(why, want);
    }
}

static void key_file_of_another_user_is_refused(void **state)
{
    const char *path = file_with("0123456789abcdef", 16, 0600);
    uint8_t key[BT_KEY_BYTES];

    (void)state;
    if (chown(path, 4711, (gid_t)-1) != 0) {
        skip(); /* only root may give files away */
    }
    assert_int_equal(bt_key_read(path, NULL, key, why), BT_ERR_UNAUTHORIZED);
    assert_string_equal(why, "it belongs to user 4711, and this is user 0");
}

static void unusable_key_files_have_distinct_errors(void **state)
{
    static char large[4097];
    uint8_t key[BT_KEY_BYTES];
    char missing[64];

    (void)state;
    memset(large, 'k', sizeof(large));
    assert_int_equal(read_text("0123456789abcde\n", 0600, key),
                     BT_ERR_BAD_FILE);
    assert_string_equal(why, "it has 15 bytes, and at least 16 are needed");
    assert_int_equal(read_text("", 0600, key), BT_ERR_BAD_FILE);
    assert_string_equal(why, "it has 0 bytes, and at least 16 are needed");
    assert_int_equal(bt_key_read(file_with(large, 4097, 0600), NULL, key, why),
                     BT_ERR_BAD_FILE);
    assert_string_equal(
        why, "it has 4097 bytes or more, and at most 4096 are taken");
    assert_int_equal(bt_key_read(file_with(large, 4096, 0600), NULL, key, why),
                     BT_OK);
    assert_int_equal(bt_key_read(dir, NULL, key, why), BT_ERR_IO);
    assert_string_equal(why, "it is not a file");
    snprintf(missing, sizeof(missing), "%s/none", dir);
    assert_int_equal(bt_key_read(missing, NULL, key, why), BT_ERR_NOT_FOUND);
    assert_string_equal(why, "No such file or directory");
}

/* Expected bytes: python3 -c 'import hashlib; print(hashlib.blake2b(b"data",
 * digest_size=32, key=bytes(range(32))).hexdigest())' */
static void key_proof_is_keyed_blake2b(void **state)
{
    static const char expected[] =
        "997fd9df5c41059563b2fee82026985c28a72b0a39d960f4db49ea6027091878";
    uint8_t key[BT_KEY_BYTES];
    uint8_t proof[BT_PROOF_BYTES];
    char hex[2 * BT_PROOF_BYTES + 1];

    (void)state;
    for (size_t i = 0; i < sizeof(key); i++) {
        key[i] = (uint8_t)i;
    }
    bt_key_proof(key, sizeof(key), "data", 4, proof);
    for (size_t i = 0; i < sizeof(proof); i++) {
        snprintf(hex + 2 * i, 3, "%02x", proof[i]);
    }
    assert_string_equal(hex, expected);
}

static void assert_hex(const uint8_t *bytes, size_t n, const char *expected)
{
    char hex[2 * BT_KEY_BYTES + 1];

    for (size_t i = 0; i < n; i++) {
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
    }
    assert_string_equal(hex, expected);
}

/* Expected bytes: python3 -c 'import hashlib; k=bytes(range(32));
 * b=lambda n, d: print(hashlib.blake2b(d, digest_size=n, key=k).hexdigest());
 * b(32, b"baton 3 kv".ljust(16, b"\0") + b"data");
 * b(32, b"sixteen letters!" + b""); b(16, b"data"); b(32, b"data")' */
static void keys_and_tags_differ_by_domain_and_length(void **state)
{
    const bt_key_part_t parts[] = {{"da", 2}, {NULL, 0}, {"ta", 2}};
    uint8_t key[BT_KEY_BYTES];
    uint8_t out[BT_KEY_BYTES];
    uint8_t tag[BT_TAG_BYTES];

    (void)state;
    for (size_t i = 0; i < sizeof(key); i++) {
        key[i] = (uint8_t)i;
    }
    bt_key_derive(key, "baton 3 kv", parts, 3, out);
    assert_hex(
        out, sizeof(out),
        "d2f45c45dee3f5a4656ac57d2be144daf749ad3bd1139535f6494961aa982c75");
    bt_key_derive(key, "sixteen letters!", NULL, 0, out);
    assert_hex(
        out, sizeof(out),
        "541aa0a98e2eb35c71422816dac016eee9b4063722ef7cab9cf0f36f67bd0142");
    bt_key_tag(key, parts, 3, tag);
    assert_hex(tag, sizeof(tag), "8e1d8dd9167b90120c52368775c52200");
    bt_key_derive(key, NULL, parts, 3, key); /* in place */
    assert_hex(
        key, sizeof(key),
        "997fd9df5c41059563b2fee82026985c28a72b0a39d960f4db49ea6027091878");
}

static void random_numbers_differ(void **state)
{
    uint8_t a[32] = {0};
    uint8_t b[32] = {0};

    (void)state;
    bt_key_random(a, sizeof(a));
    bt_key_random(b, sizeof(b));
    assert_memory_not_equal(a, b, sizeof(a));
    bt_key_wipe(b, sizeof(b));
    memset(a, 0, sizeof(a));
    assert_memory_equal(a, b, sizeof(a));
}

/* printf %s abc | b2sum -l 256; FIPS 180-4, example of "abc". */
static void api_key_hash_equals_that_of_other_tools(void **state)
{
    static const char *const expected[BT_KEY_N_HASHES] = {
        "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319",
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    };
    char hex[2 * BT_KEY_BYTES + 1];
    uint8_t hash[BT_KEY_BYTES];

    (void)state;
    for (unsigned kind = 0; kind < BT_KEY_N_HASHES; kind++) {
        bt_key_hash((bt_key_hash_kind_t)kind, "abc", 3, hash);
        for (size_t i = 0; i < sizeof(hash); i++) {
            snprintf(hex + 2 * i, 3, "%02x", hash[i]);
        }
        assert_string_equal(hex, expected[kind]);
    }
}

static void unreadable_key_file_is_logged_at_start(void **state)
{
    uint8_t key[BT_KEY_BYTES], read[BT_KEY_BYTES];
    const char *path = file_with("a key of a cluster", 18, 0600);

    (void)state;
    memset(key, 7, sizeof(key));
    assert_int_equal(bt_key_load("", NULL, key), BT_OK);
    assert_int_equal(key[0], 7);
    assert_int_equal(bt_key_check("", NULL), BT_OK);
    assert_int_equal(bt_key_read(path, NULL, read, why), BT_OK);
    assert_int_equal(bt_key_load(path, NULL, key), BT_OK);
    assert_memory_equal(key, read, sizeof(key));
    assert_int_equal(bt_key_check(path, NULL), BT_OK);
    bt_test_expect_log_lines(2);
    path = file_with("short", 5, 0600);
    assert_int_equal(bt_key_load(path, NULL, key), BT_ERR_BAD_FILE);
    assert_int_equal(bt_key_check(path, NULL), BT_ERR_BAD_FILE);
}

static void random_digits_are_digits_and_differ(void **state)
{
    char a[34], b[34];

    (void)state;
    memset(a, 'x', sizeof(a));
    bt_key_random_hex(16, a);
    bt_key_random_hex(16, b);
    assert_int_equal(strlen(a), 32);
    assert_int_equal(a[33], 'x');
    assert_int_equal(strspn(a, "0123456789abcdef"), 32);
    assert_string_not_equal(a, b);
    bt_key_random_hex(0, a);
    assert_string_equal(a, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(key_file_hash_excludes_the_line_end),
        BT_TEST(api_key_hash_equals_that_of_other_tools),
        BT_TEST(key_file_accessible_to_others_is_refused),
        BT_TEST(key_file_of_another_user_is_refused),
        BT_TEST(unusable_key_files_have_distinct_errors),
        BT_TEST(key_proof_is_keyed_blake2b),
        BT_TEST(keys_and_tags_differ_by_domain_and_length),
        BT_TEST(random_numbers_differ),
        BT_TEST(unreadable_key_file_is_logged_at_start),
        BT_TEST(random_digits_are_digits_and_differ),
    };
    char path[64];
    int failed;

    if (mkdtemp(dir) == NULL) {
        return 1;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(path, sizeof(path), "%s/key", dir);
    (void)unlink(path);
    (void)rmdir(dir);
    return failed;
}
