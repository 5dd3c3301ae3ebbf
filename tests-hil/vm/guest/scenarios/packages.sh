# vm: short
# Two packages with dram and psys: a cap goes to the packages alone, a counter that starts again is no power, and a restore
# leaves each register as it was, bit for bit.
order absent 0 0x64d 0
order absent 0 $PSYS 0
order set 0 $PSYS 0x0042825800dd8320
order set 0 $DRAM 0x0000000000dd8190
order set 1 $DRAM 0x0000000000dd8190
order set 1 $LIMIT 0x0043896000dd8640
order demand 0 180000
order demand 1 190000
rapl
before=$(grep -v '0x6[0-9a-f]*1 \|0x619 \|0x611 \|0x64d ' /proc/silicon/registers)
check "psys is a zone of its own" grep -q psys $RAPL/intel-rapl:*/name
order clear
check "a cap" node cap cap --package 120W
cap_is "package 0" 0 120
cap_is "package 1" 1 120
equal "psys is as it was" "$(register 0 $PSYS)" 0x0042825800dd8320
equal "dram is as it was" "$(register 0 $DRAM) $(register 1 $DRAM)" "0x0000000000dd8190 0x0000000000dd8190"
equal "nobody wrote dram or psys" "$(( $(writes $DRAM) + $(writes $PSYS) ))" 0
sleep 2
within "package 0 runs at its cap" "$(power 0)" 100000 122000
within "package 1 runs at its cap" "$(power 1)" 100000 122000
order energy 0 0xffffc000
order energy 1 0xffffa000
joulie node watch --for 6s >/tmp/watch.out 2>&1
check "no power of a counter that starts again is above what the machine draws" \
    awk '{ for (i = 1; i < NF; i++) if ($(i+1) == "W" && $i + 0 > 420) exit 1 }' /tmp/watch.out
check "power was read over the wrap" grep -q '1[12][0-9][.0-9]* W\|2[34][0-9][.0-9]* W' /tmp/watch.out
check "a restore" node restore restore
after=$(grep -v '0x6[0-9a-f]*1 \|0x619 \|0x611 \|0x64d ' /proc/silicon/registers)
equal "every register is as it was, but for clamp bits" "$after" "$before"
check "a second restore has nothing to do" node restore2 restore
