/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire/wire_fields.h"

/* Our deepest message is [[[ ]]]; headroom is for a newer peer's fields. */
#define MAX_DEPTH 8
/* A token in TOKENS is 6 objects, its score 3; headroom as above. */
#define MAX_OBJECTS (16u * BT_WIRE_MAX_BATCH + 64u)

/* Type by the first byte of an object; source: the msgpack specification,
 * "Formats". */
typedef struct shape {
    uint8_t size_bytes; /* width of the length or count that follows */
    uint8_t fixed;      /* bytes that follow besides */
    uint8_t per_item;   /* 0 = the length counts bytes, else objects per item */
} shape_t;

static int shape_of(uint8_t first, shape_t *shape_p)
{
    static const shape_t shapes[] = {
        [0xc0 - 0xc0] = {0, 0, 0}, [0xc2 - 0xc0] = {0, 0, 0},
        [0xc3 - 0xc0] = {0, 0, 0}, [0xc4 - 0xc0] = {1, 0, 0},
        [0xc5 - 0xc0] = {2, 0, 0}, [0xc6 - 0xc0] = {4, 0, 0},
        [0xc7 - 0xc0] = {1, 1, 0}, [0xc8 - 0xc0] = {2, 1, 0},
        [0xc9 - 0xc0] = {4, 1, 0}, [0xca - 0xc0] = {0, 4, 0},
        [0xcb - 0xc0] = {0, 8, 0}, [0xcc - 0xc0] = {0, 1, 0},
        [0xcd - 0xc0] = {0, 2, 0}, [0xce - 0xc0] = {0, 4, 0},
        [0xcf - 0xc0] = {0, 8, 0}, [0xd0 - 0xc0] = {0, 1, 0},
        [0xd1 - 0xc0] = {0, 2, 0}, [0xd2 - 0xc0] = {0, 4, 0},
        [0xd3 - 0xc0] = {0, 8, 0}, [0xd4 - 0xc0] = {0, 2, 0},
        [0xd5 - 0xc0] = {0, 3, 0}, [0xd6 - 0xc0] = {0, 5, 0},
        [0xd7 - 0xc0] = {0, 9, 0}, [0xd8 - 0xc0] = {0, 17, 0},
        [0xd9 - 0xc0] = {1, 0, 0}, [0xda - 0xc0] = {2, 0, 0},
        [0xdb - 0xc0] = {4, 0, 0}, [0xdc - 0xc0] = {2, 0, 1},
        [0xdd - 0xc0] = {4, 0, 1}, [0xde - 0xc0] = {2, 0, 2},
        [0xdf - 0xc0] = {4, 0, 2},
    };

    if ((first < 0xc0) || (first > 0xdf) || (first == 0xc1)) {
        return -1; /* 0xc1 is never used; the others have no shape */
    }
    *shape_p = shapes[first - 0xc0];
    return 0;
}

/* One object's own bytes: how many, and how many objects it contains. */
static bt_status_t measure(const uint8_t *data, size_t left, size_t *bytes_p,
                           uint64_t *inside_p)
{
    const uint8_t first = data[0];
    shape_t shape;
    uint64_t n = 0;

    *inside_p = 0;
    *bytes_p = 1;
    if ((first <= 0x7f) || (first >= 0xe0)) { /* fixint */
        return BT_OK;
    }
    if (first <= 0x9f) { /* fixmap, fixarray */
        *inside_p = (uint64_t)(first & 0x0f) * ((first <= 0x8f) ? 2u : 1u);
        return BT_OK;
    }
    if (first <= 0xbf) { /* fixstr */
        *bytes_p = 1u + (first & 0x1fu);
        return (*bytes_p <= left) ? BT_OK : BT_ERR_BAD_MESSAGE;
    }
    if ((shape_of(first, &shape) != 0) ||
        (left < 1u + shape.size_bytes + shape.fixed)) {
        return BT_ERR_BAD_MESSAGE;
    }
    for (unsigned i = 0; i < shape.size_bytes; i++) {
        n = (n << 8) | data[1 + i];
    }
    *bytes_p = 1u + shape.size_bytes + shape.fixed;
    if (shape.per_item > 0) {
        *inside_p = n * shape.per_item;
    } else if (n > left - *bytes_p) {
        return BT_ERR_BAD_MESSAGE;
    } else {
        *bytes_p += n;
    }
    return BT_OK;
}

bt_status_t bt_wire_scan(const uint8_t *data, size_t bytes)
{
    uint64_t open[MAX_DEPTH + 1] = {1}; /* objects still to come, per level */
    size_t depth = 0;
    size_t at = 0;
    uint64_t n_objects = 0;

    for (;;) {
        uint64_t inside;
        size_t own;

        while (open[depth] == 0) {
            if (depth == 0) {
                return (at == bytes) ? BT_OK : BT_ERR_BAD_MESSAGE;
            }
            depth--;
        }
        if ((at == bytes) || (++n_objects > MAX_OBJECTS) ||
            (measure(data + at, bytes - at, &own, &inside) != BT_OK)) {
            return BT_ERR_BAD_MESSAGE;
        }
        at += own;
        open[depth]--;
        /* every object takes at least a byte */
        if ((inside > bytes - at) || ((inside > 0) && (depth == MAX_DEPTH))) {
            return BT_ERR_BAD_MESSAGE;
        }
        if (inside > 0) {
            open[++depth] = inside;
        }
    }
}
