/* SPDX-License-Identifier: Apache-2.0 */
/* The format of packed weights: what is written is found, what is not as
 * written is refused. Sums are made here by bt_hash128(), whose own test has
 * the vectors of the xxHash specification. */
#include "tests/support/testsupport.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "inference/packed/packed.h"

static const bt_packed_key_t key = {.profile = "test",
                                    .pack_version = 7,
                                    .model_bytes = 12345,
                                    .model_id = {1, 2}};
static const bt_packed_origin_t origin = {{3, 4}, 5, 6, 7};

static char why[200];

/* A file in memory, to be altered. */
typedef struct image {
    uint8_t *data;
    size_t bytes;
} image_t;

static uint8_t byte_of(uint32_t piece, size_t i)
{
    return (uint8_t)(i * 31 + piece * 7 + (i >> 8) + 1);
}

/* n_pieces of piece_bytes + 0, 1, 2 ... bytes. */
static bt_status_t write_image(int fd, uint32_t n_pieces, size_t piece_bytes)
{
    bt_packed_writer_t writer;
    uint8_t *data = NULL;
    bt_status_t status = bt_packed_writer_init(&writer, fd);

    if (status == BT_OK) {
        data = malloc(piece_bytes + n_pieces);
        assert_non_null(data);
    }
    for (uint32_t p = 0; (status == BT_OK) && (p < n_pieces); p++) {
        const char name[] = {'w', (char)('a' + p), '\0'};

        for (size_t i = 0; i < piece_bytes + p; i++) {
            data[i] = byte_of(p, i);
        }
        status = bt_packed_writer_add(&writer, name, 2, 10 + p, 20, data,
                                      piece_bytes + p);
    }
    if (status == BT_OK) {
        status = bt_packed_writer_finish(&writer, &key, &origin);
    }
    bt_packed_writer_fini(&writer);
    free(data);
    return status;
}

static image_t make_image(uint32_t n_pieces, size_t piece_bytes)
{
    const int fd = memfd_create("image", MFD_CLOEXEC);
    image_t image;
    struct stat st;

    assert_true(fd >= 0);
    assert_int_equal(write_image(fd, n_pieces, piece_bytes), BT_OK);
    assert_int_equal(fstat(fd, &st), 0);
    image.bytes = (size_t)st.st_size;
    image.data = malloc(image.bytes);
    assert_non_null(image.data);
    assert_int_equal(pread(fd, image.data, image.bytes, 0), st.st_size);
    close(fd);
    return image;
}

static bt_status_t check_whole(const image_t *image)
{
    bt_packed_file_t file;
    bt_status_t status =
        bt_packed_check(image->data, image->bytes, why, sizeof(why), &file);

    return (status == BT_OK) ? bt_packed_verify(&file, 1) : status;
}

/* After an alteration: the sums that fit again. */
static void seal(const image_t *image)
{
    bt_packed_head_t *const head = (void *)image->data;

    if ((head->table_at < image->bytes) &&
        (head->table_bytes <= image->bytes - head->table_at)) {
        head->table_sum = bt_hash128(image->data + head->table_at,
                                     (size_t)head->table_bytes, 0);
    }
    head->head_sum = bt_packed_head_sum(image->data);
}

static void packed_pieces_round_trip(void **state)
{
    static const size_t sizes[] = {1, 64, 1000, BT_PACKED_CHUNK_BYTES - 4096,
                                   BT_PACKED_CHUNK_BYTES + 5};

    (void)state;
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        image_t image = make_image(3, sizes[s]);
        bt_packed_file_t file;

        assert_int_equal(
            bt_packed_check(image.data, image.bytes, why, sizeof(why), &file),
            BT_OK);
        for (uint32_t n = 0; n <= 5; n++) {
            assert_int_equal(bt_packed_verify(&file, n), BT_OK);
        }
        assert_true(bt_packed_key_equal(&file.head->key, &key));
        assert_int_equal(file.head->origin.content.hi, 4);
        for (uint32_t p = 0; p < 3; p++) {
            const char name[] = {'w', (char)('a' + p), '\0'};
            size_t bytes = 0;
            const uint8_t *const data =
                bt_packed_find(&file, name, 2, 10 + p, 20, &bytes);

            assert_non_null(data);
            assert_int_equal(bytes, sizes[s] + p);
            assert_int_equal((size_t)(data - image.data) % BT_PACKED_ALIGN, 0);
            for (size_t i = 0; i < bytes; i++) {
                if (data[i] != byte_of(p, i)) {
                    fail_msg("piece %u byte %zu", p, i);
                }
            }
            assert_null(bt_packed_find(&file, name, 3, 10 + p, 20, &bytes));
            assert_null(bt_packed_find(&file, name, 2, 9 + p, 20, &bytes));
            assert_null(bt_packed_find(&file, name, 2, 10 + p, 21, &bytes));
        }
        free(image.data);
    }
}

static void packed_file_with_any_altered_byte_is_refused(void **state)
{
    image_t image = make_image(4, 150);
    uint64_t n_flips = 0;

    (void)state;
    assert_int_equal(check_whole(&image), BT_OK);
    for (size_t i = 0; i < image.bytes; i++) {
        image.data[i] ^= (uint8_t)(1u << i % 8);
        assert_int_not_equal(check_whole(&image), BT_OK);
        image.data[i] ^= (uint8_t)(1u << i % 8);
        n_flips++;
    }
    assert_true(n_flips > 4096 + 4 * 150);
    assert_int_equal(check_whole(&image), BT_OK);
    free(image.data);
}

static void
a_byte_altered_in_any_chunk_is_noticed_by_any_number_of_threads(void **state)
{
    image_t image = make_image(2, 6 * 1000 * 1000);
    bt_packed_file_t file;

    (void)state;
    assert_int_equal(
        bt_packed_check(image.data, image.bytes, why, sizeof(why), &file),
        BT_OK);
    assert_int_equal(file.n_chunks, 3);
    for (size_t i = 4096; i < file.head->table_at; i += 377777) {
        image.data[i] ^= 0x10;
        for (uint32_t n = 1; n <= 4; n++) {
            assert_int_equal(bt_packed_verify(&file, n), BT_ERR_CORRUPT);
        }
        image.data[i] ^= 0x10;
    }
    assert_int_equal(bt_packed_verify(&file, 4), BT_OK);
    free(image.data);
}

static void packed_file_of_another_length_is_refused(void **state)
{
    image_t image = make_image(4, 150);
    bt_packed_file_t file;

    (void)state;
    for (size_t n = 0; n < image.bytes; n++) {
        /* Of exactly that size: a sanitizer sees the byte after. */
        uint8_t *const part = malloc((n == 0) ? 1 : n);

        assert_non_null(part);
        memcpy(part, image.data, n);
        assert_int_equal(bt_packed_check(part, n, why, sizeof(why), &file),
                         BT_ERR_BAD_FILE);
        free(part);
    }
    image.data = realloc(image.data, image.bytes + 64);
    assert_non_null(image.data);
    memset(image.data + image.bytes, 0, 64);
    assert_int_equal(
        bt_packed_check(image.data, image.bytes + 64, why, sizeof(why), &file),
        BT_ERR_BAD_FILE);
    assert_string_equal(why, "its length is not what its head says");
    free(image.data);
}

/* One number of the head or of the first entry, and the sums to fit. */
static void forged_header_with_valid_checksum_is_refused(void **state)
{
    static const struct {
        size_t at; /* in the head, or beyond it in the first entry */
        size_t size;
        uint64_t value;
    } lies[] = {
#define HEAD(field)  offsetof(bt_packed_head_t, field)
#define ENTRY(field) 4096 + offsetof(bt_packed_entry_t, field)
        {HEAD(magic), 8, 0x4154475750544142},
        {HEAD(format), 4, 2},
        {HEAD(n_pieces), 4, 5},
        {HEAD(n_pieces), 4, UINT32_MAX},
        {HEAD(table_at), 8, 0},
        {HEAD(table_at), 8, 4032},
        {HEAD(table_at), 8, UINT64_MAX - 63},
        {HEAD(table_at), 8, (uint64_t)1 << 62},
        {HEAD(table_bytes), 8, 0},
        {HEAD(table_bytes), 8, UINT64_MAX},
        {ENTRY(at), 8, 0},
        {ENTRY(at), 8, 4097},
        {ENTRY(at), 8, (uint64_t)1 << 40},
        {ENTRY(at), 8, UINT64_MAX - 63},
        {ENTRY(bytes), 8, 0},
        {ENTRY(bytes), 8, 100000},
        {ENTRY(bytes), 8, UINT64_MAX},
        {ENTRY(name_at), 4, 9},
        {ENTRY(name_at), 4, UINT32_MAX},
        {ENTRY(name_len), 4, 0},
        {ENTRY(name_len), 4, 256},
        {ENTRY(name_len), 4, UINT32_MAX},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        image_t image = make_image(4, 150);
        const bt_packed_head_t *const head = (const void *)image.data;
        bt_packed_file_t file;
        size_t at = lies[i].at;

        if (at >= 4096) {
            at += (size_t)head->table_at - 4096;
        }
        memcpy(image.data + at, &lies[i].value, lies[i].size);
        seal(&image);
        if (bt_packed_check(image.data, image.bytes, why, sizeof(why), &file) !=
            BT_ERR_BAD_FILE) {
            fail_msg("lie %zu", i);
        }
        assert_true(strlen(why) > 0);
        free(image.data);
    }
}

static void packed_writer_refuses_what_the_reader_refuses(void **state)
{
    const int fd = memfd_create("image", MFD_CLOEXEC);
    bt_packed_writer_t writer;
    char name[258];

    (void)state;
    assert_true(fd >= 0);
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    assert_int_equal(bt_packed_writer_init(&writer, fd), BT_OK);
    assert_int_equal(bt_packed_writer_add(&writer, "", 0, 1, 1, "x", 1),
                     BT_ERR_INVALID_PARAM);
    assert_int_equal(bt_packed_writer_add(&writer, "a", 0, 1, 1, "x", 0),
                     BT_ERR_INVALID_PARAM);
    assert_int_equal(bt_packed_writer_add(&writer, name, 0, 1, 1, "x", 1),
                     BT_ERR_INVALID_PARAM);
    name[255] = '\0';
    assert_int_equal(bt_packed_writer_add(&writer, name, 0, 1, 1, "x", 1),
                     BT_OK);
    bt_packed_writer_fini(&writer);
    close(fd);
}

static void packed_writer_survives_every_failed_allocation(void **state)
{
    const int fd = memfd_create("image", MFD_CLOEXEC);
    bt_status_t status;
    int nth = 0;

    (void)state;
    assert_true(fd >= 0);
    do {
        bt_alloc_fail_at(++nth);
        status = write_image(fd, 3, 100);
        assert_true((status == BT_OK) || (status == BT_ERR_NO_MEMORY));
    } while (status != BT_OK);
    bt_alloc_fail_at(0);
    assert_true(nth > 3);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(packed_pieces_round_trip),
        BT_TEST(packed_file_with_any_altered_byte_is_refused),
        BT_TEST(
            a_byte_altered_in_any_chunk_is_noticed_by_any_number_of_threads),
        BT_TEST(packed_file_of_another_length_is_refused),
        BT_TEST(forged_header_with_valid_checksum_is_refused),
        BT_TEST(packed_writer_refuses_what_the_reader_refuses),
        BT_TEST(packed_writer_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
