/* SPDX-License-Identifier: GPL-2.0
 *
 * The buckets that lateness is counted in. A test of user space compiles this file too, so it includes none.
 */
#ifndef COLONY_SCX_LATE_H
#define COLONY_SCX_LATE_H

/* an eighth of an octave wide, from 0 to 2^34 ns */
#define LATE_BUCKETS 256

static __always_inline u32 late_bucket(u64 ns)
{
	u32 octave = 0, bucket;
	u64 v = ns;

	if (ns < 8)
		return ns;
	if (v >> 32) { v >>= 32; octave += 32; }
	if (v >> 16) { v >>= 16; octave += 16; }
	if (v >> 8) { v >>= 8; octave += 8; }
	if (v >> 4) { v >>= 4; octave += 4; }
	if (v >> 2) { v >>= 2; octave += 2; }
	if (v >> 1) octave += 1;
	/* the three bits below the highest */
	bucket = (octave - 2) * 8 + ((ns >> (octave - 3)) & 7);
	return bucket < LATE_BUCKETS ? bucket : LATE_BUCKETS - 1;
}

#endif
