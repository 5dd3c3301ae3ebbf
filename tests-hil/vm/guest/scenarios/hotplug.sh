# vm: short
# The processors of a package go offline and come back while a cap holds: the kernel switches its limits off, the hold
# switches them on again, and what was in force comes back in the end.
order demand 0 180000
order demand 1 180000
rapl
hold --package 120W --for 60s
settle 10 grep -q 'in force' /tmp/cap.out
cap_is "before" 1 120
for cpu in 2 3; do echo 0 >/sys/devices/system/cpu/cpu$cpu/online; done
equal "the zone is gone" "$(ls -d $RAPL/intel-rapl:? | wc -l)" 1
equal "the kernel switched the limits off" "$(pl1_on $(register 1 $LIMIT)) $(pl2_on $(register 1 $LIMIT))" "0 0"
sleep 3
cap_is "the other package meanwhile" 0 120
for cpu in 2 3; do echo 1 >/sys/devices/system/cpu/cpu$cpu/online; done
on_again() { [ "$(pl1_on $(register 1 $LIMIT))" = 1 ] && [ "$(pl1 $(register 1 $LIMIT))" = 960 ]; }
check "the cap is in force again within 8 s" settle 8 on_again
let_go
equal "package 0 is as it was" "$(register 0 $LIMIT)" 0x0043896000dd8668
equal "package 1 is as it was" "$(register 1 $LIMIT)" 0x0043896000dd8668
