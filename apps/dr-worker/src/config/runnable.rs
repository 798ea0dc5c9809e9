//! Whether a job can run on this node: looks at programs, directories and values, and starts nothing.

use std::collections::BTreeMap;
use std::iter::zip;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use job_guard::{JobOutput, Limits, ReadyProbe, RunAs};
use nix::unistd::{AccessFlags, access};

use super::hook::HookName;
use super::identity::check_run_as;
use super::key::job_key;
use super::limits::check_limits;
use super::spec::{
    DR_PROCESS, DR_REHEARSAL, DR_RUN, FENCE_VARIABLES, HOOK_VARIABLES, JobSpec, LEADERSHIP_VARIABLES,
    STANDBY_VARIABLES,
};
use super::standby::RoleChange;
use crate::host_fault::HostFault;

/// How many bytes the kernel passes to a program as one argument, or as one variable with its name: execve(2) on Linux.
const LONGEST: usize = 128 * 1024 - 1;

/// Why the kernel passes no such text, in front of which there are `more` bytes, to a program.
fn not_passed(text: &str, more: usize) -> Option<String> {
    let length = text.len() + more;
    if text.contains('\0') {
        Some("holds a NUL byte".to_owned())
    } else if length > LONGEST {
        Some(format!(
            "a text of {length} bytes can't be passed to a program: {LONGEST} is the most; use a file"
        ))
    } else {
        None
    }
}

impl JobSpec {
    /// Why the job can't run on this node: every fault, in the order of the configuration. Starts nothing.
    pub(super) fn faults(&self) -> Vec<SpecError> {
        let mut faults = Faults { prefix: job_key(&self.name), spec: self, found: Vec::new() };
        let has_dir = faults.check_dir();
        faults.check_env(&self.env);
        if self.processes.is_empty() {
            faults.check_program(has_dir);
        }
        if let Some(check) = &self.fitness {
            faults.check_probe("fitness", &check.probe, has_dir);
        }
        if let Some(probe) = &self.drill.probe {
            faults.check_probe("drill.probe", probe, has_dir);
        }
        if let Some(standby) = &self.standby {
            faults.check_command("standby.command", &standby.command, has_dir);
            faults.check_probe("standby.ready", &standby.ready, has_dir);
            if let Some(check) = &standby.liveness {
                faults.check_probe("standby.liveness", &check.probe, has_dir);
            }
            let changes =
                [("promote", &standby.promote), ("demote", &standby.demote), ("follow", &standby.follow)];
            for (key, change) in changes {
                if let RoleChange::Exec { command, .. } = change {
                    faults.check_command(&format!("standby.{key}.command"), command, has_dir);
                }
            }
        }
        if let Some(command) = &self.rehearsal.command {
            faults.check_command("rehearsal.command", command, has_dir);
        }
        faults.check_output();
        faults.check_host(self.run_as.as_ref(), &self.limits);
        for name in HookName::ALL {
            if let Some(hook) = self.hooks.get(name) {
                faults.check_command(&format!("hooks.{name}.command"), &hook.command, has_dir);
                if hook.timeout.is_zero() {
                    faults.add(&format!("hooks.{name}.timeout"), "is zero".to_owned());
                }
            }
        }
        for (at, fence) in self.fence.iter().flat_map(|fence| &fence.commands).enumerate() {
            faults.check_command(&format!("fence.commands[{at}].command"), &fence.command, has_dir);
        }
        if let Some(measure) = &self.measure {
            faults.check_command("measure.command", &measure.command, has_dir);
            for (key, value) in [("measure.interval", measure.interval), ("measure.timeout", measure.timeout)]
            {
                if value.is_zero() {
                    faults.add(key, "is zero".to_owned());
                }
            }
        }
        let mut found = faults.found;
        for (at, (process, program)) in zip(&self.processes, self.programs()).enumerate() {
            let prefix = format!("{}.process[{at}]", job_key(&self.name));
            let mut faults = Faults { prefix, spec: &program, found };
            let has_dir = if process.working_dir.is_some() { faults.check_dir() } else { has_dir };
            faults.check_env(&process.env);
            faults.check_program(has_dir);
            faults.check_host(process.run_as.as_ref(), &process.limits);
            found = faults.found;
        }
        found
    }
}

struct Faults<'a> {
    prefix: String,
    spec: &'a JobSpec,
    found: Vec<SpecError>,
}

impl Faults<'_> {
    fn add(&mut self, key: &str, fault: impl Into<HostFault>) {
        self.found.push(SpecError { key: format!("{}.{key}", self.prefix), fault: fault.into() });
    }

    /// Whether the working directory is one.
    fn check_dir(&mut self) -> bool {
        let Some(dir) = self.spec.working_dir.as_deref().filter(|dir| !dir.is_dir()) else { return true };
        let why = format!("{} is not a directory", dir.display());
        self.add("working_dir", HostFault { why, may_pass: !dir.exists() });
        false
    }

    fn check_env(&mut self, env: &BTreeMap<String, String>) {
        for name in env.keys() {
            let key = format!("env.{name}");
            let leadership = LEADERSHIP_VARIABLES.iter();
            let set_by_worker = leadership.chain(&HOOK_VARIABLES).chain(&FENCE_VARIABLES).chain(&[
                DR_REHEARSAL,
                DR_PROCESS,
                DR_RUN,
            ]);
            let has_role = self.spec.standby.is_some() && STANDBY_VARIABLES.contains(&name.as_str());
            if has_role || set_by_worker.into_iter().any(|set| set == name) {
                self.add(&key, "is set by the worker for each leadership".to_owned());
            } else if name.is_empty() || name.contains(['=', '\0']) {
                self.add(&key, "is not the name of an environment variable".to_owned());
            }
        }
        for (name, value) in env {
            if let Some(why) = not_passed(value, name.len() + 1) {
                self.add(&format!("env.{name}"), why);
            }
        }
    }

    fn check_program(&mut self, has_dir: bool) {
        // A relative program in a missing directory would be reported twice.
        self.check_command("command", &self.spec.command, has_dir);
        self.check_probe("ready", &self.spec.ready, has_dir);
        if let Some(check) = &self.spec.liveness {
            self.check_probe("liveness", &check.probe, has_dir);
        }
    }

    /// Whether this host allows that user and these limits.
    fn check_host(&mut self, run_as: Option<&RunAs>, limits: &Limits) {
        let run_as = run_as.map_or(Ok(()), check_run_as);
        for (key, problem) in [run_as, check_limits(limits)].into_iter().filter_map(Result::err) {
            self.add(key, problem);
        }
    }

    fn check_probe(&mut self, name: &str, probe: &ReadyProbe, has_dir: bool) {
        match probe {
            ReadyProbe::None { .. } | ReadyProbe::Notify => {}
            ReadyProbe::Exec { command, .. } => {
                self.check_command(&format!("{name}.command"), command, has_dir);
            }
            ReadyProbe::Http { url, .. } => {
                let problem = match reqwest::Url::parse(url) {
                    Ok(parsed) if parsed.scheme() == "http" => None,
                    Ok(parsed) => Some(format!("{} is not supported, only http", parsed.scheme())),
                    Err(error) => Some(error.to_string()),
                };
                if let Some(problem) = problem {
                    self.add(&format!("{name}.url"), format!("{url}: {problem}"));
                }
            }
            ReadyProbe::Tcp { address, .. } => {
                let port = address
                    .rsplit_once(':')
                    .and_then(|(host, port)| (!host.is_empty()).then_some(port.parse::<u16>().ok()?));
                if port.is_none_or(|port| port == 0) {
                    self.add(&format!("{name}.address"), format!("{address:?} is not HOST:PORT"));
                }
            }
        }
        let Some((interval, timeout)) = probe.pace() else { return };
        for (key, value) in [("interval", interval), ("timeout", timeout)] {
            if value.is_zero() {
                self.add(&format!("{name}.{key}"), "is zero".to_owned());
            }
        }
    }

    fn check_output(&mut self) {
        match &self.spec.output {
            JobOutput::Log => {}
            JobOutput::File(file) => {
                if let Some(problem) = not_a_place(&file.path) {
                    self.add("output.path", problem);
                }
            }
            JobOutput::Journal { socket } => {
                let is_socket = socket.metadata().is_ok_and(|socket| socket.file_type().is_socket());
                if !is_socket {
                    let problem =
                        format!("{} is not a socket: no journal runs on this host", socket.display());
                    self.add("output.socket", HostFault { why: problem, may_pass: !socket.exists() });
                }
            }
        }
    }

    fn check_command(&mut self, key: &str, command: &[String], has_dir: bool) {
        let Some(program) = command.first().filter(|program| !program.is_empty()) else {
            self.add(key, "names no program".to_owned());
            return;
        };
        if let Some(why) = command.iter().find_map(|word| not_passed(word, 0)) {
            self.add(key, why);
            return;
        }
        let base = self.spec.working_dir.as_deref();
        if program.contains('/') {
            let path = base.unwrap_or(Path::new("")).join(program);
            if (has_dir || Path::new(program).is_absolute())
                && let Some(problem) = not_executable(&path)
            {
                self.add(key, problem);
            }
            return;
        }
        let search = self
            .spec
            .env
            .get("PATH")
            .map(Into::into)
            .or_else(|| std::env::var_os("PATH"))
            .unwrap_or_else(|| "/bin:/usr/bin".into());
        let is_there = std::env::split_paths(&search)
            .any(|dir| not_executable(&base.unwrap_or(Path::new("")).join(dir).join(program)).is_none());
        if !is_there {
            let why = format!("no executable {program:?} in PATH ({})", search.to_string_lossy());
            self.add(key, HostFault::absent(why));
        }
    }
}

/// Why no file can be written at `path`, and renamed there; `None` if it can.
pub(super) fn not_a_place(path: &Path) -> Option<HostFault> {
    if path.is_dir() {
        return Some(format!("{} is a directory", path.display()).into());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !parent.is_dir() {
        let why = format!("{} is not a directory; create it", parent.display());
        return Some(HostFault { why, may_pass: !parent.exists() });
    }
    let errno = access(parent, AccessFlags::W_OK | AccessFlags::X_OK).err()?;
    let why = format!("no file can be created in {}: {}", parent.display(), errno.desc());
    Some(HostFault::of_kind(why, std::io::Error::from(errno).kind()))
}

/// Why `dir` can't be, or become, a directory in which this process keeps files; `None` if it can.
pub(super) fn not_a_home(dir: &Path) -> Option<HostFault> {
    let there = dir.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("."));
    if !there.is_dir() {
        return Some(format!("{} is not a directory", there.display()).into());
    }
    let errno = access(there, AccessFlags::W_OK | AccessFlags::X_OK).err()?;
    Some(HostFault::of_user(dir, &errno.into()))
}

/// Why `path` can't be executed; `None` if it can.
fn not_executable(path: &Path) -> Option<HostFault> {
    match path.metadata() {
        Err(error) => Some(HostFault::io(path, "", &error)),
        Ok(metadata) if metadata.is_dir() => Some(format!("{} is a directory", path.display()).into()),
        Ok(_) => access(path, AccessFlags::X_OK)
            .err()
            .map(|errno| format!("{} can't be executed: {}", path.display(), errno.desc()).into()),
    }
}

/// One fault of a job's configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {fault}")]
pub(super) struct SpecError {
    /// The key, such as `job.orders.command`.
    pub(super) key: String,
    /// What is wrong with its value, or with what it names.
    pub(super) fault: HostFault,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::{Hook, HookMode};

    fn faults(spec: &JobSpec) -> Vec<String> {
        spec.faults().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_command_is_found_in_path_or_by_path() {
        assert_eq!(faults(&JobSpec::example()), Vec::<String>::new());
        let mut by_path = JobSpec::example();
        by_path.command = vec!["./sh".into()];
        by_path.working_dir = Some("/bin".into());
        assert_eq!(faults(&by_path), Vec::<String>::new());
    }

    #[test]
    fn a_command_that_does_not_exist_is_named_with_its_key() {
        let mut missing = JobSpec::example();
        missing.command = vec!["no-such-program".into()];
        let found = faults(&missing);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("job.orders.command: no executable \"no-such-program\" in PATH ("),
            "{found:?}"
        );

        missing.command = vec!["/no/such/program".into()];
        assert_eq!(
            faults(&missing),
            ["job.orders.command: /no/such/program: No such file or directory (os error 2)"]
        );
        missing.command = vec!["/etc/passwd".into()];
        assert_eq!(
            faults(&missing),
            ["job.orders.command: /etc/passwd can't be executed: Permission denied"]
        );
        missing.command = vec!["/etc".into()];
        assert_eq!(faults(&missing), ["job.orders.command: /etc is a directory"]);
        missing.command = Vec::new();
        assert_eq!(faults(&missing), ["job.orders.command: names no program"]);
    }

    #[test]
    fn the_jobs_own_path_is_searched() {
        let mut own = JobSpec::example();
        own.env.insert("PATH".into(), "/nowhere".into());
        assert_eq!(faults(&own), ["job.orders.command: no executable \"sh\" in PATH (/nowhere)"]);
    }

    #[test]
    fn all_faults_are_listed_at_once() {
        let mut wrong = JobSpec::example();
        wrong.working_dir = Some("/no/such/dir".into());
        wrong.env.insert("DR_TERM".into(), "1".into());
        wrong.env.insert("A=B".into(), "1".into());
        wrong.ready = ReadyProbe::Http {
            url: "https://localhost/".into(),
            interval: Duration::ZERO,
            timeout: Duration::from_secs(1),
        };
        wrong.hooks.after_stop = Some(Hook {
            command: vec!["/no/such/hook".into()],
            timeout: Duration::ZERO,
            mode: HookMode::Sync,
        });
        assert_eq!(
            faults(&wrong),
            [
                "job.orders.working_dir: /no/such/dir is not a directory",
                "job.orders.env.A=B: is not the name of an environment variable",
                "job.orders.env.DR_TERM: is set by the worker for each leadership",
                "job.orders.ready.url: https://localhost/: https is not supported, only http",
                "job.orders.ready.interval: is zero",
                "job.orders.hooks.after_stop.command: /no/such/hook: No such file or directory \
                 (os error 2)",
                "job.orders.hooks.after_stop.timeout: is zero",
            ]
        );
    }

    #[test]
    fn a_job_may_report_its_own_readiness() {
        let notified = JobSpec { ready: ReadyProbe::Notify, ..JobSpec::example() };
        assert_eq!(faults(&notified), Vec::<String>::new());
    }

    #[test]
    fn a_tcp_address_needs_host_and_port() {
        for (address, is_good) in [
            ("localhost:80", true),
            ("[::1]:80", true),
            ("localhost", false),
            (":80", false),
            ("localhost:0", false),
            ("localhost:http", false),
        ] {
            let mut probed = JobSpec::example();
            probed.ready = ReadyProbe::Tcp {
                address: address.into(),
                interval: Duration::from_secs(1),
                timeout: Duration::from_secs(1),
            };
            assert_eq!(faults(&probed).is_empty(), is_good, "{address}");
        }
    }
}
