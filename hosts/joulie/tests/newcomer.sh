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
in_force() { k get nodepowerprofile sim-epyc-1 -o "jsonpath={.status.control.cpu.capWatts}"; }
# The budget's grant may allow less.
capped() { in_force | awk -v most="$1" '{ exit !($1 > 0 && $1 <= most) }'; }
by_hand() { capped 210 && [ "$(k get nodepowerprofile sim-epyc-1 -o "jsonpath={.spec.cpu.packagePowerCapWatts}")" = 210 ]; }
some_cap() { [ -n "$(in_force)" ]; }
await "the operator has planned for sim-epyc-1 and its agent has capped it" some_cap

k get nodes,nodepowerprofiles,nodetwins
k patch nodepowerprofile sim-epyc-1 --type merge -p '{"spec":{"cpu":{"packagePowerCapWatts":210}}}'
await "210 W by hand are in force on sim-epyc-1" by_hand
sleep 3
await "and the operator has left them alone" by_hand

status=0
wait "$demo" || status=$?
demo=
cat "$folder/demo"
[ "$status" -eq 0 ] || { echo "walk: the demo ended with $status" >&2; exit 1; }
grep -q "0 performance pods placed on eco nodes" "$folder/demo" || { echo "walk: pods were misplaced" >&2; exit 1; }
echo "walk: done"
