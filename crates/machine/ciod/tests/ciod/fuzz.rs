// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whatever a node asks for, nothing outside of the process's memory is touched (fuzz/fuzz_targets/fship.rs goes on
//! for longer).

use colony_ciod::testing::fuzz_calls;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn any_requests_on_any_memory(bytes in prop::collection::vec(any::<u8>(), 0..1500)) {
        fuzz_calls(&bytes);
    }
}
