// SPDX-License-Identifier: MIT OR Apache-2.0
//! Python objects as objects of the runtime: constructors, entry methods, coroutines, hooks.

use std::panic::resume_unwind;

use colony_runtime::{ArrayIndex, Context, Entry, Handle, Object, Program, Quiet, Reduced, Schema};
use pyo3::exceptions::{PyRuntimeError, PyStopIteration, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use crate::array::{Array, Destination, Place, Receiver};
use crate::call::{Args, Call, Init};
use crate::held::{Body, Held, State, Wire, blank, set_state, state_bytes};
use crate::journal::{Journal, Repeated};
use crate::pe::{Running, send};
use crate::proxy;
use crate::scope::{self, Pe};
use crate::session;

/// The condition for a coroutine to go on.
enum Wait {
    /// The future of this number has its value.
    Future(u64),
    /// This function returns a true value.
    Until(Py<PyAny>),
}

/// A step of a coroutine.
enum Step {
    Ended(Py<PyAny>),
    Waits(Wait),
}

/// A coroutine of an entry method.
struct Coroutine {
    coroutine: Py<PyAny>,
    method: u16,
    reply: Option<Destination>,
}

/// Ends the job with an exception. `sys.exit` ends it as `exit` does, and a code that is an error is printed.
fn fail<T>(py: Python<'_>, cx: &mut Context<'_, T>, error: PyErr, place: &str) {
    if let Some(code) = session::exit_code(py, &error) {
        if code != 0 {
            session::print_exit(py, &error, &format!("{place} on PE {}", cx.pe()));
        }
        return cx.exit(code);
    }
    session::note(py, &error, &format!("{place} on PE {}", cx.pe()));
    let text = format!("{place}: {error}");
    session::set_failure(error);
    // the runtime ends a program whose entry method panics; this panic prints nothing
    resume_unwind(Box::new(text));
}

/// The type of the objects that `async def` functions return.
fn is_coroutine(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    static TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    Ok(value.get_type().is(TYPE.import(value.py(), "types", "CoroutineType")?))
}

impl<const N: usize> Held<N>
where
    [i32; N]: ArrayIndex,
{
    /// Runs Python code of the object.
    fn run<'py, R>(
        &mut self,
        py: Python<'py>,
        cx: &mut Context<'_, Self>,
        code: impl FnOnce(&Bound<'py, PyAny>, &Array) -> PyResult<R>,
    ) -> PyResult<R> {
        self.revive(py, cx)?;
        let Body::Live { object, array, .. } = &self.body else {
            return Err(PyRuntimeError::new_err("the object does not exist: its constructor failed"));
        };
        let (object, array) = (object.bind(py), array.clone());
        run(cx, &mut self.state, object, &array, code)
    }

    /// Makes the Python object of a pickled state.
    fn revive(&mut self, py: Python<'_>, cx: &Context<'_, Self>) -> PyResult<()> {
        if !matches!(self.body, Body::Packed(..)) {
            return Ok(());
        }
        let Body::Packed(array, packed) = std::mem::replace(&mut self.body, Body::Dead) else {
            return Ok(());
        };
        let (array, index) = (array.unpack()?, cx.this().address().index);
        let object = blank(&array, array.form.to_python(py, index)?, proxy::of_array(py, &array)?)?;
        set_state(&object, packed.load(py)?)?;
        self.body = Body::Live { object: object.unbind(), array, index };
        Ok(())
    }

    /// The object and a method of it, for people.
    fn place(&self, cx: &Context<'_, Self>, method: &str) -> String {
        match &self.body {
            Body::Live { array, .. } => format!("{}.{method}", array.show(cx.this().address().index)),
            _ => format!("{:?}.{method}", cx.index()),
        }
    }

    fn method_name(&self, py: Python<'_>, receiver: Receiver) -> String {
        match (&self.body, receiver) {
            (Body::Live { array, .. }, Receiver::Method(number)) => {
                array.class.method(number).map_or_else(|_| "?".to_owned(), |name| name.bind(py).to_string())
            }
            (_, Receiver::Future(_)) => "a future".to_owned(),
            (_, Receiver::Method(_)) => "?".to_owned(),
        }
    }

    /// Takes a message of any kind.
    fn take(&mut self, py: Python<'_>, call: Call, cx: &mut Context<'_, Self>) {
        let Call { receiver, reply, args } = call;
        let result = match receiver {
            Receiver::Future(number) => args.value(py).and_then(|value| self.state.give(py, number, value)),
            Receiver::Method(method) => self.invoke(py, method, args, reply, cx),
        };
        if let Err(error) = result {
            let place = self.place(cx, &self.method_name(py, receiver));
            fail(py, cx, error, &place);
        }
    }

    /// Runs an entry method, up to its end or to its first `await` that waits.
    fn invoke(
        &mut self,
        py: Python<'_>,
        method: u16,
        args: Args,
        reply: Option<Destination>,
        cx: &mut Context<'_, Self>,
    ) -> PyResult<()> {
        let result = self.run(py, cx, |object, array| {
            let (args, named) = args.load(py)?;
            object.call_method(array.class.method(method)?.bind(py), args, named.as_ref())
        })?;
        if !is_coroutine(&result)? {
            self.state.journal = None;
            return self.answer(reply, result, cx);
        }
        let coroutine = Coroutine { coroutine: result.unbind(), method, reply };
        self.keep_open(py, &coroutine);
        match self.step(py, &coroutine, cx)? {
            Step::Ended(value) => {
                self.state.journal = None;
                self.answer(reply, value.into_bound(py), cx)
            }
            Step::Waits(wait) => {
                cx.spawn(move |handle| go_on(handle, coroutine, wait));
                Ok(())
            }
        }
    }

    /// Keeps the coroutine of `main` for ever. A recovery would otherwise close it: its `finally` would run, in no object.
    fn keep_open(&self, py: Python<'_>, coroutine: &Coroutine) {
        if self.state.journal.is_some() {
            std::mem::forget(coroutine.coroutine.clone_ref(py));
        }
    }

    /// Runs `main` again up to the `await` at which the checkpoint was made.
    fn repeat_main(&mut self, py: Python<'_>, cx: &mut Context<'_, Self>) -> PyResult<()> {
        let main = session::main(py).ok_or_else(|| PyRuntimeError::new_err("no program runs"))?;
        self.state.forget_futures();
        if let Some(journal) = &mut self.state.journal {
            journal.begin_repeating();
        }
        let result = self.run(py, cx, |object, _| object.call_method1(intern!(py, "begin"), (main,)))?;
        if !is_coroutine(&result)? {
            return Err(Journal::ended());
        }
        let coroutine = Coroutine { coroutine: result.unbind(), method: 0, reply: None };
        self.keep_open(py, &coroutine);
        loop {
            let Step::Waits(wait) = self.step(py, &coroutine, cx)? else { return Err(Journal::ended()) };
            if !self.repeat_wait(py)? {
                cx.spawn(move |handle| go_on(handle, coroutine, wait));
                return Ok(());
            }
        }
    }

    /// Gives `main`, which waits, the values that it had. Returns `true` if it went on before the checkpoint.
    fn repeat_wait(&mut self, py: Python<'_>) -> PyResult<bool> {
        loop {
            let Some(journal) = &mut self.state.journal else { return Ok(false) };
            match journal.repeat_wait()? {
                Repeated::Given(future, pickled) => {
                    let value = crate::pickle::loads(py, &pickled)?;
                    self.state.give(py, future, value)?;
                }
                Repeated::WentOn => return Ok(true),
                Repeated::Waits => {
                    journal.end_repeating();
                    return Ok(false);
                }
            }
        }
    }

    /// Sends what an entry method has returned.
    fn answer(
        &mut self,
        reply: Option<Destination>,
        value: Bound<'_, PyAny>,
        cx: &mut Context<'_, Self>,
    ) -> PyResult<()> {
        if let Some(to) = reply {
            let call = Call { receiver: to.receiver, reply: None, args: Args::one(value)? };
            send(cx, to.place, to.dimensions, call);
            session::raise_kept()?;
        }
        Ok(())
    }

    /// Lets a coroutine go on to its end or to its next `await` that waits.
    fn step(&mut self, py: Python<'_>, coroutine: &Coroutine, cx: &mut Context<'_, Self>) -> PyResult<Step> {
        let coroutine = coroutine.coroutine.bind(py);
        // an exception of a condition is raised where the coroutine waits
        let mut thrown = session::raise_kept().err();
        loop {
            let result = self.run(py, cx, |_, _| match thrown.take() {
                Some(error) => coroutine.call_method1(intern!(py, "throw"), (error,)),
                None => coroutine.call_method1(intern!(py, "send"), (py.None(),)),
            });
            let awaited = match result {
                Ok(awaited) => awaited,
                Err(end) if end.is_instance_of::<PyStopIteration>(py) => {
                    return Ok(Step::Ended(end.value(py).getattr(intern!(py, "value"))?.unbind()));
                }
                Err(error) => return Err(error),
            };
            match self.wait_of(&awaited) {
                Ok(Wait::Future(number)) if !self.state.is_pending(number) => {}
                Ok(wait) => return Ok(Step::Waits(wait)),
                Err(error) => thrown = Some(error),
            }
        }
    }

    /// What a coroutine waits for: a future yields its number, `until` its condition.
    fn wait_of(&self, awaited: &Bound<'_, PyAny>) -> PyResult<Wait> {
        if let Ok(number) = awaited.extract::<u64>() {
            return Ok(Wait::Future(number));
        }
        if awaited.is_callable() {
            return Ok(Wait::Until(awaited.clone().unbind()));
        }
        Err(PyTypeError::new_err(format!(
            "an entry method can await a colony_runtime.Future or until(), and not what yields {awaited}, such as \
             asyncio's objects"
        )))
    }

    /// Lets a coroutine that has waited go on. Returns the next condition, or none if it has ended.
    fn resume_coroutine(&mut self, coroutine: &Coroutine, cx: &mut Context<'_, Self>) -> Option<Wait> {
        if let Some(journal) = &mut self.state.journal {
            journal.went_on();
        }
        Python::attach(|py| {
            let step = self.step(py, coroutine, cx).and_then(|step| match step {
                Step::Waits(wait) => Ok(Some(wait)),
                Step::Ended(value) => {
                    self.state.journal = None;
                    self.answer(coroutine.reply, value.into_bound(py), cx).map(|()| None)
                }
            });
            step.unwrap_or_else(|error| {
                let place = self.place(cx, &self.method_name(py, Receiver::Method(coroutine.method)));
                fail(py, cx, error, &place);
                None
            })
        })
    }

    /// Returns `true` if a coroutine can go on.
    fn is_met(&self, wait: &Wait) -> bool {
        match wait {
            Wait::Future(number) => !self.state.is_pending(*number),
            Wait::Until(condition) => Python::attach(|py| {
                condition.bind(py).call0().and_then(|met| met.is_truthy()).unwrap_or_else(|error| {
                    session::keep(error);
                    true
                })
            }),
        }
    }

    /// Runs a function of the object that the runtime calls.
    fn hook(&mut self, name: &str, cx: &mut Context<'_, Self>) {
        Python::attach(|py| {
            if let Err(error) = self.run(py, cx, |object, _| object.call_method0(name).map(drop)) {
                let place = self.place(cx, name);
                fail(py, cx, error, &place);
            }
        });
    }
}

/// Runs Python code with the PE at hand.
fn run<'py, const N: usize, R>(
    cx: &mut Context<'_, Held<N>>,
    state: &mut State,
    object: &Bound<'py, PyAny>,
    array: &Array,
    code: impl FnOnce(&Bound<'py, PyAny>, &Array) -> PyResult<R>,
) -> PyResult<R>
where
    [i32; N]: ArrayIndex,
{
    let address = cx.this().address();
    let mut running = Running { cx, state, object: object.clone().unbind(), array: array.clone(), address };
    scope::enter(&mut running as &mut dyn Pe, || code(object, array))
}

/// A coroutine that has begun to wait, until its end.
async fn go_on<const N: usize>(handle: Handle<Held<N>>, coroutine: Coroutine, first: Wait)
where
    [i32; N]: ArrayIndex,
{
    let mut wait = first;
    let coroutine = std::rc::Rc::new(coroutine);
    loop {
        handle.until(move |held| held.is_met(&wait)).await;
        let this = std::rc::Rc::clone(&coroutine);
        match handle.with(move |held, cx| held.resume_coroutine(&this, cx)).await {
            Some(next) => wait = next,
            None => return,
        }
    }
}

/// Makes an element.
fn construct<const N: usize>(py: Python<'_>, init: Init, cx: &mut Context<'_, Held<N>>) -> PyResult<Held<N>>
where
    [i32; N]: ArrayIndex,
{
    let class = crate::class::Class::by_key(&init.class)?;
    let address = cx.this().address();
    let array = Array { id: address.array, form: init.form, class };
    let object = blank(&array, array.form.to_python(py, address.index)?, proxy::of_array(py, &array)?)?;
    let mut state = State::default();
    state.journal = session::keeps_journal(&init.class).then(Journal::default);
    run(cx, &mut state, &object, &array, |object, _| {
        let (args, named) = init.args.load(py)?;
        object.call_method(intern!(py, "__init__"), args, named.as_ref())
    })?;
    Ok(Held { body: Body::Live { object: object.unbind(), array, index: address.index }, state })
}

impl<const N: usize> Object for Held<N>
where
    [i32; N]: ArrayIndex,
{
    type Index = [i32; N];
    type Init = Init;
    const NAME: &'static str = "Object";

    fn schema() -> Schema {
        Python::attach(|py| crate::class::describe_classes(py, Schema::of::<Wire>()))
    }

    fn new(init: Init, cx: &mut Context<'_, Self>) -> Self {
        let dead = || Self { body: Body::Dead, state: State::default() };
        if session::has_kept() {
            return dead();
        }
        Python::attach(|py| {
            let name = init.class.rsplit([':', '.']).next().unwrap_or_default().to_owned();
            let place = format!("{name}[{}].__init__", init.form.show(cx.this().address().index));
            construct(py, init, cx).unwrap_or_else(|error| {
                if scope::is_entered() && session::exit_code(py, &error).is_none() {
                    // raised where Python code creates the element
                    session::note(py, &error, &format!("{place} on PE {}", cx.pe()));
                    session::keep(error);
                } else {
                    fail(py, cx, error, &place);
                }
                dead()
            })
        })
    }

    fn state_bytes(&self) -> u64 {
        let Body::Live { object, .. } = &self.body else { return 0 };
        Python::attach(|py| state_bytes(object.bind(py)).unwrap_or(0))
    }

    fn arrived(&mut self, cx: &mut Context<'_, Self>) {
        self.hook("arrived", cx);
    }

    fn restores_futures(&self) -> bool {
        self.state.journal.as_ref().is_some_and(Journal::is_usable)
    }

    fn restored(&mut self, cx: &mut Context<'_, Self>) {
        if self.state.journal.is_none() {
            return;
        }
        Python::attach(|py| {
            if let Err(error) = self.repeat_main(py, cx) {
                fail(py, cx, error, "main, which runs again after a recovery,");
            }
        });
    }

    fn resume(&mut self, cx: &mut Context<'_, Self>) {
        self.hook("resume", cx);
    }
}

impl<const N: usize> Entry<Call> for Held<N>
where
    [i32; N]: ArrayIndex,
{
    const NAME: &'static str = "call";

    #[inline]
    fn call(&mut self, call: Call, cx: &mut Context<'_, Self>) {
        Python::attach(|py| self.take(py, call, cx));
    }
}

impl<const N: usize> Entry<Reduced> for Held<N>
where
    [i32; N]: ArrayIndex,
{
    fn call(&mut self, result: Reduced, cx: &mut Context<'_, Self>) {
        Python::attach(|py| match crate::reduction::decode(py, result.values) {
            Ok((receiver, args)) => self.take(py, Call { receiver, reply: None, args }, cx),
            Err(error) => {
                let place = self.place(cx, "the result of a reduction");
                fail(py, cx, error, &place);
            }
        });
    }
}

impl<const N: usize> Entry<Quiet> for Held<N>
where
    [i32; N]: ArrayIndex,
{
    fn call(&mut self, _: Quiet, cx: &mut Context<'_, Self>) {
        let Some(to) = self.state.quiet.pop_front() else { return };
        Python::attach(|py| {
            let args = match to.receiver {
                Receiver::Method(_) => Ok(Args::none(py)),
                Receiver::Future(_) => Args::one(py.None().into_bound(py)),
            };
            match args {
                Ok(args) => {
                    send(cx, to.place, to.dimensions, Call { receiver: to.receiver, reply: None, args })
                }
                Err(error) => fail(py, cx, error, "quiescence"),
            }
        });
    }
}

/// The program: one class for each number of dimensions.
pub(crate) fn program() -> Program {
    fn add<const N: usize>(program: Program) -> Program
    where
        [i32; N]: ArrayIndex,
    {
        program.class::<Held<N>>(|class| class.entry::<Call>().entry::<Reduced>().entry::<Quiet>())
    }
    add::<6>(add::<5>(add::<4>(add::<3>(add::<2>(add::<1>(Program::new()))))))
}

/// Sends the first message: to the object that runs `main`, which load balancing does not wait for.
pub(crate) fn begin(cx: &mut Context<'_, colony_runtime::Main>, init: Init, main: Args) {
    let element = cx.create_one::<Held<1>>(init);
    let call = Call { receiver: Receiver::Method(0), reply: None, args: main };
    send(cx, Place::Element(element.address()), 1, call);
}
