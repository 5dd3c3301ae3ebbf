# vm:
# The closed loop on a driver of the kind "any", under a lock of the firmware; a second request beside ours is not taken for
# ours, and every policy has its own limit again in the end.
KIND=any loop_under_lock
