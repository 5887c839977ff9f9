/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "router/tenants/tenants.h"

/* printf %s first-key | b2sum -l 256; the same of second-key */
#define FIRST "744e3f2db4a90571dfd3944ca68929d55a8d5dfb973c2eb7ffdd3b8d3aa541dc"
#define SECOND \
    "b403ac760ffbe9c42139816644770e85e55a2b13822d72508807979399f87ca8"
#define SECOND_US UINT64_C(1000000)

typedef struct head {
    const char *name, *value;
} head_t;

static const char *field(const void *ctx, const char *name)
{
    for (const head_t *at = ctx; at->name != NULL; at++) {
        if (strcmp(at->name, name) == 0) {
            return at->value;
        }
    }
    return NULL;
}

static char path[] = "/tmp/baton-tenants-XXXXXX";

static void write_keys(const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static bt_status_t find(bt_tenants_t *tenants, const char *name,
                        const char *value, bt_tenant_t **tenant_p)
{
    const head_t head[] = {{name, value}, {NULL, NULL}};
    const char *why = NULL;
    const bt_status_t status =
        bt_tenants_find(tenants, field, head, tenant_p, &why);

    assert_true((status == BT_OK) == (why == NULL));
    return status;
}

static void key_is_read_from_any_of_three_headers(void **state)
{
    bt_tenants_t tenants;
    bt_tenant_t *a = NULL, *b = NULL;

    (void)state;
    write_keys("tenant a\ntenant b\nkey a blake2b:" FIRST
               "\nkey b blake2b:" SECOND "\n");
    assert_int_equal(bt_tenants_open(&tenants, path, "", NULL, 0), BT_OK);
    assert_int_equal(find(&tenants, "authorization", "Bearer first-key", &a),
                     BT_OK);
    assert_string_equal(a->name, "a");
    assert_int_equal(find(&tenants, "authorization", "bearer  second-key", &b),
                     BT_OK);
    assert_string_equal(b->name, "b");
    assert_int_equal(find(&tenants, "x-api-key", "second-key", &a), BT_OK);
    assert_ptr_equal(a, b);
    assert_int_equal(find(&tenants, "api-key", "second-key", &a), BT_OK);
    assert_ptr_equal(a, b);
    assert_int_equal(find(&tenants, "authorization", "Basic eDp5", &a),
                     BT_ERR_UNAUTHORIZED);
    assert_int_equal(find(&tenants, "authorization", "Bearerfirst-key", &a),
                     BT_ERR_UNAUTHORIZED);
    assert_int_equal(find(&tenants, "authorization", "Bearer ", &a),
                     BT_ERR_UNAUTHORIZED);
    assert_int_equal(find(&tenants, "authorization", "Bearer first-key2", &a),
                     BT_ERR_UNAUTHORIZED);
    assert_int_equal(find(&tenants, "host", "first-key", &a),
                     BT_ERR_UNAUTHORIZED);
    bt_tenants_close(&tenants);
}

static void name_of_no_tenant_is_known(void **state)
{
    bt_tenants_t tenants;
    char name[66];

    (void)state;
    write_keys("tenant a\nkey a blake2b:" FIRST "\n");
    assert_int_equal(bt_tenants_open(&tenants, path, "", NULL, 0), BT_OK);
    assert_true(bt_tenants_may_have(&tenants, "a"));
    assert_false(bt_tenants_may_have(&tenants, "b"));
    assert_false(bt_tenants_may_have(&tenants, ""));
    bt_tenants_close(&tenants);
    assert_int_equal(bt_tenants_open(&tenants, "", "X-Tenant", NULL, 0), BT_OK);
    memset(name, 'n', sizeof(name));
    name[64] = '\0'; /* names have at most 63 bytes */
    assert_false(bt_tenants_may_have(&tenants, name));
    assert_true(bt_tenants_may_have(&tenants, &name[1]));
    assert_false(bt_tenants_may_have(&tenants, ""));
    assert_false(bt_tenants_may_have(&tenants, "default"));
    bt_tenants_close(&tenants);
    assert_int_equal(bt_tenants_open(&tenants, "", "", NULL, 0), BT_OK);
    assert_false(bt_tenants_may_have(&tenants, "a"));
    bt_tenants_close(&tenants);
}

static void removed_tenant_finishes_its_requests(void **state)
{
    bt_tenants_t tenants;
    bt_tenant_t *a = NULL, *b = NULL, *again = NULL;

    (void)state;
    write_keys("tenant a\ntenant b tokens-per-second=10 burst-tokens=100\n"
               "key a blake2b:" FIRST "\nkey b blake2b:" SECOND "\n");
    assert_int_equal(bt_tenants_open(&tenants, path, "", NULL, 0), BT_OK);
    assert_int_equal(find(&tenants, "api-key", "first-key", &a), BT_OK);
    assert_int_equal(find(&tenants, "api-key", "second-key", &b), BT_OK);
    (void)bt_tenant_ref(a);
    bt_tenant_begin(a, 2);
    bt_tenant_begin(b, 3);
    bt_sched_bucket_take(&b->bucket, 90, 0);

    write_keys("tenant b tokens-per-second=10 burst-tokens=50 weight=7\n"
               "key b blake2b:" SECOND "\n");
    bt_tenants_reload(&tenants, 0);
    assert_int_equal(find(&tenants, "api-key", "first-key", &again),
                     BT_ERR_UNAUTHORIZED);
    assert_int_equal(a->n_under_way, 2); /* and its name is there */
    assert_string_equal(a->name, "a");
    assert_int_equal(find(&tenants, "api-key", "second-key", &again), BT_OK);
    assert_ptr_equal(again, b);
    assert_int_equal(b->n_under_way, 3);
    assert_int_equal(b->limits.weight, 7);
    assert_int_equal(bt_sched_bucket_left(&b->bucket, 0), 10);

    /* One that comes back is another one. */
    write_keys("tenant a\nkey a blake2b:" FIRST "\n");
    bt_tenants_reload(&tenants, 0);
    assert_int_equal(find(&tenants, "api-key", "first-key", &again), BT_OK);
    assert_ptr_not_equal(again, a);
    assert_true(again->id != a->id);
    bt_tenant_leave(a, 2);
    bt_tenant_unref(a);
    bt_tenants_close(&tenants);
}

static void invalid_file_changes_nothing(void **state)
{
    bt_tenants_t tenants;
    bt_tenant_t *a = NULL, *again = NULL;

    (void)state;
    write_keys("tenant a\nkey a blake2b:" FIRST "\n");
    assert_int_equal(bt_tenants_open(&tenants, path, "", NULL, 0), BT_OK);
    assert_int_equal(find(&tenants, "api-key", "first-key", &a), BT_OK);
    write_keys("tenant a weight=2\nkey a blake2b:" SECOND "\nnonsense\n");
    bt_test_expect_log_lines(1);
    bt_tenants_reload(&tenants, 0);
    assert_int_equal(find(&tenants, "api-key", "first-key", &again), BT_OK);
    assert_ptr_equal(again, a);
    assert_int_equal(a->limits.weight, 1);
    for (int n = 1; n <= 4; n++) { /* nor does want of memory */
        write_keys("tenant a\ntenant c\nkey c blake2b:" SECOND "\n");
        bt_test_expect_log_lines(1 + (unsigned long)n);
        bt_alloc_fail_at(n);
        bt_tenants_reload(&tenants, 0);
        bt_alloc_fail_at(0);
        assert_int_equal(find(&tenants, "api-key", "first-key", &again), BT_OK);
    }
    bt_tenants_close(&tenants);
}

static void header_names_the_tenant_without_keys(void **state)
{
    bt_tenants_t tenants;
    bt_tenant_t *a = NULL, *b = NULL;
    char name[BT_TENANT_NAME_BYTES + 1];

    (void)state;
    assert_int_equal(bt_tenants_open(&tenants, "", "X-Baton-Tenant", NULL, 0),
                     BT_OK);
    assert_false(bt_tenants_are_keyed(&tenants));
    assert_true(bt_tenants_are_many(&tenants));
    assert_int_equal(find(&tenants, "x-baton-tenant", "shop", &a), BT_OK);
    assert_string_equal(a->name, "shop");
    assert_true(a->is_named);
    assert_int_equal(find(&tenants, "x-baton-tenant", "shop", &b), BT_OK);
    assert_ptr_equal(a, b);
    assert_int_equal(find(&tenants, "other", "shop", &b), BT_OK);
    assert_ptr_equal(b, tenants.plain);
    assert_int_equal(find(&tenants, "x-baton-tenant", "a b", &b),
                     BT_ERR_INVALID_PARAM);
    assert_int_equal(find(&tenants, "x-baton-tenant", "\xc3\xa9", &b),
                     BT_ERR_INVALID_PARAM);
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    assert_int_equal(find(&tenants, "x-baton-tenant", name, &b),
                     BT_ERR_INVALID_PARAM);

    /* The oldest that has nothing under way is forgotten for a new one. */
    (void)bt_tenant_ref(a);
    for (unsigned i = 0; i < 3 * BT_TENANTS_MAX_NAMED; i++) {
        snprintf(name, sizeof(name), "t%u", i);
        assert_int_equal(find(&tenants, "x-baton-tenant", name, &b), BT_OK);
    }
    assert_int_equal(tenants.n_named, BT_TENANTS_MAX_NAMED);
    assert_int_equal(find(&tenants, "x-baton-tenant", "shop", &b), BT_OK);
    assert_ptr_equal(a, b);
    bt_tenant_unref(a);
    bt_tenants_close(&tenants);
}

static void named_tenants_are_bounded(void **state)
{
    bt_tenant_t *held[BT_TENANTS_MAX_NAMED];
    bt_tenants_t tenants;
    bt_tenant_t *one = NULL;
    char name[BT_TENANT_NAME_BYTES];

    (void)state;
    assert_int_equal(bt_tenants_open(&tenants, "", "T", NULL, 0), BT_OK);
    for (unsigned i = 0; i < BT_TENANTS_MAX_NAMED; i++) {
        snprintf(name, sizeof(name), "t%u", i);
        assert_int_equal(find(&tenants, "t", name, &held[i]), BT_OK);
        (void)bt_tenant_ref(held[i]);
    }
    assert_int_equal(find(&tenants, "t", "one-more", &one), BT_ERR_BUSY);
    bt_tenant_unref(held[7]);
    assert_int_equal(find(&tenants, "t", "one-more", &one), BT_OK);
    for (unsigned i = 0; i < BT_TENANTS_MAX_NAMED; i++) {
        if (i != 7) {
            bt_tenant_unref(held[i]);
        }
    }
    bt_tenants_close(&tenants);
}

static void without_keys_or_header_all_are_one_tenant(void **state)
{
    bt_tenants_t tenants;
    bt_tenant_t *a = NULL;

    (void)state;
    assert_int_equal(bt_tenants_open(&tenants, "", "", NULL, 0), BT_OK);
    assert_int_equal(find(&tenants, "x-baton-tenant", "shop", &a), BT_OK);
    assert_ptr_equal(a, tenants.plain);
    assert_false(a->is_named);
    assert_int_equal(a->id, 0);
    bt_tenants_close(&tenants);
}

static char told[512];

static void tell(void *ctx, const char *name, const char *value)
{
    const size_t n = strlen(told);

    (void)ctx;
    snprintf(told + n, sizeof(told) - n, "%s: %s\n", name, value);
}

/* By hand: a bucket of 100 with 10 a second, 95 taken: 5 are left, and for 25
 * 20 have to come, 2 s; full again in 9.5 s. */
static void limit_answer_has_a_retry_after(void **state)
{
    bt_tenant_denial_t denial;
    bt_tenants_t tenants;
    bt_tenant_t *a = NULL;

    (void)state;
    write_keys("tenant a tokens-per-second=10 burst-tokens=100 requests=2\n"
               "key a blake2b:" FIRST "\n");
    assert_int_equal(bt_tenants_open(&tenants, path, "", NULL, 0), BT_OK);
    assert_int_equal(find(&tenants, "api-key", "first-key", &a), BT_OK);
    assert_int_equal(bt_tenant_check_tokens(a, 95, 0, &denial), BT_OK);
    bt_sched_bucket_take(&a->bucket, 95, 0);
    assert_int_equal(bt_tenant_check_tokens(a, 25, 0, &denial), BT_ERR_BUSY);
    assert_int_equal(denial.cause, BT_TC_REFUSED_TOKENS);
    assert_int_equal(denial.retry_after_s, 2);
    assert_string_equal(denial.message,
                        "Rate limit reached for tokens: limit 10 a second with "
                        "a burst of 100, left 5, asked for 25 (prompt and "
                        "max_tokens); try again in 2 s");
    assert_int_equal(bt_tenant_check_tokens(a, 25, 2 * SECOND_US, &denial),
                     BT_OK);

    assert_int_equal(bt_tenant_check_requests(a, 2, 0, &denial), BT_OK);
    bt_tenant_begin(a, 1);
    assert_int_equal(bt_tenant_check_requests(a, 2, 0, &denial), BT_ERR_BUSY);
    assert_int_equal(denial.cause, BT_TC_REFUSED_REQUESTS);
    assert_int_equal(denial.retry_after_s, 1);
    assert_int_equal(bt_tenant_check_requests(a, 2, 1, &denial), BT_OK);
    /* One ends every 4 s. */
    bt_tenant_note_end(a, SECOND_US);
    bt_tenant_note_end(a, 5 * SECOND_US);
    assert_int_equal(bt_tenant_check_requests(a, 2, 0, &denial), BT_ERR_BUSY);
    assert_int_equal(denial.retry_after_s, 4);

    told[0] = '\0';
    bt_sched_bucket_init(&a->bucket, 10, 100, 0);
    bt_sched_bucket_take(&a->bucket, 95, 0);
    bt_tenant_tell_limits(a, 0, tell, NULL);
    assert_string_equal(told, "x-ratelimit-limit-requests: 2\n"
                              "x-ratelimit-remaining-requests: 1\n"
                              "x-ratelimit-reset-requests: 0ms\n"
                              "x-ratelimit-limit-tokens: 100\n"
                              "x-ratelimit-remaining-tokens: 5\n"
                              "x-ratelimit-reset-tokens: 9.500s\n");
    bt_tenant_leave(a, 1);
    bt_tenants_close(&tenants);
}

/* By hand: 30 ms a minute are 500 us a second. 29,999 us leave one, and 21 ms
 * more a debt of 20,999 us: 42 s. */
static void compile_time_beyond_the_limit_is_a_debt(void **state)
{
    bt_tenant_denial_t denial;
    bt_tenants_t tenants;
    bt_tenant_t *a = NULL;
    bt_tenant_t *b = NULL;

    (void)state;
    write_keys("tenant a grammar-ms-per-minute=30\nkey a blake2b:" FIRST
               "\ntenant b\nkey b blake2b:" SECOND "\n");
    assert_int_equal(bt_tenants_open(&tenants, path, "", NULL, 0), BT_OK);
    assert_int_equal(find(&tenants, "api-key", "first-key", &a), BT_OK);
    assert_int_equal(find(&tenants, "api-key", "second-key", &b), BT_OK);
    assert_true(bt_tenant_may_compile(a, 0));
    bt_tenant_charge_compile(a, 29999, 0);
    assert_true(bt_tenant_may_compile(a, 0));
    bt_tenant_charge_compile(a, 21000, 0);
    assert_false(bt_tenant_may_compile(a, 0));
    bt_tenant_deny_compile(a, 0, &denial);
    assert_int_equal(denial.cause, BT_TC_REFUSED_GRAMMARS);
    assert_int_equal(denial.retry_after_s, 42);
    assert_string_equal(
        denial.message,
        "Rate limit reached for grammars: limit 30 ms a minute to compile them "
        "(grammar-ms-per-minute), nothing left; try again in 42 s, or with a "
        "description that was compiled before");
    assert_false(bt_tenant_may_compile(a, 41 * SECOND_US));
    assert_true(bt_tenant_may_compile(a, 42 * SECOND_US));

    bt_tenant_charge_compile(b, 3600 * SECOND_US, 0); /* no limit */
    assert_true(bt_tenant_may_compile(b, 0));
    bt_tenants_close(&tenants);
}

static int begin(void **state)
{
    const int fd = mkstemp(path);

    (void)state;
    return (fd < 0) ? -1 : close(fd);
}

static int finish(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(key_is_read_from_any_of_three_headers),
        BT_TEST(name_of_no_tenant_is_known),
        BT_TEST(removed_tenant_finishes_its_requests),
        BT_TEST(invalid_file_changes_nothing),
        BT_TEST(header_names_the_tenant_without_keys),
        BT_TEST(named_tenants_are_bounded),
        BT_TEST(without_keys_or_header_all_are_one_tenant),
        BT_TEST(limit_answer_has_a_retry_after),
        BT_TEST(compile_time_beyond_the_limit_is_a_debt),
    };

    return cmocka_run_group_tests(tests, begin, finish);
}
