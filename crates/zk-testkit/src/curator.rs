//! Curator, of Debian's package, to compare with.

use std::path::{Path, PathBuf};

/// Where Debian has jars.
const DEBIAN: &str = "/usr/share/java";

const JARS: [&str; 14] = [
    "curator-recipes",
    "curator-framework",
    "curator-client",
    "zookeeper",
    "zookeeper-jute",
    "guava",
    "slf4j-api",
    "slf4j-nop",
    "netty-buffer",
    "netty-common",
    "netty-handler",
    "netty-transport",
    "netty-codec",
    "netty-resolver",
];

/// The jars that a program of Curator's recipes needs, where Debian's package `libcurator-recipes-java` has them. The first
/// one is Curator's own.
pub fn curator_jars() -> [PathBuf; 14] {
    JARS.map(|name| Path::new(DEBIAN).join(format!("{name}.jar")))
}
