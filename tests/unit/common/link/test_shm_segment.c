/* SPDX-License-Identifier: Apache-2.0 */
/* How memory and bells get from one process to another, and who gets none. */
#include "tests/support/testsupport.h"

#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/process.h"
#include "common/link/shm_segment.h"

static bool is_readable(int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};

    return poll(&wait, 1, 0) == 1;
}

static void both_sides_have_the_same_memory_and_bells(void **state)
{
    const uint32_t before = bt_count_open_fds();
    uint8_t name[BT_SHM_NAME_BYTES];
    bt_shm_t giver, taker;
    size_t bytes = 0;
    int at, to;

    (void)state;
    assert_int_equal(bt_shm_give_open(&giver, name, &bytes, &at), BT_OK);
    assert_int_equal(bt_shm_take_open(name, bytes, &to), BT_OK);
    assert_true(is_readable(at));
    assert_int_equal(bt_shm_give(&giver, at), BT_OK);
    assert_true(is_readable(to));
    assert_int_equal(bt_shm_take(&taker, to), BT_OK);
    close(at);
    close(to);

    assert_memory_equal(giver.memory->secret, taker.memory->secret,
                        BT_SHM_SECRET_BYTES);
    atomic_store(&giver.memory->rings[1].head, 77);
    assert_int_equal(atomic_load(&taker.memory->rings[1].head), 77);
    assert_false(is_readable(taker.bells[1]));
    bt_shm_ring(giver.bells[1]);
    assert_true(is_readable(taker.bells[1]));
    assert_false(is_readable(giver.bells[0]));
    bt_shm_ring(taker.bells[0]);
    assert_true(is_readable(giver.bells[0]));

    bt_shm_close(&giver);
    assert_int_equal(atomic_load(&taker.memory->rings[1].head), 77);
    bt_shm_close(&taker);
    bt_shm_close(&taker);
    assert_int_equal(bt_count_open_fds(), before);
}

static void secrets_are_never_the_same(void **state)
{
    uint8_t name[BT_SHM_NAME_BYTES];
    bt_shm_t a, b;
    size_t bytes;
    int at_a, at_b;

    (void)state;
    assert_int_equal(bt_shm_give_open(&a, name, &bytes, &at_a), BT_OK);
    assert_int_equal(bt_shm_give_open(&b, name, &bytes, &at_b), BT_OK);
    assert_memory_not_equal(a.memory->secret, b.memory->secret,
                            BT_SHM_SECRET_BYTES);
    bt_shm_close(&a);
    bt_shm_close(&b);
    close(at_a);
    close(at_b);
}

static void a_name_that_nobody_has_is_not_reached(void **state)
{
    uint8_t name[BT_SHM_NAME_BYTES];
    bt_shm_t giver;
    size_t bytes;
    int at, to = -7;

    (void)state;
    assert_int_equal(bt_shm_give_open(&giver, name, &bytes, &at), BT_OK);
    assert_int_equal(bt_shm_give(&giver, at), BT_ERR_IO); /* nobody came */
    bt_shm_close(&giver);
    close(at);
    assert_int_equal(bt_shm_take_open(name, bytes, &to), BT_ERR_IO);
    assert_int_equal(bt_shm_take_open(name, 0, &to), BT_ERR_INVALID_PARAM);
    assert_int_equal(bt_shm_take_open(name, 17, &to), BT_ERR_INVALID_PARAM);
    assert_int_equal(to, -7);
}

/* Sends these descriptors, as bt_shm_give() would. */
static void send_fds(int to, const int *fds, size_t n)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(8 * sizeof(int))];
    } room;
    char byte = 0;
    struct iovec said = {&byte, 1};
    struct msghdr msg = {.msg_iov = &said, .msg_iovlen = 1};
    struct cmsghdr *c;

    memset(&room, 0, sizeof(room));
    if (n > 0) {
        msg.msg_control = room.bytes;
        msg.msg_controllen = CMSG_SPACE(n * sizeof(int));
        c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n * sizeof(int));
        memcpy(CMSG_DATA(c), fds, n * sizeof(int));
    }
    assert_int_equal(sendmsg(to, &msg, 0), 1);
}

/* What would block us, end us by a touch, or is not what it should be. */
static void what_is_no_such_memory_is_refused(void **state)
{
    const uint32_t before = bt_count_open_fds();
    uint8_t name[BT_SHM_NAME_BYTES];
    bt_shm_t good, taker;
    int unsealed = memfd_create("x", MFD_ALLOW_SEALING);
    size_t bytes;
    int at, pipes[2], pair[2];

    (void)state;
    assert_int_equal(bt_shm_give_open(&good, name, &bytes, &at), BT_OK);
    assert_int_equal(ftruncate(unsealed, sizeof(bt_shm_memory_t)), 0);
    assert_int_equal(pipe(pipes), 0);
    {
        const int mem = good.fd, bell = good.bells[0];
        const int cases[][4] = {
            {unsealed, bell, bell, 3}, {mem, pipes[0], bell, 3},
            {mem, bell, pipes[1], 3},  {mem, mem, bell, 3},
            {bell, bell, bell, 3},     {mem, bell, bell, 2},
            {mem, bell, bell, 0},
        };

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
            send_fds(pair[0], cases[i], (size_t)cases[i][3]);
            assert_int_not_equal(bt_shm_take(&taker, pair[1]), BT_OK);
            assert_null(taker.memory);
            close(pair[0]);
            close(pair[1]);
        }
    }
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    close(pair[0]);
    assert_int_equal(bt_shm_take(&taker, pair[1]), BT_ERR_IO); /* it went */
    close(pair[1]);
    close(pipes[0]);
    close(pipes[1]);
    close(unsealed);
    close(at);
    bt_shm_close(&good);
    assert_int_equal(bt_count_open_fds(), before);
}

/* What comes beside what was asked for is nobody's to close. */
static void one_descriptor_too_many_is_not_kept(void **state)
{
    const uint32_t before = bt_count_open_fds();
    uint8_t name[BT_SHM_NAME_BYTES];
    bt_shm_t good, taker;
    size_t bytes;
    int at, pair[2];

    (void)state;
    assert_int_equal(bt_shm_give_open(&good, name, &bytes, &at), BT_OK);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    {
        const int fds[] = {good.fd, good.bells[0], good.bells[1], at};

        send_fds(pair[0], fds, 4);
    }
    if (bt_shm_take(&taker, pair[1]) == BT_OK) {
        bt_shm_close(&taker);
    }
    close(pair[0]);
    close(pair[1]);
    close(at);
    bt_shm_close(&good);
    assert_int_equal(bt_count_open_fds(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(both_sides_have_the_same_memory_and_bells),
        BT_TEST(secrets_are_never_the_same),
        BT_TEST(a_name_that_nobody_has_is_not_reached),
        BT_TEST(what_is_no_such_memory_is_refused),
        BT_TEST(one_descriptor_too_many_is_not_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
