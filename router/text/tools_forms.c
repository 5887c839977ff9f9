/* SPDX-License-Identifier: Apache-2.0 */
/* Formats of the model families. */
#include <ctype.h>
#include <string.h>

#include "common/base/containers.h"
#include "router/text/tools_priv.h"

/* In the order in which they are searched in a template. */
static const bt_tool_format_t formats[] = {
    {
        .name = "harmony",
        .mark = "<|channel|>",
        .end = "<|call|>",
        .in_template = {"<|channel|>commentary"},
        .open = {"<|channel|>commentary to=functions.",
                 " <|constrain|>json<|message|>"},
        .call_end = "",
        .kind = BT_TOOLS_HARMONY,
    },
    {
        .name = "hermes",
        .mark = "<tool_call>",
        .end = "</tool_call>",
        .torn_end = "</tool_call>",
        .in_template = {"<tool_call>"},
        .open = {"<tool_call>\n{\"name\": \"", "\", \"arguments\": "},
        .call_end = "}\n</tool_call>",
        .next_call = "\n<tool_call>\n{\"name\": \"",
        .list_end = "",
        .kind = BT_TOOLS_OBJECTS,
    },
    {
        .name = "mistral",
        .mark = "[TOOL_CALLS]",
        .end = "",
        .torn_end = "[TOOL_CALLS]",
        .inner = {"[ARGS]", "[CALL_ID]"},
        .in_template = {"[TOOL_CALLS]"},
        .open = {"[TOOL_CALLS][{\"name\": \"", "\", \"arguments\": "},
        .call_end = "}",
        .next_call = ", {\"name\": \"",
        .list_end = "]",
        .kind = BT_TOOLS_BRACKETS,
        .id_bytes = 9,
    },
    {
        .name = "llama3",
        .mark = "<|python_tag|>",
        .end = ";",
        .in_template = {"<|python_tag|>",
                        "{\"name\": function name, \"parameters\""},
        .open = {"{\"name\": \"", "\", \"parameters\": "},
        .call_end = "}",
        .next_call = "; {\"name\": \"",
        .list_end = "",
        .kind = BT_TOOLS_OBJECTS,
        .is_bare = true,
    },
    {
        .name = "pythonic",
        .mark = "<|python_start|>",
        .end = "<|python_end|>",
        .in_template = {"<|python_start|>"},
        .open = {"[", "("},
        .kind = BT_TOOLS_PYTHON,
        .is_bare = true,
    },
};

const bt_tool_format_t *bt_tool_format_named(const char *name)
{
    return BT_FIND_NAMED(formats, BT_ARRAY_LEN(formats), name, name);
}

static bool has_word(const char *text, size_t bytes, const char *word)
{
    return (bytes > 0) && (memmem(text, bytes, word, strlen(word)) != NULL);
}

const bt_tool_format_t *bt_tool_format_of(const char *chat_template,
                                          size_t bytes)
{
    /* Other formats with equal markers around different content. */
    static const char *const others[] = {"<arg_key>", "<function="};

    for (size_t i = 0; i < BT_ARRAY_LEN(others); i++) {
        if (has_word(chat_template, bytes, others[i])) {
            return NULL;
        }
    }
    for (size_t i = 0; i < 2 * BT_ARRAY_LEN(formats); i++) {
        const char *word = formats[i / 2].in_template[i % 2];

        if ((word != NULL) && has_word(chat_template, bytes, word)) {
            return &formats[i / 2];
        }
    }
    return NULL;
}

uint32_t bt_tool_format_marks(const bt_tool_format_t *format,
                              const char *marks[BT_TOOLS_MAX_MARKS])
{
    const char *const all[BT_TOOLS_MAX_MARKS] = {
        format->mark, format->end, format->inner[0], format->inner[1]};
    uint32_t n = 0;

    for (size_t i = 0; i < BT_ARRAY_LEN(all); i++) {
        if ((all[i] != NULL) && (strlen(all[i]) > 1)) { /* ';' is no marker */
            marks[n++] = all[i];
        }
    }
    return n;
}

bool bt_tool_format_is_harmony(const bt_tool_format_t *format)
{
    return (format != NULL) && (format->kind == BT_TOOLS_HARMONY);
}

uint32_t bt_tool_format_id_bytes(const bt_tool_format_t *format)
{
    return format->id_bytes;
}

size_t bt_tool_format_open(const bt_tool_format_t *format, const char *name,
                           bt_strbuf_t *out)
{
    size_t at;

    bt_strbuf_puts(out, format->open[0]);
    at = out->len;
    if (name != NULL) {
        bt_strbuf_puts(out, name);
        bt_strbuf_puts(out, format->open[1]);
    }
    return at;
}

bool bt_tool_name_is_valid(const char *name, size_t bytes)
{
    if ((bytes == 0) || (bytes > BT_TOOLS_MAX_NAME_BYTES)) {
        return false;
    }
    for (size_t i = 0; i < bytes; i++) {
        const char c = name[i];

        if (((unsigned char)c >= 0x80) ||
            ((isalnum((unsigned char)c) == 0) &&
             ((c == '\0') || (strchr("_-.:/", c) == NULL)))) {
            return false;
        }
    }
    return true;
}
