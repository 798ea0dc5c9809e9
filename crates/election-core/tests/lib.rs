//! Nothing: the programs `shell` and `others` are what this package is for.
