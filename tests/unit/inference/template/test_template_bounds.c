/* SPDX-License-Identifier: Apache-2.0 */
/* Templates that ask for too much end with an error, and soon. */
#include <stdio.h>

#include "tests/unit/inference/template/rendering.h"

#include "common/base/alloc.h"
#include "inference/template/value.h"

static void expect_too_large(const char *source, const char *part)
{
    rendered_t r = rendering(source, "{}", NULL, 0);

    assert_int_equal(r.status, BT_ERR_TOO_LARGE);
    if (strstr(r.why, part) == NULL) {
        fail_msg("%s: %s", source, r.why);
    }
    assert_int_equal(r.out.len, 0);
    rendering_end(&r);
}

static void template_steps_are_bounded(void **state)
{
    (void)state;
    expect_too_large("{% set r = range(99999) %}{% for a in r %}"
                     "{% for b in r %}{% endfor %}{% endfor %}",
                     "steps");
    expect_too_large("{% set n = namespace(l=range(9999)|list) %}"
                     "{% for a in range(99999) %}{% if 'x' in n.l %}{% endif %}"
                     "{% endfor %}",
                     "steps");
    expect_too_large("{{ range(100001) }}", "range: more than 100000 numbers");
}

static void template_memory_is_bounded(void **state)
{
    (void)state;
    expect_too_large("{{ ('x' * 999999) * 999999 }}", "memory");
    expect_too_large("{% set n = namespace(t='x') %}{% for i in range(99) %}"
                     "{% set n.t = n.t ~ n.t %}{% endfor %}",
                     "memory");
    expect_too_large("{% set n = namespace(l=[1]) %}{% for i in range(99) %}"
                     "{% set n.l = n.l + n.l %}{% endfor %}",
                     "m"); /* memory or more steps */
    expect_too_large("{{ 'x' | indent(999999999) | center(99999999999) }}",
                     "m");
}

static void template_depth_is_bounded(void **state)
{
    static char source[100000];

    (void)state;
    expect_too_large("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
                     "within each other");
    memset(source, '(', sizeof(source) - 1);
    memcpy(source, "{{ ", 3);
    rendered_t r = rendering(source, "{}", NULL, 0);

    assert_false(r.parsed);
    rendering_end(&r);
    memset(source, '-', sizeof(source) - 1);
    memcpy(source, "{{ ", 3);
    memcpy(source + sizeof(source) - 6, "1 }}", 5);
    expect_too_large(source, "within each other");
    source[0] = '\0';
    for (int i = 0; i < 5000; i++) {
        memcpy(source + (size_t)i * 13, "{% if true %}", 14);
    }
    expect_too_large(source, "within each other");
    memset(source, '[', 1000);
    source[1000] = '\0';
    r = rendering("x", source, NULL, 0);
    assert_int_equal(r.status, BT_ERR_TOO_LARGE);
    rendering_end(&r);
}

/* A value that holds itself can be made of namespaces alone. */
static void cyclic_values_end_with_an_error(void **state)
{
    (void)state;
    expect_too_large("{% set n = namespace() %}{% set n.n = n %}{{ n }}",
                     "within each other");
    expect_too_large("{% set n = namespace(l=[]) %}{% for i in range(300) %}"
                     "{% set n.l = [n.l] %}{% endfor %}{{ n.l | tojson }}",
                     "within each other");
    expect_too_large("{% set a = namespace(l=[]) %}{% set b = namespace(l=[]) "
                     "%}{% for i in range(300) %}{% set a.l = [a.l] %}"
                     "{% set b.l = [b.l] %}{% endfor %}{{ a.l == b.l }}",
                     "within each other");
}

static void
a_text_that_grows_piece_by_piece_is_not_copied_each_time(void **state)
{
    /* 20,000 pieces of 101 bytes: 2 MB; copied each time it would be 20 GB,
     * over every bound. Each piece is made between two of the text's growths.
     */
    char vars[128];
    rendered_t r;

    snprintf(vars, sizeof(vars), "{\"c\":\"%0100d\"}", 0);
    r = rendering("{% set n = namespace(t='') %}{% for i in range(20000) %}"
                  "{% set n.t = n.t + (c ~ 'x') %}{% endfor %}"
                  "{{ n.t | length }}{{ n.t[-2:] }}",
                  vars, NULL, 0);

    (void)state;
    if (r.status != BT_OK) {
        fail_msg("%s", r.why);
    }
    assert_string_equal(r.out.data, "20200000x");
    rendering_end(&r);
}

static void template_survives_every_failed_allocation(void **state)
{
    static const char source[] =
        "{% macro f(a, b=2) %}{{ a }}{% endmacro %}{% for i in l %}{{ f(i) }}"
        "{{ {'a': i} | tojson(indent=1) }}{% endfor %}{{ l | sort | join }}";
    bt_status_t status = BT_ERR_NO_MEMORY;
    int n = 0;

    (void)state;
    while (status == BT_ERR_NO_MEMORY) {
        rendered_t r;

        assert_true(n < 1000);
        bt_alloc_fail_at(++n);
        r = rendering(source, "{\"l\":[\"b\",\"a\"]}", NULL, 0);
        status = r.status;
        bt_alloc_fail_at(0);
        rendering_end(&r);
    }
    assert_int_equal(status, BT_OK);
    assert_true(n > 4);
}

static void arena_allocates_no_more_than_its_limit(void **state)
{
    bt_tmpl_arena_t arena;
    char *first;

    (void)state;
    bt_tmpl_arena_init(&arena, 100000);
    assert_null(bt_tmpl_arena_take(&arena, 1, 100001));
    assert_int_equal(arena.status, BT_ERR_TOO_LARGE);
    assert_null(bt_tmpl_arena_take(&arena, SIZE_MAX / 2, 4));
    first = bt_tmpl_arena_take_bytes(&arena, 10);
    assert_non_null(first);
    assert_true(bt_tmpl_arena_extend(&arena, first + 10, 5));
    assert_false(bt_tmpl_arena_extend(&arena, first + 10, 5));
    assert_non_null(bt_tmpl_arena_take(&arena, 1, 50000));
    assert_null(bt_tmpl_arena_take(&arena, 1, 50000));
    assert_true(arena.used_bytes <= 100000);
    bt_tmpl_arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(template_steps_are_bounded),
        BT_TEST(template_memory_is_bounded),
        BT_TEST(template_depth_is_bounded),
        BT_TEST(cyclic_values_end_with_an_error),
        BT_TEST(a_text_that_grows_piece_by_piece_is_not_copied_each_time),
        BT_TEST(template_survives_every_failed_allocation),
        BT_TEST(arena_allocates_no_more_than_its_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
