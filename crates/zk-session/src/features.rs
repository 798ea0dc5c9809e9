//! What is missing without a feature: methods whose bound no type satisfies, so that the compiler names the feature.

#[cfg(not(feature = "tls"))]
#[diagnostic::on_unimplemented(
    message = "`tls_config` needs the feature `tls` of `zk-session`",
    label = "the feature `tls` is off",
    note = "enable it: `cargo add zk-session --features tls`"
)]
pub trait NeedsTls {}

#[cfg(not(feature = "sasl"))]
#[diagnostic::on_unimplemented(
    message = "SASL needs the feature `sasl` of `zk-session`",
    label = "the feature `sasl` is off",
    note = "enable it: `cargo add zk-session --features sasl`"
)]
pub trait NeedsSasl {}

#[cfg(not(any(feature = "tls", feature = "sasl")))]
#[diagnostic::on_unimplemented(
    message = "`read_files_by` needs the feature `tls` or `sasl` of `zk-session`",
    label = "the features `tls` and `sasl` are off: no files are read",
    note = "enable one: `cargo add zk-session --features tls`"
)]
pub trait NeedsFiles {}

#[cfg(not(feature = "drill"))]
#[diagnostic::on_unimplemented(
    message = "`isolate_until` needs the feature `drill` of `zk-session`",
    label = "the feature `drill` is off",
    note = "enable it: `cargo add zk-session --features drill`"
)]
pub trait NeedsDrill {}
