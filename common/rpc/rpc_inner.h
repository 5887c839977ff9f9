/* SPDX-License-Identifier: Apache-2.0 */
/** @file rpc_inner.h
 *
 * Private to common/rpc: the objects behind rpc.h.
 *
 *     nng threads                          owner thread
 *     callbacks of rpc_pipe.h ──▶ inbox + rpc->ready ──eventfd──▶ rpc_next
 *
 * A link has one pipe in its life: when that ends, so does the link, and a new
 * one gets a new pipe and url. Everything under "mutex" is shared with nng's
 * threads, which allocate nothing while they hold it; the owner calls no nng
 * function while holding it.
 *
 * Pipes are closed by a thread of their own (rpc_undertaker.c), so that the
 * owner never waits for nng.
 */
#ifndef BT_COMMON_RPC_RPC_INNER_H
#define BT_COMMON_RPC_RPC_INNER_H

#include <poll.h>
#include <pthread.h>
#include <sys/un.h>

#include <nng/nng.h>

#include "common/base/core_wait.h"
#include "common/base/list.h"
#include "common/base/own_dir.h"
#include "common/base/strbuf.h"
#include "common/rpc/rpc.h"
#include "common/rpc/rpc_frame.h"
#include "common/rpc/rpc_intro.h"
#include "common/rpc/rpc_old.h"
#include "common/rpc/rpc_pipe.h"
#include "common/rpc/rpc_shm.h"

#define RPC_LANE_READ      (64u << 10)
#define RPC_INBOX_FRAMES   64
#define RPC_INBOX_BYTES    (32u << 20) /* more is not read before some is used */
#define RPC_TAG_THERE      (16u << 10) /* nng's threads check longer frames */
#define RPC_ANNOUNCES      256
#define RPC_SAID           64
#define RPC_ANNOUNCE_MS    250  /* first pause between announcements */
#define RPC_BACKOFF_MAX_MS 2000 /* longest one */
#define RPC_PROVEN_MS      1000 /* a link that lived so long resets the pause */
#define RPC_OPEN_MS        1000 /* from a connection to its proof */
#define RPC_UNPROVEN       64   /* dials at a time that have proven nothing */
#define RPC_KNOWN          256  /* processes whose announcements are known */
#define RPC_LATER_MAX_MS   60000 /* longest pause for one that proves nothing */
#define RPC_OLD_AFTER_MS   3000  /* no answer: is it a router of protocol 2? */
#define RPC_OLD_EVERY_MS   60000 /* a peer of it is told so often */
#define RPC_CLOSE_MS       200   /* a last message gets so long to get out */
#define RPC_BURY_MS        2000  /* how long bt_rpc_close() waits for pipes */
#define RPC_MAX_WHY        512   /* a reason, with a url in it */

typedef enum link_state {
    LINK_WAITING,   /* its pipe is not open */
    LINK_OPENING,   /* the worker awaits OPEN; the router has sent it */
    LINK_PROVEN,    /* the worker has sent ACCEPT and awaits READY */
    LINK_OLD_HELLO, /* protocol 2: our hello is sent, the peer's awaited */
    LINK_OLD_PROOF, /* and our proof */
    LINK_UP,
    LINK_CLOSING, /* the owner's part is over; the reason is on its way out */
    LINK_OVER,    /* to be told, then freed */
} link_state_t;

typedef struct rpc_join rpc_join_t;

/* The memory that the two ends of a link share; rpc_lanes.c. Owner only. */
typedef struct rpc_lanes {
    bt_shm_t shm;
    int socket; /* the router waits at it for who is to have the memory,
                   the worker for the memory; -1: nobody waits */
    int bell;   /* ours, in shm; -1: it is not watched */
    bt_lane_t out, in;
    bool writes;     /* LANE is said: messages go into `out` */
    bool reads;      /* LANE was heard: messages come from `in` */
    bool rings;      /* our bell may be readable */
    bool last_words; /* the other side ended: what it has left is read yet... */
    size_t n_left;   /* ...and no more than this */
    bool bye_heard;
    char bye[RPC_MAX_REASON]; /* the reason it gave */
} rpc_lanes_t;

/* A silent peer: whether its process waits for a core (rpc_silence.c). The
 * thread that owns the links uses it alone. */
typedef struct rpc_silence {
    pid_t pid; /* the peer's; 0: it is not on this host, or not known */
    bt_core_wait_t wait;
    uint64_t first_look_ms; /* of this silence; 0: there was none yet */
    uint64_t waited_ms;     /* for a core, since then */
    int socket; /* of the connection, in nng's hands; -1: not looked for */
} rpc_silence_t;

/* The last event that the owner of a link got about the peer's silence. */
typedef enum rpc_told {
    RPC_TOLD_NOTHING,
    RPC_TOLD_SUSPECT,
    RPC_TOLD_STARVED,
} rpc_told_t;

struct bt_rpc_link {
    bt_rpc_t *rpc;
    bt_list_t in_all;
    bt_list_t in_dirty; /* something to send; empty = nothing */
    rpc_join_t *join;   /* NULL on the router's side */
    void *user;
    char url[RPC_MAX_URL];

    rpc_pipe_t *pipe;

    /* under rpc->mutex */
    bt_list_t in_ready;
    nng_msg *inbox[RPC_INBOX_FRAMES];
    bool inbox_is_tagged[RPC_INBOX_FRAMES]; /* the tag was found right */
    uint32_t inbox_first;
    uint32_t inbox_n;
    size_t inbox_bytes;
    bool recv_paused;
    bool gone; /* with the undertaker: nothing is read or told any more */
    bool has_open_key; /* open_key stays as it is: tags can be checked */
    bool send_wake;    /* the owner waits until it may send */

    /* owner only */
    link_state_t state;
    bool proven;                     /* the peer knows the key */
    uint8_t announce[RPC_MAX_INTRO]; /* of the worker's end; as it was sent */
    size_t announce_bytes;
    uint64_t count;          /* the number in it */
    const uint8_t *seal_key; /* in session */
    const uint8_t *open_key;
    rpc_session_t session;
    uint32_t version;
    uint64_t incarnation; /* the peer's */
    char name[RPC_MAX_NAME];
    bool old;           /* the peer speaks protocol 2, and is refused */
    bool old_announced; /* so the first frame may be of protocol 2 */
    rpc_old_side_t old_ours, old_theirs;
    bool up_pending, up_told, down_told;
    rpc_told_t is, told; /* as it is; as the owner was told last */
    rpc_silence_t silence;
    rpc_lanes_t lanes;
    bool bye_wanted, bye_sent, heartbeat_due;
    bool room_wanted;
    size_t room_bytes;   /* the event is due when no more wait */
    nng_msg *control[4]; /* READY, OFFER, GIVEN, LANE: not yet with nng */
    uint32_t n_control;
    bt_strbuf_t out;            /* { length, message }* */
    size_t out_at;              /* those before are with nng */
    uint64_t next_out, next_in; /* sequences */
    rpc_stream_t in;            /* what is left of a frame */
    void *hello;                /* the peer's payload until UP is told; owned */
    size_t hello_bytes;
    uint64_t deadline_ms; /* of the handshake, or of closing; 0 = none */
    uint64_t up_ms, heard_ms, sent_ms;
    char reason[RPC_MAX_REASON];
};

/* A router that a worker keeps a link to. */
struct rpc_join {
    bt_list_t in_all;
    bt_rpc_t *rpc;
    char url[RPC_MAX_URL];
    bool over_ipc;
    rpc_pipe_t *pipe; /* NULL: could not be made */
    uint64_t lost_ms; /* no router is there since; 0 = one is */
    bt_rpc_link_t *link;
    uint64_t next_open_ms;
    uint64_t next_announce_ms;
    uint64_t first_announce_ms; /* since the last link; 0 = none got out */
    uint64_t pause_ms;
    bool complained;       /* said once until a link is up */
    char why[RPC_MAX_WHY]; /* there is no link, as far as that is known */
    uint64_t next_old_ms;  /* not before: an announcement of protocol 2 */
};

/* A process that announced itself to this router. */
typedef struct rpc_known {
    uint64_t incarnation; /* 0: a free place */
    uint64_t count;       /* the highest, of its sockets */
    uint64_t seen_ms;
    uint64_t not_before_ms; /* for this count */
    uint64_t later_ms;      /* the next pause */
    uint64_t next_old_ms;   /* not before: a refusal in protocol 2 */
} rpc_known_t;

/* A place where a router takes announcements; rpc_ear.c. Between creation and
 * end all but in_all belongs to its thread. */
typedef struct rpc_listener {
    bt_list_t in_all;
    bt_rpc_t *rpc;
    bool ipc;
    struct sockaddr_un name; /* ipc: to be removed at the end */
    uint64_t look_ms;        /* ipc: when to look whether it is there */
    bool is_gone;            /* ipc: it is not, and that was said */
    int fd;
    int stop_fd; /* readable: the thread is to end */
    pthread_t thread;
    struct rpc_caller **callers; /* owned, as are all of them */
    uint32_t n_callers;
    struct pollfd *fds; /* owned: of the two above and of all callers */
} rpc_listener_t;

struct bt_rpc {
    rpc_ring_t ring;
    void *hello;
    size_t hello_bytes;
    void *old_hello;
    size_t old_hello_bytes;
    char name[RPC_MAX_NAME];
    bt_wire_range_t range;
    uint64_t n_sockets; /* that were announced or will be */
    rpc_known_t known[RPC_KNOWN];
    char *listen_host;
    bt_own_dir_t ipc_dir; /* for our sockets; no path: it is not needed yet */
    char *listen_dir;
    uint32_t heartbeat_ms, suspect_ms, dead_ms, max_queue_bytes;
    bool tells_starved;
    uint64_t incarnation;
    uint64_t now_ms, tick_ms;

    bt_list_t links;
    bt_list_t joins;
    bt_list_t listeners;
    bt_list_t dirty;

    /* the frame whose messages are being handed out, and what an event's data
     * points into until the next call */
    bt_rpc_link_t *current;
    nng_msg *current_msg;
    rpc_frame_t current_frame;
    size_t current_at;
    void *event_data;

    uint8_t *lane_bytes; /* RPC_LANE_READ: those that are handed out; owned */
    bool looked;         /* at `fd`, since the last event */

    uint64_t said[RPC_SAID]; /* peers complained about */
    uint32_t n_said;
    uint64_t said_ms;

    bool share_memory;
    void (*on_refused)(void *ctx, const bt_rpc_refused_t *refused);
    void *refused_ctx;
    int fd; /* epoll: of event_fd and of links' sockets and bells */
    int event_fd;
    pthread_mutex_t mutex;
    bt_list_t ready; /* links with something for the owner */
    bool signalled;  /* event_fd is readable, or soon will be */
    nng_msg *announces[RPC_ANNOUNCES]; /* a ring: they are told in order */
    uint32_t first_announce;
    uint32_t n_announces;
    bool closing; /* announcements are dropped */

    pthread_t undertaker;
    pthread_cond_t burial;
    bt_list_t retired; /* links by in_all, oldest first */
    bool stopping;
    bool buried; /* the undertaker came to its end */
};

/* rpc_socket.c: pipes of links and joins. Errors are logged there. */

/** Fresh link with a pipe that goes nowhere yet; not in rpc->links. */
BT_MUST_CHECK bt_status_t bt_rpc_link_create(bt_rpc_t *rpc,
                                             bt_rpc_link_t **link_p);
/** Waits for nng's callbacks: on the undertaker's thread, or before any. */
void bt_rpc_link_free(bt_rpc_link_t *link);
BT_MUST_CHECK bt_status_t bt_rpc_link_listen(bt_rpc_link_t *link, bool ipc);
BT_MUST_CHECK bt_status_t bt_rpc_link_dial(bt_rpc_link_t *link,
                                           const char *url);
void bt_rpc_mark_ready(bt_rpc_link_t *link);
/** Makes event_fd readable, so that the thread that owns the links wakes. The
 *  caller has set `signalled` under the mutex, and has given the mutex back. */
void bt_rpc_signal(bt_rpc_t *rpc);
/** The same where the descriptor of bt_rpc_fd() is readable anyway. */
void bt_rpc_queue_ready(bt_rpc_link_t *link);
/** @return NULL when nothing is ready; then the event fd is not readable */
bt_rpc_link_t *bt_rpc_pop_ready(bt_rpc_t *rpc);
/** @param [out] is_tagged_p  its tag is of open_key; false: not looked at
 *  @param [out] ended_p      no more will come
 *  @return the oldest frame, owned by the caller, or NULL */
nng_msg *bt_rpc_inbox_take(bt_rpc_link_t *link, bool *is_tagged_p,
                           bool *ended_p);
/** open_key is the one of all frames to come. */
void bt_rpc_inbox_share_key(bt_rpc_link_t *link);
/** @return false when it cannot be sent now; otherwise it is not the caller's
 *  any more */
bool bt_rpc_send(bt_rpc_link_t *link, nng_msg *msg);
/** When false, the link is marked ready as soon as it is true. */
bool bt_rpc_can_send(bt_rpc_link_t *link);
BT_MUST_CHECK bt_status_t bt_rpc_join_create(bt_rpc_t *rpc, const char *url,
                                             rpc_join_t **join_p);
void bt_rpc_join_free(rpc_join_t *join);
/** A fresh pipe to the router in place of the one that is. */
BT_MUST_CHECK bt_status_t bt_rpc_join_dial(rpc_join_t *join);

typedef enum rpc_announced {
    RPC_ANNOUNCED,
    RPC_NOT_REACHED,  /* not yet */
    RPC_NOBODY_THERE, /* not before another dial */
} rpc_announced_t;

/** @param old  in the frames of protocol 2 */
rpc_announced_t bt_rpc_join_announce(rpc_join_t *join, bool old);

/* rpc_announce.c: what workers announce to this router. */

void bt_rpc_announces_take(bt_rpc_t *rpc);
void bt_rpc_announces_drop(bt_rpc_t *rpc);
/** A dialled link is over and nothing was proven on it. */
void bt_rpc_dial_failed(const bt_rpc_link_t *link);

/* rpc_ear.c */

BT_MUST_CHECK bt_status_t bt_rpc_listener_create(bt_rpc_t *rpc, const char *url,
                                                 char *bound,
                                                 size_t bound_bytes,
                                                 rpc_listener_t **listener_p);
void bt_rpc_listener_free(rpc_listener_t *listener);

/* rpc_undertaker.c */

BT_MUST_CHECK bt_status_t bt_rpc_undertaker_start(bt_rpc_t *rpc);
/** The owner lets go of the link; it is freed later. */
void bt_rpc_link_retire(bt_rpc_link_t *link);
/** Wait until all retired links are freed.
 *  @return false when nng does not let go of one: @a rpc must stay, too */
bool bt_rpc_undertaker_stop(bt_rpc_t *rpc);

/* rpc_link.c: the life of one link. */

typedef enum link_step {
    STEP_IDLE,  /* nothing left to do now */
    STEP_AGAIN, /* go on */
    STEP_EVENT, /* event_p is filled; go on next time */
    STEP_FREED, /* the link is gone */
} link_step_t;

link_step_t bt_rpc_link_step(bt_rpc_link_t *link, bt_rpc_event_t *event_p);
void bt_rpc_link_tick(bt_rpc_link_t *link);
/** The end; the peer is told nothing. */
void bt_rpc_link_over(bt_rpc_link_t *link, const char *reason);
/** The end; the peer, which can check what we say, is told. */
void bt_rpc_link_refuse(bt_rpc_link_t *link, const char *reason);
/** One line for a peer that gets no link. */
void bt_rpc_complain(bt_rpc_link_t *link, const char *what);
/** Tell the router's owner, if it wants to know. */
void bt_rpc_tell_refused(const bt_rpc_t *rpc, const bt_rpc_refused_t *refused);
/** Keep the peer's hello for UP. @return false: no memory, the link is over */
bool bt_rpc_link_keep(bt_rpc_link_t *link, const void *hello, size_t bytes);
/** Both have proven the key, and the hello is kept. */
void bt_rpc_link_up(bt_rpc_link_t *link);

/* rpc_silence.c */

/** The link is up. */
void bt_rpc_silence_init(bt_rpc_link_t *link);
/** The peer spoke. */
void bt_rpc_silence_over(bt_rpc_link_t *link);
/** We did not run for so long, and did not listen: that is not its silence. */
void bt_rpc_silence_slept(bt_rpc_link_t *link, uint64_t ms);
/** Nothing of the peer is unread: is it silent, or for too long? */
void bt_rpc_silence_tick(bt_rpc_link_t *link);

/* rpc_link_send.c */

/** Hand to nng what can be handed. */
void bt_rpc_link_pump(bt_rpc_link_t *link);
/** So much of what waits is on its way. */
void bt_rpc_link_drop_queued(bt_rpc_link_t *link, size_t bytes);
/** Queue a frame of the handshake; NULL: there was no memory for it. */
void bt_rpc_link_control(bt_rpc_link_t *link, nng_msg *msg);
/** A frame with a body of two parts, sealed. @return NULL: no memory */
nng_msg *bt_rpc_link_seal(bt_rpc_link_t *link, rpc_kind_t kind,
                          const void *head, size_t head_bytes, const void *body,
                          size_t bytes);

/* rpc_lanes.c: the way through shared memory. */

/** The link is up: the router offers it. */
void bt_rpc_lanes_offer(bt_rpc_link_t *link);
/** OFFER, GIVEN or LANE. */
void bt_rpc_lanes_frame(bt_rpc_link_t *link, const rpc_frame_t *frame);
/** Put what waits into the memory. */
void bt_rpc_lanes_write(bt_rpc_link_t *link);
/** @return true: rpc->current has bytes of this link */
bool bt_rpc_lanes_read(bt_rpc_link_t *link);
/** Is there something to read? */
bool bt_rpc_lanes_any(const bt_rpc_link_t *link);
/** The other side is gone, or said why: is there something left to read before
 *  that is told? */
bool bt_rpc_lanes_last(bt_rpc_link_t *link);
/** Nobody took the offer. */
void bt_rpc_lanes_tick(bt_rpc_link_t *link);
void bt_rpc_lanes_close(bt_rpc_link_t *link);
/** Links whose bell rings become ready. @return false: none does, and nng's
 *  threads have told nothing either */
bool bt_rpc_look(bt_rpc_t *rpc);

/* rpc_handshake.c */

void bt_rpc_handshake_start(bt_rpc_link_t *link);
void bt_rpc_handshake_frame(bt_rpc_link_t *link, const void *data,
                            size_t bytes);

/* rpc_refuse.c: peers of protocol 2. */

/** Sends our hello. */
void bt_rpc_refuse_start(bt_rpc_link_t *link);
void bt_rpc_refuse_frame(bt_rpc_link_t *link, const void *data, size_t bytes);
/** A farewell, or NULL. */
nng_msg *bt_rpc_refuse_bye(const bt_rpc_link_t *link);
/** @return true the first time for this peer (and not too often for all) */
bool bt_rpc_say_once(bt_rpc_t *rpc, uint64_t peer);

#endif
