//! Cuts a stream of bytes into lines.

/// A longer line is cut into pieces, so that a line without end takes no more memory.
pub(super) const LONGEST_LINE: usize = 8 * 1024;

#[derive(Default)]
pub(super) struct OutputLines {
    bytes: Vec<u8>,
    /// How many bytes were handed out.
    taken: usize,
}

impl OutputLines {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next complete line, without its end.
    pub(super) fn next(&mut self) -> Option<&[u8]> {
        let left = &self.bytes[self.taken..];
        let window = &left[..left.len().min(LONGEST_LINE + 1)];
        let (line, length) = match window.iter().position(|&byte| byte == b'\n') {
            Some(end) => (&left[..end], end + 1),
            None if left.len() > LONGEST_LINE => (&left[..LONGEST_LINE], LONGEST_LINE),
            None => return None,
        };
        self.taken += length;
        Some(line)
    }

    /// A last line without an end, or the beginning of the next line.
    pub(super) fn rest(&self) -> Option<&[u8]> {
        let rest = &self.bytes[self.taken..];
        (!rest.is_empty()).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_survive_any_cut_of_the_stream_and_long_ones_are_cut() {
        let long = "x".repeat(LONGEST_LINE + 3);
        let text = format!("first\n\nthird\n{long}\nlast");
        for size in [1, 7, text.len()] {
            let mut lines = OutputLines::default();
            let mut read = Vec::new();
            for part in text.as_bytes().chunks(size) {
                lines.push(part);
                while let Some(line) = lines.next() {
                    read.push(line.to_vec());
                }
            }
            read.extend(lines.rest().map(<[u8]>::to_vec));
            let expected = ["first", "", "third", &long[..LONGEST_LINE], "xxx", "last"];
            assert_eq!(read, expected.map(|line| line.as_bytes().to_vec()), "cut every {size}");
        }
    }
}
