# vm: limit=200
# SIGKILL behind each register write of a cap and of a restore: the next restore puts back what was in force before the
# first cap, and no instant of it is above both the old and the new limit.
order demand 0 180000
rapl
killed=0
for at in 1 2 3 4 5 6 7 8 9 10 11 12; do
    order kill $at
    joulie node cap --package 120W --period 200ms >/tmp/cap.out 2>&1
    status=$?
    order kill 0
    [ $status = 0 ] || killed=$((killed + 1))
    joulie node restore --period 200ms >/tmp/restore.out 2>&1
    both="$(register 0 $LIMIT) $(register 1 $LIMIT)"
    equal "killed behind write $at of a cap (status $status), restored" "$both" "0x0043896000dd8668 0x0043896000dd8668"
    [ $status = 0 ] && break
done
within "writes of a cap" $killed 4 11
killed=0
for at in 1 2 3 4 5 6 7 8 9 10 11 12; do
    joulie node cap --package 120W --period 200ms >/tmp/cap.out 2>&1
    order kill $at
    joulie node restore --period 200ms >/tmp/half.out 2>&1
    status=$?
    order kill 0
    [ $status = 0 ] || killed=$((killed + 1))
    joulie node restore --period 200ms >/tmp/restore.out 2>&1
    both="$(register 0 $LIMIT) $(register 1 $LIMIT)"
    equal "killed behind write $at of a restore (status $status), restored" "$both" "0x0043896000dd8668 0x0043896000dd8668"
    [ $status = 0 ] && break
done
within "writes of a restore" $killed 4 11
