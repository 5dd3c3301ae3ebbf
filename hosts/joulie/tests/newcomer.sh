#!/bin/sh
# A newcomer's walk: the README's first command, a look with kubectl, one cap by hand, and what came of it.
#
#   sh hosts/joulie/tests/newcomer.sh
#
# JOULIE is the command that is walked with; the README's is `cargo run --release --`.
set -eu

joulie=${JOULIE:-cargo run --release --quiet --}
folder=$(mktemp -d)
kubeconfig="$folder/kubeconfig"
demo=

finish() {
    [ -z "$demo" ] || kill -INT "$demo" 2>/dev/null || true
    rm -rf "$folder"
}
trap finish EXIT INT TERM

k() {
    kubectl --kubeconfig "$kubeconfig" --cache-dir "$folder/cache" "$@"
}

# Tries for half a minute; what is awaited is said where it does not come.
await() {
    what=$1
    shift
    tries=0
    until "$@" >"$folder/last" 2>&1; do
        tries=$((tries + 1))
        if [ "$tries" -gt 100 ]; then
            echo "walk: $what: it did not come" >&2
            cat "$folder/last" "$folder/demo" >&2
            exit 1
        fi
        sleep 0.3
    done
    echo "walk: $what"
}

# shellcheck disable=SC2086  # the command has words
$joulie demo --for "${SPAN:-20s}" --kubeconfig "$kubeconfig" >"$folder/demo" 2>&1 &
demo=$!

await "the API answers" k get nodes
capped() { [ "$(k get nodepowerprofile "$1" -o "jsonpath={.status.control.cpu.capWatts}")" = "$2" ]; }
some_cap() { [ -n "$(k get nodepowerprofile sim-xeon-0 -o "jsonpath={.status.control.cpu.capWatts}")" ]; }
await "the operator has planned for sim-xeon-0 and its agent has capped it" some_cap

k get nodes,nodepowerprofiles,nodetwins
k patch nodepowerprofile sim-xeon-0 --type merge -p '{"spec":{"cpu":{"packagePowerCapWatts":160}}}'
await "160 W by hand are in force on sim-xeon-0" capped sim-xeon-0 160
sleep 3
await "and the operator has left them alone" capped sim-xeon-0 160

status=0
wait "$demo" || status=$?
demo=
cat "$folder/demo"
[ "$status" -eq 0 ] || { echo "walk: the demo ended with $status" >&2; exit 1; }
grep -q "0 performance pods placed on eco nodes" "$folder/demo" || { echo "walk: pods were misplaced" >&2; exit 1; }
echo "walk: done"
