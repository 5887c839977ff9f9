# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # baton.sbatch sets what is not set here
#
# Instances as job steps: where they are placed, started, started again and ended.
# For baton.sbatch, which has the variables, command_of() and say(). job_id is for
# Slurm's commands, to which the bare number of a task may mean its whole array.

# ---- programs ----

# Sets router_program, prefill_program and decode_program. BUILD is a folder that
# Baton was built in, or that has the installed programs.
find_programs() {
    local folder places=("$SLURM_SUBMIT_DIR/build" "$(dirname "${BASH_SOURCE[0]}")/../../../libexec/baton")
    [ -z "${BUILD:-}" ] || places=("$BUILD")
    for folder in "${places[@]}"; do
        router_program=$folder/router/baton-router
        prefill_program=$folder/worker/main/baton-prefill-worker
        decode_program=$folder/worker/main/baton-decode-worker
        if [ ! -x "$router_program" ]; then
            router_program=$folder/baton-router
            prefill_program=$folder/baton-prefill-worker
            decode_program=$folder/baton-decode-worker
        fi
        if [ -x "$router_program" ] && [ -x "$prefill_program" ] && [ -x "$decode_program" ]; then
            return 0
        fi
    done
    die "no baton-router, baton-prefill-worker and baton-decode-worker in ${places[*]}: set BUILD to the build folder"
}

# ---- logs ----

# Sets output, the file of the job's output ("": none), and logs, the begin of instances' logs
# beside it. To srun a % is the begin of a pattern.
find_logs() {
    output=$(readlink "/proc/$$/fd/1")
    [ -f "$output" ] || output=
    logs=${output%/*}
    logs=${logs:-$SLURM_SUBMIT_DIR}/baton-$SLURM_JOB_ID
    logs_of_srun=${logs//%/%%}
}

# ---- on each node ----

# Of the first address of IPv4 in its input, or else of IPv6, without loopback, link-local
# and IPv4 in IPv6.
first_address() {
    awk '$1 ~ /^(127\.|::1$|fe80:|::ffff:)/ { next } $1 ~ /:/ { if (six == "") six = $1; next } { print $1; four = 1; exit }
        END { if (!four && six != "") print six }'
}

addresses_of_node() { # all but those of loopback
    ip -o addr show scope global 2>/dev/null | awk '{ sub("/.*", "", $4); print $4 }'
}

# Prints "DEVICE ADDRESS": NET_DEVICE, or the interface that leads to the first of
# the routers' and nodes' addresses that is not this node's own; where there is no
# other, the one with the first address that is not of loopback. Of a list the first has the
# address; of an RDMA device (mlx5_0:1) its interface has. @return 1: there is none
net_of_node() {
    local device=${NET_DEVICE:-} interface target route address
    if ! command -v ip >/dev/null; then
        echo "$(hostname): there is no command ip (iproute2), which tells a node's addresses" >&2
        return 1
    fi
    if [ -z "$device" ]; then
        for target in $ADDRESSES; do
            route=$(ip -o route get "$target" 2>/dev/null) || continue
            case $route in local*) continue ;; esac
            device=$(sed -n 's/.* dev \([^ ]*\).*/\1/p' <<<"$route")
            break
        done
    fi
    if [ -n "$device" ]; then
        interface=${device%%,*}
        for target in "/sys/class/infiniband/${interface%:*}/device/net/"*; do
            [ ! -e "$target" ] || { interface=${target##*/}; break; }
        done
        address=$(ip -o addr show dev "$interface" 2>/dev/null | awk '$3 ~ /^inet/ { sub("/.*", "", $4); print $4 }' |
            if [ "$interface" = lo ]; then head -n 1; else first_address; fi)
    else
        address=$(addresses_of_node | first_address)
        device=$(ip -o addr show 2>/dev/null | awk -v a="$address/" 'index($4, a) == 1 { print $2; exit }')
    fi
    if [ -z "$address" ]; then
        echo "$(hostname): no address on ${NET_DEVICE:-any interface}" >&2
        return 1
    fi
    printf '%s %s\n' "$device" "$address"
}

# In a URL, and in front of a port.
in_url() { # ADDRESS
    case $1 in *:*) echo "[$1]" ;; *) echo "$1" ;; esac
}

# Ranks of several nodes have their sums over the same interface as KV. All of a
# world have to choose alike.
# shellcheck disable=SC2317 # called by name
use_network() { # DEVICE
    [ "${SLURM_STEP_NUM_NODES:-1}" -gt 1 ] && [ -z "${OMPI_MCA_pml:-}" ] || return 0
    export OMPI_MCA_pml=ucx OMPI_MCA_pml_ucx_tls=any OMPI_MCA_pml_ucx_devices=any OMPI_MCA_osc=ucx
    export UCX_NET_DEVICES=${UCX_NET_DEVICES:-$1}
}

# One rank of a worker: PROGRAM OPTION …
# shellcheck disable=SC2317 # called by name
run_worker() {
    local net
    net=$(net_of_node) || return 1
    use_network "${net% *}"
    exec "$@" --rank-host="${net#* }" --kv-net-devices="${net% *}"
}

# The batch script runs on the first node alone. When Slurm takes that node out of the
# job, the rest stays as it is (--no-kill), and nobody looks after it: this step, on
# another node, puts the job back into the queue.
# shellcheck disable=SC2317 # called by name
watch_script() { # NODE-OF-THE-SCRIPT OUTPUT-OF-THE-JOB
    local mine
    while sleep 2; do
        # The first line is that of the part with the script, where the job has two. A job that
        # ends or waits has its nodes from nobody, and the controller may be away.
        mine=$(scontrol show job -o "$job_id" 2>/dev/null | sed -n '1 s/.* JobState=RUNNING .* NodeList=\([^ ]*\) .*/\1/p')
        [ -n "$mine" ] || continue
        scontrol show hostnames "$mine" | grep -qx -- "$1" && continue
        echo "$(date +%T) baton.sbatch: node $1, where the script of job $SLURM_JOB_ID ran, is gone: the job goes back into the queue" >>"$2"
        scontrol requeue "$job_id" || scancel "$job_id"
        return
    done
}

# ---- nodes ----

# Of a heterogeneous job the first part is for routers, the second for workers.
find_nodes() {
    local node address
    ADDRESSES=
    nodes=() router_nodes=() worker_nodes=()
    declare -gA group_of=() cpus_on=() used=() down=() shared=() address_of=()
    group=("") # of srun
    export -f first_address addresses_of_node net_of_node in_url use_network run_worker watch_script is_ours
    if [ -n "${SLURM_HET_SIZE:-}" ]; then
        mapfile -t router_nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST_HET_GROUP_0")
        mapfile -t worker_nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST_HET_GROUP_1")
        nodes=("${router_nodes[@]}" "${worker_nodes[@]}")
        for node in "${router_nodes[@]}"; do group_of[$node]=0 cpus_on[$node]=${SLURM_JOB_CPUS_PER_NODE_HET_GROUP_0%%[!0-9]*}; done
        for node in "${worker_nodes[@]}"; do group_of[$node]=1 cpus_on[$node]=${SLURM_JOB_CPUS_PER_NODE_HET_GROUP_1%%[!0-9]*}; done
    else
        mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
        for node in "${nodes[@]}"; do cpus_on[$node]=${SLURM_CPUS_ON_NODE:-1}; done
    fi
    for node in ${JOIN//,/ }; do # tcp://HOST:PORT
        node=${node#*://}
        node=${node%:*}
        node=${node#[}
        ADDRESSES+="$(getent ahosts "${node%]}" | first_address) "
    done
    for node in "${nodes[@]}"; do
        address=$(address_by_name "$node")
        [ -n "$address" ] || die "node $node has no address that other nodes could reach"
        ADDRESSES+="$address "
        address_of[$node]=$address
        used[$node]=0
    done
    export ADDRESSES NET_DEVICE=${NET_DEVICE:-}
}

# Prints the address that a node's name has, or its NodeAddr, or that it says itself: the name
# is one of loopback where /etc/hosts says so (127.0.1.1 on Debian).
address_by_name() { # NODE
    local name address
    for name in "$1" "$(scontrol show node "$1" 2>/dev/null | sed -n 's/.*NodeAddr=\([^ ]*\).*/\1/p')"; do
        address=$(getent ahosts "${name:-$1}" | first_address)
        [ -z "$address" ] || { echo "$address"; return; }
    done
    srun --overlap --mpi=none -N1 -n1 -w "$1" ${group_of[$1]:+--het-group="${group_of[$1]}"} \
        bash -c 'addresses_of_node | first_address' </dev/null
}

address_on() { # NODE
    local net
    if [ "$1" = "${SLURMD_NODENAME:-}" ]; then
        net=$(net_of_node) && echo "${net#* }"
    elif [ -z "$NET_DEVICE" ]; then
        echo "${address_of[$1]}"
    else
        net=$(srun --overlap --mpi=none -N1 -n1 -w "$1" ${group_of[$1]:+--het-group=${group_of[$1]}} \
            bash -c net_of_node) && echo "${net#* }"
    fi
}

# Prints the first port for clients: of a job that shares its nodes, one that no other job has.
client_port() {
    case $(scontrol show job "$job_id" | sed -n '/OverSubscribe=/ { s/.*OverSubscribe=\([A-Z]*\).*/\1/p; q }') in
    NO) echo 8000 ;;
    *) echo $((20000 + 12 * (SLURM_JOB_ID % 1000))) ;;
    esac
}

# ---- keys ----

random_hex() { head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n'; }

# Not from sbatch's environment: a key would be seen by everybody there. Who may
# use the server: other nodes, and so other users, reach its ports.
make_api_key() {
    local api_key
    (umask 077 && api_key=baton-$(random_hex) && printf '%s\n' "$api_key" >"$WORK_DIR/api-key" &&
        printf 'tenant job admin\nkey job sha256:%s\n' "$(printf %s "$api_key" | sha256sum | cut -d' ' -f1)" >"$WORK_DIR/api-keys")
}

# With KEY_MUNGE a credential for this user alone: who reads WORK_DIR's files on
# their way, or as another user, has nothing.
seal() {
    [ -n "${KEY_MUNGE:-}" ] || { cat; return; }
    munge ${BATON_MUNGE_SOCKET:+--socket="$BATON_MUNGE_SOCKET"} --restrict-uid="$(id -u)"
}

# At the end of the script. A job that Slurm starts again keeps its keys: clients have them.
remove_keys() {
    local restarts='' tries
    for ((tries = 0; tries < 5 && ${#restarts} == 0; tries++)); do # the signal of a requeue ends scontrol, too
        ((tries == 0)) || sleep 0.2
        restarts=$(scontrol show job "$job_id" 2>/dev/null | sed -n '/Restarts=/ { s/.*Restarts=\([0-9]*\).*/\1/p; q }')
    done
    ((${restarts:-0} == ${SLURM_RESTART_COUNT:-0})) || return
    rm -f "$WORK_DIR/key" "$WORK_DIR/api-key" "$WORK_DIR/api-keys"
    rmdir "$WORK_DIR" 2>/dev/null
}

# Sets KEY_FILE, API_KEYS, key_note for curl and ask, a line for a shell up to the address.
# The files are removed when the script ends.
make_keys() {
    key_note= ask="baton ask --url"
    [ ! -f "$SLURM_SUBMIT_DIR/baton" ] || ask="./$ask"
    ((ROUTERS > 0)) || return 0
    trap remove_keys EXIT
    if ((${SLURM_RESTART_COUNT:-0} == 0)); then
        rm -f "$WORK_DIR/key" "$WORK_DIR/api-key" "$WORK_DIR/api-keys"
    fi
    (umask 077 && mkdir -p "$WORK_DIR") || die "cannot write to $WORK_DIR"
    if [ -z "${KEY_FILE:-}" ]; then
        KEY_FILE=$WORK_DIR/key
        [ -s "$KEY_FILE" ] || (umask 077 && random_hex | seal >"$KEY_FILE") || die "cannot write the cluster key to $KEY_FILE"
    fi
    case " ${ROUTER_OPTIONS:-} ${BATON_API_KEYS:+--api-keys }${BATON_INSECURE:+--insecure }" in
    *" --insecure "* | *" --api-keys"*) unset API_KEYS ;; # the router has it from there
    *)
        [ -z "${API_KEYS:-}" ] || return 0
        [[ -s $WORK_DIR/api-key && -s $WORK_DIR/api-keys ]] || make_api_key || die "cannot write an API key to $WORK_DIR"
        API_KEYS=$WORK_DIR/api-keys
        key_note=" -H \"Authorization: Bearer \$(cat $(printf %q "$WORK_DIR/api-key"))\""
        ask="BATON_API_KEY=\"\$(cat $(printf %q "$WORK_DIR/api-key"))\" $ask"
        ;;
    esac
}

# ---- instances: index by index their name, ranks, nodes, process of srun, times ----

names=() ranks_of=() where=() pids=() started=() starts=() failures=() again_at=()
declare -A up_since=() # of slurmd
declare -A ask_again=() # a node that did not say what runs there: not before
declare -A at_node=() # of an array of nodes: which is next

place() { # NAME RANKS NODES ARRAY
    local -n among=$4
    local i=${at_node[$4]:-0} k
    local mine=()
    (($3 <= ${#among[@]})) || die "$1 needs $3 nodes; there are ${#among[@]} (${among[*]})"
    for ((k = 0; k < $3; k++)); do
        mine+=("${among[(i + k) % ${#among[@]}]}")
        used[${mine[k]}]=$((${used[${mine[k]}]} + ($2 + $3 - 1) / $3))
    done
    at_node[$4]=$((i + $3))
    names+=("$1") ranks_of+=("$2") where+=("${mine[*]}")
    pids+=("") started+=(0) starts+=(0) failures+=(0) again_at+=(0)
}

is_alone() { # INDEX: is there no other instance of its role that runs?
    local i
    for i in "${!names[@]}"; do
        [[ $i != "$1" && ${names[i]%-*} == "${names[$1]%-*}" && -n ${pids[i]} ]] && return 1
    done
    return 0
}

# Sets spare: a node that nobody uses, or the least used one, for an instance that is the only one
# of its role: a router's node first, which has the most to spare.
find_spare() { # INDEX NODES-IT-HAS-ALREADY
    local node least=
    spare=
    for node in "${worker_nodes[@]}"; do
        [[ -n ${down[$node]:-} || ${used[$node]} != 0 ]] && continue
        spare=$node
        return
    done
    is_alone "$1" || return 1
    for node in "${router_nodes[@]}" "${worker_nodes[@]}"; do
        [[ -n ${down[$node]:-} || " $2 " == *" $node "* ]] && continue
        ((${least:=1000000} > used[$node])) && least=${used[$node]} spare=$node
    done
    [ -n "$spare" ] || return 1
    shared[$spare]=1
}

# A node that is down is replaced. @return 1: there is none
find_home() { # INDEX
    local node spare home=()
    for node in ${where[$1]}; do
        if [ -n "${down[$node]:-}" ]; then
            case ${names[$1]} in router-*) return 1 ;; esac # its address is known
            find_spare "$1" "${where[$1]} ${home[*]:-}" || return 1
            used[$spare]=$((${used[$spare]} + ${used[$node]}))
            say "${names[$1]} moves from $node, which is down, to $spare${shared[$spare]:+, which others use, too}"
            node=$spare
        fi
        home+=("$node")
    done
    where[$1]="${home[*]}"
}

start() { # INDEX
    local i=$1 node cpus=0 command=() more=() place=() group overlap=
    for node in ${where[i]}; do
        place+=("$node")
        group=${group_of[$node]:-}
        ((cpus == 0 || cpus_on[$node] / used[$node] < cpus)) && cpus=$((cpus_on[$node] / used[$node]))
        # Steps that together want more processors than there are wait for each other for ever.
        [[ -n ${shared[$node]:-} || ${cpus_on[$node]} -lt ${used[$node]} ]] && overlap=1
    done
    read -ra more <<<"${SRUN_OPTIONS:-} $([[ ${names[i]} == router-* ]] || echo "${WORKER_SRUN_OPTIONS:-}")"
    command_of "${names[i]}"
    # A step of a node that was lost may keep its processors for ever.
    [[ -z $overlap && -z $(steps_named "${names[i]}") ]] || more+=(--overlap)
    # --exact: only these processors, so that steps share a node; -K: a rank that
    # dies ends its step; --mem=0: no step keeps the memory from the next
    srun --mpi=pmix --exact -K -N"${#place[@]}" -n"${ranks_of[i]}" -c "$((cpus > 0 ? cpus : 1))" --mem=0 \
        -w "$(IFS=,; echo "${place[*]}")" ${group:+--het-group="$group"} --job-name="${names[i]}" \
        --output="$logs_of_srun-${names[i]}.log" --open-mode=append "${more[@]}" "${command[@]}" &
    pids[i]=$!
    started[i]=$SECONDS
    starts[i]=$((starts[i] + 1))
}

steps_named() { # PATTERN: their numbers
    squeue -h -s -j "$job_id" -o '%i %j' 2>/dev/null | awk -v p="^($1)$" '$2 ~ p { print $1 }'
}

signal_steps() { # SIGNAL PATTERN: of names
    local ids
    ids=$(steps_named "$2")
    # shellcheck disable=SC2086 # words
    [ -z "$ids" ] || scancel --signal="$1" $ids 2>/dev/null # one may have ended meanwhile
}

# An instance that ended by itself: say so and set the time of its next start.
# Whoever fails five times within ten seconds of its start is left alone, and who
# ends its first start by saying that the next would be the same: 2 and 78, see
# "Exit status" in docs/RUN.md.
ended() { # INDEX STATUS
    local i=$1 lived=$((SECONDS - started[$1])) node
    pids[i]=
    for node in ${where[i]}; do
        [ -n "${down[$node]:-}" ] || continue
        again_at[i]=$SECONDS
        say "${names[i]} ended with its node $node"
        return
    done
    if [[ ${names[i]} == router-* && $lived -lt 10 ]]; then # which names its own options
        say "${names[i]} listens at ${https[${names[i]#*-}]}, ${grpcs[${names[i]#*-}]}, ${metrics[${names[i]#*-}]} and ${listens[${names[i]#*-}]#tcp://};" \
            "another port: HTTP, GRPC, METRICS and CONTROL_PORT of this script"
    fi
    if ((starts[i] == 1)) && [[ $2 == 2 || $2 == 78 ]]; then
        failures[i]=6
        say "${names[i]} on ${where[i]} ended with $2: it cannot run there and is left alone; its log says why"
        return
    fi
    ((lived > 10)) && failures[i]=0
    failures[i]=$((failures[i] + 1))
    if ((failures[i] > 5)); then
        say "${names[i]} on ${where[i]} ended with $2 again; it is left alone; its log says why"
        return
    fi
    again_at[i]=$((SECONDS + (1 << failures[i]) / 2))
    say "${names[i]} on ${where[i]} ended with $2 after $lived s; it is started again in $(((1 << failures[i]) / 2)) s"
}

# srun does not return from a node that is gone, or that has started again: what had
# a rank there is ended here.
leave_node() { # NODE [PATTERN-OF-NAMES]
    local i
    for i in "${!names[@]}"; do
        [[ -n ${pids[i]} && " ${where[i]} " == *" $1 "* && ${names[i]} =~ ^(${2:-.*})$ ]] || continue
        say "${names[i]} lost its node $1"
        signal_steps KILL "${names[i]}" & # which waits for the node that is gone
        kill -KILL "${pids[i]}" 2>/dev/null
    done
}

# slurmd was started anew, alone or with its node: whose processes are not there?
# @return 1: it does not say yet
look_into() { # NODE
    local i there
    there=$(timeout 10 srun --overlap --mpi=none -N1 -n1 -w "$1" ${group_of[$1]:+--het-group="${group_of[$1]}"} \
        ps -ww -eo comm,args </dev/null) || return 1
    there=$(grep -F -- " --cluster-key-file=$KEY_FILE " <<<"$there") # another job's have the same names
    for i in "${!names[@]}"; do
        grep -q -- "^baton-.* --name=$NAME_PREFIX${names[i]} " <<<"$there" || leave_node "$1" "${names[i]}"
    done
}

look_at_nodes() {
    local node state since list mine
    list=$(scontrol show nodes -o "$(IFS=,; echo "${nodes[*]}")" 2>/dev/null) || return # no controller: no news
    mine=$(squeue -h -j "$job_id" -o %N 2>/dev/null | paste -sd,)
    [ -n "$mine" ] || return
    mine=$(scontrol show hostnames "$mine") || return
    down=()
    while read -r node state since; do
        # Slurm takes a node that crashed out of the job: it does not come back, even when it is up again.
        grep -qx -- "$node" <<<"$mine" || state=DOWN
        case $state in
        *'*'* | *DOWN* | *FAIL* | *NOT_RESPONDING*)
            down[$node]=1
            leave_node "$node"
            ;;
        *)
            # Who waits here looks after nobody: a node that does not say is not asked at each look.
            if [ "${up_since[$node]:=$since}" = "$since" ] || ((SECONDS < ${ask_again[$node]:-0})); then
                continue
            elif look_into "$node"; then
                up_since[$node]=$since
            else
                ask_again[$node]=$((SECONDS + 30))
            fi
            ;;
        esac
    done < <(sed -n 's/^NodeName=\([^ ]*\).* State=\([^ ]*\).* SlurmdStartTime=\([^ ]*\).*/\1 \2 \3/p' <<<"$list")
}

# Is there at least one of the role that lives or will?
hope_for() { # PREFIX
    local i
    for i in "${!names[@]}"; do
        [[ ${names[i]} == "$1"* ]] && ((failures[i] <= 5)) && return 0
    done
    return 1
}

look_after() {
    local i status
    for i in "${!names[@]}"; do
        if [ -n "${pids[i]}" ]; then
            kill -0 "${pids[i]}" 2>/dev/null && continue
            wait "${pids[i]}"
            status=$?
            if [ -n "$stopping" ]; then
                pids[i]=
                ((status != 0 && status != 143 && worst == 0)) && worst=$status
            else
                ended "$i" "$status"
            fi
        elif [ -z "$stopping" ] && ((failures[i] <= 5 && SECONDS >= again_at[i])) && find_home "$i"; then
            start "$i"
        fi
    done
}

pause() { sleep "$1" & wait $!; } # a signal ends it

# shellcheck disable=SC2016 # expands in the inner shell
http_status() { # ADDR:PORT PATH: the three digits, or nothing
    timeout 5 bash -c 'host=${1%:*} host=${host#[} && exec 3<>"/dev/tcp/${host%]}/${1##*:}" &&
        printf "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" "$2" "$1" >&3 && head -c 12 <&3' \
        - "$1" "$2" 2>/dev/null | tail -c 3
}

# Is it this job's router that listens there? A server of another job may have the port.
# shellcheck disable=SC2317 # called by name
is_ours() { # NAME KEY-FILE PORT
    local inode pid
    while read -r inode; do
        for pid in $(pgrep -f -- "/baton-router --name=$1 "); do
            tr '\0' '\n' <"/proc/$pid/cmdline" 2>/dev/null | grep -qxF -- "--cluster-key-file=$2" || continue
            find "/proc/$pid/fd" -lname "socket:\[$inode\]" 2>/dev/null | grep -q . && return 0
        done
    done < <(awk -v p="$(printf ':%04X$' "$3")" '$4 == "0A" && $2 ~ p { print $10 }' /proc/net/tcp /proc/net/tcp6 2>/dev/null)
    return 1
}

look_for_ready() {
    local i node
    for ((i = 0; i < ROUTERS; i++)); do
        [ "$(http_status "${https[i]}" /v2/health/ready)" = 200 ] || return
        node=${where[i]}
        timeout 10 srun --overlap --mpi=none -N1 -n1 -w "$node" ${group_of[$node]:+--het-group="${group_of[$node]}"} \
            bash -c 'is_ours "$@"' - "$NAME_PREFIX${names[i]}" "$KEY_FILE" "${https[i]##*:}" </dev/null || return
    done
    ready=1
    for ((i = 0; i < ROUTERS; i++)); do
        say "ready after $SECONDS s: http://${https[i]}, gRPC at ${grpcs[i]}, metrics at http://${metrics[i]}/metrics"
    done
    ((ROUTERS > 0)) || { say "started: its workers join $JOIN"; return; }
    [ -z "$key_note" ] || say "clients need the API key in $WORK_DIR/api-key (BATON_API_KEY for ./baton ask)"
    say "more workers: JOIN=$JOIN KEY_FILE=$(printf %q "$KEY_FILE") SUM_PARTS=$SUM_PARTS MOE_PARTS=$MOE_PARTS"
    say "$ask http://${https[0]} The capital of France is"
    say "curl http://${https[0]}/v2/models/ensemble/generate$key_note -d '{\"text_input\": \"The capital of France is\", \"max_tokens\": 8}'"
}

# The step that watches over this script: on the last node but the script's own.
look_after_watch() {
    local node
    [ -n "${watch_pid:-}" ] && kill -0 "$watch_pid" 2>/dev/null && [ -z "${down[$watch_node]:-}" ] && return
    [ -z "${watch_pid:-}" ] || kill -KILL "$watch_pid" 2>/dev/null
    watch_pid=
    for node in "${nodes[@]}"; do
        [[ $node == "${SLURMD_NODENAME:-${nodes[0]}}" || -n ${down[$node]:-} ]] || watch_node=$node watch_pid=found
    done
    [ -n "$watch_pid" ] || return 0
    # The output has to be opened there: this script's srun is no more then.
    srun --overlap --mpi=none --mem=0 -N1 -n1 -w "$watch_node" ${group_of[$watch_node]:+--het-group="${group_of[$watch_node]}"} \
        --job-name=watch bash -c 'watch_script "$@"' - "${SLURMD_NODENAME:-${nodes[0]}}" "${output:-/dev/null}" </dev/null >/dev/null 2>&1 &
    watch_pid=$!
}

any_left() { [ -n "$(tr -d ' ' <<<"${pids[*]}")" ]; }

still_left() { # PREFIX
    local i
    for i in "${!names[@]}"; do
        [[ ${names[i]} == "$1"* && -n ${pids[i]} ]] && return 0
    done
    return 1
}

# Routers end first, since what they have yet to do needs the workers; then the
# workers; then, at the end of the time, what is left. Where Slurm has told them
# all, they end all at once.
end_all() {
    local pid until=$((SECONDS + DRAIN_SECONDS))
    say "stopping"
    if [ "$stopping" = gently ]; then
        signal_steps TERM 'router-.*'
        while still_left router- && ((SECONDS < until)); do look_after; pause 0.2; done
    fi
    [ "$stopping" = told ] || signal_steps TERM '.*-[0-9]+'
    until=$((until + 3))
    while any_left && ((SECONDS < until)); do look_after; pause 0.2; done
    if any_left; then
        say "not ended within $DRAIN_SECONDS s: killed"
        signal_steps KILL '.*-[0-9]+'
        for pid in "${pids[@]}"; do [ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null; done
        while any_left; do look_after; pause 0.2; done
    fi
    signal_steps KILL watch
    [ -z "${watch_pid:-}" ] || kill -KILL "$watch_pid" 2>/dev/null
    say "stopped"
    # Who ends before the time that Slurm gave is not put back into the queue.
    if [ "$stopping" = gently ] && scontrol show job "$job_id" | grep -q 'PreemptTime=[0-9]'; then
        say "preempted: back into the queue"
        trap - EXIT # the keys stay
        scontrol requeue "$job_id"
    fi
    exit "$worst"
}

# scancel sends SIGTERM to every task and to this shell. SIGUSR1, from --signal in
# baton.sbatch (time limit, preemption), comes to this shell alone.
look_after_all() {
    local i node looks=0
    worst=0 ready='' stopping=''
    trap 'stopping=told' TERM
    trap 'stopping=gently' USR1 INT
    look_at_nodes || true # since when they are up: one that starts anew before the next look is seen, too
    for node in "${nodes[@]}"; do
        ((used[$node] <= cpus_on[$node])) || say "$node has ${cpus_on[$node]} processors for ${used[$node]} ranks, which share them"
    done
    say "logs of instances: $logs-INSTANCE.log ($logs-${names[0]}.log …)"
    for i in "${!names[@]}"; do start "$i"; done
    while [ -z "$stopping" ]; do
        pause 0.5
        [ -z "$stopping" ] || break
        look_after
        ((++looks % 4 == 0)) && look_at_nodes
        ((looks % 4 == 0)) && look_after_watch
        [ -n "$ready" ] || look_for_ready
        if [ -z "$ready" ] && ((SECONDS > READY_SECONDS)); then
            say "not ready after $READY_SECONDS s"
            worst=1 stopping=failed
        elif { ((ROUTERS > 0)) && ! hope_for router-; } ||
            { ((ROUTERS > 0 || PREFILL > 0)) && ! hope_for prefill-; } ||
            { ((ROUTERS > 0 || DECODE > 0)) && ! hope_for decode-; }; then
            say "a role has no instance left"
            worst=1 stopping=failed
        fi
    done
    end_all
}
