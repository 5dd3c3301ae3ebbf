# vm: limit=150
# 1,000 frequency limits with all processors busy: what the HAL reports is in force each time, although the kernel answers a
# write before its worker has run.
module frequency kind=any
for busy in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done
# As the kernel does it, for comparison: written and read at once.
file=/sys/devices/system/cpu/cpufreq/policy1/scaling_max_freq
stale=0
for at in $(seq 200); do
    want=$(( 1200000 + at * 7 % 5 * 400000 ))
    echo $want >$file
    [ "$(cat $file)" = $want ] || stale=$((stale + 1))
done
say "FIGURE stale reads of 200 without a wait: $stale"
readback >/tmp/readback.out 2>&1
read wrong late p50 p99 most </tmp/readback.out
check "the program came to its end" [ -n "$most" ]
say "BAR vm wrong-read-backs-of-1000 $wrong 0 $([ "$wrong" = 0 ] && echo PASS || echo FAIL)"
equal "reports that are not what was asked" "$late" 0
say "BAR vm write-p99-us $p99 200000 $([ "$p99" -le 200000 ] && echo PASS || echo FAIL)"
say "FIGURE wait of a write: median $p50 us, most $most us"
kill %1 %2 %3 %4 %5 %6 %7 %8 2>/dev/null
