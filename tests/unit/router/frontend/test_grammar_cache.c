/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/grammar_cache.h"

#include "tests/support/testsupport.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/base/task.h"

static const bt_hash128_t no_space = {0, 0};

static bt_grammar_source_t choices(const char *text)
{
    return (bt_grammar_source_t){
        .kind = BT_GRAMMAR_CHOICE, .text = text, .bytes = strlen(text)};
}

static bt_grammar_made_t make(bt_grammar_cache_t *cache, bt_hash128_t space,
                              const char *text, bt_status_t expected)
{
    const bt_grammar_source_t source = choices(text);
    bt_grammar_made_t made;

    assert_int_equal(bt_grammar_cache_make(cache, NULL, space, &source, &made),
                     expected);
    return made;
}

static bool has(bt_grammar_cache_t *cache, bt_hash128_t space, const char *text)
{
    const bt_grammar_source_t source = choices(text);

    return bt_grammar_cache_has(cache, space, &source);
}

static void equal_descriptions_are_compiled_once(void **state)
{
    const char *const text = "[\"yes\",\"no\"]";
    bt_grammar_cache_t *cache = NULL;
    bt_grammar_made_t first, again;

    (void)state;
    assert_int_equal(bt_grammar_cache_create(1 << 20, &cache), BT_OK);
    assert_false(has(cache, no_space, text));
    first = make(cache, no_space, text, BT_OK);
    assert_false(first.was_known);
    assert_true(has(cache, no_space, text));
    again = make(cache, no_space, text, BT_OK);
    assert_true(again.was_known);
    assert_int_equal(again.us, 0);
    assert_int_equal(again.bytes, first.bytes);
    assert_memory_equal(again.program, first.program, first.bytes);
    bt_free(first.program);
    bt_free(again.program);
    bt_grammar_cache_destroy(cache);
    bt_grammar_cache_destroy(NULL);
}

static void what_differs_is_compiled_by_itself(void **state)
{
    const char *const text = "[\"yes\"]";
    const bt_hash128_t other = {1, 0};
    bt_grammar_source_t source = choices(text);
    bt_grammar_cache_t *cache = NULL;
    bt_grammar_made_t made;

    (void)state;
    assert_int_equal(bt_grammar_cache_create(1 << 20, &cache), BT_OK);
    made = make(cache, no_space, text, BT_OK);
    bt_free(made.program);
    assert_false(has(cache, other, text));
    assert_false(has(cache, no_space, "[\"yes\" ]"));
    source.kind = BT_GRAMMAR_JSON_OBJECT;
    assert_false(bt_grammar_cache_has(cache, no_space, &source));
    source = choices(text);
    source.compact = true;
    assert_false(bt_grammar_cache_has(cache, no_space, &source));
    source = choices(text);
    source.lenient = true;
    assert_false(bt_grammar_cache_has(cache, no_space, &source));
    bt_grammar_cache_destroy(cache);
}

static void refusal_is_kept_with_its_reason(void **state)
{
    bt_grammar_cache_t *cache = NULL;
    bt_grammar_made_t first, again;

    (void)state;
    assert_int_equal(bt_grammar_cache_create(1 << 20, &cache), BT_OK);
    first = make(cache, no_space, "[1]", BT_ERR_INVALID_PARAM);
    again = make(cache, no_space, "[1]", BT_ERR_INVALID_PARAM);
    assert_null(first.program);
    assert_null(again.program);
    assert_true(again.was_known);
    assert_string_equal(first.why, "choice 0 is no string");
    assert_string_equal(again.why, first.why);
    bt_grammar_cache_destroy(cache);
}

/* The least recently used ones are dropped. */
static void memory_of_the_cache_is_bounded(void **state)
{
    bt_grammar_cache_t *cache = NULL;
    char text[64];
    uint32_t n_known = 0;

    (void)state;
    assert_int_equal(bt_grammar_cache_create(4000, &cache), BT_OK);
    for (uint32_t i = 0; i < 100; i++) {
        bt_grammar_made_t made;

        snprintf(text, sizeof(text), "[\"%u\"]", i);
        made = make(cache, no_space, text, BT_OK);
        bt_free(made.program);
        made = make(cache, no_space, "[\"0\"]", BT_OK); /* stays in use */
        assert_true(made.was_known);
        bt_free(made.program);
    }
    for (uint32_t i = 0; i < 100; i++) {
        snprintf(text, sizeof(text), "[\"%u\"]", i);
        n_known += has(cache, no_space, text) ? 1 : 0;
    }
    assert_in_range(n_known, 2, 30);
    assert_true(has(cache, no_space, "[\"99\"]"));
    bt_grammar_cache_destroy(cache);
    assert_int_equal(bt_grammar_cache_create(10, &cache), BT_OK); /* none fit */
    bt_free(make(cache, no_space, "[\"a\"]", BT_OK).program);
    assert_false(has(cache, no_space, "[\"a\"]"));
    bt_grammar_cache_destroy(cache);
}

static void failed_allocations_are_reported_and_not_kept(void **state)
{
    const bt_grammar_source_t source = choices("[\"a\"]");
    bt_grammar_cache_t *cache = NULL;
    bt_status_t status = BT_ERR_NO_MEMORY;

    (void)state;
    bt_alloc_fail_at(1);
    assert_int_equal(bt_grammar_cache_create(4000, &cache), BT_ERR_NO_MEMORY);
    for (int nth = 1; status != BT_OK; nth++) {
        bt_grammar_made_t made;

        assert_int_equal(bt_grammar_cache_create(4000, &cache), BT_OK);
        bt_alloc_fail_at(nth);
        status = bt_grammar_cache_make(cache, NULL, no_space, &source, &made);
        bt_alloc_fail_at(0);
        assert_true((status == BT_OK) || (status == BT_ERR_NO_MEMORY));
        assert_true((made.program != NULL) == (status == BT_OK));
        assert_true((status == BT_OK) ||
                    !bt_grammar_cache_has(cache, no_space, &source));
        bt_free(made.program);
        bt_grammar_cache_destroy(cache);
    }
}

static void cancel(void *task)
{
    bt_task_cancel(task);
}

static void canceled_compilation_is_not_kept_and_the_next_one_is(void **state)
{
    const bt_grammar_source_t source = {
        .kind = BT_GRAMMAR_REGEX, .text = "[a-f]{40}(x|y)*", .bytes = 15};
    bt_grammar_cache_t *cache = NULL;
    bt_grammar_made_t made;
    bt_task_t task;
    bt_task_t *before;

    (void)state;
    assert_int_equal(bt_grammar_cache_create(1 << 20, &cache), BT_OK);
    bt_task_init(&task);
    task.yield = cancel;
    task.ctx = &task;
    before = bt_task_enter(&task);
    assert_int_equal(
        bt_grammar_cache_make(cache, NULL, no_space, &source, &made),
        BT_ERR_NO_MEMORY);
    bt_task_leave(before);
    assert_null(made.program);
    assert_int_equal(made.us, 0);
    assert_false(bt_grammar_cache_has(cache, no_space, &source));
    assert_int_equal(
        bt_grammar_cache_make(cache, NULL, no_space, &source, &made), BT_OK);
    assert_false(made.was_known);
    bt_free(made.program);
    bt_grammar_cache_destroy(cache);
}

/* A tenant with a microsecond, which the first compilation spends. */
static void tenant_without_time_gets_what_is_known_alone(void **state)
{
    const bt_grammar_source_t first = choices("[\"a\"]");
    const bt_grammar_source_t other = choices("[\"b\"]");
    bt_tenant_t tenant = {.refs = 1};
    bt_grammar_cache_t *cache = NULL;
    bt_grammar_made_t made;

    (void)state;
    (void)pthread_mutex_init(&tenant.grammar_lock, NULL);
    bt_sched_bucket_init(&tenant.grammar_bucket, 1, 1, bt_now_us());
    assert_int_equal(bt_grammar_cache_create(1 << 20, &cache), BT_OK);
    assert_int_equal(
        bt_grammar_cache_make(cache, &tenant, no_space, &first, &made), BT_OK);
    assert_true(made.cpu_us > 0);
    bt_free(made.program);
    bt_tenant_charge_compile(&tenant, 3600000000, bt_now_us()); /* an hour */
    assert_int_equal(
        bt_grammar_cache_make(cache, &tenant, no_space, &other, &made),
        BT_ERR_BUSY);
    assert_null(made.program);
    assert_int_equal(made.cpu_us, 0);
    assert_int_equal(
        bt_grammar_cache_make(cache, &tenant, no_space, &first, &made), BT_OK);
    assert_true(made.was_known);
    bt_free(made.program);
    assert_int_equal(
        bt_grammar_cache_make(cache, NULL, no_space, &other, &made), BT_OK);
    bt_free(made.program);
    bt_grammar_cache_destroy(cache);
    (void)pthread_mutex_destroy(&tenant.grammar_lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(equal_descriptions_are_compiled_once),
        BT_TEST(what_differs_is_compiled_by_itself),
        BT_TEST(refusal_is_kept_with_its_reason),
        BT_TEST(memory_of_the_cache_is_bounded),
        BT_TEST(failed_allocations_are_reported_and_not_kept),
        BT_TEST(canceled_compilation_is_not_kept_and_the_next_one_is),
        BT_TEST(tenant_without_time_gets_what_is_known_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
