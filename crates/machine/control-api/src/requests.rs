// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests about the machine, its partitions, jobs and events.

use hyper::Method;

use crate::api::{
    Event, InputTaken, Job, JobRequest, Machine, MachineRequest, Node, Partition, PartitionRequest,
    SignalRequest,
};
use crate::client::{escaped, json};
use crate::{Client, ClientError};

impl Client {
    /// The machine.
    ///
    /// # Errors
    /// As all requests: [`ClientError`].
    pub fn machine(&self) -> Result<Machine, ClientError> {
        self.ask(Method::GET, "/v1/machine", Vec::new())
    }

    /// Sets up a machine, and begins to boot a partition of all its nodes if that is asked for.
    ///
    /// # Errors
    /// As all requests.
    pub fn set_up(&self, request: &MachineRequest) -> Result<Machine, ClientError> {
        self.ask(Method::POST, "/v1/machine", json(request)?)
    }

    /// Switches the machine off; the daemon ends.
    ///
    /// # Errors
    /// As all requests.
    pub fn down(&self) -> Result<(), ClientError> {
        self.ask::<()>(Method::DELETE, "/v1/machine", Vec::new())?;
        self.wait_gone();
        Ok(())
    }

    /// Makes a partition.
    ///
    /// # Errors
    /// As all requests.
    pub fn add_partition(&self, request: &PartitionRequest) -> Result<Partition, ClientError> {
        self.ask(Method::POST, "/v1/partitions", json(request)?)
    }

    /// A partition.
    ///
    /// # Errors
    /// As all requests.
    pub fn partition(&self, name: &str) -> Result<Partition, ClientError> {
        self.ask(Method::GET, &format!("/v1/partitions/{}", escaped(name)), Vec::new())
    }

    /// Removes a partition.
    ///
    /// # Errors
    /// As all requests.
    pub fn remove_partition(&self, name: &str) -> Result<(), ClientError> {
        self.ask(Method::DELETE, &format!("/v1/partitions/{}", escaped(name)), Vec::new())
    }

    /// The nodes of a partition.
    ///
    /// # Errors
    /// As all requests.
    pub fn nodes(&self, partition: &str) -> Result<Vec<Node>, ClientError> {
        self.ask(Method::GET, &format!("/v1/partitions/{}/nodes", escaped(partition)), Vec::new())
    }

    /// Begins to boot a partition.
    ///
    /// # Errors
    /// As all requests.
    pub fn boot(&self, partition: &str) -> Result<Partition, ClientError> {
        self.ask(Method::POST, &format!("/v1/partitions/{}/boot", escaped(partition)), Vec::new())
    }

    /// Begins to switch a partition off.
    ///
    /// # Errors
    /// As all requests.
    pub fn free(&self, partition: &str) -> Result<Partition, ClientError> {
        self.ask(Method::POST, &format!("/v1/partitions/{}/free", escaped(partition)), Vec::new())
    }

    /// Adds a job to the queue of its partition.
    ///
    /// # Errors
    /// As all requests.
    pub fn submit(&self, request: &JobRequest) -> Result<Job, ClientError> {
        self.ask(Method::POST, "/v1/jobs", json(request)?)
    }

    /// A job.
    ///
    /// # Errors
    /// As all requests.
    pub fn job(&self, id: u64) -> Result<Job, ClientError> {
        self.ask(Method::GET, &format!("/v1/jobs/{id}"), Vec::new())
    }

    /// The last jobs, the newest first, without their environments.
    ///
    /// # Errors
    /// As all requests.
    pub fn jobs(&self, limit: u32) -> Result<Vec<Job>, ClientError> {
        let mut all = Vec::<Job>::new();
        loop {
            let left = u64::from(limit).saturating_sub(all.len() as u64);
            let last = all.last().map(|job| job.id);
            let before = last.map(|id| format!("&before={id}")).unwrap_or_default();
            if left == 0 {
                return Ok(all);
            }
            let page: Vec<Job> =
                self.ask(Method::GET, &format!("/v1/jobs?limit={left}{before}"), Vec::new())?;
            let known = all.len();
            // an answer may have fewer jobs than there are, but each has some
            all.extend(page.into_iter().filter(|job| last.is_none_or(|last| job.id < last)));
            if all.len() == known {
                return Ok(all);
            }
        }
    }

    /// Sends a signal to a job.
    ///
    /// # Errors
    /// As all requests.
    pub fn signal(&self, job: u64, signal: i32) -> Result<(), ClientError> {
        self.ask(Method::POST, &format!("/v1/jobs/{job}/signal"), json(&SignalRequest { signal })?)
    }

    /// Sends a part of a job's standard input: its first byte has the number `from`, and after the last part comes the end. Less
    /// than all of it may be taken.
    ///
    /// # Errors
    /// As all requests.
    pub fn send_input(
        &self,
        job: u64,
        from: u64,
        part: &[u8],
        is_last: bool,
    ) -> Result<InputTaken, ClientError> {
        let path = format!("/v1/jobs/{job}/stdin?from={from}&end={is_last}");
        self.ask(Method::PUT, &path, part.to_vec())
    }

    /// Events: `query` is that of `GET /v1/ras`.
    ///
    /// # Errors
    /// As all requests.
    pub fn ras(&self, query: &[(&str, String)]) -> Result<Vec<Event>, ClientError> {
        let query: Vec<String> =
            query.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        self.ask(Method::GET, &format!("/v1/ras?{}", query.join("&")), Vec::new())
    }
}
