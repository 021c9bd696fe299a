// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages of a column that are safe to decode: the decoder allocates as much memory as a page claims, and a failed
//! allocation would end the process. Pages that gzip or zstd compressed are unpacked here, without the C libraries that the decoder
//! would need.

use std::io::Read;
use std::sync::Arc;

use flate2::read::MultiGzDecoder;
use parquet::basic::{Compression, Encoding};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::ChunkReader;
use parquet::file::serialized_reader::SerializedPageReader;
use ruzstd::decoding::StreamingDecoder;

/// Bytes of the largest page that is unpacked here. Data tools write pages of about 1 MiB.
const MAX_PAGE: usize = 1 << 28;

/// How the pages of a column are unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    /// They are plain, or the decoder unpacks them.
    None,
    Gzip,
    Zstd,
}

impl Packing {
    /// Unpacks the bytes of a page behind the first `plain` bytes.
    fn unpack(self, page: &bytes::Bytes, plain: usize) -> Result<bytes::Bytes, ParquetError> {
        let failed = |e: &dyn std::fmt::Display| {
            ParquetError::General(format!("a page is not compressed as the file says: {e}"))
        };
        let Some((head, packed)) = page.split_at_checked(plain) else {
            return Err(failed(&"it is too short"));
        };
        let mut out = head.to_vec();
        if packed.is_empty() {
            return Ok(out.into());
        }
        let mut unpacked: Box<dyn Read + '_> = match self {
            Self::None => return Ok(page.clone()),
            Self::Gzip => Box::new(MultiGzDecoder::new(packed)),
            Self::Zstd => Box::new(StreamingDecoder::new(packed).map_err(|e| failed(&e))?),
        };
        let read = (&mut unpacked).take(MAX_PAGE as u64 + 1).read_to_end(&mut out);
        match read.map_err(|e| failed(&e))? {
            n if n > MAX_PAGE => Err(failed(&format_args!("it has more than {MAX_PAGE} bytes"))),
            _ => Ok(out.into()),
        }
    }
}

/// A row group of a file.
pub(super) struct Group<'a, R> {
    pub(super) file: &'a Arc<R>,
    pub(super) metadata: &'a RowGroupMetaData,
}

impl<R: ChunkReader + 'static> Group<'_, R> {
    /// The pages of column `at`; `least_bytes` as in [`BoundedPages`]. `None` if they are compressed in a way that is not read.
    pub(super) fn pages(&self, at: usize, least_bytes: usize) -> Result<Option<BoundedPages>, ParquetError> {
        let column = self.metadata.column(at);
        let packing = match column.compression() {
            Compression::UNCOMPRESSED | Compression::SNAPPY => Packing::None,
            Compression::GZIP(_) => Packing::Gzip,
            Compression::ZSTD(_) => Packing::Zstd,
            _ => return Ok(None),
        };
        let rows = usize::try_from(self.metadata.num_rows())?;
        let pages = match packing {
            Packing::None => SerializedPageReader::new(Arc::clone(self.file), column, rows, None)?,
            _ => {
                // the decoder leaves alone what it takes for plain
                let plain =
                    column.clone().into_builder().set_compression(Compression::UNCOMPRESSED).build()?;
                SerializedPageReader::new(Arc::clone(self.file), &plain, rows, None)?
            }
        };
        let has_levels = column.column_descr().max_def_level() > 0;
        Ok(Some(BoundedPages { pages: Box::new(pages), packing, least_bytes, has_levels, most_values: rows }))
    }
}

/// Reads the pages of a column.
///
/// A dictionary page that claims more values than its bytes can hold is refused, and so are pages of text whose lengths are encoded
/// as differences and that claim more lengths than their row group has rows. Text that shares its beginnings (`DELTA_BYTE_ARRAY`) is
/// not read: the lengths in it could ask for any memory. Data pages without values, which the decoder would take for the end of the
/// column, are left out.
pub(super) struct BoundedPages {
    pages: Box<dyn PageReader>,
    packing: Packing,
    /// Bytes of the shortest value: text has a length of four bytes before it.
    least_bytes: usize,
    /// Levels that say which values are missing stand before the values of a page.
    has_levels: bool,
    /// Rows of the row group.
    most_values: usize,
}

/// The number of lengths that the beginning of a list of differences claims: the third of its numbers of seven bits a byte.
fn claimed_lengths(bytes: &[u8]) -> Option<u64> {
    let mut bytes = bytes.iter().copied();
    let mut number = || {
        let mut value = 0u64;
        for shift in (0..63).step_by(7) {
            let byte = bytes.next()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    };
    number()?;
    number()?;
    number()
}

impl BoundedPages {
    /// The bytes of a data page behind its levels.
    fn values<'a>(&self, page: &'a Page) -> Option<&'a [u8]> {
        let levels = match page {
            Page::DataPageV2 { def_levels_byte_len, rep_levels_byte_len, .. } => {
                *def_levels_byte_len as usize + *rep_levels_byte_len as usize
            }
            Page::DataPage { buf, .. } if self.has_levels => {
                let length: [u8; 4] = buf.get(..4)?.try_into().ok()?;
                4 + u32::from_le_bytes(length) as usize
            }
            _ => 0,
        };
        page.buffer().get(levels..)
    }

    /// The page with its data unpacked.
    fn unpacked(&self, page: Page) -> Result<Page, ParquetError> {
        if self.packing == Packing::None {
            return Ok(page);
        }
        Ok(match page {
            Page::DataPage {
                buf,
                num_values,
                encoding,
                def_level_encoding,
                rep_level_encoding,
                statistics,
            } => Page::DataPage {
                buf: self.packing.unpack(&buf, 0)?,
                num_values,
                encoding,
                def_level_encoding,
                rep_level_encoding,
                statistics,
            },
            // the levels before the values are never compressed
            Page::DataPageV2 {
                buf,
                num_values,
                encoding,
                num_nulls,
                num_rows,
                def_levels_byte_len,
                rep_levels_byte_len,
                is_compressed: true,
                statistics,
            } => Page::DataPageV2 {
                buf: self
                    .packing
                    .unpack(&buf, def_levels_byte_len as usize + rep_levels_byte_len as usize)?,
                num_values,
                encoding,
                num_nulls,
                num_rows,
                def_levels_byte_len,
                rep_levels_byte_len,
                is_compressed: false,
                statistics,
            },
            page @ Page::DataPageV2 { .. } => page,
            Page::DictionaryPage { buf, num_values, encoding, is_sorted } => {
                Page::DictionaryPage { buf: self.packing.unpack(&buf, 0)?, num_values, encoding, is_sorted }
            }
        })
    }

    fn check(&self, page: Option<Page>) -> Result<Option<Page>, ParquetError> {
        match &page {
            Some(Page::DictionaryPage { buf, num_values, .. }) => {
                let bytes = buf.len();
                if usize::try_from(*num_values).map_or(true, |values| values > bytes / self.least_bytes) {
                    let text = format!("a dictionary of {bytes} bytes claims {num_values} values");
                    return Err(ParquetError::General(text));
                }
            }
            Some(page @ (Page::DataPage { encoding, .. } | Page::DataPageV2 { encoding, .. })) => {
                let is_refused = match encoding {
                    Encoding::DELTA_BYTE_ARRAY => true,
                    Encoding::DELTA_LENGTH_BYTE_ARRAY => {
                        let claimed = self.values(page).and_then(claimed_lengths);
                        claimed.is_none_or(|lengths| lengths > self.most_values as u64)
                    }
                    _ => false,
                };
                if is_refused {
                    let text = format!("a page of text in the encoding {encoding} claims more than it has");
                    return Err(ParquetError::General(text));
                }
            }
            None => {}
        }
        Ok(page)
    }
}

/// Returns `true` for a data page without values.
fn is_empty(page: &Page) -> bool {
    !matches!(page, Page::DictionaryPage { .. }) && page.num_values() == 0
}

impl Iterator for BoundedPages {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for BoundedPages {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        loop {
            let page = self.pages.get_next_page()?.map(|page| self.unpacked(page)).transpose()?;
            if !page.as_ref().is_some_and(is_empty) {
                return self.check(page);
            }
        }
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        self.pages.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool, ParquetError> {
        self.pages.at_record_boundary()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dictionary_that_claims_more_values_than_it_has_bytes_is_refused() {
        let pages = |least_bytes| BoundedPages {
            pages: Box::new(Pages(Vec::new())),
            packing: Packing::None,
            least_bytes,
            has_levels: false,
            most_values: 100,
        };
        let dictionary = |bytes: usize, num_values| {
            Some(Page::DictionaryPage {
                buf: vec![0; bytes].into(),
                num_values,
                encoding: Encoding::PLAIN,
                is_sorted: false,
            })
        };
        assert!(pages(4).check(dictionary(8, 2)).is_ok());
        assert!(pages(8).check(dictionary(8, 2)).is_err());
        let error = pages(4).check(dictionary(100, u32::MAX)).expect_err("refused").to_string();
        assert!(error.contains("100 bytes claims 4294967295 values"), "{error}");
    }

    #[test]
    fn lengths_that_a_row_group_cannot_have_are_refused() {
        // blocks of 128 in 4 parts, 300 lengths, the first of them 0
        let lengths = [0x80, 0x01, 4, 0xac, 0x02, 0];
        assert_eq!(claimed_lengths(&lengths), Some(300));
        assert_eq!(claimed_lengths(&lengths[..4]), None);
        let page = |levels: &[u8]| Page::DataPage {
            buf: [levels, &lengths].concat().into(),
            num_values: 300,
            encoding: Encoding::DELTA_LENGTH_BYTE_ARRAY,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        for (has_levels, levels) in [(false, &[][..]), (true, &[2, 0, 0, 0, 7, 7])] {
            let pages = |most_values| BoundedPages {
                pages: Box::new(Pages(Vec::new())),
                packing: Packing::None,
                least_bytes: 4,
                has_levels,
                most_values,
            };
            assert!(pages(300).check(Some(page(levels))).is_ok());
            assert!(pages(299).check(Some(page(levels))).is_err());
        }
    }

    #[test]
    fn a_data_page_without_values_does_not_end_the_column() {
        let data = |num_values| Page::DataPage {
            buf: vec![0; 8].into(),
            num_values,
            encoding: Encoding::PLAIN,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        let pages = Pages(vec![data(2), data(0), data(0), data(1), data(0)]);
        let pages = BoundedPages {
            pages: Box::new(pages),
            packing: Packing::None,
            least_bytes: 4,
            has_levels: false,
            most_values: 100,
        };
        let seen: Vec<u32> = pages.map(|page| page.expect("sound").num_values()).collect();
        assert_eq!(seen, [1, 2]);
    }

    /// Pages, the last one first.
    struct Pages(Vec<Page>);

    impl Iterator for Pages {
        type Item = Result<Page, ParquetError>;

        fn next(&mut self) -> Option<Self::Item> {
            self.get_next_page().transpose()
        }
    }

    impl PageReader for Pages {
        fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
            Ok(self.0.pop())
        }

        fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
            Ok(None)
        }

        fn skip_next_page(&mut self) -> Result<(), ParquetError> {
            Ok(())
        }
    }
}
