//! What jobs cost, as the ledger tells it while they run and when they are forgotten.

use super::testbed::{Testbed, eventually};
use super::witness::check_ledger;

#[test]
fn costs_are_told_while_a_job_runs_and_are_those_of_its_bill_when_it_has_ended() {
    let testbed = Testbed::steady();
    let cost = |more: &[&str]| testbed.run(&[&["cost", "--json"], more].concat()).ends_with(0).json();
    let job = |name: &str, team: &str, tags: &str| {
        let run = format!("name: {name}\nteam: {team}\ntags: {tags}\nrun: while [ ! -e {name} ]; do sleep 0.1; done\n");
        testbed.submit(&run)
    };
    let (one, other) = (job("one", "nlp", "{ project: search }"), job("other", "vision", "{}"));
    for id in [one, other] {
        testbed.until(id, &["running"]);
    }
    // Nothing of it is written yet, and it is shown all the same.
    let mut before = 0;
    eventually("the cost of what runs grows", || {
        let total = cost(&[])["total"]["running_nanousd"].as_i64().unwrap();
        let grown = before > 0 && total > before;
        before = total;
        grown
    });
    for name in ["one", "other"] {
        testbed.write(name, "");
    }
    for id in [one, other] {
        testbed.until(id, &["succeeded"]);
    }
    eventually("all leases are given back", || cost(&[])["total"]["running_nanousd"] == 0);
    check_ledger(&testbed);
    let by_job = cost(&["--by", "job"]);
    let paid = |id: u64| testbed.job(id)["cost_nanousd"].as_i64().unwrap();
    for id in [one, other] {
        let row = by_job["rows"].as_array().unwrap().iter().find(|row| row["job"].as_str() == Some(&id.to_string()));
        assert_eq!(row.unwrap()["cost_nanousd"].as_i64(), Some(paid(id)), "{by_job}");
    }
    let rows = cost(&["--by", "team,tag:project,market,engine,kind"]);
    let told: Vec<(&str, &str, &str)> = rows["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            (row["team"].as_str().unwrap(), row["tag:project"].as_str().unwrap(), row["engine"].as_str().unwrap())
        })
        .collect();
    assert!(
        told.contains(&("nlp", "search", "simulated")) && told.contains(&("vision", "(none)", "simulated")),
        "{rows}"
    );
    let total = &rows["total"];
    assert_eq!(total["cost_nanousd"].as_i64(), Some(paid(one) + paid(other)));
    let parts = ["gpu_nanousd", "cpu_nanousd", "memory_nanousd"].map(|part| total[part].as_i64().unwrap());
    assert_eq!(parts.iter().sum::<i64>(), paid(one) + paid(other));
    assert!(parts.iter().all(|part| *part > 0), "{total}");
    assert_eq!(total["accelerator_ms"], total["lease_ms"], "a stage has accelerators in any number; one is paid for");
    testbed.leaves_nothing();
}
