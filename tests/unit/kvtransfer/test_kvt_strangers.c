/* SPDX-License-Identifier: Apache-2.0 */
/* Whoever finds the port: connections that are none of a Baton process. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/log.h"
#include "kvtransfer/kvt_wire.h"
#include "tests/unit/kvtransfer/pair.h"

#define N_STRANGERS 64
#define N_ROUNDS    40

/* What UCX's own client sends first: the length of what follows, a status. */
typedef struct stranger_words {
    uint64_t length;
    uint8_t status;
    uint8_t pad[7];
    uint8_t data[48];
} stranger_words_t;

typedef struct strangers {
    int fds[N_STRANGERS];
    atomic_bool go;
} strangers_t;

static void strangers_connect(strangers_t *s, const pair_t *pair)
{
    static uint8_t blob[BT_KVT_MAX_EXPORT];
    struct sockaddr_in addr;
    bt_kvt_export_info_t info;
    size_t bytes = 0;

    assert_int_equal(bt_kvt_export(pair->receiver, blob, sizeof(blob), &bytes),
                     BT_OK);
    assert_int_equal(bt_kvt_export_decode(blob, bytes, &info), BT_OK);
    assert_int_equal(info.net_addr.bytes, sizeof(addr));
    memcpy(&addr, info.net_addr.data, sizeof(addr));
    for (unsigned i = 0; i < N_STRANGERS; i++) {
        s->fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(s->fds[i] >= 0);
        assert_int_equal(
            connect(s->fds[i], (struct sockaddr *)&addr, sizeof(addr)), 0);
    }
}

static void strangers_leave(strangers_t *s)
{
    for (unsigned i = 0; i < N_STRANGERS; i++) {
        close(s->fds[i]);
    }
}

static void *strangers_speak(void *arg)
{
    strangers_t *s = arg;
    stranger_words_t words = {.length = sizeof(words.data)};

    memset(words.data, 0x5a, sizeof(words.data));
    while (!atomic_load(&s->go)) {
    }
    for (unsigned i = 0; i < N_STRANGERS; i++) {
        (void)!send(s->fds[i], &words, sizeof(words), MSG_NOSIGNAL);
    }
    return NULL;
}

/* UCX's own thread takes what they say; the listener is going meanwhile. */
static void strangers_during_close_do_no_harm(void **state)
{
    (void)state;
    for (unsigned round = 0; round < N_ROUNDS; round++) {
        strangers_t s = {0};
        pthread_t thread;
        pair_t pair;

        pair_open(&pair, &pair_kinds[PAIR_UCX_NETWORK], 64u << 10);
        strangers_connect(&s, &pair);
        assert_int_equal(pthread_create(&thread, NULL, strangers_speak, &s), 0);
        atomic_store(&s.go, true);
        pair_close(&pair);
        pthread_join(thread, NULL);
        strangers_leave(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strangers_during_close_do_no_harm),
    };

    bt_log_init("test_kvt_strangers", BT_LOG_LEVEL_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
