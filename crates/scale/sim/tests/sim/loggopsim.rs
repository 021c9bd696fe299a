// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of LogGOPSim, rank by rank, under its own order of service.

#[path = "../../benches/patterns/mod.rs"]
mod patterns;

use colony_sim::event::{EventError, Rules, run};
use colony_sim::goal::Schedule;
use colony_sim::machine::Machine;
use colony_sim::node::Node;
use colony_sim::rng::Key;
use patterns::{PATTERNS, Random, SIZES};

/// For each pattern and size: when the last rank ended, and the digest of the times of all ranks, as LogGOPSim
/// printed them on 2026-11-23 (commit of 2023-12-05, GCC 12, parameters as they are by default).
const FOUND: [(&str, [(u64, u64); 8]); 18] = [
    (
        "binomialtreereduce",
        [
            (33_000, 0x84a9_736f_8a5e_36b6),
            (33_252, 0x56ef_ca8c_b629_fbc4),
            (35_268, 0xa003_e5e9_2dc7_b0d1),
            (68_964, 0x3b9b_20d8_a145_15d5),
            (180_420, 0xb90a_a0f7_8a55_714a),
            (752_964, 0xfc45_0429_d3b2_919c),
            (2_392_260, 0xb7da_ddf3_901b_d82d),
            (3_632_964, 0x2a90_ccc7_5471_4624),
        ],
    ),
    (
        "binarytreebcast",
        [
            (35_000, 0x559e_cc27_7ab1_ea0e),
            (35_210, 0x897e_6e18_574c_4dc1),
            (36_890, 0x76d7_8965_e232_3a1a),
            (92_440, 0xb14d_5762_87b7_6e28),
            (278_200, 0x05bf_77af_8348_888d),
            (1_232_440, 0x48bf_d54a_503e_5816),
            (3_964_600, 0xd127_78bf_129a_5930),
            (6_032_440, 0x7984_0f2b_0084_4738),
        ],
    ),
    (
        "binomialtreebcast",
        [
            (33_000, 0xb44b_35a9_2103_b663),
            (33_252, 0x79ff_53f1_1007_c85b),
            (35_268, 0x702d_5a4a_42e7_8356),
            (68_964, 0x254c_58b1_bcaa_099b),
            (180_420, 0xe8a3_042e_f812_28fd),
            (752_964, 0xccca_005b_e9e9_7c1b),
            (2_392_260, 0xed6e_2cb4_b113_e9a9),
            (3_632_964, 0x26f1_34ca_7b49_5ada),
        ],
    ),
    (
        "nwaydissemination",
        [
            (28_006, 0x4f3b_31a5_906a_cf25),
            (28_384, 0x3168_f451_4e5f_a9a5),
            (31_408, 0xd804_7849_e608_79a5),
            (91_952, 0xc264_760e_d1aa_1b25),
            (250_136, 0x3c07_8727_87c7_1f65),
            (1_108_952, 0xdff1_67c8_c177_e325),
            (3_567_896, 0x5fc6_df6c_1abf_0825),
            (5_428_952, 0x44dc_f454_81f2_5225),
        ],
    ),
    (
        "pipelinedring",
        [
            (346_500, 0x973d_61d3_5b32_4f74),
            (552_000, 0xb0bb_378a_590e_f8f0),
            (564_432, 0x41ff_d3ba_316a_f947),
            (681_300, 0x2be2_66ac_fe5c_6d53),
            (800_280, 0xc537_9cba_8dd6_b8c1),
            (1_250_562, 0x5a0d_c8a9_034a_8e5a),
            (3_204_348, 0x1f5a_9fd9_e34b_43fa),
            (4_693_068, 0xfe28_a589_9463_ce04),
        ],
    ),
    (
        "pipelinedringdep",
        [
            (346_500, 0x973d_61d3_5b32_4f74),
            (559_500, 0xb29e_aa73_5224_e7db),
            (578_256, 0xd044_162d_0d46_d509),
            (704_334, 0x3042_5210_b9c7_bd24),
            (827_958, 0x9100_d7cb_23aa_63a4),
            (1_264_056, 0x399e_4008_b073_f159),
            (3_204_348, 0x1f5a_9fd9_e34b_43fa),
            (4_693_068, 0xfe28_a589_9463_ce04),
        ],
    ),
    (
        "doublering",
        [
            (355_000, 0x74c4_f900_8b0e_f417),
            (357_772, 0xaf29_c870_2995_f382),
            (379_948, 0x37e9_7561_af18_5771),
            (744_610, 0xde02_f452_040e_b09e),
            (1_952_050, 0x4d14_e22a_4e10_ebf8),
            (8_154_610, 0x2f16_5915_c9a6_d225),
            (25_913_650, 0x8b8e_b610_1647_b19a),
            (39_354_610, 0xe490_73b2_9889_fd3f),
        ],
    ),
    (
        "gather",
        [
            (98_500, 0x9605_68e5_eedb_d91d),
            (101_146, 0x459a_0cee_9f6d_5e62),
            (122_314, 0xb13d_e191_1975_c67a),
            (476_122, 0x1ba5_220c_2940_da87),
            (1_646_410, 0x32fd_24ff_01d5_d0d7),
            (7_658_122, 0x23c6_ae2d_56f2_4bbe),
            (24_870_730, 0x7dcd_61d5_5b6e_9c9a),
            (37_898_122, 0xe687_2c38_82a9_817b),
        ],
    ),
    (
        "scatter",
        [
            (98_500, 0xa05f_5dc5_26dc_3cd4),
            (98_542, 0x64f8_06de_c691_77f2),
            (98_878, 0x69d4_5800_a935_62c6),
            (445_122, 0x1ea1_e201_6972_2113),
            (1_615_410, 0x9f85_9704_e19d_f472),
            (7_627_122, 0x1fc4_b86b_54fc_71ac),
            (24_839_730, 0x611a_71ae_75be_167b),
            (37_867_122, 0x4170_87dd_3e9c_560e),
        ],
    ),
    (
        "linbarrier",
        [
            (197_000, 0x51f6_4495_66a6_3a92),
            (197_000, 0x51f6_4495_66a6_3a92),
            (197_000, 0x51f6_4495_66a6_3a92),
            (197_000, 0x51f6_4495_66a6_3a92),
            (197_000, 0x51f6_4495_66a6_3a92),
            (197_000, 0x51f6_4495_66a6_3a92),
            (197_000, 0x51f6_4495_66a6_3a92),
            (197_000, 0x51f6_4495_66a6_3a92),
        ],
    ),
    (
        "dissemination",
        [
            (33_000, 0x2317_c79f_bbe7_1c25),
            (33_252, 0xfd78_7bb3_6b78_7b25),
            (35_268, 0x30e9_69f7_636d_41a5),
            (68_964, 0x2bd0_6a22_5681_ce25),
            (180_420, 0x597c_5b9e_8775_8365),
            (752_964, 0x238f_9eef_43ad_0565),
            (2_392_260, 0x1110_a86f_41e5_6aa5),
            (3_632_964, 0x8fdd_5506_e857_2125),
        ],
    ),
    (
        "random_bisect",
        [
            (5_500, 0x8110_10cf_9b50_e055),
            (5_542, 0x9431_991e_6093_78dd),
            (5_878, 0x67ed_dac0_8133_6f1d),
            (11_494, 0x8e64_9d5c_d54b_dc91),
            (30_070, 0xe8ce_54b0_95cb_f83d),
            (125_494, 0xa9c4_0561_4f5f_13f1),
            (398_710, 0x25db_b990_6d0e_5c85),
            (605_494, 0xe1d6_8dd3_a852_fd15),
        ],
    ),
    (
        "random_bisect_fd_sym",
        [
            (5_500, 0x86af_031a_232e_efa5),
            (5_542, 0xe545_3827_afed_ba25),
            (5_878, 0x0b2c_fd91_ebc7_fc25),
            (11_494, 0x336e_1173_5e62_51a5),
            (30_070, 0xe8e4_75b7_0219_a325),
            (125_494, 0xd0ce_a35a_2555_e765),
            (398_710, 0x2c69_88fa_35f4_7325),
            (605_494, 0xb7f3_925a_8928_6d25),
        ],
    ),
    (
        "linear_alltoall",
        [
            (189_000, 0xf84a_1271_970c_1925),
            (191_646, 0x65df_a3ed_c8d9_74e5),
            (212_814, 0xd985_3336_702d_3ea5),
            (724_122, 0x3466_07a1_719b_2ca5),
            (1_894_410, 0xd340_2cad_db3a_3d25),
            (7_906_122, 0x0286_0f37_9c71_0925),
            (25_118_730, 0x6a5e_15cd_f084_e6e5),
            (38_146_122, 0xe407_c907_f525_56e5),
        ],
    ),
    (
        "linear_alltoallv",
        [
            (189_000, 0xf84a_1271_970c_1925),
            (191_646, 0x6dd9_92bf_c978_f727),
            (212_814, 0x3224_a8a6_ddcb_e998),
            (567_622, 0x49ec_2bcf_15b7_867e),
            (1_740_740, 0x33b3_406b_0b7b_5a05),
            (7_751_122, 0x251f_07e7_0166_ca7f),
            (24_963_730, 0x55c3_8aca_22b3_a76e),
            (37_991_122, 0xff5b_c9c0_c5e5_c214),
        ],
    ),
    (
        "allreduce_recdoub",
        [
            (65_928, 0x739b_288d_acaf_2725),
            (65_970, 0x0122_8c8f_6e27_3e25),
            (66_684, 0xabf1_6cc9_4827_2325),
            (77_496, 0x5f33_8072_e780_1725),
            (114_312, 0x5c90_f54a_844a_ab25),
            (301_986, 0x478d_d7d7_44e0_09e5),
            (840_072, 0x76e4_ee6e_8672_2b65),
            (1_246_986, 0x2920_a20b_6ac9_6b25),
        ],
    ),
    (
        "allreduce_ring",
        [
            (76_916, 0xfe0e_59ff_a56d_2be5),
            (77_000, 0xf6a1_6d39_db8b_6e05),
            (77_588, 0xe2c6_9bda_f596_10d5),
            (87_416, 0xd8e5_02ff_7e2d_8ac5),
            (119_924, 0xd915_c226_ed81_ec85),
            (286_916, 0xb2c1_110a_7904_e525),
            (765_044, 0x0d5d_18ab_28cc_3225),
            (1_126_916, 0xbd76_9149_8eae_22c5),
        ],
    ),
    (
        "resnet",
        [
            (8_668_450_992, 0x8ff2_854e_27ed_1b65),
            (8_668_450_992, 0x8ff2_854e_27ed_1b65),
            (8_668_450_992, 0x8ff2_854e_27ed_1b65),
            (8_668_450_992, 0x8ff2_854e_27ed_1b65),
            (8_668_450_992, 0x8ff2_854e_27ed_1b65),
            (8_668_450_992, 0x8ff2_854e_27ed_1b65),
            (8_668_450_992, 0x8ff2_854e_27ed_1b65),
            (8_668_450_992, 0x8ff2_854e_27ed_1b65),
        ],
    ),
];

/// For each kind of random schedules: how many of 150 run to their end there, and the digest of all times.
const FOUND_RANDOM: [(Random, usize, u64); 3] = [
    (Random::Eager, 150, 0x756a_4fd1_7158_7a2f),
    (Random::Rendezvous, 145, 0x0091_7269_51af_b278),
    (Random::Cpus, 148, 0xcb1d_e1ab_314a_13f3),
];

/// Ranks of the patterns. On more than 8, LogGOPSim has `allreduce_ring` wait for ever.
fn ranks(pattern: &str) -> u32 {
    if pattern == "allreduce_ring" { 8 } else { 64 }
}

fn ends_ns(schedule: &Schedule) -> Result<Vec<u64>, EventError> {
    let network = Machine::loggopsim().network(schedule.ranks()).expect("a network");
    run(schedule, &network, &Node::quiet(), Rules::LOGGOPSIM, Key::new(1), 0).map(|o| o.ends_ns)
}

fn lines(times: &[u64]) -> String {
    times.iter().map(|t| format!("{t}\n")).collect()
}

/// FNV-1a.
fn digest(text: &str) -> u64 {
    text.bytes().fold(0xCBF2_9CE4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01B3))
}

#[test]
fn the_patterns_of_its_generator_end_as_in_loggopsim_on_every_rank() {
    let mut equal = 0;
    for (pattern, found) in FOUND {
        assert!(PATTERNS.contains(&pattern));
        for (bytes, (total_ns, of_ranks)) in SIZES.into_iter().zip(found) {
            let schedule = patterns::pattern(pattern, ranks(pattern), bytes).expect("a schedule");
            let ends = ends_ns(&schedule).expect("a run");
            let here = (ends.iter().copied().max().unwrap_or(0), digest(&lines(&ends)));
            assert_eq!(here, (total_ns, of_ranks), "{pattern} with {bytes} bytes");
            equal += 1;
        }
    }
    assert_eq!(equal, PATTERNS.len() * SIZES.len());
}

#[test]
fn random_schedules_end_as_in_loggopsim_on_every_rank() {
    for (kind, complete, of_all) in FOUND_RANDOM {
        let (mut text, mut ended) = (String::new(), 0);
        for seed in 0..150 {
            let schedule = patterns::random(kind, seed).expect("a schedule");
            match ends_ns(&schedule) {
                Ok(ends) => {
                    ended += 1;
                    text += &lines(&ends);
                }
                Err(EventError::Deadlock { .. }) => text += "deadlock\n",
                Err(e) => panic!("{kind:?} {seed}: {e}"),
            }
        }
        assert_eq!((ended, digest(&text)), (complete, of_all), "{kind:?}");
    }
}

#[test]
fn where_its_unstable_sort_makes_loggopsim_wait_for_ever_the_ranks_are_named() {
    // 30 receives of one tag become ready at once, and are reached in another order than that of the file
    let ring = patterns::pattern("allreduce_ring", 16, 1000).expect("a schedule");
    assert!(matches!(ends_ns(&ring), Err(EventError::Deadlock { ranks: 16, .. })));
}
