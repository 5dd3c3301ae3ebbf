# vm:
# The frequency driver is switched while the loop's limits stand: the new driver's highest clock is the original, not the
# old one's.
order set 0 $LIMIT 0x8043896000dd8668
order set 1 $LIMIT 0x8043896000dd8668
order demand 0 180000
order demand 1 180000
rapl
module frequency kind=any
policies=/sys/devices/system/cpu/cpufreq
limits() { cat $policies/policy*/scaling_max_freq | sort -u | tr '\n' ' '; }
lowered() { [ "$(cat $policies/policy0/scaling_max_freq)" -lt $1 ]; }
hold --package 110W --law tracking --for 60s
check "limits come down" settle 15 lowered 3200000
unload frequency
sleep 1
module frequency kind=self highest=3600000
check "and under the new driver" settle 15 lowered 3600000
let_go
equal "the new driver's highest clock" "$(limits)" "3600000 "
# The same over the end of a command.
joulie node cap --package 110W --law tracking >/tmp/stay.out 2>&1 &
check "limits come down again" settle 15 lowered 3600000
kill -9 $!
sleep 1
unload frequency
module frequency kind=any
check "a restore" node restore restore
equal "the first driver's highest clock" "$(limits)" "3200000 "
