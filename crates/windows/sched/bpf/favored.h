/* SPDX-License-Identifier: GPL-2.0
 *
 * The favored part of a span, by which both programs split their accounts.
 */
#ifndef COLONY_FAVORED_H
#define COLONY_FAVORED_H

#include "colony_kernel.h"
#include <bpf/bpf_helpers.h>

/* favored time from the epoch to t, the epoch being less than a period after 0 */
static __always_inline u64 favored_until(u64 period_ns, u64 favored_ns, u64 epoch_ns, u64 t)
{
	u64 since = t - epoch_ns, phase = since % period_ns;

	return since / period_ns * favored_ns + (phase < favored_ns ? phase : favored_ns);
}

/* favored time of [a, b) */
static __always_inline u64 favored_span(u64 period_ns, u64 favored_ns, u64 epoch_ns, u64 a, u64 b)
{
	return favored_until(period_ns, favored_ns, epoch_ns, b) - favored_until(period_ns, favored_ns, epoch_ns, a);
}

#endif
