# SPDX-License-Identifier: MIT OR Apache-2.0
# Applies the remedies of a node that a shell can apply there, one finding after the other, and undoes them.
# $RULES: names of rules whose remedy must work.
doctor() { colony doctor --no-trace --cpus 1 "$@"; }
has() { doctor --explain $1 > /tmp/explained 2>&1; }
commands() { sed -n "s/^  $1 *//p" /tmp/explained > /tmp/commands; test -s /tmp/commands; }
soon() { for n in $(seq 50); do "$@" && return; sleep 0.1; done; echo "never: $*" >&2; sed '' /tmp/explained /tmp/commands >&2; false; }
gone() { ! has $1; }
for rule in $RULES; do
    has $rule || { echo "no finding: $rule" >&2; sed '' /tmp/explained >&2; false; }
    commands undo; cp /tmp/commands /tmp/undo; commands do
    sh -euc "$(sed '' /tmp/commands)"; soon gone $rule
    sh -euc "$(sed '' /tmp/undo)"; soon has $rule
    echo "$rule" >> /tmp/done
done
