// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of the protobuf encoding that messages need: varints, fixed 64-bit numbers, and fields with a length.

/// A message as it grows.
#[derive(Default)]
pub(crate) struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn tag(&mut self, field: u32, wire: u32) {
        self.varint(u64::from(field << 3 | wire));
    }

    /// An integer, an enumeration or a truth value.
    pub(crate) fn number(mut self, field: u32, value: u64) -> Self {
        self.tag(field, 0);
        self.varint(value);
        self
    }

    /// A `fixed64`.
    pub(crate) fn fixed(mut self, field: u32, value: u64) -> Self {
        self.tag(field, 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// A text.
    pub(crate) fn text(mut self, field: u32, text: &str) -> Self {
        self.bytes(field, text.as_bytes());
        self
    }

    /// A message inside this one.
    pub(crate) fn message(mut self, field: u32, inner: &Self) -> Self {
        self.bytes(field, &inner.0);
        self
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.tag(field, 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
    }

    /// The encoded message.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_encoding_is_that_of_the_documentation() {
        // https://protobuf.dev/programming-guides/encoding: 150 as field 1, "testing" as field 2
        assert_eq!(Message::default().number(1, 150).as_bytes(), [0x08, 0x96, 0x01]);
        let text = [0x12, 0x07, b't', b'e', b's', b't', b'i', b'n', b'g'];
        assert_eq!(Message::default().text(2, "testing").as_bytes(), text);
        let inner = Message::default().number(1, 150);
        assert_eq!(Message::default().message(3, &inner).as_bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        assert_eq!(Message::default().fixed(47, 1).as_bytes(), [0xf9, 0x02, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Message::default().number(1, u64::MAX).as_bytes().len(), 11);
    }
}
