// SPDX-License-Identifier: MIT OR Apache-2.0

use proptest::prelude::*;

use super::*;
use crate::schema::ClassSchema;

fn folder() -> (tempfile::TempDir, Folder) {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = Folder(dir.path().join("checkpoints"));
    (dir, folder)
}

fn described(build: &str, classes: Vec<ClassSchema>) -> Description {
    Description { build: build.to_owned(), runtime: 1, classes }
}

fn own() -> Description {
    described("own", Vec::new())
}

fn author(pes: u32, run: u64) -> Author {
    Author { pes, run, description: own() }
}

fn image(seed: u8) -> Image {
    Image::new((0..1000u32).map(|i| (i as u8).wrapping_mul(seed)).collect())
}

#[test]
fn the_newest_checkpoint_with_all_files_is_used_and_older_ones_are_dropped() {
    let (_dir, folder) = folder();
    assert_eq!(folder.newest().expect("no folder is no checkpoint"), None);
    for (number, pe) in [(3, 0), (3, 1), (12, 1)] {
        folder.write((number, pe), author(2, 1), &image(number as u8)).expect("room");
    }
    let third = Complete { folder: folder.0.clone(), number: 3, pes: 2 };
    assert_eq!(folder.newest().expect("readable"), Some(third.clone()));
    assert_eq!(third.read(1, &own()).expect("whole").0, *image(3).bytes());
    folder.clean(12, 2, 1);
    assert_eq!(folder.newest().expect("readable"), Some(third.clone()), "the new one is not complete");
    folder.write((12, 0), author(2, 7), &image(12)).expect("room");
    assert_eq!(folder.newest().expect("readable"), Some(third.clone()), "the new one is of two runs");
    folder.write((12, 0), author(2, 1), &image(12)).expect("room");
    (0..2).for_each(|_| folder.clean(12, 2, 1));
    assert_eq!(folder.numbers().expect("readable"), [12]);
}

fn numbers(folder: &Folder) -> Vec<u64> {
    let mut numbers = folder.numbers().expect("readable");
    numbers.sort_unstable();
    numbers
}

#[test]
fn so_many_complete_checkpoints_are_kept_and_no_incomplete_one_before_them() {
    let (_dir, folder) = folder();
    let write = |number: u64, pes: u32| {
        (0..pes).for_each(|pe| folder.write((number, pe), author(pes, 1), &image(3)).expect("room"));
    };
    [1, 2, 4].into_iter().for_each(|number| write(number, 2));
    // of 5, one file is missing; the job goes on with three PEs then
    folder.write((5, 0), author(2, 1), &image(3)).expect("room");
    write(6, 3);
    folder.clean(6, 3, 3);
    assert_eq!(numbers(&folder), [2, 4, 6]);
    write(7, 3);
    (0..3).for_each(|_| folder.clean(7, 3, 2));
    assert_eq!(numbers(&folder), [6, 7]);
}

#[test]
fn a_damaged_checkpoint_leaves_the_one_before_it() {
    let (_dir, folder) = folder();
    for number in [4, 5] {
        folder.write((number, 0), author(1, 1), &image(3)).expect("room");
        folder.clean(number, 1, 2);
    }
    let path = folder.file(5, 0);
    let whole = fs::read(&path).expect("written");
    let newest = || folder.newest().expect("readable").map(|complete| complete.number);
    assert_eq!(newest(), Some(5));
    // a file that is too short, or too long, is found by its length
    for wrong in [&whole[..whole.len() - 1], &whole[..40], &[], &[&whole[..], &[0]].concat()] {
        fs::write(&path, wrong).expect("room");
        assert_eq!(newest(), Some(4), "{} bytes", wrong.len());
    }
    let mut flipped = whole.clone();
    flipped[whole.len() - 5] ^= 4;
    fs::write(&path, &flipped).expect("room");
    let last = folder.newest().expect("readable").expect("its length is right");
    let error = last.read(0, &own()).expect_err("its checksum is wrong").to_string();
    let remedy = format!("to restart from checkpoint 4, remove {}", folder.of(5).display());
    assert!(error.contains("is corrupt") && error.ends_with(&remedy), "{error}");
    folder.remove(4);
    let error = last.read(0, &own()).expect_err("its checksum is wrong").to_string();
    assert!(error.ends_with("there is no complete checkpoint before it"), "{error}");
    fs::write(&path, b"short").expect("room");
    assert!(matches!(folder.newest(), Err(DiskError::Damaged { .. })), "not taken for no checkpoint");
}

#[test]
fn a_file_has_its_name_before_the_folders_are_written_to_the_disk() {
    let (_dir, folder) = folder();
    folder.create(&folder.of(0)).expect("room");
    let (part, path) = (folder.of(0).join("0.part"), folder.file(0, 0));
    fs::write(&part, b"whole").expect("room");
    let mut synced = Vec::new();
    let mut note = |folder: &Path| {
        assert!(path.is_file() && !part.exists());
        synced.push(folder.to_owned());
        Ok(())
    };
    publish(&part, &path, &mut note).expect("renamed");
    assert_eq!(synced, [folder.of(0), folder.0.clone()]);
    synced.iter().for_each(|folder| sync_folder(folder).expect("written"));
    fs::write(&part, b"whole").expect("room");
    let mut refuse = |_: &Path| Err(io::Error::other("no disk"));
    assert!(publish(&part, &path, &mut refuse).is_err(), "the checkpoint does not count as written");
    assert!(sync_folder(&folder.of(1)).is_err());
}

#[test]
fn a_file_that_another_user_can_have_written_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let (_dir, folder) = folder();
    folder.write((0, 0), author(1, 1), &image(1)).expect("room");
    let only = Complete { folder: folder.0.clone(), number: 0, pes: 1 };
    let path = folder.file(0, 0);
    assert_eq!(fs::metadata(&path).expect("written").mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(folder.of(0)).expect("written").mode() & 0o777, 0o700);
    for mode in [0o620, 0o602, 0o666] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("ours");
        let error = only.read(0, &own()).expect_err("anyone can have written it").to_string();
        assert!(error.contains("chmod go-w"), "{error}");
        assert!(matches!(folder.newest(), Err(DiskError::Refused { .. })), "{mode:o}");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("ours");
    assert!(only.read(0, &own()).is_ok());
    if !geteuid().is_root() {
        colony_testing::skip("a file of another user needs root");
        return;
    }
    std::os::unix::fs::chown(&path, Some(65534), None).expect("root may");
    let error = only.read(0, &own()).expect_err("of another user").to_string();
    assert!(error.contains("belongs to user 65534, and this is user 0"), "{error}");
}

#[test]
fn files_that_are_damaged_or_of_others_are_refused() {
    let (_dir, folder) = folder();
    folder.write((0, 0), author(1, 1), &image(1)).expect("room");
    let only = Complete { folder: folder.0.clone(), number: 0, pes: 1 };
    let path = folder.file(0, 0);
    let whole = fs::read(&path).expect("written");
    for (at, flip) in [(0, 1), (9, 0x80), (13, 1), (20, 1), (whole.len() - 5, 4)] {
        let mut bytes = whole.clone();
        bytes[at] ^= flip;
        fs::write(&path, bytes).expect("room");
        assert!(only.read(0, &own()).is_err(), "byte {at}");
    }
    fs::write(&path, &whole[..whole.len() - 1]).expect("room");
    assert!(only.read(0, &own()).expect_err("cut").to_string().contains("corrupt"));
    fs::write(&path, &whole).expect("room");
    let another = Complete { pes: 2, ..only };
    assert!(another.read(0, &own()).expect_err("another").to_string().contains("PE 0 of 1"));
}

/// A class with one field.
fn class(number: u16, name: &str, kind: &str) -> ClassSchema {
    ClassSchema {
        number,
        name: name.to_owned(),
        namesakes: 0,
        version: 0,
        index: "i64".to_owned(),
        entries: vec!["Go".to_owned()],
        fields: vec![("round".to_owned(), kind.to_owned())],
        is_whole: true,
    }
}

#[test]
fn a_file_of_another_build_is_read_if_its_classes_are_the_same() {
    let (_dir, folder) = folder();
    let description = described("first", vec![class(3, "Cell", "u32")]);
    folder.write((0, 0), Author { description, ..author(1, 1) }, &image(1)).expect("room");
    let only = folder.newest().expect("readable").expect("complete");
    let now = described("second", vec![class(0, "Helper", "u8"), class(1, "Cell", "u32")]);
    let (bytes, numbers) = only.read(0, &now).expect("the same class");
    assert_eq!((bytes, numbers), (image(1).bytes().into_owned(), ClassNumbers::from([(3, 1)])));
    only.check(&now).expect("the same class");
    let other = described("second", vec![class(1, "Cell", "u64")]);
    for error in [only.check(&other).map(drop), only.read(0, &other).map(drop)] {
        let error = error.expect_err("another layout").to_string();
        let path = folder.file(0, 0).display().to_string();
        assert!(error.starts_with(&path), "{error}");
        assert!(
            error.contains("the class Cell of") && error.contains("`round` of its state was u32, and is u64"),
            "{error}"
        );
    }
    let error = only.check(&Description { runtime: 2, ..now }).expect_err("another runtime").to_string();
    assert!(error.contains("another version of Colony's runtime"), "{error}");
}

#[test]
fn a_file_of_another_format_is_refused_by_its_format() {
    let (_dir, folder) = folder();
    folder.write((0, 0), author(1, 1), &image(1)).expect("room");
    let path = folder.file(0, 0);
    let mut bytes = fs::read(&path).expect("written");
    bytes[7] = b'1';
    fs::write(&path, bytes).expect("room");
    let error = folder.newest().expect_err("refused");
    assert!(matches!(error, DiskError::Refused { .. }));
    assert!(error.to_string().contains("has the format 1, and this program reads format 2"), "{error}");
}

#[test]
fn what_the_system_refuses_is_no_damage_and_removes_nothing() {
    let (_dir, folder) = folder();
    for number in [4, 5] {
        folder.write((number, 0), author(1, 1), &image(3)).expect("room");
    }
    // a folder in the place of the file opens, and cannot be read (EISDIR)
    let path = folder.file(5, 0);
    fs::remove_file(&path).expect("ours");
    fs::create_dir(&path).expect("room");
    let error = folder.newest().expect_err("not passed over for checkpoint 4");
    let DiskError::System { source, .. } = &error else { panic!("{error}") };
    assert_eq!(source.kind(), ErrorKind::IsADirectory);
    assert!(error.to_string().starts_with(&path.display().to_string()), "{error}");
    folder.write((6, 0), author(1, 1), &image(3)).expect("room");
    folder.clean(6, 1, 1);
    assert_eq!(numbers(&folder), [5, 6], "5 may be whole");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]
    #[test]
    fn any_bytes_are_a_checkpoint_or_not(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let (_dir, folder) = folder();
        fs::create_dir_all(folder.of(0)).expect("room");
        fs::write(folder.file(0, 0), &bytes).expect("room");
        let checkpoint = Complete { folder: folder.0.clone(), number: 0, pes: 1 };
        prop_assert!(checkpoint.read(0, &own()).is_err());
        let _ = folder.newest();
    }
}
