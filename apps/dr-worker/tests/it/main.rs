//! The program as its users have it: the command line, daemons, HTTP, the page, files and documents.

mod support;

mod absent_members;
mod access_lists;
mod cli_can_restart;
mod cli_explain;
mod cli_standing_orders;
mod cli_terminal;
mod cli_watch;
mod cli_with_zookeeper;
mod cli_without_zookeeper;
mod completions;
mod daemon_jobs;
mod dead_workers;
mod descriptors;
mod dev;
mod disagreeing_server;
#[allow(clippy::unwrap_used, reason = "a document that is not as expected")]
mod documents;
mod drill_report;
mod emergency_lead;
mod failed_sites;
mod fence_scripts;
mod frozen_disk;
mod haproxy;
mod http_control;
mod http_events;
mod http_openapi;
mod http_tls;
mod init;
mod job_exit_codes;
mod job_limits;
mod job_output;
mod job_requests;
mod log_blocked;
mod log_file;
mod metrics;
mod near_servers;
mod notify;
mod reload;
mod rsync_site;
mod security;
mod service;
mod status_page;
mod systemd;
mod watchdog;
