/* SPDX-License-Identifier: Apache-2.0 */
/* baton-accuracy: the program behind `./baton accuracy`.
 *
 *     baton-accuracy A.gguf B.gguf --text FILE [--window N] [--threads N]
 *
 * Both models read the text in windows with an empty context each, and predict
 * each token but a window's first. The text is tokenized by A's tokenizer. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/process.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "inference/hf/hf.h"
#include "inference/reader/reader.h"
#include "tools/accuracy_score.h"

#define WHY_BYTES      512u
#define DEFAULT_WINDOW 512u
#define MAX_THREADS    256u

typedef struct args {
    const char *paths[2];
    const char *text;
    uint32_t window;
    uint32_t n_threads;
} args_t;

typedef struct subject {
    bt_gguf_t *gguf;
    bt_reader_t reader;
} subject_t;

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    (void)number;
    stopped = 1;
}

static int usage(const char *what, const char *word)
{
    fprintf(stderr,
            "baton accuracy: %s%s\n"
            "See %s accuracy --help.\n",
            word, what, bt_process_command());
    return BT_EXIT_USAGE;
}

static void help(void)
{
    printf("baton accuracy A.gguf B.gguf [--text FILE] [OPTION]...\n\n"
           "How far model B is from model A over a text: perplexity of both, "
           "the mean\nKullback-Leibler divergence of B from A, and how often "
           "both have the same\nlikeliest token. \"B lost\" is the mean of "
           "what B's log p of the text is less, in\nnats a token. Behind +- is "
           "a standard error.\n\n"
           "  --text FILE    UTF-8, of the repository's tests where none is "
           "named\n"
           "  --window N     tokens that are read from an empty cache, %u\n"
           "  --threads N    as many as there are cores\n\n"
           "It ended early? The same command goes on after the last window.\n",
           DEFAULT_WINDOW);
}

static bool read_number(const char *text, uint32_t least, uint32_t most,
                        uint32_t *n_p)
{
    uint64_t n;

    if (!bt_parse_u64(text, &n) || (n < least) || (n > most)) {
        return false;
    }
    *n_p = (uint32_t)n;
    return true;
}

/* @return -1: continue; else the exit status */
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
            good = read_number(value, 2, BT_READER_MAX_WINDOW, &args->window);
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

/* Scores a window of @a n tokens, each predicted but the first. */
static bt_status_t score_window(subject_t *subjects, const uint32_t *tokens,
                                uint32_t n, bt_accuracy_t *score)
{
    const uint32_t n_vocab = subjects[0].reader.hp.n_vocab;

    for (uint32_t pos = 0; pos + 1 < n; pos += BT_READER_ROWS) {
        const uint32_t left = n - 1 - pos;
        const uint32_t rows = (left < BT_READER_ROWS) ? left : BT_READER_ROWS;
        float *logits[2];

        for (uint32_t m = 0; m < 2; m++) {
            const bt_status_t status = bt_reader_logits(
                &subjects[m].reader, tokens + pos, rows, pos, &logits[m]);

            if (status != BT_OK) {
                return status;
            }
        }
        for (uint32_t r = 0; r < rows; r++) {
            bt_accuracy_add(score, logits[0] + (size_t)r * n_vocab,
                            logits[1] + (size_t)r * n_vocab, n_vocab,
                            tokens[pos + r + 1]);
        }
    }
    return BT_OK;
}

static void print(const bt_accuracy_t *score)
{
    const bt_accuracy_mean_t kl = bt_accuracy_kl(score);
    const bt_accuracy_mean_t lost = bt_accuracy_lost(score);

    printf("positions      %" PRIu64 "\n"
           "perplexity A   %.4f\n"
           "perplexity B   %.4f\n"
           "B lost         %.5f +- %.5f\n"
           "mean KL(A||B)  %.6f +- %.6f\n"
           "largest KL     %.6f\n"
           "same top-1     %.2f%%\n",
           score->n, bt_accuracy_perplexity(score, 0),
           bt_accuracy_perplexity(score, 1), lost.mean, lost.error, kl.mean,
           kl.error, score->kl_max,
           100.0 * (double)score->same_top / (double)score->n);
}

/* Prints a progress bar of the windows that are done. */
static void show_bar(uint64_t done, uint64_t all, const bt_accuracy_t *score)
{
    static const char marks[] = "####################";
    const int n = (int)(done * 20 / all);

    fprintf(stderr, "\r\033[K[%-20.*s] %3d%% of %" PRIu64 " tokens, KL %.4f", n,
            marks, (int)(done * 100 / all), all,
            (score->n > 0) ? score->kl / (double)score->n : 0.0);
}

static bt_status_t score_text(const args_t *args, subject_t *subjects,
                              const bt_token_vec_t *tokens,
                              const bt_progress_t *progress,
                              bt_accuracy_t *score, char *why)
{
    const bool is_terminal = (isatty(STDERR_FILENO) != 0);
    uint64_t at = bt_progress_read(progress, tokens->n, args->window, score);
    bt_status_t status = BT_OK;

    if (at > 0) {
        fprintf(stderr, "going on after %" PRIu64 " of %zu tokens\n", at,
                tokens->n);
    }
    while ((status == BT_OK) && (at + 1 < tokens->n)) {
        const size_t left = tokens->n - at;
        const uint32_t n =
            (left < args->window) ? (uint32_t)left : args->window;

        if (is_terminal) {
            show_bar(at, tokens->n, score);
        }
        if (stopped != 0) {
            snprintf(why, WHY_BYTES, "stopped; the same command goes on");
            status = BT_ERR_CANCELED;
            break;
        }
        status = score_window(subjects, tokens->ids + at, n, score);
        if (status != BT_OK) {
            snprintf(why, WHY_BYTES, "forward pass: %s", bt_status_str(status));
            break;
        }
        at += n;
        if (n == args->window) {
            bt_progress_write(progress, at, score);
        }
    }
    if (is_terminal) {
        fprintf(stderr, "\r\033[K");
    }
    return status;
}

static bt_status_t compare(const args_t *args, subject_t *subjects, char *why)
{
    bt_token_vec_t tokens = {0};
    bt_accuracy_t score = {0};
    bt_progress_t progress;
    bt_status_t status;

    if (subjects[0].reader.hp.n_vocab != subjects[1].reader.hp.n_vocab) {
        snprintf(why, WHY_BYTES,
                 "the models have vocabularies of %u and %u tokens",
                 subjects[0].reader.hp.n_vocab, subjects[1].reader.hp.n_vocab);
        return BT_ERR_MISMATCH;
    }
    status =
        bt_reader_tokens(subjects[0].gguf, args->text, &tokens, why, WHY_BYTES);
    if (status == BT_OK) {
        progress = bt_progress_of(
            bt_gguf_content(subjects[0].gguf),
            bt_gguf_content(subjects[1].gguf),
            bt_hash128(tokens.ids, tokens.n * sizeof(*tokens.ids), 0),
            args->window);
        status = score_text(args, subjects, &tokens, &progress, &score, why);
    }
    bt_free(tokens.ids);
    if (status == BT_OK) {
        print(&score);
        bt_progress_remove(&progress);
    }
    return status;
}

static bt_status_t open_subject(subject_t *s, const char *path,
                                const args_t *args, char *why)
{
    const bt_reader_config_t config = {.window = args->window,
                                       .n_threads = args->n_threads};
    bt_status_t status = bt_modelfile_open(path, why, WHY_BYTES, &s->gguf);

    if (status == BT_OK) {
        status = bt_reader_open(&s->reader, s->gguf, &config, why, WHY_BYTES);
    }
    if (status != BT_OK) {
        fprintf(stderr, "baton accuracy: %s: %s\n", path, why);
    }
    return status;
}

int main(int argc, char **argv)
{
    const struct sigaction stop = {.sa_handler = on_signal};
    args_t args = {.window = DEFAULT_WINDOW};
    subject_t subjects[2] = {{0}, {0}};
    char why[WHY_BYTES] = "";
    bt_status_t status = BT_OK;
    const int done = parse(argc, argv, &args);

    if (done >= 0) {
        return done;
    }
    bt_log_init("baton-accuracy", BT_LOG_LEVEL_WARN);
    if (args.n_threads == 0) {
        args.n_threads = bt_limits_n_cpus();
    }
    for (uint32_t m = 0; (m < 2) && (status == BT_OK); m++) {
        status = open_subject(&subjects[m], args.paths[m], &args, why);
    }
    if (status == BT_OK) {
        sigaction(SIGINT, &stop, NULL);
        sigaction(SIGTERM, &stop, NULL);
        status = compare(&args, subjects, why);
        if (status != BT_OK) {
            fprintf(stderr, "baton accuracy: %s\n", why);
        }
    }
    for (uint32_t m = 0; m < 2; m++) {
        bt_reader_close(&subjects[m].reader);
        bt_gguf_close(subjects[m].gguf);
    }
    return (status == BT_OK) ? BT_EXIT_OK : BT_EXIT_FAILURE;
}
