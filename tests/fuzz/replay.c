/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target without libFuzzer: replay_NAME FOLDER|FILE...
 *
 * Each file once as it is, then N_ALTERED times altered (bytes changed, the
 * end cut off) from a fixed seed, so that a failure comes again. Most useful
 * in a build with -Db_sanitize=address,undefined.
 *
 * To search for new inputs:
 *   CC=clang meson setup build-fuzz -Dfuzz=true -Db_lundef=false \
 *     -Db_sanitize=address,undefined -Dc_args=-fsanitize=fuzzer-no-link
 *   ninja -C build-fuzz tests/fuzz/fuzz_NAME
 *   build-fuzz/tests/fuzz/fuzz_NAME -max_total_time=60 \
 *     SCRATCH_FOLDER tests/fuzz/corpus/NAME
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/alloc.h"
#include "tests/fuzz/fuzz.h"

#define N_ALTERED   300
#define MAX_CHANGES 6

static unsigned long n_runs;

/* splitmix64 */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* In an allocation of exactly that size, so that ASan sees the byte after. */
static void run_exact(const uint8_t *data, size_t size)
{
    uint8_t *const copy = malloc((size == 0) ? 1 : size);

    if (copy == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    if (size > 0) {
        memcpy(copy, data, size);
    }
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    n_runs++;
}

static void run_altered(uint8_t *data, size_t size, const uint8_t *original,
                        uint64_t *random)
{
    static const uint8_t edges[] = {0x00, 0x01, 0x7F, 0x80, 0xFF};
    const uint64_t n_changes = 1 + next_random(random) % MAX_CHANGES;
    size_t kept = size;

    memcpy(data, original, size);
    for (uint64_t i = 0; i < n_changes; i++) {
        const size_t at = (size_t)(next_random(random) % size);
        const uint64_t kind = next_random(random);

        if (kind % 3 == 0) {
            data[at] = edges[(kind >> 8) % sizeof(edges)];
        } else if (kind % 3 == 1) {
            data[at] = (uint8_t)(data[at] ^ (1u << ((kind >> 8) % 8)));
        } else {
            data[at] = (uint8_t)(kind >> 8);
        }
    }
    if (next_random(random) % 8 == 0) {
        kept = (size_t)(next_random(random) % size);
    }
    run_exact(data, kept);
}

static void run_bytes(const uint8_t *data, size_t size)
{
    uint64_t random = size;
    uint8_t *scratch;

    run_exact(data, size);
    if (size == 0) {
        return;
    }
    scratch = bt_memdup(data, size);
    for (int i = 0; (scratch != NULL) && (i < N_ALTERED); i++) {
        run_altered(scratch, size, data, &random);
    }
    bt_free(scratch);
}

static int run_file(const char *path)
{
    FILE *const file = fopen(path, "re");
    struct stat st;
    uint8_t *data = NULL;
    int rc = -1;

    if ((file == NULL) || (fstat(fileno(file), &st) != 0)) {
        goto out;
    }
    data = bt_calloc((size_t)st.st_size + 1, 1);
    if ((data == NULL) ||
        ((st.st_size > 0) && (fread(data, (size_t)st.st_size, 1, file) != 1))) {
        goto out;
    }
    run_bytes(data, (size_t)st.st_size);
    rc = 0;
out:
    if (rc != 0) {
        fprintf(stderr, "%s: %m\n", path);
    }
    bt_free(data);
    if (file != NULL) {
        fclose(file);
    }
    return rc;
}

static int not_hidden(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int run_path(const char *path)
{
    struct dirent **entries = NULL;
    struct stat st;
    char name[4096];
    int n;
    int rc = 0;

    if ((stat(path, &st) == 0) && !S_ISDIR(st.st_mode)) {
        return run_file(path);
    }
    n = scandir(path, &entries, not_hidden, alphasort);
    if (n <= 0) {
        fprintf(stderr, "%s: no inputs\n", path);
        free(entries);
        return -1;
    }
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof(name), "%s/%s", path, entries[i]->d_name);
        if (run_file(name) != 0) {
            rc = -1;
        }
        free(entries[i]);
    }
    free(entries);
    return rc;
}

int main(int argc, char **argv)
{
    int rc = 0;

    if (argc < 2) {
        fprintf(stderr, "usage: %s FOLDER|FILE...\n", argv[0]);
        return 2;
    }
    for (int i = 1; i < argc; i++) {
        if (run_path(argv[i]) != 0) {
            rc = 1;
        }
    }
    printf("%lu inputs\n", n_runs);
    return rc;
}
