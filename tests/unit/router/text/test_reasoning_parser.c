/* SPDX-License-Identifier: Apache-2.0 */
/* Reasoning, separated from the answer. */
#include "tests/support/testsupport.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "router/text/reasoning_parser.h"

typedef struct split {
    const char *name; /* of the family */
    bool opened;
    const char *text, *thought, *content;
} split_t;

/* Expected values by hand, from the drawing in reasoning_parser.h. */
static const split_t splits[] = {
    {"think", false, "<think>\nhm, 2+2\n</think>\n\n4", "hm, 2+2", "4"},
    {"think", false, "<think>a</think>b", "a", "b"},
    {"think", false, " \n<think> a b </think> c \n", "a b", "c \n"},
    {"think", false, "<think></think>yes", "", "yes"},
    {"think", false, "<think>\n\n</think>\n\nyes", "", "yes"},
    {"think", false, "plain", "", "plain"},
    {"think", false, "  plain <think>x</think>", "",
     "  plain <think>x</think>"},
    {"think", false, "<thin king>", "", "<thin king>"},
    {"think", false, "<thi", "", "<thi"},
    {"think", false, " <", "", " <"},
    {"think", false, "", "", ""},
    /* Cut off, also inside what might have been the marker. */
    {"think", false, "<think>so far", "so far", ""},
    {"think", false, "<think>so far\n</thi", "so far\n</thi", ""},
    {"think", false, "<think>", "", ""},
    /* Text like the marker; a second marker stays text. */
    {"think", false, "<think>a </thing> <</think>b</think>c", "a </thing> <",
     "b</think>c"},
    {"think", false, "<think>a<think>b</think>c", "a<think>b", "c"},
    {"think", true, "a\n</think>\n\nb", "a", "b"},
    {"think", true, "\n</think>b", "", "b"},
    {"think", true, "never closed", "never closed", ""},
    {"seed", false, "<seed:think>a</seed:think>b", "a", "b"},
    {"mistral", false, "[THINK]a [b][/THINK]c", "a [b]", "c"},
    {"granite", false,
     "Here is my thought process:\n\na\n\nHere is my response:\n\nb", "a", "b"},
    {"think", false, "<think>\xe6\x97\xa5</think>\xe6\x9c\xac", "\xe6\x97\xa5",
     "\xe6\x9c\xac"},
};

static void expect(const bt_strbuf_t *got, const char *wanted,
                   const split_t *split, size_t a, size_t b)
{
    const char *text = (got->len > 0) ? got->data : "";

    if ((bt_strbuf_status(got) != BT_OK) || (strcmp(text, wanted) != 0)) {
        fail_msg("\"%s\" cut at %zu and %zu: \"%s\" is not \"%s\"", split->text,
                 a, b, text, wanted);
    }
}

/* In three pieces, of which each may be empty. */
static void check(const split_t *split, size_t a, size_t b)
{
    const size_t n = strlen(split->text);
    bt_strbuf_t thought, content;
    bt_reason_t reason;

    bt_strbuf_init(&thought, 4096);
    bt_strbuf_init(&content, 4096);
    bt_reason_init(&reason, bt_reason_marks_named(split->name), split->opened);
    bt_reason_push(&reason, split->text, a, false, &thought, &content);
    bt_reason_push(&reason, split->text + a, b - a, false, &thought, &content);
    bt_reason_push(&reason, split->text + b, n - b, true, &thought, &content);
    expect(&thought, split->thought, split, a, b);
    expect(&content, split->content, split, a, b);
    bt_reason_fini(&reason);
    bt_strbuf_fini(&thought);
    bt_strbuf_fini(&content);
}

static void any_split_gives_same_reasoning_and_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(splits); i++) {
        const size_t n = strlen(splits[i].text);

        for (size_t a = 0; a <= n; a++) {
            for (size_t b = a; b <= n; b++) {
                check(&splits[i], a, b);
            }
        }
    }
}

static void text_is_emitted_as_soon_as_unambiguous(void **state)
{
    bt_strbuf_t thought, content;
    bt_reason_t reason;

    (void)state;
    bt_strbuf_init(&thought, 4096);
    bt_strbuf_init(&content, 4096);
    bt_reason_init(&reason, bt_reason_marks_named("think"), false);
    bt_reason_push(&reason, "<think>ab </", 12, false, &thought, &content);
    assert_string_equal(thought.data, "ab");
    bt_reason_push(&reason, "x", 1, false, &thought, &content);
    assert_string_equal(thought.data, "ab </x");
    bt_reason_push(&reason, "</think>\nz", 10, false, &thought, &content);
    assert_string_equal(content.data, "z");
    bt_reason_fini(&reason);
    bt_strbuf_reset(&content);
    bt_reason_init(&reason, NULL, false);
    bt_reason_push(&reason, "<think>", 7, false, &thought, &content);
    assert_string_equal(content.data, "<think>");
    bt_reason_fini(&reason);
    bt_strbuf_fini(&thought);
    bt_strbuf_fini(&content);
}

static void marks_are_detected_from_template(void **state)
{
    static const char qwen[] = "{{- '<think>\\n\\n</think>\\n\\n' }}";
    static const char plain[] = "{{ '<|im_start|>' }}";
    static const char prompt[] = "<|im_start|>assistant\n<think>\n";

    (void)state;
    assert_string_equal(bt_reason_marks_of(qwen, strlen(qwen))->open,
                        "<think>");
    assert_null(bt_reason_marks_of(plain, strlen(plain)));
    assert_null(bt_reason_marks_of(NULL, 0));
    assert_null(bt_reason_marks_named("off"));
    assert_true(bt_reason_is_opened(bt_reason_marks_named("think"), prompt,
                                    strlen(prompt)));
    assert_false(bt_reason_is_opened(bt_reason_marks_named("seed"), prompt,
                                     strlen(prompt)));
    assert_false(bt_reason_is_opened(bt_reason_marks_named("think"), prompt,
                                     strlen(prompt) - 3));
    assert_false(bt_reason_is_opened(bt_reason_marks_named("think"), "", 0));
}

static void failed_allocation_sets_buffer_status(void **state)
{
    bt_strbuf_t thought, content;
    bt_reason_t reason;

    (void)state;
    bt_strbuf_init(&thought, 4096);
    bt_strbuf_init(&content, 4096);
    bt_reason_init(&reason, bt_reason_marks_named("think"), false);
    bt_alloc_fail_at(1);
    bt_reason_push(&reason, "<think>a", 8, false, &thought, &content);
    bt_alloc_fail_at(0);
    assert_int_equal(bt_strbuf_status(&content), BT_ERR_NO_MEMORY);
    bt_reason_fini(&reason);
    bt_strbuf_fini(&thought);
    bt_strbuf_fini(&content);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(any_split_gives_same_reasoning_and_text),
        BT_TEST(text_is_emitted_as_soon_as_unambiguous),
        BT_TEST(marks_are_detected_from_template),
        BT_TEST(failed_allocation_sets_buffer_status),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
