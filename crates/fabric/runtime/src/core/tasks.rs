// SPDX-License-Identifier: MIT OR Apache-2.0
//! Futures of objects: the scheduler's side of [`task`](crate::task).

use std::any::Any;
use std::cell::RefCell;

use super::Core;
use crate::address::Address;
use crate::task::{Request, Task};
use crate::track::Hook;

impl Core {
    /// Lets the futures of an object go on as far as they can.
    pub(crate) fn run_tasks(&mut self, slot: u32) {
        let class = self.slots.get(slot).filter(|element| !element.tasks.is_empty()).map(|e| e.class);
        let begin = self.track.now();
        self.run_tasks_of(slot);
        if let Some((class, info)) = class.and_then(|class| Some((class, self.classes.get(class)?))) {
            self.track.hooked(begin, class, info.entries.len(), Hook::Future);
        }
    }

    fn run_tasks_of(&mut self, slot: u32) {
        loop {
            let Some(element) = self.slots.get_mut(slot) else { return };
            let mut tasks = std::mem::take(&mut element.tasks);
            let before = tasks.len();
            let mut progress = false;
            tasks.retain_mut(|task| {
                let (ended, ran) = self.drive(slot, task);
                progress |= ran;
                !ended
            });
            let Some(element) = self.slots.get_mut(slot) else { return };
            let is_new = !element.tasks.is_empty();
            tasks.append(&mut element.tasks);
            element.tasks = tasks;
            // what one changed, another may have waited for
            if !(is_new || (progress && before > 1)) {
                return;
            }
        }
    }

    /// Lets one future go on until it waits. Returns whether it has ended, and whether it went on at all.
    fn drive(&mut self, slot: u32, task: &mut Task) -> (bool, bool) {
        let mut ran = false;
        loop {
            let Some(desk) = task.desk.downcast_ref::<RefCell<Request<Self>>>() else { return (true, ran) };
            let request = std::mem::replace(&mut *desk.borrow_mut(), Request::None);
            match request {
                Request::None | Request::Done(_) => *desk.borrow_mut() = request,
                Request::Reply(_) => {
                    *desk.borrow_mut() = request;
                    return (false, ran);
                }
                Request::Run(action) => {
                    let Some((_, mut object)) = self.take_object(slot) else { return (true, ran) };
                    let result = action(&mut *object, self, slot);
                    self.put_object(slot, object);
                    *desk.borrow_mut() = Request::Done(result);
                }
                Request::Until(condition) => {
                    let object = self.slots.get(slot).and_then(|e| e.object.as_deref());
                    if !object.is_some_and(&condition) {
                        *desk.borrow_mut() = Request::Until(condition);
                        return (false, ran);
                    }
                    *desk.borrow_mut() = Request::Done(Box::new(()));
                }
            }
            ran = true;
            if task.poll() {
                return (true, ran);
            }
            // it waits for something that is not of this runtime: it is polled again after the next entry method
            let desk = task.desk.downcast_ref::<RefCell<Request<Self>>>();
            if desk.is_some_and(|desk| matches!(&*desk.borrow(), Request::None)) {
                return (false, ran);
            }
        }
    }

    /// Takes the reply to a request of a future.
    pub(crate) fn take_reply(&mut self, to: Address, request: u32, message: Vec<u8>) {
        let Some(slot) = self.slot_of(to) else { return };
        let Some(element) = self.slots.get_mut(slot) else { return };
        let waits = |task: &&Task| {
            let desk = task.desk.downcast_ref::<RefCell<Request<Self>>>();
            desk.is_some_and(|d| matches!(&*d.borrow(), Request::Reply(id) if *id == request))
        };
        let Some(task) = element.tasks.iter().find(waits) else { return };
        if let Some(desk) = task.desk.downcast_ref::<RefCell<Request<Self>>>() {
            *desk.borrow_mut() = Request::Done(Box::new(message) as Box<dyn Any>);
        }
        self.after_entry(slot);
    }
}
