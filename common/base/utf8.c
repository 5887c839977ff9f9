/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/utf8.h"

#include <string.h>

#define ASCII_WORD 0x8080808080808080u

int bt_utf8_scan(const uint8_t *text, size_t bytes)
{
    uint8_t low = 0x80; /* range of the second byte */
    uint8_t high = 0xBF;
    int len;

    if (bytes == 0) {
        return 0;
    }
    if (text[0] < 0x80) {
        return 1;
    }
    if ((text[0] < 0xC2) || (text[0] > 0xF4)) {
        return -1;
    }
    if (text[0] < 0xE0) {
        len = 2;
    } else if (text[0] < 0xF0) {
        len = 3;
        low = (text[0] == 0xE0) ? 0xA0 : low;   /* overlong */
        high = (text[0] == 0xED) ? 0x9F : high; /* surrogates */
    } else {
        len = 4;
        low = (text[0] == 0xF0) ? 0x90 : low;   /* overlong */
        high = (text[0] == 0xF4) ? 0x8F : high; /* past U+10FFFF */
    }
    for (int i = 1; i < len; i++) {
        if ((size_t)i == bytes) {
            return 0;
        }
        if ((text[i] < low) || (text[i] > high)) {
            return -i;
        }
        low = 0x80;
        high = 0xBF;
    }
    return len;
}

bool bt_utf8_valid(const uint8_t *text, size_t bytes)
{
    size_t i = 0;

    while (i < bytes) {
        uint64_t word;
        int len;

        if (bytes - i >= sizeof(word)) {
            memcpy(&word, text + i, sizeof(word));
            if ((word & ASCII_WORD) == 0) {
                i += sizeof(word);
                continue;
            }
        }
        len = bt_utf8_scan(text + i, bytes - i);
        if (len <= 0) {
            return false;
        }
        i += (size_t)len;
    }
    return true;
}

unsigned bt_utf8_encode(uint32_t cp, uint8_t out[4])
{
    if (cp < 0x80) {
        out[0] = (uint8_t)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (uint8_t)(0xC0 | cp >> 6);
        out[1] = (uint8_t)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (uint8_t)(0xE0 | cp >> 12);
        out[1] = (uint8_t)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (uint8_t)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (uint8_t)(0xF0 | cp >> 18);
    out[1] = (uint8_t)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (uint8_t)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (uint8_t)(0x80 | (cp & 0x3F));
    return 4;
}
