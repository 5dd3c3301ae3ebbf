# vm: limit=150
# A lock that the firmware sets after or before the driver was loaded: a refusal is said, nothing is written, and nothing
# is reported that is not in force.
order demand 0 180000
order demand 1 180000
rapl
check "a cap before the lock" node cap1 cap --package 130W
cap_is "before the lock" 1 130
# On a machine that answers ok and keeps the register: 6.1 then says nothing of it.
order faults 0
order set 1 $LIMIT $(printf 0x%x $(( $(register 1 $LIMIT) | 1 << 63 )))
held=$(register 1 $LIMIT)
node cap2 cap --package 100W
equal "a cap after the lock is not done" "$?" 1
equal "the register is as the lock holds it" "$(register 1 $LIMIT)" "$held"
check "100 W is not reported for package 1" sh -c '! grep "package-1" /tmp/cap2.out | grep -q "read back: 100 W"'
node restore2 restore
equal "a restore that cannot be is not done" "$?" 1
equal "and the register is as the lock holds it" "$(register 1 $LIMIT)" "$held"
# From the first, on a machine that faults.
order set 1 $LIMIT 0x0043896000dd8668
check "the restore once the lock is gone" node restore3 restore
equal "package 0 is as it was" "$(register 0 $LIMIT)" 0x0043896000dd8668
unload intel_rapl_msr intel_rapl_common
order set 0 $LIMIT 0x8043896000dd8668
order set 1 $LIMIT 0x0043896000dd8668
order faults 1
rapl
order clear
joulie node show >/tmp/show.out 2>&1
check "show does not call a locked limit none" sh -c '! grep "package-0" /tmp/show.out | grep -qi "limits nothing"'
node cap cap --package 120W
equal "a cap that one package refuses is not done" "$?" 1
equal "the locked register is as it was" "$(register 0 $LIMIT)" 0x8043896000dd8668
equal "the other package is as it was" "$(register 1 $LIMIT)" 0x0043896000dd8668
check "the refusal is told" grep -i -q 'lock' /tmp/cap.out
