//! The process that serves: in the background for whoever needs a server, or in the foreground for whoever keeps one.

use super::config::settled;
use super::worlds::{changes, check_flags, leaves_something, world};
use crate::args::UpArgs;
use crate::config::values;
use crate::here::Here;
use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;
use windfall_core::english::with_causes;
use windfall_server::api_types::Problem;
use windfall_server::client::{Code, Failure, STORE_VARIABLE, startup_failure};
use windfall_server::home::{HomeError, WorldSettings};
use windfall_server::{ServeError, Settings};
use windfall_store::StoreError;

/// A server in this process. Its first line of output says whether it could start; then output is closed.
pub fn serve(here: &Here, args: &UpArgs) -> Result<Code, Failure> {
    // Its own session: nothing that happens to a terminal reaches it. Fails only if it leads one already.
    let _ = rustix::process::setsid();
    close_inherited();
    let told = std::env::var(STORE_VARIABLE).ok();
    // Whoever starts a server on the way to something else has read nothing.
    let args = match args.settled {
        true => Ok(args.clone()),
        false => settled(here, args),
    };
    let args = args.inspect_err(|failure| tell_starter(&wrong_settings(failure)))?;
    let args = UpArgs { store: told.or(args.store.clone()), ..args };
    let settings = settings(here, &args, None);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Code::Bug, error.to_string()))?;
    let ready = || {
        let mut out = std::io::stdout();
        let _ = writeln!(out, "ready");
        let _ = out.flush();
    };
    match runtime.block_on(windfall_server::serve(settings, ready)) {
        Ok(()) => Ok(Code::Done),
        Err(error) => {
            let problem = startup_problem(&error);
            tell_starter(&problem);
            Err(startup_failure(problem))
        }
    }
}

fn settings(here: &Here, args: &UpArgs, idle: Option<Duration>) -> Settings {
    Settings {
        home: here.home.clone(),
        world: world(args),
        idle_after: args.idle.as_deref().and_then(values::idle).or(idle),
        policy: args.policy.clone(),
        bound: args.bound_to.map(windfall_server::Bound::to),
        is_service: args.foreground,
    }
}

/// Says why there is no server to whoever started this process, who may be gone long since.
fn tell_starter(problem: &Problem) {
    let _ = writeln!(std::io::stdout(), "{}", serde_json::to_string(problem).unwrap_or_default());
}

fn wrong_settings(failure: &Failure) -> Problem {
    let Failure { message, hint, .. } = failure;
    let hint = hint.clone().or(Some("`windfall config check` shows where".to_owned()));
    let (code, status) = ("cannot-start".to_owned(), 422);
    Problem { code, title: message.clone(), status, detail: None, hint }
}

/// A server in this process, for whoever keeps it: it says what is wrong in words, and ends only when it is told to.
pub fn foreground(here: &Here, args: &UpArgs) -> Result<Code, Failure> {
    let args = settled(here, args)?;
    check_flags(&args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Code::Bug, error.to_string()))?;
    let known = known(here);
    leaves_something(&args, known.as_ref())?;
    let wanted = world(&args);
    if let Some(wanted) = &wanted {
        runtime.block_on(check(here, wanted))?;
    }
    let is_ready = std::cell::Cell::new(false);
    let ready = || {
        is_ready.set(true);
        changes(known.as_ref(), wanted.as_ref()).iter().for_each(|line| eprintln!("note: {line}"));
        notify("READY=1");
    };
    let served = runtime.block_on(windfall_server::serve(settings(here, &args, Some(Duration::MAX)), ready));
    served.map_err(|error| startup_failure(startup_problem(&error)))?;
    if is_ready.get() {
        return Ok(Code::Done);
    }
    let busy = Failure::new(Code::Unreachable, format!("another server runs on {}", here.home.display()));
    Err(busy.hint("end it first: windfall down; its jobs go on"))
}

/// Tells the service manager, where there is one (sd_notify(3)).
pub(super) fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let name = path.as_encoded_bytes();
    let address = match name.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    let sent = UnixDatagram::unbound().and_then(|socket| socket.send_to_addr(state.as_bytes(), &address?));
    if let Err(error) = sent {
        eprintln!("windfall: the service manager cannot be told: {error}");
    }
}

/// Whatever else the terminal had open is not ours to keep open.
#[expect(unsafe_code, reason = "closing descriptors that nothing in this process owns has no safe form")]
fn close_inherited() {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
    let open: Vec<i32> = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    let still_open = |fd: &i32| std::fs::read_link(format!("/proc/self/fd/{fd}")).is_ok();
    for fd in open.into_iter().filter(|fd| *fd > 2).filter(still_open) {
        // SAFETY: called first thing in the process, before it opened anything but the directory above,
        // which is closed by now.
        unsafe { rustix::io::close(fd) };
    }
}

fn startup_problem(error: &ServeError) -> Problem {
    let title = with_causes(error);
    let hint = match error {
        ServeError::Store(error) => store_hint(error),
        ServeError::Home(error) => error.hint(),
        ServeError::Engine(_) => "see the names above, or leave --market and --zones out",
        ServeError::World(_) => "see `windfall up --help`",
        ServeError::Port { .. } => "choose an address of this machine, and a port that nobody has",
        ServeError::Ended(_) => "the other server goes on with every job; `windfall up` starts this one again",
        _ => "its log is server.log in the state directory",
    };
    let status = if error.is_bad_input() { 422 } else { 503 };
    Problem { code: "cannot-start".to_owned(), title, status, detail: None, hint: Some(hint.to_owned()) }
}

fn store_hint(error: &StoreError) -> &'static str {
    match error {
        StoreError::Newer { .. } => "this state was written by a newer windfall: use that one",
        StoreError::NetworkFilesystem { .. } => {
            "choose a local directory with --home, or keep the state in PostgreSQL: windfall up --store postgres://…"
        }
        StoreError::Full { .. } => "free some space, then try again: nothing was changed",
        StoreError::ReadOnly { .. } => "choose a directory that can be written, with --home or WINDFALL_HOME",
        _ => "its log is server.log in the state directory",
    }
}

/// Fails, before anything is written, if the world is not possible or is not the one of this state directory.
pub(super) async fn check(here: &Here, wanted: &WorldSettings) -> Result<(), Failure> {
    if standing(here, Some(wanted))?.is_some() {
        return Ok(());
    }
    windfall_server::check_world(wanted).await.map_err(|error| {
        let problem = startup_problem(&error);
        // The reason does not matter: the world that was asked for is not possible.
        startup_failure(Problem { status: 422, ..problem })
    })
}

/// The world of this state directory, if it has one that can be read: what is wrong with it is said by whoever needs it.
pub(super) fn known(here: &Here) -> Option<WorldSettings> {
    WorldSettings::of(&here.home).ok().flatten()
}

pub(super) fn standing(here: &Here, wanted: Option<&WorldSettings>) -> Result<Option<WorldSettings>, Failure> {
    WorldSettings::standing(&here.home, wanted).map_err(|error| match error {
        HomeError::OtherWorld { .. } => Failure::new(Code::BadInput, error.to_string()).hint(error.hint()),
        other => windfall_server::client::home_failure(other),
    })
}
