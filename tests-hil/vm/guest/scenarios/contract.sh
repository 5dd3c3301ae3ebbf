# vm: limit=240
# The contract of the port, whole and writing, on the kernel's own code: hil --write.
order demand 0 180000
order demand 1 180000
rapl
module frequency kind=any
hil --write --require rapl,cpufreq >/tmp/hil.out 2>&1
equal "hil --write" "$?" 0
check "nothing failed" sh -c '! grep -q "^FAIL" /tmp/hil.out'
within "what passed" "$(grep -c PASS /tmp/hil.out)" 2 1000
equal "package 0 is as it was" "$(register 0 $LIMIT)" 0x0043896000dd8668
equal "package 1 is as it was" "$(register 1 $LIMIT)" 0x0043896000dd8668
equal "every policy is as it was" "$(cat /sys/devices/system/cpu/cpufreq/policy*/scaling_max_freq | sort -u | tr '\n' ' ')" "3200000 "
