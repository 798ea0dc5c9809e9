//! In place of SASL without the feature: there is no such value.

pub(super) enum DigestMd5 {}

impl DigestMd5 {
    pub(super) fn is_complete(&self) -> bool {
        match *self {}
    }

    pub(super) fn step(&mut self, _token: &[u8]) -> Result<Option<Vec<u8>>, String> {
        match *self {}
    }
}
