// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony tune` on a kernel's own settings: made, read back, undone, whatever ends it.

use colony_vm::testing::missing;
use colony_vm::{Accel, Image, Kernel, Vm};

use crate::common::{node_with, sh, stripped};

/// `values` prints every setting that a file of the kernel holds, as far as profiles change them.
const FUNCTIONS: &str = r#"
values() {
    for f in /proc/sys/vm/stat_interval /proc/sys/vm/dirty_writeback_centisecs /proc/sys/vm/compaction_proactiveness \
        /proc/sys/kernel/timer_migration /proc/sys/kernel/watchdog /proc/sys/kernel/nmi_watchdog \
        /proc/sys/kernel/sched_rt_runtime_us /sys/devices/virtual/workqueue/cpumask \
        /sys/kernel/mm/transparent_hugepage/enabled /sys/kernel/mm/transparent_hugepage/khugepaged/defrag \
        /proc/irq/default_smp_affinity /proc/irq/*/smp_affinity /sys/devices/system/machinecheck/machinecheck0/check_interval
    do [ ! -e $f ] || echo "$f $(cat $f 2>/dev/null)"; done
}
"#;

#[test]
fn a_profile_takes_effect_in_the_kernel_and_is_undone() {
    let Some(vm) = node_with(&[]) else { return };
    let out = sh(
        &vm.cpus(2).accel(Accel::SingleThread),
        &format!(
            r#"{FUNCTIONS}
        values > /tmp/before
        colony tune apply --cpus 1 --keep-going || test $? = 1
        values > /tmp/tuned
        if cmp -s /tmp/before /tmp/tuned; then echo nothing is changed; false; fi
        test "$(cat /proc/sys/vm/stat_interval)" = 10
        colony tune show --cpus 1 --json > /tmp/show
        if grep '"changed"' /tmp/show; then cat /tmp/show; false; fi
        colony tune verify > /tmp/verify || {{ cat /tmp/verify; false; }}
        echo 7 > /proc/sys/vm/stat_interval
        if colony tune verify > /tmp/verify; then cat /tmp/verify; false; fi
        grep -q different /tmp/verify
        echo 10 > /proc/sys/vm/stat_interval
        colony tune revert
        values > /tmp/after
        diff /tmp/before /tmp/after
        # no systemd: nothing is changed
        if colony tune apply --cpus 1 --persist 2> /tmp/error; then echo persistent without systemd; false; fi
        grep -q 'systemd does not run' /tmp/error || {{ cat /tmp/error; false; }}
        values > /tmp/after
        diff /tmp/before /tmp/after
        # a full disk for the journal: nothing is changed
        rm -rf /run/colony-tune; mkdir -m 700 /run/colony-tune
        mount -t tmpfs -o size=4k,mode=700 none /run/colony-tune
        : > /run/colony-tune/lock; head -c 8192 /dev/zero > /run/colony-tune/full || true
        if colony tune apply --cpus 1 2> /tmp/error; then echo applied without a journal; false; fi
        grep -q 'the node is unchanged' /tmp/error || {{ cat /tmp/error; false; }}
        umount /run/colony-tune
        values > /tmp/after
        diff /tmp/before /tmp/after
        # read-only settings, as in a container
        mount -o remount,ro /sys
        colony tune apply --cpus 1 > /tmp/out 2>&1 && made=yes || made=no
        mount -o remount,rw /sys
        test $made = yes || {{ values > /tmp/after; diff /tmp/before /tmp/after; }}
        test $made = no || colony tune revert
        values > /tmp/after
        diff /tmp/before /tmp/after
        "#
        ),
    );
    eprintln!("{}", out.text());
}

#[test]
fn a_transaction_killed_in_the_kernel_is_undone_by_the_next_command() {
    let Some(vm) = node_with(&[]) else { return };
    sh(
        &vm.cpus(2).accel(Accel::SingleThread),
        &format!(
            r#"{FUNCTIONS}
        values > /tmp/before
        for round in 1 2 3 4 5 6 7 8; do
            colony tune apply --cpus 1 --keep-going > /dev/null 2>&1 & A=$!
            # until the journal is there, and some steps more
            for wait in $(seq 2000); do ls /run/colony-tune/*.json > /dev/null 2>&1 && break; done
            i=0; while [ $i -lt $((round * 40)) ]; do i=$((i+1)); done
            kill -9 $A 2> /dev/null || true
            wait $A 2> /dev/null || true
            colony tune revert --all > /tmp/out 2>&1 || test $? = 2
            values > /tmp/after
            diff /tmp/before /tmp/after
        done
        "#
        ),
    );
}

#[test]
fn the_exported_script_moves_interrupts_and_restores_them() {
    let Some(vm) = node_with(&[]) else { return };
    let out = sh(
        &vm.cpus(2).accel(Accel::SingleThread),
        &format!(
            r#"{FUNCTIONS}
        mount -t debugfs none /sys/kernel/debug 2> /dev/null || true
        values > /tmp/before
        colony tune export tuned-script --cpus 1 --also irq-default > /tmp/script.sh
        grep -q 'setting /proc/irq/default_smp_affinity 1' /tmp/script.sh
        grep -q ' interrupts ' /tmp/script.sh
        sh /tmp/script.sh start
        values > /tmp/tuned
        if cmp -s /tmp/before /tmp/tuned; then echo nothing is changed; false; fi
        sh /tmp/script.sh verify
        echo 3 > /proc/irq/default_smp_affinity
        if sh /tmp/script.sh verify; then echo a changed value is not seen; false; fi
        sh /tmp/script.sh stop
        values > /tmp/after
        diff /tmp/before /tmp/after
        "#
        ),
    );
    eprintln!("{}", out.text());
}

/// A series before the fair server, the first one with it, and the default kernel.
const SERIES: [&str; 3] = ["6.1", "6.12", ""];

#[test]
fn an_ordinary_task_beside_a_real_time_one_that_never_sleeps_keeps_its_time() {
    if let Some(reason) = missing() {
        return colony_testing::skip(reason);
    }
    let mut image = Image::new();
    image.busybox().expect("busybox");
    image.program(stripped(assert_cmd::cargo::cargo_bin!("colony"))).expect("our program");
    image.program("/usr/bin/chrt").expect("util-linux");
    let mut ran = Vec::new();
    for series in SERIES {
        let kernel = match Kernel::find(series) {
            Ok(kernel) => kernel,
            // the archive keeps some for some years
            Err(e) if !series.is_empty() => {
                eprintln!("{series}: {e}");
                continue;
            }
            Err(e) => panic!("{e}"),
        };
        let vm = Vm::new(&kernel, &image).memory_mib(768).cpus(2).accel(Accel::SingleThread);
        let out = sh(
            &vm,
            r#"
            mount -t debugfs none /sys/kernel/debug 2> /dev/null || true
            taskset 2 sh -c 'while :; do :; done' & ORDINARY=$!
            taskset 2 sh -c 'while :; do :; done' & HOG=$!
            sleep 1; chrt -f -p 50 $HOG
            # processor time in ticks of 10 ms
            ticks() { set -- $(cat /proc/$ORDINARY/stat); echo ${14}; }
            share() { before=$(ticks); sleep 4; after=$(ticks); echo $((after - before)); }
            untuned=$(share); test $untuned -gt 0
            # the rule rt-tasks would move the hog away
            colony tune apply --cpus 1 --skip rt-tasks > /tmp/out 2>&1 || { cat /tmp/out; false; }
            tuned=$(share); echo "of 400 ticks: $untuned before, $tuned in the profile hpc"
            colony tune revert
            test $((tuned * 2)) -ge $untuned
            # the test would see the loss: a profile that names the rules takes the time
            printf 'name = "unprotected"\nonly = ["rt-throttling", "fair-server"]\n' > /tmp/unprotected.toml
            colony tune apply --cpus 1 --profile /tmp/unprotected.toml > /tmp/out 2>&1 || { cat /tmp/out; false; }
            starved=$(share); colony tune revert
            test $((starved * 2)) -lt $untuned || { echo "$starved ticks without the protection"; false; }
            kill $ORDINARY $HOG
            "#,
        );
        eprintln!("{}: {}", out.kernel, out.text());
        ran.push(out.kernel);
    }
    assert!(!ran.is_empty());
    eprintln!("ran on {}", ran.join(", "));
}
