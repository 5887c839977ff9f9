/* SPDX-License-Identifier: Apache-2.0 */
/** @file writing.h  A GGUF file, written piece by piece. */
#ifndef BT_TESTS_UNIT_GGUF_WRITING_H
#define BT_TESTS_UNIT_GGUF_WRITING_H

#include <stdint.h>
#include <string.h>

#include "common/base/text.h"

/* Value types, source: the GGUF specification. */
enum {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    BOOL = 7,
    STRING = 8,
    ARRAY = 9,
    U64 = 10,
    F64 = 12,
};

static inline void put(bt_strbuf_t *buf, uint64_t value, size_t bytes)
{
    bt_strbuf_append(buf, &value, bytes);
}

static inline void put_str(bt_strbuf_t *buf, const char *text)
{
    put(buf, strlen(text), 8);
    bt_strbuf_puts(buf, text);
}

static inline void put_header(bt_strbuf_t *buf, uint64_t n_tensors,
                              uint64_t n_kvs)
{
    bt_strbuf_init(buf, 1u << 20);
    bt_strbuf_puts(buf, "GGUF");
    put(buf, 3, 4);
    put(buf, n_tensors, 8);
    put(buf, n_kvs, 8);
}

static inline void put_scalar(bt_strbuf_t *buf, const char *key, uint32_t type,
                              uint64_t value, size_t bytes)
{
    put_str(buf, key);
    put(buf, type, 4);
    put(buf, value, bytes);
}

static inline void put_tensor(bt_strbuf_t *buf, const char *name, uint64_t n_in,
                              uint64_t n_out, uint32_t type, uint64_t offset)
{
    put_str(buf, name);
    put(buf, 2, 4);
    put(buf, n_in, 8);
    put(buf, n_out, 8);
    put(buf, type, 4);
    put(buf, offset, 8);
}

static inline void pad(bt_strbuf_t *buf)
{
    while (buf->len % 32 != 0) {
        put(buf, 0, 1);
    }
}

#endif
