# vm:
# The driver is unloaded and loaded anew while a cap holds, and while nobody holds it.
order demand 0 180000
order demand 1 180000
rapl
joulie node cap --package 120W --for 20s >/tmp/cap.out 2>&1 &
settle 10 grep -q 'in force' /tmp/cap.out
unload intel_rapl_msr intel_rapl_common
equal "the limits are off" "$(pl1_on $(register 0 $LIMIT)) $(pl1_on $(register 1 $LIMIT))" "0 0"
sleep 2
rapl
capped() { for die in 0 1; do [ "$(pl1 $(register $die $LIMIT)) $(pl1_on $(register $die $LIMIT))" = "960 1" ] || return 1; done; }
check "the cap is in force again within 8 s" settle 8 capped
wait
equal "package 0 is as it was" "$(register 0 $LIMIT)" 0x0043896000dd8668
equal "package 1 is as it was" "$(register 1 $LIMIT)" 0x0043896000dd8668
check "a cap that stays" node stay cap --package 110W
unload intel_rapl_msr intel_rapl_common
rapl
check "a restore after a reload" node restore restore
equal "package 0 is as it was" "$(register 0 $LIMIT)" 0x0043896000dd8668
equal "package 1 is as it was" "$(register 1 $LIMIT)" 0x0043896000dd8668
