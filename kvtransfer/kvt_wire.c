/* SPDX-License-Identifier: Apache-2.0 */
#include "kvtransfer/kvt_wire.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/hash.h"
#include "common/base/status.h"

#define MAGIC_EXPORT 0x58564b42u /* "BKVX" */
#define MAGIC_DESC   0x44564b42u /* "BKVD" */
#define MAGIC_MSG    0x4d564b42u /* "BKVM" */
#define MAGIC_PIECE  0x50564b42u /* "BKVP" */

/* Every layout begins with magic u32, version u32, total bytes u32, and (all
 * but the piece) the bytes of its fixed part u32... */
#define LENGTH_AT  8
#define FIXED_AT   12
#define HEAD_BYTES 16

/* ...and ends with XXH3-64 of everything before it. An altered descriptor would
 * cause writes to the wrong place, and libraries read the addresses in an
 * export without a bound. */
#define SUM_BYTES 8

/* A message has its tag before that, over everything before the tag. */
#define TAIL_BYTES (BT_TAG_BYTES + SUM_BYTES)

#define FLAG_DIRECT 1u
#define FLAG_LAST   2u

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "the layouts are little endian");

/* A field has the same bytes in a layout as in the structure. */
typedef struct field {
    size_t offset, bytes;
} field_t;

#define FIELD(type, name)                               \
    {                                                   \
        offsetof(type, name), sizeof(((type *)0)->name) \
    }
#define ALL(fields) (fields), BT_ARRAY_LEN(fields)

/* Errors stick, so that a layout is one straight list of fields. */
typedef struct writer {
    uint8_t *buf;
    size_t cap, n;
    bool full;
} writer_t;

typedef struct reader {
    const uint8_t *buf;
    size_t bytes, at;
    bool bad;
} reader_t;

static void put_bytes(writer_t *w, const void *data, size_t n)
{
    if (w->full || (n > w->cap - w->n)) {
        w->full = true;
        return;
    }
    if (n > 0) {
        memcpy(w->buf + w->n, data, n);
    }
    w->n += n;
}

static void put_u32(writer_t *w, uint32_t value)
{
    put_bytes(w, &value, sizeof(value));
}

static void put_fields(writer_t *w, const void *from, const field_t *fields,
                       size_t n)
{
    for (size_t i = 0; i < n; i++) {
        put_bytes(w, (const uint8_t *)from + fields[i].offset, fields[i].bytes);
    }
}

static void put_blob(writer_t *w, const bt_kvt_blob_t *blob)
{
    put_u32(w, blob->bytes);
    put_bytes(w, blob->data, blob->bytes);
}

static void u32_write(uint8_t *p, size_t value)
{
    const uint32_t number = (uint32_t)value;

    memcpy(p, &number, sizeof(number));
}

static writer_t writer_begin(void *buf, size_t cap, uint32_t magic)
{
    writer_t w = {.buf = buf, .cap = cap};

    put_u32(&w, magic);
    put_u32(&w, BT_KVT_WIRE_VERSION);
    put_u32(&w, 0); /* the length, filled in at the end */
    return w;
}

static writer_t section_begin(void *buf, size_t cap, uint32_t magic)
{
    writer_t w = writer_begin(buf, cap, magic);

    put_u32(&w, 0); /* length of the fixed part, see fixed_end() */
    return w;
}

/** Ends the fixed part; fields of variable length follow. */
static void fixed_end(writer_t *w)
{
    if (!w->full) {
        u32_write(w->buf + FIXED_AT, w->n - HEAD_BYTES);
    }
}

static bt_status_t writer_end(writer_t *w, size_t *bytes_p)
{
    const size_t total = w->n + SUM_BYTES;
    uint64_t sum;

    if (w->full || (total > UINT32_MAX) || (total > w->cap)) {
        return BT_ERR_TOO_LARGE;
    }
    u32_write(w->buf + LENGTH_AT, total);
    sum = bt_hash64(w->buf, w->n, 0);
    put_bytes(w, &sum, sizeof(sum));
    *bytes_p = total;
    return BT_OK;
}

static const uint8_t *get_bytes(reader_t *r, size_t n)
{
    const uint8_t *p = r->buf + r->at;

    if (r->bad || (n > r->bytes - r->at)) {
        r->bad = true;
        return NULL;
    }
    r->at += n;
    return p;
}

static void get_fields(reader_t *r, void *to, const field_t *fields, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint8_t *p = get_bytes(r, fields[i].bytes);

        if (p != NULL) {
            memcpy((uint8_t *)to + fields[i].offset, p, fields[i].bytes);
        }
    }
}

static uint32_t get_u32(reader_t *r)
{
    const uint8_t *p = get_bytes(r, sizeof(uint32_t));
    uint32_t value = 0;

    if (p != NULL) {
        memcpy(&value, p, sizeof(value));
    }
    return value;
}

static bt_kvt_blob_t get_blob(reader_t *r)
{
    bt_kvt_blob_t blob = {.bytes = get_u32(r)};

    blob.data = get_bytes(r, blob.bytes);
    return blob;
}

static reader_t reader_begin(const void *buf, size_t bytes, uint32_t magic)
{
    reader_t r = {.buf = buf, .bytes = bytes};
    uint32_t version;
    uint64_t sum;

    r.bad = (get_u32(&r) != magic) || r.bad;
    version = get_u32(&r);
    r.bad = r.bad || (version < BT_KVT_WIRE_OLDEST) ||
            (version > BT_KVT_WIRE_VERSION);
    r.bad = (get_u32(&r) != bytes) || r.bad;
    if (r.bad || (bytes - r.at < SUM_BYTES)) {
        r.bad = true;
        return r;
    }
    r.bytes -= SUM_BYTES;
    sum = bt_hash64(buf, r.bytes, 0);
    r.bad = memcmp(r.buf + r.bytes, &sum, SUM_BYTES) != 0;
    return r;
}

/** Reads a section without its last @a tail bytes; its fixed part can be read.
 */
static reader_t section_read(const void *buf, size_t bytes, uint32_t magic,
                             size_t tail, size_t *rest_bytes_p)
{
    reader_t r = reader_begin(buf, bytes, magic);
    const uint32_t fixed = get_u32(&r);

    r.bad = r.bad || (r.bytes - r.at < tail) || (fixed > r.bytes - r.at - tail);
    if (r.bad) {
        *rest_bytes_p = 0;
        return r;
    }
    *rest_bytes_p = r.bytes - tail;
    r.bytes = HEAD_BYTES + (size_t)fixed;
    return r;
}

/** Skips the rest of the fixed part: fields not known here. */
static void fixed_leave(reader_t *r, size_t rest_bytes)
{
    if (!r->bad) {
        r->at = r->bytes;
        r->bytes = rest_bytes;
    }
}

static bt_status_t reader_end(const reader_t *r)
{
    return (r->bad || (r->at != r->bytes)) ? BT_ERR_BAD_MESSAGE : BT_OK;
}

static const field_t export_fields[] = {
    FIELD(bt_kvt_export_info_t, oldest),
    FIELD(bt_kvt_export_info_t, newest),
    FIELD(bt_kvt_export_info_t, transport),
    FIELD(bt_kvt_export_info_t, record_kib),
    FIELD(bt_kvt_export_info_t, instance),
    FIELD(bt_kvt_export_info_t, pool_bytes),
    FIELD(bt_kvt_export_info_t, shm_base),
    FIELD(bt_kvt_export_info_t, probe),
    FIELD(bt_kvt_export_info_t, probe_offset),
    FIELD(bt_kvt_export_info_t, host.boot_id),
    FIELD(bt_kvt_export_info_t, host.ipc_ns),
    FIELD(bt_kvt_export_info_t, host.pid_ns),
    FIELD(bt_kvt_export_info_t, host.start_time),
    FIELD(bt_kvt_export_info_t, host.pid),
    FIELD(bt_kvt_export_info_t, host.uid),
};
/* These are absent in older versions. */
static const field_t export_run_fields[] = {
    FIELD(bt_kvt_export_info_t, record_runs),
};
static const field_t export_share_fields[] = {
    FIELD(bt_kvt_export_info_t, shared),
    FIELD(bt_kvt_export_info_t, handle),
};

bt_status_t bt_kvt_export_encode(const bt_kvt_export_info_t *info, void *buf,
                                 size_t cap, size_t *bytes_p)
{
    static const bt_kvt_blob_t none = {.bytes = 0};
    writer_t w = section_begin(buf, cap, MAGIC_EXPORT);

    put_fields(&w, info, ALL(export_fields));
    put_fields(&w, info, ALL(export_run_fields));
    put_fields(&w, info, ALL(export_share_fields));
    fixed_end(&w);
    put_blob(&w, &info->net_addr);
    put_blob(&w, &none); /* formerly how UCX reached the pool */
    put_blob(&w, &info->shm_file);
    put_blob(&w, &info->sources);
    return writer_end(&w, bytes_p);
}

bt_status_t bt_kvt_export_decode(const void *buf, size_t bytes,
                                 bt_kvt_export_info_t *info_p)
{
    size_t rest_bytes;
    reader_t r = section_read(buf, bytes, MAGIC_EXPORT, 0, &rest_bytes);
    bt_kvt_export_info_t info = {0};
    bt_status_t status;

    get_fields(&r, &info, ALL(export_fields));
    if (!r.bad && (r.at < r.bytes)) {
        get_fields(&r, &info, ALL(export_run_fields));
    }
    if (!r.bad && (r.at < r.bytes)) {
        get_fields(&r, &info, ALL(export_share_fields));
    }
    fixed_leave(&r, rest_bytes);
    info.net_addr = get_blob(&r);
    (void)get_blob(&r);
    info.shm_file = get_blob(&r);
    info.sources = get_blob(&r);

    status = reader_end(&r);
    if ((status == BT_OK) &&
        ((bytes > BT_KVT_MAX_EXPORT) ||
         (info.sources.bytes % BT_KVT_SOURCE_BYTES != 0) ||
         (info.sources.bytes > BT_KVT_MAX_SOURCES * BT_KVT_SOURCE_BYTES))) {
        status = BT_ERR_BAD_MESSAGE;
    }
    if (status == BT_OK) {
        *info_p = info;
    }
    return status;
}

static const field_t desc_fields[] = {
    FIELD(bt_kvt_desc_t, lease.id),    FIELD(bt_kvt_desc_t, lease.generation),
    FIELD(bt_kvt_desc_t, lease.grant), FIELD(bt_kvt_desc_t, receiver),
    FIELD(bt_kvt_desc_t, session),     FIELD(bt_kvt_desc_t, secret),
    FIELD(bt_kvt_desc_t, n_extents),
};

bt_status_t bt_kvt_desc_encode(const bt_kvt_desc_t *desc, void *buf, size_t cap,
                               size_t *bytes_p)
{
    writer_t w = section_begin(buf, cap, MAGIC_DESC);

    put_fields(&w, desc, ALL(desc_fields));
    fixed_end(&w);
    put_bytes(&w, desc->extents, desc->n_extents * sizeof(*desc->extents));
    return writer_end(&w, bytes_p);
}

bt_status_t bt_kvt_desc_decode(const void *buf, size_t bytes,
                               bt_kvt_desc_t *desc)
{
    size_t rest_bytes, extents_bytes;
    reader_t r = section_read(buf, bytes, MAGIC_DESC, 0, &rest_bytes);
    bt_kvt_desc_t read = {0};

    get_fields(&r, &read, ALL(desc_fields));
    fixed_leave(&r, rest_bytes);
    extents_bytes = read.n_extents * sizeof(*read.extents);
    if (r.bad || (read.n_extents == 0) ||
        (read.n_extents > BT_KVT_MAX_EXTENTS) ||
        (r.bytes - r.at != extents_bytes)) {
        return BT_ERR_BAD_MESSAGE;
    }
    if (!bt_array_grow(&desc->extents, &desc->cap, read.n_extents,
                       sizeof(*desc->extents))) {
        return BT_ERR_NO_MEMORY;
    }
    read.extents = desc->extents;
    read.cap = desc->cap;
    memcpy(read.extents, get_bytes(&r, extents_bytes), extents_bytes);
    *desc = read;
    return BT_OK;
}

_Static_assert(sizeof(bt_kvt_extent_t) == 16, "extents are sent as in memory");
_Static_assert(sizeof(bt_kvt_record_t) == BT_KVT_RECORD_BYTES,
               "records are in the layout as they are in memory");

static bool type_has_lease(bt_kvt_msg_type_t type)
{
    return (type >= BT_KVT_MSG_BEGIN) && (type <= BT_KVT_MSG_CONFIRM);
}

static const field_t writer_fields[] = {
    FIELD(bt_kvt_msg_t, from),
    FIELD(bt_kvt_msg_t, nonce),
};
static const field_t lease_fields[] = {
    FIELD(bt_kvt_msg_t, lease.id), FIELD(bt_kvt_msg_t, lease.generation),
    FIELD(bt_kvt_msg_t, status),   FIELD(bt_kvt_msg_t, lease.grant),
    FIELD(bt_kvt_msg_t, floor),
};
static const field_t greeting_fields[] = {
    FIELD(bt_kvt_msg_t, to),
    FIELD(bt_kvt_msg_t, echo),
    FIELD(bt_kvt_msg_t, random),
};
static const field_t part_fields[] = {
    FIELD(bt_kvt_msg_t, first_record),
    FIELD(bt_kvt_msg_t, n_records),
    FIELD(bt_kvt_msg_t, elapsed_us),
};

static void put_fixed(writer_t *w, const bt_kvt_msg_t *msg)
{
    put_u32(w, (uint32_t)msg->type);
    put_u32(w, (msg->direct ? FLAG_DIRECT : 0) | (msg->last ? FLAG_LAST : 0));
    put_fields(w, msg, ALL(writer_fields));
    if (type_has_lease(msg->type)) {
        put_fields(w, msg, ALL(lease_fields));
    }
    if (bt_kvt_msg_greets(msg->type)) {
        put_fields(w, msg, ALL(greeting_fields));
    } else if (msg->type == BT_KVT_MSG_PART) {
        put_fields(w, msg, ALL(part_fields));
        if (msg->cpu != 0) {
            put_u32(w, msg->cpu);
        }
    }
}

static void msg_tag(const void *buf, size_t bytes, uint32_t total,
                    const uint8_t key[BT_KEY_BYTES], uint8_t tag[BT_TAG_BYTES])
{
    const uint8_t *p = buf;
    const bt_key_part_t parts[] = {
        {.data = p, .bytes = LENGTH_AT},
        {.data = &total, .bytes = sizeof(total)},
        {.data = p + FIXED_AT, .bytes = bytes - FIXED_AT}};

    bt_key_tag(key, parts, BT_ARRAY_LEN(parts), tag);
}

bt_status_t bt_kvt_msg_encode(const bt_kvt_msg_t *msg,
                              const uint8_t key[BT_KEY_BYTES], void *buf,
                              size_t cap, size_t *bytes_p)
{
    writer_t w = section_begin(buf, cap, MAGIC_MSG);
    uint8_t tag[BT_TAG_BYTES];

    put_fixed(&w, msg);
    fixed_end(&w);
    if (msg->type == BT_KVT_MSG_HELLO) {
        put_blob(&w, &msg->export);
    } else if (msg->type == BT_KVT_MSG_PART) {
        put_blob(&w, &msg->note);
        put_bytes(&w, msg->records,
                  (size_t)msg->n_records * BT_KVT_RECORD_BYTES);
    }
    if (w.full || (w.n > UINT32_MAX - TAIL_BYTES)) {
        return BT_ERR_TOO_LARGE;
    }
    msg_tag(buf, w.n, (uint32_t)(w.n + TAIL_BYTES), key, tag);
    put_bytes(&w, tag, sizeof(tag));
    return writer_end(&w, bytes_p);
}

static void get_fixed(reader_t *r, bt_kvt_msg_t *msg)
{
    get_fields(r, msg, ALL(writer_fields));
    if (type_has_lease(msg->type)) {
        get_fields(r, msg, ALL(lease_fields));
    }
    if (bt_kvt_msg_greets(msg->type)) {
        get_fields(r, msg, ALL(greeting_fields));
    } else if (msg->type == BT_KVT_MSG_PART) {
        get_fields(r, msg, ALL(part_fields));
        if (!r->bad && (r->at < r->bytes)) { /* if present */
            msg->cpu = get_u32(r);
        }
    }
}

static void get_part_rest(reader_t *r, bt_kvt_msg_t *msg)
{
    msg->note = get_blob(r);
    if ((msg->n_records > BT_KVT_MAX_PART_RECORDS) ||
        (msg->note.bytes > BT_KVT_MAX_NOTE)) {
        r->bad = true;
        return;
    }
    msg->records = get_bytes(r, (size_t)msg->n_records * BT_KVT_RECORD_BYTES);
}

bt_status_t bt_kvt_msg_decode(const void *buf, size_t bytes,
                              bt_kvt_msg_t *msg_p)
{
    size_t rest_bytes;
    reader_t r = section_read(buf, bytes, MAGIC_MSG, BT_TAG_BYTES, &rest_bytes);
    bt_kvt_msg_t msg = {0};
    uint32_t type, flags;
    bt_status_t status;

    type = get_u32(&r);
    flags = get_u32(&r);
    if (r.bad || (type == 0) || (type >= BT_KVT_MSG_END_) ||
        (flags > (FLAG_DIRECT | FLAG_LAST))) {
        return BT_ERR_BAD_MESSAGE;
    }
    msg.type = (bt_kvt_msg_type_t)type;
    msg.direct = (flags & FLAG_DIRECT) != 0;
    msg.last = (flags & FLAG_LAST) != 0;
    get_fixed(&r, &msg);
    fixed_leave(&r, rest_bytes);
    if (msg.type == BT_KVT_MSG_HELLO) {
        msg.export = get_blob(&r);
    } else if (msg.type == BT_KVT_MSG_PART) {
        get_part_rest(&r, &msg);
    }

    status = reader_end(&r);
    if ((status == BT_OK) && ((msg.nonce == 0) || (msg.from == 0))) {
        status = BT_ERR_BAD_MESSAGE; /* 0 stands for "unknown" inside */
    }
    if (status == BT_OK) {
        *msg_p = msg;
    }
    return status;
}

bool bt_kvt_msg_is_proven(const void *buf, size_t bytes,
                          const uint8_t key[BT_KEY_BYTES])
{
    const uint8_t *p = buf;
    uint8_t tag[BT_TAG_BYTES];

    if ((bytes < HEAD_BYTES + TAIL_BYTES) || (bytes > UINT32_MAX)) {
        return false;
    }
    msg_tag(p, bytes - TAIL_BYTES, (uint32_t)bytes, key, tag);
    return bt_key_equal(tag, p + bytes - TAIL_BYTES, sizeof(tag)) != 0;
}

void bt_kvt_plane_key(const uint8_t cluster_key[BT_KEY_BYTES],
                      uint8_t key[BT_KEY_BYTES])
{
    bt_key_derive(cluster_key, "baton 3 kv", NULL, 0, key);
}

void bt_kvt_link_key(const uint8_t plane_key[BT_KEY_BYTES], uint64_t from,
                     uint64_t to, uint64_t nonce,
                     const uint8_t random[BT_KVT_RANDOM_BYTES],
                     uint8_t key[BT_KEY_BYTES])
{
    const uint64_t numbers[] = {from, to, nonce};
    const bt_key_part_t parts[] = {
        {.data = numbers, .bytes = sizeof(numbers)},
        {.data = random, .bytes = BT_KVT_RANDOM_BYTES}};

    bt_key_derive(plane_key, "baton 3 kv says", parts, BT_ARRAY_LEN(parts),
                  key);
}

bt_kvt_record_t bt_kvt_record_get(const bt_kvt_msg_t *msg, uint32_t i)
{
    const uint8_t *p = msg->records;
    bt_kvt_record_t record;

    BT_ASSERT(i < msg->n_records);
    memcpy(&record, p + (size_t)i * BT_KVT_RECORD_BYTES, sizeof(record));
    return record;
}

static const field_t piece_fields[] = {
    FIELD(bt_kvt_piece_t, lease.generation), FIELD(bt_kvt_piece_t, from),
    FIELD(bt_kvt_piece_t, lease.id),         FIELD(bt_kvt_piece_t, lease.grant),
    FIELD(bt_kvt_piece_t, offset),           FIELD(bt_kvt_piece_t, bytes),
    FIELD(bt_kvt_piece_t, secret),
};

void bt_kvt_piece_encode(const bt_kvt_piece_t *piece,
                         uint8_t buf[BT_KVT_PIECE_BYTES])
{
    writer_t w = writer_begin(buf, BT_KVT_PIECE_BYTES, MAGIC_PIECE);
    bt_status_t status;
    size_t bytes = 0;

    put_fields(&w, piece, ALL(piece_fields));
    status = writer_end(&w, &bytes);
    BT_ASSERT_ALWAYS((status == BT_OK) && (bytes == BT_KVT_PIECE_BYTES));
}

bt_status_t bt_kvt_piece_decode(const void *buf, size_t bytes,
                                bt_kvt_piece_t *piece_p)
{
    reader_t r = reader_begin(buf, bytes, MAGIC_PIECE);
    bt_kvt_piece_t piece = {0};
    bt_status_t status;

    get_fields(&r, &piece, ALL(piece_fields));
    status = reader_end(&r);
    if (status == BT_OK) {
        *piece_p = piece;
    }
    return status;
}

uint64_t bt_kvt_record_seed(const bt_kvt_lease_t *lease, uint64_t offset,
                            uint64_t bytes)
{
    const uint64_t place[] = {lease->id, lease->generation, offset, bytes};

    return bt_hash64(place, sizeof(place), 0);
}
