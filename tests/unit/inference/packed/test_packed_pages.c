/* SPDX-License-Identifier: Apache-2.0 */
/* A mapped file in large pages: from a cache of small ones, without any cache,
 * while another mapping holds it, from two processes at once. What the kernel
 * says of a mapping (FilePmdMapped of /proc/self/smaps) is the judge. */
#include "tests/support/testsupport.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inference/packed/packed.h"

#define LARGE   ((size_t)2 << 20)
#define N_LARGE 4u
#define BYTES   (N_LARGE * LARGE + 12345)
#define LONG_MS 100000u

/* A file that was just written, so that it is cached in small pages. */
typedef struct world {
    char path[PATH_MAX];
    int fd;
    uint8_t *bytes;
} world_t;

static world_t make_world(void)
{
    world_t w;

    snprintf(w.path, sizeof(w.path), "/tmp/baton-test-pages-XXXXXX");
    w.fd = mkstemp(w.path);
    assert_true(w.fd >= 0);
    w.bytes = malloc(BYTES);
    assert_non_null(w.bytes);
    for (size_t i = 0; i < BYTES; i++) {
        w.bytes[i] = (uint8_t)(i * 2654435761u >> 16);
    }
    for (size_t at = 0; at < BYTES;) { /* in small pieces: small pages */
        const size_t n = (BYTES - at < 4096) ? BYTES - at : 4096;

        assert_int_equal(write(w.fd, w.bytes + at, n), (ssize_t)n);
        at += n;
    }
    assert_int_equal(fsync(w.fd), 0);
    return w;
}

static void free_world(world_t *w)
{
    close(w->fd);
    unlink(w->path);
    free(w->bytes);
}

/* How much of the mapping at map lies in large pages, in large pages. */
static size_t n_large(const void *map)
{
    FILE *const f = fopen("/proc/self/smaps", "re");
    char line[PATH_MAX + 200];
    bool here = false;
    size_t kib = 0;

    assert_non_null(f);
    while (fgets(line, sizeof(line), f) != NULL) {
        uintptr_t begin;
        uintptr_t end;

        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2) {
            here = (begin == (uintptr_t)map);
        } else if (here) {
            (void)sscanf(line, "FilePmdMapped: %zu", &kib);
        }
    }
    fclose(f);
    return kib / (LARGE >> 10);
}

static void drop_cache(const world_t *w)
{
    assert_int_equal(posix_fadvise(w->fd, 0, 0, POSIX_FADV_DONTNEED), 0);
}

/* Touch every page, and look for what was written. */
static void expect_contents(const world_t *w, const uint8_t *map)
{
    assert_memory_equal(map, w->bytes, BYTES);
}

/* Does this file system keep large pages, and does the kernel say so? Tried
 * without what is tested. */
static bool can_be_large(void)
{
    world_t w = make_world();
    uint8_t *area;
    uint8_t *map;
    size_t n;

    drop_cache(&w);
    area = mmap(NULL, BYTES + LARGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                0);
    assert_ptr_not_equal(area, MAP_FAILED);
    map = area + (LARGE - (uintptr_t)area % LARGE) % LARGE;
    assert_ptr_equal(
        mmap(map, BYTES, PROT_READ, MAP_SHARED | MAP_FIXED, w.fd, 0), map);
    (void)madvise(map, BYTES, MADV_HUGEPAGE);
    expect_contents(&w, map);
    n = n_large(map);
    munmap(area, BYTES + LARGE);
    free_world(&w);
    return n == N_LARGE;
}

/* What the administrator says, whether or not this file system can
 * (Documentation/admin-guide/mm/transhuge.rst of Linux). */
static bool may_be_large(void)
{
    FILE *const f = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
    char choice[64] = "[never]";

    if (f != NULL) {
        (void)!fgets(choice, sizeof(choice), f);
        fclose(f);
    }
    return strstr(choice, "[never]") == NULL;
}

#define SKIP_IF_SMALL()                                                 \
    do {                                                                \
        if (!can_be_large()) {                                          \
            print_message("[  INFO  ] no large pages of files here\n"); \
            skip();                                                     \
        }                                                               \
    } while (0)

static void packed_file_is_collapsed_into_large_pages(void **state)
{
    world_t w;
    uint8_t *map;

    (void)state;
    SKIP_IF_SMALL();
    w = make_world();
    for (int i = 0; i < 2; i++) { /* the second finds them */
        map = bt_packed_pages_map(w.fd, BYTES);
        assert_non_null(map);
        assert_true(bt_packed_pages_settle(map, w.fd, BYTES, LONG_MS));
        assert_int_equal(n_large(map), N_LARGE);
        expect_contents(&w, map);
        assert_int_equal(n_large(map), N_LARGE);
        munmap(map, BYTES);
    }
    free_world(&w);
}

static void uncached_pages_are_not_read_for_large_pages(void **state)
{
    world_t w;
    unsigned char cached[BYTES / 4096 + 1];
    uint8_t *map;

    (void)state;
    SKIP_IF_SMALL();
    w = make_world();
    drop_cache(&w);
    map = bt_packed_pages_map(w.fd, BYTES);
    assert_non_null(map);
    assert_true(bt_packed_pages_settle(map, w.fd, BYTES, LONG_MS));
    assert_int_equal(mincore(map, BYTES, cached), 0);
    for (size_t i = 0; i < sizeof(cached); i++) {
        assert_int_equal(cached[i] & 1, 0);
    }
    expect_contents(&w, map);
    assert_int_equal(n_large(map), N_LARGE);
    munmap(map, BYTES);
    free_world(&w);
}

/* Somebody who reads it by small pages keeps them, and both read the same. */
static void pages_held_by_others_stay(void **state)
{
    world_t w = make_world();
    uint8_t *const other = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, w.fd, 0);
    uint8_t *map;

    (void)state;
    assert_ptr_not_equal(other, MAP_FAILED);
    expect_contents(&w, other);
    map = bt_packed_pages_map(w.fd, BYTES);
    assert_non_null(map);
    assert_true(bt_packed_pages_settle(map, w.fd, BYTES, LONG_MS));
    expect_contents(&w, map);
    expect_contents(&w, other);
    munmap(map, BYTES);
    munmap(other, BYTES);
    free_world(&w);
}

/* @return the exit code of one of several that start at once */
static int settle_at_once(const world_t *w, int go)
{
    const int fd = open(w->path, O_RDONLY | O_CLOEXEC);
    uint8_t *const map = bt_packed_pages_map(fd, BYTES);
    size_t n;
    char c;

    if ((map == NULL) || (read(go, &c, 1) != 0)) {
        return 1;
    }
    if (!bt_packed_pages_settle(map, fd, BYTES, LONG_MS)) {
        return 4;
    }
    if (memcmp(map, w->bytes, BYTES) != 0) {
        return 2;
    }
    n = n_large(map);
    return (n == N_LARGE) ? 0 : 3;
}

static void concurrent_processes_all_get_large_pages(void **state)
{
    enum { N = 4 };
    world_t w;
    int go[2];
    pid_t pids[N];

    (void)state;
    SKIP_IF_SMALL();
    w = make_world();
    assert_int_equal(pipe(go), 0);
    for (int i = 0; i < N; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            close(go[1]);
            _exit(settle_at_once(&w, go[0]));
        }
    }
    close(go[0]);
    close(go[1]); /* all read the end of it */
    for (int i = 0; i < N; i++) {
        int status = 0;

        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    free_world(&w);
}

static void packed_lock_held_forever_is_logged(void **state)
{
    world_t w = make_world();
    const int fd = open(w.path, O_RDONLY | O_CLOEXEC);
    uint8_t *const map = bt_packed_pages_map(w.fd, BYTES);

    (void)state;
    assert_non_null(map);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    /* Where nobody may have large pages, nobody locks. */
    assert_int_equal(bt_packed_pages_settle(map, w.fd, BYTES, 20),
                     !may_be_large());
    expect_contents(&w, map);
    close(fd);
    assert_true(bt_packed_pages_settle(map, w.fd, BYTES, 0));
    munmap(map, BYTES);
    free_world(&w);
}

static void file_below_a_large_page_is_mapped_with_small_pages(void **state)
{
    world_t w = make_world();
    uint8_t *map;

    (void)state;
    assert_int_equal(ftruncate(w.fd, 5000), 0);
    map = bt_packed_pages_map(w.fd, 5000);
    assert_non_null(map);
    assert_true(bt_packed_pages_settle(map, w.fd, 5000, LONG_MS));
    assert_memory_equal(map, w.bytes, 5000);
    munmap(map, 5000);
    assert_null(bt_packed_pages_map(-1, 5000));
    free_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(packed_file_is_collapsed_into_large_pages),
        BT_TEST(uncached_pages_are_not_read_for_large_pages),
        BT_TEST(pages_held_by_others_stay),
        BT_TEST(concurrent_processes_all_get_large_pages),
        BT_TEST(packed_lock_held_forever_is_logged),
        BT_TEST(file_below_a_large_page_is_mapped_with_small_pages),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
