use crate::{
    engine::config::Config,
    record::{Contender, ContenderStatus, Record, RecordError, VERSION},
};

/// What the own znode in a contest is to hold.
pub(in crate::engine) fn contender(
    config: &Config,
    status: ContenderStatus,
    since_ms: u64,
    ready_ms: Option<u64>,
) -> Result<Vec<u8>, RecordError> {
    let profile = &config.member;
    if !config.recipe.is_native() {
        return Ok(profile.member.as_str().into());
    }
    let record = Contender {
        v: VERSION,
        member: profile.member.clone(),
        site: profile.site.clone(),
        status,
        address: profile.address.clone(),
        http: profile.http.clone(),
        software: profile.software.clone(),
        since_ms,
        ready_ms,
    };
    record.encode(&config.paths.leader_znode(0))
}
