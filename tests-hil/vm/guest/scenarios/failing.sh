# vm: short
# A register that fails, to be read or to be written: the other package is capped, nothing is reported that is not there.
order demand 0 180000
order demand 1 180000
rapl
order unwritable 0 $LIMIT 1
node cap cap --package 120W
equal "a cap that one package does not take is not done" "$?" 1
equal "its register is as it was" "$(register 0 $LIMIT)" 0x0043896000dd8668
equal "the other package is as it was" "$(register 1 $LIMIT)" 0x0043896000dd8668
check "120 W is not reported for it" sh -c '! grep "package-0" /tmp/cap.out | grep -q "read back: 120 W"'
order unwritable 0 $LIMIT 0
check "a restore" node restore restore
equal "package 1 is as it was" "$(register 1 $LIMIT)" 0x0043896000dd8668
order unreadable 0 $LIMIT 1
node blind cap --package 110W
equal "a cap of a package that cannot be read is not done" "$?" 1
order unreadable 0 $LIMIT 0
check "no cap is reported for it" sh -c '! grep "package-0" /tmp/blind.out | grep -q "read back: 110 W"'
equal "the other package is as it was again" "$(register 1 $LIMIT)" 0x0043896000dd8668
node restore2 restore
equal "package 0 has its own limit" "$(pl1 $(register 0 $LIMIT))" 1640
equal "package 1 is as it was" "$(register 1 $LIMIT)" 0x0043896000dd8668
order slow 20000
check "a cap over slow registers" node slow cap --package 100W
cap_is "over slow registers" 0 100
order slow 0
check "its restore" node slow2 restore
equal "package 0 is as it was" "$(pl1 $(register 0 $LIMIT)) $(window1 $(register 0 $LIMIT))" "1640 110"
