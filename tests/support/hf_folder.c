/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/hf_folder.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/json.h"
#include "common/base/text.h"
#include "tests/support/testsupport.h"

#define LIMIT (64u << 20)

const char *bt_hf_folder_make(void)
{
    static char dir[PATH_MAX];
    const char *const tmp = getenv("TMPDIR");

    snprintf(dir, sizeof(dir), "%s/baton-hf-XXXXXX",
             (tmp != NULL) ? tmp : "/tmp");
    assert_non_null(mkdtemp(dir));
    return dir;
}

void bt_hf_folder_remove(const char *dir)
{
    DIR *const list = opendir(dir);
    const struct dirent *entry;
    char path[PATH_MAX];

    assert_non_null(list);
    while ((entry = readdir(list)) != NULL) {
        if ((strcmp(entry->d_name, ".") != 0) &&
            (strcmp(entry->d_name, "..") != 0)) {
            snprintf(path, sizeof(path), "%.2000s/%.255s", dir, entry->d_name);
            assert_int_equal(remove(path), 0);
        }
    }
    closedir(list);
    assert_int_equal(rmdir(dir), 0);
}

void bt_hf_folder_write(const char *dir, const char *name, const void *data,
                        size_t bytes)
{
    char path[PATH_MAX];
    FILE *file;

    snprintf(path, sizeof(path), "%.2000s/%.255s", dir, name);
    file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

void bt_hf_folder_text(const char *dir, const char *name, const char *text)
{
    bt_hf_folder_write(dir, name, text, strlen(text));
}

void bt_st_file_init(bt_st_file_t *file)
{
    bt_strbuf_init(&file->header, LIMIT);
    bt_strbuf_init(&file->data, LIMIT);
    bt_strbuf_puts(&file->header, "{\"__metadata__\":{\"format\":\"pt\"}");
}

void bt_st_file_add(bt_st_file_t *file, const char *name, const char *dtype,
                    const char *shape, const void *data, size_t bytes)
{
    bt_strbuf_printf(&file->header,
                     ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],"
                     "\"data_offsets\":[%zu,%zu]}",
                     name, dtype, shape, file->data.len,
                     file->data.len + bytes);
    bt_strbuf_append(&file->data, data, bytes);
}

void bt_st_file_write(bt_st_file_t *file, const char *dir, const char *name)
{
    bt_strbuf_t whole;
    uint64_t n;

    bt_strbuf_puts(&file->header, "}");
    while (file->header.len % 8 != 0) {
        bt_strbuf_puts(&file->header, " ");
    }
    n = file->header.len;
    bt_strbuf_init(&whole, 2 * (size_t)LIMIT);
    bt_strbuf_append(&whole, &n, sizeof(n));
    bt_strbuf_append(&whole, file->header.data, file->header.len);
    bt_strbuf_append(&whole, file->data.data, file->data.len);
    assert_int_equal(bt_strbuf_status(&whole), BT_OK);
    bt_hf_folder_write(dir, name, whole.data, whole.len);
    bt_strbuf_fini(&whole);
    bt_strbuf_fini(&file->header);
    bt_strbuf_fini(&file->data);
}

static uint32_t hashed(const char *name, uint64_t i)
{
    uint32_t h = 0x811C9DC5u;

    for (; *name != '\0'; name++) {
        h = (h ^ (uint8_t)*name) * 0x01000193u;
    }
    return h + (uint32_t)(i * 2654435761u);
}

/* A float that every type of numbers has, as it. */
static size_t put_float(const char *dtype, uint32_t h, uint8_t *out)
{
    const float value = ((float)(h >> 24) - 128.0f) / 64.0f;
    uint16_t half = 0;
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    if (strcmp(dtype, "F32") == 0) {
        memcpy(out, &value, sizeof(value));
        return sizeof(value);
    }
    if (strcmp(dtype, "BF16") == 0) {
        half = (uint16_t)(bits >> 16);
    } else if (value != 0.0f) { /* F16: a normal one, at least 2^-6 */
        half = (uint16_t)((bits >> 16 & 0x8000u) |
                          (((bits >> 23 & 0xFFu) - 112u) << 10) |
                          (bits >> 13 & 0x3FFu));
    }
    memcpy(out, &half, sizeof(half));
    return sizeof(half);
}

static size_t put_hashed(const char *dtype, uint32_t h, uint8_t *out)
{
    const uint32_t word = h ^ (h >> 15);

    if (strcmp(dtype, "I32") == 0) {
        memcpy(out, &word, sizeof(word));
        return sizeof(word);
    }
    if ((strcmp(dtype, "F8_E4M3") == 0) || (strcmp(dtype, "I8") == 0) ||
        (strcmp(dtype, "U8") == 0)) {
        *out = (uint8_t)(h >> 24);
        if ((dtype[0] == 'F') && ((*out & 0x7F) == 0x7F)) {
            *out -= 1; /* no NaN */
        }
        return 1;
    }
    return put_float(dtype, h, out);
}

static uint64_t filled(const char *fill, uint64_t i, uint64_t n)
{
    const char *at = fill + 1;
    const uint64_t number = strtoull(at, NULL, 10);

    switch (fill[0]) {
    case '=':
        return number;
    case '/':
        return i / number;
    case '%':
        return i * 5 % n / number;
    default: /* a list */
        while (i-- > 0) {
            at = strchr(at, ',') + 1;
        }
        return strtoull(at, NULL, 10);
    }
}

size_t bt_hf_folder_numbers(const char *name, const char *dtype,
                            const char *fill, uint64_t n, uint8_t *out)
{
    size_t bytes = 0;

    for (uint64_t i = 0; i < n; i++) {
        if (fill[0] == '*') {
            bytes += put_hashed(dtype, hashed(name, i), out + bytes);
        } else {
            const uint64_t value = filled(fill, i, n);
            const float number = (float)value;
            const bool is_float = (strcmp(dtype, "F32") == 0);
            const size_t size = (strcmp(dtype, "I64") == 0) ? 8 : 4;

            memcpy(out + bytes, is_float ? (const void *)&number : &value,
                   size);
            bytes += size;
        }
    }
    return bytes;
}

/* GPT-2's alphabet of bytes: itself where it can be seen, else from 256 on. */
static uint32_t byte_char(uint32_t byte)
{
    uint32_t hidden = 0;

    for (uint32_t b = 0; b < byte; b++) {
        hidden += (b < 0x21) || ((b > 0x7E) && (b < 0xA1)) || (b == 0xAD);
    }
    return ((byte < 0x21) || ((byte > 0x7E) && (byte < 0xA1)) || (byte == 0xAD))
               ? 256 + hidden
               : byte;
}

void bt_hf_folder_tokenizer(const char *dir, uint32_t n)
{
    bt_strbuf_t text;
    bt_json_t json;

    bt_strbuf_init(&text, LIMIT);
    bt_json_init(&json, &text);
    bt_json_object(&json, NULL);
    bt_json_object(&json, "pre_tokenizer");
    bt_json_str(&json, "type", "ByteLevel");
    bt_json_bool(&json, "add_prefix_space", false);
    bt_json_end_object(&json);
    bt_json_object(&json, "model");
    bt_json_str(&json, "type", "BPE");
    bt_json_object(&json, "vocab");
    for (uint32_t i = 0; i < n; i++) {
        uint8_t utf8[16];
        const size_t len =
            (i < 256) ? bt_utf8_encode(byte_char(i), utf8)
                      : (size_t)snprintf((char *)utf8, sizeof(utf8), "w%u", i);

        bt_json_key(&json, (const char *)utf8, len);
        bt_json_u64(&json, NULL, i);
    }
    bt_json_end_object(&json);
    bt_json_array(&json, "merges");
    bt_json_end_array(&json);
    bt_json_end_object(&json);
    bt_json_end_object(&json);
    assert_int_equal(bt_strbuf_status(&text), BT_OK);
    bt_hf_folder_write(dir, "tokenizer.json", text.data, text.len);
    bt_strbuf_fini(&text);
}
