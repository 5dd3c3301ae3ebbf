# What every scenario has. Registers and the log of writes are what is judged; what a tool says is only shown.

LIMIT=0x610 TWIN=0x59a0 DRAM=0x618 PSYS=0x65c
RAPL=/sys/class/powercap
FAILED=0

say() { echo "$*" >&3; }

# check WORDS COMMAND...: whether the command succeeds.
check() {
    words=$1; shift
    if "$@" >/tmp/check 2>&1; then say "PASS $words"; else
        say "FAIL $words: $* $(head -c 300 /tmp/check | tr '\n' ' ')"; FAILED=$((FAILED + 1))
    fi
}

# equal WORDS FOUND EXPECTED
equal() {
    if [ "$2" = "$3" ]; then say "PASS $1"; else say "FAIL $1: $2 where $3 was expected"; FAILED=$((FAILED + 1)); fi
}

# within WORDS FOUND LOWEST HIGHEST
within() {
    if [ "$2" -ge "$3" ] && [ "$2" -le "$4" ]; then say "PASS $1: $2"; else
        say "FAIL $1: $2 where $3 to $4 was expected"; FAILED=$((FAILED + 1))
    fi
}

finish() {
    if [ "$FAILED" != 0 ]; then
        sed 's/^/LOG /' /proc/silicon/log | tail -60 >&3
        for file in /tmp/*.out; do [ -f "$file" ] && sed "s|^|OUT ${file##*/} |" "$file" | tail -40 >&3; done
        dmesg | grep -v 'unrecognized MSR' | tail -25 | sed 's/^/DMESG /' >&3
    fi
    say "END $BOOT"
    sync
    usleep 300000
    poweroff -f
    sleep 60
}

module() { insmod "/lib/modules/$1.ko" $(shift; echo "$@") || say "NOTE insmod $* failed"; }
unload() { rmmod "$@"; }
# Modules whose order differs between kernels: each pass loads what lacks nothing any more.
together() {
    for pass in 1 2 3; do
        for name in "$@"; do [ -f /lib/modules/$name.ko ] && insmod /lib/modules/$name.ko 2>/dev/null; done
    done
}
VIRTIO="virtio virtio_ring virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci"
# disk: mounts the disk that outlives the boots where the journal is.
disk() {
    together crc16 crc32c_generic mbcache jbd2 ext4 $VIRTIO virtio_blk
    settle 5 [ -b /dev/vda ]
    check "the disk" mount -t ext4 /dev/vda /var/lib/joulie
}
rapl() { module intel_rapl_common; module intel_rapl_msr; }

order() { echo "$*" >/proc/silicon/control; }
# register DIE REGISTER: all 64 bits.
register() { sed -n "s/^$1 $2 //p" /proc/silicon/registers; }
# writes REGISTER: how many writes of it are in the log; `from PROGRAM` narrows it.
writes() { grep -c " $1 " /proc/silicon/log; }
logged() { cat /proc/silicon/log; }
power() { sed -n "s/^$1 \([0-9]*\) .*/\1/p" /proc/silicon/plant; }
average() { sed -n "s/^$1 [0-9]* \([0-9]*\) .*/\1/p" /proc/silicon/plant; }

# network: the card, and how the API outside is reached.
network() {
    together $VIRTIO virtio_blk failover net_failover virtio_net
    settle 5 [ -b /dev/vda -a -d /sys/class/net/eth0 ]
    ip addr add 10.0.2.15/24 dev eth0 && ip link set eth0 up
    API=$(word vm.api)
    cat /dev/vda >/tmp/kubeconfig
}
# api METHOD PATH [BODY]: a request to it, and its answer. The line stays open for a second, as closing it takes it back.
api() {
    kind=application/json; [ "$1" = PATCH ] && kind=application/merge-patch+json
    (printf '%s %s HTTP/1.1\r\nHost: api\r\nConnection: close\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s' \
        "$1" "$2" $kind ${#3} "$3"; sleep 1) | nc ${API%:*} ${API#*:}
}

# Fields of a limit register, in steps of 1/8 W.
pl1() { echo $(( $1 & 0x7fff )); }
pl2() { echo $(( $1 >> 32 & 0x7fff )); }
pl1_on() { echo $(( $1 >> 15 & 1 )); }
pl2_on() { echo $(( $1 >> 47 & 1 )); }
window1() { echo $(( $1 >> 17 & 0x7f )); }

# node NAME ARGUMENTS...: the shipped tool; its output is kept as NAME.out, its status is the answer.
node() { name=$1; shift; joulie node "$@" --period 200ms >"/tmp/$name.out" 2>&1; }
# hold ARGUMENTS...: a cap that is held in the background; `let_go` ends it as a person does, and it puts back.
hold() { joulie node cap "$@" >/tmp/cap.out 2>&1 & holder=$!; }
let_go() { kill -TERM $holder; wait $holder; }

# cap_is WORDS DIE WATTS: the whole register holds this cap, enabled and clamping, over half a second at most.
cap_is() {
    value=$(register "$2" $LIMIT)
    equal "$1: PL1" "$(pl1 $value)" $(( $3 * 8 ))
    equal "$1: PL1 on and clamping" $(( value >> 15 & 3 )) 3
    check "$1: PL2 not above a fifth more" [ "$(pl2 $value)" -le $(( $3 * 48 / 5 )) ]
    check "$1: PL2 above the cap or off" [ "$(pl2_on $value)" = 0 -o "$(pl2 $value)" -ge $(( $3 * 8 )) ]
}

# settle SECONDS COMMAND...: waits until it succeeds.
settle() {
    left=$(( $1 * 5 )); shift
    while ! "$@" >/dev/null 2>&1; do
        left=$((left - 1)); [ $left -gt 0 ] || return 1
        usleep 200000
    done
}

# loop_under_lock: what the scenarios of the three kinds of frequency driver have in common.
loop_under_lock() {
    order set 0 $LIMIT 0x8043896000dd8668
    order set 1 $LIMIT 0x8043896000dd8668
    order demand 0 180000
    order demand 1 180000
    rapl
    case $KIND in table) module frequency kind=table shared=2 ;; *) module frequency kind=$KIND ;; esac
    policies=/sys/devices/system/cpu/cpufreq
    limits() { cat $policies/policy*/scaling_max_freq | sort -u | tr '\n' ' '; }
    order clear
    hold --package 120W --law tracking --for 60s
    sum() { echo $(( $(power 0) + $(power 1) )); }
    down() { [ "$(sum)" -le 252000 ]; }
    check "the limits come down within 15 s" settle 15 down
    sleep 3
    all=0
    for at in 1 2 3 4 5 6 7 8 9 10; do all=$(( all + $(sum) )); usleep 200000; done
    within "240 W are held in the mean of two seconds" $(( all / 10 )) 150000 247000
    check "limits are below the highest" [ "$(limits)" != "3200000 " ]
    echo "request 0 1600000" >/proc/frequency
    sleep 2
    let_go
    equal "the locked registers are as they were" "$(register 0 $LIMIT) $(register 1 $LIMIT)" "0x8043896000dd8668 0x8043896000dd8668"
    check "somebody else's request stands" [ "$(cat $policies/policy0/scaling_max_freq)" = 1600000 ]
    echo "request 0 0" >/proc/frequency
    sleep 1
    equal "every policy has its own limit again" "$(limits)" "3200000 "
}
