# vm:
# Somebody without privileges sees the limits, is told why power cannot be read, and changes nothing.
order demand 0 180000
rapl
echo 'root:x:0:0::/:/bin/sh' >/etc/passwd 2>/dev/null || { mkdir -p /etc; echo 'root:x:0:0::/:/bin/sh' >/etc/passwd; }
echo 'person:x:1000:1000::/tmp:/bin/sh' >>/etc/passwd
chmod 777 /tmp
su person -c 'joulie node show --state /tmp/s >/tmp/show.out 2>&1'
check "limits are shown" grep -q '205' /tmp/show.out
check "that power may not be read is said" grep -q 'energy_uj: this process is not permitted' /tmp/show.out
order clear
su person -c 'mkdir -p /tmp/s; joulie node cap --package 120W --state /tmp/s >/tmp/cap.out 2>&1'
check "a cap is refused" [ $? -ne 0 ]
equal "nobody wrote" "$(writes $LIMIT)" 0
equal "the register is as it was" "$(register 0 $LIMIT)" 0x0043896000dd8668
check "it says why" grep -q 'is not permitted' /tmp/cap.out
