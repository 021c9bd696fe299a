// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compressed files: gzip and zstd, unpacked while they are read.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;

/// The bytes of `file`, unpacked if they are compressed. The second value is true if they were.
///
/// # Errors
/// The stream's, or the compressed data is damaged.
pub(super) fn unpacked<'a>(file: impl Read + 'a) -> io::Result<(Box<dyn Read + 'a>, bool)> {
    let mut file = BufReader::new(file);
    let head = file.fill_buf()?;
    if head.starts_with(&[0x1f, 0x8b]) {
        return Ok((Box::new(Damage { what: "gzip", input: MultiGzDecoder::new(file) }), true));
    }
    if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        return Ok((
            Box::new(Damage { what: "zstd", input: Frames { file: Some(file), frame: None } }),
            true,
        ));
    }
    Ok((Box::new(file), false))
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

type Frame<R> = StreamingDecoder<R, ruzstd::decoding::FrameDecoder>;

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(frame) = &mut self.frame {
                match frame.read(buffer)? {
                    0 if !buffer.is_empty() => {}
                    n => return Ok(n),
                }
            }
            self.file = self.frame.take().map(|frame| frame.into_inner()).or_else(|| self.file.take());
            let Some(mut file) = self.file.take() else { return Ok(0) };
            if file.fill_buf()?.is_empty() {
                return Ok(0);
            }
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
