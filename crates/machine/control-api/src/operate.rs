// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests of operators: nodes that get no more jobs, rates of events.

use hyper::Method;

use crate::api::{Drain, DrainRequest, Partition, Rate, RightsRequest, Threshold};
use crate::client::{escaped, json};
use crate::{Client, ClientError};

impl Client {
    /// The parts of the machine that are drained.
    ///
    /// # Errors
    /// As all requests: [`ClientError`].
    pub fn drains(&self) -> Result<Vec<Drain>, ClientError> {
        self.ask(Method::GET, "/v1/drains", Vec::new())
    }

    /// Drains parts of the machine: their nodes get no new jobs.
    ///
    /// # Errors
    /// As all requests.
    pub fn drain(&self, request: &DrainRequest) -> Result<Vec<Drain>, ClientError> {
        self.ask(Method::POST, "/v1/drains", json(request)?)
    }

    /// Gives jobs again to a part of the machine and to all of its parts that are drained, or to several, separated by commas.
    /// Returns the locations that were drained.
    ///
    /// # Errors
    /// As all requests.
    pub fn undrain(&self, location: &str) -> Result<Vec<String>, ClientError> {
        self.ask(Method::DELETE, &format!("/v1/drains/{}", escaped(location)), Vec::new())
    }

    /// Changes who may run jobs on a partition.
    ///
    /// # Errors
    /// As all requests.
    pub fn set_rights(&self, partition: &str, request: &RightsRequest) -> Result<Partition, ClientError> {
        self.ask(Method::POST, &format!("/v1/partitions/{}/rights", escaped(partition)), json(request)?)
    }

    /// Events by location and code in the last `within_s` seconds, at locations that begin so.
    ///
    /// # Errors
    /// As all requests.
    pub fn rates(&self, within_s: f64, location: Option<&str>) -> Result<Vec<Rate>, ClientError> {
        let location = location.map(|text| format!("&location={}", escaped(text))).unwrap_or_default();
        self.ask(Method::GET, &format!("/v1/ras/rates?within_s={within_s}{location}"), Vec::new())
    }

    /// The numbers of events that drain a node.
    ///
    /// # Errors
    /// As all requests.
    pub fn thresholds(&self) -> Result<Vec<Threshold>, ClientError> {
        self.ask(Method::GET, "/v1/ras/thresholds", Vec::new())
    }

    /// Sets the number of events of a code that drains a node.
    ///
    /// # Errors
    /// As all requests.
    pub fn set_threshold(&self, threshold: &Threshold) -> Result<Vec<Threshold>, ClientError> {
        self.ask(Method::POST, "/v1/ras/thresholds", json(threshold)?)
    }
}
