# vm: limit=150
# The table of what the kernel answers, which the rig's tests read: `file written errno read` a line.
rapl
module msr
zone=$RAPL/intel-rapl:0
# What the shell says of a failed write, as an errno.
number() {
    case $1 in
        *"No data available"*) echo ENODATA ;; *"Function not implemented"*) echo ENOSYS ;;
        *"Invalid argument"*) echo EINVAL ;; *"Numerical result out of range"*|*"Result not representable"*) echo ERANGE ;;
        *"Device or resource busy"*) echo EBUSY ;; *"I/O error"*|*"Input/output error"*) echo EIO ;;
        *"Operation not permitted"*) echo EPERM ;; *"No such device or address"*) echo ENXIO ;; "") echo ok ;; *) echo "other:$1" ;;
    esac
}
try() { # LABEL FILE TEXT
    said=$(printf '%s' "$3" 2>/dev/null | busybox dd of="$2" bs=64 2>&1 >/dev/null | grep -v records)
    [ -n "$said" ] && said=${said##*: }
    say "GOLDEN $1 $(printf '%s' "$3" | tr ' \n' '~+') $(number "$said") $(cat $2 2>&1 | tr ' ' '~')"
}
for text in 100123456 99999999 124999 1 0 4095875000 4096000000 5000000000 18446744073709551615 -1 abc 0x10 100.5 '100000000 ' '100000000
'; do
    try power $zone/constraint_0_power_limit_uw "$text"
done
for text in 1000000 28000000 10000000 2440 40000000 900 0; do try window $zone/constraint_0_time_window_us "$text"; done
echo 200000000 >$zone/constraint_0_power_limit_uw
for text in 1 0 1 7; do try enabled $zone/enabled "$text"; done
equal "enabled=1 switches the short-term limit on as well" "$(pl1_on $(register 0 $LIMIT)) $(pl2_on $(register 0 $LIMIT))" "1 1"
say "GOLDEN range - ok $(cat $zone/max_energy_range_uj)"
# Locked after the driver was loaded, on a machine that says nothing and on one that faults.
for faults in 0 1; do
    order faults $faults
    order set 0 $LIMIT 0x8043896000dd8668
    try late-lock-faults-$faults-power $zone/constraint_0_power_limit_uw 100000000
    try late-lock-faults-$faults-window $zone/constraint_0_time_window_us 1000000
    try late-lock-faults-$faults-enabled $zone/enabled 1
done
unload intel_rapl_msr intel_rapl_common
rapl
zone=$RAPL/intel-rapl:0
try lock-power $zone/constraint_0_power_limit_uw 100000000
try lock-window $zone/constraint_0_time_window_us 1000000
try lock-enabled $zone/enabled 1
order set 1 $LIMIT 0x0043896000dd8668
for cpu in 2 3; do echo 0 >/sys/devices/system/cpu/cpu$cpu/online; done
say "GOLDEN offline-limits - ok $(pl1_on $(register 1 $LIMIT))$(pl2_on $(register 1 $LIMIT))"
for cpu in 2 3; do echo 1 >/sys/devices/system/cpu/cpu$cpu/online; done
say "GOLDEN online-enabled - ok $(cat $RAPL/intel-rapl:1/enabled)"
module frequency kind=table shared=2
file=/sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq
for text in 2000000 2100000 1900000 100 0 999999999 2400000xyz 0x1 4294967296 -1 abc; do
    echo 3200000 >$file; sleep 0.1 2>/dev/null || usleep 100000
    said=$(printf '%s' "$text" 2>/dev/null | busybox dd of=$file bs=64 2>&1 >/dev/null | grep -v records)
    [ -n "$said" ] && said=${said##*: }
    usleep 100000
    say "GOLDEN frequency $text $(number "$said") $(cat $file)"
done
for cpu in 2 3; do echo 0 >/sys/devices/system/cpu/cpu$cpu/online; done
say "GOLDEN inactive-policy - $(number "$(cat /sys/devices/system/cpu/cpufreq/policy2/scaling_max_freq 2>&1 >/dev/null | sed 's/.*: //')") -"
