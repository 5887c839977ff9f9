/* SPDX-License-Identifier: Apache-2.0 */
#include "common/link/shm_segment.h"

#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/text.h"
#include "common/crypt/key.h"

#define N_FDS     3 /* the memory and two bells */
#define NAME_AT   offsetof(struct sockaddr_un, sun_path)
#define ALL_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

void bt_shm_init(bt_shm_t *shm)
{
    *shm = (bt_shm_t){.fd = -1, .bells = {-1, -1}};
}

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

void bt_shm_close(bt_shm_t *shm)
{
    if (shm->memory != NULL) {
        munmap(shm->memory, sizeof(*shm->memory));
    }
    close_fd(&shm->fd);
    close_fd(&shm->bells[0]);
    close_fd(&shm->bells[1]);
    bt_shm_init(shm);
}

static bt_status_t map(bt_shm_t *shm)
{
    void *at = mmap(NULL, sizeof(*shm->memory), PROT_READ | PROT_WRITE,
                    MAP_SHARED, shm->fd, 0);

    if (at == MAP_FAILED) {
        return BT_ERR_NO_MEMORY;
    }
    shm->memory = at;
    return BT_OK;
}

/* ---- the giver ---- */

static bt_status_t make(bt_shm_t *shm)
{
    const off_t bytes = (off_t)sizeof(*shm->memory);

    shm->fd = memfd_create("baton-link", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    shm->bells[0] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    shm->bells[1] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if ((shm->fd < 0) || (shm->bells[0] < 0) || (shm->bells[1] < 0)) {
        return BT_ERR_IO;
    }
    /* The pages are taken here, by a call that can fail: of memory that is not
     * there a touch would end the process. */
    if ((ftruncate(shm->fd, bytes) != 0) ||
        (fallocate(shm->fd, 0, 0, bytes) != 0) ||
        (fcntl(shm->fd, F_ADD_SEALS, ALL_SEALS) != 0)) {
        return BT_ERR_NO_MEMORY;
    }
    return map(shm);
}

/* @return a socket that listens at a name which the kernel chose, or -1 */
static int open_socket(uint8_t name[BT_SHM_NAME_BYTES], size_t *bytes_p)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    socklen_t n = sizeof(un);
    const int fd =
        socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return -1;
    }
    if ((bind(fd, (struct sockaddr *)&un, sizeof(un.sun_family)) != 0) ||
        (listen(fd, 1) != 0) ||
        (getsockname(fd, (struct sockaddr *)&un, &n) != 0) ||
        (n <= NAME_AT + 1) || (n > NAME_AT + 1 + BT_SHM_NAME_BYTES)) {
        close(fd);
        return -1;
    }
    *bytes_p = n - NAME_AT - 1;
    memcpy(name, un.sun_path + 1, *bytes_p);
    return fd;
}

bt_status_t bt_shm_give_open(bt_shm_t *shm, uint8_t name[BT_SHM_NAME_BYTES],
                             size_t *bytes_p, int *socket_p)
{
    bt_status_t status;
    int fd;

    bt_shm_init(shm);
    status = make(shm);
    if (status != BT_OK) {
        goto err_shm;
    }
    bt_key_random(shm->memory->secret, sizeof(shm->memory->secret));
    fd = open_socket(name, bytes_p);
    if (fd < 0) {
        status = BT_ERR_IO;
        goto err_shm;
    }
    *socket_p = fd;
    return BT_OK;

err_shm:
    bt_shm_close(shm);
    return status;
}

static bool is_ours(int fd)
{
    struct ucred who;
    socklen_t n = sizeof(who);

    return (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0) &&
           (who.uid == geteuid());
}

/* One byte, with space for ancillary data. */
typedef struct letter {
    struct msghdr msg;
    struct iovec said;
    char byte;
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(N_FDS * sizeof(int))];
} letter_t;

static void letter_init(letter_t *letter)
{
    *letter = (letter_t){0};
    letter->said = (struct iovec){&letter->byte, 1};
    letter->msg.msg_iov = &letter->said;
    letter->msg.msg_iovlen = 1;
    letter->msg.msg_control = letter->control;
    /* Not the whole buffer: rounded up, it would accept one more descriptor. */
    letter->msg.msg_controllen = CMSG_LEN(N_FDS * sizeof(int));
}

static bt_status_t send_fds(const bt_shm_t *shm, int fd)
{
    const int fds[N_FDS] = {shm->fd, shm->bells[0], shm->bells[1]};
    letter_t letter;
    struct cmsghdr *c;

    letter_init(&letter);
    c = CMSG_FIRSTHDR(&letter.msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(fds));
    memcpy(CMSG_DATA(c), fds, sizeof(fds));
    return (sendmsg(fd, &letter.msg, MSG_NOSIGNAL) == 1) ? BT_OK : BT_ERR_IO;
}

bt_status_t bt_shm_give(bt_shm_t *shm, int socket)
{
    const int fd = accept4(socket, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    bt_status_t status = BT_ERR_UNAUTHORIZED;

    if (fd < 0) {
        return BT_ERR_IO;
    }
    if (is_ours(fd)) {
        status = send_fds(shm, fd);
    }
    close(fd);
    if (status == BT_OK) {
        close_fd(&shm->fd);
    }
    return status;
}

/* ---- the taker ---- */

bt_status_t bt_shm_take_open(const uint8_t *name, size_t bytes, int *socket_p)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fd;

    if ((bytes == 0) || (bytes > BT_SHM_NAME_BYTES)) {
        return BT_ERR_INVALID_PARAM;
    }
    memcpy(un.sun_path + 1, name, bytes);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return BT_ERR_IO;
    }
    if (connect(fd, (struct sockaddr *)&un, (socklen_t)(NAME_AT + 1 + bytes)) !=
        0) {
        close(fd);
        return BT_ERR_IO;
    }
    *socket_p = fd;
    return BT_OK;
}

/* A bell that is something else could block us, or end us. */
static bool is_bell(int fd)
{
    static const char kind[] = "anon_inode:[eventfd]";
    const int flags = fcntl(fd, F_GETFL);
    char path[32];
    char link[sizeof(kind)];
    bt_strbuf_t text;
    ssize_t n;

    bt_strbuf_init_fixed(&text, path, sizeof(path));
    bt_strbuf_printf(&text, "/proc/self/fd/%d", fd);
    n = readlink(path, link, sizeof(link));
    return (flags >= 0) && ((flags & O_NONBLOCK) != 0) &&
           (n == (ssize_t)sizeof(kind) - 1) &&
           (memcmp(link, kind, sizeof(kind) - 1) == 0);
}

static bool is_memory(int fd)
{
    const int seals = fcntl(fd, F_GET_SEALS);
    struct stat st;

    return (seals >= 0) && ((seals & ALL_SEALS) == ALL_SEALS) &&
           ((seals & F_SEAL_WRITE) == 0) && (fstat(fd, &st) == 0) &&
           (st.st_size == (off_t)sizeof(bt_shm_memory_t));
}

/* @return how many descriptors came, which are the caller's */
static size_t receive_fds(int socket, int fds[N_FDS])
{
    const struct cmsghdr *c;
    letter_t letter;
    size_t n;

    letter_init(&letter);
    if (recvmsg(socket, &letter.msg, MSG_CMSG_CLOEXEC) <= 0) {
        return 0;
    }
    c = CMSG_FIRSTHDR(&letter.msg);
    if ((c == NULL) || (c->cmsg_level != SOL_SOCKET) ||
        (c->cmsg_type != SCM_RIGHTS) || (c->cmsg_len < CMSG_LEN(0))) {
        return 0;
    }
    n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    n = (n < N_FDS) ? n : N_FDS;
    memcpy(fds, CMSG_DATA(c), n * sizeof(int));
    return n;
}

bt_status_t bt_shm_take(bt_shm_t *shm, int socket)
{
    int fds[N_FDS] = {-1, -1, -1};
    const size_t n = receive_fds(socket, fds);
    bt_status_t status = (n == 0) ? BT_ERR_IO : BT_ERR_BAD_MESSAGE;

    bt_shm_init(shm);
    shm->fd = fds[0];
    shm->bells[0] = fds[1];
    shm->bells[1] = fds[2];
    if ((n == N_FDS) && is_memory(fds[0]) && is_bell(fds[1]) &&
        is_bell(fds[2])) {
        status = map(shm);
    }
    if (status != BT_OK) {
        bt_shm_close(shm);
        return status;
    }
    close_fd(&shm->fd);
    return BT_OK;
}

void bt_shm_ring(int bell)
{
    const uint64_t one = 1;

    /* Full: it rings already. */
    (void)!write(bell, &one, sizeof(one));
}

/* ---- rings ---- */

#define MASK ((uint64_t)BT_SHM_RING_BYTES - 1)

_Static_assert((BT_SHM_RING_BYTES & (BT_SHM_RING_BYTES - 1)) == 0,
               "power of two");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "shared between processes");

void bt_shm_ring_init(bt_shm_ring_t *ring, bt_shm_ring_memory_t *memory)
{
    *ring = (bt_shm_ring_t){.memory = memory};
}

static size_t least(size_t a, size_t b)
{
    return (a < b) ? a : b;
}

bt_status_t bt_shm_ring_write(bt_shm_ring_t *ring, const void *data,
                              size_t bytes, size_t *n_p)
{
    bt_shm_ring_memory_t *m = ring->memory;
    const uint64_t used =
        ring->at - atomic_load_explicit(&m->tail, memory_order_acquire);
    const size_t at = (size_t)(ring->at & MASK);
    size_t first;
    size_t n;

    if (used > BT_SHM_RING_BYTES) {
        return BT_ERR_BAD_MESSAGE;
    }
    n = least(bytes, (size_t)(BT_SHM_RING_BYTES - used));
    first = least(n, BT_SHM_RING_BYTES - at);
    if (n > 0) {
        memcpy(m->ring + at, data, first);
        memcpy(m->ring, (const uint8_t *)data + first, n - first);
        ring->at += n;
        atomic_store_explicit(&m->head, ring->at, memory_order_release);
    }
    *n_p = n;
    return BT_OK;
}

bt_status_t bt_shm_ring_read(bt_shm_ring_t *ring, void *out, size_t bytes,
                             size_t *n_p)
{
    bt_shm_ring_memory_t *m = ring->memory;
    const uint64_t there =
        atomic_load_explicit(&m->head, memory_order_acquire) - ring->at;
    const size_t at = (size_t)(ring->at & MASK);
    size_t first;
    size_t n;

    if (there > BT_SHM_RING_BYTES) {
        return BT_ERR_BAD_MESSAGE;
    }
    n = least(bytes, (size_t)there);
    first = least(n, BT_SHM_RING_BYTES - at);
    if (n > 0) {
        memcpy(out, m->ring + at, first);
        memcpy((uint8_t *)out + first, m->ring, n - first);
        ring->at += n;
        atomic_store_explicit(&m->tail, ring->at, memory_order_release);
    }
    *n_p = n;
    return BT_OK;
}

bool bt_shm_ring_any(const bt_shm_ring_t *ring)
{
    return atomic_load_explicit(&ring->memory->head, memory_order_acquire) !=
           ring->at;
}

/* Each side stores one value and then loads another: without a total order
 * of all four, flag and bytes could pass each other, and neither side would
 * ring. */
bool bt_shm_ring_sleep(bt_shm_ring_t *ring)
{
    bt_shm_ring_memory_t *m = ring->memory;

    atomic_store_explicit(&m->reader_sleeps, 1, memory_order_seq_cst);
    atomic_thread_fence(memory_order_seq_cst);
    if (!bt_shm_ring_any(ring)) {
        return true;
    }
    atomic_store_explicit(&m->reader_sleeps, 0, memory_order_relaxed);
    return false;
}

bool bt_shm_ring_wait(bt_shm_ring_t *ring)
{
    bt_shm_ring_memory_t *m = ring->memory;

    atomic_store_explicit(&m->writer_waits, 1, memory_order_seq_cst);
    atomic_thread_fence(memory_order_seq_cst);
    if (ring->at - atomic_load_explicit(&m->tail, memory_order_acquire) ==
        BT_SHM_RING_BYTES) {
        return true;
    }
    atomic_store_explicit(&m->writer_waits, 0, memory_order_relaxed);
    return false;
}

static bool wakes(_Atomic uint32_t *wish)
{
    atomic_thread_fence(memory_order_seq_cst);
    return (atomic_load_explicit(wish, memory_order_relaxed) != 0) &&
           (atomic_exchange_explicit(wish, 0, memory_order_seq_cst) != 0);
}

bool bt_shm_ring_wakes_reader(bt_shm_ring_t *ring)
{
    return wakes(&ring->memory->reader_sleeps);
}

bool bt_shm_ring_wakes_writer(bt_shm_ring_t *ring)
{
    return wakes(&ring->memory->writer_waits);
}
