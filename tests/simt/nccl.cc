/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/simt/nccl.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>

#include "tests/simt/stream_work.h"

namespace
{

const uint32_t kMaxRanks = 16;
const size_t kSlot = size_t(1) << 20;
const size_t kChannel = size_t(1) << 18;
const uint64_t kWaitMs = 120000;
const uint32_t kSpins = 100; /* before a wait sleeps */

/* What the id's bytes begin with. */
struct Place {
    int32_t pid; /* whose descriptor the memory is */
    int32_t fd;
    uint64_t nonce;
};

enum Kind : uint32_t { kGather = 1, kBroadcast };

struct Said {
    std::atomic<uint64_t> rounds; /* written so far */
    Kind kind[2];                 /* of even ones and odd ones */
    uint64_t bytes[2];
};

struct Channel {
    std::atomic<uint64_t> sent, taken; /* pieces */
    uint64_t bytes;
};

/* All zeros at first, but for the nonce. */
struct Shared {
    uint64_t nonce;
    std::atomic<uint32_t> joined, broken;
    std::atomic<uint32_t> left[kMaxRanks];
    std::atomic<int32_t> pids[kMaxRanks];
    Said said[kMaxRanks];
    Channel channels[kMaxRanks][kMaxRanks]; /* from, to */
    char slots[kMaxRanks][2][kSlot];
    char pieces[kMaxRanks][kMaxRanks][kChannel];
};

std::mutex lock;                /* of what follows */
std::map<uint64_t, int> places; /* nonces and descriptors of ids made here */
uint32_t n_comms;

uint64_t now_ms()
{
    timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000 +
           static_cast<uint64_t>(now.tv_nsec) / 1000000;
}

uint64_t patience_ms()
{
    const char *text = std::getenv("BATON_SIMT_NCCL_MS");

    return (text == nullptr) ? kWaitMs : std::strtoull(text, nullptr, 10);
}

void forget_place(uint64_t nonce)
{
    const std::lock_guard<std::mutex> mine(lock);
    const auto found = places.find(nonce);

    if (found != places.end()) {
        close(found->second);
        places.erase(found);
    }
}

} // namespace

/* Streams have it as well, until what was put into them is done. */
struct SimtCommState {
    Shared *shared = nullptr;
    uint32_t rank = 0, size = 0;
    uint64_t rounds = 0;

    ~SimtCommState()
    {
        if (shared != nullptr) {
            munmap(shared, sizeof(*shared));
        }
    }

    bool fail() const
    {
        shared->broken = 1;
        return false;
    }

    /* Left it, or is no process any more, and be it that nobody has waited for
     * its end. */
    bool is_gone(uint32_t r) const
    {
        const int32_t pid = shared->pids[r];
        pollfd ended = {-1, POLLIN, 0};
        int n;

        if ((shared->left[r] != 0) || (pid == 0)) {
            return shared->left[r] != 0;
        }
        ended.fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
        if (ended.fd < 0) {
            return errno == ESRCH;
        }
        n = poll(&ended, 1, 0);
        close(ended.fd);
        return n > 0;
    }

    /* For ranks @a first .. @a end - 1. What is there counts, whatever became
     * of who left it. */
    template <typename Is>
    bool wait_for(uint32_t first, uint32_t end, const Is &is) const
    {
        const uint64_t until_ms = now_ms() + patience_ms();

        for (uint32_t i = 0; !is(); i++) {
            if ((shared->broken != 0) || (shared->left[rank] != 0)) {
                return false;
            }
            if (i < kSpins) {
                sched_yield();
                continue;
            }
            if (now_ms() >= until_ms) {
                return is() || fail();
            }
            for (uint32_t r = first; r < end; r++) {
                if (is_gone(r)) {
                    return is() || fail();
                }
            }
            usleep(100);
        }
        return true;
    }

    template <typename Is> bool wait_for(uint32_t r, const Is &is) const
    {
        return wait_for(r, r + 1, is);
    }

    /* Everyone writes its piece and says so; who has seen all say so may read.
     * Slots take turns: who has come to round n + 2 has seen all in round
     * n + 1, where they are done with round n. */
    bool round(Kind kind, const void *mine, size_t bytes)
    {
        const uint64_t turn = rounds++;
        Said &own = shared->said[rank];

        if (mine != nullptr) {
            std::memcpy(shared->slots[rank][turn % 2], mine, bytes);
        }
        own.kind[turn % 2] = kind;
        own.bytes[turn % 2] = bytes;
        own.rounds = turn + 1;
        for (uint32_t r = 0; r < size; r++) {
            const Said &other = shared->said[r];

            if (!wait_for(r, [&] { return other.rounds > turn; })) {
                return false;
            }
            if ((other.kind[turn % 2] != kind) ||
                (other.bytes[turn % 2] != bytes)) {
                std::fprintf(stderr, "nccl: ranks %u and %u differ\n", rank, r);
                return fail();
            }
        }
        return true;
    }

    const char *slot_of(uint32_t r) const
    {
        return shared->slots[r][(rounds - 1) % 2];
    }

    bool gather(const char *send, char *recv, size_t bytes)
    {
        for (size_t at = 0; at < bytes; at += kSlot) {
            const size_t piece = (bytes - at < kSlot) ? bytes - at : kSlot;

            if (!round(kGather, send + at, piece)) {
                return false;
            }
            for (uint32_t r = 0; r < size; r++) {
                std::memcpy(recv + r * bytes + at, slot_of(r), piece);
            }
        }
        return true;
    }

    bool broadcast(const char *send, char *recv, size_t bytes, uint32_t root)
    {
        for (size_t at = 0; at < bytes; at += kSlot) {
            const size_t piece = (bytes - at < kSlot) ? bytes - at : kSlot;

            if (!round(kBroadcast, (rank == root) ? send + at : nullptr,
                       piece)) {
                return false;
            }
            std::memcpy(recv + at, slot_of(root), piece);
        }
        return true;
    }

    bool send(const char *from, size_t bytes, uint32_t to)
    {
        Channel &channel = shared->channels[rank][to];

        for (size_t at = 0; at < bytes; at += kChannel) {
            const size_t piece =
                (bytes - at < kChannel) ? bytes - at : kChannel;

            if (!wait_for(to, [&] { return channel.taken == channel.sent; })) {
                return false;
            }
            std::memcpy(shared->pieces[rank][to], from + at, piece);
            channel.bytes = piece;
            channel.sent++;
        }
        return true;
    }

    bool receive(char *to, size_t bytes, uint32_t from)
    {
        Channel &channel = shared->channels[from][rank];

        for (size_t at = 0; at < bytes; at += kChannel) {
            const size_t piece =
                (bytes - at < kChannel) ? bytes - at : kChannel;

            if (!wait_for(from, [&] { return channel.sent > channel.taken; })) {
                return false;
            }
            if (channel.bytes != piece) {
                std::fprintf(stderr, "nccl: rank %u sent %zu bytes, not %zu\n",
                             from, static_cast<size_t>(channel.bytes), piece);
                return fail();
            }
            std::memcpy(to + at, shared->pieces[from][rank], piece);
            channel.taken++;
        }
        return true;
    }
};

struct SimtComm {
    std::shared_ptr<SimtCommState> state;
};

namespace
{

bool is_sendable(const void *p, size_t bytes, ncclDataType_t type)
{
    return (type == ncclUint8) && simt::is_device_memory(p, bytes);
}

bool is_rank(ncclComm_t comm, int rank)
{
    return (rank >= 0) && (static_cast<uint32_t>(rank) < comm->state->size);
}

/* @return NULL: it is not there, or not that one */
Shared *map_place(const Place &place)
{
    char path[64];
    void *map;
    int fd;

    std::snprintf(path, sizeof(path), "/proc/%d/fd/%d", place.pid, place.fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return nullptr;
    }
    map = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
               0);
    close(fd);
    if (map == MAP_FAILED) {
        return nullptr;
    }
    if (static_cast<Shared *>(map)->nonce != place.nonce) {
        munmap(map, sizeof(Shared));
        return nullptr;
    }
    return static_cast<Shared *>(map);
}

bool join(SimtCommState *state)
{
    Shared *shared = state->shared;

    shared->pids[state->rank] = getpid();
    shared->joined++;
    return state->wait_for(0, state->size,
                           [=] { return shared->joined == state->size; });
}

} // namespace

uint32_t simt::count_comms()
{
    const std::lock_guard<std::mutex> mine(lock);

    return n_comms;
}

/* ---- life ---- */

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    Place place = {getpid(), -1, 0};
    int fd;

    if (simt::call_fails() ||
        (getrandom(&place.nonce, sizeof(place.nonce), 0) !=
         static_cast<ssize_t>(sizeof(place.nonce)))) {
        return ncclSystemError;
    }
    fd = memfd_create("simt-nccl", MFD_CLOEXEC);
    if ((fd < 0) || (ftruncate(fd, static_cast<off_t>(sizeof(Shared))) != 0) ||
        (pwrite(fd, &place.nonce, sizeof(place.nonce), 0) !=
         static_cast<ssize_t>(sizeof(place.nonce)))) {
        if (fd >= 0) {
            close(fd);
        }
        return ncclSystemError;
    }
    place.fd = fd;
    std::memset(id, 0, sizeof(*id));
    std::memcpy(id->internal, &place, sizeof(place));
    const std::lock_guard<std::mutex> mine(lock);
    places[place.nonce] = fd;
    return ncclSuccess;
}

/* Not among the calls of the run time, whose lock nobody may hold for so long:
 * it waits for the others. */
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int n_ranks, ncclUniqueId id,
                              int rank)
{
    auto state = std::make_shared<SimtCommState>();
    Place place;
    bool together;

    std::memcpy(&place, id.internal, sizeof(place));
    state->shared = map_place(place);
    if (state->shared == nullptr) {
        forget_place(place.nonce);
        return ncclSystemError;
    }
    if ((n_ranks < 1) || (static_cast<uint32_t>(n_ranks) > kMaxRanks) ||
        (rank < 0) || (rank >= n_ranks)) {
        return ncclInvalidArgument;
    }
    state->rank = static_cast<uint32_t>(rank);
    state->size = static_cast<uint32_t>(n_ranks);
    together = simt::call_fails() ? state->fail() : join(state.get());
    forget_place(place.nonce); /* all have it mapped, or need it no more */
    if (!together) {
        return ncclRemoteError;
    }
    *comm = new SimtComm{std::move(state)};
    const std::lock_guard<std::mutex> mine(lock);
    n_comms++;
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    comm->state->shared->left[comm->state->rank] = 1;
    delete comm;
    const std::lock_guard<std::mutex> mine(lock);
    n_comms--;
    return ncclSuccess;
}

/* ---- calls ---- */

ncclResult_t ncclAllGather(const void *send, void *recv, size_t n,
                           ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    const auto state = comm->state;

    if (simt::call_fails() || !is_sendable(send, n, type) ||
        !is_sendable(recv, n * state->size, type)) {
        return ncclInvalidArgument;
    }
    simt::enqueue_work(stream, [=] {
        return state->gather(static_cast<const char *>(send),
                             static_cast<char *>(recv), n);
    });
    return ncclSuccess;
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t n,
                           ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream)
{
    const auto state = comm->state;

    if (simt::call_fails() || !is_sendable(send, n, type) ||
        !is_sendable(recv, n, type) || !is_rank(comm, root)) {
        return ncclInvalidArgument;
    }
    simt::enqueue_work(stream, [=] {
        return state->broadcast(static_cast<const char *>(send),
                                static_cast<char *>(recv), n,
                                static_cast<uint32_t>(root));
    });
    return ncclSuccess;
}

ncclResult_t ncclSend(const void *send, size_t n, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    const auto state = comm->state;

    if (simt::call_fails() || !is_sendable(send, n, type) ||
        !is_rank(comm, peer)) {
        return ncclInvalidArgument;
    }
    simt::enqueue_work(stream, [=] {
        return state->send(static_cast<const char *>(send), n,
                           static_cast<uint32_t>(peer));
    });
    return ncclSuccess;
}

ncclResult_t ncclRecv(void *recv, size_t n, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    const auto state = comm->state;

    if (simt::call_fails() || !is_sendable(recv, n, type) ||
        !is_rank(comm, peer)) {
        return ncclInvalidArgument;
    }
    simt::enqueue_work(stream, [=] {
        return state->receive(static_cast<char *>(recv), n,
                              static_cast<uint32_t>(peer));
    });
    return ncclSuccess;
}
