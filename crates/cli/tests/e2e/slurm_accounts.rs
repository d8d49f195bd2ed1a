//! A cluster with accounts: slurmdbd over a real database. Accounts go away, come back late, and jobs of Windfall's end as they should.

use super::nodes::{beginnings, free_port, has_saved};
use super::processes::{self, Role};
use super::slurm::{Cluster, counts, up};
use super::testbed::{Testbed, eventually, is_root};
use super::witness::check_ledger;
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// What Debian's packages bring.
const PROGRAMS: [&str; 3] = ["/usr/sbin/slurmdbd", "/usr/sbin/mariadbd", "/usr/bin/mariadb-install-db"];

/// A database and slurmdbd on it. Gives what the controller must know of them, and has it forget jobs a few seconds after they ended.
fn with_accounts(cluster: &mut Cluster) -> String {
    let [database, accounts] = [free_port(), free_port()];
    let (data, socket) = (cluster.at("db"), cluster.at("db.sock"));
    std::fs::create_dir_all(&data).unwrap();
    let root = "--auth-root-authentication-method=normal";
    let mut install = Command::new("mariadb-install-db");
    install.args(["--no-defaults", "--user=root", root, "--skip-test-db"]).arg(format!("--datadir={}", data.display()));
    assert!(install.output().unwrap().status.success());
    let args = [
        "--no-defaults".to_owned(),
        "--user=root".to_owned(),
        format!("--datadir={}", data.display()),
        format!("--socket={}", socket.display()),
        format!("--pid-file={}", cluster.at("db.pid").display()),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--port={database}"),
        "--innodb-buffer-pool-size=64M".to_owned(),
    ];
    cluster.begin("mariadbd", &args);
    let sql =
        "create database acct; create user 'slurm'@'%' identified by 'slurm'; grant all on acct.* to 'slurm'@'%';";
    let socket = format!("--socket={}", socket.display());
    let told = || Command::new("mariadb").args(["--no-defaults", "-uroot", &socket, "-e", sql]).output();
    eventually("the database takes what it is told", || told().is_ok_and(|output| output.status.success()));
    let config = format!(
        "AuthType=auth/munge\nAuthInfo=socket={munge}\nDbdHost=localhost\nDbdAddr=127.0.0.1\nDbdPort={accounts}\nSlurmUser=root\n\
         PidFile={pid}\nStorageType=accounting_storage/mysql\nStorageHost=127.0.0.1\nStoragePort={database}\nStorageUser=slurm\n\
         StoragePass=slurm\nStorageLoc=acct\n",
        munge = cluster.at("munge.sock").display(),
        pid = cluster.at("slurmdbd.pid").display(),
    );
    let path = cluster.at("slurmdbd.conf");
    std::fs::write(&path, config).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    let more = format!(
        "MinJobAge=5\nAccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\n\
         AccountingStoragePort={accounts}\nAccountingStoragePass={}\nJobAcctGatherType=jobacct_gather/linux\n",
        cluster.at("munge.sock").display()
    );
    // Its clients read the controller's configuration.
    let before = std::fs::read_to_string(cluster.config()).unwrap_or_default();
    std::fs::write(cluster.config(), format!("{before}ClusterName=lab\nSlurmctldHost=localhost\n{more}")).unwrap();
    cluster.begin("slurmdbd", &["-D".to_owned()]);
    eventually("accounts answer", || {
        cluster.says("sacctmgr", &["-i", "add", "cluster", "lab"]);
        cluster.says("sacctmgr", &["-n", "-P", "show", "cluster", "format=Cluster"]) == "lab"
    });
    cluster.says("sacctmgr", &["-i", "add", "account", "physics"]);
    cluster.says("sacctmgr", &["-i", "add", "user", "root", "account=physics", "MaxSubmitJobs=500"]);
    more
}

#[test]
fn jobs_end_as_they_should_while_accounts_are_away_and_when_they_hear_of_it_late() {
    if !is_root("a Slurm cluster") {
        return;
    }
    let test = "jobs_end_as_they_should_while_accounts_are_away";
    if let Some(missing) = PROGRAMS.iter().find(|program| !Path::new(program).exists()) {
        println!("skipped: {test} ({missing} is not installed)");
        return;
    }
    let (testbed, port) = (Testbed::bare(), free_port());
    let Some(mut cluster) = Cluster::start_with(&testbed, test, with_accounts) else { return };
    up(&testbed, &cluster, port, "gpu");
    let limits = || testbed.run(&["engines"]).ends_with(0).out;
    eventually("what the account may use is said", || {
        limits().contains("account physics") && limits().contains("500  jobs in the queue")
    });
    let quick = "name: quick\nresources: { accelerators: H100:1 }\nrun: echo done\n";
    let first = testbed.submit(quick);
    testbed.until(first, &["succeeded"]);

    let id = testbed.submit(&counts(&testbed, 1));
    testbed.until(id, &["running"]);
    eventually("it has saved", || has_saved(&testbed, id));
    cluster.kill("slurmdbd");
    // Jobs begin and end without accounts, and what runs runs on.
    let second = testbed.submit(quick);
    testbed.until(second, &["succeeded"]);
    eventually("its own pilot alone is left", || cluster.pilots().len() == 1);
    assert_eq!((testbed.job(id)["state"].as_str(), beginnings(&testbed, id).len()), (Some("running"), 1));

    // While no server looks, somebody ends its job, and the controller forgets that there was one.
    for server in processes::of(&testbed.home).iter().filter(|process| process.role == Role::Server) {
        processes::signal(server.pid, Signal::KILL);
    }
    let pilot = cluster.pilots();
    cluster.says("scancel", &[&pilot[0]]);
    eventually("the controller knows nothing of it", || {
        !cluster.says("squeue", &["-h", "-a", "-t", "all", "-o", "%i"]).lines().any(|job| job == pilot[0])
    });
    up(&testbed, &cluster, port, "gpu");
    testbed.until(id, &["running", "acquiring"]);
    cluster.begin("slurmdbd", &["-D".to_owned()]);
    eventually("it goes on in another job once accounts say how that one ended", || {
        beginnings(&testbed, id).len() == 2
    });
    let begun = beginnings(&testbed, id);
    assert!(begun[1] > begun[0], "from what was saved: {begun:?}");
    let explained = testbed.run(&["explain", &id.to_string()]).ends_with(0).out;
    assert!(explained.contains("is gone (revoked)"), "somebody cancelled it: {explained}");

    std::fs::write(testbed.work.join("end"), "").unwrap();
    testbed.until(id, &["succeeded"]);
    eventually("nothing of it is in the queue", || cluster.pilots().is_empty());
    testbed.run(&["down"]).ends_with(0);
    check_ledger(&testbed);
    testbed.leaves_nothing();
}
