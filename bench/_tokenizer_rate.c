/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizes texts with one thread, for bench/tokenizer.py.
 *
 *     tokenizer-rate MODEL.gguf
 *
 * One command a line on standard input:
 *
 *     SECONDS PIECE_BYTES FLAGS COLD FILE
 *
 * FLAGS are those of bt_tokenize(). COLD 1: cached words are cleared before
 * each pass. The file is split into pieces of at most PIECE_BYTES (0: one
 * piece) between characters, like prompts; a pass tokenizes all of them, and
 * passes are repeated for SECONDS. The answer is one line: bytes, tokens,
 * FNV-1a of the ids (a step for each id), words and parts of words of the last
 * pass that were found in the table, in the cache, and merged, and the
 * nanoseconds of each pass, as CPU time of this thread. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/_half.h"
#include "common/base/alloc.h"
#include "inference/gguf/gguf.h"
#include "inference/tokenizer/tokenizer_priv.h"

#define MAX_PASSES 4096u
#define MAX_PATH   4000u
#define FNV_START  0xCBF29CE484222325u
#define FNV_PRIME  0x100000001B3u

typedef struct job {
    const bt_tokenizer_t *tok;
    double seconds;
    size_t piece;
    unsigned flags;
    unsigned cold;
    char *text; /* owned */
    size_t bytes;
    bt_token_vec_t ids; /* owned; of one piece */
} job_t;

static uint64_t cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static char *read_whole(const char *path, size_t *bytes_p)
{
    FILE *file = fopen(path, "rb");
    char *text;
    long size;

    if ((file == NULL) || (fseek(file, 0, SEEK_END) != 0)) {
        bt_half_die(BT_OK, "%s: %m", path);
    }
    size = ftell(file);
    rewind(file);
    text = bt_half_zeros((size_t)size + 1, 1);
    if (fread(text, 1, (size_t)size, file) != (size_t)size) {
        bt_half_die(BT_OK, "%s: cannot be read", path);
    }
    fclose(file);
    *bytes_p = (size_t)size;
    return text;
}

/* The next piece ends before a character, not inside one. */
static size_t piece_end(const char *text, size_t bytes, size_t at, size_t most)
{
    size_t end = ((most == 0) || (bytes - at <= most)) ? bytes : at + most;

    while ((end < bytes) && (((uint8_t)text[end] & 0xC0) == 0x80)) {
        end--;
    }
    return end;
}

static uint64_t pass(job_t *job, uint64_t *hash_p)
{
    bt_token_vec_t *ids = &job->ids;
    uint64_t n = 0;

    for (size_t at = 0; at < job->bytes;) {
        const size_t end = piece_end(job->text, job->bytes, at, job->piece);

        ids->n = 0;
        if (bt_tokenize(job->tok, job->text + at, end - at, job->flags,
                        SIZE_MAX, ids) != BT_OK) {
            bt_half_die(BT_OK, "bt_tokenize: failed");
        }
        n += ids->n;
        for (size_t i = 0; (hash_p != NULL) && (i < ids->n); i++) {
            *hash_p = (*hash_p ^ ids->ids[i]) * FNV_PRIME;
        }
        at = end;
    }
    return n;
}

/* Word cache statistics; none where the vocabulary has no words. */
static bt_word_cache_t counts_of(const job_t *job)
{
    const bt_word_cache_t none = {0};

    return (job->tok->pool == NULL) ? none : job->tok->pool->caches[0];
}

static void forget(const job_t *job)
{
    if (job->tok->pool != NULL) {
        bt_word_pool_clear(job->tok->pool);
    }
}

static void measure(job_t *job)
{
    static uint64_t times[MAX_PASSES];
    uint64_t hash = FNV_START;
    const uint64_t n_ids = pass(job, &hash);
    const uint64_t start = cpu_ns();
    bt_word_cache_t counts = {0};
    size_t n = 0;

    while ((n < MAX_PASSES) &&
           ((n == 0) || ((double)(cpu_ns() - start) < job->seconds * 1e9))) {
        uint64_t before;

        if (job->cold) {
            forget(job);
        }
        counts = counts_of(job);
        before = cpu_ns();
        pass(job, NULL);
        times[n++] = cpu_ns() - before;
    }
    /* For the last pass: words found in the table, in the cache, and merged. */
    printf("%zu %" PRIu64 " %016" PRIx64 " %" PRIu64 " %" PRIu64 " %" PRIu64,
           job->bytes, n_ids, hash, counts_of(job).n_table - counts.n_table,
           counts_of(job).n_hits - counts.n_hits,
           counts_of(job).n_merged - counts.n_merged);
    for (size_t i = 0; i < n; i++) {
        printf(" %" PRIu64, times[i]);
    }
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static char line[MAX_PATH + 100];
    static char path[MAX_PATH + 1];
    char why[256];
    bt_gguf_t *gguf = NULL;
    bt_tokenizer_t *tok = NULL;

    if (argc != 2) {
        bt_half_die(BT_OK, "usage: tokenizer-rate MODEL.gguf");
    }
    if ((bt_gguf_open(argv[1], why, sizeof(why), &gguf) != BT_OK) ||
        (bt_tokenizer_load(gguf, why, sizeof(why), &tok) != BT_OK)) {
        bt_half_die(BT_OK, "%s: %s", argv[1], why);
    }
    while (fgets(line, sizeof(line), stdin) != NULL) {
        job_t job = {.tok = tok};

        if (sscanf(line, "%lf %zu %u %u %4000[^\n]", &job.seconds, &job.piece,
                   &job.flags, &job.cold, path) != 5) {
            bt_half_die(BT_OK, "bad command: %s", line);
        }
        job.text = read_whole(path, &job.bytes);
        measure(&job);
        bt_free(job.ids.ids);
        bt_free(job.text);
    }
    bt_tokenizer_destroy(tok);
    bt_gguf_close(gguf);
    return 0;
}
