// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compressed files: gzip and zstd, unpacked while they are read.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;

/// The bytes of `file`, unpacked if they are compressed. The second value is true if they were.
///
/// # Errors
/// The stream's, or the compressed data is damaged.
pub fn unpacked<'a>(file: impl Read + 'a) -> io::Result<(Box<dyn Read + 'a>, bool)> {
    let mut file = BufReader::new(file);
    let head = file.fill_buf()?;
    if head.starts_with(&[0x1f, 0x8b]) {
        return Ok((Box::new(Damage { what: "gzip", input: MultiGzDecoder::new(file) }), true));
    }
    if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) || is_skippable(head) {
        return Ok((
            Box::new(Damage { what: "zstd", input: Frames { file: Some(file), frame: None } }),
            true,
        ));
    }
    Ok((Box::new(file), false))
}

/// Bytes of the head of a frame without data: its mark and its length.
const SKIPPABLE_HEAD: usize = 8;

/// True if a frame of zstd begins here that holds no data, such as the seek table of a parallel compressor (RFC 8878, 3.1.2).
fn is_skippable(head: &[u8]) -> bool {
    matches!(head, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}

/// Says of an error that the compressed data has it.
struct Damage<R> {
    what: &'static str,
    input: R,
}

impl<R: Read> Read for Damage<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.input.read(buffer).map_err(|e| match e.kind() {
            io::ErrorKind::Interrupted => e,
            kind => {
                let what = self.what;
                io::Error::new(
                    kind,
                    format!("its {what} data is damaged or cut off ({e}); copy the file again"),
                )
            }
        })
    }
}

/// The frames of a zstd file, one after the other.
struct Frames<R: BufRead> {
    /// `None` while a frame is read.
    file: Option<R>,
    frame: Option<Box<Frame<R>>>,
}

/// A frame and, in front of the file, its first bytes. Every frame is longer.
type Frame<R> = StreamingDecoder<io::Chain<io::Cursor<Vec<u8>>, R>, ruzstd::decoding::FrameDecoder>;

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(frame) = &mut self.frame {
                match frame.read(buffer)? {
                    0 if !buffer.is_empty() => {}
                    n => return Ok(n),
                }
            }
            self.file =
                self.frame.take().map(|frame| frame.into_inner().into_inner().1).or_else(|| self.file.take());
            let Some(mut file) = self.file.take() else { return Ok(0) };
            // the buffer may end within the first bytes of a frame
            let mut head = Vec::with_capacity(SKIPPABLE_HEAD);
            file.by_ref().take(SKIPPABLE_HEAD as u64).read_to_end(&mut head)?;
            match *head {
                [] => return Ok(0),
                [0x50..=0x5f, 0x2a, 0x4d, 0x18, a, b, c, d] => {
                    let length = u64::from(u32::from_le_bytes([a, b, c, d]));
                    if io::copy(&mut file.by_ref().take(length), &mut io::sink())? < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    self.file = Some(file);
                    continue;
                }
                _ => {}
            }
            let file = io::Cursor::new(head).chain(file);
            self.frame = Some(Box::new(StreamingDecoder::new(file).map_err(io::Error::other)?));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(bytes).expect("memory");
        out.finish().expect("memory")
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
    }

    fn read(bytes: &[u8]) -> io::Result<(Vec<u8>, bool)> {
        let (mut input, was_packed) = unpacked(bytes)?;
        let mut out = Vec::new();
        input.read_to_end(&mut out)?;
        Ok((out, was_packed))
    }

    #[test]
    fn compressed_files_are_read_and_others_stay_as_they_are() {
        let text = b"start_ns,duration_ns\n5,7\n".repeat(1000);
        for pack in [gzip, zstd] {
            assert_eq!(read(&pack(&text)).expect("sound"), (text.clone(), true));
            let parts = [pack(&text[..100]), pack(&text[100..])].concat();
            assert_eq!(read(&parts).expect("two parts"), (text.clone(), true));
        }
        assert_eq!(read(&text).expect("no compression"), (text.clone(), false));
        assert_eq!(read(b"").expect("empty"), (Vec::new(), false));
    }

    #[test]
    fn frames_of_zstd_without_data_are_skipped() {
        let text = b"start_ns,duration_ns\n5,7\n".repeat(1000);
        let skippable =
            |n: u8| [&[0x50 + n, 0x2a, 0x4d, 0x18, n, 0, 0, 0][..], &vec![7; usize::from(n)]].concat();
        let parts =
            [skippable(4), zstd(&text[..99]), skippable(0), zstd(&text[99..]), skippable(15)].concat();
        assert_eq!(read(&parts).expect("sound"), (text, true));
        let cut = read(&parts[..parts.len() - 1]).expect_err("cut off").to_string();
        assert!(cut.contains("zstd") && cut.contains("copy the file again"), "{cut}");
    }

    #[test]
    fn damaged_data_is_named() {
        let text: Vec<u8> =
            (0..10_000u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        for (pack, name) in [(gzip as fn(&[u8]) -> Vec<u8>, "gzip"), (zstd, "zstd")] {
            let whole = pack(&text);
            let cut = read(&whole[..whole.len() / 2]).expect_err("cut off").to_string();
            assert!(cut.contains(name) && cut.contains("copy the file again"), "{cut}");
        }
    }
}
