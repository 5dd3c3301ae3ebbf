# vm: keep disk
# kexec: another boot id, and the registers still hold the cap. What the journal holds is what was in force before it.
disk
order demand 0 180000
order demand 1 180000
if ! grep -q vm.again /proc/cmdline; then
    rapl
    check "a cap" node cap cap --package 120W
    cap_is "before kexec" 0 120
    cp /vm/vmlinuz /tmp/vmlinuz
    mkdir -p /tmp/rd
    (cd / && find init bin lib lib64 usr sbin vm -not -path 'vm/vmlinuz*' | cpio -o -H newc 2>/dev/null) >/tmp/initrd
    umount /var/lib/joulie
    say "NOTE the next kernel starts"
    check "starting the next kernel" kexec /tmp/vmlinuz /tmp/initrd "$(cat /proc/cmdline) vm.again"
else
    equal "the loader" "$(cat /proc/sys/kernel/bootloader_type)" 208
    equal "the registers hold the cap" "$(pl1 $(register 0 $LIMIT)) $(pl1_on $(register 0 $LIMIT))" "960 1"
    rapl
    joulie node show >/tmp/show.out 2>&1
    check "the limits are ours" sh -c '! grep -q "no limit is ours" /tmp/show.out'
    check "a lower cap" node lower cap --package 110W
    cap_is "after kexec" 0 110
    check "a restore" node restore restore
    equal "package 0 is as it was before the first cap" "$(register 0 $LIMIT)" 0x0043896000dd8668
    equal "package 1 is as it was before the first cap" "$(register 1 $LIMIT)" 0x0043896000dd8668
    umount /var/lib/joulie
fi
