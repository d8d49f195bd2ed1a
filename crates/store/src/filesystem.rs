//! Whether a directory can hold a SQLite file: local, writable, not full. Never writes anything to find out.

use std::path::Path;

use crate::{Result, StoreError};

/// File systems shared over a network, by the number `statfs` gives (linux/magic.h and each file system's own header).
/// Their locks and shared memory do not keep SQLite's write-ahead log safe (sqlite.org/wal.html, "All processes using a
/// database must be on the same host computer").
const NETWORK: &[(u64, &str)] = &[
    (0x6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x517b, "SMB"),
    (0x564c, "NCP"),
    (0x0102_1997, "9p"),
    (0x00c3_6400, "Ceph"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x1983_0326, "BeeGFS"),
    (0x2003_0528, "OrangeFS"),
    (0xaad7_aaea, "PanFS"),
];

const FUSE: u64 = 0x6573_5546;

/// What says, in a FUSE mount's type or source, that it is remote. A FUSE file system that is not named here may well be
/// local (NTFS, an encrypted folder, an overlay), and is let through.
const REMOTE_FUSE: &[&str] = &[
    "sshfs",
    "s3fs",
    "mountpoint-s3",
    "goofys",
    "gcsfuse",
    "rclone",
    "blobfuse",
    "glusterfs",
    "ceph",
    "juicefs",
    "davfs",
    "curlftpfs",
    "hdfs",
    "moosefs",
    "lizardfs",
    "seaweedfs",
    "nfs",
    "smbnetfs",
    "afp",
];

/// The network file system that a `statfs` type number stands for; `mount` is the type and source of the mount, which
/// tells one FUSE file system from another.
pub fn network_kind(magic: u64, mount: &str) -> Option<&'static str> {
    if magic == FUSE {
        return REMOTE_FUSE.iter().find(|name| mount.contains(**name)).copied();
    }
    NETWORK.iter().find(|(number, _)| *number == magic).map(|(_, kind)| *kind)
}

/// The network file system that a directory is on, where SQLite would lose data; none where it is not on one, or nobody
/// can say.
pub fn network_filesystem(directory: &Path) -> Option<&'static str> {
    network_kind_of(directory).ok().flatten()
}

/// Refuse a directory where SQLite would lose data, or cannot write.
pub(crate) fn check(directory: &Path, file: &Path) -> Result<()> {
    let open = |source: rustix::io::Errno| match source {
        rustix::io::Errno::ROFS | rustix::io::Errno::ACCESS | rustix::io::Errno::PERM => {
            StoreError::ReadOnly { path: file.to_owned() }
        }
        other => StoreError::Open { path: file.to_owned(), source: other.into() },
    };
    if let Some(kind) = network_kind_of(directory).map_err(open)? {
        return Err(StoreError::NetworkFilesystem { path: directory.to_owned(), kind });
    }
    use rustix::fs::{Access, access};
    access(directory, Access::WRITE_OK | Access::EXEC_OK).map_err(open)?;
    match access(file, Access::READ_OK | Access::WRITE_OK) {
        Err(rustix::io::Errno::NOENT) => Ok(()),
        other => other.map_err(open),
    }
}

/// Whether the file system has no block left for this user.
pub(crate) fn is_full(path: &Path) -> bool {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    rustix::fs::statvfs(directory).is_ok_and(|stat| stat.f_bavail == 0)
}

#[cfg(target_os = "linux")]
fn network_kind_of(directory: &Path) -> rustix::io::Result<Option<&'static str>> {
    // The kernel's word is signed on some machines; only its low 32 bits mean anything.
    let magic = rustix::fs::statfs(directory)?.f_type as u64 & 0xffff_ffff;
    let mount = if magic == FUSE { mount_of(directory).unwrap_or_default() } else { String::new() };
    Ok(network_kind(magic, &mount))
}

/// Elsewhere `statfs` gives names, not numbers; SQLite's own locking test is all there is.
#[cfg(not(target_os = "linux"))]
fn network_kind_of(directory: &Path) -> rustix::io::Result<Option<&'static str>> {
    rustix::fs::access(directory, rustix::fs::Access::EXISTS)?;
    Ok(None)
}

/// Type and source of the mount a directory is on: the longest mount point above it.
#[cfg(target_os = "linux")]
fn mount_of(directory: &Path) -> Option<String> {
    let directory = directory.canonicalize().ok()?;
    let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    table
        .lines()
        .filter_map(|line| {
            // proc_pid_mountinfo(5): the fifth field is the mount point; type and source follow " - ".
            let (left, right) = line.split_once(" - ")?;
            let point = Path::new(left.split(' ').nth(4)?);
            let mut right = right.split(' ');
            let mount = format!("{} {}", right.next()?, right.next()?);
            directory.starts_with(point).then(|| (point.components().count(), mount))
        })
        .max_by_key(|(depth, _)| *depth)
        .map(|(_, mount)| mount)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known_by_their_number() {
        let known = [
            (0x6969, "NFS"),
            (0xff53_4d42, "CIFS"),
            (0xfe53_4d42, "SMB2"),
            (0x0102_1997, "9p"),
            (0x00c3_6400, "Ceph"),
            (0x0bd0_0bd0, "Lustre"),
            (0x4750_4653, "GPFS"),
            (0x5346_414f, "AFS"),
        ];
        for (magic, kind) in known {
            assert_eq!(network_kind(magic, ""), Some(kind));
        }
    }

    #[test]
    fn local_file_systems_pass() {
        let local = [0xef53, 0x0102_1994, 0x5846_5342, 0x9123_683e, 0x794c_7630, 0x2fc1_2fc1];
        for magic in local {
            assert_eq!(network_kind(magic, ""), None, "{magic:x}");
        }
    }

    #[test]
    fn a_fuse_mount_is_judged_by_its_name() {
        assert_eq!(network_kind(FUSE, "fuse.sshfs me@host:/home"), Some("sshfs"));
        assert_eq!(network_kind(FUSE, "fuse mountpoint-s3"), Some("mountpoint-s3"));
        assert_eq!(network_kind(FUSE, "fuseblk /dev/sda1"), None);
    }

    #[test]
    fn this_machines_temporary_directory_passes() {
        let directory = std::env::temp_dir();
        check(&directory, &directory.join("no-such-store")).expect("a local directory");
    }
}
