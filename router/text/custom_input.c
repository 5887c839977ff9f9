/* SPDX-License-Identifier: Apache-2.0 */
#include "router/text/custom_input.h"

#include <string.h>

#define HEAD        "{\"" BT_CUSTOM_INPUT_NAME "\":\""
#define REPLACEMENT 0xFFFDu

static bool is_space(char c)
{
    return (c == ' ') || (c == '\t') || (c == '\n') || (c == '\r');
}

/* True where white space may stand before the next sign of the head. */
static bool takes_space(uint32_t n_head)
{
    return (n_head <= 1) || (n_head >= strlen(HEAD) - 2);
}

static void read_head(bt_custom_input_t *input, const char *text, size_t bytes)
{
    while ((input->at < bytes) && (input->state == BT_CUSTOM_INPUT_HEAD)) {
        const char c = text[input->at];

        if (c == HEAD[input->n_head]) {
            input->n_head++;
            input->at++;
            if (HEAD[input->n_head] == '\0') {
                input->state = BT_CUSTOM_INPUT_TEXT;
            }
        } else if (is_space(c) && takes_space(input->n_head)) {
            input->at++;
        } else {
            input->state = BT_CUSTOM_INPUT_RAW;
            input->at = 0;
        }
    }
}

static void put_code(uint32_t code, bt_strbuf_t *out)
{
    uint8_t utf8[4];
    const unsigned n = bt_utf8_encode(code, utf8);

    bt_strbuf_append(out, utf8, n);
}

static uint32_t digit_of(char c)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    const char *const at =
        (c != '\0') ? strchr(digits, c) : NULL; /* its end is no digit */
    const uint32_t n = (at != NULL) ? (uint32_t)(at - digits) : 22;

    return (n < 16) ? n : (n < 22) ? n - 6 : UINT32_MAX;
}

/* Reads \uXXXX from at least 6 bytes. @return UINT32_MAX: it is none */
static uint32_t unit_of(const char *text)
{
    uint32_t unit = 0;

    if ((text[0] != '\\') || (text[1] != 'u')) {
        return UINT32_MAX;
    }
    for (int i = 2; i < 6; i++) {
        const uint32_t digit = digit_of(text[i]);

        if (digit == UINT32_MAX) {
            return UINT32_MAX;
        }
        unit = 16 * unit + digit;
    }
    return unit;
}

/* Reads the second half of a surrogate pair. @return its bytes; 0: there is
 * none */
static size_t read_low(const char *text, size_t bytes, uint32_t high,
                       uint32_t *code_p)
{
    const uint32_t low = (bytes >= 6) ? unit_of(text) : UINT32_MAX;

    if ((low < 0xDC00) || (low >= 0xE000)) {
        return 0;
    }
    *code_p = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    return 6;
}

/* Reads \u… of at least 6 bytes, or up to the end.
 * @return its bytes; 0: more are needed */
static size_t read_unit(const char *text, size_t bytes, bool last,
                        bt_strbuf_t *out)
{
    uint32_t code = (bytes >= 6) ? unit_of(text) : UINT32_MAX;
    size_t n = 6;

    if (code == UINT32_MAX) {
        put_code(REPLACEMENT, out);
        return 1;
    }
    if ((code >= 0xD800) && (code < 0xDC00)) {
        if (!last && ((bytes == 6) || ((text[6] == '\\') && (bytes < 12)))) {
            return 0;
        }
        n += read_low(text + 6, bytes - 6, code, &code);
    }
    put_code(((code >= 0xD800) && (code < 0xE000)) ? REPLACEMENT : code, out);
    return n;
}

/* Reads an escape. @return its bytes; 0: more are needed */
static size_t read_escape(const char *text, size_t bytes, bool last,
                          bt_strbuf_t *out)
{
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const char *letter;

    if (!last && ((bytes < 2) || ((text[1] == 'u') && (bytes < 6)))) {
        return 0;
    }
    letter = (bytes > 1) ? memchr(letters, text[1], strlen(letters)) : NULL;
    if (letter != NULL) {
        bt_strbuf_append(out, &meant[letter - letters], 1);
        return 2;
    }
    if ((bytes > 1) && (text[1] == 'u')) {
        return read_unit(text, bytes, last, out);
    }
    put_code(REPLACEMENT, out); /* the character behind it is read next */
    return 1;
}

static void read_text(bt_custom_input_t *input, const char *text, size_t bytes,
                      bool last, bt_strbuf_t *out)
{
    while (input->at < bytes) {
        size_t n = input->at;

        while ((n < bytes) && (text[n] != '"') && (text[n] != '\\')) {
            n++;
        }
        bt_strbuf_append(out, text + input->at, n - input->at);
        input->at = n;
        if (n == bytes) {
            return;
        }
        if (text[n] == '"') {
            input->state = BT_CUSTOM_INPUT_END;
            return;
        }
        n = read_escape(text + n, bytes - n, last, out);
        if (n == 0) {
            return;
        }
        input->at += n;
    }
}

void bt_custom_input_read(bt_custom_input_t *input, const char *arguments,
                          size_t bytes, bool last, bt_strbuf_t *out)
{
    if (input->state == BT_CUSTOM_INPUT_HEAD) {
        read_head(input, arguments, bytes);
    }
    if (input->state == BT_CUSTOM_INPUT_TEXT) {
        read_text(input, arguments, bytes, last, out);
    } else if (input->state == BT_CUSTOM_INPUT_RAW) {
        bt_strbuf_append(out, arguments + input->at, bytes - input->at);
        input->at = bytes;
    }
}
