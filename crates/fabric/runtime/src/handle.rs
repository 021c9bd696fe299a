// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entry methods that wait for replies or for their object's state.

use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::future::Future;
use std::marker::PhantomData;
use std::rc::Rc;

use crate::core::Core;
use crate::message::{Message, Payload, unpack};
use crate::object::{Context, Element, Object, Respond};
use crate::task::{AtDesk, Desk, Request, Task};

/// A future's access to its object: the future asks, and the scheduler answers between two of the object's entry methods.
pub struct Handle<T> {
    desk: Desk<Core>,
    class: PhantomData<fn() -> T>,
}

impl<T: Object> Handle<T> {
    async fn at_desk(&self, request: Request<Core>) -> Box<dyn Any> {
        AtDesk { desk: Rc::clone(&self.desk), request: Some(request) }.await
    }

    /// Runs a function on the object.
    pub async fn with<R: 'static>(
        &self,
        function: impl FnOnce(&mut T, &mut Context<'_, T>) -> R + 'static,
    ) -> R {
        let action = move |object: &mut (dyn Any + Send), core: &mut Core, slot: u32| -> Box<dyn Any> {
            let object = object.downcast_mut::<T>().expect("a future of this class");
            Box::new(function(object, &mut Context::new(core, Some(slot))))
        };
        let result = self.at_desk(Request::Run(Box::new(action))).await;
        *result.downcast::<R>().expect("the function's result")
    }

    /// Waits until a condition of the object holds. It is looked at after each of the object's entry methods.
    pub async fn until(&self, condition: impl Fn(&T) -> bool + 'static) {
        let condition = move |object: &(dyn Any + Send)| {
            condition(object.downcast_ref::<T>().expect("a future of this class"))
        };
        self.at_desk(Request::Until(Box::new(condition))).await;
    }

    /// Sends a message to an object and waits for its reply. Other entry methods of this object run meanwhile.
    pub async fn ask<U: Respond<M>, M: Message>(&self, to: Element<U>, message: M) -> U::Reply {
        let send = move |_: &mut (dyn Any + Send), core: &mut Core, slot: u32| -> Box<dyn Any> {
            let Some(element) = core.slots.get_mut(slot) else { return Box::new(0u32) };
            element.ledger.requests = element.ledger.requests.wrapping_add(1).max(1);
            let (from, request) = (element.address, element.ledger.requests);
            match core.classes.entry_of(TypeId::of::<U>(), TypeId::of::<M>()) {
                Some((_, entry)) => {
                    let payload = Payload::Typed(Box::new(message));
                    core.send_from_slot(Some(slot), from, to.address(), entry, payload, 0, request);
                }
                None => core.fail_program(format!(
                    "the entry method of {} for {} is not registered: add it to the program",
                    std::any::type_name::<U>(),
                    std::any::type_name::<M>()
                )),
            }
            Box::new(request)
        };
        let request = self.at_desk(Request::Run(Box::new(send))).await;
        let request = *request.downcast::<u32>().expect("the request's number");
        let reply = self.at_desk(Request::Reply(request)).await;
        let bytes = *reply.downcast::<Vec<u8>>().expect("the reply's bytes");
        match unpack::<U::Reply>(&bytes) {
            Ok(reply) => reply,
            Err(error) => {
                let fail = move |_: &mut (dyn Any + Send), core: &mut Core, _: u32| -> Box<dyn Any> {
                    core.fail_program(error);
                    Box::new(())
                };
                self.at_desk(Request::Run(Box::new(fail))).await;
                // a program that has failed does not go on
                std::future::pending().await
            }
        }
    }
}

impl<T: Object> Context<'_, T> {
    /// Begins a threaded entry method: a future that may wait for replies and for the object's state, while other entry
    /// methods of the object run. It has no stack of its own. An object with such a future does not migrate until it ends.
    pub fn spawn<F: Future<Output = ()> + 'static>(&mut self, begin: impl FnOnce(Handle<T>) -> F) {
        let desk: Desk<Core> = Rc::new(RefCell::new(Request::None));
        let future = begin(Handle { desk: Rc::clone(&desk), class: PhantomData });
        if let Some(element) = self.slot.and_then(|s| self.core.slots.get_mut(s)) {
            element.tasks.push(Task::new(desk, future));
        }
    }
}
