// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processes of partitions: started, adopted, and started again when they end unasked.

use std::sync::Arc;
use std::time::Duration;

use colony_nodes::programs;
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::control::{Control, Told, lock, wrong};
use super::keeper::Keeper;
use super::owner::{Process, Waiting};
use super::requeue::Over;
use crate::ControlError;
use crate::api::{MACHINE_FAILED, PartitionState, Severity};
use crate::service::protocol::Setup;
use crate::store::{Change, Row};

/// Boots of a partition, without one that succeeds, until it counts as failed.
const BOOTS: u32 = 3;
/// The name of the program that owns a partition's nodes; it belongs beside the daemon's.
const SERVICE: &str = "colony-partition";

impl Control {
    /// Adopts partitions whose processes run, and boots those again whose processes have ended.
    pub(super) fn adopt(self: &Arc<Self>) -> Result<(), ControlError> {
        let rows = self.store().partitions()?;
        for row in rows {
            let Some(owner) = row.owner else { continue };
            if let Some(process) = Process::find(owner) {
                let text = "the control daemon has started again and found its nodes".to_owned();
                self.report(Severity::Info, &row.name, "partition-adopted", text, None);
                self.keep(&row.name, process)?;
            } else {
                self.ended(&row.name, "while no control daemon ran")?;
                self.boot_again(&row.name);
            }
        }
        Ok(())
    }

    /// The process of a partition has ended. Its jobs are lost, except for those that had begun no rank.
    fn ended(&self, name: &str, how: &str) -> Result<(), ControlError> {
        lock(&self.keepers).remove(name);
        let row = self.row(name)?;
        let why = format!("the process that owned the nodes of partition {name} ended ({how})");
        let begun = self.store().begun(name)?;
        for job in begun {
            let has_begun = !self.is_marked(job.id);
            self.job_over(name, None, Over::by_machine(job.id, has_begun, why.clone()))?;
        }
        let change = if row.state == PartitionState::Freeing {
            Change { state: PartitionState::Free, error: None, boot_s: None }
        } else {
            self.report(Severity::Fatal, name, "partition-lost", why.clone(), None);
            Change { state: PartitionState::Failed, error: Some(why), boot_s: None }
        };
        self.store().set_partition(name, &change, false)?;
        self.tell(Told::Partition { name: name.to_owned(), state: change.state });
        Ok(())
    }

    /// Starts the process of a partition whose nodes are switched off.
    pub(super) fn start(self: &Arc<Self>, row: &Row) -> Result<(), ControlError> {
        self.check_boot()?;
        let name = &row.name;
        let socket = self.socket(name);
        let folder = socket.with_file_name("");
        std::fs::create_dir_all(&folder).map_err(ControlError::io(folder.display().to_string()))?;
        let (machine, origin) = (self.model_machine()?.shape(), row.origin);
        let setup =
            Setup { name: name.clone(), socket, machine, origin, shape: row.shape, node: row.node.clone() };
        let file = folder.join("setup.json");
        let text = serde_json::to_vec(&setup).map_err(wrong)?;
        colony_node::file::replace(&file, &text).map_err(ControlError::io(file.display().to_string()))?;
        let program = programs::beside(SERVICE).map_err(ControlError::Wrong)?;
        let waiting = Waiting::start(&program, &file, &folder.join("log"))
            .map_err(ControlError::io(format!("starting {}", program.display())))?;
        let owner = waiting.owner().map_err(ControlError::io("a partition service"));
        if let Err(error) = owner.and_then(|owner| self.store().begin_boot(name, owner)) {
            waiting.abandon();
            return Err(error);
        }
        let process = waiting.begin().map_err(ControlError::io("a partition service"))?;
        self.tell(Told::Partition { name: name.clone(), state: PartitionState::Booting });
        self.keep(name, process)
    }

    fn keep(self: &Arc<Self>, name: &str, process: Process) -> Result<(), ControlError> {
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let bell = Arc::new(bell.map_err(|e| ControlError::io("an event descriptor")(e.into()))?);
        lock(&self.keepers).insert(name.to_owned(), bell.clone());
        let (control, name) = (self.clone(), name.to_owned());
        let run = move || {
            let how = Keeper { control: control.clone(), name: name.clone(), process, bell }.run();
            // without the database there is nobody to tell
            let _ = control.ended(&name, &how);
            control.boot_again(&name);
        };
        std::thread::Builder::new().spawn(run).map(drop).map_err(ControlError::io("starting a thread"))
    }

    /// Boots a partition again whose process has ended unasked.
    fn boot_again(self: &Arc<Self>, name: &str) {
        let _changing = lock(&self.changing);
        let Ok(row) = self.row(name) else { return };
        if row.state != PartitionState::Failed || row.owner.is_some() {
            return;
        }
        let boots = {
            let mut all = lock(&self.boots);
            let boots = all.entry(name.to_owned()).or_default();
            *boots += 1;
            *boots
        };
        let again = if boots < BOOTS {
            // a process that ends at once is not started in a tight circle
            std::thread::sleep(Duration::from_millis(100) * boots);
            self.start(&row)
        } else {
            Err(ControlError::Conflict(format!("its process has ended {boots} times without booting")))
        };
        if let Err(error) = again {
            self.report(Severity::Fatal, name, "partition-boot", error.to_string(), None);
            let _ = self.fail_queue(name, MACHINE_FAILED, &error.to_string());
        }
    }
}
