// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entry methods that wait: futures of an object that need no stack of their own while they wait.
//!
//! A future never holds its object or its PE. It asks for them by a request, which the scheduler carries out between two
//! polls; so other entry methods of the object run meanwhile, and no `unsafe` is needed.

use std::any::Any;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A function that runs with the object and the PE: `C` is the PE, the number the object's slot.
pub(crate) type Action<C> = Box<dyn FnOnce(&mut (dyn Any + Send), &mut C, u32) -> Box<dyn Any>>;
/// A condition of the object.
pub(crate) type Condition = Box<dyn Fn(&(dyn Any + Send)) -> bool>;

/// A request of a future, and what came of it.
pub(crate) enum Request<C> {
    /// No request.
    None,
    /// Run this now.
    Run(Action<C>),
    /// Go on when this holds.
    Until(Condition),
    /// Go on when the reply to this request arrives.
    Reply(u32),
    /// The result.
    Done(Box<dyn Any>),
}

/// The place in which a future and the scheduler exchange requests.
pub(crate) type Desk<C> = Rc<RefCell<Request<C>>>;

/// Waits at a desk for a result.
pub(crate) struct AtDesk<C> {
    pub(crate) desk: Desk<C>,
    pub(crate) request: Option<Request<C>>,
}

impl<C> Unpin for AtDesk<C> {}

impl<C> Future for AtDesk<C> {
    type Output = Box<dyn Any>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Box<dyn Any>> {
        let desk = Rc::clone(&self.desk);
        let mut place = desk.borrow_mut();
        if let Some(request) = self.request.take() {
            *place = request;
            return Poll::Pending;
        }
        match std::mem::replace(&mut *place, Request::None) {
            Request::Done(result) => Poll::Ready(result),
            other => {
                *place = other;
                Poll::Pending
            }
        }
    }
}

/// A future of an object, by the type of PE it needs erased.
pub(crate) struct Task {
    future: Pin<Box<dyn Future<Output = ()>>>,
    pub(crate) desk: Rc<dyn Any>,
}

impl Task {
    pub(crate) fn new(desk: Rc<dyn Any>, future: impl Future<Output = ()> + 'static) -> Self {
        Self { future: Box::pin(future), desk }
    }

    /// Lets the future go on. Returns `true` at its end.
    pub(crate) fn poll(&mut self) -> bool {
        self.future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }
}

/// The futures of an object.
pub(crate) type Tasks = Vec<Task>;
