# vm: smp=4,sockets=1,dies=2,cores=2
# Two dies in one package: each has a zone and a register of its own.
order demand 0 180000
order demand 1 180000
rapl
equal "zones" "$(cat $RAPL/intel-rapl:?/name | sort | tr '\n' ' ')" "package-0-die-0 package-0-die-1 "
check "a cap" node cap cap --package 100W
cap_is "die 0" 0 100
cap_is "die 1" 1 100
check "both are named" sh -c 'grep -q "package-0-die-0" /tmp/cap.out && grep -q "package-0-die-1" /tmp/cap.out'
check "a restore" node restore restore
equal "die 0 is as it was" "$(register 0 $LIMIT)" 0x0043896000dd8668
equal "die 1 is as it was" "$(register 1 $LIMIT)" 0x0043896000dd8668
unload intel_rapl_msr intel_rapl_common
# By registers, after the driver switched its limits off.
order set 0 $LIMIT 0x0043896000dd8668
order set 1 $LIMIT 0x0043896000dd8668
module msr
check "a cap by registers" node msr cap --package 90W --registers msr
cap_is "die 0 by registers" 0 90
cap_is "die 1 by registers" 1 90
check "its restore" node msrback restore --registers msr
equal "die 0 is as it was" "$(register 0 $LIMIT)" 0x0043896000dd8668
equal "die 1 is as it was" "$(register 1 $LIMIT)" 0x0043896000dd8668
