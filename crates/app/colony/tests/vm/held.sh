#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# held: whether windows are kept on this node: by the scheduler in the kernel, or by classes of the job's tasks
if grep -q enabled /sys/kernel/sched_ext/state; then exit 0; fi
for process in $(pidof colony-bench); do
    set -- $(cat /proc/$process/stat)
    if [ "${41}" != 0 ]; then exit 0; fi
done
exit 1
