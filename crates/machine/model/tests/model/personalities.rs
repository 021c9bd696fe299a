// SPDX-License-Identifier: MIT OR Apache-2.0
//! Personalities and their encoding.

use colony_model::{
    BitSteering, Block, DecodeError, ENCODED_BYTES, Machine, NodeMemory, NodeRef, Partition, Personality,
    PsetSize, Role, SecurityKey, Shape, Site,
};
use proptest::prelude::*;

const MEMORY: u64 = 512 << 20;
const KEY: SecurityKey = SecurityKey([0xa5; 32]);

fn partition(machine: &str, pset: u32) -> Partition {
    let machine = Machine::new(machine.parse().expect("a shape")).expect("a machine");
    let block = Block::whole(machine);
    Partition::new(machine, &block.name(machine), block, PsetSize::new(pset).expect("a size"))
        .expect("a partition")
}

#[test]
fn a_compute_node_is_told_its_place() {
    let one = partition("8x8x8", 64).compute_personality(300, MEMORY);
    let Role::Compute { node, coords, in_pset } = one.role else { panic!("{one:?}") };
    assert_eq!((node, coords), (300, [4, 5, 4]));
    assert_eq!(
        (one.location.to_string().as_str(), one.pset, one.pset_size, in_pset),
        ("R00-M0-N11-J04", 7, 64, 4)
    );
    assert_eq!((one.memory, one.torus, one.psets()), (MEMORY, Shape::MIDPLANE, 8));
    assert_eq!(one.route.parent, Some(NodeRef::Compute(293)));
    assert_eq!(one.node(), NodeRef::Compute(300));
}

#[test]
fn an_io_node_is_told_its_network_and_its_key() {
    let site = Site::default();
    let one = partition("8x8x8", 64).io_personality(1, MEMORY, &site, KEY).expect("a personality");
    let Role::Io(network) = &one.role else { panic!("{one:?}") };
    assert_eq!((network.ip.to_string().as_str(), network.key), ("10.64.0.18", KEY));
    assert_eq!((one.location.to_string().as_str(), one.node()), ("R00-M0-N01-I00", NodeRef::Io(1)));
    assert_eq!(one.route.parent, Some(NodeRef::Io(0)));
    let small = Site { prefix: 26, ..site };
    let error = partition("8x8x8", 64).io_personality(1, MEMORY, &small, KEY).expect_err("no room");
    assert_eq!(
        error.to_string(),
        "the network 10.64.0.0/26 has 47 addresses for 64 I/O nodes: use a shorter prefix"
    );
}

#[test]
fn every_personality_of_a_partition_comes_back_as_it_was() {
    for (shape, pset) in [("2x2x2", 8), ("4x8x2", 16), ("8x8x8", 8), ("16x8x24", 128)] {
        let partition = partition(shape, pset);
        let compute = (0..partition.nodes()).map(|n| partition.compute_personality(n, MEMORY));
        let io = (0..partition.psets().count())
            .map(|p| partition.io_personality(p, MEMORY, &Site::default(), KEY).expect("a personality"));
        for personality in compute.chain(io) {
            let bytes = personality.encode();
            assert_eq!(Personality::decode(&bytes).as_ref(), Ok(&personality));
        }
    }
}

/// The layout that programs of other versions know: changed bytes need another version.
#[test]
fn the_encoding_is_the_documented_one() {
    let bytes = partition("8x8x8", 64).compute_personality(300, MEMORY).encode();
    assert_eq!(&bytes[..12], b"COLPERSN\x02\0\0\x01");
    assert_eq!(bytes[16..24], [1, 0, 0, 11, 4, 0, 0, 0]);
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
    let words: Vec<u32> = (32..96).step_by(4).map(word).collect();
    let none = u32::MAX;
    let children = [word(80), word(84)];
    assert_eq!(words[..12], [300, 8, 8, 8, 4, 5, 4, 0, 7, 64, 4, 293]);
    assert_eq!(words[12..], [children[0], children[1], none, 3 + 1 + 2]);
    let io = partition("8x8x8", 64)
        .io_personality(1, MEMORY, &Site::default(), KEY)
        .expect("a personality")
        .encode();
    assert_eq!(io[72..80], [255, 255, 255, 255, 0, 0, 0, 128]);
    assert_eq!(io[96..112], [2, 0x43, 0x4f, 0, 0, 2, 0, 16, 10, 64, 0, 18, 10, 64, 255, 255]);
    assert_eq!((&io[128..160], &io[160..168]), (&[0xa5; 32][..], &b"/colony\0"[..]));
    assert_eq!(word(12), 0xc953_b78b);
}

#[test]
fn other_versions_lengths_and_damage_are_told_apart() {
    let good = partition("8x8x8", 64).compute_personality(5, MEMORY).encode();
    let decode = |change: fn(&mut Vec<u8>)| {
        let mut bytes = good.to_vec();
        change(&mut bytes);
        Personality::decode(&bytes).expect_err("refused")
    };
    assert_eq!(decode(|b| b[0] = b'X'), DecodeError::Magic);
    assert_eq!(decode(|b| b[8] = 3), DecodeError::Version { found: 3 });
    let newer = DecodeError::Version { found: 3 }.to_string();
    assert!(newer.contains("reads versions 1 to 2: update this program"), "{newer}");
    assert_eq!(decode(|b| b.truncate(200)), DecodeError::Length { found: 200 });
    assert_eq!(decode(|b| b.push(0)), DecodeError::Length { found: 257 });
    assert_eq!(decode(Vec::clear), DecodeError::Length { found: 0 });
    assert!(matches!(decode(|b| b[12] ^= 1), DecodeError::Checksum { .. }));
}

/// Sets the checksum, as a hostile sender would.
fn sealed(mut bytes: [u8; ENCODED_BYTES]) -> [u8; ENCODED_BYTES] {
    if let Err(DecodeError::Checksum { expected, .. }) = Personality::decode(&bytes) {
        bytes[12..16].copy_from_slice(&expected.to_le_bytes());
    }
    bytes
}

#[test]
fn impossible_fields_are_refused_although_the_checksum_is_right() {
    let partition = partition("8x8x8", 64);
    let compute = partition.compute_personality(5, MEMORY).encode();
    let io = partition.io_personality(5, MEMORY, &Site::default(), KEY).expect("a personality").encode();
    let field = |mut bytes: [u8; ENCODED_BYTES], at: usize, value: u8| {
        bytes[at] = value;
        match Personality::decode(&sealed(bytes)) {
            Err(DecodeError::Field { field }) => field,
            other => panic!("{at}: {other:?}"),
        }
    };
    let kinds = [(16, 0, "kind"), (16, 3, "kind"), (18, 2, "location"), (21, 1, "unused byte")];
    let places = [(36, 0, "extent"), (39, 1, "extent"), (36, 4, "coordinate"), (48, 7, "coordinate")];
    let psets =
        [(64, 8, "pset"), (68, 7, "pset size"), (72, 64, "rank in the pset"), (79, 1, "collective route")];
    for (at, value, name) in kinds.into_iter().chain(places).chain(psets) {
        assert_eq!(field(compute, at, value), name, "{at}");
    }
    assert_eq!([field(compute, 96, 1), field(io, 255, 1), field(io, 32, 4)], ["unused byte"; 3]);
    assert_eq!(
        [field(io, 103, 31), field(io, 160, b'x'), field(io, 161, 0xff)],
        ["prefix", "export", "export"]
    );
}

#[test]
fn steered_bits_come_back_and_an_older_personality_has_none() {
    let steering = ["0:143", "3:0"].map(|text| text.parse().expect("a bit"));
    let steering = steering.into_iter().try_fold(BitSteering::default(), BitSteering::with).expect("steered");
    let partition = partition("8x8x8", 64);
    let memory = NodeMemory { bytes: MEMORY, steering };
    let compute = partition.compute_personality(5, memory);
    let io = partition.io_personality(5, memory, &Site::default(), KEY).expect("a personality");
    for one in [compute, io] {
        let bytes = one.encode();
        assert_eq!((bytes[224..228].to_vec(), one.steering), (vec![144, 0, 0, 1], steering));
        assert_eq!(Personality::decode(&bytes).as_ref(), Ok(&one));
        let mut wrong = bytes;
        wrong[225] = 145;
        assert_eq!(Personality::decode(&sealed(wrong)), Err(DecodeError::Field { field: "steered bit" }));
        let mut older = bytes;
        older[8] = 1;
        assert_eq!(Personality::decode(&sealed(older)), Err(DecodeError::Field { field: "unused byte" }));
        older[224..228].fill(0);
        let without = Personality { steering: BitSteering::default(), ..one };
        assert_eq!(Personality::decode(&sealed(older)), Ok(without));
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(Personality::decode(&bytes).is_err());
    }

    /// Changes behind a right checksum: refused, or another personality with exactly these bytes.
    #[test]
    fn what_is_decoded_is_encoded_the_same(
        changes in prop::collection::vec((16usize..ENCODED_BYTES, any::<u8>()), 1..8),
        io in any::<bool>(),
        number in any::<u32>(),
    ) {
        let partition = partition("8x8x16", 32);
        let one = if io {
            partition.io_personality(number, MEMORY, &Site::default(), KEY).expect("a personality")
        } else {
            partition.compute_personality(number, MEMORY)
        };
        let mut bytes = one.encode();
        for (at, value) in changes {
            bytes[at] = value;
        }
        let bytes = sealed(bytes);
        if let Ok(other) = Personality::decode(&bytes) {
            prop_assert_eq!(other.encode(), bytes);
        }
    }

    #[test]
    fn one_changed_bit_is_noticed(at in 0usize..ENCODED_BYTES * 8) {
        let mut bytes = partition("8x8x8", 64).compute_personality(9, MEMORY).encode();
        bytes[at / 8] ^= 1 << (at % 8);
        prop_assert!(Personality::decode(&bytes).is_err());
    }
}
