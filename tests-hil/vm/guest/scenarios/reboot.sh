# vm: disk boots=2
# The journal is on a disk. A reboot gives the registers back to the firmware, so what it holds is void and nothing is
# written.
for name in crc16 crc32c_generic mbcache jbd2 ext4 virtio virtio_ring virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci virtio_blk; do
    [ -f /lib/modules/$name.ko ] && insmod /lib/modules/$name.ko 2>/dev/null
done
settle 5 [ -b /dev/vda ]
check "the disk" mount -t ext4 /dev/vda /var/lib/joulie
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
