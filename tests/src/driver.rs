//! Each test exists for both drivers of zk-session.

use std::fmt;

/// A value of `zookeeper.driver`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// The default.
    Native,
    /// The second driver.
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

/// Creates two tests of each `async fn name(driver: Driver)`: `native::name` and `zookeeper_async::name`. The second is
/// a double: `cargo xtask test --full` runs it.
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
