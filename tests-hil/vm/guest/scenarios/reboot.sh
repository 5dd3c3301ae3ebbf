# vm: disk boots=2
# The journal is on a disk. A reboot gives the registers back to the firmware, so what it holds is void and nothing is
# written.
disk
order demand 0 180000
rapl
if [ "$BOOT" = 1 ]; then
    check "a cap" node cap cap --package 120W
    cap_is "before the reboot" 0 120
else
    order set 0 $LIMIT 0x0043896000dd8640
    order clear
    joulie node show >/tmp/show.out 2>&1
    check "the journal is void" grep -q 'void' /tmp/show.out
    check "a restore has nothing to do" node restore restore
    equal "nobody wrote" "$(writes $LIMIT)" 0
    check "a cap of this boot" node cap cap --package 110W
    check "its restore" node restore2 restore
    equal "the firmware's limit of this boot is back" "$(register 0 $LIMIT)" 0x0043896000dd8640
fi
umount /var/lib/joulie
