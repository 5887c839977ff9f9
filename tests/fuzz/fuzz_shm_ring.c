/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory whose other side does what it likes: the input is its program.
 * It moves positions, writes bytes and rings; we read and write as a link does,
 * and whatever it says, nothing outside the ring is touched and the stream of
 * messages stays within its bounds. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/status.h"
#include "common/link/link_frame.h"
#include "common/link/shm_segment.h"

#define READ_BYTES 4096u

static volatile uint64_t sink;

typedef struct sides {
    bt_shm_ring_memory_t *in, *out; /* of the other side, and to it */
    bt_shm_ring_t reader, writer;
    link_stream_t stream;
    bool over;
} sides_t;

static void take_messages(sides_t *s, const uint8_t *bytes, size_t n)
{
    const void *data = NULL;
    size_t at = 0;
    size_t len = 0;

    do {
        if (bt_link_stream_next(&s->stream, bytes, n, &at, &data, &len) !=
            BT_OK) {
            s->over = true;
            return;
        }
        BT_ASSERT_ALWAYS((data == NULL) || (len <= BT_LINK_MAX_MESSAGE));
        for (size_t i = 0; (data != NULL) && (i < len); i += 64) {
            sink += ((const uint8_t *)data)[i];
        }
    } while (data != NULL);
    BT_ASSERT_ALWAYS(at == n);
}

static void read_all(sides_t *s)
{
    uint8_t bytes[READ_BYTES];
    size_t n = 0;

    /* No more than what can be there: the other side goes on when we are done,
     * so this ends. */
    for (size_t sum = 0; !s->over && (sum <= BT_SHM_RING_BYTES); sum += n) {
        if (bt_shm_ring_read(&s->reader, bytes, sizeof(bytes), &n) != BT_OK) {
            s->over = true;
            return;
        }
        BT_ASSERT_ALWAYS(n <= sizeof(bytes));
        if (n == 0) {
            BT_ASSERT_ALWAYS(!bt_shm_ring_any(&s->reader));
            return;
        }
        take_messages(s, bytes, n);
    }
}

static void write_some(sides_t *s, size_t bytes)
{
    static const uint8_t zeros[2 * BT_SHM_RING_BYTES];
    size_t n = 0;

    if (bt_shm_ring_write(&s->writer, zeros, bytes, &n) != BT_OK) {
        s->over = true;
        return;
    }
    BT_ASSERT_ALWAYS(n <= bytes);
    (void)bt_shm_ring_wakes_reader(&s->writer);
}

/* One order of the program. @return bytes used */
static size_t step(sides_t *s, const uint8_t *p, size_t left)
{
    uint64_t value = 0;
    size_t n;

    memcpy(&value, p + 1, (left - 1 < 8) ? left - 1 : 8);
    switch (p[0] % 7) {
    case 0: /* a head of its own */
        atomic_store(&s->in->head, value);
        return 9;
    case 1: /* a tail of its own */
        atomic_store(&s->out->tail, value);
        return 9;
    case 2: /* bytes where they belong, as an honest side */
        n = (size_t)(value & 0xff);
        n = (n < left - 1) ? n : left - 1;
        for (size_t i = 0; i < n; i++) {
            const uint64_t at = atomic_load(&s->in->head);

            s->in->ring[at % BT_SHM_RING_BYTES] = p[1 + i];
            atomic_store(&s->in->head, at + 1);
        }
        return 1 + n;
    case 3: /* wishes */
        atomic_store(&s->in->writer_waits, (uint32_t)value);
        atomic_store(&s->out->reader_sleeps, (uint32_t)value);
        return 2;
    case 4:
        read_all(s);
        (void)bt_shm_ring_sleep(&s->reader);
        return 1;
    case 5:
        write_some(s, (size_t)(value % (2 * BT_SHM_RING_BYTES)));
        (void)bt_shm_ring_wait(&s->writer);
        return 4;
    default: /* a step forward of the tail, as an honest side */
        atomic_fetch_add(&s->out->tail, value & 0xffff);
        return 3;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sides_t s = {.in = aligned_alloc(64, sizeof(*s.in)),
                 .out = aligned_alloc(64, sizeof(*s.out))};

    BT_ASSERT_ALWAYS((s.in != NULL) && (s.out != NULL));
    memset(s.in, 0, sizeof(*s.in));
    memset(s.out, 0, sizeof(*s.out));
    bt_shm_ring_init(&s.reader, s.in);
    bt_shm_ring_init(&s.writer, s.out);
    bt_link_stream_init(&s.stream);
    while (!s.over && (size > 0)) {
        size_t used = step(&s, data, size);

        used = (used < size) ? used : size;
        data += used;
        size -= used;
    }
    read_all(&s);
    bt_link_stream_fini(&s.stream);
    free(s.in);
    free(s.out);
    return 0;
}
