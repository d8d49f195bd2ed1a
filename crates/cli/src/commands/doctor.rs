pub async fn doctor(_: &crate::here::Here) -> Result<windfall_server::client::Code, windfall_server::client::Failure> { Ok(windfall_server::client::Code::Done) }
