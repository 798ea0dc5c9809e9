//! Nothing: the tests in `servers` are what this package is for.
