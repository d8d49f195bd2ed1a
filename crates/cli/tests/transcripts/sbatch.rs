//! `windfall sbatch` on a cluster that is played by a few shell scripts: what is said, what is shown, and the exit code.

use std::process::Command;

/// Programs that answer as those of a small cluster do: a partition of GPUs with a debug partition, one of processors, and four
/// earlier jobs.
fn slurm_of_a_play(dir: &std::path::Path) {
    let partition = |name: &str, more: &str| {
        format!("PartitionName={name} AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL {more} State=UP")
    };
    let partitions = [
        partition("gpu", "Default=YES DefaultTime=NONE MaxTime=7-00:00:00 GraceTime=60"),
        partition("cpu", "Default=NO MaxTime=UNLIMITED GraceTime=0"),
        partition("debug", "Default=NO MaxTime=04:00:00 GraceTime=0"),
    ];
    let jobs: String = [3_000, 3_500, 3_600, 2_900]
        .iter()
        .enumerate()
        .map(|(at, took)| {
            format!("{at}|COMPLETED|2026-11-01T10:00:00|2026-11-01T10:00:00|2026-11-01T12:00:00|{took}|2880\n")
        })
        .collect();
    let sbatch = "case \"$*\" in *--version*) echo slurm-wlm 24.11.5;; *partition=debug*) echo 'Job 1 to start at 2020-01-01T00:00:00' >&2;; \
                  *--test-only*) echo 'Job 1 to start at 2100-01-01T00:00:00' >&2;; *--nope*) echo \"sbatch: unrecognized option '--nope'\" >&2; exit 1;; \
                  *--parsable*) echo 7;; *) echo Submitted batch job 7;; esac";
    let programs = [
        ("sinfo", "printf 'gpu|gpu:h100:8|64|512000|12|idle|7-00:00:00|up\\ndebug|gpu:h100:8|64|512000|1|idle|4:00:00|up\\ncpu|(null)|32|128000|40|idle|infinite|up\\n'".to_owned()),
        ("scontrol", format!("cat <<'END'\n{}\nEND", partitions.join("\n"))),
        ("sacctmgr", "echo 'nlp|normal'".to_owned()),
        ("sacct", format!("cat <<'END'\nJobID|State|Submit|Start|End|ElapsedRaw|TimelimitRaw\n{jobs}END")),
        ("sbatch", sbatch.to_owned()),
    ];
    for (name, text) in programs {
        let path = dir.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("it is written");
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("it may be run");
    }
}

#[test]
fn batch_scripts_are_put_right_and_submitted_as_sbatch_would() {
    let dir = tempfile::tempdir().expect("a folder");
    let programs = dir.path().join("bin");
    std::fs::create_dir(&programs).expect("a folder");
    slurm_of_a_play(&programs);
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("it is written");
    write(
        "train.sh",
        "#!/bin/bash\n#SBATCH -J train -t 2-00:00:00 # two days\n#SBATCH --cpus-per-task=16\n\ntrap save USR1\n\
         srun torchrun --nproc_per_node=8 train.py &\nwait\n",
    );
    write("tokenise.sh", "#!/bin/sh\n#SBATCH -t 5:00:00 -n1 -c8\n./tokenise corpus\n");
    write("het.sh", "#!/bin/bash\n#SBATCH -c8\n#SBATCH hetjob\n#SBATCH -c1\nsrun x\n");
    let path = format!("{}:/usr/bin:/bin", programs.display());
    let run = |path: &str, args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windfall"));
        command.arg("sbatch").args(args).current_dir(dir.path()).env("WINDFALL_HOME", dir.path().join("home"));
        let output = command.env("PATH", path).env_remove("SLURM_CONF").output().expect("it runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let code = output.status.code().unwrap_or(-1);
        format!(
            "$ windfall sbatch {}\n{}{}[exit {code}]\n\n",
            args.join(" "),
            text(&output.stderr),
            text(&output.stdout)
        )
    };
    let mut text = String::new();
    for args in [
        &["train.sh"][..],
        &["-t", "1:00:00", "-p", "gpu", "--parsable", "train.sh", "--gres=none"],
        &["--dry-run", "tokenise.sh"],
        &["-n1", "--dry-run", "-p", "gpu", "--time=5", "tokenise.sh"],
        &["--as-is", "train.sh"],
        &["het.sh"],
        &["--nope", "train.sh"],
        &["--dry-run", "nowhere.sh"],
    ] {
        text.push_str(&run(&path, args));
    }
    let json = run(&path, &["--json", "-t", "5:00:00", "train.sh"]);
    assert!(json.contains("\"schema\":\"windfall.sbatch.v1\"") && json.contains("\"job\":7"), "{json}");
    text.push_str(&run("/nonexistent", &["train.sh"]));
    text.push_str(&run("/nonexistent", &["--as-is", "train.sh"]));
    // The trial of a job that begins in a hundred years is read with the clock of today.
    let waits = |line: &str| line.contains("in place of");
    let text: Vec<String> = text
        .lines()
        .map(|line| {
            if waits(line) {
                format!("{}in place of YEARS", line.split("in place of").next().unwrap_or_default())
            } else {
                line.to_owned()
            }
        })
        .collect();
    assert!(!dir.path().join("home").exists());
    insta::assert_snapshot!(text.join("\n"));
}
