/* SPDX-License-Identifier: Apache-2.0 */
/* baton-accuracy: what `./baton accuracy` runs.
 *
 *     baton-accuracy A.gguf B.gguf --text FILE [--window N] [--threads N]
 *
 * Both models read the text in windows that begin anew, and foretell each token
 * but a window's first. The text becomes tokens by A's tokenizer. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "accuracy/score.h"
#include "accuracy/subject.h"
#include "common/base/alloc.h"
#include "common/base/exit_code.h"
#include "common/base/log.h"
#include "common/base/read_whole.h"
#include "inference/tokenizer/tokenizer.h"

#define WHY_BYTES      512u
#define MAX_TEXT       ((size_t)64 << 20)
#define MAX_TOKENS     ((size_t)16 << 20)
#define DEFAULT_WINDOW 512u
#define MAX_WINDOW     131072u
#define MAX_THREADS    256u

typedef struct args {
    const char *paths[2];
    const char *text;
    uint32_t window;
    uint32_t n_threads;
} args_t;

static int usage(const char *what, const char *word)
{
    fprintf(stderr,
            "baton accuracy: %s%s\n"
            "See ./baton accuracy --help.\n",
            word, what);
    return BT_EXIT_USAGE;
}

static void help(void)
{
    printf("baton accuracy A.gguf B.gguf [--text FILE] [OPTION]...\n\n"
           "How far model B is from model A over a text: perplexity of both, "
           "the mean\nKullback-Leibler divergence of B from A, and how often "
           "both have the same\nlikeliest token.\n\n"
           "  --text FILE    UTF-8, of the repository's tests where none is "
           "named\n"
           "  --window N     tokens that are read from an empty cache, %u\n"
           "  --threads N    as many as there are cores\n",
           DEFAULT_WINDOW);
}

static bool read_number(const char *text, uint32_t least, uint32_t most,
                        uint32_t *n_p)
{
    char *end = NULL;
    unsigned long n;

    errno = 0;
    n = strtoul(text, &end, 10);
    if ((errno != 0) || (end == text) || (*end != '\0') || (n < least) ||
        (n > most)) {
        return false;
    }
    *n_p = (uint32_t)n;
    return true;
}

/* @return -1: go on; else what to exit with */
static int parse(int argc, char **argv, args_t *args)
{
    uint32_t n_paths = 0;

    for (int i = 1; i < argc; i++) {
        const char *const word = argv[i];
        const char *const value = (i + 1 < argc) ? argv[i + 1] : NULL;
        bool good = true;

        if (strcmp(word, "--help") == 0) {
            help();
            return BT_EXIT_OK;
        }
        if (word[0] != '-') {
            if (n_paths == 2) {
                return usage(": two models are named already", word);
            }
            args->paths[n_paths++] = word;
            continue;
        }
        if ((strcmp(word, "--text") != 0) && (strcmp(word, "--window") != 0) &&
            (strcmp(word, "--threads") != 0)) {
            return usage(" is no option", word);
        }
        if (value == NULL) {
            return usage(" needs a value", word);
        }
        if (strcmp(word, "--text") == 0) {
            args->text = value;
        } else if (strcmp(word, "--window") == 0) {
            good = read_number(value, 2, MAX_WINDOW, &args->window);
        } else {
            good = read_number(value, 1, MAX_THREADS, &args->n_threads);
        }
        if (!good) {
            return usage(" has a value out of range", word);
        }
        i++;
    }
    if (n_paths < 2) {
        return usage("two models are to be named", "");
    }
    return (args->text == NULL) ? usage("--text is not given", "") : -1;
}

static bt_status_t read_tokens(const bt_gguf_t *gguf, const char *path,
                               bt_token_vec_t *tokens, char *why)
{
    char *const text = bt_calloc(1, MAX_TEXT + 1);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    bt_tokenizer_t *tok = NULL;
    size_t n = 0;
    bt_status_t status = BT_ERR_NO_MEMORY;

    if (text == NULL) {
        snprintf(why, WHY_BYTES, "out of memory");
        goto out;
    }
    status = (fd < 0) ? BT_ERR_IO : bt_read_whole(fd, text, MAX_TEXT, &n);
    if ((status == BT_OK) && (n > MAX_TEXT)) {
        status = BT_ERR_TOO_LARGE;
    }
    if (status != BT_OK) {
        snprintf(why, WHY_BYTES, "%.200s: %s", path,
                 (fd < 0) ? strerror(errno) : bt_status_str(status));
        goto out;
    }
    status = bt_tokenizer_load(gguf, why, WHY_BYTES, &tok);
    if (status != BT_OK) {
        goto out;
    }
    status = bt_tokenize(tok, text, n, 0, MAX_TOKENS, tokens);
    if (status != BT_OK) {
        snprintf(why, WHY_BYTES, "%.200s: %s", path,
                 (status == BT_ERR_INVALID_PARAM) ? "is not UTF-8"
                                                  : bt_status_str(status));
    } else if (tokens->n < 2) {
        status = BT_ERR_INVALID_PARAM;
        snprintf(why, WHY_BYTES, "%.200s has fewer than two tokens", path);
    }
out:
    bt_tokenizer_destroy(tok);
    if (fd >= 0) {
        close(fd);
    }
    bt_free(text);
    return status;
}

/* A window of @a n tokens, of which each but the first is foretold. */
static bt_status_t score_window(bt_subject_t *subjects, const uint32_t *tokens,
                                uint32_t n, bt_score_t *score)
{
    const uint32_t n_vocab = subjects[0].hp.n_vocab;

    for (uint32_t pos = 0; pos + 1 < n; pos += BT_SUBJECT_ROWS) {
        const uint32_t left = n - 1 - pos;
        const uint32_t rows = (left < BT_SUBJECT_ROWS) ? left : BT_SUBJECT_ROWS;
        float *logits[2];

        for (uint32_t m = 0; m < 2; m++) {
            const bt_status_t status = bt_subject_logits(
                &subjects[m], tokens + pos, rows, pos, &logits[m]);

            if (status != BT_OK) {
                return status;
            }
        }
        for (uint32_t r = 0; r < rows; r++) {
            bt_score_add(score, logits[0] + (size_t)r * n_vocab,
                         logits[1] + (size_t)r * n_vocab, n_vocab,
                         tokens[pos + r + 1]);
        }
    }
    return BT_OK;
}

static void print(const bt_score_t *score)
{
    const double n = (double)score->n;

    printf("positions      %" PRIu64 "\n"
           "perplexity A   %.4f\n"
           "perplexity B   %.4f\n"
           "mean KL(A||B)  %.6f\n"
           "largest KL     %.6f\n"
           "same top-1     %.2f%%\n",
           score->n, bt_score_perplexity(score, 0),
           bt_score_perplexity(score, 1), score->kl / n, score->kl_max,
           100.0 * (double)score->same_top / n);
}

static bt_status_t compare(const args_t *args, bt_subject_t *subjects,
                           char *why)
{
    const bool is_terminal = (isatty(STDERR_FILENO) != 0);
    bt_token_vec_t tokens = {0};
    bt_score_t score = {0};
    bt_status_t status;

    if (subjects[0].hp.n_vocab != subjects[1].hp.n_vocab) {
        snprintf(why, WHY_BYTES,
                 "the models have vocabularies of %u and %u tokens",
                 subjects[0].hp.n_vocab, subjects[1].hp.n_vocab);
        return BT_ERR_MISMATCH;
    }
    status = read_tokens(subjects[0].gguf, args->text, &tokens, why);
    for (size_t at = 0; (status == BT_OK) && (at + 1 < tokens.n);
         at += args->window) {
        const size_t left = tokens.n - at;

        status = score_window(
            subjects, tokens.ids + at,
            (left < args->window) ? (uint32_t)left : args->window, &score);
        if (status != BT_OK) {
            snprintf(why, WHY_BYTES, "forward pass: %s", bt_status_str(status));
        } else if (is_terminal) {
            fprintf(stderr, "\r%zu%% of %zu tokens",
                    (left < args->window) ? 100 : at * 100 / tokens.n,
                    tokens.n);
        }
    }
    if (is_terminal) {
        fprintf(stderr, "\r\033[K");
    }
    bt_free(tokens.ids);
    if (status == BT_OK) {
        print(&score);
    }
    return status;
}

int main(int argc, char **argv)
{
    args_t args = {.window = DEFAULT_WINDOW};
    bt_subject_t subjects[2] = {{0}, {0}};
    char why[WHY_BYTES] = "";
    cpu_set_t set;
    bt_status_t status = BT_OK;
    const int done = parse(argc, argv, &args);

    if (done >= 0) {
        return done;
    }
    bt_log_init("baton-accuracy", BT_LOG_LEVEL_WARN);
    if (args.n_threads == 0) {
        args.n_threads = (sched_getaffinity(0, sizeof(set), &set) == 0)
                             ? (uint32_t)CPU_COUNT(&set)
                             : 1;
    }
    for (uint32_t m = 0; (m < 2) && (status == BT_OK); m++) {
        status = bt_subject_open(&subjects[m], args.paths[m], args.window,
                                 args.n_threads, why, sizeof(why));
        if (status != BT_OK) {
            fprintf(stderr, "baton accuracy: %s: %s\n", args.paths[m], why);
        }
    }
    if (status == BT_OK) {
        status = compare(&args, subjects, why);
        if (status != BT_OK) {
            fprintf(stderr, "baton accuracy: %s\n", why);
        }
    }
    for (uint32_t m = 0; m < 2; m++) {
        bt_subject_close(&subjects[m]);
    }
    return (status == BT_OK) ? BT_EXIT_OK : BT_EXIT_FAILURE;
}
