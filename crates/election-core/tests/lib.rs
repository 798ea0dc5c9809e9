//! Nothing: the tests in `servers` are what this package is for.

/// The pages that describe election-core outside of its package: their snippets are compiled.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/from-curator.md")]
    struct FromCurator;
    #[doc = include_str!("../../../docs/from-kazoo.md")]
    struct FromKazoo;
}
