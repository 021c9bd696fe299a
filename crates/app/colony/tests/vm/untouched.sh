#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# untouched: fails, and says what there is, where a job has left something on this node that does not go within seconds
left() {
    state=$(cat /sys/kernel/sched_ext/state)
    [ "$state" = disabled ] || echo "sched_ext is $state"
    find /sys/fs/cgroup -mindepth 1 -type d
    grep colony /proc/mounts
    pidof colony colonyd colony-bench
    # fields 4 and 41 of stat: the parent, where 2 is that of kernel threads, and the scheduling class
    for stat in /proc/[0-9]*/task/[0-9]*/stat; do
        read -r line < "$stat" || continue
        name=${line%)*}
        set -- ${line##*)}
        [ "$2" = 2 ] || [ "${39}" = 0 ] || echo "$name) is of class ${39}"
    done 2> /dev/null
}
for _ in $(seq 60); do
    left=$(left)
    [ -n "$left" ] || exit 0
    usleep 250000
done
echo "left on $(hostname): $left"
exit 1
