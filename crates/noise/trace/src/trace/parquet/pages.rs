// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages of a column that are safe to decode: the decoder allocates as much memory as a page claims, and a failed
//! allocation would end the process.

use parquet::basic::Encoding;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::ParquetError;

/// Reads the pages of a column.
///
/// A dictionary page that claims more values than its bytes can hold is refused. So are pages of text whose lengths are
/// encoded as differences: their number is a claim, too, which no other figure of the file bounds. Data pages without
/// values, which the decoder would take for the end of the column, are left out.
pub(super) struct BoundedPages {
    pages: Box<dyn PageReader>,
    /// Bytes of the shortest value: text has a length of four bytes before it.
    least_bytes: usize,
}

impl BoundedPages {
    pub(super) fn new(pages: Box<dyn PageReader>, least_bytes: usize) -> Self {
        Self { pages, least_bytes }
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
            Some(Page::DataPage { encoding, .. } | Page::DataPageV2 { encoding, .. }) => {
                if matches!(encoding, Encoding::DELTA_BYTE_ARRAY | Encoding::DELTA_LENGTH_BYTE_ARRAY) {
                    let text =
                        format!("text in the encoding {encoding} is not read; write it with a dictionary");
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
            let page = self.pages.get_next_page()?;
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
        let pages = |least_bytes| BoundedPages::new(Box::new(Pages(Vec::new())), least_bytes);
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
        let seen: Vec<u32> =
            BoundedPages::new(Box::new(pages), 4).map(|page| page.expect("sound").num_values()).collect();
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
