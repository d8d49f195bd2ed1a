//! How large the embedded catalogue is and how soon it answers, each figure in a fresh process and in a warm one.

use std::process::Command;
use std::time::Instant;
use windfall_catalog::{Catalog, Query};

const RUNS: usize = 200;

fn main() {
    if std::env::args().nth(1).as_deref() == Some("fresh") {
        let began = Instant::now();
        let found = answer(&Catalog::embedded());
        println!("{} {found}", began.elapsed().as_nanos());
        return;
    }
    let catalog = Catalog::embedded();
    println!("size: {:.2} MB, {} instance types", catalog.size() as f64 / 1e6, catalog.instance_types().count());
    println!("open and first search, fresh process: {}", spread(&mut fresh()));
    println!("open: {}", spread(&mut timed(|| Catalog::embedded().size())));
    println!("search H100:8: {}", spread(&mut timed(|| answer(&catalog))));
    let every = Query::default();
    println!(
        "every accelerator offer ({}): {}",
        catalog.search(&every).len(),
        spread(&mut timed(|| catalog.search(&every).len()))
    );
    println!("walk of every price: {}", spread(&mut timed(|| walk(&catalog))));
}

fn answer(catalog: &Catalog) -> usize {
    let wanted = catalog.wanted("H100:8").into_iter().collect();
    catalog.search(&Query { accelerators: wanted, ..Query::default() }).len()
}

fn walk(catalog: &Catalog) -> usize {
    let mut count = 0;
    for kind in catalog.instance_types() {
        catalog.offers_of(kind, false, |_| count += 1);
    }
    count
}

fn timed<T>(mut work: impl FnMut() -> T) -> Vec<f64> {
    (0..RUNS)
        .map(|_| {
            let began = Instant::now();
            std::hint::black_box(work());
            began.elapsed().as_secs_f64() * 1e3
        })
        .collect()
}

/// What this very program takes, started again.
fn fresh() -> Vec<f64> {
    let program = std::env::current_exe().expect("this program has a path");
    let once = |_| {
        let output = Command::new(&program).arg("fresh").output().expect("this program runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.split(' ').next().and_then(|nanos| nanos.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1e6
    };
    (0..RUNS).map(once).collect()
}

fn spread(times_ms: &mut [f64]) -> String {
    times_ms.sort_by(f64::total_cmp);
    format!("median {:.3} ms, slowest of {RUNS} {:.3} ms", times_ms[times_ms.len() / 2], times_ms[times_ms.len() - 1])
}
