# vm: smp=2 short
# A client machine with a second set of limits: both get the cap, the lower one holds, and both are put back.
order absent 0 $TWIN 0
order set 0 $TWIN 0x0043832000dd84b0
order demand 0 190000
rapl
module twin
check "there are two zones" [ -d $RAPL/intel-rapl-mmio:0 ]
check "a cap" node cap cap --package 90W
cap_is "the package" 0 90
value=$(register 0 $TWIN)
equal "the twin: PL1, on" "$(pl1 $value) $(pl1_on $value)" "720 1"
sleep 2
within "it runs at its cap" "$(power 0)" 80000 92000
unload twin
equal "the twin's limits are off" "$(pl1_on $(register 0 $TWIN))" 0
node away restore
check "a restore while the twin is away says which zone is away" grep -q 'intel-rapl-mmio\|twin' /tmp/away.out
module twin
check "a restore when it is back" node back restore
equal "the package is as it was" "$(register 0 $LIMIT)" 0x0043896000dd8668
