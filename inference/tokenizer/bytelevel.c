/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "inference/tokenizer/tokenizer_priv.h"
#include "inference/tokenizer/unicode.h"

/* The byte alphabet of GPT-2: bytes that print stand for themselves (as the
 * Latin-1 character), the others follow from U+0100 in their order:
 * 0 … 32, 127 … 160, 173. */
static int byte_of(uint32_t cp)
{
    if (((cp >= 33) && (cp <= 126)) || ((cp >= 161) && (cp <= 172)) ||
        ((cp >= 174) && (cp <= 255))) {
        return (int)cp;
    }
    if ((cp >= 256) && (cp <= 288)) {
        return (int)cp - 256;
    }
    if ((cp >= 289) && (cp <= 322)) {
        return (int)cp - 289 + 127;
    }
    return (cp == 323) ? 173 : -1;
}

uint32_t bt_bytelevel_char(uint8_t byte)
{
    if (byte <= 32) {
        return 256u + byte;
    }
    if ((byte >= 127) && (byte <= 160)) {
        return 289u + byte - 127u;
    }
    return (byte == 173) ? 323u : byte;
}

size_t bt_bytelevel_decode(const uint8_t *text, size_t bytes, uint8_t *out)
{
    size_t n = 0;
    size_t at = 0;

    while (at < bytes) {
        uint32_t cp = 0;
        const int len = bt_utf8_scan(text + at, bytes - at);
        int byte;

        if (len > 0) {
            bt_utf8_decode(text + at, &cp);
        }
        byte = (len > 0) ? byte_of(cp) : -1;
        if (byte < 0) {
            memcpy(out, text, bytes);
            return bytes;
        }
        out[n++] = (uint8_t)byte;
        at += (size_t)len;
    }
    return n;
}
