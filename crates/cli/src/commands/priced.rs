//! What an hour of an accelerator costs where a person says it, or names an instance type.

use windfall_catalog::{Catalog, Query, Term};
use windfall_server::client::{Code, Failure};

/// Dollars for an hour of one accelerator, and where they come from.
pub fn each(
    catalog: &Catalog,
    price: Option<f64>,
    instance: Option<&str>,
) -> Result<(Option<f64>, Option<String>), Failure> {
    if let Some(usd) = price {
        let sane = usd.is_finite() && usd > 0.0 && usd < 1e6;
        let bad = || Failure::new(Code::BadInput, format!("--price: {usd} is not a price"));
        return if sane {
            Ok((Some(usd), None))
        } else {
            Err(bad().hint("say dollars an hour of one accelerator, such as 3.5"))
        };
    }
    let Some(instance) = instance else { return Ok((None, None)) };
    let query = Query { instance_types: vec![instance.to_owned()], terms: vec![Term::OnDemand], ..Query::default() };
    let offers = catalog.search(&query);
    let offer = offers.first().ok_or_else(|| {
        Failure::new(
            Code::BadInput,
            format!("no on-demand price of an instance type `{instance}` with accelerators is known"),
        )
        .hint("`windfall offers` lists instance types; or say --price")
    })?;
    let each = offer.price.dollars() / offer.kind.count.as_f64().max(1e-3);
    let said = format!(
        "priced at {} an hour for one accelerator: {} on demand in {} {} ({})",
        crate::show::usd(each),
        offer.kind.name,
        offer.kind.cloud,
        offer.region,
        offer.source.as_of
    );
    Ok((Some(each), Some(said)))
}

/// Fails where no data sheet of an accelerator of that name is known.
pub fn known(catalog: &Catalog, named: &str) -> Result<(), Failure> {
    if windfall_insight::roofline::sheet(catalog, named).is_some() {
        return Ok(());
    }
    let near = windfall_catalog::names::suggest(named, []);
    let failure = Failure::new(Code::BadInput, format!("no data sheet of an accelerator `{named}` is known"));
    Err(failure.hint(near.map_or("say a name such as H100".to_owned(), |name| format!("did you mean {name}?"))))
}
