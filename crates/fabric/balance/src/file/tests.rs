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
    let Read { database, skipped_edges } = one(VT).expect("a file of vt");
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
        // brotli of a short JSON text
        (&[0x8b, 0x0b, 0x80, 0x7b, 0x22, 0xff, 0x03][..], "brotli"),
    ] {
        assert_eq!(Format::of(content), Err(FileError::Compressed(name)));
    }
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
