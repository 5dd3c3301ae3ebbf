#!/bin/sh
# A newcomer's walk: the commands of docs/INSTALL.md, "By Helm", from a cluster without Joulie to the first capped node and `helm test`;
# then those of "Upgrade" and "Uninstall", until nothing of it is left; then the same by kustomize.
#
#   sh tests-hil/system/tests/newcomer.sh
#
# The cluster is the real control plane of tests-hil/cluster, whose nodes run no containers. So this script is the container runtime of
# what counts: it starts the command of one operator's pod, of the agent's pod on node-0 and of the pods that end by themselves, with the
# environment that the pod says and a token of that very pod. node-0 is the virtual machine of tests-hil/rig, in the place of the host's
# folders.
#
# HELM is helm, and the other variables below are the built programs. CONFIG is the kubeconfig of a control plane that runs already.
set -eu

root=$(cd "$(dirname "$0")/../../.." && pwd)
HELM=${HELM:-helm}
OPERATOR=${OPERATOR:-$root/target/debug/joulie-operator}
AGENT=${AGENT:-$root/target/debug/joulie-agent}
RIG=${RIG:-$root/target/debug/rig}
CLUSTER=${CLUSTER:-$root/target/debug/cluster}
folder=$(mktemp -d)
started=
programs=

finish() {
    status=$?
    trap - EXIT
    for pid in $started $programs; do kill "$pid" 2>/dev/null || true; done
    # The machine goes when its standard input is closed, the control plane by its own watchdog.
    exec 9>&-
    for pid in $started $programs; do wait "$pid" 2>/dev/null || true; done
    umount "$folder/machine" 2>/dev/null || true
    [ "$status" -eq 0 ] || tail -n 20 "$folder"/*.log >&2
    rm -rf "$folder"
    exit "$status"
}
trap finish EXIT
trap 'exit 1' INT TERM

fail() {
    echo "walk: $1" >&2
    exit 1
}

# Tries for a minute.
await() {
    what=$1
    shift
    tries=0
    until "$@" >"$folder/last.log" 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -le 120 ] || fail "$what: it did not come"
        sleep 0.5
    done
    echo "walk: $what"
}

mkfifo "$folder/input"
mkdir "$folder/machine"
"$RIG" xeon-2s "$folder/machine" <"$folder/input" >"$folder/rig.log" 2>&1 &
started="$!"
exec 9>"$folder/input"
await "a machine with power limits" test -e "$folder/machine/sys/class/powercap"
if [ -z "${CONFIG:-}" ]; then
    "$CLUSTER" up --folder "$folder/cluster" >"$folder/cluster.log" 2>&1 &
    started="$started $!"
    await "a cluster without Joulie" grep -q "^ready" "$folder/cluster.log"
    CONFIG="$folder/cluster/admin.kubeconfig"
fi
export KUBECONFIG="$CONFIG"
export HELM_PLUGINS=/nonexistent HELM_CACHE_HOME="$folder/helm" HELM_CONFIG_HOME="$folder/helm" HELM_DATA_HOME="$folder/helm"

k() { kubectl -n joulie-system --cache-dir "$folder/cache" "$@"; }

pod_of() { k get pods -l "app.kubernetes.io/component=$1" --field-selector "$2" -o "jsonpath={.items[0].metadata.name}"; }

# The environment that a pod says, in the shape of `env`; a few settings are of this place and not of a node.
environment() {
    k get pod "$1" -o go-template='{{range (index .spec.containers 0).env}}{{.name}}={{if .value}}{{.value}}{{else}}{{with .valueFrom}}{{.fieldRef.fieldPath}}{{end}}{{end}}{{"\n"}}{{end}}' |
        sed -e "s/=metadata.name\$/=$1/" -e "s/=metadata.namespace\$/=joulie-system/" -e "s/=spec.nodeName\$/=node-0/" \
            -e "s|^HOST_ROOT=.*|HOST_ROOT=$folder/machine|" -e "s|^STATE_DIR=.*|STATE_DIR=$folder/state|" \
            -e "s/^METRICS_ADDR=.*/METRICS_ADDR=127.0.0.1:0/" -e "s|^JOULIE_CONFIG=.*|JOULIE_CONFIG=$folder/operator.conf|"
}

# What a container runtime does: the pod's command, its environment, and a token of the pod.
container() {
    pod=$1
    account=$(k get pod "$pod" -o "jsonpath={.spec.serviceAccountName}")
    command=$(k get pod "$pod" -o "jsonpath={.spec.containers[0].command[*]}")
    token=$(k create token "$account" --bound-object-kind Pod --bound-object-name "$pod")
    cp "$KUBECONFIG" "$folder/$pod.kubeconfig"
    kubectl --kubeconfig "$folder/$pod.kubeconfig" config set-credentials pod --token "$token" >/dev/null
    kubectl --kubeconfig "$folder/$pod.kubeconfig" config set-context --current --user pod >/dev/null
    environment "$pod" >"$folder/$pod.env"
    set -- "KUBECONFIG=$folder/$pod.kubeconfig"
    while read -r line; do [ -z "$line" ] || set -- "$@" "$line"; done <"$folder/$pod.env"
    case "$command" in
    joulie-operator)
        k get configmap joulie-operator-config -o "jsonpath={.data.operator\.conf}" >"$folder/operator.conf"
        exec env -i "PATH=$PATH" "$@" "$OPERATOR"
        ;;
    "joulie-operator check") exec env -i "PATH=$PATH" "$@" "$OPERATOR" check ;;
    "joulie-operator uninstall") exec env -i "PATH=$PATH" "$@" "$OPERATOR" uninstall ;;
    joulie-agent) exec env -i "PATH=$PATH" "$@" "$AGENT" ;;
    *) fail "no container for $command" ;;
    esac
}

# Whether there is a pod of a component that is on a node and has not ended.
waits() { [ -n "$(pod_of "$1" "$unended" 2>/dev/null)" ]; }

unended=spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed

# A pod that ends by itself, when it comes: run, and its end told as a kubelet does. If none comes within a minute the walk fails: at once,
# or, where this runs beside helm, when helm's own --timeout is over.
ends() {
    await "a pod of $1" waits "$1"
    pod=$(pod_of "$1" "$unended")
    phase=Succeeded
    (container "$pod") >"$folder/$1.log" 2>&1 || phase=Failed
    k patch pod "$pod" --subresource status --type merge -p "{\"status\":{\"phase\":\"$phase\"}}" >/dev/null
}

# The pods of one operator and of the agent on node-0 run.
begin() {
    await "an operator's pod" pod_of operator status.phase=Running
    await "the agent's pod on node-0" pod_of agent spec.nodeName=node-0,status.phase=Running
    (container "$(pod_of operator status.phase=Running)") >"$folder/operator.log" 2>&1 &
    programs="$!"
    (container "$(pod_of agent spec.nodeName=node-0,status.phase=Running)") >"$folder/agent.log" 2>&1 &
    programs="$programs $!"
}

# Their pods are gone, so a kubelet ends them.
end() {
    for pid in $programs; do kill "$pid"; done
    for pid in $programs; do wait "$pid" || true; done
    programs=
}

register() { cat "$folder/machine/sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw"; }

holds() { [ "$(register)" = "$1" ]; }

enforced() { k get npp node-0 -o 'jsonpath={.status.conditions[?(@.type=="CapEnforced")].status}' | grep -q True; }

# A block of commands of a chapter, one in a line, with what a person fills in: `block HEADING NUMBER`.
block() {
    awk -v heading="$1" -v number="$2" '
        /^##+ / { inside = ($0 == heading) }
        inside && /^```sh/ { blocks += 1; on = 1; next }
        /^```/ { on = 0 }
        inside && on && blocks == number' "$root/docs/INSTALL.md" |
        sed -e 's/  *#.*//' -e 's|REGISTRY/|registry.example/|; s/TAG/walked/; s/ NODE / node-0 /' -e 's/ --logs//' |
        sed -e ':again' -e '/\\$/N; s/\\\n *//; tagain'
}

# Everything with our label, except what the test left for its log.
ours() {
    kinds=all,configmaps,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,poddisruptionbudgets,crds
    kinds=$kinds,flowschemas,prioritylevelconfigurations,validatingadmissionpolicies,validatingadmissionpolicybindings
    kubectl get "$kinds" -A -l app.kubernetes.io/part-of=joulie -o name | grep -v '^pod/joulie-check$' || true
}

nothing_of() { [ -z "$("$@")" ]; }

kinds() { kubectl get crds -o name | grep 'joulie\.io$' || true; }

leases() { k get leases -o name; }

marks() { kubectl get node node-0 -o yaml | grep 'joulie\.io/' | grep -v 'joulie\.io/managed: "true"' || true; }

taken_away() {
    end
    holds "$original" || fail "node-0 has a limit of $(register) and not its own, $original"
    await "no lease is left" nothing_of leases
    await "nothing with our label is left" nothing_of ours
    nothing_of marks || fail "on node-0 is left: $(marks)"
}

original=$(register)
block '## By Helm' 1 >"$folder/commands"
count=$(wc -l <"$folder/commands")
# Before them: the image is built, and copied to a registry.
[ "$count" -ge 4 ] && [ "$((count + 2))" -le 10 ] || fail "the chapter has $count commands"
cap=$(grep '^kubectl patch npp ' "$folder/commands")
block '### Upgrade' 1 >>"$folder/commands"
block '### Uninstall' 1 >>"$folder/commands"
block '### By kustomize' 1 >>"$folder/commands"
echo "$cap" >>"$folder/commands"
block '### Uninstall' 2 >>"$folder/commands"

cd "$root"
while read -r line; do
    echo "\$ $line"
    case "$line" in
    "helm install joulie "*)
        eval "$HELM ${line#helm }" </dev/null
        begin
        ;;
    "kubectl patch npp "*)
        await "node-0 is planned for" enforced
        eval "$line" </dev/null
        await "80 % of 250 W are in the register of node-0" holds 200000000
        ;;
    "helm test "*)
        ends check &
        started="$started $!"
        eval "$HELM ${line#helm }" </dev/null || { cat "$folder/check.log" >&2; fail "helm test failed"; }
        cat "$folder/check.log"
        ;;
    "helm upgrade joulie "*)
        before=$(k get pods -o name)
        eval "$HELM ${line#helm }" </dev/null
        [ "$(k get pods -o name)" = "$before" ] || fail "an upgrade without another value replaced a pod"
        holds 200000000 || fail "the upgrade let the cap go"
        ;;
    "helm uninstall joulie "*)
        ends uninstall &
        started="$started $!"
        eval "$HELM ${line#helm }" </dev/null || { cat "$folder/uninstall.log" >&2; fail "helm uninstall failed"; }
        cat "$folder/uninstall.log"
        taken_away
        ;;
    "kubectl delete crd "*)
        eval "$line" </dev/null
        nothing_of kinds || fail "kinds are left: $(kinds)"
        kubectl delete namespace joulie-system </dev/null
        ;;
    "helm "*) eval "$HELM ${line#helm }" </dev/null ;;
    "kubectl label "*)
        eval "$line" </dev/null
        await "the cap of node-0 is in force, and read back" enforced
        ;;
    "kubectl apply -k hosts/deploy/kustomize/uninstall")
        eval "$line" </dev/null
        ends uninstall
        cat "$folder/uninstall.log"
        ;;
    "kubectl apply "*)
        eval "$line" </dev/null
        begin
        ;;
    "kubectl delete -k "*)
        eval "$line" </dev/null
        taken_away
        ;;
    *) eval "$line" </dev/null ;;
    esac
done <"$folder/commands"

echo "walk: done, with $((count + 2)) commands until the cap, and nothing is left"
