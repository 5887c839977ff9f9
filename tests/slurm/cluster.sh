#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A real Slurm cluster of several nodes on one Linux machine. Needs root, and the
# packages slurm-wlm and munge.
#
#   cluster.sh up [N]             start a controller "ctl" and nodes n1 … nN (3);
#                                 prints the folder of the new cluster
#   cluster.sh exec NODE cmd …    run cmd on a node, in the caller's folder
#   cluster.sh crash NODE         power cut: every process of it dies at once
#   cluster.sh boot NODE          start a crashed node again
#   cluster.sh cut|heal NODE      link down or up; the node's processes live on
#   cluster.sh down               end everything and remove the folder
#
# All but "up" need the folder in CLUSTER_DIR. CLUSTER_CPUS and CLUSTER_MEMORY are
# what a node claims to have (8, 8000 MiB), more than the machine has, if need be.
# CLUSTER_IPV6=1: the nodes have IPv6 addresses alone, fd77::1 and fd77::11 ….
#
# Each node has its own namespaces:
#   net    own address (ctl 10.77.0.1, n<i> 10.77.0.<10+i>) on a bridge inside of
#          ctl's namespace: the machine's network is not touched and not reached
#   uts    own host name
#   ipc    else UCX would see one machine and use shared memory between nodes
#   pid    one kill is a crash of the node
#   mount  own /proc, /sys, /dev/shm, /etc/hosts and $CLUSTER_DIR/local
# All other files are shared, as on a cluster with a shared file system.
set -u
CPUS=${CLUSTER_CPUS:-8}
MEMORY=${CLUSTER_MEMORY:-8000}
NET=10.77.0. PREFIX=24
if [ -n "${CLUSTER_IPV6:-}" ]; then NET=fd77:: PREFIX=64; fi
SELF=$(readlink -f "${BASH_SOURCE[0]}")

die() { echo "cluster.sh: $*" >&2; exit 1; }

address_of() { # NODE
    case $1 in
    ctl) echo "${NET}1" ;;
    n[0-9]*) echo "$NET$((10 + ${1#n}))" ;;
    *) die "no such node: $1" ;;
    esac
}

# The process that is the node's number 1, as the machine numbers it.
pid_of() { # NODE
    local pid
    pid=$(cat "$BASE/$1/pid" 2>/dev/null) && [ -n "$pid" ] &&
        grep -qzxF "baton-node:$BASE:$1" "/proc/$pid/cmdline" 2>/dev/null && echo "$pid"
}

wait_for() { # SECONDS cmd …
    local end=$(($(date +%s%3N) + $1 * 1000))
    shift
    until "$@"; do
        (($(date +%s%3N) < end)) || return 1
        sleep 0.02
    done
}

on() { # NODE cmd …
    local pid
    pid=$(pid_of "$1") || die "node $1 is not up"
    shift
    SLURM_CONF=$BASE/etc/slurm.conf nsenter -t "$pid" -m -u -i -n -p --wd="$PWD" -- "$@"
}

write_slurm_conf() { # N
    local node
    cat <<CONF
ClusterName=baton
SlurmctldHost=ctl(${NET}1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# a job that was put back into the queue waits until the credentials that it had are no longer valid
AuthInfo=socket=$BASE/munge/munge.sock,cred_expire=20
CredType=cred/munge
StateSaveLocation=$BASE/ctl/state
SlurmctldPidFile=$BASE/ctl/slurmctld.pid
SlurmctldLogFile=$BASE/ctl/slurmctld.log
SlurmdSpoolDir=$BASE/%n/spool
SlurmdPidFile=$BASE/%n/slurmd.pid
SlurmdLogFile=$BASE/%n/slurmd.log
SlurmctldDebug=info
SlurmdDebug=info
# no cgroups, no accounting
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=pmix
# nodes may claim more processors and memory than the machine has
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=10000,bf_interval=1
# partition "urgent" takes nodes from "all", whose jobs are warned and requeued
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
# quick reactions, for tests
ReturnToService=2
SlurmdTimeout=10
SlurmctldTimeout=10
MessageTimeout=10
TCPTimeout=2
${CLUSTER_IPV6:+CommunicationParameters=EnableIPv6,DisableIPv4}
KillWait=${CLUSTER_KILL_WAIT:-30}
WaitTime=0
MinJobAge=300
PropagateResourceLimitsExcept=ALL
CONF
    for node in $(seq -f n%g "$1"); do
        echo "NodeName=$node NodeAddr=$(address_of "$node") CPUs=$CPUS Boards=1 SocketsPerBoard=1" \
            "CoresPerSocket=$CPUS ThreadsPerCore=1 RealMemory=$MEMORY"
    done
    echo "PartitionName=all Nodes=n[1-$1] Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=20"
    echo "PartitionName=urgent Nodes=n[1-$1] MaxTime=INFINITE State=UP PriorityTier=2 PreemptMode=OFF"
}

write_conf() { # N
    local node
    mkdir -p "$BASE/etc"
    {
        echo "127.0.0.1 localhost"
        for node in ctl $(seq -f n%g "$1"); do echo "$(address_of "$node") $node"; done
    } >"$BASE/etc/hosts"
    write_slurm_conf "$1" >"$BASE/etc/slurm.conf"
    # Slurm 22.05 loads a cgroup plugin even if nothing uses it; naming v1 skips
    # the detection, which fails in sandboxes
    echo "CgroupPlugin=cgroup/v1" >"$BASE/etc/cgroup.conf"
    # its client folder has the same name on every node: must not be shared
    echo "PMIxCliTmpDirBase=$BASE/local" >"$BASE/etc/mpi.conf"
}

# Runs as process 1 of the new namespaces.
node_main() { # NODE
    hostname "$1"
    mount -t sysfs sysfs /sys 2>/dev/null
    mount -t tmpfs -o mode=1777 tmpfs /dev/shm
    mount --bind "$BASE/etc/hosts" /etc/hosts
    mkdir -p "$BASE/local"
    mount -t tmpfs -o mode=1777 tmpfs "$BASE/local"
    ip link set lo up
    : >"$BASE/$1/ready"
    while :; do sleep 3600 & wait; done # bash reaps the orphans
}

start_node() { # NODE: namespaces and network
    local pid child i
    mkdir -p "$BASE/$1"
    rm -f "$BASE/$1/pid" "$BASE/$1/ready"
    CLUSTER_DIR=$BASE setsid unshare --net --uts --mount --pid --ipc --fork --kill-child --mount-proc \
        --propagation private bash "$SELF" __node "$1" "baton-node:$BASE:$1" \
        </dev/null >"$BASE/$1/init.log" 2>&1 &
    child=$!
    wait_for 10 test -e "$BASE/$1/ready" || die "node $1 did not start: $(cat "$BASE/$1/init.log")"
    read -r pid _ <"/proc/$child/task/$child/children"
    echo "$pid" >"$BASE/$1/pid"
    if [ "$1" = ctl ]; then
        nsenter -t "$pid" -n sh -c "ip link add br0 type bridge forward_delay 0 &&
            ip addr add ${NET}1/$PREFIX dev br0 ${CLUSTER_IPV6:+nodad} && ip link set br0 up"
    else
        i=${1#n}
        nsenter -t "$(pid_of ctl)" -n sh -c "ip link add v$i type veth peer name eth0 netns $pid &&
            ip link set v$i master br0 up"
        nsenter -t "$pid" -n sh -c "ip addr add $(address_of "$1")/$PREFIX dev eth0 ${CLUSTER_IPV6:+nodad} && ip link set eth0 up"
    fi
}

start_slurmd() { # NODE
    mkdir -p "$BASE/$1/spool"
    (cd / && on "$1" slurmd </dev/null >"$BASE/$1/slurmd.out" 2>&1) ||
        die "slurmd on $1: $(cat "$BASE/$1/slurmd.out")"
}

start_munged() {
    local priv=$BASE/munge-priv
    mkdir -m 700 "$priv"
    mkdir -m 755 "$BASE/munge"
    (umask 077 && head -c 128 /dev/urandom >"$priv/key")
    (cd / && on ctl munged --force --num-threads=4 --key-file="$priv/key" --seed-file="$priv/seed" \
        --socket="$BASE/munge/munge.sock" --pid-file="$priv/pid" --log-file="$priv/log" \
        </dev/null >"$priv/out" 2>&1) || die "munged: $(cat "$priv/out")"
}

# Wait for what this shell started, but not for the nodes, which stay.
wait_jobs() {
    local job
    for job in $(jobs -rp); do
        grep -qz "^baton-node:" "/proc/$job/cmdline" 2>/dev/null || wait "$job"
    done
}

all_idle() { [ "$(on ctl sinfo -h -p all -N -o %T 2>/dev/null | grep -cx idle)" -eq "$1" ]; }

up() { # [N]
    local n=${1:-3} node
    [ "$(id -u)" = 0 ] || die "needs root"
    BASE=$(mktemp -d "${TMPDIR:-/tmp}/baton-cluster-XXXXXX") || die "no folder"
    chmod 755 "$BASE"
    trap '[ $? = 0 ] || { down; }' EXIT
    write_conf "$n"
    start_node ctl
    for node in $(seq -f n%g "$n"); do start_node "$node" & done
    wait_jobs
    start_munged
    mkdir -p "$BASE/ctl/state"
    (cd / && on ctl slurmctld </dev/null >"$BASE/ctl/slurmctld.out" 2>&1) ||
        die "slurmctld: $(cat "$BASE/ctl/slurmctld.out")"
    for node in $(seq -f n%g "$n"); do start_slurmd "$node" & done
    wait_jobs
    wait_for 30 all_idle "$n" || die "nodes not idle: $(on ctl sinfo -p all -N -o '%n %T %E')"
    echo "$BASE"
}

gone() { ! pid_of "$1" >/dev/null; } # NODE

down() {
    local file node pid
    for file in "$BASE"/*/pid; do # the bridge goes with ctl's namespace
        [ -e "$file" ] || continue
        node=$(basename "$(dirname "$file")")
        pid=$(pid_of "$node") && kill -9 "$pid"
        wait_for 5 gone "$node"
    done
    rm -rf "$BASE"
}

command=${1:-}
[ $# -gt 0 ] && shift
BASE=${CLUSTER_DIR:-}
case $command in
up | "") ;;
*) [ -f "$BASE/etc/slurm.conf" ] || die "CLUSTER_DIR is not the folder of a cluster" ;;
esac
case $command in
__node) node_main "$1" ;;
up) up "$@" ;;
down) down ;;
exec) on "$@" ;;
crash)
    kill -9 "$(pid_of "$1")"
    wait_for 5 gone "$1"
    ;;
boot)
    pid_of "$1" >/dev/null && die "$1 is up"
    start_node "$1"
    start_slurmd "$1"
    ;;
cut) on ctl ip link set "v${1#n}" down ;;
heal) on ctl ip link set "v${1#n}" up ;;
*)
    sed -n '3,17p' "$SELF"
    exit 2
    ;;
esac
