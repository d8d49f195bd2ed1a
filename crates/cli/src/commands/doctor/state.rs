//! The state directory and what belongs to it: the configuration, the server, the port, the disk.

use crate::args::UpArgs;
use crate::config::{Wrong, file_in_use, read, whole};
use crate::here::Here;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use windfall_core::english::counted;
use windfall_exec::Finding;
use windfall_server::home::{World, WorldSettings};

/// The configuration file: right, wrong, or readable by people who should not.
pub(super) fn configuration(here: &Here) -> Finding {
    let name = "config";
    let Some(path) = file_in_use(None, Some(&here.home)) else {
        return Finding::ok(name, "no configuration file: defaults hold");
    };
    let mend = format!("windfall config check {}", path.display());
    let checked = read(&path).map_err(Wrong::File).and_then(|file| {
        whole(&UpArgs::default(), Some(&file))?;
        Ok(file)
    });
    match checked {
        Err(Wrong::File(error)) => Finding::missing(name, error.to_string(), mend),
        Err(Wrong::Flags { message, .. }) => Finding::missing(name, message, mend),
        Ok(file) => {
            let has_store = file.get("server", "store").is_some();
            let open = std::fs::metadata(&path).is_ok_and(|meta| meta.permissions().mode() & 0o004 != 0);
            if has_store && open {
                let says = format!("{} names a database and may be read by everybody", path.display());
                return Finding::warning(name, says, format!("chmod o-rwx {}", path.display()));
            }
            Finding::ok(name, format!("{}, {} set", path.display(), counted(file.len() as u64, "key")))
        }
    }
}

/// Whose the state directory is, and who may write there.
pub(super) fn directory(name: &'static str, path: &Path) -> Finding {
    let meta = match std::fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let above = existing(path);
            let may = rustix::fs::access(&above, rustix::fs::Access::WRITE_OK).is_ok();
            return match may {
                true => Finding::ok(name, format!("{} is made when it is needed", path.display())),
                false => Finding::missing(
                    name,
                    format!("{} is not there, and cannot be made by this user", path.display()),
                    format!("sudo install -d -o $USER -m 0711 {}", path.display()),
                ),
            };
        }
        Err(error) => {
            return Finding::missing(
                name,
                format!("{}: {error}", path.display()),
                "windfall --home DIR up  # another folder",
            );
        }
    };
    let shown = path.display();
    if !meta.is_dir() {
        return Finding::missing(name, format!("{shown} is not a folder"), "windfall --home DIR up  # another folder");
    }
    let user = rustix::process::geteuid().as_raw();
    if meta.uid() != user {
        let owner = windfall_server::name_of(meta.uid());
        let says = format!("{shown} is of {owner}: only that user starts a server there and submits to it");
        return Finding::warning(name, says, format!("sudo -u {owner} windfall --home {shown} …"));
    }
    if meta.mode() & 0o002 != 0 {
        return Finding::missing(name, format!("everybody may write into {shown}"), format!("chmod o-w {shown}"));
    }
    for secret in ["secrets.key", "node.key"] {
        let open = std::fs::metadata(path.join(secret)).is_ok_and(|meta| meta.mode() & 0o077 != 0);
        if open {
            let file = path.join(secret);
            return Finding::missing(
                name,
                format!("others may read {}", file.display()),
                format!("chmod 600 {}", file.display()),
            );
        }
    }
    if let Some(kind) = windfall_store::network_filesystem(path) {
        let says = format!("{shown} is on {kind}, where a database loses data");
        return Finding::missing(name, says, "windfall --home DIR up  # on a local disk, or with --store postgres://…");
    }
    Finding::ok(name, format!("{shown}, mode {:04o}", meta.mode() & 0o7777))
}

/// The nearest folder above a path that is there.
fn existing(path: &Path) -> PathBuf {
    path.ancestors().find(|above| above.is_dir()).unwrap_or(Path::new("/")).to_owned()
}

/// Whether the server of the state directory answers, and with which version. None is started.
pub(super) async fn server(here: &Here) -> (Finding, bool) {
    let name = "server";
    let own = env!("CARGO_PKG_VERSION");
    let hello = match here.client().greet().await {
        Ok(hello) => hello,
        Err(failure) => return (Finding::missing(name, failure.message, failure.hint.unwrap_or_default()), false),
    };
    let Some(hello) = hello else {
        let finding = match windfall_server::live_jobs(&here.home).await {
            Some(jobs @ 1..) => {
                let says = format!("none runs, and {} not ended", has(jobs));
                Finding::warning(name, says, "windfall up")
            }
            _ => Finding::ok(name, "none runs; one starts when it is needed"),
        };
        return (finding, false);
    };
    if let Some(away) = &hello.database_away {
        let says = format!("pid {} runs, but its database is away: {}", hello.pid, away.why);
        return (
            Finding::missing(name, says, "windfall status  # start the database; the server goes on by itself"),
            true,
        );
    }
    if hello.version != own {
        let says = format!("pid {} is version {}, this command {own}", hello.pid, hello.version);
        let mend = match hello.is_service {
            true => "systemctl restart windfall-server",
            false => "windfall down && windfall up",
        };
        return (Finding::warning(name, says, mend), true);
    }
    let service = if hello.is_service { ", as a service" } else { "" };
    (Finding::ok(name, format!("version {}, pid {}{service}", hello.version, hello.pid)), true)
}

fn has(jobs: u64) -> String {
    format!("{} {}", counted(jobs, "job"), if jobs == 1 { "has" } else { "have" })
}

/// Whether nodes can reach the server: the port is ours, or free.
pub(super) fn port(here: &Here, runs: bool) -> Option<Finding> {
    let in_world = || match WorldSettings::of(&here.home).ok().flatten()?.world {
        World::Machines(machines) => machines.listen,
        World::Replay(_) => None,
    };
    let in_file = || {
        let file = read(&file_in_use(None, Some(&here.home))?).ok()?;
        whole(&UpArgs::default(), Some(&file)).ok()?.listen
    };
    let held = in_world().filter(|_| runs);
    let wanted = in_file().or_else(in_world)?;
    Some(port_of(wanted, held))
}

fn port_of(wanted: SocketAddr, held: Option<SocketAddr>) -> Finding {
    let name = "port";
    if held == Some(wanted) {
        return Finding::ok(name, format!("{wanted} is the server's"));
    }
    match TcpListener::bind(wanted) {
        Ok(_) => Finding::ok(name, format!("{wanted} is free")),
        Err(error) => {
            let (says, mend) = match error.kind() {
                std::io::ErrorKind::AddrInUse => {
                    ("somebody else has it".to_owned(), format!("ss -ltnp 'sport = :{}'", wanted.port()))
                }
                std::io::ErrorKind::AddrNotAvailable => (
                    "no address of this machine".to_owned(),
                    "ip -brief address  # set listen to one of these, or 0.0.0.0".to_owned(),
                ),
                std::io::ErrorKind::PermissionDenied => (
                    "this user may not listen there".to_owned(),
                    "windfall up --listen 0.0.0.0:7443  # a port above 1023".to_owned(),
                ),
                _ => (error.to_string(), "windfall up --listen 0.0.0.0:7443  # another address".to_owned()),
            };
            Finding::missing(name, format!("{wanted}: {says}"), mend)
        }
    }
}

const MEGABYTE: u64 = 1 << 20;
/// With less than this a server may soon be unable to write its log.
const LEAST: u64 = 256 * MEGABYTE;
const FEW: u64 = 2_048 * MEGABYTE;
/// Every decision waits until its record is on the disk.
const SLOW: Duration = Duration::from_millis(50);
const TRIES: usize = 5;

fn gigabytes(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}

/// Room, files and speed of the disk of a folder.
pub(super) fn disk(path: &Path) -> Finding {
    let folder = existing(path);
    let Ok(disk) = rustix::fs::statvfs(&folder) else {
        return Finding::warning("disk", format!("{}: nobody can say how full it is", folder.display()), "df -h");
    };
    let room = disk.f_bavail.saturating_mul(disk.f_frsize);
    let files = (disk.f_files > 0).then_some(disk.f_favail);
    let is_read_only = disk.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY);
    disk_of(&folder, room, files, is_read_only, || sync_time(&folder))
}

fn disk_of(
    folder: &Path,
    room: u64,
    files: Option<u64>,
    is_read_only: bool,
    sync_time: impl FnOnce() -> Option<Duration>,
) -> Finding {
    let shown = folder.display();
    let left = format!("{} left on the disk of {shown}", gigabytes(room));
    if is_read_only {
        return Finding::missing(
            "disk",
            format!("{shown} can only be read"),
            format!("sudo mount -o remount,rw $(findmnt -no TARGET -T {shown})"),
        );
    }
    let full = format!("du -xh --max-depth=2 {shown} | sort -h | tail");
    match (room, files) {
        (room, _) if room < LEAST => return Finding::missing("disk", left, full),
        (_, Some(files)) if files < 1_000 => {
            return Finding::missing(
                "disk",
                format!("{files} more files fit on the disk of {shown}"),
                "df -i  # remove many small files",
            );
        }
        (room, _) if room < FEW => return Finding::warning("disk", left, full),
        _ => {}
    }
    match sync_time() {
        Some(time) if time > SLOW => {
            let says =
                format!("{left}; a write takes {} ms to be safe, and every decision waits for one", time.as_millis());
            Finding::warning("disk", says, "windfall --home DIR up  # on a faster disk")
        }
        Some(time) => Finding::ok("disk", format!("{left}; a write is safe in {:.1} ms", time.as_secs_f64() * 1e3)),
        None => Finding::ok("disk", left),
    }
}

/// How long a small write takes until it is on the disk: the middle of a few. None where this user may not write.
fn sync_time(folder: &Path) -> Option<Duration> {
    let path = folder.join(format!(".windfall-doctor-{}", std::process::id()));
    let mut file = std::fs::File::options().write(true).create_new(true).open(&path).ok()?;
    let mut measured: Vec<Duration> = (0..TRIES)
        .map_while(|_| {
            let began = Instant::now();
            file.write_all(&[0; 4_096]).and_then(|()| file.sync_data()).ok().map(|()| began.elapsed())
        })
        .collect();
    let _ = std::fs::remove_file(&path);
    measured.sort();
    measured.get(measured.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use windfall_exec::FindingState;

    #[test]
    fn a_disk_is_full_of_bytes_or_of_files_or_slow() {
        let of = |room, files, read_only, time: u64| {
            disk_of(Path::new("/x"), room * MEGABYTE, files, read_only, || Some(Duration::from_millis(time))).state
        };
        assert_eq!(of(10_000, Some(1 << 20), false, 1), FindingState::Ok);
        assert_eq!(
            (of(255, None, false, 1), of(1_000, None, false, 1)),
            (FindingState::Missing, FindingState::Warning)
        );
        assert_eq!(
            (of(10_000, Some(3), false, 1), of(10_000, None, false, 1)),
            (FindingState::Missing, FindingState::Ok)
        );
        assert_eq!(
            (of(10_000, None, true, 1), of(10_000, None, false, 200)),
            (FindingState::Missing, FindingState::Warning)
        );
    }

    #[test]
    fn a_port_is_ours_free_or_somebody_elses() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = taken.local_addr().expect("an address");
        assert_eq!(port_of(address, Some(address)).state, FindingState::Ok);
        let finding = port_of(address, None);
        assert!(finding.state == FindingState::Missing && finding.says.contains("somebody else has it"), "{finding:?}");
        let elsewhere = port_of("192.0.2.1:7443".parse().expect("an address"), None);
        assert!(
            elsewhere.state == FindingState::Missing && elsewhere.says.contains("no address of this machine"),
            "{elsewhere:?}"
        );
        assert_eq!(port_of("127.0.0.1:0".parse().expect("an address"), None).state, FindingState::Ok);
    }

    #[test]
    fn looking_at_a_disk_leaves_nothing() {
        let dir = tempfile::tempdir().expect("a folder");
        let _ = disk(&dir.path().join("not/made/yet"));
        assert_eq!(std::fs::read_dir(dir.path()).expect("readable").count(), 0);
    }
}
