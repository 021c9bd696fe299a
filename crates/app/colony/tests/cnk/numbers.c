/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Remainders and rounding of long numbers: what the C libraries do on the x87. A line a case. */
#define _GNU_SOURCE
#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    static const long double cases[][2] = {
        {5, 3}, {-5, 3}, {7, 2}, {10, -4}, {29, 4}, {0x1p64L, 3}, {0x1.8p100L, 0x1.1p3L}, {1e300L, 7},
        {0x1.fffffffffffffffep0L, 0x1p-63L}, {0x1p-16445L, 0x1p-16440L}, {INFINITY, 1}, {1, INFINITY}, {0, 1},
    };
    static const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        volatile long double x = cases[n][0], y = cases[n][1];
        int quotient = 0;
        feclearexcept(FE_ALL_EXCEPT);
        double rest = remquo((double)x, (double)y, &quotient);
        printf("remquo %zu %a %d\n", n, rest, quotient & 7);
        printf("fmodl %zu %La %d\n", n, fmodl(x, y), fetestexcept(FE_INVALID) != 0);
        printf("remainderl %zu %La\n", n, remainderl(x, y));
        quotient = 0;
        long double long_rest = remquol(x, y, &quotient);
        printf("remquol rest %zu %La\n", n, long_rest);
        printf("remquol quotient %zu %d\n", n, quotient & 7);
        for (int m = 0; m < 4; m++) {
            fesetround(modes[m]);
            printf("rounded %zu %d %La %La %ld\n", n, m, rintl(x / 3), x / y, lrintl(fmodl(x, 1000)));
        }
        fesetround(FE_TONEAREST);
    }
    char text[64];
    snprintf(text, sizeof text, "%.40Lg", 0x1.23456789abcdef02p-77L);
    printf("text %s %La\n", text, strtold(text, NULL));
    return 0;
}
