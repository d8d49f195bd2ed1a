//! The whole thing from outside: the built binary, real processes, a state directory of its own for each
//! test. A test states a fact about what a person at a terminal sees, or about what is left after the worst.
#![expect(clippy::unwrap_used, reason = "a test may stop where it stands")]

mod e2e {
    mod adoption;
    mod attack;
    mod booted;
    mod changes;
    mod clocks;
    mod clocks_apart;
    mod costs;
    mod cuts;
    mod database;
    mod doctor;
    mod drills;
    mod engines;
    mod everyday;
    mod far;
    mod far_kills;
    mod gang_ends;
    mod gangs;
    mod health;
    mod homes;
    mod judge;
    mod kills;
    mod kube;
    mod kube_faults;
    mod kube_kills;
    mod kube_load;
    mod kubernetes;
    mod lab;
    mod last_saves;
    mod loud;
    mod luggage;
    mod machines;
    mod nodes;
    mod people;
    mod processes;
    mod programs;
    mod promises;
    mod rules;
    mod saves;
    mod sbatch;
    mod services;
    mod settings;
    mod sharing;
    mod slurm;
    mod slurm_accounts;
    mod slurm_faults;
    mod slurm_load;
    mod submitter;
    mod terminals;
    mod testbed;
    mod torch;
    mod upgrades;
    mod witness;
}
