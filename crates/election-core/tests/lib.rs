//! Nothing: the programs `runtime` and `others` are what this package is for.
