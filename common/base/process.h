/* SPDX-License-Identifier: Apache-2.0 */
/** @file process.h
 *
 * Processes: resource use, stop signals, heartbeat, readiness, descriptors,
 * core dumps, and whether another process of this host waits for a core.
 */
#ifndef BT_COMMON_BASE_PROCESS_H
#define BT_COMMON_BASE_PROCESS_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Facts about this process: its resource use so far (one or two system calls:
 * once per heartbeat, not per request), and its parent.
 */

/** Resource use of a process. */
typedef struct bt_process_use {
    uint64_t cpu_ms; /**< user and system time of all threads */
    uint64_t resident_bytes;
} bt_process_use_t;

/** Returns the resource use; a value that the system does not report is 0. */
bt_process_use_t bt_process_use(void);

/** Returns resident memory that is anonymous and not shared; 0: unknown.
 *  Takes some microseconds. */
uint64_t bt_process_private_bytes(void);

/** True when an MPI launcher (mpirun, srun --mpi=pmix) started this process. */
bool bt_process_is_of_mpi(void);

/** Longest host name with which UCX 1.13 loads: with a name of the maximum
 *  length that Linux allows it aborts every process that is linked with it,
 *  before main(). */
#define BT_PROCESS_HOST_NAME_MOST 63u

/**
 * True when this host's name is no longer than that. For programs that start
 * workers, and are not linked with UCX themselves.
 * @param [out] why  only if the name is longer: a sentence with the remedy
 */
bool bt_process_host_name_fits(char *why, size_t why_bytes);

/** Returns the command that a user types to run Baton: "./baton" if this
 *  program is in a build tree, otherwise "baton". */
const char *bt_process_command(void);

/*
 * Signals that ask a process to stop. The first asks to finish running work and
 * end; a later one means "at once". But one request often arrives as several
 * signals: `timeout`, systemd and terminals send one to the process and to its
 * group, and a launcher forwards to its processes signals that they may have
 * received already. So signals within BT_STOP_SAME_MS of the first, and the
 * first from the parent process, count as one request.
 *
 * Threads: the owner's.
 */

#define BT_STOP_SAME_MS 1000u

typedef enum bt_stop {
    BT_STOP_BEGIN, /**< first request: finish running work */
    BT_STOP_SAME,  /**< duplicate of the first request */
    BT_STOP_NOW,   /**< end at once */
} bt_stop_t;

/** Stop requests so far. Zero-initialise. */
typedef struct bt_stop_requests {
    bool came, came_from_parent;
    uint64_t first_ms;
} bt_stop_requests_t;

/**
 * Classifies a signal.
 * @param from_parent  sent by the parent process
 */
bt_stop_t bt_stop_request(bt_stop_requests_t *wishes, uint64_t now_ms,
                          bool from_parent);

/** Sets *set_p to SIGTERM and SIGINT. */
void bt_stop_signals(sigset_t *set_p);
/** Blocks the stop signals in this thread and those that it creates from now
 *  on: bt_stop_open() receives them. */
void bt_stop_block(void);
/** Returns a descriptor (close(2) it) that is readable when a stop signal
 *  was received; -1 with errno. */
int bt_stop_open(void);
/**
 * Reads the next signal.
 * @param [out] from_parent_p  sent by the parent process
 * @return signal number, 0: none
 */
int bt_stop_next(int fd, bool *from_parent_p);

/*
 * Heartbeat of a program to the process that started it: while its loop runs it
 * adds to the counter behind the descriptor that BATON_BEAT_FD names (an
 * eventfd), some ten times a second. The parent reads the counter periodically;
 * a process that stops adding is stopped, blocked or spinning.
 *
 * Must be called by the thread whose loop it represents, not by a timer or
 * another thread. One thread.
 */

#define BT_HEARTBEAT_EVERY_MS 100u

/** Heartbeat state. Zero-initialise, or open. */
typedef struct bt_heartbeat_tick {
    int fd; /**< owned; 0: no heartbeat requested */
    uint64_t next_ms;
} bt_heartbeat_t;

/** Opens the descriptor that the environment names, or none; warns about a
 *  value that is no number from 3 on, or names no descriptor. */
void bt_heartbeat_open(bt_heartbeat_t *beat);

/** Records one turn of the loop. Costs a comparison, and a system call if
 *  the last one was BT_HEARTBEAT_EVERY_MS ago. */
void bt_heartbeat_tick(bt_heartbeat_t *beat, uint64_t now_ms);

/** Closes the heartbeat, also if it was never opened. */
void bt_heartbeat_close(bt_heartbeat_t *beat);

/*
 * Readiness notification of a program to the process that started it: lines of
 * text written to the descriptor that BATON_READY_FD names, the last of them
 * `ready`. launcher/health.h defines the lines.
 *
 * The program keeps the descriptor in an int, -1 if no notification was
 * requested. No failure here stops a program: a warning is logged, and no more
 * is written. SIGPIPE must be ignored. One thread.
 */

/** Returns the descriptor that the environment names, owned by the caller,
 *  or -1 when it names none. Warns about a value that is no number from 3
 *  on. */
int bt_ready_fd_open(void);

/** Writes @a text, whole lines of at most PIPE_BUF bytes. On failure the
 *  descriptor is closed and set to -1. */
void bt_ready_fd_say(int *fd, const char *text);

/** Closes the descriptor, also when it is -1 already. */
void bt_ready_fd_close(int *fd);

/*
 * Open file descriptors of this process, for its metrics and for leak tests,
 * and their limit.
 */

/** Returns the number of entries of /proc/self/fd, or 0 where there is none. */
uint32_t bt_count_open_fds(void);

/**
 * Raises the soft limit of descriptors to the hard one.
 * @return the new limit; 0: unreadable
 */
uint64_t bt_raise_open_fds(void);

/*
 * Core dumps contain what the process had in memory: keys, prompts, KV. So none
 * is written unless the operator asks for it (--core-dumps).
 */

/** Disables core dumps of this process and of those that it starts: to a
 *  file, and to a program that the system would pipe them to. The process
 *  stays as dumpable as before: its peers open its memory by /proc/PID/fd. */
void bt_core_dump_forbid(void);

/*
 * Detects whether another process of this host is starved of CPU. A silent
 * process may be dead, stopped, blocked or spinning, or it may be starved: it
 * has work and gets no core, because other processes use them or because its
 * CPU quota is used up. Linux distinguishes these cases, without any help from
 * that process:
 *
 *     /proc/PID/task/TID/stat        state R and unchanged processor time:
 *                                    it waits. T: stopped. S, D: blocked.
 *     /proc/PID/task/TID/schedstat   time on a core, time in the run queue,
 *                                    turns (Documentation/scheduler/
 *                                    sched-stats.rst)
 *
 * Time in the run queue is accounted when a thread gets its turn, so while it
 * waits only the state shows it. A process waits when its first thread does, or
 * when that is blocked and another one waits, perhaps with what the first one
 * needs. Threads of a lower weight than the first one do not count: they are
 * meant to wait.
 *
 * Threads: one thread owns a bt_core_wait_t.
 */

#define BT_CORE_WAIT_THREADS 64u /**< most threads examined */

/** Sample of one thread. */
typedef struct bt_core_wait_thread {
    int32_t tid;
    char state;         /**< as in proc(5) */
    bool is_background; /**< lower weight than the first thread */
    bool is_idle_class;
    int32_t nice;
    uint64_t ran_ns, waited_ns, n_turns;
} bt_core_wait_thread_t;

/** Last sample of a process. Zero-initialise. */
typedef struct bt_core_wait {
    uint64_t looked_ms; /**< time of the sample; 0: none, or unreadable */
    uint32_t n_threads;
    bt_core_wait_thread_t threads[BT_CORE_WAIT_THREADS]; /**< by tid */
} bt_core_wait_t;

/** Reads a file of a thread, /proc/PID/task/TID/NAME, as bt_read_text(). */
bool bt_task_text_read(pid_t pid, int32_t tid, const char *name, char *text,
                       size_t bytes);

/** Samples a thread. @return false: there is none */
bool bt_core_wait_thread_read(pid_t pid, int32_t tid,
                              bt_core_wait_thread_t *thread_p);

/**
 * Returns how long a thread waited for a core between two samples. Pure.
 * @return at most @a passed_ms
 */
uint64_t bt_core_wait_of(const bt_core_wait_thread_t *before,
                         const bt_core_wait_thread_t *after,
                         uint64_t passed_ms);

/**
 * Samples a process and returns how long it waited for a core since the last
 * sample, which was of this process; 0 at the first one, and if the system does
 * not report it. Some 20 us, and as much for each thread unless the first one
 * waits.
 * @param now_ms  monotonic, not 0
 * @return ms, at most the time since the last sample
 */
uint64_t bt_core_wait_look(bt_core_wait_t *wait, pid_t pid, uint64_t now_ms);

#endif
