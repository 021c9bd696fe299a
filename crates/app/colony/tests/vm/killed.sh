# SPDX-License-Identifier: MIT OR Apache-2.0
job() {
    mpirun $hosts colony run "$@" -- colony-bench allreduce --seconds 60 < /dev/null > /tmp/job.log 2>&1 &
    if ! soon held || ! there held; then cat /tmp/job.log; exit 1; fi
}
soon() { for i in $(seq 200); do if "$@"; then return; fi; usleep 100000; done; echo "not soon: $*"; return 1; }
# the same on n1
there() { ssh n1 "for i in \$(seq 200); do if $*; then exit 0; fi; usleep 100000; done; echo 'not soon on n1: $*'; exit 1"; }
clean() { untouched; ssh n1 untouched; }
gone() { ! held; }

job $windows --backend sched-ext
killall -9 mpirun
clean

# the process that runs the job on n1: the agent's guardian is another
job $windows --backend agent
ssh n1 'set -- $(cat /proc/$(pidof colony-bench)/stat); kill -9 $4'
clean

# by colonyd, of either kind
ssh n1 'serve sched_ext 1' &
serve agent 0
wait $!
job
kill_daemon='kill -9 $(sed -n "s/.*\"pid\": *\([0-9]*\).*/\1/p" /run/colony/stats | head -n 1)'
ssh n1 "$kill_daemon"
eval "$kill_daemon"
soon gone
there '! held'
# the job itself goes on
pidof colony-bench
ssh n1 pidof colony-bench
killall mpirun
clean
