# vm: short
# By registers: two packages are two packages on every kernel, processors that are offline are told from registers that do
# not exist, and a cap that was set by registers is undone when the driver has come meanwhile.
order demand 0 180000
order demand 1 180000
module msr
joulie node show --registers msr >/tmp/show.out 2>&1
check "plain packages" sh -c 'grep -q "package-0" /tmp/show.out && grep -q "package-1" /tmp/show.out && ! grep -q "die" /tmp/show.out'
check "a cap" node cap cap --package 120W --registers msr
cap_is "package 0" 0 120
cap_is "package 1" 1 120
for die in 0 1; do equal "one write of package $die" "$(grep joulie /proc/silicon/log | grep -c " $(( die * 2 )) $LIMIT ")" 1; done
check "a restore" node restore restore --registers msr
equal "package 0 is as it was" "$(register 0 $LIMIT)" 0x0043896000dd8668
equal "package 1 is as it was" "$(register 1 $LIMIT)" 0x0043896000dd8668
for cpu in 2 3; do echo 0 >/sys/devices/system/cpu/cpu$cpu/online; done
check "a cap while package 1 is offline" node half cap --package 110W --registers msr
cap_is "package 0 alone" 0 110
equal "nobody wrote package 1" "$(register 1 $LIMIT)" 0x0043896000dd8668
for cpu in 2 3; do echo 1 >/sys/devices/system/cpu/cpu$cpu/online; done
check "a restore of it" node half2 restore --registers msr
equal "package 0 is as it was" "$(register 0 $LIMIT)" 0x0043896000dd8668
# The driver comes while a cap of the registers stands, and takes it for the owner's limit.
check "a cap that stays" node stay cap --package 100W --registers msr
rapl
node late restore
equal "a restore with the driver loaded is done" "$?" 0
equal "package 0 has its own limit" "$(pl1 $(register 0 $LIMIT)) $(pl1_on $(register 0 $LIMIT))" "1640 1"
equal "package 1 has its own limit" "$(pl1 $(register 1 $LIMIT)) $(pl1_on $(register 1 $LIMIT))" "1640 1"
