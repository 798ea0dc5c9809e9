//! Stages and strategies of another crate, by the names that a policy knows them by.

use std::{collections::BTreeMap, fmt, sync::Arc};

use election_core::strategy::SiteId;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::{
    own::{OwnStage, OwnStrategy},
    settings::SpecError,
    spec::{self, Factory, Inputs, PolicySpec, Registered, put_over},
};

/// Stages and whole strategies that a policy may name besides the built-in ones.
/// Each is made of its settings whenever a policy is read. It must be as pure as any strategy and must not panic.
/// Members with different registries decide differently: run the same program on all of them.
///
/// ```
/// use election_core::strategy::{MemberRecord, Round};
/// use serde::Deserialize;
/// use strategies::{Comparison, OwnStage, Registry, Standing};
///
/// /// Members with a certain tag go first.
/// #[derive(Debug, Deserialize)]
/// struct Tagged {
///     tag: String,
/// }
///
/// impl Comparison for Tagged {
///     fn grade(&self, candidate: &MemberRecord, _: &Round<'_>) -> i64 {
///         i64::from(candidate.attributes.get("tag") != Some(&self.tag))
///     }
///     fn reason(&self, _: &MemberRecord, standing: Standing, _: &Round<'_>) -> String {
///         let has = if standing.is_best() { "has" } else { "lacks" };
///         format!("{has} the tag {}", self.tag)
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let registry = Registry::default().stage("tagged", |stage: Tagged, _| Ok(OwnStage::comparison(stage)))?;
/// let policy = toml::from_str(r#"pipeline = [{ stage = "tagged", tag = "ssd" }, "incumbent"]"#)?;
/// assert!(registry.read(&policy, Default::default()).is_ok());
///
/// let wrong = toml::from_str(r#"pipeline = [{ stage = "tagged", tga = "ssd" }]"#)?;
/// let problems = registry.read(&wrong, Default::default()).unwrap_err().to_string();
/// assert!(problems.contains("pipeline[0].tag: it is missing"));
/// assert!(problems.contains("pipeline[0].tga: unknown key; valid here: stage, tag"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Registry {
    known: Registered,
}

impl Registry {
    /// Adds a stage. `make` gets the settings from the table in which the policy names the stage, and the `sites` of the
    /// policy, the most preferred first; it returns why it cannot make a stage of them. Settings are read with serde: `()`
    /// has none, and a key that their type does not have is refused.
    ///
    /// # Errors
    /// The name is used by a built-in or registered stage or strategy, or is not valid.
    pub fn stage<S: DeserializeOwned>(
        mut self,
        name: &'static str,
        make: impl Fn(S, &[SiteId]) -> Result<OwnStage, String> + Send + Sync + 'static,
    ) -> Result<Self, RegistryError> {
        self.check(name)?;
        self.known.stages.insert(name, factory(make));
        Ok(self)
    }

    /// Adds a whole strategy, which a policy names as its `strategy`; `make` as for [`stage`](Self::stage). The mandatory
    /// filters, forbidden sites, stages `limit`, `site_minimum` and `auto_moves` always go before it.
    ///
    /// # Errors
    /// The name is used by a built-in or registered stage or strategy, or is not valid.
    pub fn strategy<S: DeserializeOwned>(
        mut self,
        name: &'static str,
        make: impl Fn(S, &[SiteId]) -> Result<OwnStrategy, String> + Send + Sync + 'static,
    ) -> Result<Self, RegistryError> {
        self.check(name)?;
        self.known.strategies.insert(name, factory(make));
        Ok(self)
    }

    /// Reads a policy that may name these, for members that publish these inputs.
    ///
    /// # Errors
    /// As for [`PolicySpec::read`].
    pub fn read(&self, text: &Map<String, Value>, inputs: Inputs) -> Result<PolicySpec, SpecError> {
        PolicySpec::read_by(text, inputs, &self.known)
    }

    /// Puts the keys of a policy for one job over `text`, those for all jobs, and reads the result.
    ///
    /// - A `strategy` replaces everything else that orders the candidates, but not the stages `limit`.
    /// - A pipeline or rules replace a strategy.
    /// - `forbidden_sites` without `sites` are left out of the `sites` for all jobs.
    ///
    /// # Errors
    /// As for [`PolicySpec::read`].
    pub fn read_over(
        &self,
        text: &mut Map<String, Value>,
        news: Map<String, Value>,
        inputs: Inputs,
    ) -> Result<PolicySpec, SpecError> {
        put_over(text, news);
        self.read(text, inputs)
    }

    fn check(&self, name: &'static str) -> Result<(), RegistryError> {
        let mut parts = name.split('-');
        let is_word = |part: &str| {
            !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        let error = |why| Err(RegistryError { name, why });
        if !parts.all(is_word) {
            return error("is not a valid name; valid: words of a-z and 0-9 separated by hyphens");
        }
        if spec::is_built_in(name) {
            return error("is the name of a built-in stage; choose another one");
        }
        if self.known.stages.contains_key(name) || self.known.strategies.contains_key(name) {
            return error("is registered already; choose another name");
        }
        Ok(())
    }
}

fn factory<S: DeserializeOwned, T>(
    make: impl Fn(S, &[SiteId]) -> Result<T, String> + Send + Sync + 'static,
) -> Factory<T> {
    Arc::new(move |settings| {
        make(settings.read()?, settings.sites).map_err(|problem| settings.say(problem)).ok()
    })
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stages, strategies): (Vec<_>, Vec<_>) =
            (self.known.stages.keys().collect(), self.known.strategies.keys().collect());
        f.debug_struct("Registry").field("stages", &stages).field("strategies", &strategies).finish()
    }
}

/// By identity of the factories.
impl PartialEq for Registry {
    fn eq(&self, other: &Self) -> bool {
        fn same<T>(
            one: &BTreeMap<&'static str, Factory<T>>,
            other: &BTreeMap<&'static str, Factory<T>>,
        ) -> bool {
            one.len() == other.len()
                && one.iter().all(|(name, one)| other.get(name).is_some_and(|other| Arc::ptr_eq(one, other)))
        }
        same(&self.known.stages, &other.known.stages) && same(&self.known.strategies, &other.known.strategies)
    }
}

/// Why a name cannot be registered.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} {why}")]
pub struct RegistryError {
    name: &'static str,
    why: &'static str,
}

/// As `Display`, for a `main` that returns it.
impl fmt::Debug for RegistryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::Healthy;

    fn with(name: &'static str) -> Result<Registry, RegistryError> {
        Registry::default().stage(name, |(), _| Ok(OwnStage::filter(Healthy)))
    }

    #[test]
    fn a_name_that_is_built_in_or_taken_or_none_is_refused_with_the_reason() {
        for built_in in
            ["site-order", "latency", "limit", "healthy", "member-id", "site-allowed", "failed-last"]
        {
            let error = with(built_in).unwrap_err().to_string();
            let expected = format!("{built_in:?} is the name of a built-in stage; choose another one");
            assert_eq!(error, expected);
        }
        for none in ["", "Rack", "two words", "-", "a--b", "other_rack"] {
            let error = with(none).unwrap_err().to_string();
            assert!(
                error.ends_with("is not a valid name; valid: words of a-z and 0-9 separated by hyphens"),
                "{error}"
            );
        }
        let twice = with("rack-2").unwrap().strategy("rack-2", |(), _| Err(String::new())).unwrap_err();
        assert_eq!(format!("{twice:?}"), "\"rack-2\" is registered already; choose another name");
    }

    #[test]
    fn registries_are_equal_where_their_factories_are() {
        let one = with("rack").unwrap();
        assert_eq!(one, one.clone());
        assert_ne!(one, Registry::default());
        assert_ne!(one, with("rack").unwrap());
        assert_eq!(format!("{one:?}"), r#"Registry { stages: ["rack"], strategies: [] }"#);
    }
}
