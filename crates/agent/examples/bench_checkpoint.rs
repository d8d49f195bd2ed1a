//! How fast checkpoints are saved, against named peers on the same bytes.
//!
//! - A directory: `save()` against `cp -r` and an fsync of every file it wrote.
//! - S3 (`WINDFALL_TEST_S3`): `save()` against a plain `object_store` upload with the same part size and concurrency.
//!
//! Runs alternate, each on new content that was just written and synced, so that the source is in the page cache
//! and clean for both. Medians and their ratio are printed; above 1 means that `save()` is faster.
//!
//! `cargo run --release -p windfall-agent --example bench_checkpoint -- [--json] [--mib 1024] [--runs 5] [--dir DIR]`
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on should stop")]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};
use object_store::{ObjectStore, ObjectStoreExt};
use windfall_agent::checkpoint::{Checkpoints, Choose, Options, Snapshot};

const LARGE: u64 = 4;
const SMALL: u64 = 200;
const SMALL_BYTES: usize = 20_000;
const PART: usize = 8 << 20;
/// What the budget of `save` allows in flight: 48 MiB of parts.
const PARTS: usize = 6;
const BUCKET: &str = "windfall-bench";

struct Arguments {
    json: bool,
    mib: u64,
    runs: u64,
    dir: PathBuf,
}

fn arguments() -> Arguments {
    let mut arguments = Arguments { json: false, mib: 1024, runs: 5, dir: std::env::temp_dir() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap();
        match word.as_str() {
            "--json" => arguments.json = true,
            "--mib" => arguments.mib = value().parse().unwrap(),
            "--runs" => arguments.runs = value().parse().unwrap(),
            "--dir" => arguments.dir = value().into(),
            other => panic!("unknown argument: {other}"),
        }
    }
    arguments
}

/// New content each time: nothing is ever on the store already.
fn fill(dir: &Path, mib: u64, seed: u64) -> u64 {
    let _ = fs::remove_dir_all(dir);
    fs::create_dir_all(dir.join("small")).unwrap();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut block = vec![0_u8; 1 << 20];
    let mut bytes = 0;
    for n in 0..LARGE {
        let mut file = File::create(dir.join(format!("shard-{n}"))).unwrap();
        for _ in 0..mib / LARGE {
            for word in block.chunks_exact_mut(8) {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                word.copy_from_slice(&state.to_le_bytes());
            }
            file.write_all(&block).unwrap();
            bytes += block.len() as u64;
        }
        file.sync_all().unwrap();
    }
    for n in 0..SMALL {
        let path = dir.join(format!("small/{n}"));
        fs::write(&path, &block[(n as usize)..(n as usize + SMALL_BYTES)]).unwrap();
        File::open(path).unwrap().sync_all().unwrap();
        bytes += SMALL_BYTES as u64;
    }
    bytes
}

/// `cp -r`, then every file and directory on disk: what `save` promises too.
fn copy_and_sync(from: &Path, to: &Path) -> Duration {
    let _ = fs::remove_dir_all(to);
    let began = Instant::now();
    let copied = std::process::Command::new("cp").arg("-r").arg("--reflink=auto").arg(from).arg(to).status().unwrap();
    assert!(copied.success());
    sync_below(to);
    began.elapsed()
}

fn sync_below(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { sync_below(&path) } else { File::open(path).unwrap().sync_all().unwrap() }
    }
    File::open(dir).unwrap().sync_all().unwrap();
}

async fn save(address: &str, env: &[(String, String)], epoch: u64, from: &Path) -> Duration {
    let checkpoints = Checkpoints::open(address, "bench", Options::with_env(env.to_vec())).unwrap();
    let scratch = from.with_extension("begin");
    checkpoints.begin(epoch, &scratch, Choose::Nothing, &BTreeSet::new()).await.unwrap();
    let snapshot = Snapshot::of(from).unwrap();
    let began = Instant::now();
    checkpoints.save(epoch, 1, &snapshot, None).await.unwrap();
    began.elapsed()
}

fn files_below(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files_below(&path, found) } else { found.push(path) }
    }
}

/// The peer on S3: four files at a time, each in parts as `save` sends them, small ones as one object each.
async fn plain_upload(store: &Arc<dyn ObjectStore>, from: &Path, prefix: &str) -> Duration {
    let mut files = Vec::new();
    files_below(from, &mut files);
    // Shared by all files, as the budget of `save` is: otherwise the peer would have fewer parts in flight.
    let in_flight = Arc::new(tokio::sync::Semaphore::new(PARTS));
    let began = Instant::now();
    let uploads = stream::iter(files).map(|path| {
        let (store, in_flight) = (Arc::clone(store), Arc::clone(&in_flight));
        let key = object_store::path::Path::from(format!("{prefix}/{}", path.strip_prefix(from).unwrap().display()));
        async move {
            let mut file = File::open(&path).unwrap();
            let size = file.metadata().unwrap().len() as usize;
            if size <= PART {
                let body = tokio::task::spawn_blocking(move || fs::read(path).unwrap()).await.unwrap();
                store.put(&key, body.into()).await?;
                return Ok(());
            }
            let mut upload = store.put_multipart(&key).await?;
            let mut parts = tokio::task::JoinSet::new();
            let mut left = size;
            while left > 0 {
                let permit = Arc::clone(&in_flight).acquire_owned().await.unwrap();
                let want = left.min(PART);
                let (back, body) = tokio::task::spawn_blocking(move || {
                    let mut body = vec![0; want];
                    file.read_exact(&mut body).unwrap();
                    (file, body)
                })
                .await
                .unwrap();
                file = back;
                left -= want;
                let put = upload.put_part(body.into());
                parts.spawn(async move {
                    let done = put.await;
                    drop(permit);
                    done
                });
            }
            while let Some(done) = parts.join_next().await {
                done.unwrap()?;
            }
            upload.complete().await?;
            Ok::<_, object_store::Error>(())
        }
    });
    uploads.buffer_unordered(LARGE as usize).try_collect::<Vec<_>>().await.unwrap();
    began.elapsed()
}

fn s3(endpoint: &str, bucket: &str, bare: bool) -> Arc<dyn ObjectStore> {
    // Fails only when one is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = object_store::aws::AmazonS3Builder::new()
        .with_endpoint(endpoint)
        .with_virtual_hosted_style_request(bare)
        .with_allow_http(true)
        .with_access_key_id("TESTACCESSKEY")
        .with_secret_access_key("TESTSECRETKEY")
        .with_region("us-east-1")
        .with_bucket_name(bucket);
    Arc::new(builder.build().unwrap())
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn report(json: bool, what: &str, peer: &str, bytes: u64, ours: Vec<Duration>, theirs: Vec<Duration>) {
    let speed = |times: &[Duration]| median(times.iter().map(|time| bytes as f64 / 1e6 / time.as_secs_f64()).collect());
    let (ours, theirs) = (speed(&ours), speed(&theirs));
    let ratio = ours / theirs;
    if json {
        println!(
            "{{\"benchmark\":\"checkpoint-{what}\",\"peer\":\"{peer}\",\"bytes\":{bytes},\"save_mb_s\":{ours:.1},\"peer_mb_s\":{theirs:.1},\"ratio\":{ratio:.3}}}"
        );
    } else {
        println!("{what:<10} save {ours:>8.1} MB/s   {peer:<34} {theirs:>8.1} MB/s   ratio {ratio:.2}");
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let Arguments { json, mib, runs, dir } = arguments();
    let base = dir.join(format!("windfall-bench-{}", std::process::id()));
    let source = base.join("source");
    let (mut ours, mut theirs, mut bytes) = (vec![], vec![], 0);
    for run in 0..runs {
        // Who goes first alternates too.
        for turn in 0..2 {
            bytes = fill(&source, mib, run * 2 + turn + 1);
            if (run + turn) % 2 == 0 {
                ours.push(save(base.join("store").to_str().unwrap(), &[], run + 1, &source).await);
                fs::remove_dir_all(base.join("store")).unwrap();
            } else {
                theirs.push(copy_and_sync(&source, &base.join("copy")));
                fs::remove_dir_all(base.join("copy")).unwrap();
            }
        }
    }
    report(json, "directory", "cp -r and fsync", bytes, ours, theirs);

    if let Some(endpoint) = std::env::var("WINDFALL_TEST_S3").ok().filter(|endpoint| !endpoint.is_empty()) {
        let _ = s3(&endpoint, "none", true).put(&BUCKET.into(), Vec::new().into()).await;
        let plain = s3(&endpoint, BUCKET, false);
        let pairs = [
            ("AWS_ENDPOINT_URL", endpoint.as_str()),
            ("AWS_ACCESS_KEY_ID", "TESTACCESSKEY"),
            ("AWS_SECRET_ACCESS_KEY", "TESTSECRETKEY"),
        ];
        let env = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let (mut ours, mut theirs) = (vec![], vec![]);
        for run in 0..runs {
            for turn in 0..2 {
                bytes = fill(&source, mib, 1000 + run * 2 + turn);
                let prefix = format!("{}/{run}-{turn}", std::process::id());
                if (run + turn) % 2 == 0 {
                    ours.push(save(&format!("s3://{BUCKET}/{prefix}"), &env, 1, &source).await);
                } else {
                    theirs.push(plain_upload(&plain, &source, &prefix).await);
                }
                let left: Vec<_> = plain.list(Some(&prefix.as_str().into())).try_collect().await.unwrap();
                for object in left {
                    plain.delete(&object.location).await.unwrap();
                }
            }
        }
        report(json, "s3", "object_store multipart", bytes, ours, theirs);
    } else {
        eprintln!("skipped: s3 (WINDFALL_TEST_S3 is not set)");
    }
    fs::remove_dir_all(base).unwrap();
}
