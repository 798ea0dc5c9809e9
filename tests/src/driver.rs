//! Each test exists for both of the clients that zk-session can use.

use std::fmt;

/// A value of `zookeeper.driver`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// The default.
    Native,
    /// The other one.
    ZookeeperAsync,
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "native",
            Self::ZookeeperAsync => "zookeeper-async",
        })
    }
}

/// Makes two tests of each `async fn name(driver: Driver)`: `native::name` and
/// `zookeeper_async::name`. The latter is a double: it runs by `cargo xtask test --full`.
#[macro_export]
macro_rules! with_both_drivers {
    ($($name:ident),+ $(,)?) => {
        mod native {
            $(#[tokio::test]
            async fn $name() {
                super::$name($crate::Driver::Native).await;
            })+
        }
        mod zookeeper_async {
            $(#[tokio::test]
            #[ignore = "double: the other driver; cargo xtask test --full"]
            async fn $name() {
                super::$name($crate::Driver::ZookeeperAsync).await;
            })+
        }
    };
}
