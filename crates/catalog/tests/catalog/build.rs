//! Catalogues from files in the providers' own formats.

use proptest::prelude::*;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use windfall_catalog::build::doubt::Doubt;
use windfall_catalog::build::folder::{Built, build};
use windfall_catalog::build::{aws_bulk, read};
use windfall_catalog::{BuildError, Catalog, Facts, Offer, Query, Term, format};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn built(folder: &Path) -> Result<Built, BuildError> {
    build(Catalog::embedded(), folder, &mut read::nobody())
}

fn opened(folder: &Path) -> Catalog {
    let built = built(folder).expect("good files");
    Catalog::from_bytes(Cow::Owned(built.bytes), "built", true).expect("sound")
}

fn price(catalog: &Catalog, kind: &str, region: &str, term: Term) -> Vec<(Option<String>, f64, String)> {
    let query = Query {
        instance_types: vec![kind.into()],
        regions: vec![region.into()],
        terms: vec![term],
        ..Query::default()
    };
    let row = |offer: &Offer<'_>| (offer.zone.map(str::to_owned), offer.price.dollars(), offer.source.as_of.clone());
    catalog.search(&query).iter().map(row).collect()
}

/// A folder with one file in it.
fn folder_with(name: &str, text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(name);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    std::fs::write(path, text).expect("written");
    folder
}

fn empty() -> Catalog {
    Catalog::from_bytes(Cow::Owned(format::encode(&Facts::default())), "empty", true).expect("sound")
}

fn refusal(name: &str, text: &str) -> String {
    let folder = folder_with(name, text);
    build(empty(), folder.path(), &mut read::nobody())
        .expect_err("a refusal")
        .to_string()
        .replace(&*folder.path().to_string_lossy(), "FOLDER")
}

#[test]
fn an_aws_offer_file_gives_on_demand_and_plain_commitments() {
    let catalog = opened(&fixtures().join("aws"));
    let date = || "2026-09-01".to_owned();
    assert_eq!(price(&catalog, "p5.48xlarge", "us-east-1", Term::OnDemand), [(None, 54.0, date())]);
    assert_eq!(price(&catalog, "p5.48xlarge", "us-east-1", Term::Reserved1y), [(None, 39.5, date())]);
    assert_eq!(price(&catalog, "p5.48xlarge", "us-east-1", Term::Reserved3y), [(None, 24.0, date())]);
    let new = catalog.instance_types().find(|kind| kind.name == "g6e.96xlarge").expect("a new type");
    assert_eq!((new.accelerator, new.count.to_string(), new.memory_gib), (Some("L40S"), "16".into(), Some(3_072.0)));
    assert!(price(&catalog, "g5.xlarge", "us-east-1", Term::OnDemand).is_empty(), "a full list replaces its region");
    assert!(!price(&catalog, "g5.xlarge", "us-west-2", Term::OnDemand).is_empty(), "and leaves the others");
}

#[test]
fn a_spot_history_adds_the_newest_price_of_each_zone() {
    let catalog = opened(&fixtures().join("aws"));
    let spot = price(&catalog, "p5.48xlarge", "us-east-1", Term::Spot);
    assert!(spot.contains(&(Some("use1-az6".into()), 20.25, "2026-09-02".into())), "{spot:?}");
    let other = price(&catalog, "g5.xlarge", "us-west-2", Term::Spot);
    assert!(other.contains(&(Some("us-west-2b".into()), 0.4123, "2026-09-02".into())));
}

#[test]
fn google_s_skus_are_put_together_over_pages() {
    let catalog = opened(&fixtures().join("gcp"));
    let sum = 4.0 * 0.024988 + 16.0 * 0.002927 + 0.56004;
    let found = price(&catalog, "g2-standard-4", "us-central1", Term::OnDemand);
    assert_eq!(found.len(), 1);
    assert!((found[0].1 - sum).abs() < 1e-9, "{found:?}");
    assert_eq!(found[0].2, "2026-09-04");
}

#[test]
fn azure_s_pages_give_linux_spot_and_terms_by_the_hour() {
    let catalog = opened(&fixtures().join("azure"));
    let of = |term| price(&catalog, "Standard_ND96isr_H100_v5", "eastus", term).first().map(|(_, price, _)| *price);
    assert_eq!(of(Term::OnDemand), Some(98.32));
    assert_eq!(of(Term::Spot), Some(39.328));
    assert_eq!(of(Term::Reserved3y), Some(49.160328767));
}

#[test]
fn a_size_that_a_full_list_no_longer_has_is_not_sold_as_spot_either() {
    let page = r#"{"BillingCurrency": "USD", "Items": [{"currencyCode": "USD", "retailPrice": 98.32, "type": "Consumption",
        "armRegionName": "eastus", "armSkuName": "Standard_ND96isr_H100_v5", "serviceName": "Virtual Machines",
        "unitOfMeasure": "1 Hour", "effectiveStartDate": "2026-09-01T00:00:00Z"}]}"#;
    let folder = folder_with("page.json", page);
    let before = Catalog::embedded();
    assert!(!price(&before, "Standard_NC24ads_A100_v4", "eastus", Term::Spot).is_empty(), "it is sold until then");
    let after = opened(folder.path());
    assert!(price(&after, "Standard_NC24ads_A100_v4", "eastus", Term::Spot).is_empty(), "the list does not have it");
    assert!(!price(&after, "Standard_NC24ads_A100_v4", "westus3", Term::Spot).is_empty(), "another region");
    let built = built(folder.path()).expect("good files");
    assert!(built.dropped.iter().any(|line| line.why == Doubt::Gone && line.regions.contains("eastus")));
}

#[test]
fn a_price_with_windows_in_it_is_not_taken_and_the_known_one_stays() {
    let size = "Standard_NC24ads_A100_v4";
    let on_demand =
        |catalog: &Catalog| price(catalog, size, "eastus", Term::OnDemand).first().map(|(_, price, _)| *price);
    let known = on_demand(&Catalog::embedded()).expect("sold");
    for (more, taken) in [(24.0 * 0.046, false), (0.5, true)] {
        let page = format!(
            r#"{{"BillingCurrency": "USD", "Items": [{{"currencyCode": "USD", "retailPrice": {:.3}, "type": "Consumption",
            "armRegionName": "eastus", "armSkuName": "{size}", "serviceName": "Virtual Machines",
            "unitOfMeasure": "1 Hour", "effectiveStartDate": "2026-09-01T00:00:00Z"}},
            {{"currencyCode": "USD", "retailPrice": 98.0, "type": "Consumption",
            "armRegionName": "eastus", "armSkuName": "Standard_ND96isr_H100_v5", "serviceName": "Virtual Machines",
            "unitOfMeasure": "1 Hour", "effectiveStartDate": "2026-09-01T00:00:00Z"}}]}}"#,
            known + more
        );
        let folder = folder_with("page.json", &page);
        let now = on_demand(&opened(folder.path())).expect("sold");
        assert_eq!((now - known).abs() > 1e-9, taken, "{now} after {known}");
        let built = built(folder.path()).expect("good files");
        assert_eq!(built.dropped.iter().any(|line| line.why == Doubt::Windows), !taken);
    }
}

#[test]
fn a_placeholder_in_a_file_is_not_taken_and_is_said() {
    let head = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region\n";
    let rows = ["1x,L4,1,4,16,,700,,here", "2x,L4,2,8,32,,700,,here", "4x,L4,4,16,64,,700,,here"].join("\n");
    let folder = folder_with("runpod/vms.csv", &format!("{head}{rows}\n1x,L4,1,4,16,,0.4,,there\n"));
    let built = build(empty(), folder.path(), &mut read::nobody()).expect("a good file");
    let told: Vec<String> = built.dropped.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["runpod 1x, 2x, 4x in here: $700.00 an hour for 1 accelerators as for 4: a placeholder"]);
    let catalog = Catalog::from_bytes(Cow::Owned(built.bytes), "built", true).expect("sound");
    assert_eq!(catalog.search(&Query::default()).len(), 1);
}

#[test]
fn lambda_s_prices_hold_everywhere() {
    let catalog = opened(&fixtures().join("lambda"));
    let here = price(&catalog, "gpu_8x_h100_sxm5", "us-east-9", Term::OnDemand);
    assert_eq!(here, [(None, 23.92, "2026-09-01".to_owned())]);
    let new = catalog.instance_types().find(|kind| kind.name == "gpu_4x_b200_new").expect("a new type");
    assert_eq!((new.accelerator, new.count.to_string()), (Some("B200"), "4".into()));
    assert!(price(&catalog, "gpu_1x_a10", "us-east-1", Term::OnDemand).is_empty(), "it is no longer listed");
}

#[test]
fn skypilot_s_files_are_known_by_their_folder() {
    let catalog = opened(&fixtures().join("skypilot"));
    let found = price(&catalog, "1x_H100_SECURE", "US", Term::OnDemand);
    assert_eq!(found.iter().map(|(zone, price, _)| (zone.as_deref(), *price)).collect::<Vec<_>>(), [(None, 2.39)]);
    assert!(price(&catalog, "1x_H100_SECURE", "US", Term::Spot).is_empty());
}

#[test]
fn all_formats_together_are_told_apart_and_the_rest_is_skipped() {
    let built = built(&fixtures()).expect("good files");
    let formats: Vec<&str> = built.files.iter().map(|file| file.format).collect();
    assert_eq!(
        formats,
        [
            "AWS bulk offer file",
            "AWS spot price history",
            "Azure retail prices",
            "Lambda instance types",
            "SkyPilot catalogue",
            "Google Cloud SKU list"
        ]
    );
    assert_eq!(built.skipped, ["README.md"]);
}

#[test]
fn files_may_be_packed() {
    let text = std::fs::read(fixtures().join("lambda/instance-types-2026-09-01.json")).expect("there");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("lambda-2026-09-05.json.gz");
    let mut packed =
        flate2::write::GzEncoder::new(std::fs::File::create(&path).expect("made"), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, &text).expect("written");
    packed.finish().expect("written");
    let found = price(&opened(folder.path()), "gpu_8x_h100_sxm5", "us-east-9", Term::OnDemand);
    assert_eq!(found, [(None, 23.92, "2026-09-05".to_owned())]);
    let whole = std::fs::read(&path).expect("there");
    std::fs::write(&path, &whole[..whole.len() / 2]).expect("cut");
    assert!(built(folder.path()).is_err(), "a packed file that breaks off");
}

#[test]
fn an_offer_file_that_breaks_off_anywhere_is_refused() {
    let text = std::fs::read_to_string(fixtures().join("aws/ec2-offers.json")).expect("there");
    let text = text.trim_end();
    for length in (1..text.len()).step_by(7) {
        let mut facts = Facts::default();
        assert!(aws_bulk::read(&mut facts, "x", &text.as_bytes()[..length]).is_err(), "cut at {length}");
    }
}

#[test]
fn what_cannot_be_true_is_refused_with_file_and_place() {
    let aws = std::fs::read_to_string(fixtures().join("aws/ec2-offers.json")).expect("there");
    let yuan = aws.replace("\"USD\": \"54.0000000000\"", "\"CNY\": \"390.0\"");
    let error = refusal("a/offers.json", &yuan);
    assert!(error.starts_with("a/offers.json: line "), "{error}");
    assert!(error.ends_with("AAAA1111BBBB2222: the currency is CNY; only USD is understood"), "{error}");
    let negative = aws.replace("54.0000000000", "-54.0");
    assert!(refusal("offers.json", &negative).ends_with("`-54.0` is a negative price"));
    let azure = std::fs::read_to_string(fixtures().join("azure/retail-page-1.json")).expect("there");
    assert!(
        refusal("p.json", &azure.replace("\"currencyCode\": \"USD\"", "\"currencyCode\": \"EUR\"")).contains("EUR")
    );
    assert!(refusal("p.json", &azure.replace("98.32", "9832000000.0")).contains("absurd"));
    let google = std::fs::read_to_string(fixtures().join("gcp/skus-page-1.json")).expect("there");
    assert!(refusal("s.json", &google.replace("\"nanos\": 24988000", "\"nanos\": -24988000")).contains("skus[0]"));
    let lambda = std::fs::read_to_string(fixtures().join("lambda/instance-types-2026-09-01.json")).expect("there");
    let error = refusal("l.json", &lambda.replace("2392", "-1"));
    assert_eq!(error, "l.json: data.gpu_8x_h100_sxm5: -1 cents an hour cannot be");
}

#[test]
fn a_folder_without_prices_is_no_catalogue() {
    assert_eq!(refusal("notes.txt", "nothing"), "FOLDER: no file with prices in a known format");
    assert!(matches!(built(Path::new("/nowhere/at/all")), Err(BuildError::Read { .. })));
}

proptest! {
    #[test]
    fn noise_in_a_file_is_refused_or_read_but_never_a_panic(
        which in prop::sample::select(vec![
            "aws/ec2-offers.json", "aws/spot-history.json", "gcp/skus-page-1.json", "azure/retail-page-1.json",
            "lambda/instance-types-2026-09-01.json", "skypilot/runpod/vms.csv",
        ]),
        at in 0usize..20_000,
        noise in prop::collection::vec(any::<u8>(), 1..8),
    ) {
        let mut bytes = std::fs::read(fixtures().join(which)).expect("there");
        let at = at % bytes.len();
        let end = (at + noise.len()).min(bytes.len());
        bytes.splice(at..end, noise);
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("runpod")).expect("made");
        let name = if which.ends_with("csv") { "runpod/vms.csv" } else { "file.json" };
        std::fs::write(folder.path().join(name), bytes).expect("written");
        if let Ok(built) = build(empty(), folder.path(), &mut read::nobody()) {
            prop_assert!(Catalog::from_bytes(Cow::Owned(built.bytes), "built", true).is_ok());
        }
    }
}
