# vm:
# Another writer moves limits, switches them off and lowers them while a cap holds.
order demand 0 180000
order demand 1 180000
rapl
zone=$RAPL/intel-rapl:0
hold --package 120W --for 60s
settle 10 grep -q 'in force' /tmp/cap.out
capped() { [ "$(pl1 $(register 0 $LIMIT)) $(pl1_on $(register 0 $LIMIT))" = "960 1" ]; }
echo 200000000 >$zone/constraint_0_power_limit_uw
check "a raised limit is lowered again within 8 s" settle 8 capped
echo 0 >$zone/enabled
check "a limit that was switched off is on again within 12 s" settle 12 capped
echo 80000000 >$zone/constraint_0_power_limit_uw
sleep 3
check "a lower limit of somebody else is not raised above the cap" [ "$(pl1 $(register 0 $LIMIT))" -le 960 ]
let_go
equal "package 1 is as it was" "$(register 1 $LIMIT)" 0x0043896000dd8668
equal "package 0 has its own limit" "$(pl1 $(register 0 $LIMIT)) $(pl1_on $(register 0 $LIMIT))" "1640 1"
