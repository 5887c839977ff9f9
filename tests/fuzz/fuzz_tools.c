/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever a model says, and wherever it is cut: the same content and calls
 * come out, and every call has a name. The first byte says which format, the
 * second how long pieces are. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "common/base/status.h"
#include "router/text/harmony_parser.h"
#include "router/text/tools.h"

static const char names[] = "f\0g\0get_weather";

typedef struct reading {
    bt_tools_t tools;
    bt_harmony_t harmony;
    bt_strbuf_t content, thought;
} reading_t;

static void push(reading_t *reading, const char *text, size_t n, bool last)
{
    if (bt_tool_format_is_harmony(reading->tools.spec.format)) {
        bt_harmony_push(&reading->harmony, text, n, last, &reading->thought,
                        &reading->content, &reading->tools);
    } else {
        bt_tools_push(&reading->tools, text, n, last, &reading->content);
    }
}

static void read_text(reading_t *reading, const bt_tools_spec_t *spec,
                      const char *text, size_t size, size_t step)
{
    bt_strbuf_init(&reading->content, SIZE_MAX / 4);
    bt_strbuf_init(&reading->thought, SIZE_MAX / 4);
    bt_harmony_init(&reading->harmony, &(const bt_harmony_spec_t){0});
    bt_tools_init(&reading->tools, spec);
    for (size_t i = 0; i < size; i += step) {
        const size_t n = (size - i < step) ? size - i : step;

        push(reading, text + i, n, false);
    }
    push(reading, "", 0, true);
    BT_ASSERT_ALWAYS(bt_strbuf_status(&reading->content) == BT_OK);
    BT_ASSERT_ALWAYS(reading->content.len + reading->thought.len <= size);
}

static void read_fini(reading_t *reading)
{
    bt_tools_fini(&reading->tools);
    bt_harmony_fini(&reading->harmony);
    bt_strbuf_fini(&reading->content);
    bt_strbuf_fini(&reading->thought);
}

static bool same(const bt_strbuf_t *a, const bt_strbuf_t *b)
{
    return (a->len == b->len) &&
           ((a->len == 0) || (memcmp(a->data, b->data, a->len) == 0));
}

static void compare(const reading_t *a, const reading_t *b)
{
    BT_ASSERT_ALWAYS(same(&a->content, &b->content));
    BT_ASSERT_ALWAYS(same(&a->thought, &b->thought));
    BT_ASSERT_ALWAYS(a->tools.n_calls == b->tools.n_calls);
    for (uint32_t i = 0; i < a->tools.n_calls; i++) {
        BT_ASSERT_ALWAYS(
            strcmp(a->tools.calls[i].name, b->tools.calls[i].name) == 0);
        BT_ASSERT_ALWAYS(
            same(&a->tools.calls[i].arguments, &b->tools.calls[i].arguments));
    }
}

static void check_calls(const bt_tools_t *tools)
{
    for (uint32_t i = 0; i < tools->n_calls; i++) {
        BT_ASSERT_ALWAYS(bt_tool_name_is_valid(tools->calls[i].name,
                                               strlen(tools->calls[i].name)));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const formats[] = {"hermes", "llama3", "mistral",
                                          "pythonic", "harmony"};
    bt_tools_spec_t spec = {.names = names, .names_bytes = sizeof(names)};
    reading_t a;
    reading_t b;

    if (size < 2) {
        return 0;
    }
    spec.format = bt_tool_format_named(formats[data[0] % 5]);
    spec.max_calls = (data[0] / 5) % 3;
    read_text(&a, &spec, (const char *)data + 2, size - 2, size);
    read_text(&b, &spec, (const char *)data + 2, size - 2, 1 + data[1] % 16);
    compare(&a, &b);
    check_calls(&a.tools);
    read_fini(&a);
    read_fini(&b);
    return 0;
}
