# vm: short
# A short-term limit of 0 W that is off stays without effect through a cap, a rival that switches the zone off, a cap
# again and a restore.
order set 0 $LIMIT 0x0000000000dd8668
order demand 0 190000
rapl
zone=$RAPL/intel-rapl:0
check "the zone is there" [ "$(cat $zone/name)" = package-0 ]
equal "PL2 is 0 W and off" "$(register 0 $LIMIT)" 0x0000000000dd8668
check "a cap" node cap cap --package 120W
cap_is "after the cap" 0 120
echo 0 >$zone/enabled
equal "a rival switched it off" "$(pl1_on $(register 0 $LIMIT))" 0
check "a cap again" node again cap --package 110W
value=$(register 0 $LIMIT)
equal "the cap after the rival" "$(pl1 $value)" 880
equal "it is on and clamps" $(( value >> 15 & 3 )) 3
equal "PL2, now on, limits nothing" "$(pl2 $value)" 32767
sleep 2
within "the machine runs at its cap" "$(power 0)" 100000 112000
check "a restore" node restore restore
value=$(register 0 $LIMIT)
equal "PL1 is back" "$(pl1 $value)" 1640
equal "the window is back" "$(window1 $value)" 110
check "PL2 limits nothing" [ "$(pl2_on $value)" = 0 -o "$(pl2 $value)" = 32767 ]
sleep 3
within "the machine runs free" "$(power 0)" 185000 191000
# The same with the zone off from the first, whatever its short-term limit says: what was off is off again, bit for bit.
for was in 0x0000000000dc0668 0x0042096000dc0668; do
    order set 0 $LIMIT $was
    check "a cap over a zone that is off" node off cap --package 120W
    cap_is "over a zone that is off" 0 120
    check "its restore" node restore2 restore
    equal "the register is as it was" "$(register 0 $LIMIT)" $was
done
sleep 3
within "the machine runs free after that" "$(power 0)" 185000 191000
