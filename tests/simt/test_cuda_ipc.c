/* SPDX-License-Identifier: Apache-2.0 */
/* A device's memory that another process opens: the copier's way there and
 * back, with each call failing once, and what becomes of it when either process
 * ends. The argument is baton_cuda_sim.so. */
#include "tests/simt/plugin.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/device_hash.h"
#include "kernels/kernels.h"

#define BYTES  100000u /* of either process, not a number of words */
#define OTHERS 0x5a
#define SEED   77u
#define TICKET 1u

static const bt_backend_config_t config = {.n_threads = 1, .max_rows = 8};

/* ---- the process whose memory it is ---- */

typedef struct owner {
    pid_t pid;
    int ask, answer; /* pipes */
    uint8_t handle[BT_COPIER_HANDLE_BYTES];
} owner_t;

/* What it is asked: to say the first byte of its buffer, or to have another
 * buffer instead. */
enum { SAY_FIRST = 1, HAVE_ANOTHER = 2 };

static bool say(int fd, const void *bytes, size_t n)
{
    return write(fd, bytes, n) == (ssize_t)n;
}

static bool share_new(bt_backend_t *be, const bt_copier_t *copier,
                      void **buffer_p, int answer)
{
    uint8_t handle[BT_COPIER_HANDLE_BYTES];
    uint8_t *bytes = malloc(BYTES);
    bool well = bytes != NULL;

    if (well) {
        memset(bytes, OTHERS, BYTES);
        well = (be->ops->buffer_alloc(be, BYTES, buffer_p) == BT_OK) &&
               (be->ops->copy_in(be, *buffer_p, bytes, BYTES) == BT_OK) &&
               (be->ops->sync(be) == BT_OK) &&
               (copier->share(copier->user, *buffer_p, handle) == BT_OK) &&
               say(answer, handle, sizeof(handle));
    }
    free(bytes);
    return well;
}

static int owner_run(int ask, int answer)
{
    bt_backend_t *be = NULL;
    bt_copier_t copier = {0};
    void *buffer = NULL;
    bool well = (bt_backend_open("cuda_sim", &config, &be) == BT_OK) &&
                (be->ops->copier_open(be, 2, &copier) == BT_OK) &&
                share_new(be, &copier, &buffer, answer);
    uint8_t what = 0;

    while (well && (read(ask, &what, 1) == 1)) {
        uint8_t first = 0;

        if (what == SAY_FIRST) {
            well = (be->ops->copy_out(be, &first, buffer, 1) == BT_OK) &&
                   say(answer, &first, 1);
        } else {
            be->ops->buffer_free(be, buffer);
            well = share_new(be, &copier, &buffer, answer);
        }
    }
    if (be != NULL) {
        be->ops->copier_close(&copier);
        be->ops->buffer_free(be, buffer);
        bt_backend_close(be);
    }
    return well ? 0 : 1;
}

static void must_read(int fd, void *bytes, size_t n)
{
    assert_int_equal(read(fd, bytes, n), (ssize_t)n);
}

static void owner_start(owner_t *o)
{
    int ask[2], answer[2];

    fail_at(0);
    assert_int_equal(pipe(ask), 0);
    assert_int_equal(pipe(answer), 0);
    o->pid = fork();
    assert_true(o->pid >= 0);
    if (o->pid == 0) {
        close(ask[1]);
        _exit(owner_run(ask[0], answer[1]));
    }
    close(ask[0]);
    close(answer[1]);
    o->ask = ask[1];
    o->answer = answer[0];
    must_read(o->answer, o->handle, sizeof(o->handle));
}

static uint8_t owner_first(const owner_t *o)
{
    const uint8_t what = SAY_FIRST;
    uint8_t first = 0;

    assert_true(say(o->ask, &what, 1));
    must_read(o->answer, &first, 1);
    return first;
}

static void owner_end(owner_t *o)
{
    int status = 0;

    close(o->ask);
    close(o->answer);
    assert_int_equal(waitpid(o->pid, &status, 0), o->pid);
    assert_int_equal(status, 0);
}

/* ---- the other process ---- */

typedef struct walk {
    bt_backend_t *be;
    bt_copier_t copier;
    uint8_t *own, *theirs;
    uint8_t fill; /* all of own; of each walk another one */
} walk_t;

static bt_status_t open_all(walk_t *w, const owner_t *o)
{
    static uint8_t bytes[BYTES];
    uint8_t handle[BT_COPIER_HANDLE_BYTES];
    void *ptr = NULL;
    static uint8_t n_walks;
    bt_status_t status = bt_backend_open("cuda_sim", &config, &w->be);

    w->fill = n_walks++ % 64;
    memset(bytes, w->fill, sizeof(bytes));
    if (status == BT_OK) {
        status = w->be->ops->buffer_alloc(w->be, BYTES, &ptr);
        w->own = ptr;
    }
    if (status == BT_OK) {
        status = w->be->ops->copy_in(w->be, w->own, bytes, BYTES);
    }
    if (status == BT_OK) {
        status = w->be->ops->sync(w->be);
    }
    if (status == BT_OK) {
        status = w->be->ops->copier_open(w->be, 2, &w->copier);
    }
    if (status == BT_OK) { /* it can be shared, too */
        status = w->copier.share(w->copier.user, w->own, handle);
    }
    if (status == BT_OK) {
        status = w->copier.open_shared(w->copier.user, o->handle, &ptr);
        w->theirs = (status == BT_OK) ? ptr : NULL;
    }
    return status;
}

/* What is there is read, and half of it written. */
static bt_status_t use(walk_t *w, bool *right_p)
{
    static uint8_t want[BYTES];
    bt_status_t status = w->copier.hash(w->copier.user, w->theirs + BYTES / 2,
                                        BYTES / 2, SEED, TICKET);

    memset(want, OTHERS, sizeof(want));
    status = (status == BT_OK) ? bt_copier_wait(&w->copier, TICKET) : status;
    if (status != BT_OK) {
        return status;
    }
    *right_p = w->copier.hashed(w->copier.user, TICKET) ==
               bt_device_hash(want, BYTES / 2, SEED);
    status = w->copier.between(w->copier.user, w->theirs, w->own, BYTES / 2,
                               SEED, TICKET);
    status = (status == BT_OK) ? bt_copier_wait(&w->copier, TICKET) : status;
    if (status == BT_OK) {
        memset(want, w->fill, sizeof(want));
        *right_p = *right_p && (w->copier.hashed(w->copier.user, TICKET) ==
                                bt_device_hash(want, BYTES / 2, SEED));
    }
    return status;
}

/* Who is told that nothing was begun, or that it has ended, is told so. */
static void expect_no_more_writes(walk_t *w, const owner_t *o)
{
    const uint8_t first = owner_first(o);

    w->copier.wait_all(w->copier.user);
    assert_int_equal(owner_first(o), first);
}

static void close_all(walk_t *w)
{
    if (w->be == NULL) {
        return;
    }
    if (w->theirs != NULL) {
        w->copier.close_shared(w->copier.user, w->theirs);
    }
    if (w->copier.user != NULL) {
        w->be->ops->copier_close(&w->copier);
    }
    w->be->ops->buffer_free(w->be, w->own);
    bt_backend_close(w->be);
}

static bt_status_t walk(const owner_t *o, uint64_t failing, bool *right_p,
                        uint64_t *n_calls_p)
{
    bt_simt_state_t state;
    walk_t w = {0};
    bt_status_t status;

    fail_at(failing);
    status = open_all(&w, o);
    if (status == BT_OK) {
        status = use(&w, right_p);
        expect_no_more_writes(&w, o);
    }
    if (status == BT_ERR_UNSUPPORTED) {
        assert_non_null(w.copier.why_not(w.copier.user));
    }
    if (w.theirs != NULL) {
        w.copier.close_shared(w.copier.user, w.theirs);
        w.theirs = NULL;
    }
    state_of(&state);
    *n_calls_p = state.n_calls;
    close_all(&w);
    state_of(&state);
    if ((state.bytes != 0) || (state.n_pinned != 0) || (state.n_streams != 0) ||
        (state.n_events != 0) || (state.n_opened != 0)) {
        fail_msg("call %u failed: %zu bytes, %u pinned, %u streams, %u events "
                 "and %u of others are left",
                 (unsigned)failing, state.bytes, state.n_pinned,
                 state.n_streams, state.n_events, state.n_opened);
    }
    return status;
}

static void every_call_that_fails_is_told(void **state)
{
    owner_t o;
    uint64_t n_calls = 0;
    uint64_t n_some;
    bool right = false;
    uint32_t n_refused = 0;

    (void)state;
    owner_start(&o);
    assert_int_equal(walk(&o, 0, &right, &n_calls), BT_OK);
    assert_true(right);
    assert_int_equal(owner_first(&o), 0); /* the first fill */
    assert_true(n_calls >= 30);
    for (uint64_t n = 1; n <= n_calls; n += BT_SIMT_EVERY) {
        const bt_status_t status = walk(&o, n, &right, &n_some);

        if (status == BT_ERR_UNSUPPORTED) {
            n_refused++;
        } else if ((status != BT_ERR_NO_MEMORY) && (status != BT_ERR_DEVICE) &&
                   (status != BT_ERR_NO_DEVICE) && (status != BT_OK)) {
            fail_msg("call %u of %u failed: \"%s\"", (unsigned)n,
                     (unsigned)n_calls, bt_status_str(status));
        }
        assert_true((status != BT_OK) || right);
        if (walk(&o, 0, &right, &n_some) != BT_OK) {
            fail_msg("the walk after that with call %u failing", (unsigned)n);
        }
    }
    assert_true((n_refused >= 2) || (BT_SIMT_EVERY > 1));
    owner_end(&o);
}

/* ---- what cannot be opened ---- */

static void expect_refusal(walk_t *w, const uint8_t *handle, const char *why)
{
    void *ptr = NULL;

    assert_int_equal(w->copier.open_shared(w->copier.user, handle, &ptr),
                     BT_ERR_UNSUPPORTED);
    assert_null(ptr);
    assert_string_equal(w->copier.why_not(w->copier.user), why);
}

static void what_is_not_there_or_not_allowed_is_refused(void **state)
{
    const uint8_t what = HAVE_ANOTHER;
    uint8_t handle[BT_COPIER_HANDLE_BYTES] = {0};
    uint8_t old[BT_COPIER_HANDLE_BYTES];
    bt_simt_state_t left;
    walk_t w = {0};
    owner_t o;

    (void)state;
    owner_start(&o);
    assert_int_equal(open_all(&w, &o), BT_OK);
    w.copier.close_shared(w.copier.user, w.theirs);
    w.theirs = NULL;
    expect_refusal(&w, handle,
                   "it is of another kind of device, or of another build");
    /* A place that words are not read from. */
    assert_int_equal(
        w.copier.hash(w.copier.user, (uint8_t *)w.own + 2, 64, SEED, TICKET),
        BT_ERR_INVALID_PARAM);
    assert_int_equal(w.copier.between(w.copier.user, (uint8_t *)w.own + 1026,
                                      w.own, 64, SEED, TICKET),
                     BT_ERR_INVALID_PARAM);
    memcpy(handle, o.handle, sizeof(handle));
    handle[4]++; /* another hash */
    expect_refusal(&w, handle,
                   "it is of another kind of device, or of another build");
    assert_int_equal(w.copier.share(w.copier.user, w.own, handle), BT_OK);
    expect_refusal(&w, handle, "a failure of the tests"); /* one's own */
    assert_int_equal(w.copier.share(w.copier.user, w.own + 256, handle),
                     BT_ERR_UNSUPPORTED); /* not the beginning */
    assert_int_equal(setenv("BATON_SIMT_HOST", "without-peer-access", 1), 0);
    expect_refusal(&w, o.handle,
                   "peer access is not supported between these two devices");
    assert_int_equal(setenv("BATON_SIMT_HOST", "without-ipc", 1), 0);
    assert_int_equal(w.copier.share(w.copier.user, w.own, handle),
                     BT_ERR_UNSUPPORTED);
    assert_string_equal(w.copier.why_not(w.copier.user),
                        "operation not supported");
    assert_int_equal(unsetenv("BATON_SIMT_HOST"), 0);
    /* Freed, with another one in its place. */
    memcpy(old, o.handle, sizeof(old));
    assert_true(say(o.ask, &what, 1));
    must_read(o.answer, o.handle, sizeof(o.handle));
    expect_refusal(&w, old, "mapping of buffer object failed");
    /* Its process is gone. */
    owner_end(&o);
    expect_refusal(&w, o.handle, "mapping of buffer object failed");
    close_all(&w);
    state_of(&left);
    assert_int_equal(left.n_opened, 0);
}

/* As the driver keeps memory that somebody has open. */
static void what_is_open_outlives_its_process(void **state)
{
    bool right = false;
    walk_t w = {0};
    owner_t o;
    int status = 0;

    (void)state;
    owner_start(&o);
    assert_int_equal(open_all(&w, &o), BT_OK);
    assert_int_equal(kill(o.pid, SIGKILL), 0);
    assert_int_equal(waitpid(o.pid, &status, 0), o.pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(use(&w, &right), BT_OK);
    assert_true(right);
    close_all(&w);
    close(o.ask);
    close(o.answer);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(every_call_that_fails_is_told),
        BT_TEST(what_is_not_there_or_not_allowed_is_refused),
        BT_TEST(what_is_open_outlives_its_process),
    };

    plugin_open(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
