# vm: limit=150
# The loop under a lock, and then without a meter: the driver is unloaded, nothing tells the power, and the clocks go to
# their lowest within seconds.
order set 0 $LIMIT 0x8043896000dd8668
order set 1 $LIMIT 0x8043896000dd8668
order demand 0 123000
order demand 1 123000
rapl
module frequency kind=any
policies=/sys/devices/system/cpu/cpufreq
limits() { cat $policies/policy*/scaling_max_freq | sort -u | tr '\n' ' '; }
sum() { echo $(( $(power 0) + $(power 1) )); }
hold --package 120W --law classic --for 90s
check "the loop holds the cap" settle 20 grep -q 'held for' /tmp/cap.out
order demand 0 180000
order demand 1 180000
unload intel_rapl_msr intel_rapl_common
begun=$(cut -d. -f1 /proc/uptime)
lowest() { [ "$(limits)" = "1200000 " ]; }
check "the lowest clock within 15 s" settle 15 lowest
took=$(( $(cut -d. -f1 /proc/uptime) - begun ))
say "BAR vm seconds-to-the-lowest-clock-unmetered $took 15 $([ $took -le 15 ] && echo PASS || echo FAIL)"
within "the power then" "$(sum)" 60000 240000
sleep 4
check "it stays there" lowest
# The firmware's lock is gone when the driver comes back, so limits hold again and the clocks are free.
order set 0 $LIMIT 0x0043896000dd8668
order set 1 $LIMIT 0x0043896000dd8668
rapl
capped() { [ "$(pl1 $(register 0 $LIMIT)) $(pl1_on $(register 0 $LIMIT))" = "960 1" ]; }
check "limits hold again within 12 s" settle 12 capped
free() { [ "$(limits)" = "3200000 " ]; }
check "and the clocks are free within 8 s" settle 8 free
let_go
check "that is said" grep -q 'instead of the closed loop' /tmp/cap.out
equal "package 0 is as it was" "$(register 0 $LIMIT)" 0x0043896000dd8668
equal "package 1 is as it was" "$(register 1 $LIMIT)" 0x0043896000dd8668
