// SPDX-License-Identifier: MIT OR Apache-2.0
use proptest::prelude::*;

use super::*;
use crate::database::{Edge, Object, Pe};
use crate::generate::{Generator, Shape};

const VT: &str = r#"{"type":"LBDatafile","metadata":{"type":"LBDatafile","rank":0,"attributes":{"x":1}},"phases":[
  {"id":0,"tasks":[]},
  {"id":1,"tasks":[
    {"entity":{"id":262147,"home":0,"index":[3,1],"collection_id":7,"migratable":true,"type":"object"},"node":0,
     "resource":"cpu","subphases":[{"id":0,"time":0.25}],"time":0.25,"user_defined":{"task_serialized_bytes":512,"x":"y"}},
    {"entity":{"seq_id":4,"home":1,"objgroup_id":3,"migratable":false,"type":"object"},"node":1,"resource":"cpu","time":1.5}],
   "communications":[
    {"type":"SendRecv","from":{"id":262147,"type":"object"},"to":{"seq_id":4,"home":1,"migratable":false,"type":"object"},"bytes":2048.0,"messages":3},
    {"type":"CollectionToNode","from":{"id":262147,"type":"object"},"to":{"id":1,"type":"node"},"bytes":8.0,"messages":1},
    {"type":"SendRecv","from":{"id":262147,"type":"object"},"to":{"id":99,"type":"object"},"bytes":8.0,"messages":1}]}]}"#;

fn one(content: &str) -> Result<Read, FileError> {
    read(&[("x".to_owned(), content.as_bytes().to_vec())], None).map_err(|e| e.1)
}

fn small() -> Database {
    let mut database = Database::new(vec![Pe::default(), Pe { background_s: 0.5, speed: 2.0 }]).expect("PEs");
    for id in 0..5 {
        let object = Object {
            id: 10 * id,
            pe: (id % 2) as u32,
            load_s: 0.1 + id as f64 / 3.0,
            bytes: id,
            migratable: id != 2,
        };
        database.push_object(object).expect("an object");
    }
    database.push_edge(Edge { from: 0, to: 4, bytes: 1 << 40, messages: 9 }).expect("an edge");
    database
}

#[test]
fn files_of_vt_are_read_as_its_schema_says() {
    let Read { database, skipped_edges, .. } = one(VT).expect("a file of vt");
    assert_eq!((database.pes().len(), database.objects(), skipped_edges), (2, 2, 2));
    let first = database.object(0);
    assert_eq!((first.id, first.load_s, first.bytes, first.migratable), (262_147, 0.25, 512, true));
    assert!(!database.is_migratable(1) && database.placement() == [0, 1]);
    assert_eq!(database.edges(), [Edge { from: 0, to: 1, bytes: 2048, messages: 3 }]);
}

#[test]
fn a_phase_that_is_not_there_is_an_error() {
    let files = [("x".to_owned(), VT.as_bytes().to_vec())];
    assert_eq!(read(&files, Some(0)).map(|r| r.database.objects()), Ok(0));
    let (name, error) = read(&files, Some(7)).expect_err("no phase 7");
    assert_eq!((name.as_str(), error.to_string().as_str()), ("x", "the file has no phase 7; it has 0, 1"));
}

#[test]
fn ranks_of_vt_are_put_together_again() {
    let database = Generator::new(Shape::lb_test(4, 64)).and_then(|g| g.database()).expect("a database");
    let file = |rank| {
        let mut text = Vec::new();
        vt::write_rank(&database, database.placement(), rank, &mut text).expect("memory");
        (format!("data.{rank}.json"), text)
    };
    let mut files: Vec<_> = (0..4).map(file).collect();
    let read_back = read(&files, None).expect("files of vt");
    assert_eq!(read_back.skipped_edges, 0);
    assert_eq!(read_back.database, database);
    files.push(file(3));
    assert!(read(&files, None).expect_err("a rank twice").1.to_string().contains("twice"));
}

#[test]
fn ranks_without_a_file_are_named() {
    let of_rank = |rank: u32| {
        let text = format!(
            r#"{{"type":"LBDatafile","metadata":{{"rank":{rank}}},"phases":[{{"id":0,"tasks":[]}}]}}"#
        );
        (format!("data.{rank}.json"), text.into_bytes())
    };
    let missing = |ranks: &[u32]| {
        let files: Vec<_> = ranks.iter().map(|rank| of_rank(*rank)).collect();
        let found = read(&files, None).expect("files of vt");
        (found.database.pes().len(), found.missing_ranks)
    };
    assert_eq!(missing(&[0, 3]), (4, vec![1, 2]));
    assert_eq!(missing(&[0, 1, 2]), (3, vec![]));
    let (name, text) = of_rank(0);
    let node = r#""rank":0,"shared_node":{"id":0,"size":4,"rank":0,"num_nodes":1}"#;
    let text = String::from_utf8(text).expect("text").replace(r#""rank":0"#, node);
    let found = read(&[(name, text.into_bytes())], None).expect("a file of vt");
    assert_eq!((found.database.pes().len(), found.missing_ranks), (4, vec![1, 2, 3]));
}

#[test]
fn our_files_keep_everything() {
    for database in [small(), Database::of_equal_pes(3).expect("PEs")] {
        let mut text = Vec::new();
        write(&database, &mut text).expect("memory");
        assert_eq!(one(&String::from_utf8(text).expect("text")).map(|r| r.database), Ok(database));
    }
    let generator = Generator::new(Shape::lb_test(4, 100)).expect("a generator");
    let mut text = Vec::new();
    write_generated(&generator, &mut text, |_| ()).expect("memory");
    let read = one(&String::from_utf8(text).expect("text")).expect("a file of ours");
    assert_eq!(Ok(read.database), generator.database());
}

#[test]
fn files_that_make_no_sense_say_why() {
    let head = r#"{"schema":"colony.loads/1","#;
    for (content, says) in [
        (String::new(), "EOF"),
        ("[]".to_owned(), "invalid"),
        ("{}".to_owned(), "its schema is `none`"),
        (r#"{"schema":"colony.loads/9"}"#.to_owned(), "colony.loads/9"),
        (r#"{"type":"LBStatsfile","phases":[]}"#.to_owned(), "LBStatsfile"),
        (r#"{"type":"LBDatafile","phases":[]}"#.to_owned(), "no phases"),
        (format!("{head}\"pes\":0}}"), "1 to"),
        (format!("{head}\"pes\":4294967295}}"), "1 to"),
        (format!("{head}\"objects\":[]}}"), "order"),
        (format!("{head}\"pes\":1,\"edges\":[]}}"), "order"),
        (format!("{head}\"pes\":1,\"objects\":[[1,1,0,0,1]]}}"), "PEs 0 to 0"),
        (format!("{head}\"pes\":1,\"objects\":[[1,0,-1,0,1]]}}"), "load of object 1"),
        (format!("{head}\"pes\":1,\"objects\":[[1,0,1e999,0,1]]}}"), "number out of range"),
        (format!("{head}\"pes\":1,\"objects\":[[1,0,1,0,2]]}}"), "0 or 1"),
        (format!("{head}\"pes\":1,\"objects\":[[1,0,1,0,1],[1,0,1,0,1]]}}"), "two objects"),
        (format!("{head}\"pes\":1,\"objects\":[],\"edges\":[[0,0,1,1]]}}"), "object number 0"),
        (format!("{head}\"pes\":1,\"colour\":1}}"), "colour"),
        (format!("{head}\"pes\":1,\"pes\":1}}"), "twice"),
        (format!("{head}\"pes\":1}} x"), "trailing"),
        (VT.replace("\"time\":1.5", "\"time\":-1.5"), "load of object"),
        (VT.replace("\"resource\":\"cpu\",\"time\"", "\"resource\":\"gpu\",\"time\""), "gpu"),
        (VT.replace("\"node\":1,", "\"node\":99999999999,"), "at most"),
        (VT.replace("\"seq_id\":4,\"home\":1,\"objgroup_id\"", "\"objgroup_id\""), "neither"),
    ] {
        let error = one(&content).expect_err(&content).to_string();
        assert!(error.contains(says), "{content}: {error}");
    }
}

#[test]
fn compressed_files_are_named_as_such() {
    for (content, name) in [
        (&[0x1f, 0x8b, 8, 0][..], "gzip"),
        (&[0x28, 0xb5, 0x2f, 0xfd, 0][..], "zstd"),
        (b"\xfd7zXZ\0", "xz"),
        (b"BZh91AY", "bzip2"),
    ] {
        assert_eq!(Format::of("data.0.json", content), Err(FileError::Compressed(name)));
    }
    // a short JSON text; brotli has no magic number
    let brotli = [0x8b, 0x0b, 0x80, 0x7b, 0x22, 0xff, 0x03];
    assert_eq!(Format::of("d/data.0.json.br", &brotli), Err(FileError::Compressed("brotli")));
    assert_eq!(Format::of("d.br/data.0.json", &brotli), Err(FileError::Binary));
}

#[test]
fn a_binary_dump_of_charm_is_called_a_dump_of_charm() {
    let dump = [2, 0, 0, 0, 4, 0, 0, 0, 64, 0, 0, 0];
    let error = Format::of("run/lbdump.dat.0", &dump).expect_err("binary").to_string();
    assert!(error.contains("Charm++") && error.contains(SCHEMA) && !error.contains("compressed"), "{error}");
    assert_eq!(Format::of("loads", &dump), Err(FileError::Binary));
}

/// A file of vt of a rank: `tasks` with these ids, one second each, and the text of `user_defined` of each.
fn of_rank(rank: u32, ids: &[u32], user_defined: &str) -> (String, Vec<u8>) {
    let task = |id: &u32| {
        format!(
            r#"{{"entity":{{"id":{id},"home":{rank},"migratable":true,"type":"object"}},"node":{rank},"resource":"cpu","time":1{user_defined}}}"#
        )
    };
    let tasks = ids.iter().map(task).collect::<Vec<_>>().join(",");
    let text = format!(
        r#"{{"type":"LBDatafile","metadata":{{"rank":{rank}}},"phases":[{{"id":0,"tasks":[{tasks}]}}]}}"#
    );
    (format!("data.{rank}.json"), text.into_bytes())
}

#[test]
fn a_rank_without_tasks_is_a_pe_without_load() {
    let files: Vec<_> =
        [&[1, 3][..], &[], &[101], &[]].iter().zip(0..).map(|(ids, rank)| of_rank(rank, ids, "")).collect();
    assert_eq!(read(&files, None).map(|r| r.database.pes().len()), Ok(4));
    // the rank is known although the files of ranks below it are not there
    assert_eq!(read(&files[3..], None).map(|r| r.database.pes().len()), Ok(4));
    // files that do not say their rank are ranks, too
    let nameless = |(name, text): &(String, Vec<u8>)| {
        let text = String::from_utf8_lossy(text).replace("\"metadata\"", "\"other\"");
        (name.clone(), text.into_bytes())
    };
    let nameless: Vec<_> = files.iter().map(nameless).collect();
    assert_eq!(read(&nameless, None).map(|r| r.database.pes().len()), Ok(4));
    let twice = [files[1].clone(), files[1].clone()];
    assert!(read(&twice, None).expect_err("a rank twice").1.to_string().contains("rank 1 is there twice"));
}

#[test]
fn whole_numbers_may_be_written_as_floats() {
    let (name, text) = of_rank(0, &[7], r#","user_defined":{"task_serialized_bytes":1048576.0}"#);
    let text = String::from_utf8(text).expect("text").replace("\"id\":7", "\"id\":7.0");
    let text = text.replace("\"node\":0", "\"node\":0.0").replace("\"rank\":0", "\"rank\":0.0");
    let object = read(&[(name, text.into_bytes())], None).expect("a file").database.object(0);
    assert_eq!((object.id, object.pe, object.bytes), (7, 0, 1 << 20));
    let own = r#"{"schema":"colony.loads/1","pes":1,"objects":[[1,0,1,4096.0,1]],"edges":[[0,0,8.0,1]]}"#;
    let database = one(own).expect("a file").database;
    assert_eq!((database.object(0).bytes, database.edges()[0].bytes), (4096, 8));
}

#[test]
fn bytes_that_no_file_has_are_unknown_and_not_zero() {
    use crate::quality::Quality;
    use crate::topology::Topology;
    let cost = |user_defined: &str, placement: &[u32]| {
        let files = [
            of_rank(0, &[1, 2], user_defined),
            of_rank(1, &[3], r#","user_defined":{"task_serialized_bytes":5}"#),
        ];
        let database = read(&files, None).expect("files").database;
        let mut text = Vec::new();
        write(&database, &mut text).expect("memory");
        assert_eq!(one(&String::from_utf8(text).expect("text")).map(|r| r.database), Ok(database.clone()));
        let quality = Quality::of(&database, placement, &Topology::Flat).expect("a placement");
        (quality.moved_bytes, quality.moved_bytes_one_pe)
    };
    for unknown in ["", r#","user_defined":{}"#, r#","user_defined":{"task_serialized_bytes":null}"#] {
        assert_eq!(cost(unknown, &[0, 1, 1]), (None, None), "{unknown}");
        assert_eq!(cost(unknown, &[0, 0, 0]), (Some(5), Some(5)), "{unknown}: what moves is known");
    }
    let zero = r#","user_defined":{"task_serialized_bytes":0}"#;
    assert_eq!(cost(zero, &[0, 1, 1]), (Some(0), Some(0)));
}

#[test]
fn a_value_of_another_type_is_an_error_with_its_field() {
    for (from, to, says) in [
        (
            "\"task_serialized_bytes\":512",
            "\"task_serialized_bytes\":\"512\"",
            "phases[1].tasks[0].user_defined.task_serialized_bytes: ",
        ),
        ("\"task_serialized_bytes\":512", "\"task_serialized_bytes\":-512", "task_serialized_bytes: "),
        ("\"node\":1", "\"node\":1.5", "phases[1].tasks[1].node: "),
        ("\"time\":1.5", "\"time\":\"1.5\"", "phases[1].tasks[1].time: "),
        (
            "\"seq_id\":4,\"home\":1,\"obj",
            "\"seq_id\":\"4\",\"home\":1,\"obj",
            "phases[1].tasks[1].entity.seq_id: ",
        ),
        ("\"bytes\":2048.0", "\"bytes\":null", "phases[1].communications[0].bytes: "),
        ("\"messages\":3", "\"messages\":true", "phases[1].communications[0].messages: "),
        ("\"id\":0,\"tasks\":[]", "\"id\":\"0\",\"tasks\":[]", "phases[0].id: "),
        ("\"rank\":0", "\"rank\":\"0\"", "metadata.rank: "),
        ("\"type\":\"LBDatafile\",\"meta", "\"type\":5,\"meta", "type: "),
        ("{\"seq_id\":4,\"home\":1,\"obj", "5,\"x\":{\"obj", "phases[1].tasks[1].entity: "),
    ] {
        let text = VT.replacen(from, to, 1);
        assert_ne!(text, VT, "{from}");
        let error = one(&text).expect_err(to).to_string();
        assert!(error.contains(says), "{to}: {error}");
        for internal in ["struct ", "enum ", "u64", "u32", "f64", "visitor"] {
            assert!(!error.contains(internal), "{to}: {error}");
        }
    }
    for content in ["[]", "5", r#"{"schema":"colony.loads/1","pes":"x","objects":[]}"#] {
        let error = one(content).expect_err(content).to_string();
        assert!(!error.contains("struct ") && !error.contains("enum "), "{content}: {error}");
    }
}

#[test]
fn a_phase_identical_to_the_one_before_has_its_loads() {
    let listed = |list: &str| {
        VT.replace(
            "\"rank\":0,",
            &format!("\"rank\":0,\"phases\":{{\"count\":9,\"identical_to_previous\":{list}}},"),
        )
    };
    let read_phase = |text: &str, phase| {
        read(&[("x".to_owned(), text.as_bytes().to_vec())], phase)
            .map(|r| r.database.objects())
            .map_err(|e| e.1.to_string())
    };
    let text = listed(r#"{"list":[2],"range":[[3,5],[7,8]]}"#);
    assert_eq!((read_phase(&text, Some(2)), read_phase(&text, Some(5))), (Ok(2), Ok(2)));
    // phase 6 was skipped
    assert_eq!(read_phase(&text, Some(7)), Err("the file has no phase 7; it has 0, 1".to_owned()));
    assert_eq!(read_phase(&listed(r#"{"range":[[2,4]]}"#), None), Ok(2), "the last phase by default");
    assert_eq!(
        read_phase(&listed(r#"{"range":[[2,18446744073709551615]]}"#), None),
        Ok(2),
        "no count takes for ever"
    );
}

#[test]
fn our_file_is_given_alone() {
    let mut text = Vec::new();
    write(&small(), &mut text).expect("memory");
    let files = [("a".to_owned(), text.clone()), ("b".to_owned(), text)];
    assert!(read(&files, None).expect_err("two").1.to_string().contains("alone"));
}

proptest! {
    #[test]
    fn no_input_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        fuzz_read(&bytes);
    }

    #[test]
    fn no_change_of_a_good_file_panics(
        own: bool, at in any::<prop::sample::Index>(), with in any::<u8>(), cut in any::<prop::sample::Index>(), what in 0..3,
    ) {
        let mut text = VT.as_bytes().to_vec();
        if own {
            text.clear();
            write(&small(), &mut text).expect("memory");
        }
        let place = at.index(text.len());
        match what {
            0 => text[place] = with,
            1 => text.truncate(place),
            _ => {
                let other = cut.index(text.len());
                text.drain(place.min(other)..place.max(other));
            }
        }
        fuzz_read(&text);
    }
}
