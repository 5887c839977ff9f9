/* SPDX-License-Identifier: Apache-2.0 */
/** @file link_priv.h
 *
 * Private to common/link: the objects behind link.h.
 *
 *     nng threads                                     owner thread
 *     link_pipe.h ──▶ inbox, control->ready ──eventfd──▶ bt_control_next()
 *
 * A link has one pipe in its life: when that ends, so does the link. Everything
 * under "mutex" is shared with nng's threads, which allocate nothing while they
 * hold it; the owner calls no nng function while holding it.
 *
 * Pipes are closed by a separate thread (link_socket.c), so that the owner
 * never waits for nng.
 */
#ifndef BT_COMMON_LINK_LINK_PRIV_H
#define BT_COMMON_LINK_LINK_PRIV_H

#include <pthread.h>

#include <nng/nng.h>

#include "common/base/containers.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/link/link.h"
#include "common/link/link_frame.h"
#include "common/link/link_handshake_frames.h"
#include "common/link/link_pipe.h"
#include "common/link/shm_segment.h"

#define LINK_RING_READ    (64u << 10)
#define LINK_NOT_WANTED   SIZE_MAX
#define LINK_INBOX_FRAMES 64
#define LINK_INBOX_BYTES  (32u << 20) /* reading pauses above it */
#define LINK_TAG_THERE    (16u << 10) /* nng's threads check longer frames */
#define LINK_SAID         64
#define LINK_UNPROVEN     64   /* peers that have proven nothing, at a time */
#define LINK_RETIRED      256  /* above it no peer is accepted */
#define LINK_CLOSE_MS     200  /* time for a last message to be sent */
#define LINK_REAP_MS      2000 /* how long bt_control_close() waits for pipes */
#define LINK_MAX_WHY      512  /* a reason, with a url in it */

/** State of a link; changed by bt_link_move() alone, whose table has the
 *  edges.
 *
 *     worker  CONNECTING ─▶ GREETING ─OPEN─▶ PROVING ─READY─▶ UP
 *     router                GREETING ─JOIN─▶ PROVING ─ACCEPT▶ UP
 *
 *     UP ─closed by its owner─▶ CLOSING ─BYE is sent─▶ BYE_SENT ─▶ OVER
 *     all ─────────────────────the connection ends───────────────▶ OVER
 */
typedef enum link_state {
    LINK_CONNECTING, /**< the worker dials */
    LINK_GREETING,   /**< the peer's first frame is awaited: OPEN, or JOIN */
    LINK_PROVING,    /**< the worker awaits READY, the router ACCEPT */
    LINK_UP,
    LINK_CLOSING,  /**< BYE follows what was posted */
    LINK_BYE_SENT, /**< the peer is to end the connection */
    LINK_OVER,     /**< to be reported, then freed */
} link_state_t;

/** Last event that the owner of a link got about its life. */
typedef enum link_reported {
    REPORTED_NOTHING,
    REPORTED_UP,
    REPORTED_DOWN,
} link_reported_t;

typedef struct link_join link_join_t;

/** How far messages have moved into shared memory. */
typedef enum link_shm_state {
    LINK_SHM_OFF,
    LINK_SHM_WRITING,  /**< RING is sent: messages go into `out` */
    LINK_SHM_OPEN,     /**< and RING was received: messages come from `in` */
    LINK_SHM_DRAINING, /**< and the other side ended: the rest of its messages
                         is still read */
} link_shm_state_t;

/* Shared memory of the two ends of a link; link_shm.c. Owner only. */
typedef struct link_shm {
    link_shm_state_t state;
    bt_shm_t segment;
    int socket; /* the router accepts the taker of the memory there, the
                   worker receives the memory; -1: none */
    int bell;   /* ours, in shm; -1: not watched */
    bt_shm_ring_t out, in;
    bool bell_rings; /* our bell may be readable */
    size_t n_left;   /* DRAINING: most bytes to be read yet */
    bool bye_heard;
    char bye[LINK_MAX_REASON]; /* reason in BYE */
} link_shm_t;

/* Silence of a peer: whether its process waits for a core (link_silence.c).
 * Used only by the thread that owns the links. */
typedef struct link_silence {
    pid_t pid; /* process of the peer; 0: not on this host, or unknown */
    bt_core_wait_t wait;
    uint64_t first_look_ms; /* first sample of this silence; 0: none yet */
    uint64_t waited_ms;     /* waited for a core since then */
    int socket; /* of the connection, in nng's hands; -1: not looked up */
} link_silence_t;

/* Last event that the owner of a link got about the peer's silence. */
typedef enum link_told {
    LINK_TOLD_NOTHING,
    LINK_TOLD_SUSPECT,
    LINK_TOLD_STARVED,
} link_told_t;

struct bt_link {
    bt_control_t *control;
    bt_list_t in_all;
    bt_list_t in_dirty; /* something to send; empty = nothing */
    link_join_t *join;  /* NULL on the router's side */
    void *user;
    char url[LINK_MAX_URL]; /* of the other side, for logs */

    link_pipe_t *pipe;

    /* under control->mutex */
    bt_list_t in_ready;
    nng_msg *inbox[LINK_INBOX_FRAMES];
    bool inbox_is_tagged[LINK_INBOX_FRAMES]; /* the tag was verified */
    uint32_t inbox_first;
    uint32_t inbox_n;
    size_t inbox_bytes;
    bool recv_paused;
    bool gone; /* with the reaper: nothing is read or reported any more */
    bool has_open_key; /* open_key stays unchanged: tags can be checked */
    bool send_wake;    /* the owner waits until it may send */

    /* owner only */
    link_state_t state;
    link_reported_t reported;
    bool proven;                        /* the peer knows the key */
    uint8_t join_frame[LINK_MAX_INTRO]; /* the worker's first, as sent */
    size_t join_bytes;
    const uint8_t *seal_key; /* in session */
    const uint8_t *open_key;
    link_session_t session;
    uint32_t version;
    uint64_t incarnation; /* the peer's */
    char name[LINK_MAX_NAME];
    link_told_t is, told; /* current state; last reported state */
    link_silence_t silence;
    link_shm_t shm;
    bool heartbeat_due;
    size_t writable_bytes; /* WRITABLE is due at or below this number;
                          LINK_NOT_WANTED: it is not wanted */
    nng_msg *own[4];       /* READY, OFFER, GIVEN, RING: not yet with nng */
    uint32_t n_own;
    bt_strbuf_t out;            /* { length, message }* */
    size_t out_at;              /* bytes before this one are with nng */
    uint64_t next_out, next_in; /* sequences */
    link_stream_t in;           /* rest of a frame */
    void *hello;                /* the peer's payload until UP is reported;
                                   owned */
    size_t hello_bytes;
    uint64_t deadline_ms; /* of the state; 0 = none */
    uint64_t up_ms, heard_ms, sent_ms;
    char reason[LINK_MAX_REASON];
};

/* A router that a worker keeps a link to. */
struct link_join {
    bt_list_t in_all;
    bt_control_t *control;
    char url[LINK_MAX_URL];
    bt_link_t *link; /* NULL: until the next dial */
    uint64_t next_dial_ms;
    uint64_t pause_ms;      /* before the dial after that */
    uint64_t unanswered_ms; /* since when it hangs up unproven; 0: it does
                               not */
    bool complained;        /* logged once until a link is up */
    bool is_explained;      /* of the present link: `why` says more than its
                               end */
    char why[LINK_MAX_WHY]; /* reason why there is no link, as far as known */
};

/* Control port of a router; link_listener.c. */
typedef struct link_listener {
    bt_list_t in_all;
    bt_control_t *control;
    bool is_ipc;
    char url[LINK_MAX_URL];        /* with the real port */
    nng_stream_listener *listener; /* NULL: it cannot be opened again */
    nng_aio *aio;
    uint64_t look_ms; /* ipc: next check that its name exists */
    bool is_gone;     /* ipc: it was removed, and that was logged */

    /* under control->mutex */
    bool is_accepting;  /* aio is with nng */
    nng_stream *stream; /* accepted; NULL: none */
} link_listener_t;

struct bt_control {
    link_keyring_t keyring;
    void *hello;
    size_t hello_bytes;
    char name[LINK_MAX_NAME];
    bt_wire_range_t range;
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
    bt_link_t *current;
    nng_msg *current_msg;
    link_frame_t current_frame;
    size_t current_at;
    void *event_data;

    uint8_t *ring_bytes; /* LINK_RING_READ bytes being delivered; owned */
    bool looked;         /* `fd` was polled since the last event */

    uint64_t said[LINK_SAID]; /* peers already complained about */
    uint32_t n_said;
    uint64_t said_ms;

    bool share_memory;
    void (*on_refused)(void *ctx, const bt_control_refused_t *refused);
    void *refused_ctx;
    int fd; /* epoll: of event_fd and of links' sockets and bells */
    int event_fd;
    pthread_mutex_t mutex;
    bt_list_t ready;     /* links with something for the owner */
    bool signalled;      /* event_fd is readable, or soon will be */
    uint32_t n_accepted; /* streams of listeners that are no links yet */

    pthread_t reaper;
    pthread_cond_t reap;
    bt_list_t retired; /* links by in_all, oldest first */
    uint32_t n_retired;
    bool stopping;
    bool reaped; /* the reaper has ended */
};

/* link_socket.c: links and their pipes. Errors are logged there. */

/** Creates a link to a router, which is dialled. */
BT_MUST_CHECK bt_status_t bt_link_dial(link_join_t *join);
/** Creates a link of an accepted stream, which it owns in any case. */
void bt_link_adopt(bt_control_t *control, nng_stream *stream, const char *url);
void bt_link_mark_ready(bt_link_t *link);
/** Makes event_fd readable, so that the thread that owns the links wakes.
 *  The caller has set `signalled` under the mutex, and has released the
 *  mutex. */
void bt_link_signal(bt_control_t *control);
/** Marks a link ready without signalling, when the descriptor of
 * bt_control_fd() is readable anyway. */
void bt_link_queue_ready(bt_link_t *link);
/** Takes a ready link. @return NULL when none is ready; then event_fd is not
 *  readable */
bt_link_t *bt_link_pop_ready(bt_control_t *control);
/**
 * Takes the oldest frame.
 * @param [out] is_tagged_p  its tag is valid under open_key; false: not checked
 * @param [out] ended_p      no more will arrive
 * @return the frame, owned by the caller, or NULL
 */
nng_msg *bt_link_inbox_take(bt_link_t *link, bool *is_tagged_p, bool *ended_p);
/** Declares open_key final, so that nng's threads check tags with it. */
void bt_link_inbox_share_key(bt_link_t *link);
/** Sends a message. @return false when it cannot be sent now; otherwise the
 *  message is no longer the caller's */
bool bt_link_send(bt_link_t *link, nng_msg *msg);
/** True when a message can be sent. When false, the link is marked ready as
 *  soon as one can. */
bool bt_link_can_send(bt_link_t *link);

/* link_join.c */

BT_MUST_CHECK bt_status_t bt_link_join_create(bt_control_t *control,
                                              const char *url,
                                              link_join_t **join_p);
void bt_link_join_free(link_join_t *join);
void bt_link_join_tick(link_join_t *join);
/** Plans the next dial. @param link  the link in the state that it ended in */
void bt_link_join_ended(link_join_t *join, const bt_link_t *link);
/** Returns the time until which a dial must have connected. */
uint64_t bt_link_join_deadline(const bt_control_t *control);

/* link_listener.c */

BT_MUST_CHECK bt_status_t bt_link_listener_create(bt_control_t *control,
                                                  const char *url,
                                                  link_listener_t **listener_p);
void bt_link_listener_free(link_listener_t *listener);
void bt_link_listener_tick(link_listener_t *listener);
/** Makes links of accepted streams. */
void bt_link_listeners_take(bt_control_t *control);

/* the reaper */

BT_MUST_CHECK bt_status_t bt_link_reaper_start(bt_control_t *control);
/** Hands a link to the reaper, which frees it later. */
void bt_link_retire(bt_link_t *link);
/**
 * Waits until all retired links are freed.
 * @return false when nng does not release one: @a control must stay, too
 */
bool bt_link_reaper_stop(bt_control_t *control);

/* link.c: the life of one link. */

typedef enum link_step {
    STEP_IDLE,  /* nothing left to do now */
    STEP_AGAIN, /* call again */
    STEP_EVENT, /* event_p is filled; call again next time */
    STEP_FREED, /* the link is freed */
} link_step_t;

/** Changes the state of a link, and sets its deadline. */
void bt_link_move(bt_link_t *link, link_state_t next);
link_step_t bt_link_step(bt_link_t *link, bt_link_event_t *event_p);
void bt_link_tick(bt_link_t *link);
/** Ends a link without notifying the peer. */
void bt_link_over(bt_link_t *link, const char *reason);
/** Copies a peer's text without its control characters, for logs; too long a
 * one is truncated. */
void bt_link_reason_print(char reason[LINK_MAX_REASON], const void *text,
                          size_t n);
/** Ends a link and notifies the peer, which can verify our frames. */
void bt_link_refuse(bt_link_t *link, const char *reason);
/** Logs one line about a peer that gets no link, and tells the router's owner
 *  of it. */
void bt_link_complain(bt_link_t *link, const char *what);
/** Keeps the peer's hello for UP. @return false: no memory, the link has
 *  ended */
bool bt_link_keep(bt_link_t *link, const void *hello, size_t bytes);
/** Sets a link up: both sides have proven the key, and the hello is kept. */
void bt_link_up(bt_link_t *link);

/* link_silence.c */

/** Starts detection when the link is up. */
void bt_link_silence_init(bt_link_t *link);
/** Ends a silence: a frame was received. */
void bt_link_silence_over(bt_link_t *link);
/** Discounts time in which this process did not run or read: it does not
 *  count as the peer's silence. */
void bt_link_silence_slept(bt_link_t *link, uint64_t ms);
/** Checks, when nothing of the peer is unread, whether it is silent, or for
 *  too long. */
void bt_link_silence_tick(bt_link_t *link);

/* link_send.c */

/** Passes queued messages to nng, as many as it takes. */
void bt_link_pump(bt_link_t *link);
/** Removes sent bytes from the queue. */
void bt_link_drop_queued(bt_link_t *link, size_t bytes);
/** Queues a frame of the handshake; NULL: there was no memory for it. */
void bt_link_send_own(bt_link_t *link, nng_msg *msg);
/** Builds a sealed frame with a body of two parts. @return NULL: no memory */
nng_msg *bt_link_seal(bt_link_t *link, link_kind_t kind, const void *head,
                      size_t head_bytes, const void *body, size_t bytes);

/* link_shm.c: the path through shared memory. */

static inline bool bt_link_shm_writes(const bt_link_t *link)
{
    return link->shm.state >= LINK_SHM_WRITING;
}
static inline bool bt_link_shm_reads(const bt_link_t *link)
{
    return link->shm.state >= LINK_SHM_OPEN;
}

/** Offers shared memory when the link is up. For routers. */
void bt_link_shm_offer(bt_link_t *link);
/** Processes an OFFER, GIVEN or RING frame. */
void bt_link_shm_frame(bt_link_t *link, const link_frame_t *frame);
/** Writes queued messages into the shared memory. */
void bt_link_shm_write(bt_link_t *link);
/** Reads messages. @return true: control->current has bytes of this link */
bool bt_link_shm_read(bt_link_t *link);
/** True when there is something to read. */
bool bt_link_shm_any(const bt_link_t *link);
/** True when something is left to read after the other side ended or sent
 *  its reason, before that is reported. */
bool bt_link_shm_last(bt_link_t *link);
/** Withdraws an offer that was not taken in time. */
void bt_link_shm_tick(bt_link_t *link);
void bt_link_shm_close(bt_link_t *link);
/** Marks links ready whose bell rings. @return false: no bell, and nothing
 *  from nng's threads */
bool bt_link_look(bt_control_t *control);

/* link_handshake.c */

/** Sends JOIN. For workers, when the connection is open. */
void bt_link_handshake_start(bt_link_t *link);
void bt_link_handshake_frame(bt_link_t *link, const void *data, size_t bytes);

#endif
