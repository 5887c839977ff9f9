/* SPDX-License-Identifier: Apache-2.0 */
/* baton-convert: the program behind `./baton convert`. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/limits.h"
#include "common/base/process.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "inference/hf/hf.h"
#include "tools/convert/convert.h"
#include "tools/convert_options.h"
#include "tools/imatrix/imatrix.h"

#define WHY_BYTES 8192u
#define BAR_CELLS 24u

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    (void)number;
    stopped = 1;
}

typedef struct show {
    bool is_terminal;
    uint64_t n_kept;
} show_t;

static bt_printable_t name_of(const bt_quantize_step_t *step)
{
    return bt_printable(step->tensor->name.data, step->tensor->name.len);
}

static void show_bar(const bt_convert_progress_t *progress)
{
    const uint64_t all = (progress->all_bytes > 0) ? progress->all_bytes : 1;
    const uint32_t cells = (uint32_t)(progress->done_bytes * BAR_CELLS / all);
    char bar[BAR_CELLS + 1];

    for (uint32_t i = 0; i < BAR_CELLS; i++) {
        bar[i] = (i < cells) ? '#' : '.';
    }
    bar[BAR_CELLS] = '\0';
    printf("\r[%s] %3" PRIu64 "%%  %" PRIu64 "/%" PRIu64 " %s\033[K", bar,
           progress->done_bytes * 100 / all, progress->i + 1, progress->n,
           name_of(progress->step).text);
}

/* Prints a line for a tensor; on a terminal only for unexpected results. */
static void show_line(const show_t *show, const bt_convert_progress_t *progress)
{
    const bt_quantize_step_t *const step = progress->step;

    if (show->is_terminal) {
        if (!step->is_narrow) {
            return;
        }
        printf("\r\033[K");
    }
    printf("%" PRIu64 "/%" PRIu64 " %s %s -> %s%s", progress->i + 1,
           progress->n, name_of(step).text,
           bt_gguf_type_name(step->tensor->type), bt_gguf_type_name(step->type),
           progress->is_kept ? " (was done)" : "");
    if (step->is_narrow) {
        printf(", for rows of %" PRIu64 " are no blocks of %s",
               step->tensor->dims[0], bt_gguf_type_name(step->wanted));
    }
    printf("\n");
}

static bool on_progress(void *ctx, const bt_convert_progress_t *progress)
{
    show_t *const show = ctx;

    if (progress->is_done) {
        show->n_kept += progress->is_kept ? 1 : 0;
        show_line(show, progress);
    }
    if (show->is_terminal) {
        show_bar(progress);
    }
    fflush(stdout);
    return stopped == 0;
}

/* True when no file is in the way, or --overwrite allows replacing it. Files of
 * the model are never replaced (bt_convert()). */
static bool is_free(const bt_convert_args_t *args, char *why, size_t why_bytes)
{
    struct stat out;

    if ((stat(args->out, &out) != 0) ||
        (args->overwrite && S_ISREG(out.st_mode))) {
        return true;
    }
    snprintf(why, why_bytes, "%s exists%s", args->out,
             S_ISREG(out.st_mode) ? "; --overwrite replaces it"
                                  : " and is no file");
    return false;
}

static bool on_window(void *ctx, uint32_t n_done, uint32_t n_windows)
{
    const show_t *const show = ctx;

    if (show->is_terminal) {
        printf("\r\033[Kimportance matrix: %u of %u windows of text", n_done,
               n_windows);
        fflush(stdout);
    }
    return stopped == 0;
}

/* Reads the importance matrix, or computes it with the model.
 * @param [out] m  zeroed before, ended by the caller */
static bt_status_t get_imatrix(const bt_convert_args_t *args,
                               const bt_gguf_t *gguf, show_t *show,
                               uint32_t n_threads, char *why, bt_imatrix_t *m)
{
    const bt_imatrix_collect_t collect = {.text = args->imatrix_text,
                                          .path = args->imatrix,
                                          .window = (args->imatrix_window > 0)
                                                        ? args->imatrix_window
                                                        : BT_IMATRIX_WINDOW,
                                          .n_threads = n_threads,
                                          .on_progress = on_window,
                                          .ctx = show};
    char reason[WHY_BYTES / 2] = "";
    uint64_t n = 0;
    bt_status_t status;

    if (args->imatrix_text != NULL) {
        status = bt_imatrix_make(gguf, &collect, why, WHY_BYTES, m);
        if (show->is_terminal) {
            printf("\r\033[K");
        }
        if (status != BT_OK) {
            return status;
        }
    } else {
        status = bt_imatrix_read(args->imatrix, reason, sizeof(reason), m);
    }
    if (status == BT_OK) {
        status = bt_imatrix_check(m, gguf, &n, reason, sizeof(reason));
    }
    if ((status == BT_OK) && (n == 0)) {
        snprintf(reason, sizeof(reason), "it has none of the model's tensors");
        status = BT_ERR_MISMATCH;
    }
    if (status != BT_OK) {
        snprintf(why, WHY_BYTES, "--imatrix %.200s: %s", args->imatrix, reason);
        return status;
    }
    printf("importance matrix %s: %" PRIu64
           " tensors, %u windows of %u tokens\n",
           args->imatrix, n, m->n_windows, m->window);
    return BT_OK;
}

static int convert(const bt_convert_args_t *args)
{
    show_t show = {.is_terminal = (isatty(STDOUT_FILENO) != 0)};
    bt_convert_options_t options = {.mix = args->mix,
                                    .n_threads = (args->n_threads > 0)
                                                     ? args->n_threads
                                                     : bt_limits_n_cpus(),
                                    .on_progress = on_progress,
                                    .ctx = &show};
    bt_imatrix_t imatrix = {0};
    char why[WHY_BYTES] = "";
    bt_gguf_t *gguf = NULL;
    struct stat st;
    bt_status_t status;

    if (!is_free(args, why, sizeof(why))) {
        fprintf(stderr, "baton convert: %s\n", why);
        return BT_EXIT_USAGE;
    }
    status = bt_modelfile_open(args->in, why, sizeof(why), &gguf);
    if (status != BT_OK) {
        fprintf(stderr, "baton convert: %s: %s\n", args->in, why);
        return BT_EXIT_CONFIG;
    }
    if (args->imatrix[0] != '\0') {
        status =
            get_imatrix(args, gguf, &show, options.n_threads, why, &imatrix);
        options.imatrix = &imatrix;
    }
    if (status == BT_OK) {
        status = bt_convert(gguf, args->out, &options, why, sizeof(why));
    }
    if (show.is_terminal) {
        printf("\r\033[K");
    }
    if (status != BT_OK) {
        fflush(stdout);
        fprintf(stderr, "baton convert: %s\n", why);
    } else if (stat(args->out, &st) == 0) {
        printf("%s: %.1f MB, was %.1f MB", args->out, (double)st.st_size / 1e6,
               (double)bt_gguf_bytes(gguf) / 1e6);
        if (show.n_kept > 0) {
            printf("; %" PRIu64 " tensors were done", show.n_kept);
        }
        printf("\n");
    }
    bt_imatrix_fini(&imatrix);
    bt_gguf_close(gguf);
    return (status == BT_OK) ? BT_EXIT_OK : BT_EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    const struct sigaction stop = {.sa_handler = on_signal};
    bt_convert_args_t args;
    char why[WHY_BYTES] = "";

    if (bt_convert_args_parse(argc, (const char *const *)argv, stderr, why,
                              sizeof(why), &args) != BT_OK) {
        fprintf(stderr, "baton convert: %s\nSee %s convert --help.\n", why,
                bt_process_command());
        return BT_EXIT_USAGE;
    }
    if (args.help) {
        bt_convert_args_help(stdout);
        return 0;
    }
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    return convert(&args);
}
