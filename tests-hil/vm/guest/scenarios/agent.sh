# vm: api limit=200
# The agent as it ships, against an API outside the machine: a cap, an API that is lost while somebody else moves the limit,
# a kill and a restart meanwhile, a change when the API is back, an end, and an object that is deleted.
order demand 0 180000
order demand 1 180000
network
profiles=/apis/joulie.io/v1alpha1/nodepowerprofiles
made() { api POST "$1" "$2" | grep -q ' 201 '; }
cap() { echo '{"spec":{"cpu":{"packagePowerCapWatts":'$1'}}}'; }
check "the Node" made /api/v1/nodes \
    '{"apiVersion":"v1","kind":"Node","metadata":{"name":"node-a","labels":{"joulie.io/managed":"true"}}}'
check "the cap's object" made $profiles '{"apiVersion":"joulie.io/v1alpha1","kind":"NodePowerProfile",
    "metadata":{"name":"node-a"},"spec":{"nodeName":"node-a","profile":"eco","cpu":{"packagePowerCapWatts":120}}}'
rapl
agent() { NODE_NAME=node-a KUBECONFIG=/tmp/kubeconfig joulie-agent >>/tmp/agent.out 2>&1 & agent=$!; }
holds() { for die in 0 1; do [ "$(pl1 $(register $die $LIMIT)) $(pl1_on $(register $die $LIMIT))" = "$(( $1 * 8 )) 1" ] || return 1; done; }
agent
check "the cap is in force within 30 s" settle 30 holds 120
cap_is "package 0" 0 120
cap_is "package 1" 1 120
told() { api GET $profiles/node-a | grep -q "\"message\":\"$1 W for each of 2 packages, read back\""; }
check "the object says so" settle 3 told 120
# Without the API: the limit is held against others, by the next process too.
ip link set eth0 down
echo 200000000 >$RAPL/intel-rapl:0/constraint_0_power_limit_uw
check "without the API a raised limit is lowered again" settle 12 holds 120
order clear
kill -9 $agent
wait $agent
equal "a killed agent leaves the cap" "$(pl1 $(register 0 $LIMIT)) $(pl1 $(register 1 $LIMIT))" "960 960"
agent
sleep 5
check "the next one, still without the API, leaves it" holds 120
equal "and writes nothing to that" "$(writes $LIMIT)" 0
ip link set eth0 up
patched() { api PATCH $profiles/node-a "$(cap $1)" | grep -q ' 200 '; }
check "a change of the object" patched 140
check "the change is in force when the API is back" settle 60 holds 140
cap_is "package 0 then" 0 140
kill -TERM $agent
wait $agent
equal "an agent that is asked to end does" "$?" 0
check "and keeps the cap" holds 140
agent
deleted() { api DELETE $profiles/node-a | grep -q ' 200 '; }
check "the object is deleted" deleted
original() { [ "$(register 0 $LIMIT) $(register 1 $LIMIT)" = "0x0043896000dd8668 0x0043896000dd8668" ]; }
check "every register is as it was" settle 30 original
kill -TERM $agent
