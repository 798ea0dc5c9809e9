//! Real workers of two sites, real jobs, a real ensemble.

#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]

mod bad_configuration;
mod balance;
mod dead_workers;
mod deployment;
mod doctor;
mod drill;
mod drill_modes;
mod duplicates;
mod election;
mod evacuation;
mod examples;
mod explain;
mod failover;
mod fast_failover;
mod fencing;
mod first_deployment;
mod freeze;
mod frozen;
mod guides;
mod health;
mod latency;
mod lost_quorum;
mod measure;
mod operator;
mod other_jobs;
mod outages;
mod overlay;
mod own_stage;
mod package;
mod planned;
mod postgres;
mod processes;
mod recipes;
mod shapes;
mod site_minimum;
mod slots;
mod spoiled_znodes;
mod two_versions;
mod unreachable;
mod upgrade;
mod valkey;
mod vip;
mod weeks;
