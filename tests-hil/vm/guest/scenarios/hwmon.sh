# vm: amd
# EPYC sockets and amdgpu cards below hwmon: caps go to each, a card refuses what is out of its range, and both come back.
rapl
module cards sockets=2 gpus=2
noted() { sed -n "s/.* $1 0x[0-9a-f]* \(0x[0-9a-f]*\) 0$/\1/p" /proc/silicon/log | tail -1; }
cap_of() { cat /sys/class/hwmon/hwmon$1/power1_cap; }
equal "names" "$(cat /sys/class/hwmon/hwmon?/name | sort | uniq -c | tr -s ' \n' ' ')" " 2 amd_hsmp_hwmon 2 amdgpu "
check "a cap of sockets" node cap cap --package 200W
equal "socket 0" "$(( $(noted 0xf1000000) ))" 200000000
equal "socket 1" "$(( $(noted 0xf1000001) ))" 200000000
check "a cap of cards" node gpu cap --gpu 222W
equal "card 0" "$(( $(noted 0xf1000002) ))" 222000000
equal "card 1" "$(( $(noted 0xf1000003) ))" 222000000
node low cap --gpu 10W
check "a cap below the range is not undercut" [ "$(( $(noted 0xf1000002) ))" -ge 150000000 ]
check "a restore" node restore restore
for at in 0 1; do equal "socket $at is as it was" "$(( $(noted 0xf100000$at) ))" 280000000; done
for at in 2 3; do equal "card $at is as it was" "$(( $(noted 0xf100000$at) ))" 300000000; done
